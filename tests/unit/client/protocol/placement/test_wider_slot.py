"""Which copies should move to more racks. Situation 89."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from bk_spark.client.protocol.placement.choose_bookies import Candidate, Terms, choose_replacements
from bk_spark.client.protocol.placement.rack_spread import location_of, spread_of
from bk_spark.client.protocol.placement.wider_slot import RackMap


def in_racks(*racks: str) -> list[Candidate]:
    return [Candidate(f"b{number}", rack) for number, rack in enumerate(racks)]


def test_the_slot_whose_bookie_shares_its_rack_makes_way_for_one_in_a_rack_that_holds_no_copy() -> None:
    racks = RackMap(in_racks("/a", "/b", "/b", "/c"))
    assert racks.wider_slot(("b0", "b1", "b2"), 3) in (1, 2)
    assert racks.fewest_racks(("b0", "b1", "b2"), 3) == 2
    assert racks.wider_slot(("b0", "b1", "b3"), 3) is None


def test_copies_in_one_zone_move_to_another_zone() -> None:
    racks = RackMap(in_racks("/x/1", "/x/2", "/x/3", "/y/1"))
    assert racks.wider_slot(("b0", "b1", "b2"), 3) is not None
    assert racks.wider_slot(("b0", "b1", "b3"), 3) is None


def test_nothing_moves_while_the_rack_of_a_bookie_is_not_known() -> None:
    racks = RackMap(in_racks("/a", "/a", "/b"))
    assert racks.wider_slot(("b0", "gone"), 2) is None
    assert racks.fewest_racks(("b0", "gone"), 2) is None


@pytest.mark.parametrize("how", ["is_read_only", "is_quarantined"])
def test_nothing_moves_to_a_bookie_that_takes_no_copies(how: str) -> None:
    candidates = in_racks("/a", "/a", "/b")
    candidates[2] = replace(candidates[2], **{how: True})
    assert RackMap(candidates).wider_slot(("b0", "b1"), 2) is None


@pytest.mark.parametrize("seed", range(150))
def test_every_move_widens_and_moving_ends_where_no_single_move_could_widen(seed: int) -> None:
    """By the definition: all slots, all free bookies. With E = Qw nothing at all could be wider then."""
    chance = random.Random(seed)
    names = chance.choice([("/a", "/b", "/c"), ("/x/1", "/x/2", "/y/1", "/y/2")])
    candidates = in_racks(*(chance.choice(names) for _ in range(chance.randint(3, 8))))
    size = chance.randint(1, min(4, len(candidates)))
    write_quorum = chance.randint(1, size)
    ensemble = tuple(one.bookie_id for one in chance.sample(candidates, size))
    locations = {one.bookie_id: location_of(one.rack) for one in candidates}

    def spread(bookies: tuple[str, ...]) -> object:
        return spread_of([locations[one] for one in bookies], write_quorum)

    racks = RackMap(candidates)
    for _ in range(size * 4):
        free = locations.keys() - set(ensemble)
        moved = [(*ensemble[:slot], one, *ensemble[slot + 1 :]) for slot in range(size) for one in free]
        slot = racks.wider_slot(ensemble, write_quorum)
        assert (slot is not None) == any(spread(one) > spread(ensemble) for one in moved)  # type: ignore[operator]
        if slot is None:
            break
        terms, own = Terms(write_quorum, must_widen=True), frozenset({ensemble[slot]})
        chosen = choose_replacements(candidates, ensemble, [slot], own, terms=terms, choose=chance.randrange)
        after = (*ensemble[:slot], chosen.bookies[0][1], *ensemble[slot + 1 :])
        assert spread(after) > spread(ensemble)  # type: ignore[operator]
        ensemble = after
    assert racks.wider_slot(ensemble, write_quorum) is None
    if size == write_quorum:
        widest = max(spread(tuple(one)) for one in itertools.permutations(locations, size))  # type: ignore[type-var]
        assert spread(ensemble) == widest
