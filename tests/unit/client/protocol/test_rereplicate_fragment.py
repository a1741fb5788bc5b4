"""The state machine that copies one fragment, in all kinds of schedules. Ref: protocol rules 22, 33, 53, 54; situation 40."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bk_spark.client.protocol.replace_bookies import ReplaceBookies, last_entry_of
from bk_spark.client.protocol.rereplicate_fragment import FragmentCopied
from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    CancelAdd,
    ChooseReplacements,
    Finish,
    MetadataRead,
    ReadEnded,
    ReadMetadata,
    ReplacementsChosen,
    ReportFailure,
    SendAdd,
    SendForce,
    SendRead,
    Tick,
    WriteMetadata,
)
from bk_spark.config import MIB
from bk_spark.entries.batch import decode
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookieUnavailableError, MetadataConflictError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerState
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.copy_model import LIMITS, Copying, World, by_chance, ledger

SHAPES = [(1, 1), (3, 3), (3, 2), (4, 2), (5, 3)]
SMALL = replace(LIMITS, window_bytes=1, reads=replace(LIMITS.reads, ahead_bytes=1))
"""One add at a time."""


def _ensembles(world: World) -> list[tuple[int, tuple[str, ...]]]:
    assert world.stored is not None
    return [(one.first_entry_id, one.ensemble) for one in world.stored.fragments]


# --- what is copied


@pytest.mark.parametrize(("e", "w"), SHAPES)
@pytest.mark.parametrize("slot", [0, -1])
def test_the_new_bookie_gets_exactly_what_the_slot_holds_with_its_digests_and_lacs(e: int, w: int, slot: int) -> None:
    world = World(ledger(40, e, w, 1))
    leaving = f"b{slot % e}"
    copying = Copying(world, world.task(leaving))
    copied = copying.copied()
    assert world.lacking() == []
    assert world.bookies["s0"].holds == world.bookies[leaving].holds
    assert (copied.entries, copied.problem) == (len(world.bookies["s0"].holds), "")
    assert leaving not in _ensembles(world)[0][1]


def test_a_dead_bookie_is_never_asked_while_the_others_answer() -> None:
    world = World(ledger(40))
    world.bookies["b1"].is_dead = True
    copying = Copying(world, world.task("b1"))
    copying.copied()
    assert {one.bookie_id for one in copying.log if isinstance(one, SendRead)} <= {"b0", "b2"}


def test_a_bookie_that_leaves_and_lives_is_a_source_of_last_resort() -> None:
    world = World(ledger(10, 1, 1, 1))
    Copying(world, world.task("b0")).copied()
    assert _ensembles(world) == [(0, ("s0",))]
    assert world.lacking() == []


def test_a_copy_goes_to_its_target_or_nowhere() -> None:
    """The target dies while it is copied to: no other bookie is chosen, and the metadata stays as it is."""
    world = World(ledger(40))
    copied = Copying(world, replace(world.task("b1"), target="s1")).copied()
    assert (_ensembles(world), copied.problem) == ([(0, ("b0", "s1", "b2"))], "")
    world, before = World(ledger(40)), World(ledger(40)).stored
    world.bookies["s1"].adds_until_death = 0
    copied = Copying(world, replace(world.task("b1"), target="s1"), SMALL).copied()
    assert (world.stored, copied.problem) == (before, "too few bookies")
    assert not world.bookies["s0"].holds


def test_an_entry_that_is_damaged_on_one_replica_is_read_from_another() -> None:
    world = World(ledger(40))
    world.bookies["b0"].damaged = {3, 4}
    world.bookies["b2"].damaged = {20}
    Copying(world, world.task("b1")).copied()
    assert world.lacking() == []


def test_without_any_readable_replica_nothing_changes_and_the_entry_is_named() -> None:
    world = World(ledger(40))
    world.bookies["b0"].damaged = world.bookies["b2"].damaged = {7}
    world.bookies["b1"].is_dead = True
    error = Copying(world, world.task("b1")).failed()
    assert isinstance(error, BookieUnavailableError)
    assert "entry 7" in str(error)
    assert world.version == 0


@pytest.mark.parametrize("entries", [0, 40])
def test_a_fragment_without_entries_gets_its_ensemble_repaired(entries: int) -> None:
    """Protocol rule 54: the ledger has none at all, or its last fragment has none."""
    metadata = ledger(entries)
    if entries:
        metadata = replace(metadata, fragments=(*metadata.fragments, Fragment(40, ("b0", "b1", "b3"))))
    world = World(metadata)
    copying = Copying(world, world.task("b1", index=len(metadata.fragments) - 1))
    assert copying.copied().entries == 0
    assert not [one for one in copying.log if isinstance(one, (SendRead, SendAdd))]
    assert "b1" not in _ensembles(world)[-1][1]


def test_two_bookies_that_leave_are_replaced_at_once_and_the_entries_read_once() -> None:
    world = World(ledger(40))
    world.bookies["b0"].is_dead = world.bookies["b2"].is_dead = True
    copying = Copying(world, world.task("b0", "b2"))
    assert copying.copied().entries == 80
    assert _ensembles(world) == [(0, ("s0", "b1", "s1"))]
    assert sum(isinstance(one, WriteMetadata) for one in copying.log) == 1


# --- how it is sent


def test_the_adds_carry_the_recovery_flag_so_that_a_fence_does_not_refuse_them() -> None:
    """Protocol rule 53; situation 40: fence, then re-replicate."""
    world = World(ledger(40))
    world.bookies["s0"].is_fenced = True
    Copying(world, world.task("b1"), SMALL).copied()
    assert world.adds
    assert all(one.recovery for one in world.adds)
    assert world.lacking() == []


def test_no_more_bytes_are_under_way_than_the_window_and_one_batch() -> None:
    world = World(ledger(40))
    pieces = replace(LIMITS, window_bytes=1)
    copying = Copying(world, world.task("b0", "b1"), pieces)
    while copying.end is None:
        assert sum(isinstance(one, SendAdd) for one in copying.waiting) <= 1
        copying.step()


def test_the_rate_of_bytes_is_kept() -> None:
    """A new batch goes out when the one before is paid for, but for a few milliseconds of credit."""
    world = World(ledger(40))
    copying = Copying(world, world.task("b0", "b1"), pace=ByteRate(1000))
    sent: list[int] = []
    while copying.end is None:
        sent += [copying.now_ms] * (len(world.adds) - len(sent))
        copying.step()
    sizes = [len(one.batch.body) for one in world.adds]
    assert len(sizes) == 2
    assert copying.now_ms >= sizes[0] - 10


def test_bytes_that_were_not_used_are_not_saved_up() -> None:
    pace = ByteRate(MIB * 1000)
    pace.take(10 * MIB, 0)
    assert (pace.due_ms(0), pace.due_ms(7)) == (6, 7)
    pace.take(10 * MIB, 50_000)
    assert pace.due_ms(50_000) == 50_006


# --- new bookies that fail


@pytest.mark.parametrize("adds", [0, 1, 2])
@pytest.mark.parametrize(("e", "w"), [(3, 3), (4, 2), (5, 3)])
def test_a_new_bookie_that_dies_in_the_middle_is_replaced_by_another(adds: int, e: int, w: int) -> None:
    world = World(ledger(40, e, w, 1), spares=3)
    world.bookies["s0"].adds_until_death = adds
    copying = Copying(world, world.task("b1", "b2"), replace(SMALL, batch_bytes=100))
    assert copying.copied().problem == ""
    assert ReportFailure("s0") in copying.log
    assert "s0" not in _ensembles(world)[0][1]
    assert world.lacking() == []


@pytest.mark.parametrize("foreign", ["b0", "b2", "s0"])
def test_a_bookie_with_a_foreign_key_is_one_bad_replica(foreign: str) -> None:
    """Protocol rule 24."""
    world = World(ledger(40))
    world.bookies[foreign].has_foreign_key = True
    Copying(world, world.task("b1")).copied()
    assert _ensembles(world) == [(0, ("b0", "s1" if foreign == "s0" else "s0", "b2"))]
    assert world.lacking() == []


def test_a_new_bookie_that_is_silent_is_given_up_after_its_timeout() -> None:
    world = World(ledger(40))
    copying = Copying(world, world.task("b1"))
    while not any(isinstance(one, SendAdd) for one in copying.waiting):
        copying.step()
    copying.waiting.clear()
    copying.copied()
    assert copying.now_ms >= LIMITS.add_timeout_ms
    assert _ensembles(world) == [(0, ("b0", "s1", "b2"))]


def test_with_too_few_bookies_what_can_be_replaced_is_and_the_rest_is_said() -> None:
    world = World(ledger(40), spares=1)
    copied = Copying(world, world.task("b1", "b2")).copied()
    assert copied.problem == "too few bookies"
    assert _ensembles(world) == [(0, ("b0", "s0", "b2"))]
    assert world.lacking() == []


def test_without_any_other_bookie_a_living_one_gets_its_entries_back_and_stays() -> None:
    world = World(ledger(40), spares=0)
    world.bookies["b1"].holds = {1, 2}
    copied = Copying(world, world.task("b1", alive=frozenset({"b1"}))).copied()
    assert (copied.restored, copied.problem) == (frozenset({"b1"}), "")
    assert world.lacking() == []
    assert (world.version, _ensembles(world)) == (0, [(0, ("b0", "b1", "b2"))])


def test_parts_of_an_earlier_attempt_do_no_harm() -> None:
    world = World(ledger(40))
    world.bookies["s0"].holds = {1, 2, 30}
    Copying(world, world.task("b1")).copied()
    assert world.lacking() == []


# --- the metadata


def test_what_others_changed_elsewhere_is_kept() -> None:
    """Protocol rule 22; situation 6."""
    metadata = ledger(40)
    metadata = replace(metadata, fragments=(*metadata.fragments, Fragment(20, ("b0", "b1", "b3"))))
    world = World(metadata)
    copying = Copying(world, world.task("b1"))
    world.store(replace(metadata, fragments=(metadata.fragments[0], Fragment(20, ("b0", "s1", "b3")))))
    world.bookies["s1"].holds = set(world.bookies["b1"].holds)
    copying.copied()
    assert _ensembles(world) == [(0, ("b0", "s0", "b2")), (20, ("b0", "s1", "b3"))]
    assert world.lacking() == []


def test_a_slot_that_another_worker_filled_keeps_its_bookie() -> None:
    """What the slower one copied is one copy too many, and left to garbage collection."""
    world = World(ledger(40))
    first, second = Copying(world, world.task("b1")), Copying(world, world.task("b1"))
    first.copied()
    world.prefers_last = True
    second.copied()
    assert world.bookies["s1"].holds == set(range(40))
    assert (world.version, _ensembles(world)) == (1, [(0, ("b0", "s0", "b2"))])


def test_a_lost_reply_of_the_write_is_settled_by_reading() -> None:
    world = World(ledger(40))
    copying = Copying(world, world.task("b1"))
    copying.lose_replies = 1
    copied = copying.copied()
    assert (world.version, copied.version, copied.metadata) == (1, 1, world.stored)


def test_a_bookie_that_came_into_the_ensemble_elsewhere_is_not_named_twice() -> None:
    world = World(ledger(40))
    copying = Copying(world, world.task("b1"))
    assert world.stored is not None
    world.store(replace(world.stored, fragments=(Fragment(0, ("s0", "b1", "b2")),)))
    assert isinstance(copying.failed(), MetadataConflictError)
    assert _ensembles(world) == [(0, ("s0", "b1", "b2"))]


def test_a_session_that_was_lost_writes_nothing() -> None:
    """Its lock may have gone to a garbage collection that dropped the copies. Protocol rule 45, situation 83."""
    world = World(ledger(40))
    world.guards.add("/guard")
    copying = Copying(world, world.task("b1", guard="/guard"))
    world.guards.discard("/guard")
    world.bookies["s0"].holds.clear()
    assert isinstance(copying.failed(), MetadataConflictError)
    assert world.version == 0


def test_a_ledger_that_is_deleted_meanwhile_ends_the_copying() -> None:
    world = World(ledger(40))
    copying = Copying(world, world.task("b1"))
    world.stored = None
    assert isinstance(copying.failed(), NoSuchLedgerError)


def test_a_fragment_whose_borders_moved_is_left_alone() -> None:
    metadata = ledger(40)
    change = ReplaceBookies(metadata.fragments[0], 39, ((1, "s0"),))
    for other in (
        replace(metadata, last_entry_id=38),
        replace(metadata, state=LedgerState.OPEN, last_entry_id=None, length=0),
        replace(metadata, fragments=(Fragment(0, ("b0", "b1", "b2")), Fragment(30, ("b0", "b1", "b3")))),
    ):
        with pytest.raises(MetadataConflictError):
            change(other)


def test_a_fragment_ends_before_the_next_one_or_where_the_ledger_does() -> None:
    metadata = replace(ledger(40), fragments=(Fragment(0, ("b0", "b1", "b2")), Fragment(40, ("b0", "b1", "b3"))))
    assert [last_entry_of(metadata, index) for index in (0, 1)] == [39, 39]
    opened = replace(metadata, state=LedgerState.OPEN, last_entry_id=None, length=0)
    assert [last_entry_of(opened, index) for index in (0, 1)] == [39, None]


# --- by chance


@pytest.mark.parametrize("seed", range(150))
def test_two_workers_at_once_never_make_the_metadata_name_a_bookie_that_lacks_entries(seed: int) -> None:
    """In any order of answers, with bookies that die, replies that are lost, and a garbage collection that drops what no
    metadata names from bookies whose copier has lost its session. Protocol rules 22, 33 and 45; situations 40 and 76.
    """
    chance = random.Random(seed)
    e, w = chance.choice([(3, 3), (3, 2), (4, 2), (5, 3)])
    world = World(ledger(chance.choice([0, 1, 30]), e, w, 1), spares=4)
    world.guards |= {"/one", "/two"}
    limits = replace(chance.choice([LIMITS, SMALL]), batch_bytes=chance.choice([80, 1 << 19]))
    workers = [Copying(world, world.task(chance.choice(["b0", "b1"]), "b1", guard=guard), limits) for guard in ("/one", "/two")]
    if chance.random() < 0.4:
        world.bookies["b1"].is_dead = True
    if chance.random() < 0.4:
        world.bookies["s0"].adds_until_death = chance.randrange(4)
    for worker in workers:
        worker.lose_replies = chance.randrange(2)
    world.prefers_last = chance.random() < 0.5
    while left := [one for one in workers if one.end is None]:
        worker = chance.choice(left)
        worker.step(chance.randrange(max(1, len(worker.waiting))))
        world.prefers_last ^= chance.random() < 0.1
        if chance.random() < 0.05 and "/one" in world.guards:
            world.guards.discard("/one")
            _collect_garbage(world, *workers)
        assert world.lacking() == []
    for worker in workers:
        end = worker.run()
        assert end.error is None or isinstance(end.error, MetadataConflictError)
        if isinstance(end.result, FragmentCopied) and not end.result.problem:
            assert "b1" not in _ensembles(world)[0][1]


def _collect_garbage(world: World, first: Copying, second: Copying) -> None:
    """The first has lost its lock. Before the second takes it, what no metadata names may go from where it was copied."""
    if any(isinstance(one, SendAdd) for one in second.log):
        return
    named = {one for _, ensemble in _ensembles(world) for one in ensemble}
    for name in {one.bookie_id for one in first.log if isinstance(one, SendAdd)} - named:
        world.bookies[name].holds.clear()


def test_a_schedule_by_chance_gives_the_same_as_the_plain_one() -> None:
    for seed in range(20):
        world = World(ledger(40, 5, 3, 2))
        Copying(world, world.task("b1", "b4"), SMALL).copied(by_chance(seed))
        assert world.lacking() == []


def test_the_end_is_told_once_and_nothing_follows() -> None:
    world = World(ledger(40))
    copying = Copying(world, world.task("b1"))
    copying.copied()
    assert isinstance(copying.log[-1], Finish)
    assert copying.machine.deadline_ms() is None


def test_those_that_are_leaving_and_those_that_failed_are_not_asked_for_again() -> None:
    world = World(ledger(40))
    world.bookies["s0"].is_dead = True
    copying = Copying(world, world.task("b1"))
    copying.copied()
    questions = [one for one in copying.log if isinstance(one, ChooseReplacements)]
    assert [one.excluded for one in questions] == [{"b1"}, {"b1", "s0"}]


def test_batches_are_whole_and_their_entries_follow_each_other() -> None:
    world = World(ledger(40))
    Copying(world, world.task("b1")).copied()
    assert [one for add in world.adds for one in decode(add.batch).entry_ids.tolist()] == list(range(40))
    assert len(world.adds) == 1


# --- copies that are acked into memory (protocol rule 61)


PIECES = replace(SMALL, batch_bytes=200)
"""Several batches, one add at a time."""


def test_a_new_bookie_that_was_started_again_between_two_batches_is_copied_to_from_the_start() -> None:
    world = World(ledger(40), spares=1)
    copying = Copying(world, world.task("b1"), PIECES)
    copying.step()
    while len(world.adds) < 2:
        copying.step()
    world.bookies["s0"].restart()
    assert copying.copied().problem == ""
    assert _ensembles(world) == [(0, ("b0", "s0", "b2"))]
    assert world.lacking() == []
    assert world.bookies["s0"].durable == set(range(40))
    kinds = [type(one) for one in copying.log if isinstance(one, SendAdd | ChooseReplacements)]
    assert kinds[:5] == [ChooseReplacements, *[SendAdd] * 3, ChooseReplacements], "the first ack of the new boot ends it"


def test_a_slot_that_is_complete_while_another_is_copied_is_copied_anew_if_its_bookie_was_started_again() -> None:
    world = World(ledger(40), spares=3)
    world.bookies["s1"].adds_until_death = 0
    copying = Copying(world, world.task("b0", "b2"), PIECES)
    while not (world.bookies["s0"].holds == set(range(40)) and world.bookies["s2"].holds):
        copying.step()
    world.bookies["s0"].restart()
    assert copying.copied().problem == ""
    assert world.lacking() == []


def test_every_new_bookie_is_forced_after_its_last_ack_and_before_it_is_named() -> None:
    world = World(ledger(40))
    copying = Copying(world, world.task("b0", "b1"), PIECES)
    copying.copied()
    kinds = [type(one) for one in copying.log if isinstance(one, SendAdd | SendForce | WriteMetadata)]
    assert kinds[-3:] == [SendForce, SendForce, WriteMetadata]
    assert kinds.count(SendForce) == 2
    assert world.bookies["s0"].durable == world.bookies["s1"].durable == set(range(40))


def test_a_bookie_that_cannot_be_forced_is_not_named() -> None:
    world = World(ledger(40))
    world.bookies["s0"].refuses_forces = True
    Copying(world, world.task("b1")).copied()
    assert _ensembles(world) == [(0, ("b0", "s1", "b2"))]


def test_a_bookie_that_does_not_answer_a_force_is_given_up_after_the_timeout() -> None:
    world = World(ledger(40))
    copying = Copying(world, world.task("b1"))
    while not any(isinstance(one, SendForce) for one in copying.waiting):
        copying.step()
    copying.waiting.clear()
    copying.copied()
    assert _ensembles(world) == [(0, ("b0", "s1", "b2"))]
    assert ReportFailure("s0") in copying.log


def test_a_bookie_that_is_started_again_and_again_is_given_up() -> None:
    world = World(ledger(40), spares=1)
    copying = Copying(world, world.task("b1"), PIECES)
    while copying.end is None:
        if copying.waiting and isinstance(copying.waiting[0], SendForce):
            world.bookies["s0"].restart()
        copying.step()
    assert "too few bookies" in copying.copied().problem
    assert _ensembles(world) == [(0, ("b0", "b1", "b2"))]
    assert sum(isinstance(one, SendForce) for one in copying.log) == 2


@pytest.mark.parametrize("seed", range(30))
def test_whoever_is_named_holds_its_share_whenever_bookies_are_started_again(seed: int) -> None:
    chance = random.Random(seed)
    world = World(ledger(40, 4, 2, 2), spares=3)
    copying = Copying(world, world.task("b0", "b3"), PIECES)
    for _ in range(10_000):
        if copying.end is not None:
            break
        if chance.random() < 0.02:
            world.bookies[chance.choice(["s0", "s1", "s2"])].restart()
        copying.step(chance.randrange(max(1, len(copying.waiting))))
    for spare in ("s0", "s1", "s2"):
        world.bookies[spare].restart()
    assert world.lacking() == []


def test_a_bookie_that_gets_its_own_entries_back_is_forced_too() -> None:
    world = World(ledger(40), spares=0)
    world.bookies["b1"].holds, world.bookies["b1"].durable = set(), set()
    copied = Copying(world, world.task("b1", alive=frozenset({"b1"}))).copied()
    assert copied.restored == {"b1"}
    assert world.bookies["b1"].durable == set(range(40))


def _gives_up_while_it_looks() -> Copying:
    """No replica has entries from 5 on, so the copying looks at the metadata; meanwhile the new bookie breaks off."""
    world = World(ledger(10), spares=3)
    for bookie_id in ("b0", "b1", "b2"):
        world.bookies[bookie_id].holds -= set(range(5, 10))
    copying = Copying(world, world.task("b0"), replace(LIMITS, batch_bytes=60))
    while not any(isinstance(one, ReadMetadata) for one in copying.waiting):
        copying.step(next((i for i, one in enumerate(copying.waiting) if not isinstance(one, SendAdd)), 0))
    sent = next(one for one in copying.waiting if isinstance(one, SendAdd))
    copying.waiting[:] = [one for one in copying.waiting if not isinstance(one, SendAdd | ReadMetadata)]
    copying.post(AddAnswered(sent.request_id, Status.UNKNOWN, "its connection broke"))
    [choice] = [one for one in copying.waiting if isinstance(one, ChooseReplacements)]
    copying.waiting.remove(choice)
    copying.post(world.choose(choice))
    return copying


def test_a_look_at_the_metadata_for_copies_that_were_given_up_is_for_nobody() -> None:
    copying = _gives_up_while_it_looks()
    assert copying.world.stored is not None
    copying.post(MetadataRead(copying.world.stored, copying.world.version))
    assert any(isinstance(one, SendRead) for one in copying.waiting)
    assert copying.end is None


def test_what_new_copies_read_counts_while_the_answer_for_those_that_were_given_up_is_awaited() -> None:
    copying = _gives_up_while_it_looks()
    for bookie_id in ("b1", "b2"):
        copying.world.bookies[bookie_id].holds = set(range(10))
    reads = sum(isinstance(one, SendRead) for one in copying.log)
    assert copying.copied().problem == ""
    assert sum(isinstance(one, SendRead) for one in copying.log) == reads
    assert copying.world.bookies["s1"].durable == set(range(10))


def test_a_slot_for_which_there_is_no_bookie_is_named_though_the_answer_gives_no_reason() -> None:
    world = World(ledger(10), spares=0)
    copying = Copying(world, world.task("b1"))
    (choice,) = (one for one in copying.waiting if isinstance(one, ChooseReplacements))
    copying.waiting.remove(choice)
    copying.post(ReplacementsChosen(choice.request_id, ()))
    assert copying.copied().problem == "there is no bookie for every slot"


def test_what_is_under_way_to_a_bookie_that_failed_is_cancelled() -> None:
    world = World(ledger(40))
    copying = Copying(world, world.task("b1"), replace(LIMITS, batch_bytes=200))
    while not any(isinstance(one, SendAdd) for one in copying.waiting):
        copying.step()
    first, *others = [one for one in copying.waiting if isinstance(one, SendAdd)]
    copying.post(AddAnswered(first.request_id, Status.IO_ERROR))
    assert len(others) > 1
    assert [one.request_id for one in copying.log if isinstance(one, CancelAdd)] == [one.request_id for one in others]


def test_the_write_of_the_metadata_goes_on_whatever_happens_meanwhile() -> None:
    world = World(ledger(40))
    copying = Copying(world, world.task("b1"))
    while not any(isinstance(one, WriteMetadata) for one in copying.waiting):
        copying.step()
    copying.post(Tick())
    copying.post(ReadEnded(99, Status.OK))
    assert copying.copied().problem == ""
