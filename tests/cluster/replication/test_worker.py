"""Replication workers over real bookies and real sessions. Ref: protocol rule 56; situations 76 and 83."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.config import ClientConfig
from bk_spark.local.cluster import ROOT, LocalBookie, LocalCluster
from bk_spark.metadata.ledger_metadata import Fragment, LedgerState
from bk_spark.metadata.registration import unregister
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect
from bk_spark.replication import worker as replication_worker
from bk_spark.replication.ledger_rereplication import RereplicatedLedger
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.replication.worker import MAX_RETRY_FACTOR, ReplicationWorker
from tests.cluster.live_ledgers import BRISK, DEADLINE_S, killed

HASTY = AutoRecoveryConfig(open_fragment_grace_s=0.05, retry_s=0.2)
SLOW = AutoRecoveryConfig(replicate_bytes_per_s=10_000, retry_s=0.2)


@pytest.fixture
def client(wide_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(wide_cluster.metadata_uri, BRISK) as made:
        yield made


@pytest.fixture
def marks(client: BookKeeper) -> UnderReplication:
    return UnderReplication(client.metadata_store, client.znodes)


class ObservedWorker(ReplicationWorker):
    """Keeps the results of its tries."""

    def __init__(self, context: ClientContext, config: AutoRecoveryConfig) -> None:
        super().__init__(context, config)
        self.results: list[RereplicatedLedger] = []

    def _note(self, done: RereplicatedLedger) -> None:
        self.results.append(done)
        super()._note(done)

    @property
    def made_whole(self) -> int:
        return sum(one.is_whole for one in self.results)

    @property
    def failures(self) -> list[RereplicatedLedger]:
        return [one for one in self.results if not (one.is_whole or one.is_locked or one.open_fragment)]


@contextmanager
def worker(
    cluster: LocalCluster, config: AutoRecoveryConfig = HASTY, session_timeout_s: float = 10.0
) -> Iterator[tuple[ObservedWorker, ZooKeeperStore]]:
    """One that works, with a session of its own."""
    znodes = Znodes(ROOT)
    with connect(cluster.metadata_uri, connect_timeout_s=10.0, session_timeout_s=session_timeout_s) as store:
        context = ClientContext(store, znodes, ClientConfig())
        made = ObservedWorker(context, config)
        made.start()
        try:
            yield made, store
        finally:
            made.stop()
            context.close()


@contextmanager
def lost_for_good(client: BookKeeper, *bookies: LocalBookie) -> Iterator[None]:
    """Killed, and its registration gone, for which a test need not wait."""
    with killed(*bookies):
        for bookie in bookies:
            unregister(client.metadata_store, client.znodes, bookie.bookie_id)
        yield


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_cannot_be_made_whole_stays_marked_and_is_tried_again(
    wide_cluster: LocalCluster, client: BookKeeper, marks: UnderReplication
) -> None:
    with client.create_ledger(1, 1, 1) as writer:
        writer.append(b"x")
    only = next(one for one in wide_cluster.bookies if one.bookie_id in writer.metadata.last_fragment.ensemble)
    with worker(wide_cluster) as (made, _):
        with lost_for_good(client, only):
            marks.mark(writer.ledger_id, [only.bookie_id])
            eventually(lambda: len(made.failures) > 1)
            assert f"ledger {writer.ledger_id}" in made.failures[-1].problem
            assert marks.mark_of(writer.ledger_id) is not None
        eventually(lambda: marks.count() == 0)


def test_a_ledger_that_cannot_be_read_is_tried_less_and_less_often(
    wide_cluster: LocalCluster, client: BookKeeper, marks: UnderReplication
) -> None:
    """What could be read of it is copied each time, to bookies whose disks that must not fill. Situation 81."""
    with client.create_ledger(1, 1, 1) as writer:
        writer.append(b"x")
    path, metadata = client.znodes.ledger(writer.ledger_id), client.ledger_metadata(writer.ledger_id)
    other = next(one.bookie_id for one in wide_cluster.bookies if one.bookie_id not in metadata.last_fragment.ensemble)
    elsewhere = dataclasses.replace(metadata, fragments=(Fragment(0, (other,)),))
    client.metadata_store.set(path, elsewhere.encode(), client.metadata_store.get(path).version)
    with worker(wide_cluster, AutoRecoveryConfig(retry_s=0.1)) as (made, _):
        marks.mark(writer.ledger_id, [other])
        eventually(lambda: made._in_vain.get(writer.ledger_id) == 3)
        in_vain = RereplicatedLedger(writer.ledger_id, False, is_in_vain=True)
        assert max(made._retry_s(in_vain) for _ in range(20)) == pytest.approx(0.1 * MAX_RETRY_FACTOR)
        client.delete_ledger(writer.ledger_id)
        marks.remove(next(marks.marks()))


def test_a_problem_that_many_ledgers_share_is_told_once(
    wide_cluster: LocalCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that no bookie is left to take copies, at every try of each ledger."""
    monkeypatch.setattr(replication_worker, "MAX_LOGGED", 2)
    with worker(wide_cluster) as (made, _):

        def note(ledger_id: int, problem: str) -> None:
            made._retries.pop(ledger_id, None)  # as its next try does
            made._note(RereplicatedLedger(ledger_id, False, problem=problem))

        for ledger_id, problem in ((1, "no bookie"), (2, "no bookie"), (1, "no bookie"), (3, "damage"), (2, "no bookie")):
            note(ledger_id, f"ledger {ledger_id}: {problem}")
        told = [one.getMessage() for one in caplog.records if "still under-replicated" in one.getMessage()]
        assert [one.split(" is ")[0] for one in told] == ["ledger 1", "ledger 3"]
        assert len(made.failures) == 5
        for number in range(10):
            note(4, f"{number}")
        assert len(made._logged_s) <= 2


def test_a_worker_asks_seldom_while_autorecovery_is_disabled(
    wide_cluster: LocalCluster, client: BookKeeper, marks: UnderReplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with ledgers that it was to try again by now."""
    with client.create_ledger(3, 2, 2) as writer:
        writer.append(b"x")
    ledger_id = writer.ledger_id
    assert marks.try_lock(ledger_id, "somebody else")
    monkeypatch.setattr(UnderReplication, "locked_ids", lambda _: set())  # a lock that is taken right behind the look at locks
    with worker(wide_cluster) as (made, _):
        marks.mark(ledger_id, ["somebody"])
        eventually(lambda: len(made._retries) == 1)
        asked: list[float] = []
        is_enabled = made._marks.is_enabled

        def counted() -> bool:
            asked.append(time.monotonic())
            return is_enabled()

        monkeypatch.setattr(made._marks, "is_enabled", counted)
        marks.disable()
        try:
            eventually(lambda: len(asked) >= 5)
            assert asked[-1] - asked[2] > HASTY.retry_s
        finally:
            marks.enable()
            marks.unlock(ledger_id)
        eventually(lambda: marks.count() == 0)


def test_the_mark_of_a_ledger_that_is_being_recovered_stays_until_its_last_fragment_has_an_end(
    wide_cluster: LocalCluster, client: BookKeeper, marks: UnderReplication
) -> None:
    """Protocol rule 63: a writer that was displaced marked it, and nobody can say yet what the last fragment lacks."""
    writer = client.create_ledger(3, 3, 2)
    writer.append(b"one")
    ledger_id, metadata = writer.ledger_id, client.ledger_metadata(writer.ledger_id)
    path = client.znodes.ledger(ledger_id)
    version = client.metadata_store.get(path).version
    client.metadata_store.set(path, dataclasses.replace(metadata, state=LedgerState.IN_RECOVERY).encode(), version)
    marks.mark(ledger_id, [metadata.last_fragment.ensemble[1]])
    with worker(wide_cluster) as (working, _):
        eventually(lambda: any("is being recovered" in one.problem for one in working.results if one.ledger_id == ledger_id))
        assert marks.mark_of(ledger_id) is not None
        assert client.open_ledger(ledger_id).last_add_confirmed == 0
        eventually(lambda: marks.mark_of(ledger_id) is None)
