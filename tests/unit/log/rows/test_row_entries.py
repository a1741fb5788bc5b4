"""Which calls share entries, and which fail."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from bk_spark.errors import EntryTooLargeError
from bk_spark.log.rows import row_entries
from bk_spark.log.rows.row_buffer import RowCall, RowLimits
from bk_spark.log.rows.row_entries import RowEntries, RowGroup, RowNumbers
from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder

SCHEMA = pa.schema([("raw", pa.binary())])
NOISE = random.Random(1)


@pytest.fixture(autouse=True)
def most_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_entries, "MAX_LED_BYTES", 10_000)


def entries(max_rows: int = 1000) -> RowEntries:
    encoder = RowEncoder("orders", SCHEMA, PayloadFormat(compression="none", max_rows=65_536, max_bytes=1 << 20))
    return RowEntries(encoder, RowNumbers("{}", merge_schema=False), RowLimits("orders", max_rows, 1 << 20, 0.1))


def call(name: str, *rows: bytes) -> RowCall[str]:
    return RowCall([pa.record_batch([pa.array(rows, pa.binary())], schema=SCHEMA)] if rows else [], name)


def large(name: str) -> RowCall[str]:
    return call(name, b"with it", NOISE.randbytes(20_000))


def rows_of(group: RowGroup[str]) -> list[bytes]:
    decoder = RowDecoder(SCHEMA)
    batches = [decoder.decode(pa.py_buffer(entry.payload), "a test") for entry in group.entries]
    return [row for batch in batches for row in batch.column("raw").to_pylist()]


def test_calls_that_wait_together_share_entries() -> None:
    (group,) = entries().of([call("a", b"1"), call("b", b"2", b"3"), call("flush")])
    assert (group.futures, len(group.entries), group.problem) == (["a", "b", "flush"], 1, None)
    assert (rows_of(group), group.entries[0].rows) == ([b"1", b"2", b"3"], 3)


def test_a_flush_alone_makes_no_entry() -> None:
    (group,) = entries().of([call("flush")])
    assert (group.futures, group.entries, group.problem) == (["flush"], [], None)


@pytest.mark.parametrize("place", [0, 1, 37, 98, 99])
def test_a_row_that_is_too_large_fails_its_call_alone_and_the_others_keep_their_order(place: int) -> None:
    calls = [call(str(number), b"%d" % number) for number in range(100)]
    calls[place] = large(str(place))
    groups = entries().of(calls)
    assert [name for group in groups for name in group.futures] == [str(number) for number in range(100)]
    failed = [group for group in groups if group.problem is not None]
    assert [(group.futures, type(group.problem), group.entries) for group in failed] == [([str(place)], EntryTooLargeError, [])]
    assert [row for group in groups for row in rows_of(group)] == [b"%d" % number for number in range(100) if number != place]
    assert len(groups) <= 9, "of 100 calls, halves of halves"


def test_each_call_with_a_row_that_is_too_large_fails() -> None:
    groups = entries().of([large("a"), call("b", b"2"), large("c"), large("d")])
    assert [(group.futures, group.problem is None) for group in groups] == [
        (["a"], False),
        (["b"], True),
        (["c"], False),
        (["d"], False),
    ]
