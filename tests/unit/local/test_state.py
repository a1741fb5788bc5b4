from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError, FormatVersionError
from bk_spark.local.place import ClusterDirectory
from bk_spark.local.state import MAX_FORMER_PORTS, ClusterState, check_snapshot, read_state, write_state

PORTS = ClusterState(2181, (3181, 3182), mark="elsewhere")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClusterDirectory]:
    place = ClusterDirectory(tmp_path)
    locks = place.lock()
    yield place
    for lock in locks:
        os.close(lock)
    place.close()


def test_what_was_written_is_read(place: ClusterDirectory) -> None:
    assert read_state(place) == ClusterState()
    write_state(place, PORTS)
    assert read_state(place) == PORTS


def test_a_file_of_an_older_release_is_of_this_directory(place: ClusterDirectory) -> None:
    (place.path / "cluster.json").write_text(json.dumps({"version": 1, "zookeeper_port": 1, "bookie_ports": [2]}))
    state = read_state(place)
    assert (state.zookeeper_port, state.bookie_ports) == (1, (2,))
    assert not state.is_copied(place.mark)


def test_a_copy_has_none_of_the_ports_of_its_ancestors() -> None:
    copy = PORTS.of_a_copy("new")
    assert (copy.zookeeper_port, copy.bookie_ports, copy.former_ports) == (None, (None, None), (2181, 3181, 3182))
    again = ClusterState(5, (6,), former_ports=tuple(range(100, 100 + MAX_FORMER_PORTS))).of_a_copy("newer").former_ports
    assert again[-2:] == (5, 6)
    assert len(again) == MAX_FORMER_PORTS


def test_an_interrupted_renewal_goes_on_with_the_same_id() -> None:
    assert PORTS.of_a_copy("first").of_a_copy("second").renewal == "first"


def test_a_copy_of_a_directory_in_use_is_refused_and_a_killed_cluster_is_not(place: ClusterDirectory) -> None:
    check_snapshot(ClusterState(mark=place.mark, in_use=True), place)
    check_snapshot(ClusterState(mark="elsewhere", in_use=False), place)
    with pytest.raises(ConfigError, match=r"bk-spark local copy.*bk-spark local accept-copy"):
        check_snapshot(ClusterState(mark="elsewhere", in_use=True), place)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", CorruptionError),
        ("[]", CorruptionError),
        ('{"version": 1, "bookie_ports": 3}', CorruptionError),
        ('{"version": 1, "bookie_ports": ["3181"]}', CorruptionError),
        ('{"version": 1, "zookeeper_port": 70000}', CorruptionError),
        ('{"version": 1, "mark": 7}', CorruptionError),
        ('{"version": 99}', FormatVersionError),
    ],
)
def test_a_file_that_makes_no_sense_is_named(place: ClusterDirectory, text: str, error: type[BookKeeperError]) -> None:
    (place.path / "cluster.json").write_text(text)
    with pytest.raises(error, match=r"cluster\.json"):
        read_state(place)


def test_the_file_is_readable_by_its_owner_alone(place: ClusterDirectory) -> None:
    write_state(place, PORTS)
    assert (place.path / "cluster.json").stat().st_mode & 0o777 == 0o600
