"""Which bookies form an ensemble and which ones replace those that failed. Situation 89."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.client.protocol.placement import Candidate, choose_ensemble, choose_replacements, zone_of
from bk_spark.errors import NotEnoughBookiesError
from bk_spark.quorum import write_set

RACKS = [("/a", "/b", "/c"), ("/x/1", "/x/2", "/y/1", "/y/2"), ("/x/1", "/y", "/z/1/2")]
"""Without zones, and in them."""


def in_racks(*racks: str) -> list[Candidate]:
    return [Candidate(f"bookie-{number}", rack) for number, rack in enumerate(racks)]


def is_spread(racks: Sequence[str], write_quorum: int, slots: Sequence[int] | None = None) -> bool:
    """By the definition, over the write sets that hold one of ``slots``."""
    write_sets = [write_set(entry_id, len(racks), write_quorum) for entry_id in range(len(racks))]
    touched = [one for one in write_sets if slots is None or set(one) & set(slots)]
    return all(len({racks[slot] for slot in one}) > 1 for one in touched)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Candidate], int, int, random.Random]:
    """Bookies, E, Qw and chance."""
    racks = draw(st.lists(st.sampled_from(draw(st.sampled_from(RACKS))), min_size=1, max_size=6))
    ensemble_size = draw(st.integers(1, min(5, len(racks))))
    return in_racks(*racks), ensemble_size, draw(st.integers(1, ensemble_size)), random.Random(draw(st.integers(0, 999)))


def racks_of(candidates: list[Candidate], bookies: Sequence[str]) -> list[str]:
    racks = {one.bookie_id: one.rack for one in candidates}
    return [racks[bookie_id] for bookie_id in bookies]


@given(clusters())
def test_an_ensemble_has_distinct_bookies_of_those_that_there_are(cluster) -> None:
    candidates, size, write_quorum, chance = cluster
    chosen = choose_ensemble(candidates * 2, size, write_quorum, chance.randrange)
    assert len(chosen.bookies) == len(set(chosen.bookies)) == size
    assert set(chosen.bookies) <= {one.bookie_id for one in candidates}


@given(clusters())
def test_every_write_set_of_an_ensemble_spans_two_racks_wherever_any_ensemble_can_do_it(cluster) -> None:
    candidates, size, write_quorum, chance = cluster
    chosen = choose_ensemble(candidates, size, write_quorum, chance.randrange)
    orders = itertools.permutations([one.rack for one in candidates], size)
    is_possible = write_quorum > 1 and any(is_spread(racks, write_quorum) for racks in set(orders))
    assert is_spread(racks_of(candidates, chosen.bookies), write_quorum) or not is_possible
    nothing_to_spread = write_quorum == 1 or len({one.rack for one in candidates}) == 1
    assert chosen.is_spread == (nothing_to_spread or is_possible)


@given(clusters())
def test_every_write_set_of_an_ensemble_spans_two_zones_wherever_any_ensemble_can_do_it(cluster) -> None:
    candidates, size, write_quorum, chance = cluster
    chosen = choose_ensemble(candidates, size, write_quorum, chance.randrange)
    orders = itertools.permutations([zone_of(one.rack) for one in candidates], size)
    is_possible = write_quorum > 1 and any(is_spread(zones, write_quorum) for zones in set(orders))
    zones = [zone_of(rack) for rack in racks_of(candidates, chosen.bookies)]
    assert is_spread(zones, write_quorum) or not is_possible


@pytest.mark.parametrize("seed", range(30))
def test_two_zones_are_spread_over_and_in_a_single_zone_two_racks(seed: int) -> None:
    for racks, of_rack in ((("/x/1", "/x/2", "/y/1", "/y/2"), zone_of), (("/x/1", "/x/1", "/x/2", "/x/2"), str)):
        candidates = in_racks(*racks)
        chosen = choose_ensemble(candidates, 2, 2, random.Random(seed).randrange)
        assert is_spread([of_rack(rack) for rack in racks_of(candidates, chosen.bookies)], 2)


@pytest.mark.parametrize(
    ("racks", "size", "write_quorum", "expected"),
    [
        ("AAABB", 5, 2, False),
        ("AAABBC", 5, 2, True),
        ("AAAABB", 6, 3, True),
        ("AAAB", 3, 3, True),
        ("AAA", 3, 3, True),
        ("A" * 32 + "B" * 32, 64, 2, True),
    ],
)
def test_the_answer_says_whether_the_spread_holds(racks: str, size: int, write_quorum: int, expected: bool) -> None:
    chosen = choose_ensemble(in_racks(*racks), size, write_quorum, random.Random(1).randrange)
    assert chosen.is_spread is expected


def test_over_many_choices_every_bookie_takes_part_about_equally_in_every_slot() -> None:
    choose = random.Random(1).randrange
    for racks in ("AAAAA", "AABBC"):
        chosen = [choose_ensemble(in_racks(*racks), 3, 3, choose).bookies for _ in range(1000)]
        for slot in range(3):
            taken = [ensemble[slot] for ensemble in chosen]
            assert all(140 < taken.count(f"bookie-{number}") < 260 for number in range(5))


def test_bookies_in_quarantine_are_taken_only_where_the_others_are_too_few() -> None:
    choose = random.Random(1).randrange
    candidates = [replace(one, is_quarantined=one.bookie_id in ("bookie-0", "bookie-1")) for one in in_racks(*"AAAAA")]
    for _ in range(20):
        assert set(choose_ensemble(candidates, 3, 3, choose).bookies) == {"bookie-2", "bookie-3", "bookie-4"}
        four = set(choose_ensemble(candidates, 4, 3, choose).bookies)
        assert four > {"bookie-2", "bookie-3", "bookie-4"}


def test_bookies_in_quarantine_are_not_taken_for_the_sake_of_racks() -> None:
    candidates = [replace(one, is_quarantined=one.rack == "/b") for one in in_racks("/a", "/a", "/a", "/b")]
    chosen = choose_ensemble(candidates, 3, 3, random.Random(1).randrange)
    assert (set(chosen.bookies), chosen.is_spread) == ({"bookie-0", "bookie-1", "bookie-2"}, False)


def test_read_only_bookies_are_never_chosen() -> None:
    candidates = [replace(one, is_read_only=one.bookie_id == "bookie-0") for one in in_racks(*"AAA")]
    assert set(choose_ensemble(candidates, 2, 2, lambda n: 0).bookies) == {"bookie-1", "bookie-2"}
    with pytest.raises(NotEnoughBookiesError, match="ensemble size 3 needs 3 bookies and 2 can be used"):
        choose_ensemble(candidates, 3, 2, lambda n: 0)
    swap = choose_replacements(candidates, ("x", "bookie-1"), [0], frozenset({"x"}), write_quorum=2, choose=lambda n: 0)
    assert swap.bookies == ((0, "bookie-2"),)


def test_too_few_bookies_are_an_error_with_both_numbers() -> None:
    with pytest.raises(NotEnoughBookiesError, match="needs 3 bookies and 2 can be used"):
        choose_ensemble(in_racks("/a", "/b"), 3, 3, lambda n: 0)


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
    chosen = choose_replacements(candidates, ensemble, slots, excluded, write_quorum=write_quorum, choose=chance.randrange)
    after = dict(enumerate(ensemble)) | dict(chosen.bookies)
    assert set(dict(chosen.bookies)) <= set(slots)
    assert len(set(after.values())) == len(ensemble)
    assert not {bookie_id for _, bookie_id in chosen.bookies} & excluded
    assert all(bookie_id not in ensemble or ensemble[slot] == bookie_id for slot, bookie_id in chosen.bookies)


@given(failures())
def test_as_many_slots_are_filled_as_can_be(failure) -> None:
    candidates, ensemble, slots, excluded, write_quorum, chance = failure
    chosen = choose_replacements(candidates, ensemble, slots, excluded, write_quorum=write_quorum, choose=chance.randrange)
    counts = (len(some) for some in _subsets(slots) if any(all_fillings(candidates, ensemble, some, excluded)))
    assert len(chosen.bookies) == max(counts, default=0)
    assert (chosen.problem is None) == (len(chosen.bookies) == len(slots))


def _subsets(slots: list[int]) -> Iterator[list[int]]:
    for size in range(1, len(slots) + 1):
        yield from map(list, itertools.combinations(slots, size))


@given(failures())
def test_the_write_sets_of_replaced_slots_span_two_racks_wherever_any_replacement_can_do_it(failure) -> None:
    candidates, ensemble, slots, excluded, write_quorum, chance = failure
    chosen = choose_replacements(candidates, ensemble, slots, excluded, write_quorum=write_quorum, choose=chance.randrange)
    if chosen.problem is not None or write_quorum == 1:
        return
    after = [dict(chosen.bookies).get(slot, bookie_id) for slot, bookie_id in enumerate(ensemble)]
    possible = any(
        is_spread(racks_of(candidates, one), write_quorum, slots) for one in all_fillings(candidates, ensemble, slots, excluded)
    )
    assert is_spread(racks_of(candidates, after), write_quorum, slots) == possible
    assert chosen.is_spread == (possible or len({one.rack for one in candidates}) == 1)


@given(failures())
def test_the_write_sets_of_replaced_slots_span_two_zones_wherever_any_replacement_can_do_it(failure) -> None:
    candidates, ensemble, slots, excluded, write_quorum, chance = failure
    chosen = choose_replacements(candidates, ensemble, slots, excluded, write_quorum=write_quorum, choose=chance.randrange)
    if chosen.problem is not None or write_quorum == 1:
        return

    def zones(bookies: Sequence[str]) -> list[str]:
        return [zone_of(rack) for rack in racks_of(candidates, bookies)]

    fillings = all_fillings(candidates, ensemble, slots, excluded)
    possible = any(is_spread(zones(one), write_quorum, slots) for one in fillings)
    after = [dict(chosen.bookies).get(slot, bookie_id) for slot, bookie_id in enumerate(ensemble)]
    assert is_spread(zones(after), write_quorum, slots) == possible


def test_where_zones_cannot_be_spread_racks_are() -> None:
    """Three bookies in two zones: neighbours of a write set of two stand in one zone somewhere, and in two racks of it."""
    candidates = in_racks("/x/1", "/x/1", "/x/2", "/y/1", "/y/1", "/y/2")
    for seed in range(20):
        chosen = choose_ensemble(candidates, 3, 2, random.Random(seed).randrange)
        assert chosen.is_spread
        assert is_spread(racks_of(candidates, chosen.bookies), 2)


def test_a_replacement_comes_from_a_rack_that_keeps_the_write_sets_spread() -> None:
    candidates = in_racks("/a", "/a", "/b", "/a", "/a", "/b")
    ensemble = ("bookie-0", "bookie-1", "bookie-2")
    for seed in range(20):
        chosen = choose_replacements(
            candidates, ensemble, [2], frozenset({"bookie-2"}), write_quorum=3, choose=random.Random(seed).randrange
        )
        assert (chosen.bookies, chosen.is_spread) == (((2, "bookie-5"),), True)


def test_without_a_bookie_in_another_rack_any_other_is_taken_and_the_answer_says_so() -> None:
    candidates = in_racks("/a", "/a", "/b", "/a")
    chosen = choose_replacements(
        candidates, ("bookie-0", "bookie-1", "bookie-2"), [2], frozenset({"bookie-2"}), write_quorum=3, choose=lambda n: 0
    )
    assert (chosen.bookies, chosen.is_spread) == (((2, "bookie-3"),), False)


def test_a_bookie_whose_rack_is_not_known_now_counts_as_no_second_rack() -> None:
    candidates = in_racks("/a", "/a", "/b")
    chosen = choose_replacements(
        candidates, ("bookie-0", "gone", "x"), [2], frozenset({"x"}), write_quorum=3, choose=lambda n: 0
    )
    assert (chosen.bookies, chosen.is_spread) == (((2, "bookie-2"),), True)


def test_a_slot_may_get_its_own_bookie_back_if_that_is_not_excluded() -> None:
    candidates, ensemble = in_racks("/a", "/a"), ("bookie-0", "bookie-1")
    back = choose_replacements(candidates, ensemble, [0], frozenset(), write_quorum=2, choose=lambda n: 0)
    assert back.bookies == ((0, "bookie-0"),)
    none = choose_replacements(candidates, ensemble, [0], frozenset({"bookie-0"}), write_quorum=2, choose=lambda n: 0)
    assert none.bookies == ()
    assert "the replacement of 1 bookies of an ensemble needs 1 bookies and 0 can be used" in str(none.problem)


def test_a_replacement_in_quarantine_is_taken_only_where_there_is_no_other() -> None:
    candidates = [replace(one, is_quarantined=one.bookie_id == "bookie-2") for one in in_racks(*"AAAA")]
    ensemble, gone = ("bookie-0", "x", "y"), frozenset({"x", "y"})
    one = choose_replacements(candidates, ensemble, [1], gone, write_quorum=3, choose=lambda n: n - 1)
    assert one.bookies[0][1] in ("bookie-1", "bookie-3")
    two = choose_replacements(candidates, ensemble, [1, 2], gone, write_quorum=3, choose=lambda n: n - 1)
    assert {bookie_id for _, bookie_id in two.bookies} == {"bookie-1", "bookie-3"}
    crowded = choose_replacements(candidates[:3], ensemble, [1, 2], gone, write_quorum=3, choose=lambda n: n - 1)
    assert {bookie_id for _, bookie_id in crowded.bookies} == {"bookie-1", "bookie-2"}


def test_slots_leave_each_other_the_bookies_that_they_need() -> None:
    """Slots 0 and 2 both need rack /b: it has one bookie that is free and one that stands in slot 0."""
    candidates = in_racks("/b", "/a", "/a", "/a", "/b")
    ensemble = ("bookie-0", "bookie-1", "bookie-2", "bookie-3")
    for seed in range(20):
        choose = random.Random(seed).randrange
        chosen = choose_replacements(candidates, ensemble, [0, 2], frozenset(), write_quorum=2, choose=choose)
        assert (chosen.bookies, chosen.is_spread) == (((0, "bookie-0"), (2, "bookie-4")), True)


def test_exactly_as_many_bookies_as_slots_are_placed_so_that_every_write_set_is_spread() -> None:
    """One slot after the other, in the preferred order, would leave slots 2 and 3 to the two of one rack."""
    kept, fresh = [Candidate("kept", "/a")], [Candidate("s0", "/c"), Candidate("s1", "/b"), Candidate("s2", "/b")]
    ensemble = ("gone-0", "kept", "gone-2", "gone-3")
    chosen = choose_replacements(kept + fresh, ensemble, [0, 2, 3], frozenset(), write_quorum=2, choose=lambda n: 0)
    assert chosen.is_spread


def test_a_slot_that_can_keep_its_bookie_leaves_the_free_one_to_another_slot() -> None:
    candidates, ensemble = in_racks("/a", "/a"), ("bookie-0", "gone")
    for seed in range(10):
        choose = random.Random(seed).randrange
        chosen = choose_replacements(candidates, ensemble, [0, 1], frozenset({"gone"}), write_quorum=2, choose=choose)
        assert chosen.bookies == ((0, "bookie-0"), (1, "bookie-1"))


def test_where_not_all_write_sets_can_be_spread_as_many_as_possible_are() -> None:
    candidates = in_racks("/a", "/a", "/a", "/a", "/a", "/b")
    ensemble = ("gone", "bookie-0", "lost", "bookie-1")
    for seed in range(20):
        choose = random.Random(seed).randrange
        chosen = choose_replacements(candidates, ensemble, [0, 2], frozenset(), write_quorum=2, choose=choose)
        assert "bookie-5" in dict(chosen.bookies).values()
        assert not chosen.is_spread


@pytest.mark.timeout(20)
def test_the_search_for_many_slots_ends_where_no_spread_exists() -> None:
    """Every second slot is free. Each has two racks to choose from, but the last one, between /b and /c, has none."""
    racks = ["/a"] * 30
    racks[-2:] = ["/b", "/c"]
    kept = [Candidate(f"kept-{number}", rack) for number, rack in enumerate(racks)]
    fresh = [Candidate(f"fresh-{number}", "/b" if number % 2 else "/c") for number in range(60)]
    ensemble = tuple(name for number in range(30) for name in (f"gone-{number}", f"kept-{number}"))
    choose = random.Random(1).randrange
    chosen = choose_replacements(kept + fresh, ensemble, range(0, 60, 2), frozenset(), write_quorum=2, choose=choose)
    assert (len(chosen.bookies), chosen.is_spread) == (30, False)
