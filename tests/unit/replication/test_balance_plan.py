"""Which copies move to emptier bookies."""

from __future__ import annotations

import random

import pytest

from bk_spark.client.protocol.placement.rack_spread import location_of, spread_of
from bk_spark.config import DigestType
from bk_spark.errors import ConfigError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from bk_spark.replication.balance_plan import BalancePlan, BookieCapacity, CopyMove, HeldFragment, capacities, held_fragments
from bk_spark.wire.messages import BookieDescription, BookieDirectory, Status

RACKS = ("/z1/r1", "/z1/r2", "/z2/r3", "/z2/r4")


def spaces(*held: int, capacity: int = 100, racks: tuple[str, ...] = RACKS) -> list[BookieCapacity]:
    return [BookieCapacity(f"b{index}", racks[index % len(racks)], one, capacity) for index, one in enumerate(held)]


def fragment(*ensemble: str, nbytes: int = 10, ledger_id: int = 7, write_quorum: int = 1) -> HeldFragment:
    return HeldFragment(ledger_id, 0, ensemble, write_quorum, nbytes)


def test_copy_moves_from_the_fullest_bookie_to_the_emptiest() -> None:
    plan = BalancePlan(spaces(90, 60, 0), max_bytes=1_000)
    assert plan.move_of(fragment("b1", "b0")) == CopyMove(7, 0, 1, "b0", "b2", 10)
    assert plan.fullness("b0") == 0.8
    assert plan.fullness("b2") == 0.1


def test_nothing_moves_between_bookies_within_the_tolerance() -> None:
    plan = BalancePlan(spaces(54, 46, 50), max_bytes=1_000)
    assert plan.is_done
    assert plan.move_of(fragment("b0")) is None


def test_fuller_means_more_of_its_own_capacity() -> None:
    large = BookieCapacity("large", RACKS[0], 90, 1_000)
    small = BookieCapacity("small", RACKS[1], 60, 100)
    other = BookieCapacity("other", RACKS[2], 0, 1_000)
    plan = BalancePlan([large, small, other], max_bytes=1_000)
    assert plan.overfull == {"large", "small"}
    move = plan.move_of(fragment("large", "small"))
    assert move is not None
    assert move.source == "small"


def test_no_move_puts_two_copies_on_one_bookie() -> None:
    plan = BalancePlan(spaces(90, 0), max_bytes=1_000)
    assert plan.move_of(fragment("b0", "b1")) is None


def test_bookie_that_takes_no_copies_gets_none() -> None:
    plan = BalancePlan([*spaces(90), BookieCapacity("b1", RACKS[1], 0, 100, takes_copies=False)], max_bytes=1_000)
    assert plan.move_of(fragment("b0")) is None


def test_no_move_leaves_a_write_set_in_fewer_racks() -> None:
    """b2, the emptiest, is in the rack of b0: the copy of b1 goes to b3, which is fuller."""
    racks = ("/z/a", "/z/b", "/z/a", "/z/c")
    plan = BalancePlan(spaces(50, 100, 0, 10, racks=racks), max_bytes=1_000)
    move = plan.move_of(fragment("b0", "b1", write_quorum=2))
    assert move is not None
    assert (move.source, move.target) == ("b1", "b3")


def test_nothing_moves_while_the_rack_of_a_bookie_is_not_known() -> None:
    plan = BalancePlan(spaces(90, 0, 0), max_bytes=1_000)
    assert plan.move_of(fragment("b0", "gone")) is None


def test_plan_ends_when_its_bytes_are_planned() -> None:
    plan = BalancePlan(spaces(90, 0, 0), max_bytes=25)
    assert [plan.move_of(fragment("b0")) is not None for _ in range(4)] == [True, True, False, False]
    assert plan.left_bytes == 5


def test_target_stays_at_or_below_the_mean() -> None:
    plan = BalancePlan(spaces(90, 30, 0), max_bytes=1_000)
    assert plan.move_of(fragment("b0", nbytes=41)) is None
    assert plan.move_of(fragment("b0", nbytes=40)) is not None


def test_tolerance_must_be_above_zero() -> None:
    with pytest.raises(ConfigError, match="tolerance"):
        BalancePlan(spaces(1), max_bytes=1, tolerance=0.0)


@pytest.mark.parametrize("seed", range(20))
def test_random_plan_ends_balanced_moves_nothing_twice_and_costs_no_racks(seed: int) -> None:
    chance = random.Random(seed)
    bookies, old = 12, 6
    racks = [RACKS[chance.randrange(len(RACKS))] for _ in range(bookies)]
    place = {f"b{index}": location_of(rack) for index, rack in enumerate(racks)}
    ensembles = {one: tuple(chance.sample([f"b{index}" for index in range(old)], 3)) for one in range(600)}
    held = {name: sum(name in ensemble for ensemble in ensembles.values()) for name in place}
    plan = BalancePlan(
        [BookieCapacity(name, racks[index], held[name], 1_000) for index, name in enumerate(place)], max_bytes=10_000
    )
    was_above = {name for name in place if plan.fullness(name) > plan.mean}
    for _ in range(4):
        for ledger_id, ensemble in ensembles.items():
            move = plan.move_of(fragment(*ensemble, nbytes=1, ledger_id=ledger_id, write_quorum=3))
            if move is None:
                continue
            assert move.source in was_above
            assert move.target not in was_above
            after = tuple(move.target if slot == move.slot else name for slot, name in enumerate(ensemble))
            assert len(set(after)) == 3
            assert spread_of([place[one] for one in after], 3).keeps(spread_of([place[one] for one in ensemble], 3))
            ensembles[ledger_id] = after
    for name in place:
        assert plan.fullness(name) == sum(name in ensemble for ensemble in ensembles.values()) / 1_000
    stuck = [name for name in plan.overfull if _has_where_to(name, ensembles, place, plan)]
    assert not stuck


def _has_where_to(name: str, ensembles: dict[int, tuple[str, ...]], place: dict[str, object], plan: BalancePlan) -> bool:
    """Whether any fragment of an overfull bookie could still move."""
    return any(
        plan.move_of(fragment(*ensemble, nbytes=1, write_quorum=3)) is not None
        for ensemble in ensembles.values()
        if name in ensemble
    )


def test_what_is_only_wanted_does_not_count_and_a_move_that_failed_counts_as_spent_alone() -> None:
    plan = BalancePlan(spaces(90, 60, 0), max_bytes=100)
    assert plan.wanted_move(fragment("b0")) == plan.wanted_move(fragment("b0"))
    move = plan.move_of(fragment("b0"))
    assert move is not None
    plan.failed(move)
    assert [plan.fullness(name) for name in ("b0", "b2")] == [0.9, 0.0]
    assert plan.left_bytes == 90


def test_bookie_that_failed_as_a_target_gets_no_further_copy_and_may_still_give() -> None:
    plan = BalancePlan(spaces(90, 10, 0), max_bytes=1_000)
    plan.give_no_more("b2")
    plan.give_no_more("b0")
    move = plan.move_of(fragment("b0"))
    assert move is not None
    assert move.target == "b1"


def test_all_slots_of_overfull_bookies_move_one_after_the_other() -> None:
    plan = BalancePlan(spaces(90, 80, 70, 0, 0, 0), max_bytes=1_000)
    moves = plan.moves_of(fragment("b2", "b0", "b1"))
    assert [(move.slot, move.source) for move in moves] == [(1, "b0"), (2, "b1"), (0, "b2")]
    assert {move.target for move in moves} == {"b3", "b4", "b5"}


def _ledger(sizes: tuple[int, int, int], firsts: list[int], last: int, length: int) -> LedgerMetadata:
    ensemble = tuple(f"b{slot}" for slot in range(sizes[0]))
    fragments = tuple(Fragment(first, ensemble) for first in firsts)
    state = LedgerState.CLOSED
    return LedgerMetadata(7, *sizes, DigestType.CRC32C, b"", fragments, state, last_entry_id=last, length=length)


def test_a_copy_is_estimated_as_its_share_of_the_entries_and_slots() -> None:
    metadata = _ledger((3, 2, 2), [0, 75], 99, 1_200)
    assert [one.copy_bytes for one in held_fragments(metadata)] == [600, 200]
    assert [one.first_entry_id for one in held_fragments(metadata)] == [0, 75]


@pytest.mark.parametrize(("firsts", "last"), [([0], -1), ([0, 4], 3)])
def test_a_fragment_without_entries_has_no_bytes_and_does_not_move(firsts: list[int], last: int) -> None:
    empty = held_fragments(_ledger((3, 3, 2), firsts, last, 40 if last >= 0 else 0))[-1]
    assert empty.copy_bytes == 0
    assert BalancePlan(spaces(90, 90, 90, 0), max_bytes=1_000).move_of(empty) is None


def _told(*directories: tuple[str, str, int], total: int = 70) -> BookieDescription:
    """Directories are (uses, file system, total)."""
    each = tuple(BookieDirectory(f"/{uses}", uses, system, 1, nbytes) for uses, system, nbytes in directories)
    return BookieDescription(Status.OK, "b", 1, total, "1.0", each)


def test_bookies_on_one_file_system_have_equal_shares_of_it_and_journals_do_not_count() -> None:
    one = _told(("entry_log-0", "boot:1", 100), ("entry_log-1", "boot:2", 50), ("journal-0", "boot:3", 9))
    other = _told(("data entry_log-0", "boot:1", 100), ("entry_log-1", "boot:1", 100))
    assert capacities({"b0": one, "b1": other}) == {"b0": 100, "b1": 50}


def test_a_bookie_that_does_not_answer_or_tell_has_no_capacity_and_an_older_one_that_of_its_fullest_disk() -> None:
    assert capacities({"silent": None, "old": _told(), "private": _told(total=0)}) == {"old": 70}
