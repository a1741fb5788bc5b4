"""Which bookies form an ensemble and which ones replace those that failed. Situation 89."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.client.protocol.placement.choose_bookies import Candidate, Terms, choose_ensemble, choose_replacements
from bk_spark.client.protocol.placement.rack_spread import Spread, location_of, spread_of
from bk_spark.errors import NotEnoughBookiesError

RACKS = [("/a", "/b", "/c"), ("/x/1", "/x/2", "/y/1", "/y/2"), ("/x/1", "/y", "/z/1/2")]
"""Without zones, and in them."""


def in_racks(*racks: str) -> list[Candidate]:
    return [Candidate(f"bookie-{number}", rack) for number, rack in enumerate(racks)]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Candidate], int, int, random.Random]:
    """Bookies, E, Qw and chance."""
    racks = draw(st.lists(st.sampled_from(draw(st.sampled_from(RACKS))), min_size=1, max_size=6))
    ensemble_size = draw(st.integers(1, min(5, len(racks))))
    return in_racks(*racks), ensemble_size, draw(st.integers(1, ensemble_size)), random.Random(draw(st.integers(0, 999)))


def racks_of(candidates: list[Candidate], bookies: Sequence[str]) -> list[str]:
    racks = {one.bookie_id: one.rack for one in candidates}
    return [racks[bookie_id] for bookie_id in bookies]


def places_of(candidates: list[Candidate], bookies: Sequence[str]) -> list:
    places = {one.bookie_id: location_of(one.rack) for one in candidates}
    return [places.get(bookie_id) for bookie_id in bookies]


@given(clusters())
def test_an_ensemble_has_distinct_bookies_of_those_that_there_are(cluster) -> None:
    candidates, size, write_quorum, chance = cluster
    chosen = choose_ensemble(candidates * 2, size, Terms(write_quorum), chance.randrange)
    assert len(chosen.bookies) == len(set(chosen.bookies)) == size
    assert set(chosen.bookies) <= {one.bookie_id for one in candidates}


@given(clusters())
def test_no_ensemble_would_span_more_racks_and_zones_than_the_one_that_is_chosen(cluster) -> None:
    candidates, size, write_quorum, chance = cluster
    chosen = choose_ensemble(candidates, size, Terms(write_quorum), chance.randrange)
    assert chosen.spread == spread_of(places_of(candidates, chosen.bookies), write_quorum)
    orders = set(itertools.permutations([location_of(one.rack) for one in candidates], size))
    assert chosen.spread == max(spread_of(order, write_quorum) for order in orders)


@pytest.mark.parametrize("seed", range(20))
def test_three_copies_take_three_racks_wherever_there_are_three(seed: int) -> None:
    candidates = in_racks("/a", "/a", "/b", "/c")
    chosen = choose_ensemble(candidates, 3, Terms(3), random.Random(seed).randrange)
    assert sorted(racks_of(candidates, chosen.bookies)) == ["/a", "/b", "/c"]


@pytest.mark.parametrize("seed", range(20))
def test_copies_take_different_racks_and_these_lie_in_as_many_zones_as_there_are(seed: int) -> None:
    candidates = in_racks("/x/1", "/x/1", "/x/2", "/x/3", "/y/1", "/y/1")
    chosen = choose_ensemble(candidates, 3, Terms(3), random.Random(seed).randrange)
    racks = racks_of(candidates, chosen.bookies)
    assert len(set(racks)) == 3
    assert {location_of(rack).zone for rack in racks} == {"/x", "/y"}


@pytest.mark.parametrize("seed", range(20))
def test_a_zone_more_is_not_worth_a_rack(seed: int) -> None:
    """Both bookies of zone z would give the write sets one zone more in all, and three racks less."""
    candidates = in_racks("/x/1", "/x/2", "/x/3", "/y/1", "/z/1", "/z/1")
    spread = choose_ensemble(candidates, 5, Terms(4), random.Random(seed).randrange).spread
    assert spread == Spread(fewest_racks=4, racks=20, fewest_zones=2, zones=13)


@pytest.mark.parametrize(
    ("racks", "size", "write_quorum", "fewest", "total"),
    [
        ("AAABB", 5, 2, 1, 9),
        ("AAABBC", 5, 2, 2, 10),
        ("AAAABB", 6, 3, 2, 12),
        ("AAAB", 3, 3, 2, 2),
        ("AAA", 3, 3, 1, 1),
        ("AABBCC", 6, 3, 3, 18),
        ("A" * 32 + "B" * 32, 64, 2, 2, 128),
    ],
)
def test_every_write_set_of_a_striped_ledger_spans_as_many_racks_as_it_can(racks, size, write_quorum, fewest, total) -> None:
    """The last case but one: two bookies in each of three racks stand three slots apart."""
    chosen = choose_ensemble(in_racks(*racks), size, Terms(write_quorum), random.Random(1).randrange)
    assert (chosen.spread.fewest_racks, chosen.spread.racks) == (fewest, total)


@given(st.data())
def test_large_striped_ensembles_span_all_that_the_sizes_of_racks_allow(data: st.DataObject) -> None:
    """The sum over the write sets is bounded: a rack with m slots is in m times Qw of them at most, and in E."""
    write_quorum, size = data.draw(st.integers(2, 4)), data.draw(st.integers(8, 20))
    racks = [rack for rack in range(data.draw(st.integers(2, 8))) for _ in range(data.draw(st.integers(1, 12)))]
    if len(racks) < size:
        return
    choose = random.Random(data.draw(st.integers(0, 99))).randrange
    chosen = choose_ensemble(in_racks(*(f"/{rack}" for rack in racks)), size, Terms(write_quorum), choose)
    worth = sorted((_worth(m, size, write_quorum) for n in Counter(racks).values() for m in range(n)), reverse=True)
    assert sum(worth[:size]) - chosen.spread.racks <= 1
    assert chosen.spread.fewest_racks >= sum(worth[:size]) // size - 1  # the search is bounded


def _worth(slots: int, size: int, write_quorum: int) -> int:
    return min(size, (slots + 1) * write_quorum) - min(size, slots * write_quorum)


def test_over_many_choices_every_bookie_takes_part_about_equally_in_every_slot() -> None:
    choose = random.Random(1).randrange
    for racks, shares in (("AAAAA", [200] * 5), ("AABBC", [167] * 4 + [333]), ("AAABBBCCD", [111] * 9)):
        chosen = [choose_ensemble(in_racks(*racks), 3, Terms(3), choose).bookies for _ in range(1000)]
        for slot in range(3):
            taken = Counter(ensemble[slot] for ensemble in chosen)
            assert all(abs(taken[f"bookie-{number}"] - share) < 60 for number, share in enumerate(shares))


def test_racks_of_different_sizes_get_slots_by_their_numbers_of_bookies_where_that_costs_no_rack() -> None:
    """Two copies, racks of 6, 2, 2 and 2 bookies: no rack has to take more than its bookies' share."""
    choose, taken = random.Random(1).randrange, Counter[str]()
    candidates = in_racks(*"AAAAAABBCCDD")
    for _ in range(1200):
        taken.update(choose_ensemble(candidates, 2, Terms(2), choose).bookies)
    assert max(taken.values()) < 1.3 * 200
    assert min(taken.values()) > 0.7 * 200


@pytest.mark.timeout(20)
def test_a_thousand_bookies_are_chosen_from_at_once() -> None:
    choose = random.Random(1).randrange
    for racks in (1, 30, 1000):
        candidates = in_racks(*(f"/{number % racks}" for number in range(1000)))
        for size in (3, 7):
            began_s = time.process_time()
            ensemble = choose_ensemble(candidates, size, Terms(3), choose).bookies
            choose_replacements(candidates, ensemble, [0, 1], frozenset(ensemble[:2]), terms=Terms(3), choose=choose)
            assert time.process_time() < began_s + 2


def test_bookies_in_quarantine_are_not_taken_for_the_sake_of_racks() -> None:
    candidates = [replace(one, is_quarantined=one.rack == "/b") for one in in_racks("/a", "/a", "/a", "/b")]
    chosen = choose_ensemble(candidates, 3, Terms(3), random.Random(1).randrange)
    assert (set(chosen.bookies), chosen.spread.fewest_racks) == ({"bookie-0", "bookie-1", "bookie-2"}, 1)


def test_a_ledger_that_would_have_too_few_racks_is_refused_with_the_racks_wanted_and_found() -> None:
    candidates, terms = in_racks("/a", "/a", "/b", "/b"), Terms(3, min_racks=3)
    with pytest.raises(NotEnoughBookiesError, match="size 3 needs 3 racks in each write set and finds 2: start"):
        choose_ensemble(candidates, 3, terms, random.Random(1).randrange)
    assert choose_ensemble(candidates, 3, Terms(3, min_racks=2), random.Random(1).randrange).spread.fewest_racks == 2
    assert choose_ensemble(candidates, 1, Terms(1, min_racks=3), random.Random(1).randrange).spread.fewest_racks == 1


@given(clusters(), st.integers(1, 4))
def test_a_ledger_is_refused_for_its_racks_only_where_no_ensemble_has_enough(cluster, min_racks: int) -> None:
    candidates, size, write_quorum, chance = cluster
    orders = set(itertools.permutations([location_of(one.rack) for one in candidates], size))
    possible = max(spread_of(order, write_quorum).fewest_racks for order in orders)
    if possible >= min(min_racks, write_quorum):
        chosen = choose_ensemble(candidates, size, Terms(write_quorum, min_racks), chance.randrange)
        racks = spread_of(places_of(candidates, chosen.bookies), write_quorum).fewest_racks
        assert racks >= min(min_racks, write_quorum)
    else:
        with pytest.raises(NotEnoughBookiesError):
            choose_ensemble(candidates, size, Terms(write_quorum, min_racks), chance.randrange)


def test_bookies_in_quarantine_are_taken_only_where_the_others_are_too_few() -> None:
    choose = random.Random(1).randrange
    candidates = [replace(one, is_quarantined=one.bookie_id in ("bookie-0", "bookie-1")) for one in in_racks(*"AAAAA")]
    for _ in range(20):
        assert set(choose_ensemble(candidates, 3, Terms(3), choose).bookies) == {"bookie-2", "bookie-3", "bookie-4"}
        four = set(choose_ensemble(candidates, 4, Terms(3), choose).bookies)
        assert four > {"bookie-2", "bookie-3", "bookie-4"}


def test_read_only_bookies_are_never_chosen() -> None:
    candidates = [replace(one, is_read_only=one.bookie_id == "bookie-0") for one in in_racks(*"AAA")]
    assert set(choose_ensemble(candidates, 2, Terms(2), lambda n: 0).bookies) == {"bookie-1", "bookie-2"}
    with pytest.raises(NotEnoughBookiesError, match="ensemble size 3 needs 3 bookies and 2 can be used"):
        choose_ensemble(candidates, 3, Terms(2), lambda n: 0)
    swap = choose_replacements(candidates, ("x", "bookie-1"), [0], frozenset({"x"}), terms=Terms(2), choose=lambda n: 0)
    assert swap.bookies == ((0, "bookie-2"),)


def test_too_few_bookies_are_an_error_with_both_numbers() -> None:
    with pytest.raises(NotEnoughBookiesError, match="needs 3 bookies and 2 can be used"):
        choose_ensemble(in_racks("/a", "/b"), 3, Terms(3), lambda n: 0)


# --- replacements


@st.composite
def failures(draw: st.DrawFn) -> tuple[list[Candidate], tuple[str, ...], list[int], frozenset[str], int, random.Random]:
    """Bookies, an ensemble of some of them, its slots to fill, who is excluded, Qw and chance."""
    candidates = in_racks(*draw(st.lists(st.sampled_from(draw(st.sampled_from(RACKS))), min_size=1, max_size=7)))
    size = draw(st.integers(1, min(4, len(candidates))))
    ensemble = tuple(one.bookie_id for one in draw(st.permutations(candidates))[:size])
    slots = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=size, unique=True))
    excluded = draw(st.frozensets(st.sampled_from([one.bookie_id for one in candidates])))
    return candidates, ensemble, slots, excluded, draw(st.integers(1, size)), random.Random(draw(st.integers(0, 999)))


def all_fillings(
    candidates: list[Candidate], ensemble: tuple[str, ...], slots: list[int], excluded: frozenset[str]
) -> Iterator:
    """Every ensemble that replaces all ``slots`` by the rules."""
    ids = [one.bookie_id for one in candidates if one.bookie_id not in excluded]
    for bookies in itertools.permutations(ids, len(slots)):
        after = list(ensemble)
        for slot, bookie_id in zip(slots, bookies, strict=True):
            after[slot] = bookie_id
        moved = any(one in ensemble and ensemble[slot] != one for slot, one in zip(slots, bookies, strict=True))
        if len(set(after)) == len(after) and not moved:
            yield after


@given(failures())
def test_replacements_fill_the_slots_with_bookies_that_are_neither_excluded_nor_elsewhere_in_the_ensemble(failure) -> None:
    candidates, ensemble, slots, excluded, write_quorum, chance = failure
    chosen = choose_replacements(candidates, ensemble, slots, excluded, terms=Terms(write_quorum), choose=chance.randrange)
    after = dict(enumerate(ensemble)) | dict(chosen.bookies)
    assert set(dict(chosen.bookies)) <= set(slots)
    assert len(set(after.values())) == len(ensemble)
    assert not {bookie_id for _, bookie_id in chosen.bookies} & excluded
    assert all(bookie_id not in ensemble or ensemble[slot] == bookie_id for slot, bookie_id in chosen.bookies)


@given(failures())
def test_as_many_slots_are_filled_as_can_be(failure) -> None:
    candidates, ensemble, slots, excluded, write_quorum, chance = failure
    chosen = choose_replacements(candidates, ensemble, slots, excluded, terms=Terms(write_quorum), choose=chance.randrange)
    counts = (len(some) for some in _subsets(slots) if any(all_fillings(candidates, ensemble, some, excluded)))
    assert len(chosen.bookies) == max(counts, default=0)
    assert (chosen.problem is None) == (len(chosen.bookies) == len(slots))


def _subsets(slots: list[int]) -> Iterator[list[int]]:
    for size in range(1, len(slots) + 1):
        yield from map(list, itertools.combinations(slots, size))


@given(failures())
def test_no_replacement_would_span_more_racks_and_zones_than_the_one_that_is_chosen(failure) -> None:
    candidates, ensemble, slots, excluded, write_quorum, chance = failure
    chosen = choose_replacements(candidates, ensemble, slots, excluded, terms=Terms(write_quorum), choose=chance.randrange)
    after = [dict(chosen.bookies).get(slot, bookie_id) for slot, bookie_id in enumerate(ensemble)]
    assert chosen.spread == spread_of(places_of(candidates, after), write_quorum, slots)
    chosen_slots = [some for some in _subsets(slots) if len(some) == len(chosen.bookies)]
    possible = [one for some in chosen_slots for one in all_fillings(candidates, ensemble, some, excluded)]
    best = max((spread_of(places_of(candidates, one), write_quorum, slots) for one in possible), default=chosen.spread)
    assert chosen.spread == best


@pytest.mark.parametrize("seed", range(20))
def test_a_replacement_takes_a_rack_that_holds_no_other_copy(seed: int) -> None:
    candidates = in_racks("/a", "/b", "/c", "/a", "/a", "/b", "/d")
    ensemble, gone = ("bookie-0", "bookie-1", "bookie-2"), frozenset({"bookie-2"})
    chosen = choose_replacements(candidates, ensemble, [2], gone, terms=Terms(3), choose=random.Random(seed).randrange)
    assert chosen.bookies == ((2, "bookie-6"),)


def test_replacements_of_several_slots_leave_each_other_the_racks_that_they_need() -> None:
    candidates = in_racks("/a", "/b", "/b", "/c", "/x")
    ensemble, gone = ("bookie-0", "bookie-4", "lost"), frozenset({"bookie-4", "lost"})
    for seed in range(10):
        chosen = choose_replacements(candidates, ensemble, [1, 2], gone, terms=Terms(3), choose=random.Random(seed).randrange)
        assert chosen.spread.fewest_racks == 3


def test_without_a_bookie_in_another_rack_any_other_is_taken_and_the_answer_says_so() -> None:
    candidates = in_racks("/a", "/a", "/b", "/a")
    ensemble, gone = ("bookie-0", "bookie-1", "bookie-2"), frozenset({"bookie-2"})
    chosen = choose_replacements(candidates, ensemble, [2], gone, terms=Terms(3), choose=lambda n: 0)
    assert (chosen.bookies, chosen.spread) == (((2, "bookie-3"),), Spread(1, 1, 1, 1))


def test_a_bookie_whose_rack_is_not_known_counts_as_no_rack() -> None:
    candidates = in_racks("/a", "/a", "/b")
    chosen = choose_replacements(
        candidates, ("bookie-0", "gone", "x"), [2], frozenset({"x"}), terms=Terms(3), choose=lambda n: 0
    )
    assert (chosen.bookies, chosen.spread.fewest_racks) == (((2, "bookie-2"),), 2)


def test_bookies_that_name_no_rack_are_all_in_one() -> None:
    candidates = [Candidate(f"plain-{number}") for number in range(3)] + in_racks("/a")
    for seed in range(10):
        chosen = choose_ensemble(candidates, 2, Terms(2), random.Random(seed).randrange)
        assert "bookie-0" in chosen.bookies


def test_a_replacement_that_would_leave_too_few_racks_is_refused_with_the_racks_wanted_and_found() -> None:
    candidates, gone = in_racks("/a", "/b", "/b"), frozenset({"x"})
    ensemble = ("bookie-0", "bookie-1", "x")
    choice = choose_replacements(candidates, ensemble, [2], gone, terms=Terms(3, min_racks=3), choose=lambda n: 0)
    assert choice.bookies == ()
    assert "the replacement of 1 bookies of an ensemble needs 3 racks in each write set and finds 2" in str(choice.problem)
    choice = choose_replacements(candidates, ensemble, [2], gone, terms=Terms(3, min_racks=2), choose=lambda n: 0)
    assert choice.bookies == ((2, "bookie-2"),)


def test_a_replacement_that_must_widen_is_made_only_where_the_write_sets_span_more_afterwards() -> None:
    terms = Terms(3, must_widen=True)
    ensemble, own = ("bookie-0", "bookie-1", "bookie-2"), frozenset({"bookie-1"})
    more = choose_replacements(in_racks("/a", "/a", "/b", "/c"), ensemble, [1], own, terms=terms, choose=lambda n: 0)
    assert more.bookies == ((1, "bookie-3"),)
    same = choose_replacements(in_racks("/a", "/a", "/b", "/b"), ensemble, [1], own, terms=terms, choose=lambda n: 0)
    assert (same.bookies, same.problem is not None) == ((), True)
    none = choose_replacements(in_racks("/a", "/a", "/b"), ensemble, [1], own, terms=terms, choose=lambda n: 0)
    assert none.bookies == ()


@pytest.mark.parametrize(("only", "chosen"), [("bookie-3", True), ("bookie-4", False), ("bookie-0", False), ("gone", False)])
def test_the_one_bookie_that_may_take_a_slot_gets_it_where_the_write_sets_span_no_less_afterwards(
    only: str, chosen: bool
) -> None:
    """bookie-3 is in the rack of bookie-1, whose slot it is; with bookie-4 two copies would be in rack /a."""
    candidates, ensemble = in_racks("/a", "/b", "/c", "/b", "/a"), ("bookie-0", "bookie-1", "bookie-2")
    terms, own = Terms(3, only=only), frozenset({"bookie-1"})
    choice = choose_replacements(candidates, ensemble, [1], own, terms=terms, choose=lambda n: 0)
    assert choice.bookies == (((1, only),) if chosen else ())
    assert chosen or f"a copy on bookie {only}, in no fewer racks and zones than now, needs 1" in str(choice.problem)


def test_more_racks_do_not_make_up_for_fewer_zones() -> None:
    assert Spread(2, 5, 2, 4).keeps(Spread(2, 5, 2, 4))
    assert not Spread(3, 6, 1, 3).keeps(Spread(2, 5, 2, 4))


@pytest.mark.timeout(20)
def test_the_search_for_many_slots_ends_where_no_wide_spread_exists() -> None:
    """Every second slot is free. Each has two racks to choose from, but the last one, between /b and /c, has none."""
    racks = ["/a"] * 30
    racks[-2:] = ["/b", "/c"]
    kept = [Candidate(f"kept-{number}", rack) for number, rack in enumerate(racks)]
    fresh = [Candidate(f"fresh-{number}", "/b" if number % 2 else "/c") for number in range(60)]
    ensemble = tuple(name for number in range(30) for name in (f"gone-{number}", f"kept-{number}"))
    choose = random.Random(1).randrange
    chosen = choose_replacements(kept + fresh, ensemble, range(0, 60, 2), frozenset(), terms=Terms(2), choose=choose)
    assert (len(chosen.bookies), chosen.spread.fewest_racks) == (30, 1)


def test_a_slot_may_get_its_own_bookie_back_if_that_is_not_excluded() -> None:
    candidates, ensemble = in_racks("/a", "/a"), ("bookie-0", "bookie-1")
    back = choose_replacements(candidates, ensemble, [0], frozenset(), terms=Terms(2), choose=lambda n: 0)
    assert back.bookies == ((0, "bookie-0"),)
    none = choose_replacements(candidates, ensemble, [0], frozenset({"bookie-0"}), terms=Terms(2), choose=lambda n: 0)
    assert none.bookies == ()
    assert "the replacement of 1 bookies of an ensemble needs 1 bookies and 0 can be used" in str(none.problem)


def test_a_replacement_in_quarantine_is_taken_only_where_there_is_no_other() -> None:
    candidates = [replace(one, is_quarantined=one.bookie_id == "bookie-2") for one in in_racks(*"AAAA")]
    ensemble, gone = ("bookie-0", "x", "y"), frozenset({"x", "y"})
    one = choose_replacements(candidates, ensemble, [1], gone, terms=Terms(3), choose=lambda n: n - 1)
    assert one.bookies[0][1] in ("bookie-1", "bookie-3")
    two = choose_replacements(candidates, ensemble, [1, 2], gone, terms=Terms(3), choose=lambda n: n - 1)
    assert {bookie_id for _, bookie_id in two.bookies} == {"bookie-1", "bookie-3"}
    crowded = choose_replacements(candidates[:3], ensemble, [1, 2], gone, terms=Terms(3), choose=lambda n: n - 1)
    assert {bookie_id for _, bookie_id in crowded.bookies} == {"bookie-1", "bookie-2"}


def test_a_slot_that_can_keep_its_bookie_leaves_the_free_one_to_another_slot() -> None:
    candidates, ensemble = in_racks("/a", "/a"), ("bookie-0", "gone")
    for seed in range(10):
        choose = random.Random(seed).randrange
        chosen = choose_replacements(candidates, ensemble, [0, 1], frozenset({"gone"}), terms=Terms(2), choose=choose)
        assert chosen.bookies == ((0, "bookie-0"), (1, "bookie-1"))
