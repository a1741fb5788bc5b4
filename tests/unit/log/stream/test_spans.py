"""Streams over a log that was compacted by key: every position is carried over by its row number.

Ref: DESIGN.md, "Compaction by key"; docs/rules.md, log rule 6.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bk_spark.errors import DataLossError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.by_key.entry_rows import EntryRows
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from bk_spark.log.stream.cursors import Cursor
from bk_spark.log.stream.order import READ
from bk_spark.log.stream.positions import StreamPosition, behind
from tests.unit.log.log_requests import schema_json
from tests.unit.log.stream.stream_world import NAME, StreamWorld

TWO = Lanes(("id",), ("integer",), 2)
ROWS = schema_json(id="long")
EACH = 30
"""Rows of each ledger that is appended, in three entries."""


@pytest.fixture
def world():
    return StreamWorld()


def ledger(world, lane, rows=EACH):
    return CommittedLedger(world.plain_ledger(3).ledger_id, 2, 300, rows, lane)


def append(world, *lanes):
    ledgers = [ledger(world, lane) for lane in lanes or (0, 1)]
    world.commit(CommitKind.APPEND, ledgers, schema_json=ROWS, lanes=TWO)
    return [one.ledger_id for one in ledgers]


def compact(world, ledgers, *, tells=True):
    """The first ``ledgers`` of the log become a span of two lanes, with a row less each time."""
    listed = world.logs.reader.snapshot(NAME).ledgers[:ledgers]
    numbers = sum(one.rows if one.span is None else one.span for one in listed)
    rows = sum(one.rows for one in listed) - 1
    span = [replace(ledger(world, lane, count), span=0 if lane else numbers) for lane, count in ((0, rows - 1), (1, 1))]
    several = [one for one in listed if one.span is None]
    entries = tuple(EntryRows.of(one.ledger_id, [5, 10, 15]) for one in several) if tells else ()
    request = CommitRequest(
        CommitKind.COMPACT_KEYS, tuple(span), remove=tuple(one.ledger_id for one in listed), entries=entries
    )
    world.logs.commit(world.logs.jobs.begin(NAME), request)
    return [one.ledger_id for one in span]


def stretches(world, start, overwrites="fail", **more):
    follower, head = world.follower(overwrites), world.head
    end = follower.newest(head, {}, start).position
    return list(follower.stretches(start, end, head, fail_on_data_loss=True, **more))


def places(found):
    """The stretches of spans, and the ledgers behind them."""
    return [(one.ledger_id, one.first_entry_id, one.last_entry_id) for one in found]


def test_a_stream_at_a_version_that_is_kept_reads_the_old_ledgers_and_steps_over_the_span(world):
    ids = [*append(world), *append(world)]
    compact(world, 4)
    (last,) = append(world, 1)
    assert [one.ledger_id for one in stretches(world, behind(0))] == [*ids, last]


@pytest.mark.parametrize(("entry_id", "row"), [(0, 30), (1, 35), (2, 45), (3, 60)])
def test_a_stream_inside_a_ledger_goes_on_at_the_row_that_the_compaction_noted(world, entry_id, row):
    _, second = append(world)
    append(world)
    first, _ = compact(world, 4)
    (last,) = append(world, 1)
    world.vacuum()
    found = stretches(world, StreamPosition(1, 1, second, entry_id))
    assert places(found) == [(first, row, 119), (last, 0, 2)]
    assert [one.lane for one in found[0].span.ledgers] == [0, 1]


def test_a_stream_inside_a_ledger_of_which_nothing_was_noted_is_told_of_the_loss(world):
    _, second = append(world)
    compact(world, 2, tells=False)
    world.vacuum()
    with pytest.raises(DataLossError, match="what it was to read next is deleted"):
        stretches(world, StreamPosition(1, 1, second, 1))


def test_a_stream_that_begins_in_a_span_reads_it_as_one_ledger_of_row_numbers(world):
    append(world)
    first, _ = compact(world, 2)
    world.vacuum()
    earliest = world.follower().earliest(world.head)
    assert earliest == StreamPosition(2, -1, first, 0)
    [found] = stretches(world, earliest)
    assert (found.first_entry_id, found.last_entry_id, found.rows, found.nbytes) == (0, 59, 59, 600)
    [of_a_lane] = stretches(world, earliest, lanes_of=lambda _: {1})
    assert (of_a_lane.rows, of_a_lane.nbytes, of_a_lane.ledger_ids) == (1, 300, [found.span.ledgers[1].ledger_id])
    assert stretches(world, earliest, lanes_of=lambda _: frozenset()) == []


def test_a_place_in_a_span_is_the_same_row_in_the_next_span(world):
    append(world)
    old, _ = compact(world, 2)
    world.vacuum()
    stands = StreamPosition(2, -1, old, 17)
    append(world)
    new, _ = compact(world, 4)
    (last,) = append(world, 0)
    assert stretches(world, stands)[0].ledger_id == old
    world.vacuum()
    assert places(stretches(world, stands)) == [(new, 17, 119), (last, 0, 2)]
    assert world.follower().row_number(stands, world.head) == 17


def test_a_place_in_a_span_needs_no_record_but_its_own(world, monkeypatch):
    """What its listing was made of is deleted after 100,000 versions."""
    append(world)
    old, _ = compact(world, 2)
    world.vacuum()
    append(world)
    new, _ = compact(world, 4)
    world.vacuum()
    monkeypatch.setattr(type(world.logs.reader), "recorded_listing", lambda *_: None)
    assert places(stretches(world, StreamPosition(2, -1, old, 17))) == [(new, 17, 119)]


def test_a_place_in_a_span_that_a_replacement_lists_is_carried_over_too(world):
    append(world)
    old, _ = compact(world, 2)
    (third,) = append(world, 1)
    world.commit(CommitKind.REPLACE, [ledger(world, 1)], remove=(third,))
    stands = next(one for one in stretches(world, behind(3), READ) if one.span is not None)
    assert (stands.version, stands.index, stands.ledger_id) == (4, 0, old)
    new, _ = compact(world, 3)
    world.vacuum()
    found = stretches(world, StreamPosition(4, 0, old, 12), READ)
    assert places(found) == [(new, 12, 89)]


def test_a_repeated_batch_has_what_is_left_between_its_rows(world):
    first, second = append(world)
    append(world)
    span, _ = compact(world, 4)
    world.vacuum()
    follower, start, end = world.follower(), StreamPosition(1, 0, first, 2), StreamPosition(1, 1, second, 1)
    found = follower.stretches(start, end, world.head, fail_on_data_loss=True)
    assert places(found) == [(span, 15, 34)]
    rest = follower.stretches(end, StreamPosition(3, -1, span, 120), world.head, fail_on_data_loss=True)
    assert places(rest) == [(span, 35, 119)]


def test_what_a_truncation_took_of_a_span_is_told_or_left_out(world):
    append(world)
    span, _ = compact(world, 2)
    world.vacuum()
    (last,) = append(world, 1)
    world.truncate(last)
    world.vacuum()
    with pytest.raises(DataLossError, match="row 20 was truncated"):
        stretches(world, StreamPosition(2, -1, span, 20))
    assert places(stretches(world, StreamPosition(2, -1, span, 60))) == [(last, 0, 2)]


def test_a_lag_is_no_more_than_the_rows_that_are_left(world):
    append(world)
    append(world)
    compact(world, 4)
    compact(world, 2)
    cursor = Cursor("copy", behind(0), 0, is_named=True)
    assert world.head.total.rows == 118
    assert cursor.lag(world.head) == 118
    assert replace(cursor, row=100).lag(world.head) == 20
