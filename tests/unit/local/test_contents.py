"""Directories from which a part is missing. Each is refused before anything is made in it but the file ``lock``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.local.contents import whole_state
from bk_spark.local.copying import accept_copy, copy_cluster
from bk_spark.local.place import ClusterDirectory
from tests.unit.embedded.test_owners import COOKIE, put
from tests.unit.local.stopped_cluster import put_state, state_of


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a cluster with four bookies that ended properly, as far as a start looks at it before it starts ZooKeeper."""
    path = tmp_path / "two words"
    for number in range(1, 5):
        put(path / f"bookie-{number}/data/cookie", COOKIE)
    put(path / "zookeeper/data/version-2/log.1", b"metadata")
    put_state(path, (3181, 3182, 3183, 3184))
    return path


def start(path: Path) -> None:
    """As far as a start looks at the directory."""
    place = ClusterDirectory(path)
    try:
        whole_state(place)
    finally:
        place.close()


def files(path: Path) -> list[Path]:
    return sorted(one for one in path.rglob("*") if one.name != "lock")


def test_bookies_without_the_clusters_state_are_refused_until_their_owner_accepts_them(directory: Path) -> None:
    (directory / "cluster.json").unlink()
    before = files(directory)
    refusal = rf"cluster.json is missing in it .*of the original with.*'bk-spark local accept-copy '{directory}''"
    with pytest.raises(ConfigError, match=refusal):
        start(directory)
    with pytest.raises(ConfigError, match=refusal):
        copy_cluster(directory, directory.with_name("copy"))
    assert files(directory) == before
    assert accept_copy(directory)
    state = state_of(directory)
    assert len(state.bookie_ports) == 4, "all of its bookies start, however many are asked for"
    assert state.is_copied("the mark of any directory"), "it gets an instance id of its own"
    assert not state.in_use
    assert not accept_copy(directory)


@pytest.mark.parametrize("text", ["", '{"vers', "[]"])
def test_damage_of_the_clusters_state_is_refused_until_its_owner_accepts_it(directory: Path, text: str) -> None:
    (directory / "cluster.json").write_text(text)
    with pytest.raises(CorruptionError, match=r"cluster.json is damaged: .*put back.*'bk-spark local accept-copy"):
        start(directory)
    assert (directory / "cluster.json").read_text() == text
    assert accept_copy(directory)
    assert len(state_of(directory).bookie_ports) == 4


def test_a_cluster_that_is_no_copy_is_not_changed_by_its_acceptance(directory: Path) -> None:
    before = (directory / "cluster.json").read_bytes()
    assert not accept_copy(directory)
    assert (directory / "cluster.json").read_bytes() == before


@pytest.mark.parametrize(
    "missing", ["zookeeper", "zookeeper/data", "zookeeper/data/version-2", "zookeeper/data/version-2/log.1"]
)
def test_no_zookeeper_is_made_beside_bookies_that_had_one(directory: Path, missing: str) -> None:
    at = directory / missing
    shutil.rmtree(at) if at.is_dir() else at.unlink()
    before = files(directory)
    refusal = f"{directory}': zookeeper/data/version-2 is missing in it, or empty.*put it back, from the same backup"
    with pytest.raises(ConfigError, match=refusal):
        start(directory)
    with pytest.raises(ConfigError, match=refusal):
        accept_copy(directory)
    assert files(directory) == before


def test_a_zookeeper_that_cannot_be_read_is_named(directory: Path) -> None:
    at = directory / "zookeeper/data/version-2"
    shutil.rmtree(at)
    at.symlink_to(at)  # root reads everything but this
    with pytest.raises(ConfigError, match="zookeeper/data/version-2 in it cannot be read"):
        start(directory)
