"""Spans in a list of ledgers, and as one ledger."""

from __future__ import annotations

import pytest

from bk_spark.log.cleanup.compaction_plan import plan_compaction
from bk_spark.log.cleanup.vacuum import expired_ledgers
from bk_spark.log.stored.by_key.spans import LedgerSpan, end_of_unit, start_of_unit, units
from bk_spark.log.stored.values import LEDGERS_PER_PAGE, CommittedLedger, OpenLedger, Page, Totals, pages_of
from bk_spark.metadata.store import MAX_VALUE_BYTES
from bk_spark.rows.lane_limits import MAX_LANES


def ledger(ledger_id: int, rows: int = 10, lane: int = 0, span: int | None = None) -> CommittedLedger:
    return CommittedLedger(ledger_id, rows - 1, 100 * rows, rows, lane, span)


SPAN = [ledger(1, 3, 0, 40), ledger(2, 2, 1, 0), ledger(3, 5, 2, 0)]
LISTED = [*SPAN, ledger(4), ledger(5), OpenLedger(6, 7)]


def test_a_span_is_one_unit_and_every_other_ledger_is_one() -> None:
    assert [tuple(one.ledger_id for one in unit) for unit in units(LISTED[:5])] == [(1, 2, 3), (4,), (5,)]
    assert [tuple(one.ledger_id for one in unit) for unit in units([*SPAN, *SPAN])] == [(1, 2, 3), (1, 2, 3)]
    assert list(units([])) == []


@pytest.mark.parametrize(("place", "start", "end"), [(0, 0, 3), (1, 0, 3), (2, 0, 3), (3, 3, 4), (4, 4, 5), (5, 5, 6)])
def test_each_ledger_knows_where_its_unit_begins_and_ends(place: int, start: int, end: int) -> None:
    assert (start_of_unit(LISTED, place), end_of_unit(LISTED, place)) == (start, end)


def test_a_span_is_one_ledger_with_an_entry_for_each_row_number() -> None:
    assert LedgerSpan.of(SPAN).as_one == CommittedLedger(1, 39, 1000, 40)
    assert [one.ledger_id for one in LedgerSpan.of(SPAN).in_lanes({0, 2}).ledgers] == [1, 3]
    assert LedgerSpan.of(SPAN).in_lanes({1}).numbers == 40


def test_the_totals_of_a_span_tell_its_row_numbers_too() -> None:
    total = Totals.of(SPAN)
    assert (total.rows, total.gaps, total.span) == (10, 30, 40)
    assert Totals.of(LISTED[:5]) - total == Totals.of(LISTED[3:5])


@pytest.mark.parametrize(("rows", "count"), [(39, 0), (40, 3), (49, 3), (50, 4), (99, 4)])
def test_retention_takes_a_whole_span_once_its_last_row_is_old(rows: int, count: int) -> None:
    assert expired_ledgers(LISTED[:5], 0, rows, None) == count


@pytest.mark.parametrize(("nbytes", "count"), [(2001, 0), (2000, 3), (1000, 4), (0, 4)])
def test_retention_by_bytes_takes_a_whole_span(nbytes: int, count: int) -> None:
    assert expired_ledgers(LISTED[:5], 0, None, nbytes) == count


def test_a_span_that_is_all_of_a_log_stays() -> None:
    assert expired_ledgers(SPAN, 0, 100, 0) == 0


def test_small_ledgers_are_merged_beside_a_span_and_never_into_it() -> None:
    one_lane = [ledger(1, 1, 0, 40), ledger(2, 1, 0, 0), ledger(3, 1), ledger(4, 1)]
    [stretch] = plan_compaction(one_lane, 10_000)
    assert stretch.ledger_ids == (3, 4)


def test_a_full_page_of_a_span_fits_into_one_value() -> None:
    largest = 2**63 - 1
    first, further = (CommittedLedger(*[largest] * 4, MAX_LANES - 1, span) for span in (largest, 0))
    pages = pages_of([first, *[further] * 10_000], [largest] * LEDGERS_PER_PAGE)
    assert max(len(page.encode()) for page in pages) <= MAX_VALUE_BYTES
    assert [one for page in pages for one in Page.decode("a page", page.encode()).ledgers] == [first, *[further] * 10_000]
