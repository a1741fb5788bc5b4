"""The rows of the entries of removed ledgers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bk_spark.log.stored.by_key import entry_rows
from bk_spark.log.stored.by_key.entry_rows import RUNS_PER_PAGE, EntryRows, in_pages, rows_before
from bk_spark.log.stored.values import Page, page_count, pages_of
from bk_spark.metadata.store import MAX_VALUE_BYTES

LEDGERS = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=30), max_size=6)


@given(LEDGERS, st.integers(1, 9))
def test_the_rows_before_any_entry_are_known_however_the_pages_are_cut(ledgers: list[list[int]], most: int) -> None:
    known = entry_rows.RUNS_PER_PAGE
    entry_rows.RUNS_PER_PAGE = most + 2
    try:
        given = [*map(EntryRows.of, range(6), ledgers)]
        pages = [Page.decode("it", page.encode()) for page in pages_of([], [7], given)]
        assert page_count([], [7], given) == len(pages)
    finally:
        entry_rows.RUNS_PER_PAGE = known
    found = [one for page in pages for one in page.entries]
    for number, rows in enumerate(ledgers):
        for entry_id in range(len(rows) + 1):
            assert rows_before(found, number, entry_id) == sum(rows[:entry_id])
    assert rows_before(found, 7, 1) is None


def test_entries_of_as_many_rows_are_one_run() -> None:
    assert EntryRows.of(7, [100] * 5000 + [3]).stored() == [7, 0, [[5000, 100], [1, 3]]]


def test_a_full_page_fits_into_one_value() -> None:
    largest = 2**63 - 1
    runs = tuple((largest, largest - number % 2) for number in range(2 * RUNS_PER_PAGE))
    few = [EntryRows(largest, largest, ((largest, largest),)) for _ in range(RUNS_PER_PAGE)]
    for entries in ([EntryRows(largest, largest, runs)], few):
        assert max(len(Page((), (), some).encode()) for some in in_pages(entries)) <= MAX_VALUE_BYTES
