"""A span as streams read it, over ledgers in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.entries.batch import binaries
from bk_spark.errors import CorruptionError, NoSuchLedgerError
from bk_spark.log.spans.span_handle import PLACE_FIELD, SpanHandle
from bk_spark.log.stored.by_key.spans import LedgerSpan
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.rows import parts
from bk_spark.rows.codec import PayloadFormat, RowEncoder
from bk_spark.rows.parts import in_parts
from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.filter import bind

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ASKED = AskedRows(SCHEMA)


@dataclass
class Entries:
    """Of a closed ledger; reads two at a time."""

    payloads: list[pa.Buffer]
    reads: list[tuple[int, int]] = field(default_factory=list)

    def read_unconfirmed(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        self.reads.append((first, last))
        for start in range(first, last + 1, 2):
            ids = list(range(start, min(start + 2, last + 1)))
            found = binaries([self.payloads[one] for one in ids])
            yield pa.record_batch([pa.array(ids, pa.int64()), found], ["entry_id", "payload"])


@dataclass
class World:
    """A span of some lanes, each with a ledger or two."""

    numbers: int
    ledgers: list[CommittedLedger] = field(default_factory=list)
    entries: dict[int, Entries] = field(default_factory=dict)

    def add(self, lane: int, places: list[int], rows_per_entry: int, text: str = "x") -> None:
        columns = [pa.array(places, pa.int64()), pa.array([text] * len(places)), pa.array(places, pa.int64())]
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema([*SCHEMA, PLACE_FIELD]))
        form = PayloadFormat(compression="none", max_rows=rows_per_entry, max_bytes=1 << 30)
        payloads = [one for one, _ in in_parts(RowEncoder("log", rows.schema, form).encode(rows))]
        number = len(self.ledgers)
        span = 0 if number else self.numbers
        size = sum(one.size for one in payloads)
        self.ledgers.append(CommittedLedger(number, len(payloads) - 1, size, len(places), lane, span))
        self.entries[number] = Entries(payloads)

    def open_ledger(self, ledger_id: int) -> ReadHandle:
        return cast("ReadHandle", self.entries[ledger_id])

    @property
    def handle(self) -> SpanHandle:
        return SpanHandle(LedgerSpan(tuple(self.ledgers), self.numbers), self.open_ledger)


def ids(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [one for batch in batches for one in batch.column("id").to_pylist()]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_part_of_a_span_has_its_rows_once_and_in_order(data: st.DataObject) -> None:
    lanes = data.draw(st.lists(st.sampled_from([None, 0, 1, 2]), min_size=1, max_size=80))
    world = World(len(lanes))
    for lane in range(3):
        places = [place for place, one in enumerate(lanes) if one == lane]
        cut = data.draw(st.integers(0, len(places)))
        for part in filter(None, (places[:cut], places[cut:])):
            world.add(lane, part, data.draw(st.integers(1, 9)))
    if not world.ledgers:
        world.ledgers.append(CommittedLedger(0, -1, 0, 0, 0, len(lanes)))
    bounds = data.draw(st.lists(st.integers(0, len(lanes) - 1), min_size=2, max_size=2).map(sorted))
    wanted = [place for place in range(bounds[0], bounds[1] + 1) if lanes[place] is not None]
    handle = world.handle
    assert ids(handle.rows(*bounds, ASKED)) == wanted
    given_rows = list(handle.rows_of_entries(*bounds, ASKED))
    assert [one for rows, _ in given_rows if rows is not None for one in rows.column("id").to_pylist()] == wanted
    assert [behind for _, behind in given_rows] == sorted({behind for _, behind in given_rows})
    assert given_rows[-1][1] == bounds[1] + 1
    most = data.draw(st.integers(0, 20))
    rows, places = handle.fitting(*bounds, most)
    assert rows == min(most, len(wanted)) == len([one for one in wanted if one < bounds[0] + places])
    assert bounds[0] + places == (wanted[most] if most < len(wanted) else bounds[1] + 1)


def test_rows_behind_a_batch_of_entries_are_those_behind_its_place() -> None:
    world = World(40)
    world.add(0, list(range(0, 40, 2)), 3)
    world.add(1, list(range(1, 40, 2)), 5)
    handle, seen = world.handle, []
    for rows, behind in handle.rows_of_entries(0, 39, ASKED):
        seen += [] if rows is None else rows.column("id").to_pylist()
        assert ids(handle.rows(behind, 39, ASKED)) == list(range(len(seen), 40)) if behind < 40 else len(seen) == 40


def test_a_condition_and_columns_are_those_asked_for() -> None:
    world = World(40)
    world.add(0, list(range(0, 40, 2)), 3)
    where = bind(parse_where("where", "id > 30"), "log", SCHEMA)
    [text] = {batch.schema.names[0] for batch in world.handle.rows(0, 39, AskedRows(pa.schema([SCHEMA.field("text")]), where))}
    assert text == "text"
    assert sum(one.num_rows for one in world.handle.rows(5, 36, AskedRows(pa.schema([]), where))) == 3
    assert next(one.schema.names for one in world.handle.rows(0, 39, AskedRows(pa.schema([])))) == ["rows"]


def test_a_small_part_of_a_large_ledger_is_found_without_reading_all_of_it() -> None:
    world = World(4096)
    world.add(0, list(range(4096)), 1)
    assert ids(world.handle.rows(2000, 2001, ASKED)) == [2000, 2001]
    assert sum(last - first + 1 for first, last in world.entries[0].reads[:-1]) < 20


def test_payloads_in_parts_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_ENTRY_BYTES", 2000)
    monkeypatch.setattr(parts, "PART_BYTES", 1000)
    world = World(10)
    world.add(0, list(range(10)), 2, "y" * 3000)
    assert len(world.entries[0].payloads) > 20
    for first in range(10):
        assert ids(world.handle.rows(first, first, ASKED)) == [first]
        assert ids(world.handle.rows(first, 9, ASKED)) == list(range(first, 10))


def test_an_entry_that_is_no_payload_is_damage() -> None:
    world = World(10)
    world.add(0, list(range(10)), 2)
    world.entries[0].payloads[3] = pa.py_buffer(b"damaged")
    with pytest.raises(CorruptionError, match="entry 3 of ledger 0"):
        ids(world.handle.rows(0, 9, ASKED))


def test_a_ledger_that_is_gone_is_named() -> None:
    world = World(10)
    world.add(0, list(range(10)), 2)

    def gone(ledger_id: int) -> Any:
        raise NoSuchLedgerError(ledger_id)

    with pytest.raises(NoSuchLedgerError, match="ledger 0"):
        ids(SpanHandle(LedgerSpan(tuple(world.ledgers), 10), gone).rows(0, 9, ASKED))
