"""Exactly the rows that match are given, and entries are passed over that cannot hold one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder, Wanted
from bk_spark.rows.reading import rows_as
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

    def counted(self: RowDecoder, payload: pa.Buffer, what: str, wanted: Wanted | None = None) -> pa.RecordBatch:
        decoded.append(what)
        return decode(self, payload, what, wanted)

    monkeypatch.setattr(RowDecoder, "decode", counted)
    return decoded


def read(payloads: list[pa.Buffer], stored: pa.Schema, text: str, names: list[str]) -> list[dict[str, Any]]:
    bound = bind(parse_where("where", text), "orders", stored)
    convert = rows_as(pa.schema([stored.field(name) for name in names]), where=bound)
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
        ("a NOT IN (100, 200)", "same NOT IN (6, 7)"),
        ("f NOT IN (2)", "g NOT IN (1, 2)"),
        ("f NOT IN ('NaN')", "same NOT IN (7, 8.5)"),
        ("text LIKE 'b%'", "text LIKE 'c%'"),
        ("text NOT LIKE 'a%'", "long NOT LIKE 'y%'"),
        ("long LIKE 'yy_%'", "long LIKE 'yx_%'"),
        ("text NOT LIKE 'b_%'", "none NOT IN (5)"),
        ("a = 5 OR a = 150", "a = 5 OR a = 250"),
        ("a = 5 OR text = 'a'", "a = 5 OR text = 'c'"),
        ("NOT a < 150", "NOT a >= 100"),
        ("NOT (a < 150 AND same = 7)", "NOT (a >= 100 OR same = 8)"),
        ("NOT some IS NULL", "NOT none IS NULL"),
        ("NOT none = 5 OR a = 100", "NOT none = 5"),
        ("a NOT BETWEEN 100 AND 198", "a NOT BETWEEN 100 AND 199"),
        ("some <=> NULL", "a <=> NULL"),
        ("NOT none <=> 5", "none <=> 5"),
        ("NOT some <=> 1", "NOT same <=> 7"),
        ("150 < a", "200 < a"),
        ("deep.x = 1", "deep.x = 1 AND a = 5"),
        ("deep.x IS NULL", "deep.x IS NULL AND a = 5"),
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
        "long": pa.array(["y" * 70, "y" * 71] * 50),
        "deep": pa.array([{"x": 1}, {"x": None}, None, {"x": 2}] * 25),
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


DEEP = pa.struct([("x", pa.int64()), ("B.c", pa.struct([("y", pa.string())]))])


def deep_batch() -> pa.RecordBatch:
    values = [{"x": 1, "B.c": {"y": "p"}}, {"x": None, "B.c": {"y": None}}, {"x": 3, "B.c": None}, None] * 25
    return pa.record_batch({"id": pa.array(range(100)), "deep": pa.array(values, DEEP)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("deep.x = 1", [0]),
        ("NOT deep.x = 1", [2]),
        ("DEEP.X >= 1", [0, 2]),
        ("deep.x IS NULL", [1, 3]),
        ("deep.x <=> NULL", [1, 3]),
        ("NOT deep.x <=> 1", [1, 2, 3]),
        ("deep.`B.c` IS NULL", [2, 3]),
        ("deep.`b.c`.y = 'p'", [0]),
        ("deep.`B.c`.y LIKE 'p%'", [0]),
        ("deep.`B.c`.y IS NULL", [1, 2, 3]),
        ("deep IS NOT NULL", [0, 1, 2]),
    ],
)
def test_a_field_is_null_where_a_struct_around_it_is(text: str, expected: list[int]) -> None:
    batch = deep_batch()
    found = read([payload_of(batch), payload_of(batch.slice(3, 90))], batch.schema, text, ["id"])
    wanted = [row for row in range(100) if row % 4 in expected]
    assert [row["id"] for row in found] == wanted + [row for row in wanted if 3 <= row < 93]


def test_a_filter_reads_the_whole_column_of_a_field() -> None:
    batch = deep_batch()
    bound = bind(parse_where("where", "deep.`B.c`.y = 'p' OR id = 1 OR deep.x = 1"), "orders", batch.schema)
    assert bound.columns == pa.schema([batch.schema.field("deep"), batch.schema.field("id")])
    assert list(bound.compared()) == [("deep", "B.c", "y"), ("id",), ("deep", "x")]


def test_fields_of_a_column_that_an_entry_lacks_are_null_there(decodes) -> None:
    old = pa.record_batch({"id": range(100)})
    assert read([payload_of(old)], deep_batch().schema, "deep.x = 1 OR NOT deep.x = 1 OR deep.x IS NOT NULL", ["id"]) == []
    assert decodes == []
    assert len(read([payload_of(old)], deep_batch().schema, "deep.x IS NULL", ["id"])) == 100


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("a = 1", [True, False, None]),
        ("NOT a = 1", [False, True, None]),
        ("NOT (a = 1 AND b = 1)", [False, True, None, True, True, True, None, True, None]),
        ("NOT (a = 1 OR b = 1)", [False, False, False, False, True, None, False, None, None]),
        ("a NOT IN (1)", [False, True, None]),
        ("NOT a <=> 1", [False, True, True]),
        ("a NOT BETWEEN 1 AND 1", [False, True, None]),
        ("NOT a IS NULL", [True, True, False]),
        ("a = 0.5", [False, False, None]),
        ("NOT a = 0.5", [True, True, None]),
        ("NOT a IN (0.5, 1.5)", [True, True, None]),
        ("NOT a > 300", [True, True, None]),
    ],
)
def test_a_row_passes_only_where_the_whole_is_true(text: str, matches: list[bool | None]) -> None:
    """``a`` and ``b`` take each pair of 1, 0 and null; ``matches`` is given for ``a`` alone where ``b`` does not count."""
    pairs = [(a, b) for a in (1, 0, None) for b in (1, 0, None)]
    batch = pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in pairs], pa.schema([("a", pa.int8()), ("b", pa.int8())]))
    wide = matches if len(matches) == 9 else [match for match in matches for _ in range(3)]
    found = bind(parse_where("where", text), "orders", batch.schema).matching(batch)
    assert found.to_pylist() == [row for row, match in zip(batch.to_pylist(), wide, strict=True) if match]


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
