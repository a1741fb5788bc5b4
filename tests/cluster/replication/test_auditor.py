"""Auditors on a real ZooKeeper: elected, suspended, killed; what they mark. Protocol rule 54; situations 76, 78, 79."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.config import ClientConfig
from bk_spark.metadata.store import ANY_VERSION
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect
from bk_spark.replication import auditor
from bk_spark.replication.auditor import AuditorProcess
from bk_spark.replication.auditor_znodes import auditor_report, candidates, current_auditor, is_requested, request_audit
from bk_spark.replication.ledger_audit import LedgerAudit
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.telemetry.metrics import IS_AUDITOR, LEDGERS_IN_FEW_RACKS, LOST_BOOKIES
from tests.cluster.client.cluster_of_znodes import ClusterOfZnodes, eventually
from tests.cluster.metadata.test_zookeeper import expire

QUICK = AutoRecoveryConfig(lost_bookie_grace_s=0.3)
PATIENT = AutoRecoveryConfig(lost_bookie_grace_s=3_600.0)


@pytest.fixture(autouse=True)
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens is to be noticed by watches and deadlines."""
    monkeypatch.setattr(auditor, "POLL_S", 3_600.0)


@pytest.fixture
def cluster(store: ZooKeeperStore, znodes: Znodes) -> ClusterOfZnodes:
    cluster = ClusterOfZnodes(store, znodes)
    cluster.create_ledgers({0: ("b1", "b2"), 1: ("b2", "b3"), 2: ("b3", "b4")})
    return cluster


@contextlib.contextmanager
def auditing(cluster: ClusterOfZnodes, config: AutoRecoveryConfig, name: str = "auditor") -> Iterator[AuditorProcess]:
    """A candidate with a session of its own."""
    with connect(cluster.store.uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
        context = ClientContext(store, cluster.znodes, ClientConfig())
        process = AuditorProcess(context, config, auditor_id=name)
        try:
            process.start()
            yield process
        finally:
            process.stop()
            context.close()


@contextlib.contextmanager
def elected(cluster: ClusterOfZnodes, config: AutoRecoveryConfig, name: str = "auditor") -> Iterator[AuditorProcess]:
    """The same, once it has looked at the cluster as auditor."""
    with auditing(cluster, config, name) as process:
        eventually(lambda: auditor_report(cluster.store, cluster.znodes))
        yield process


@pytest.fixture
def looks(no_polling: None, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When auditors looked at the bookies; they do so all the time."""
    monkeypatch.setattr(auditor, "POLL_S", 0.05)
    seen: list[float] = []
    still = AuditorProcess._observe_bookies

    def look(self: AuditorProcess, term: auditor._Term) -> None:
        seen.append(time.monotonic())
        still(self, term)

    monkeypatch.setattr(AuditorProcess, "_observe_bookies", look)
    return seen


def look(cluster: ClusterOfZnodes) -> dict[str, object]:
    return auditor_report(cluster.store, cluster.znodes) or {}


# --- what is marked


def test_the_ledgers_of_a_lost_bookie_are_marked_and_no_others(cluster: ClusterOfZnodes) -> None:
    """Situation 76, its first half; the ledgers have no entries: protocol rule 54."""
    with elected(cluster, QUICK):
        cluster.go("b2")
        eventually(lambda: cluster.marked() == {0: ("b2",), 1: ("b2",)})
        eventually(lambda: look(cluster)["lost"] == ["b2"])
        assert LOST_BOOKIES._value.get() == 1


def test_a_bookie_that_is_back_in_time_makes_no_work(cluster: ClusterOfZnodes) -> None:
    """Situation 79."""
    with elected(cluster, PATIENT):
        cluster.go("b2")
        eventually(lambda: "b2" in look(cluster)["waiting"])  # type: ignore[operator]
        cluster.come("b2")
        eventually(lambda: look(cluster)["waiting"] == {})
        assert cluster.marked() == {}


def test_apaches_tools_have_a_gone_bookie_taken_for_lost_at_once(cluster: ClusterOfZnodes) -> None:
    """As BookKeeperAdmin.triggerAudit does it, for ``decommissionbookie``: the delay is written again."""
    with elected(cluster, PATIENT):
        cluster.go("b2")
        eventually(lambda: "b2" in look(cluster)["waiting"])  # type: ignore[operator]
        ask(cluster, "delay")
        eventually(lambda: cluster.marked() == {0: ("b2",), 1: ("b2",)})


def test_a_second_loss_while_one_is_waited_for_marks_the_ledgers_of_both_at_once(cluster: ClusterOfZnodes) -> None:
    """Situation 79."""
    with elected(cluster, PATIENT):
        cluster.go("b1")
        eventually(lambda: "b1" in look(cluster)["waiting"])  # type: ignore[operator]
        cluster.go("b2")
        eventually(lambda: cluster.marked() == {0: ("b1", "b2"), 1: ("b2",)})


def test_a_bookie_that_came_back_and_went_again_during_an_audit_is_audited_again(
    cluster: ClusterOfZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledgers that were looked at while it was there were not marked."""
    monkeypatch.setattr(LedgerAudit, "_pages", lambda self, after=-1: iter([[0], [1], [2]]))
    events: Iterator[Callable[[], object]] = iter([time.time, partial(cluster.come, "b2"), partial(cluster.go, "b2")])
    still_lost = AuditorProcess._still_lost

    def after_an_event(self: AuditorProcess, *of: Any) -> frozenset[str] | None:
        next(events, time.time)()
        return still_lost(self, *of)

    monkeypatch.setattr(AuditorProcess, "_still_lost", after_an_event)
    with elected(cluster, QUICK):
        cluster.go("b2")
        eventually(lambda: cluster.marked() == {0: ("b2",), 1: ("b2",)})


def test_a_bookie_that_becomes_read_only_is_not_lost(cluster: ClusterOfZnodes) -> None:
    with elected(cluster, QUICK):
        cluster.come("b2", read_only=True)
        request_audit(cluster.store, cluster.znodes, reads_replicas=False)
        eventually(lambda: not is_requested(cluster.store, cluster.znodes))
        assert cluster.marked() == {}


def test_an_audit_that_is_asked_for_is_made_at_once_and_waits_for_nobody(cluster: ClusterOfZnodes) -> None:
    with elected(cluster, PATIENT):
        cluster.go("b4")
        ask(cluster, "request")
        eventually(lambda: not is_requested(cluster.store, cluster.znodes))
        assert cluster.marked() == {2: ("b4",)}
        assert look(cluster)["last_audit"]["marked"] == 1  # type: ignore[index]


@pytest.mark.parametrize("how", ["request", "delay"])
def test_a_bookie_that_went_before_an_audit_was_asked_for_is_part_of_it(
    cluster: ClusterOfZnodes, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It goes, and the audit is asked for, after the auditor looked at the bookies, and before it looks for requests."""
    went = threading.Event()
    start_due_audits = AuditorProcess._start_due_audits

    def after_a_bookie_went(self: AuditorProcess, term: auditor._Term) -> None:
        if not went.is_set():
            cluster.go("b4")
            ask(cluster, how)
            went.set()
        start_due_audits(self, term)

    monkeypatch.setattr(AuditorProcess, "_start_due_audits", after_a_bookie_went)
    with elected(cluster, PATIENT):
        eventually(lambda: look(cluster)["last_audit"])
        assert cluster.marked() == {2: ("b4",)}


def ask(cluster: ClusterOfZnodes, how: str) -> None:
    """For an audit, with our request or as Apache's tools do."""
    if how == "request":
        request_audit(cluster.store, cluster.znodes, reads_replicas=False)
    else:
        delay = cluster.store.get(cluster.znodes.lost_bookie_delay)
        cluster.store.set(cluster.znodes.lost_bookie_delay, delay.value, delay.version)


def test_while_autorecovery_is_disabled_nothing_is_marked_and_its_time_does_not_count(
    cluster: ClusterOfZnodes, looks: list[float]
) -> None:
    cluster.marks.disable()
    with elected(cluster, AutoRecoveryConfig(lost_bookie_grace_s=0.5)):
        cluster.go("b4")
        request_audit(cluster.store, cluster.znodes, reads_replicas=False)
        gone_s = time.monotonic()
        eventually(lambda: looks[-1] > gone_s + 0.6)
        assert cluster.marked() == {}
        assert is_requested(cluster.store, cluster.znodes)
        cluster.store.delete(cluster.znodes.audit_request, ANY_VERSION)
        enabled_s = time.monotonic()
        cluster.marks.enable()
        eventually(lambda: cluster.marked() == {2: ("b4",)})
        assert time.monotonic() - enabled_s > 0.45


def test_nobody_is_waited_for_while_autorecovery_is_disabled(cluster: ClusterOfZnodes) -> None:
    with elected(cluster, PATIENT):
        cluster.go("b4")
        eventually(lambda: "b4" in look(cluster)["waiting"])  # type: ignore[operator]
        cluster.marks.disable()
        eventually(lambda: look(cluster)["waiting"] == {})
        cluster.marks.enable()
        eventually(lambda: "b4" in look(cluster)["waiting"])  # type: ignore[operator]


def test_a_ledger_whose_metadata_is_junk_keeps_no_other_from_being_marked(cluster: ClusterOfZnodes) -> None:
    cluster.store.create(cluster.znodes.ledger(3), b"junk")
    with elected(cluster, QUICK):
        cluster.go("b4")
        eventually(lambda: cluster.marked() == {2: ("b4",)})
        eventually(lambda: look(cluster)["last_audit"])
        assert look(cluster)["last_audit"]["unreadable"] == 1  # type: ignore[index]


def test_a_bookie_that_comes_back_during_an_audit_ends_it(cluster: ClusterOfZnodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is lost is asked before each page of marks."""
    still_lost = AuditorProcess._still_lost

    def come_back(self: AuditorProcess, *arguments: object) -> object:
        cluster.come("b2")
        return still_lost(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(AuditorProcess, "_still_lost", come_back)
    with elected(cluster, QUICK):
        cluster.go("b2")
        eventually(lambda: look(cluster).get("last_audit"))
        assert cluster.marked() == {}


def test_a_store_in_which_something_is_missing_is_looked_at_again(
    cluster: ClusterOfZnodes, looks: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is concluded from it, and the auditor goes on once it is back."""
    monkeypatch.setattr(auditor, "BACK_OFF_S", 0.05)
    with elected(cluster, QUICK) as process:
        cookies = cluster.store.children(cluster.znodes.cookies)
        for name in cookies:
            cluster.store.delete(cluster.znodes.cookie(name), ANY_VERSION)
        cluster.store.delete(cluster.znodes.cookies, ANY_VERSION)
        cluster.go("b4")
        gone_s = time.monotonic()
        eventually(lambda: looks[-1] > gone_s + 0.4)
        assert process.is_auditor
        assert cluster.marked() == {}
        cluster.store.ensure_path(cluster.znodes.cookies)
        eventually(lambda: cluster.marked() == {2: ("b4",)})


# --- the election: situation 78


def test_exactly_one_of_several_is_the_auditor_and_its_leave_elects_the_next_at_once(cluster: ClusterOfZnodes) -> None:
    with contextlib.ExitStack() as undo:
        standing = [undo.enter_context(auditing(cluster, QUICK, f"auditor {number}")) for number in range(3)]
        eventually(lambda: len(candidates(cluster.store, cluster.znodes)) == 3)
        for left in (3, 2, 1):
            eventually(lambda: sum(one.is_auditor for one in standing) == 1)
            assert len(candidates(cluster.store, cluster.znodes)) == left
            next(one for one in standing if one.is_auditor).stop()


def test_an_auditor_whose_session_expired_stands_again_and_the_next_one_does_its_work(
    cluster: ClusterOfZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut off while it marks: the audit is not lost, and what both marked is marked once."""
    with elected(cluster, QUICK, "first") as first, auditing(cluster, QUICK, "second") as second:
        eventually(lambda: candidates(cluster.store, cluster.znodes) == ["first", "second"])
        cut_off = threading.Event()

        def cut(self: object, missing: object) -> int:
            monkeypatch.undo()
            expire(first._context.store)  # type: ignore[arg-type]
            cut_off.set()
            return mark_many(first._marks, missing)  # type: ignore[arg-type]

        mark_many = type(first._marks).mark_many
        monkeypatch.setattr(type(first._marks), "mark_many", cut)
        cluster.go("b2")
        assert cut_off.wait(30.0)
        eventually(lambda: current_auditor(cluster.store, cluster.znodes) == "second")
        eventually(lambda: (first.is_auditor, second.is_auditor) == (False, True))
        eventually(lambda: cluster.marked() == {0: ("b2",), 1: ("b2",)})
        eventually(lambda: candidates(cluster.store, cluster.znodes) == ["second", "first"])


def test_an_auditor_that_is_elected_again_says_again_what_it_sees(cluster: ClusterOfZnodes) -> None:
    """Its report went with its session, and nothing else is new."""
    with elected(cluster, PATIENT) as only:
        expire(only._context.store)  # type: ignore[arg-type]
        eventually(lambda: look(cluster).get("auditor") == "auditor")


def test_a_failure_that_nobody_thought_of_gives_the_office_up_and_is_told(
    cluster: ClusterOfZnodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(AuditorProcess, "_start_due_audits", fail)
    failed = threading.Event()
    with connect(cluster.store.uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
        context = ClientContext(store, cluster.znodes, ClientConfig())
        process = AuditorProcess(context, QUICK, on_failure=failed.set)
        process.start()
        assert failed.wait(30.0)
        assert not process.is_auditor
        assert IS_AUDITOR._value.get() == 0
        assert "please report this bug" in caplog.text
        process.stop()
        context.close()


@contextlib.contextmanager
def process_of(cluster: ClusterOfZnodes, name: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "bk_spark.cli", "auditor", "run", "--metadata", cluster.store.uri, "--name", name]
    quick = ["--session-timeout-s", "1.0", "--lost-bookie-grace-s", "0.5"]
    process = subprocess.Popen([*command, *quick], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(90)
def test_processes_that_are_suspended_or_killed_lose_the_office_and_the_audit_goes_on(cluster: ClusterOfZnodes) -> None:
    """One that wakes up after its session expired stands again, behind the others; what is marked is marked once."""
    with process_of(cluster, "first") as first, process_of(cluster, "second") as second:
        eventually(lambda: sorted(candidates(cluster.store, cluster.znodes)) == ["first", "second"])
        oldest = current_auditor(cluster.store, cluster.znodes)
        suspended, other = (first, second) if oldest == "first" else (second, first)
        eventually(lambda: look(cluster).get("auditor") == oldest)
        suspended.send_signal(signal.SIGSTOP)
        cluster.go("b2")
        eventually(lambda: cluster.marked() == {0: ("b2",), 1: ("b2",)})
        assert current_auditor(cluster.store, cluster.znodes) != oldest
        suspended.send_signal(signal.SIGCONT)
        eventually(lambda: candidates(cluster.store, cluster.znodes)[1:] == [oldest])
        other.kill()
        eventually(lambda: look(cluster).get("auditor") == oldest)
        cluster.go("b4")
        eventually(lambda: 2 in cluster.marked())
        suspended.send_signal(signal.SIGTERM)
        assert suspended.wait(15.0) == 0
        assert candidates(cluster.store, cluster.znodes) == []


def test_it_looks_again_by_itself_although_no_watch_told_it(cluster: ClusterOfZnodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "POLL_S", 0.2)
    monkeypatch.setattr(auditor, "watch_bookies", lambda *_: None)
    with elected(cluster, QUICK):
        cluster.go("b4")
        eventually(lambda: cluster.marked() == {2: ("b4",)})


# --- racks


def _in_racks(cluster: ClusterOfZnodes, racks: dict[str, str]) -> None:
    for bookie_id, rack in racks.items():
        cluster.go(bookie_id)
        cluster.come(bookie_id, rack=rack)


def test_ledgers_in_too_few_racks_are_marked_once_a_further_rack_is_there(cluster: ClusterOfZnodes, looks: list[float]) -> None:
    """Situation 89. Marked without a missing bookie; ledger 1 is in two racks already, and no bookie of ledger 3 is known."""
    _in_racks(cluster, {"b1": "/a", "b2": "/a", "b3": "/b", "b4": "/b"})
    cluster.create_ledgers({10: ("b1", "b2", "b3"), 11: ("b1", "b3")})
    with elected(cluster, QUICK):
        request_audit(cluster.store, cluster.znodes, reads_replicas=False)
        eventually(lambda: not is_requested(cluster.store, cluster.znodes))
        assert cluster.marked() == {0: (), 2: ()}
        assert look(cluster)["last_audit"]["in_few_racks"] == 2  # type: ignore[index]
        assert LEDGERS_IN_FEW_RACKS._value.get() == 2
        cluster.come("b5", rack="/c")
        eventually(lambda: cluster.marked() == {0: (), 2: (), 10: ()})


def test_an_audit_marks_no_more_ledgers_for_their_racks_than_it_may_and_none_while_a_bookie_is_lost(
    cluster: ClusterOfZnodes,
) -> None:
    _in_racks(cluster, {"b1": "/a", "b2": "/a", "b3": "/b", "b4": "/b"})
    with elected(cluster, replace(PATIENT, max_rack_moves=1)):
        request_audit(cluster.store, cluster.znodes, reads_replicas=False)
        eventually(lambda: not is_requested(cluster.store, cluster.znodes))
        assert cluster.marked() == {0: ()}
        assert look(cluster)["last_audit"]["in_few_racks"] == 2  # type: ignore[index]
    cluster.marks.remove(cluster.marks.mark_of(0))  # type: ignore[arg-type]
    with elected(cluster, PATIENT):
        cluster.go("b4")
        eventually(lambda: "b4" in look(cluster)["waiting"])  # type: ignore[operator]
        request_audit(cluster.store, cluster.znodes, reads_replicas=False)
        eventually(lambda: not is_requested(cluster.store, cluster.znodes))
        assert cluster.marked() == {2: ("b4",)}


def test_the_ledgers_that_one_audit_left_are_marked_once_those_have_moved_that_it_marked(
    cluster: ClusterOfZnodes, looks: list[float]
) -> None:
    _in_racks(cluster, {"b1": "/a", "b2": "/a", "b3": "/b", "b4": "/b"})
    with elected(cluster, replace(QUICK, max_rack_moves=1)):
        request_audit(cluster.store, cluster.znodes, reads_replicas=False)
        eventually(lambda: cluster.marked() == {0: ()})
        cluster.store.delete(cluster.znodes.ledger(0), ANY_VERSION)
        cluster.marks.remove(cluster.marks.mark_of(0))  # type: ignore[arg-type]
        eventually(lambda: cluster.marked() == {2: ()})
