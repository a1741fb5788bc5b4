"""Everything stored is read and verified; what is damaged is unknown to readers until it was replaced from the other bookies.

Ref: docs/rules.md, storage rules 1 to 3, protocol rule 39.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bk_spark.bookie import progress
from bk_spark.bookie.index.values import StoredBatch
from bk_spark.bookie.log_files.entry_log_files import EntryLogFiles
from bk_spark.bookie.pace import SYSTEM_CLOCKS, Clocks
from bk_spark.bookie.repair import scrub
from bk_spark.bookie.repair.ledger_repair import LedgerRepair
from bk_spark.bookie.repair.scrub import Scrubber
from bk_spark.config import BookieConfig
from bk_spark.errors import BookieUnavailableError, CorruptionError, StorageError
from bk_spark.quorum import IdPattern
from bk_spark.wire.messages import ReadEnd, StagedReply, StagedRequest, Status
from tests.unit.bookie.repair.known_cluster import OTHERS, OURS, US, KnownCluster

DEADLINE_S = 60.0
WALL_MS = 1_700_000_000_000


class World:
    """A bookie with its scrub; checkpoints that are asked for come at once."""

    def __init__(self, harness) -> None:
        self.harness = harness
        self.bookie = harness.start()
        self.storage = self.bookie.storage
        self.cluster = KnownCluster(harness.batch)
        self._sync = threading.Lock()
        asked, self.storage.request_checkpoint = self.storage.request_checkpoint, self.checkpoint
        self._ask = asked
        self.scrubber = self.new_scrubber()

    def new_scrubber(self, **settings: float) -> Scrubber:
        repair = LedgerRepair(US, self.storage, self.cluster, self.stage)
        config = dataclasses.replace(BookieConfig(scrub_bytes_per_s=1 << 40), **settings)
        return Scrubber(self.storage, repair, config, Clocks(lambda: WALL_MS, SYSTEM_CLOCKS.steady_s))

    def stage(self, request: StagedRequest) -> StagedReply:
        with self._sync:
            self.bookie.stage(request, None)
            [(_, reply)] = self.bookie.sync()
            return reply

    def checkpoint(self) -> None:
        with self._sync:
            self._ask()
            self.bookie.sync()
            self.bookie.idle()

    def ledger(self, ledger_id: int, *cuts: int, quorum: int = 3, is_checkpointed: bool = True) -> None:
        """A CLOSED ledger of ten entries in batches that begin at ``cuts``; the other bookies have it, too."""
        metadata = self.cluster.add(ledger_id, (0, OURS), last=9, quorum=quorum)
        ends = [*cuts[1:], 10]
        for first, end in zip(cuts, ends, strict=True):
            ids = metadata.slot_pattern(0).ids(first, end - 1)
            self.harness.add(ledger_id, int(ids[0]), int(ids[-1]), size=1000, pattern=metadata.slot_pattern(0))
        if is_checkpointed:
            self.checkpoint()

    def batches(self) -> list[StoredBatch]:
        return self.storage.batches_from((-1, -1, -1), 1000)

    def damage(self, stored: StoredBatch) -> None:
        """Flip a bit in the middle of its record."""
        assert stored.location is not None
        path = self.storage.log_files.path_of(stored.location.file_id)
        with path.open("r+b") as file:
            file.seek(stored.location.offset + stored.location.length // 2)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))

    def end_of_read(self, ledger_id: int, entry_id: int) -> Status:
        _, end = self.harness.read(ledger_id, entry_id, entry_id)
        assert isinstance(end, ReadEnd)
        return end.status


@pytest.fixture
def world(harness) -> World:
    return World(harness)


@pytest.fixture
def started(world: World) -> Iterator[Scrubber]:
    world.scrubber.start()
    yield world.scrubber
    world.scrubber.stop()


def test_a_run_reads_everything_at_its_rate_and_finds_a_whole_bookie_whole(world: World) -> None:
    world.ledger(1, 0, 3, 7)
    world.ledger(2, 0)
    paid: list[int] = []
    world.scrubber._limiter.take = paid.append
    world.scrubber.run()
    status = world.scrubber.status()
    sizes = [stored.size_bytes for stored in world.batches()]
    assert (status.runs, status.rows_checked, status.bytes_checked) == (1, len(sizes), sum(sizes))
    assert (status.damaged, status.repaired, status.last_error, status.last_run_ms) == (0, 0, "", WALL_MS)
    assert sum(paid) >= sum(sizes)
    assert world.cluster.looks == []


@pytest.mark.parametrize("quorum", [3, 2])
def test_a_damaged_batch_is_unknown_to_readers_until_the_other_bookies_have_replaced_it(world: World, quorum: int) -> None:
    world.ledger(1, 0, 3, 7, quorum=quorum)
    pattern = IdPattern(3, 2, 0) if quorum == 2 else None
    before = world.batches()
    damaged = before[0]
    world.damage(damaged)
    world.cluster.on_read = lambda *_: ends.append(world.end_of_read(1, 0))
    ends: list[Status] = []
    assert world.end_of_read(1, 0) is Status.DAMAGED
    world.scrubber.run()
    assert ends == [Status.DAMAGED]
    assert (world.scrubber.status().damaged, world.scrubber.status().repaired) == (0, 1)
    found, end = world.harness.payloads(1, 0, 9, **({"pattern": pattern} if pattern else {}))
    assert end.status is Status.OK
    assert sorted(found) == [one for one in range(10) if pattern is None or pattern.holds(one)]
    assert damaged not in world.batches()
    assert set(before[1:]) < set(world.batches())


def test_what_no_other_bookie_can_give_stays_unknown_and_is_tried_again(world: World) -> None:
    world.ledger(1, 0)
    world.damage(world.batches()[0])
    world.cluster.on_read = _failing(BookieUnavailableError(1, 0, ("b2: away",)))
    world.scrubber.run()
    assert world.end_of_read(1, 0) is Status.DAMAGED
    assert (world.scrubber.status().damaged, world.scrubber.status().repaired) == (1, 0)
    assert "ledger 1" in world.scrubber.status().last_error
    world.cluster.on_read = lambda *_: None
    world.scrubber.mend()
    world.harness.assert_holds(1, 0, 9)
    assert (world.scrubber.status().damaged, world.scrubber.status().last_error) == (0, "")


def test_without_access_to_the_others_damage_is_counted_and_told(world: World) -> None:
    world.ledger(1, 0)
    world.damage(world.batches()[0])
    alone = Scrubber(world.storage, None, BookieConfig())
    alone.run()
    assert alone.status().damaged == 1
    assert "without access" in alone.status().last_error
    assert world.end_of_read(1, 0) is Status.DAMAGED


def test_a_damaged_batch_stays_until_newer_ones_are_in_the_index(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory alone they would go with the process, and the entry would be denied."""
    monkeypatch.setattr(scrub, "CHECKPOINT_WAIT_S", 0.0)
    world.ledger(1, 0)
    [damaged] = world.batches()
    world.damage(damaged)
    world.storage.request_checkpoint = lambda: None
    world.scrubber.run()
    world.harness.assert_holds(1, 0, 9)
    assert world.batches() == [damaged]
    assert world.scrubber.status().damaged == 1
    world.storage.request_checkpoint = world.checkpoint
    world.scrubber.mend()
    assert damaged not in world.batches()


def test_a_damaged_batch_that_newer_ones_have_replaced_already_just_goes(world: World) -> None:
    world.ledger(1, 0)
    [damaged] = world.batches()
    world.harness.add_over(1, 0, 9, recovery=True, size=1001)
    world.checkpoint()
    world.damage(damaged)
    world.scrubber.run()
    assert world.cluster.reads == []
    assert damaged not in world.batches()


def test_a_damaged_batch_of_which_newer_ones_hold_a_part_stays_until_they_hold_all(world: World) -> None:
    world.ledger(1, 0)
    [damaged] = world.batches()
    world.harness.add_over(1, 0, 4, recovery=True, size=1001)
    world.checkpoint()
    world.damage(damaged)
    world.cluster.leave_out = 7
    world.scrubber.run()
    assert damaged in world.batches()
    assert world.end_of_read(1, 7) is Status.DAMAGED


def test_entries_behind_the_end_of_a_closed_ledger_are_not_asked_for(world: World) -> None:
    world.harness.add(1, 0, 9, size=1000)
    world.checkpoint()
    world.cluster.add(1, (0, OURS), last=4)
    [damaged] = world.batches()
    world.damage(damaged)
    world.scrubber.run()
    assert world.cluster.reads == [(1, 0, 4)]
    assert damaged not in world.batches()


def test_of_an_open_ledger_a_damaged_batch_goes_only_when_all_of_it_is_here_again(world: World) -> None:
    """How far such a ledger goes is not known."""
    world.harness.add(1, 0, 9, size=1000)
    world.checkpoint()
    world.cluster.add(1, (0, OTHERS), (5, OURS))
    [damaged] = world.batches()
    world.damage(damaged)
    world.scrubber.run()
    assert world.cluster.reads == [(1, 5, 9)]
    assert damaged in world.batches()
    assert world.end_of_read(1, 0) is Status.DAMAGED
    assert world.end_of_read(1, 5) is Status.OK


def test_damage_of_a_ledger_that_is_gone_is_left_to_garbage_collection(world: World) -> None:
    world.ledger(1, 0)
    world.damage(world.batches()[0])
    del world.cluster.ledgers[1]
    world.scrubber.run()
    assert (world.scrubber.status().damaged, world.scrubber.status().last_error) == (0, "")
    assert world.end_of_read(1, 0) is Status.DAMAGED


def test_what_compaction_has_moved_or_a_deletion_has_removed_is_no_damage(world: World, started: Scrubber) -> None:
    world.ledger(1, 0)
    [stored] = world.batches()
    assert stored.location is not None
    moved = dataclasses.replace(stored, location=dataclasses.replace(stored.location, offset=stored.location.offset + 4096))
    gone = dataclasses.replace(moved, ledger_id=2)
    started.report([moved, gone])
    started.force()
    _until(lambda: started.status().runs == 1)
    assert started.status().damaged == 0
    assert world.cluster.looks == []


def test_a_damaged_index_ends_a_run_and_is_told(world: World, started: Scrubber) -> None:
    world.ledger(1, 0)

    def steps() -> Iterator[int]:
        yield 1
        raise CorruptionError("the index", "a stored batch is missing")

    check, world.storage.check_index = world.storage.check_index, steps
    started.force()
    _until(lambda: "the index" in started.status().last_error)
    assert not started.status().is_running
    assert started.status().runs == 0
    world.storage.check_index = check
    started.force()
    _until(lambda: started.status().runs == 1)
    assert started.status().last_error == ""


def test_every_row_of_the_index_is_verified_not_only_those_whose_batches_are_read(world: World) -> None:
    """Storage rule 3: what is lost as a whole is found by its sums."""
    world.ledger(1, 0, 5)
    steps = list(world.storage.check_index())
    assert sum(steps) >= len(world.batches())


def test_reported_damage_is_repaired_at_once_without_a_run(world: World, started: Scrubber) -> None:
    world.ledger(1, 0)
    world.ledger(2, 0)
    damaged = world.batches()[0]
    world.damage(damaged)
    started.report([damaged])
    _until(lambda: started.status().repaired == 1)
    world.harness.assert_holds(1, 0, 9)
    assert started.status().runs == 0


def test_damage_that_a_read_finds_is_repaired_at_once_without_a_run(world: World, started: Scrubber) -> None:
    world.bookie.report_damage = started.report
    world.ledger(1, 0, 5)
    world.damage(world.batches()[1])
    assert world.end_of_read(1, 0) is Status.OK
    assert started.status().damaged == 0
    assert world.end_of_read(1, 5) is Status.DAMAGED
    _until(lambda: started.status().repaired == 1)
    world.harness.assert_holds(1, 5, 9)
    assert started.status().runs == 0


@pytest.mark.parametrize("found", ["by a read", "by a run"])
def test_damage_in_what_no_checkpoint_has_written_yet_is_repaired_at_once(world: World, started: Scrubber, found: str) -> None:
    """Its stored batch is in the write cache alone."""
    world.bookie.report_damage = started.report
    world.ledger(1, 0, is_checkpointed=False)
    [stored] = world.storage.batches(1, 0, 9).overlapping(0, 9)
    world.damage(stored)
    if found == "by a read":
        assert world.end_of_read(1, 0) is Status.DAMAGED
    else:
        started.force()
    _until(lambda: started.status().repaired == 1)
    world.harness.assert_holds(1, 0, 9)


def test_damage_that_is_read_again_and_again_while_no_bookie_can_repair_it_is_not_asked_for_each_time(world: World) -> None:
    world.bookie.report_damage = world.scrubber.report
    world.ledger(1, 0)
    world.damage(world.batches()[0])
    world.cluster.on_read = _failing(BookieUnavailableError(1, 0, ("b2: away",)))
    world.scrubber.start()
    assert world.end_of_read(1, 0) is Status.DAMAGED
    _until(lambda: world.scrubber.status().last_error != "")
    asked = len(world.cluster.looks)
    for _ in range(50):
        assert world.end_of_read(1, 0) is Status.DAMAGED
    assert not world.scrubber._reported
    world.scrubber.stop()
    assert len(world.cluster.looks) == asked


def test_a_file_that_cannot_be_opened_for_lack_of_descriptors_is_no_damage(world: World, started: Scrubber) -> None:
    """Storage rule 17."""
    world.bookie.report_damage = started.report
    world.ledger(1, 0)
    [stored] = world.batches()
    EntryLogFiles.close(world.storage.log_files)  # what is read next has to be opened
    world.harness.disk.fail("open", "entry_log")
    assert world.end_of_read(1, 0) is Status.IO_ERROR
    started.report([stored])
    _until(lambda: "Too many open files" in started.status().last_error)
    assert started.status().damaged == 0
    world.harness.disk.failing.clear()
    assert world.end_of_read(1, 0) is Status.OK
    assert world.cluster.looks == []


def test_a_forced_run_begins_at_once(world: World, started: Scrubber) -> None:
    world.ledger(1, 0)
    assert started.status().runs == 0
    started.force()
    _until(lambda: started.status().runs == 1)
    started.force()
    _until(lambda: started.status().runs == 2)


def test_runs_come_at_their_interval_and_the_first_one_sooner(world: World) -> None:
    world.ledger(1, 0)
    scrubber = world.new_scrubber(scrub_interval_s=0.02)
    scrubber.start()
    _until(lambda: scrubber.status().runs >= 3)
    scrubber.stop()


def test_a_run_that_has_to_wait_for_its_rate_ends_with_the_bookie(world: World) -> None:
    world.ledger(1, 0, 3, 7)
    scrubber = world.new_scrubber(scrub_bytes_per_s=1)
    scrubber.start()
    scrubber.force()
    _until(lambda: scrubber.status().is_running)
    scrubber.stop()
    assert not scrubber._thread.is_alive()
    assert scrubber.status().runs == 0


def test_damage_beyond_what_is_kept_at_a_time_is_repaired_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bk_spark.bookie.repair.damaged_batches.MAX_DAMAGED", 2)
    for ledger_id in range(5):
        world.ledger(ledger_id, 0)
    for stored in world.batches():
        world.damage(stored)
    world.scrubber.run()
    assert world.scrubber.status().repaired == 5
    world.harness.assert_holds(4, 0, 9)


def _failing(problem: StorageError | BookieUnavailableError) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise problem

    return fail


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_it_tells_when_it_begins_now_and_then_how_far_it_is_and_when_it_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "WORK_S", 0.0)
    world.ledger(1, 0, 3, 7)
    total = sum(stored.size_bytes for stored in world.batches())
    with caplog.at_level(logging.INFO):
        world.scrubber.run()
    assert world.scrubber.status().total_bytes == total
    all_of_it = f"{progress.mib(total)} of {progress.mib(total)} (100 %) are read, 0 batches are known to be damaged"
    assert [line for line in caplog.messages if line.startswith("the scrub ")] == [
        f"the scrub begins to read what is stored, {progress.mib(total)}",
        f"the scrub goes on: {all_of_it}",
        f"the scrub has ended: {all_of_it}",
    ]
