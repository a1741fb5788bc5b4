"""The checker, on contents made by hand: it accepts what is exact, and names what each of the others has wrong."""

from __future__ import annotations

import pytest

from tests.soak.streams.checker import Source, differences

SOURCE = Source(rows_per_batch=6, partitions=2, start_ms=1000, advance_ms=10)
TWO_BATCHES = SOURCE.rows(2)


def test_the_content_of_the_source_follows_from_its_settings_and_the_number_of_batches() -> None:
    assert [value for _, value in TWO_BATCHES] == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert [time_ms for time_ms, _ in TWO_BATCHES] == [1000] * 6 + [1010] * 6
    assert SOURCE.rows(0) == []


def test_a_batch_that_its_partitions_do_not_divide_loses_no_row() -> None:
    assert sorted(value for _, value in Source(10, 3, 0, 1).rows(2)) == list(range(20))


def test_an_exact_copy_is_accepted_also_one_that_has_equal_lines() -> None:
    assert differences("A", TWO_BATCHES, list(TWO_BATCHES)) == []
    assert differences("E", ["a", "b", "a"], ["a", "b", "a"]) == []
    assert differences("A", [], []) == []


@pytest.mark.parametrize("place", [0, 5, len(TWO_BATCHES) - 1])
def test_a_lost_row_is_found_wherever_it_stood(place: int) -> None:
    [told] = differences("A", TWO_BATCHES, TWO_BATCHES[:place] + TWO_BATCHES[place + 1 :])
    assert told.startswith("A: lost 1, such as")
    assert repr(TWO_BATCHES[place]) in told


@pytest.mark.parametrize("place", [0, len(TWO_BATCHES)])
def test_a_doubled_row_is_found_also_far_from_its_first_place(place: int) -> None:
    doubled = TWO_BATCHES[3]
    [told] = differences("A", TWO_BATCHES, [*TWO_BATCHES[:place], doubled, *TWO_BATCHES[place:]])
    assert told == f"A: doubled 1, such as {doubled!r}"


def test_a_whole_batch_written_twice_is_found() -> None:
    [told] = differences("A", TWO_BATCHES, [*TWO_BATCHES, *SOURCE.rows(2)[6:]])
    assert told.startswith("A: doubled 6")


def test_two_rows_that_changed_places_are_found_and_so_is_a_batch_before_its_predecessor() -> None:
    swapped = [*TWO_BATCHES[:2], TWO_BATCHES[3], TWO_BATCHES[2], *TWO_BATCHES[4:]]
    [told] = differences("B", TWO_BATCHES, swapped)
    assert told.startswith("B: out of order from number 2 on")
    assert differences("B", TWO_BATCHES, TWO_BATCHES[6:] + TWO_BATCHES[:6])


def test_a_row_that_the_source_never_gave_is_found_and_a_row_lost_beside_it_too() -> None:
    told = differences("A", TWO_BATCHES, [*TWO_BATCHES[1:], (1010, 99)])
    assert [one.split(",")[0] for one in told] == ["A: lost 1", "A: not of the source 1"]


def test_a_row_with_the_time_of_another_batch_is_not_the_sources() -> None:
    (_, value), *rest = TWO_BATCHES
    assert "not of the source 1" in differences("A", TWO_BATCHES, [(1010, value), *rest])[1]


def test_a_line_of_an_equal_pair_that_is_lost_is_found() -> None:
    assert differences("E", ["a", "b", "a"], ["a", "b"]) == ["E: lost 1, such as 'a'"]
