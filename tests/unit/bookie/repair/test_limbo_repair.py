"""Phase two: out of limbo, ledger after ledger.

Ref: BP-46, "The Full Boot-Up Sequence"; docs/rules.md, storage rules 8, 10 and 11, protocol rules 50 and 51, situation 72.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bk_spark.bookie import admission, progress
from bk_spark.bookie.repair import limbo_repair
from bk_spark.bookie.repair.ledger_repair import LedgerRepair, missing
from bk_spark.bookie.repair.limbo_repair import LimboRepair
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.entries.digest import master_key
from bk_spark.errors import (
    BookKeeperError,
    ConfigError,
    CorruptionError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    StorageError,
)
from bk_spark.metadata.ledger_metadata import LedgerState
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.messages import StagedReply, StagedRequest, Status
from tests.budget import examples
from tests.unit.bookie.repair.known_cluster import OTHERS, OURS, US, KnownCluster

DEADLINE_S = 60.0
WATERMARK = 100


class World:
    """One bookie that lost its data, the cluster around it, and its phase two."""

    def __init__(self, harness) -> None:
        self.harness = harness
        self.cluster = KnownCluster(harness.batch)
        self._sync = threading.Lock()
        self.start()

    def start(self, watermark: int | None = WATERMARK) -> None:
        self.harness.start(fence_watermark=watermark)
        self.limbo_repair = self.phase_two()

    def phase_two(self) -> LimboRepair:
        bookie = self.harness.bookie
        return LimboRepair(bookie, LedgerRepair(US, bookie.storage, self.cluster, self.stage))

    def stage(self, request: StagedRequest) -> StagedReply:
        with self._sync:
            self.harness.bookie.stage(request, None)
            [(_, reply)] = self.harness.bookie.sync()
            return reply

    def is_denied(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the bookie says no; if it does not, it must say that it does not know."""
        _, end = self.harness.read(ledger_id, entry_id, entry_id)
        assert end.status in (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER, Status.UNKNOWN)
        return end.status is not Status.UNKNOWN

    def add_status(self, ledger_id: int, entry_id: int = 50) -> Status:
        """What a writer's add is answered."""
        return self.harness.add(ledger_id, entry_id, entry_id).status


@pytest.fixture
def world(harness) -> World:
    return World(harness)


def test_before_it_nothing_is_denied_and_no_writer_is_believed(world: World) -> None:
    world.cluster.add(1, (0, OURS), last=9)
    assert not world.is_denied(1, 20)
    assert not world.is_denied(WATERMARK, 0)
    assert world.add_status(1) is Status.UNKNOWN
    assert world.add_status(WATERMARK + 1) is Status.OK


def test_a_closed_ledger_gets_what_it_lacks_and_no_more_and_is_fenced(world: World) -> None:
    world.cluster.add(1, (0, OURS), last=9)
    world.harness.add(1, 2, 5, recovery=True)
    assert world.limbo_repair.round()
    assert world.cluster.reads == [(1, 0, 1), (1, 6, 9)]
    world.harness.assert_holds(1, 0, 9)
    assert world.is_denied(1, 10)
    assert world.add_status(1) is Status.FENCED
    assert world.harness.bookie.limbo is None


def test_a_bookie_that_lacks_nothing_reads_nothing(world: World) -> None:
    """The check is of the index alone."""
    world.cluster.add(1, (0, OURS), last=9)
    world.harness.add(1, 0, 9, recovery=True)
    assert world.limbo_repair.round()
    assert world.cluster.reads == []
    assert world.limbo_repair.status().copied_entries == 0


def test_what_the_index_knows_and_no_entry_log_holds_any_more_is_copied(world: World) -> None:
    """One disk with entry logs was lost, the index was not: such entries would be unknown until a scrub came by, days later."""
    world.cluster.add(1, (0, OURS), last=9)
    world.harness.add(1, 0, 9, recovery=True)
    world.harness.stop()
    for path in (world.harness.data_dir / "entry_log").iterdir():
        path.unlink()
    world.start()
    assert world.limbo_repair.round()
    assert world.cluster.reads == [(1, 0, 9)]
    world.harness.assert_holds(1, 0, 9)


def test_an_error_that_nobody_expected_does_not_end_the_repair(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bookie would stay in limbo for ever, and nothing would tell."""

    def fail() -> None:
        world.cluster.on_metadata = lambda: None
        raise RuntimeError("a bug")

    monkeypatch.setattr(limbo_repair, "FIRST_PAUSE_S", 0.01)
    world.cluster.add(1, (0, OURS), last=9)
    world.cluster.on_metadata = fail
    world.limbo_repair.start()
    deadline = time.monotonic() + DEADLINE_S
    while world.harness.bookie.limbo is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    world.limbo_repair.stop()


def test_of_a_striped_ledger_only_the_entries_of_its_slot_come(world: World) -> None:
    world.cluster.add(1, (0, OURS), last=9, quorum=2)
    assert world.limbo_repair.round()
    pattern = IdPattern(3, 2, 0)
    found, _ = world.harness.payloads(1, 0, 9, pattern=pattern)
    assert sorted(found) == [one for one in range(10) if pattern.holds(one)]
    assert world.is_denied(1, 1)
    assert world.limbo_repair.status().copied_entries == len(found)


def test_only_fragments_that_name_the_bookie_are_copied(world: World) -> None:
    world.cluster.add(1, (0, OTHERS), (3, OURS), (7, OTHERS), last=9)
    assert world.limbo_repair.round()
    assert world.cluster.reads == [(1, 3, 6)]


def test_a_closed_ledger_that_names_it_no_more_is_fenced(world: World) -> None:
    """Its writer may be frozen since an ensemble that did, and thaw. BP-46, scenario 1; storage rule 11."""
    world.cluster.add(1, (0, OTHERS), last=9)
    assert world.limbo_repair.round()
    assert world.add_status(1) is Status.FENCED
    world.harness.restart()
    assert world.add_status(1) is Status.FENCED


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
@pytest.mark.parametrize("fragments", [[(0, OURS)], [(0, OURS), (5, OTHERS)]])
def test_an_unfinished_ledger_that_names_it_is_recovered_and_then_copied(
    world: World, state: LedgerState, fragments: list[tuple[int, str]]
) -> None:
    world.cluster.add(1, *fragments, state=state)
    world.cluster.ends[1] = 3
    assert world.limbo_repair.round()
    assert world.cluster.recoveries == [1]
    world.harness.assert_holds(1, 0, 3)
    assert world.add_status(1) is Status.FENCED


def test_a_ledger_in_recovery_that_names_it_no_more_is_fenced(world: World) -> None:
    world.cluster.add(1, (0, OTHERS), state=LedgerState.IN_RECOVERY)
    assert world.limbo_repair.round()
    assert world.cluster.recoveries == []
    assert world.add_status(1) is Status.FENCED


def test_an_open_ledger_that_does_not_name_it_is_left_alone(world: World) -> None:
    """Its writer may choose this bookie later on."""
    world.cluster.add(1, (0, OTHERS))
    assert world.limbo_repair.round()
    assert world.cluster.recoveries == []
    assert world.add_status(1) is Status.OK


def test_of_a_ledger_that_does_not_exist_nothing_is_protected(world: World) -> None:
    assert world.limbo_repair.round()
    assert world.is_denied(1, 0)
    assert world.harness.bookie.limbo is None


def test_it_ends_with_the_ledger_of_the_watermark_itself(world: World) -> None:
    for ledger_id in (WATERMARK, WATERMARK + 1):
        world.cluster.add(ledger_id, (0, OURS), last=9)
    assert world.limbo_repair.round()
    assert world.cluster.looks == [WATERMARK]
    assert world.add_status(WATERMARK) is Status.FENCED


def test_while_a_ledger_is_copied_it_stays_in_limbo(world: World) -> None:
    """Protocol rule 50: limbo ends only after recovery and copy."""
    world.cluster.add(1, (0, OURS), last=9)
    world.cluster.on_read = lambda *_: denied.append(world.is_denied(1, 20))
    denied: list[bool] = []
    assert world.limbo_repair.round()
    assert denied == [False]
    assert world.is_denied(1, 20)


def test_a_ledger_that_cannot_be_settled_stays_in_limbo_alone_and_is_tried_again(world: World) -> None:
    world.cluster.add(1, (0, OURS))
    world.cluster.add(2, (0, OURS), last=9)
    assert not world.limbo_repair.round()
    assert world.harness.bookie.limbo.unsettled == {1}
    assert not world.is_denied(1, 0)
    assert world.is_denied(2, 10)
    status = world.limbo_repair.status()
    assert (status.settled, status.unsettled) == (1, 1)
    assert "ledger 1" in status.last_error
    world.cluster.ends[1] = 3
    assert world.limbo_repair.round()
    assert world.is_denied(1, 4)
    assert world.cluster.looks == [1, 2, 1]


def test_an_unsettled_ledger_and_all_progress_survive_a_clean_restart(world: World) -> None:
    world.cluster.add(1, (0, OURS))
    world.cluster.add(2, (0, OURS), last=9)
    assert not world.limbo_repair.round()
    world.harness.stop()
    world.start(watermark=None)
    assert world.harness.bookie.limbo.unsettled == {1}
    assert not world.is_denied(1, 0)
    assert world.is_denied(2, 10)
    assert world.add_status(2) is Status.FENCED


def test_a_restart_goes_on_behind_the_last_page_that_was_settled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limbo_repair, "PAGE_LEDGERS", 2)
    for ledger_id in range(1, 6):
        world.cluster.add(ledger_id, (0, OURS), last=9)
    calls = iter([lambda: None, _raise(MetadataUnavailableError("zk", "away"))])
    world.cluster.on_metadata = lambda: next(calls, lambda: None)()
    with pytest.raises(MetadataUnavailableError):
        world.limbo_repair.round()
    world.harness.stop()
    world.start(watermark=None)
    assert world.is_denied(2, 10)
    assert not world.is_denied(3, 10)
    world.cluster.looks.clear()
    assert world.limbo_repair.round()
    assert world.cluster.looks == [3, 4, 5]
    assert world.is_denied(5, 10)


def test_another_loss_begins_anew(world: World) -> None:
    world.cluster.add(1, (0, OURS), last=9)
    assert world.limbo_repair.round()
    world.harness.stop()
    world.start(watermark=WATERMARK)
    assert not world.is_denied(1, 10)


def test_a_metadata_store_that_does_not_answer_ends_nothing(world: World) -> None:
    world.cluster.add(1, (0, OURS), last=9)
    world.cluster.on_metadata = _raise(MetadataUnavailableError("zk", "away"))
    with pytest.raises(MetadataUnavailableError):
        world.limbo_repair.round()
    assert not world.is_denied(1, 10)
    assert not world.is_denied(2, 0)


def test_metadata_that_cannot_be_read_keeps_its_ledger_in_limbo(world: World) -> None:
    world.cluster.ledgers[1] = CorruptionError("the metadata of ledger 1", "not readable")
    world.cluster.add(2, (0, OURS), last=9)
    assert not world.limbo_repair.round()
    assert not world.is_denied(1, 0)
    assert world.is_denied(2, 10)


def test_a_ledger_that_is_deleted_while_it_is_recovered_is_settled_by_the_next_look(world: World) -> None:
    """The client's "no such ledger" does not follow a sync; storage rule 8."""
    world.cluster.add(1, (0, OURS))
    world.cluster.on_recover = _raise(NoSuchLedgerError(1))
    assert not world.limbo_repair.round()
    assert not world.is_denied(1, 0)
    del world.cluster.ledgers[1]
    assert world.limbo_repair.round()
    assert world.is_denied(1, 0)


def test_a_copy_that_leaves_an_entry_out_settles_nothing(world: World) -> None:
    world.cluster.add(1, (0, OURS), last=9)
    world.cluster.leave_out = 4
    assert not world.limbo_repair.round()
    assert not world.is_denied(1, 4)


def test_a_copy_or_a_fence_that_is_not_durable_settles_nothing(world: World) -> None:
    world.cluster.add(1, (0, OURS), last=9)
    world.cluster.add(2, (0, OTHERS), last=9)
    world.harness.disk.fail("sync", "journal")
    with pytest.raises(StorageError):  # nothing can be stored any more, so no progress either
        world.limbo_repair.round()
    assert not world.is_denied(1, 20)
    assert not world.is_denied(2, 0)


def test_too_many_unsettled_ledgers_hold_up_those_behind_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept by id is bounded; nothing behind it is denied."""
    for module in (limbo_repair, admission):
        monkeypatch.setattr(module, "MAX_UNSETTLED", 2)
    monkeypatch.setattr(limbo_repair, "PAGE_LEDGERS", 2)
    for ledger_id in (1, 2, 3, 4):
        world.cluster.add(ledger_id, (0, OURS))
    world.cluster.add(5, (0, OURS), last=9)
    assert not world.limbo_repair.round()
    assert world.harness.bookie.limbo.settled_through == 2
    assert world.harness.bookie.limbo.unsettled == {1, 2}
    assert not any(world.is_denied(one, 10) for one in (1, 2, 3, 4, 5))
    world.cluster.ends |= dict.fromkeys((1, 2, 3, 4), 3)
    assert world.limbo_repair.round()
    assert all(world.is_denied(one, 10) for one in (1, 2, 3, 4, 5))


def test_its_thread_tries_until_limbo_is_over_with_growing_pauses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, pause_s in (("FIRST_PAUSE_S", 0.001), ("LONGEST_PAUSE_S", 0.004)):
        monkeypatch.setattr(limbo_repair, name, pause_s)
    world.cluster.add(1, (0, OURS))
    world.limbo_repair.start()
    assert world.limbo_repair.status().is_running
    _until(lambda: len(world.cluster.recoveries) > 5)
    world.cluster.ends[1] = 3
    _until(lambda: not world.limbo_repair.status().is_running)
    assert world.harness.bookie.limbo is None
    world.harness.assert_holds(1, 0, 3)
    world.limbo_repair.stop()


def test_its_thread_stops_in_a_pause_and_between_ledgers(world: World) -> None:
    for ledger_id in range(1, 50):
        world.cluster.add(ledger_id, (0, OURS))
    held, go_on = threading.Event(), threading.Event()
    world.cluster.on_metadata = lambda: held.set() or go_on.wait(DEADLINE_S)
    world.limbo_repair.start()
    assert held.wait(DEADLINE_S)
    stopping = threading.Thread(target=world.limbo_repair.stop)
    stopping.start()
    _until(lambda: world.limbo_repair._is_stopped)
    go_on.set()
    stopping.join(DEADLINE_S)
    assert not world.limbo_repair.status().is_running
    assert len(world.cluster.recoveries) == 0
    assert not world.is_denied(1, 0)
    assert world.harness.bookie.limbo.settled_through == -1


def test_a_bookie_that_lost_nothing_has_no_phase_two(harness) -> None:
    world = World.__new__(World)
    world.harness, world.cluster, world._sync = harness, KnownCluster(harness.batch), threading.Lock()
    world.start(watermark=None)
    world.limbo_repair.start()
    assert not world.limbo_repair.status().is_running
    assert world.limbo_repair.round()
    world.limbo_repair.stop()
    assert world.cluster.looks == []


@examples(40, HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
@given(
    parts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8), st.booleans(), st.integers(0, 2)), max_size=6),
    asked=st.tuples(st.integers(0, 30), st.integers(0, 12), st.booleans(), st.integers(0, 2)),
)
def test_what_is_missing_is_the_same_as_by_a_set_of_ids(harness, parts, asked) -> None:
    """Over stored batches that overlap, in patterns that differ. Storage rule 1."""
    harness.stop()
    ledger_id = next(LEDGERS)
    harness.start()
    held: set[int] = set()
    for first, count, is_dense, slot in parts:
        pattern = DENSE if is_dense else IdPattern(3, 2, slot)
        ids = [one for one in range(first, first + count) if pattern.holds(one)]
        if ids:
            assert harness.add(ledger_id, ids[0], ids[-1], pattern=pattern, recovery=True).status is Status.OK
            held |= set(ids)
    first, count, is_dense, slot = asked
    pattern = DENSE if is_dense else IdPattern(3, 2, slot)
    stretches = list(missing(harness.bookie.storage, ledger_id, pattern, first, first + count))
    found = [one for start, end in stretches for one in pattern.ids(start, end).tolist()]
    assert found == [one for one in range(first, first + count + 1) if pattern.holds(one) and one not in held]
    assert all(pattern.holds(start) and pattern.holds(end) for start, end in stretches)


LEDGERS = iter(range(1000, 100_000))


def test_what_is_missing_of_a_long_ledger_comes_in_parts_that_fit_a_batch(world: World) -> None:
    world.harness.add(1, 70_000, 70_000, recovery=True)
    stretches = list(missing(world.harness.bookie.storage, 1, DENSE, 0, 200_000))
    assert max(last - first for first, last in stretches) < MAX_BATCH_ENTRIES
    assert sum(last - first + 1 for first, last in stretches) == 200_000


def _raise(problem: BookKeeperError) -> Callable[[], None]:
    def raising() -> None:
        raise problem

    return raising


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _stuck(world: World) -> None:
    """Ledger 1 can be repaired; ledger 2 is open, and its recovery finds no quorum."""
    world.cluster.add(1, (0, OURS), last=9)
    world.cluster.add(2, (0, OURS))
    assert not world.limbo_repair.round()


def test_limbo_tells_which_ledgers_it_waits_for_and_why(world: World) -> None:
    _stuck(world)
    waits = world.limbo_repair.waits_for()
    assert list(waits) == [2]
    assert "b2: away" in waits[2]
    world.cluster.ends[2] = 0
    assert world.limbo_repair.round()
    assert world.limbo_repair.waits_for() == {}


def test_an_operator_ends_the_limbo_of_a_ledger_that_is_then_fenced_and_denied(world: World) -> None:
    _stuck(world)
    assert not world.is_denied(2, 0)
    world.limbo_repair.give_up(2)
    assert world.is_denied(2, 0)
    assert world.add_status(2) is Status.FENCED
    assert world.limbo_repair.waits_for() == {}
    world.harness.kill()
    world.start(watermark=None)
    assert world.is_denied(2, 0)
    assert world.add_status(2) is Status.FENCED
    assert world.limbo_repair.round()
    assert world.harness.bookie.limbo is None


def test_limbo_is_not_ended_for_ledgers_that_it_does_not_wait_for_or_that_cannot_be_fenced(world: World) -> None:
    with pytest.raises(ConfigError, match="is not in limbo"):
        world.limbo_repair.give_up(2)
    _stuck(world)
    with pytest.raises(ConfigError, match="is not in limbo"):
        world.limbo_repair.give_up(1)
    world.cluster.ledgers[2] = CorruptionError("the metadata of ledger 2", "it is unreadable")
    with pytest.raises(CorruptionError):
        world.limbo_repair.give_up(2)
    assert not world.is_denied(2, 0)


def test_a_ledger_whose_id_another_creators_ledger_has_here_holds_up_no_end_of_limbo(world: World) -> None:
    """Protocol rule 64: requests about it are refused as another ledger's, so nothing of it is ever denied."""
    own = world.cluster.add(1, (0, OURS), last=9)
    former = master_key(own.password, own.creator_token + 1)
    assert world.harness.add(1, 0, 4, key=former, recovery=True).status is Status.OK
    assert world.limbo_repair.round()
    assert world.harness.bookie.limbo is None
    key = master_key(own.password, own.creator_token)
    assert world.harness.read(1, 0, 9, key=key)[1].status is Status.OTHER_LEDGER


def test_it_tells_now_and_then_how_far_it_has_come_also_within_one_ledger(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "WORK_S", 0.0)
    world.limbo_repair = world.phase_two()
    world.cluster.add(1, (0, OURS), last=9)
    with caplog.at_level(logging.INFO):
        assert world.limbo_repair.round()
    told = [line for line in caplog.messages if line.startswith("limbo: ")]
    nbytes = world.limbo_repair.status().copied_bytes
    assert nbytes > 0
    copied = f"{WATERMARK + 1} ids are left; 10 entries ({progress.mib(nbytes)}) were copied from other bookies"
    assert told[-2:] == [f"limbo: {settled} ledgers are settled and 0 wait, {copied}" for settled in (0, 1)]
