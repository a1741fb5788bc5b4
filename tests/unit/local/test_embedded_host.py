from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bk_spark.embedded import join
from bk_spark.embedded.join import HostFile
from bk_spark.embedded.turn import TURN_FILE, Turn
from bk_spark.errors import ConfigError
from bk_spark.local import embedded_host
from bk_spark.local.place import DataDirectoryInUseError


class Clock:
    """Time passes while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(embedded_host, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Turn]:
    """The turn of another host."""
    turn = Turn(tmp_path)
    yield turn
    turn.close()


def in_use(clock: Clock, until_s: float = float("inf")) -> Any:
    def open_cluster(bookies: int, directory: Path, *, tls: bool) -> str:
        if clock.now_s < until_s:
            raise DataDirectoryInUseError("data_dir", str(directory), "in use")
        return "cluster"

    return open_cluster


def test_one_host_at_a_time_has_its_turn_in_a_directory(tmp_path: Path, other: Turn) -> None:
    assert other.take()
    assert other.take()
    late = Turn(tmp_path)
    assert not late.take()
    other.close()
    assert late.take()
    late.close()


def test_a_turn_is_that_of_the_directory_which_the_path_leads_to(tmp_path: Path, other: Turn) -> None:
    assert other.take()
    (tmp_path / TURN_FILE).unlink()
    late = Turn(tmp_path)
    assert late.take()
    assert not other.take()
    late.close()


@pytest.mark.parametrize(("tls", "query"), [("false", ""), ("true", "?tls=true")])
def test_a_directory_that_another_program_uses_is_refused_within_seconds_with_the_clusters_uri(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, tls: str, query: str
) -> None:
    monkeypatch.setattr(embedded_host, "LocalCluster", in_use(clock))
    (tmp_path / "cluster.json").write_text(f'{{"version": 1, "zookeeper_port": 2181, "in_use": true, "tls": {tls}}}')
    uri = re.escape(f"zk://127.0.0.1:2181/ledgers{query}")
    with pytest.raises(ConfigError, match=f"another local cluster uses it.* or give {uri}$"):
        embedded_host._cluster(tmp_path)
    assert clock.now_s - 1000.0 < 6.0


@pytest.mark.parametrize("content", [None, "{}", '{"version": 1, "zookeeper_port": 2181}'])
def test_without_its_uri_the_program_is_named_all_the_same(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.setattr(embedded_host, "LocalCluster", in_use(clock))
    if content is not None:
        (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(ConfigError, match="stop that one, or give its own metadata URI"):
        embedded_host._cluster(tmp_path)


def test_what_a_killed_host_left_is_waited_for(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_host, "LocalCluster", in_use(clock, until_s=1003.0))
    assert embedded_host._cluster(tmp_path) == "cluster"


def test_a_host_that_ends_slowly_is_waited_for_and_then_what_it_left(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, other: Turn
) -> None:
    other.take()

    def sleep(pause_s: float) -> None:
        clock.now_s += pause_s
        if clock.now_s >= 1040.0:
            other.close()

    monkeypatch.setattr(clock, "sleep", sleep)
    monkeypatch.setattr(embedded_host, "LocalCluster", in_use(clock, until_s=1042.0))
    assert embedded_host._cluster(tmp_path) == "cluster"


def test_a_host_that_starts_its_processes_may_take_as_long_as_they_all(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, other: Turn
) -> None:
    other.take()
    monkeypatch.setattr(embedded_host, "LocalCluster", in_use(clock))
    with pytest.raises(ConfigError, match="another process starts or ends its cluster"):
        embedded_host._cluster(tmp_path)
    assert 100.0 <= clock.now_s - 1000.0 < embedded_host.START_S


def test_a_host_that_is_suspended_is_told_after_a_minute(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, other: Turn
) -> None:
    other.take()
    monkeypatch.setattr(embedded_host, "LocalCluster", in_use(clock))
    inode = tmp_path.stat()
    told = {"port": 1, "token": "t", "metadata": "zk://x:1/ledgers", "directory": [inode.st_dev, inode.st_ino], "refused": []}
    (tmp_path / "embedded.json").write_text(json.dumps({**told, "pid": 77}))
    monkeypatch.setattr(embedded_host, "_is_suspended", lambda pid, _: pid == 77)
    monkeypatch.setattr(embedded_host, "greeted", lambda _: None)
    with pytest.raises(ConfigError, match=r"process 77, is suspended: continue it \('kill -CONT 77'\), or end it"):
        embedded_host._cluster(tmp_path)
    assert 60.0 <= clock.now_s - 1000.0 < 61.0


def test_a_host_that_serves_meanwhile_is_left_to_it(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, other: Turn
) -> None:
    other.take()
    monkeypatch.setattr(embedded_host, "greeted", lambda _: "joined" if clock.now_s > 1010.0 else None)
    assert embedded_host._cluster(tmp_path) is None


def test_a_host_that_is_too_busy_to_greet_in_time_is_asked_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, other: Turn
) -> None:
    other.take()

    def greeted(_: Path) -> str | None:
        clock.now_s += join.GREETING_S
        return "joined" if clock.now_s > 1030.0 else None

    monkeypatch.setattr(embedded_host, "greeted", greeted)
    assert embedded_host._cluster(tmp_path) is None


def test_what_answers_in_the_place_of_a_killed_host_takes_no_time_from_what_that_host_left(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may have the port by now, and say nothing."""

    def greeted(_: Path) -> None:
        clock.now_s += join.GREETING_S

    monkeypatch.setattr(embedded_host, "greeted", greeted)
    monkeypatch.setattr(embedded_host, "LocalCluster", in_use(clock, until_s=1003.0))
    assert embedded_host._cluster(tmp_path) == "cluster"


def test_a_host_that_works_and_does_not_answer_is_not_to_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = HostFile(1, "secret", "zk://127.0.0.1:2181/ledgers", os.getpid(), (0, 0), ())
    monkeypatch.setattr(embedded_host, "read_host", lambda _: told)
    assert embedded_host._other_host(tmp_path) == f"its host, process {os.getpid()}, does not answer: try again"
