"""What a commit of the kind ``compact-keys`` may do to a log, and what then becomes of its span.

Ref: DESIGN.md, "Compaction by key".
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bk_spark.errors import ConfigError, FormatVersionError, MetadataConflictError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored import json_values
from bk_spark.log.stored.by_key.entry_rows import EntryRows
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Head, LogVersion, Page, Totals
from tests.unit.log.log_requests import ids, overwrite, replacement, schema_json, write

TWO = Lanes(("id",), ("integer",), 2)
ROWS = schema_json(id="long")


def ledger(world, lane=0, rows=10):
    return replace(world.plain_ledger(rows), lane=lane)


def append(world, *ledgers, **more):
    return write(world, "orders", *ledgers, schema_json=ROWS, lanes=TWO, **more)


def span(world, numbers, *rows):
    """Ledgers of one span, one for each lane."""
    made = [ledger(world, lane, count) for lane, count in enumerate(rows)]
    return [replace(one, span=0 if place else numbers) for place, one in enumerate(made)]


def compact(world, removed, added):
    request = CommitRequest(CommitKind.COMPACT_KEYS, tuple(added), remove=tuple(ids(*removed)))
    return world.logs.commit(world.logs.jobs.begin("orders"), request)


@pytest.fixture
def appended(world):
    ledgers = [ledger(world, number % 2) for number in range(6)]
    append(world, *ledgers[:4])
    append(world, *ledgers[4:])
    return ledgers


def head(world):
    return world.logs.names.head("orders", world.logs.names.uid("orders"))


def test_the_rows_that_are_left_and_those_behind_them_keep_their_numbers(world, appended):
    made = compact(world, appended[:4], span(world, 40, 3, 2))
    assert (made.first_row, made.end_row, made.total.rows, made.total.gaps) == (0, 60, 25, 35)
    later = append(world, ledger(world))
    assert (later.first_row, later.end_row, head(world).first_row) == (0, 70, 0)
    again = compact(world, world.logs.reader.snapshot("orders").ledgers[:4], span(world, 60, 1, 0))
    assert (again.first_row, again.end_row, again.total.rows, again.total.gaps) == (0, 70, 11, 59)
    assert world.logs.reader.snapshot("orders", made.version).ledgers[0].span == 40


def test_a_replacement_behind_a_span_gives_every_number_a_new_one(world, appended):
    compact(world, appended[:4], span(world, 40, 3, 2))
    made = write(world, "orders", ledger(world, 1, 5), request=lambda *new: replacement([appended[5]], *new))
    assert (made.first_row, made.end_row) == (60, 60 + 40 + 10 + 5)


@pytest.mark.parametrize("place", [1, 2])
def test_a_truncation_takes_a_whole_span_or_none_of_it(world, appended, place):
    made = span(world, 40, 3, 2)
    compact(world, appended[:4], made)
    uid = world.logs.names.uid("orders")
    before = [*made, *appended[4:]][place].ledger_id
    if place == 1:
        with pytest.raises(
            ConfigError, match=f"the ledger to part from others of log 'orders' is {before}: ledger {made[0].ledger_id}"
        ):
            world.logs.truncate("orders", uid, before)
    else:
        truncated = world.logs.truncate("orders", uid, before)
        assert (truncated.first_row, truncated.total.gaps, truncated.removed.gaps) == (40, 0, 35)


@pytest.mark.parametrize("kind", [CommitKind.REPLACE, CommitKind.COMPACT])
@pytest.mark.parametrize("part", [slice(0, 1), slice(1, 2), slice(1, 3)])
def test_a_part_of_a_span_is_never_replaced(world, appended, kind, part):
    made = span(world, 40, 10, 9)
    compact(world, appended[:4], made)
    removed = [*made, *appended[4:]][part]
    request = CommitRequest(kind, (ledger(world, removed[0].lane, 10),), remove=tuple(ids(*removed)))
    with pytest.raises(ConfigError, match="are a span that a compaction by key made: they go together"):
        world.logs.commit(world.logs.jobs.begin("orders"), request)


def test_a_compaction_that_merges_ledgers_does_not_dissolve_a_span(world, appended):
    made = span(world, 40, 10, 9)
    compact(world, appended[:4], made)
    merged = (ledger(world, 0, 10), ledger(world, 1, 9))
    with pytest.raises(ConfigError, match="a compaction keeps the rows"):
        world.logs.commit(world.logs.jobs.begin("orders"), CommitRequest(CommitKind.COMPACT, merged, remove=tuple(ids(*made))))


def test_an_overwrite_ends_a_span(world, appended):
    compact(world, appended[:4], span(world, 40, 3, 2))
    made = write(world, "orders", ledger(world), request=overwrite, schema_json=ROWS, lanes=TWO)
    assert (made.first_row, made.end_row, made.total.gaps, made.removed.gaps) == (60, 70, 0, 35)


@pytest.mark.parametrize(
    ("numbers", "rows", "first", "problem"),
    [
        (41, (3, 2), 0, "they must be one span of 40 row numbers"),
        (40, (3, 2), 2, "before all other ledgers"),
        (40, (20, 20), 0, "is 40: there were 40: a compaction by key that removes none is no commit"),
        (None, (3, 2), 0, "they must be one span of 40 row numbers"),
    ],
)
def test_ledgers_that_are_no_span_of_what_they_replace_are_refused(world, appended, numbers, rows, first, problem):
    added = span(world, numbers, *rows)
    with pytest.raises(ConfigError, match=problem):
        compact(world, appended[first : first + 4], added)


def test_a_log_without_keys_and_one_with_a_tier_are_not_compacted_by_key(world):
    plain = ledger(world)
    write(world, "orders", plain)
    with pytest.raises(ConfigError, match="the log to compact by key is 'orders': it has no keys"):
        compact(world, [plain], span(world, 10, 1))
    keyed = ledger(world)
    write(world, "orders", keyed, request=overwrite, schema_json=ROWS, lanes=TWO)
    uid = world.logs.names.uid("orders")
    world.logs.names.change_head("orders", uid, lambda head: replace(head, tier=TierMark(table_uuid="t")))
    with pytest.raises(ConfigError, match="it has a tier, whose table keeps every row"):
        compact(world, [keyed], span(world, 10, 1))


def test_a_compaction_that_a_truncation_overtook_is_refused(world, appended):
    uid = world.logs.names.uid("orders")
    world.logs.truncate("orders", uid, appended[1].ledger_id)
    with pytest.raises(MetadataConflictError, match="it does not list ledger"):
        compact(world, appended[:4], span(world, 40, 3, 2))


@pytest.mark.parametrize("record", ["head", "settings", "version", "page", "entries"])
def test_older_releases_refuse_what_tells_of_spans_by_its_format(world, appended, monkeypatch, record):
    made = compact(world, appended[:4], span(world, 40, 3, 2))
    values = {
        "head": (Head, head(world).encode()),
        "entries": (Page, Page((), (), (EntryRows(7, 0, ((3, 20), (1, 5))),)).encode()),
        "settings": (Head, Head("orders", compaction=KeyCompaction("gone", 1, 2)).encode()),
        "version": (LogVersion, made.encode()),
        "page": (Page, Page((CommittedLedger(1, 2, 3, 4, 1, 0),), ()).encode()),
    }
    kind, value = values[record]
    assert kind.decode("it", value).encode() == value
    monkeypatch.setattr(json_values, "FORMAT_OF_READERS", json_values.FORMAT_OF_TIERS)
    with pytest.raises(FormatVersionError, match="it has format version 5, this bk_spark reads up to version 4"):
        kind.decode("it", value)


def test_totals_without_gaps_are_stored_as_ever():
    assert b'"total":[1,2,3],' in Head("orders", total=Totals(1, 2, 3)).encode()
    assert b'"total":[1,2,3,4],' in Head("orders", total=Totals(1, 2, 3, 4)).encode()


@pytest.mark.parametrize("kind", [CommitKind.APPEND, CommitKind.OVERWRITE, CommitKind.REPLACE, CommitKind.COMPACT])
def test_only_a_compaction_by_key_makes_a_span(kind):
    remove = (2,) if kind in (CommitKind.REPLACE, CommitKind.COMPACT) else ()
    with pytest.raises(ConfigError, match="span of ledger 1 is 9: only a compaction by key makes one"):
        CommitRequest(kind, (CommittedLedger(1, 0, 10, 1, 0, 9),), remove=remove)


def test_a_whole_span_is_replaced_by_ledgers_of_its_lanes(world, appended):
    made = span(world, 40, 3, 2)
    compact(world, appended[:4], made)
    replaced = write(world, "orders", ledger(world, 1, 7), request=lambda *new: replacement(made, *new))
    assert (replaced.total.rows, replaced.total.gaps, replaced.span_ledger) == (27, 0, None)


def test_each_version_and_the_head_tell_where_the_span_begins(world, appended):
    made = span(world, 40, 3, 2)
    found = [compact(world, appended[:4], made), append(world, ledger(world))]
    assert [one.span_ledger for one in found] == [made[0].ledger_id] * 2
    assert head(world).span_ledger == made[0].ledger_id
    world.logs.truncate("orders", world.logs.names.uid("orders"), appended[4].ledger_id)
    assert head(world).span_ledger is None
