"""Which copies move to emptier bookies."""

from __future__ import annotations

import random

import pytest

from benchmarks.simulated_cluster.balance_plan import BalancePlan, BookieCapacity, CopyMove, HeldFragment
from bk_spark.client.protocol.placement.rack_spread import location_of, spread_of
from bk_spark.errors import ConfigError

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
            assert spread_of([place[one] for one in after], 3) >= spread_of([place[one] for one in ensemble], 3)
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
