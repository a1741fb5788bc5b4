"""Exactly the rows that match are given, and entries are passed over that cannot hold one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bk_spark.datasource.read.read_task import rows_as
from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder
from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.filter import bind

NAN, INFINITY = float("nan"), float("inf")
FORMAT = PayloadFormat(compression="none", max_rows=1 << 20, max_bytes=1 << 30)


def entries(payloads: list[pa.Buffer]) -> pa.RecordBatch:
    return pa.record_batch({"entry_id": range(len(payloads)), "payload": pa.array([bytes(p) for p in payloads], pa.binary())})


def payload_of(batch: pa.RecordBatch) -> pa.Buffer:
    [(payload, _)] = RowEncoder("orders", batch.schema, FORMAT).encode(batch)
    return payload


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was decoded."""
    decoded: list[str] = []
    decode = RowDecoder.decode

    def counted(self: RowDecoder, payload: pa.Buffer, what: str) -> pa.RecordBatch:
        decoded.append(what)
        return decode(self, payload, what)

    monkeypatch.setattr(RowDecoder, "decode", counted)
    return decoded


def read(payloads: list[pa.Buffer], stored: pa.Schema, text: str, names: list[str]) -> list[dict[str, Any]]:
    bound = bind(parse_where("where", text), "orders", stored)
    convert = rows_as(pa.schema([stored.field(name) for name in names]), False, bound)
    return [row for batch in convert(7, entries(payloads)) for row in batch.to_pylist()]


def test_entries_whose_statistics_exclude_the_condition_are_not_decoded(decodes) -> None:
    batches = [pa.record_batch({"a": range(100 * i, 100 * i + 100), "b": [f"row {i}"] * 100}) for i in range(10)]
    payloads = [payload_of(batch) for batch in batches]
    found = read(payloads, batches[0].schema, "a >= 350 AND a < 420", ["b", "a"])
    assert found == [{"b": f"row {a // 100}", "a": a} for a in range(350, 420)]
    assert decodes == ["the payload of entry 3 of ledger 7", "the payload of entry 4 of ledger 7"]


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("a = 100", "a = 99"),
        ("a = 199", "a = 200"),
        ("a IN (5, 100)", "a IN (5, 200)"),
        ("a != 150", "same != 7"),
        ("a < 101", "a < 100"),
        ("a <= 100", "a <= 99"),
        ("a > 198", "a > 199"),
        ("a >= 199", "a >= 200"),
        ("some IS NULL", "a IS NULL"),
        ("some IS NOT NULL", "none IS NOT NULL"),
        ("none IS NULL", "none = 5"),
        ("f > 9", "same > 9"),
        ("f = 'NaN'", "g = 'NaN'"),
        ("f >= 'NaN'", "g >= 'NaN'"),
        ("g < 'NaN'", "g > 'NaN'"),
        ("f != 2", "g != 2"),
        ("a = 100 AND same = 7", "a = 100 AND same = 8"),
        ("a = 100", "a = 100.5"),
        ("text = 'b'", "text = 'c'"),
    ],
)
def test_an_entry_is_decoded_only_where_its_bounds_allow_a_match(decodes, inside, outside) -> None:
    columns = {
        "a": pa.array(range(100, 200)),
        "same": pa.array([7] * 100),
        "some": pa.array([1, None] * 50),
        "none": pa.nulls(100, pa.int64()),
        "f": pa.array([2.0, NAN] * 50),
        "g": pa.array([2.0] * 100),
        "text": pa.array(["a", "b"] * 50),
    }
    batch = pa.record_batch(columns)
    assert read([payload_of(batch)], batch.schema, inside, ["a"]) != []
    assert len(decodes) == 1
    assert read([payload_of(batch)], batch.schema, outside, ["a"]) == []
    assert len(decodes) == 1


def test_columns_of_the_condition_need_not_be_asked_for() -> None:
    batch = pa.record_batch({"a": range(100), "b": [str(i) for i in range(100)]})
    assert read([payload_of(batch)], batch.schema, "a = 7", ["b"]) == [{"b": "7"}]


def test_a_column_that_an_entry_lacks_is_null_there(decodes) -> None:
    old, new = pa.record_batch({"a": range(100)}), pa.record_batch({"a": range(100), "b": [1] * 100})
    payloads = [payload_of(old), payload_of(new)]
    assert len(read(payloads, new.schema, "b IS NULL", ["a"])) == 100
    assert len(read(payloads, new.schema, "b = 1", ["a"])) == 100
    assert [what[:22] for what in decodes] == ["the payload of entry 0", "the payload of entry 1"]


@pytest.mark.parametrize(
    ("stored", "wider", "inside", "outside"),
    [
        (pa.int8(), pa.int64(), "c = 99", "c = 100"),
        (pa.int16(), pa.float64(), "c > 98.5", "c > 99.0"),
        (pa.int32(), pa.decimal128(12, 2), "c >= 99.00", "c >= 99.01"),
        (pa.decimal128(5, 1), pa.decimal128(9, 4), "c < 0.0001", "c < -0.0001"),
        (pa.float32(), pa.float64(), "c <= 0", "c < 0"),
        (pa.date32(), pa.timestamp("us"), "c = '1970-04-10 00:00:00'", "c = '1970-04-10 00:00:00.000001'"),
    ],
)
def test_an_entry_of_a_narrower_type_is_decoded_only_where_its_bounds_allow_a_match(
    decodes, stored, wider, inside, outside
) -> None:
    numbers = pa.array(range(100), pa.int32())
    column = numbers.cast(pa.decimal128(10, 0)).cast(stored) if pa.types.is_decimal(stored) else numbers.cast(stored)
    payload, log = payload_of(pa.record_batch({"c": column})), pa.schema([("c", wider)])
    assert len(read([payload], log, inside, ["c"])) == 1
    assert len(decodes) == 1
    assert read([payload], log, outside, ["c"]) == []
    assert len(decodes) == 1


# --- exact, whatever the table and the condition: against plain Python with three-valued logic
