"""A whole run over a real storage: ledgers go, their space comes back. Protocol rules 42 to 46, situations 39, 63 and 65."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bk_spark.bookie.log_files.mark import LogState
from bk_spark.bookie.pace import RateLimiter
from bk_spark.bookie.space import gc_run
from bk_spark.bookie.space.garbage_collection import TOMBSTONE_MS, ClusterMember
from bk_spark.bookie.space.gc_run import GcPlan, GcReport, GcRun
from bk_spark.config import KIB, LedgerOptions
from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.ledger_ids import raise_ledger_ids
from bk_spark.metadata.ledger_metadata import new_ledger
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.znodes import Znodes
from bk_spark.wire.messages import Status
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.bookie.space.gc_bookie import BOOKIE_ID, SMALL, CollectedBookie

ZNODES = Znodes("/ledgers")
OTHERS = ("bookie-2", "bookie-3", "bookie-4")
MINOR, MAJOR, EVERYTHING = GcPlan(0.2), GcPlan(0.8), GcPlan(0.8, over_replicated=True)


class RunningBookie(CollectedBookie):
    """A bookie, its cluster, and a collector for it; while the collector waits, the sync thread is idle."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.store = MemoryStore(MemoryTree(lambda: self.now_ms))
        initialise_cluster(self.store, ZNODES)
        raise_ledger_ids(self.store, ZNODES, 100)
        super().__init__()

    def start(self) -> None:
        super().start()
        limiter = RateLimiter(1 << 40, lambda: 0.0, lambda _: None)
        cluster = ClusterMember.of(self.store, ZNODES, BOOKIE_ID)
        self.pauses = 0
        self.collector = GcRun(self.local, cluster, limiter, lambda: self.now_ms, self._pause)

    def create(self, *ledger_ids: int, ensemble: tuple[str, ...] = (BOOKIE_ID, *OTHERS[:2])) -> None:
        for ledger_id in ledger_ids:
            metadata = new_ledger(ledger_id, LedgerOptions(), ensemble, created_ms=0, creator_token=1)
            self.store.create(ZNODES.ledger(ledger_id), metadata.closed_at(99, 1).encode(), make_parents=True)

    def remove(self, *ledger_ids: int) -> None:
        """Somebody deletes the ledgers."""
        for ledger_id in ledger_ids:
            self.store.delete(ZNODES.ledger(ledger_id))
            self.ledgers[ledger_id] = []

    def collect(self, plan: GcPlan = MAJOR) -> GcReport:
        return self.collector.run(plan, lambda: True, lambda: True)

    def _pause(self, seconds: float) -> None:
        self.pauses += 1
        self.bookie.idle()


@pytest.fixture
def bookie(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBookie]:
    monkeypatch.setattr(gc_run, "MIN_ROLL_BYTES", 0)
    made = RunningBookie()
    yield made
    made.bookie.close()


def test_the_space_of_deleted_ledgers_comes_back_in_the_second_run(bookie: RunningBookie) -> None:
    bookie.create(*range(10))
    bookie.fill(*range(10), entries=10)
    bookie.checkpoint()
    before = sum(bookie.files().values())
    bookie.remove(*range(8))
    assert bookie.collect().ledgers_deleted == 0
    report = bookie.collect()
    assert (report.ledgers_deleted, report.is_compacted) == (8, True)
    after = sum(bookie.files().values())
    assert before - after == pytest.approx(report.bytes_freed, abs=1_000)  # logs are sealed, and so grow, before they go
    assert before - after > 0.7 * before
    bookie.check()
    bookie.restart()
    bookie.check()
    assert bookie.collect() == GcReport(is_compacted=True)


def test_small_adds_come_back_too_from_logs_that_are_still_written_to(bookie: RunningBookie) -> None:
    bookie.create(1, 2)
    bookie.fill(1, 2, entries=100, size=SMALL)
    bookie.checkpoint()
    assert {log.state for log in bookie.logs().values()} == {LogState.OPEN}
    bookie.remove(1)
    before = sum(bookie.files().values())
    bookie.collect()
    assert bookie.collect().logs_deleted >= 1
    assert sum(bookie.files().values()) < 0.7 * before
    bookie.check()


def test_an_open_log_that_is_live_is_not_rolled(bookie: RunningBookie) -> None:
    bookie.create(1)
    bookie.fill(1, entries=3)
    bookie.checkpoint()
    bookie.collect()
    assert {log.state for log in bookie.logs().values()} == {LogState.OPEN}


def test_a_bookie_with_nothing_new_is_not_waited_for(bookie: RunningBookie) -> None:
    bookie.create(1)
    bookie.fill(1, entries=3)
    bookie.checkpoint()
    bookie.bookie.idle()
    bookie.collect()
    assert bookie.pauses == 0


def test_a_run_without_compaction_rolls_nothing(bookie: RunningBookie) -> None:
    bookie.create(1, 2)
    bookie.fill(1, 2, entries=3)
    bookie.checkpoint()
    bookie.remove(1, 2)
    bookie.collect(GcPlan())
    bookie.collect(GcPlan())
    assert {log.state for log in bookie.logs().values()} == {LogState.OPEN}
    assert bookie.batches(1) == []


def test_deleted_ledgers_answer_no_such_ledger_and_take_no_adds(bookie: RunningBookie) -> None:
    """Situation 39, while the tombstone lasts."""
    bookie.create(1)
    bookie.fill(1, entries=3)
    bookie.checkpoint()
    bookie.remove(1)
    for _ in range(2):
        bookie.collect()
    bookie.restart()
    assert bookie.payloads(1, 2)[1].status is Status.NO_SUCH_LEDGER
    with pytest.raises(AssertionError, match="FENCED"):
        bookie.add(1, 3, 3)
    bookie.now_ms += TOMBSTONE_MS
    assert [bookie.collect().tombstones_purged for _ in range(2)] == [0, 1]
    assert bookie.bookie.storage.ledgers(-1, 10) == []


def test_an_over_replicated_ledger_is_reclaimed_and_stays_fenced(bookie: RunningBookie) -> None:
    """Situation 65."""
    bookie.create(1, ensemble=OTHERS)
    bookie.create(2)
    bookie.fill(1, 2, entries=10)
    bookie.checkpoint()
    assert bookie.collect(MAJOR).ledgers_deleted == 0
    report = bookie.collect(EVERYTHING)
    assert (report.ledgers_deleted, report.bytes_freed > 0) == (1, True)
    bookie.ledgers[1] = []
    bookie.check()
    bookie.now_ms += 10 * TOMBSTONE_MS
    for _ in range(3):
        bookie.collect(EVERYTHING)
    assert [one.is_fenced for one in bookie.bookie.storage.ledgers(0, 1)] == [True]


@pytest.mark.parametrize("is_indexed", [False, True])
def test_copies_of_an_over_replicated_ledger_that_just_came_in_are_kept(bookie: RunningBookie, is_indexed: bool) -> None:
    """Somebody brings it back, and the metadata does not say so yet: the lock went with its session. Protocol rule 45."""
    bookie.create(1, ensemble=OTHERS)
    bookie.fill(1, entries=3)
    bookie.checkpoint()
    lock_is_held = bookie.store.create

    def copy_meanwhile(path: str, value: bytes = b"", **more: bool) -> None:
        lock_is_held(path, value, **more)
        bookie.add(1, 3, 3)
        if is_indexed:
            bookie.checkpoint()

    bookie.store.create = copy_meanwhile  # type: ignore[method-assign]
    assert bookie.collect(EVERYTHING).ledgers_deleted == 0
    bookie.check()


def test_copies_that_came_again_and_were_here_already_are_kept_once(bookie: RunningBookie) -> None:
    """Whoever brought them was told that they are durable, and nothing was logged. A later decision stands. Situation 65."""
    bookie.create(1, ensemble=OTHERS)
    bookie.fill(1, entries=3)
    bookie.checkpoint()
    create, came = bookie.store.create, []

    def copy_meanwhile(path: str, value: bytes = b"", **more: bool) -> None:
        create(path, value, **more)
        came.append(path)
        if len(came) == 1:
            bookie.add(1, 2, 2)

    bookie.store.create = copy_meanwhile  # type: ignore[method-assign]
    assert bookie.collect(EVERYTHING).ledgers_deleted == 0
    assert bookie.collect(EVERYTHING).ledgers_deleted == 1


def test_ledgers_that_were_never_in_the_index_are_found_too(bookie: RunningBookie) -> None:
    """A bookie with little to do has no checkpoint for days: the run asks for one."""
    bookie.create(1, 2)
    bookie.fill(1, 2, entries=3)
    bookie.remove(1)
    assert [bookie.collect().ledgers_deleted for _ in range(2)] == [0, 1]
    bookie.check()


def test_a_checkpoint_that_does_not_come_is_not_waited_for_for_ever(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie.create(1)
    bookie.fill(1, entries=3)
    bookie.checkpoint()
    bookie.remove(1)
    bookie.collect()
    monkeypatch.setattr(bookie.bookie, "idle", lambda: None)
    assert bookie.collect().ledgers_deleted == 1
    assert bookie.pauses >= gc_run.CHECKPOINT_LOOKS
    monkeypatch.undo()
    bookie.bookie.idle()
    bookie.check()


def test_without_the_metadata_store_it_compacts_all_the_same(bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space is needed most when much is out of order."""
    bookie.create(1, 2)
    bookie.fill(1, 2, entries=10)
    bookie.delete(1)
    bookie.create(3)
    bookie.fill(3, entries=1)
    bookie.remove(3)

    def no_answer(path: str) -> None:
        raise MetadataUnavailableError("memory://", "no answer")

    monkeypatch.setattr(bookie.store, "sync", no_answer)
    bookie.ledgers.pop(3)
    for _ in range(2):
        report = bookie.collect()
        assert ("no answer" in report.problem, report.ledgers_deleted) == (True, 0)
    assert bookie.logs().keys() == bookie.files().keys()
    assert sum(bookie.files().values()) < 14 * 4 * KIB  # of 21 records
    assert len(bookie.payloads(3, 0)[0]) == 1
    bookie.check()


def test_a_run_that_is_told_to_stop_does_not_compact(bookie: RunningBookie) -> None:
    bookie.create(1)
    bookie.fill(1, entries=30)
    bookie.checkpoint()
    bookie.remove(1)
    for _ in range(2):
        bookie.collector.run(MAJOR, lambda: True, lambda: False)
    assert bookie.collector.run(MAJOR, lambda: False, lambda: False) == GcReport()
    assert bookie.batches(1) == []
    assert bookie.collect().logs_deleted > 0
