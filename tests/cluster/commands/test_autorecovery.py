"""``bk-spark auditor``, ``autorecovery``, ``underreplicated`` as a person calls them: a cluster of znodes, real processes."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bk_spark.cli import main
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore
from bk_spark.replication.auditor_znodes import AuditorElection, AuditorZnodes, candidates
from tests.cluster.client.cluster_of_znodes import ClusterOfZnodes, eventually

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def cluster_of_znodes(store: ZooKeeperStore, znodes: Znodes) -> ClusterOfZnodes:
    cluster = ClusterOfZnodes(store, znodes)
    cluster.create_ledgers({7: ("b1", "b2"), 8: ("b2", "b3")})
    return cluster


@pytest.fixture
def asked(cluster_of_znodes: ClusterOfZnodes, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that succeeds; gives back what it printed with ``--json``."""

    def call(*arguments: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main([*arguments, "--metadata", cluster_of_znodes.store.uri, "--json"]) == 0, capsys.readouterr().err
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return call


@contextlib.contextmanager
def process(cluster: ClusterOfZnodes, kind: str, *options: str) -> Iterator[str]:
    """``auditor run`` or ``autorecovery run``, once it stands for election, until SIGTERM; gives where it serves metrics."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "bk_spark.cli", kind, "run", "--metadata", cluster.store.uri, "--name", f"{kind}-1"]
    running = subprocess.Popen([*command, "--http-port", str(port), *options], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: candidates(cluster.store, cluster.znodes) == [f"{kind}-1"])
        yield f"http://127.0.0.1:{port}"
        running.send_signal(signal.SIGTERM)
        assert running.wait(30.0) == 0
        assert candidates(cluster.store, cluster.znodes) == []
    finally:
        running.kill()
        running.wait()


def test_a_process_takes_part_serves_metrics_and_ends_cleanly(cluster_of_znodes: ClusterOfZnodes) -> None:
    with process(cluster_of_znodes, "autorecovery") as url:
        with urllib.request.urlopen(f"{url}/health") as answer:
            assert answer.read() == b"alive\n"
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            assert b"bk_spark_autorecovery_is_auditor" in answer.read()


def test_who_is_the_auditor_is_told_and_that_there_is_none(
    cluster_of_znodes: ClusterOfZnodes, asked: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked("auditor", "who") == [{"auditor": None, "candidates": []}]
    for name in ("host:1", "host:2"):
        AuditorElection(cluster_of_znodes.store, cluster_of_znodes.znodes, name).is_elected()
    assert asked("auditor", "who") == [{"auditor": "host:1", "candidates": ["host:1", "host:2"]}]
    assert main(["auditor", "who", "--metadata", cluster_of_znodes.store.uri]) == 0
    assert capsys.readouterr().out == "auditor     host:1\ncandidates  host:1, host:2\n"


@pytest.mark.timeout(90)
def test_an_audit_that_is_triggered_is_made_by_the_auditor(cluster_of_znodes: ClusterOfZnodes, asked: Run) -> None:
    """Without the grace period; with --replicas it reads all replicas, of which these ledgers have none."""
    with process(cluster_of_znodes, "auditor", "--lost-bookie-grace-s", "3600"):
        cluster_of_znodes.go("b1")
        (found,) = asked("auditor", "trigger", "--wait-s", "60")
        assert (found["auditor"], found["ledgers"], found["marked"]) == ("auditor-1", 2, 1)
        assert cluster_of_znodes.marked() == {7: ("b1",)}
        (found,) = asked("auditor", "trigger", "--replicas", "--wait-s", "60")
        assert (found["ledgers"], found["entries"], found["lacking_ledgers"]) == (2, 0, 0)
        assert asked("auditor", "trigger") == [{"auditor": "auditor-1"}]


def test_an_audit_that_nobody_would_make_is_not_asked_for(
    cluster_of_znodes: ClusterOfZnodes, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["auditor", "trigger", "--metadata", cluster_of_znodes.store.uri]
    assert main(command) == 1
    assert "start 'bk-spark autorecovery run'" in capsys.readouterr().err
    AuditorElection(cluster_of_znodes.store, cluster_of_znodes.znodes, "host:1").is_elected()
    cluster_of_znodes.marks.disable()
    assert main(command) == 1
    assert "until 'bk-spark autorecovery enable'" in capsys.readouterr().err
    cluster_of_znodes.marks.enable()
    assert main([*command, "--wait-s", "0.2"]) == 1
    assert "the audit takes longer" in capsys.readouterr().err


def test_autorecovery_is_disabled_and_enabled_for_the_whole_cluster(cluster_of_znodes: ClusterOfZnodes, asked: Run) -> None:
    assert asked("autorecovery", "disable") == [{"enabled": False}]
    assert not cluster_of_znodes.marks.is_enabled()
    assert asked("autorecovery", "status")[0]["enabled"] is False
    assert asked("autorecovery", "enable") == [{"enabled": True}]
    assert cluster_of_znodes.marks.is_enabled()


def test_the_status_tells_who_does_what_and_which_bookies_are_gone(cluster_of_znodes: ClusterOfZnodes, asked: Run) -> None:
    store, znodes = cluster_of_znodes.store, cluster_of_znodes.znodes
    (found,) = asked("autorecovery", "status")
    assert found["enabled"] is True
    assert (found["auditor"], found["marked_ledgers"], found["lost_bookies"]) == (None, 0, None)
    AuditorElection(store, znodes, "host:1").is_elected()
    far_ms = 4_000_000_000_000
    AuditorZnodes(store, znodes).report({"lost": ["b1"], "waiting": {"b2": far_ms, "b3": 1}, "is_checking": True})
    cluster_of_znodes.marks.mark_many({7: ["b1"], 8: ["b1"]})
    cluster_of_znodes.marks.try_lock(7, "host:1")
    (found,) = asked("autorecovery", "status")
    assert (found["auditor"], found["marked_ledgers"], found["locked_ledgers"], found["workers"]) == (
        "host:1",
        2,
        1,
        ["host:1"],
    )
    assert (found["lost_bookies"], found["lost_in_s"]["b3"], found["replicas_are_checked"]) == (["b1"], 0, True)
    assert found["lost_in_s"]["b2"] > 1_000_000


def test_marked_ledgers_are_listed_with_what_is_missing_since_when_and_who_works_on_them(
    cluster_of_znodes: ClusterOfZnodes, asked: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked("underreplicated", "list") == []
    command = ["underreplicated", "list", "--metadata", cluster_of_znodes.store.uri]
    assert main(command) == 0
    assert capsys.readouterr().out.split() == ["LEDGER_ID", "MISSING", "MARKED", "LOCKED_BY"]
    path = cluster_of_znodes.znodes.under_replicated(8)
    cluster_of_znodes.store.create(path, b'replica: "b3"\nreplica: "b2"\nctime: 1700000000123\n', make_parents=True)
    worker = UnderReplication(cluster_of_znodes.store, cluster_of_znodes.znodes)
    worker.try_lock(8, "host:1")
    expected = {"ledger_id": 8, "missing": ["b3", "b2"], "locked_by": "host:1", "marked_ms": 1700000000123}
    assert asked("underreplicated", "list") == [expected]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["8", "b3,", "b2", "2023-11-14T22:13:20Z", "host:1"]


def test_ledgers_are_listed_whose_copies_could_be_in_more_racks(
    cluster_of_znodes: ClusterOfZnodes, asked: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked("underreplicated", "racks") == []
    for bookie_id, rack in (("b1", "/a"), ("b2", "/a"), ("b3", "/b")):
        cluster_of_znodes.go(bookie_id)
        cluster_of_znodes.come(bookie_id, rack=rack)
    expected = {"ledger_id": 7, "first_entry_id": 0, "racks": 1, "bookies": ["b1 /a", "b2 /a"]}
    assert asked("underreplicated", "racks") == [expected]
    assert main(["underreplicated", "racks", "--metadata", cluster_of_znodes.store.uri]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["LEDGER_ID", "FIRST_ENTRY_ID", "RACKS", "BOOKIES"]
