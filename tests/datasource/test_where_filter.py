"""Exactly the rows that match are given, and entries are passed over that cannot hold one."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bk_spark.datasource.read.read_task import rows_as
from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder
from bk_spark.rows.statistics import MIN_ROWS
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


# --- exact, whatever the table and the condition: against plain Python with three-valued logic

Value = Any
Column = tuple[pa.DataType, st.SearchStrategy[Value], Callable[[Value], str]]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _float_text(value: float) -> str:
    return repr(value) if math.isfinite(value) else _quoted({"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN"))


_floats = st.sampled_from([NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.0, -1.5, 2.5, 1e300])
_float32s = st.sampled_from([NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.0, -1.5, 2.5, 1e30]).map(
    lambda v: pa.scalar(v, pa.float32()).as_py()
)
_days = st.dates(datetime.date(2026, 1, 1), datetime.date(2026, 1, 5))
_times = st.datetimes(datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 1, 0, 0, 1))
_texts = st.text("a\x7fž'\\😀", max_size=3) | st.sampled_from(["x" * 64, "x" * 65, "x" * 64 + "y"])
COLUMNS: dict[str, Column] = {
    "i8": (pa.int8(), st.integers(-3, 3), str),
    "i64": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]), str),
    "flag": (pa.bool_(), st.booleans(), lambda v: str(v).lower()),
    "f32": (pa.float32(), _float32s, _float_text),
    "f64": (pa.float64(), _floats, _float_text),
    "dec": (pa.decimal128(9, 2), st.decimals(-2, 2, places=2), str),
    "text": (pa.string(), _texts, _quoted),
    "raw": (pa.binary(), st.binary(max_size=2), lambda v: f"X'{v.hex()}'"),
    "day": (pa.date32(), _days, lambda v: f"'{v}'"),
    "at": (pa.timestamp("us", "UTC"), _times.map(lambda v: v.replace(tzinfo=datetime.UTC)), lambda v: f"'{v.isoformat()}'"),
    "ntz": (pa.timestamp("us"), _times, lambda v: f"TIMESTAMP '{v.isoformat(' ')}'"),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _, _) in COLUMNS.items()])


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Value]]:
    """Few distinct rows, so that entries have narrow bounds."""
    rows = st.fixed_dictionaries({name: st.none() | values for name, (_, values, _) in COLUMNS.items()})
    return draw(st.lists(rows, min_size=1, max_size=4))


@st.composite
def single_conditions(draw: st.DrawFn) -> tuple[str, str, str, list[Value]]:
    """Text, column, operator and values of a comparison; numbers also between and beyond those of the column."""
    name = draw(st.sampled_from(list(COLUMNS)))
    _, values, spell = COLUMNS[name]
    operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "IN", "IS NULL", "IS NOT NULL"]))
    if name in ("i8", "i64", "dec"):
        values = values | st.sampled_from([Decimal("0.5"), Decimal("-1.255"), Decimal("1e20"), Decimal("-1e20"), 200])
        spell = str
    literals = draw(st.lists(values, min_size=1, max_size=3 if operator == "IN" else 1))
    if operator.startswith("IS"):
        return f"{name} {operator}", name, operator, []
    spelt = [spell(one) for one in literals]
    return f"{name} {operator} " + (f"({', '.join(spelt)})" if operator == "IN" else spelt[0]), name, operator, literals


def _key(value: Value) -> Any:
    """What Python orders as Spark does."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, str):
        return value.encode()
    return Fraction(value) if isinstance(value, (int, Decimal)) else value


def holds(operator: str, value: Value, literals: list[Value]) -> bool | None:
    """Three-valued: None is unknown."""
    if operator.startswith("IS"):
        return (value is None) == (operator == "IS NULL")
    if value is None:
        return None
    found, keys = _key(value), [_key(one) for one in literals]
    return {
        "=": lambda: found == keys[0],
        "!=": lambda: found != keys[0],
        "<": lambda: found < keys[0],
        "<=": lambda: found <= keys[0],
        ">": lambda: found > keys[0],
        ">=": lambda: found >= keys[0],
        "IN": lambda: found in keys,
    }[operator]()


@settings(max_examples=100)
@given(st.lists(tables(), min_size=1, max_size=3), st.lists(single_conditions(), min_size=1, max_size=3))
def test_exactly_the_rows_that_match_are_given_and_no_entry_is_passed_over_that_holds_one(many, conditions) -> None:
    batches = [pa.RecordBatch.from_pylist(rows * (MIN_ROWS // len(rows) + 1), schema=SCHEMA) for rows in many]
    text = " AND ".join(one[0] for one in conditions)
    expected = [
        row
        for batch in batches
        for row in batch.to_pylist()
        if all(holds(operator, row[name], literals) is True for _, name, operator, literals in conditions)
    ]
    assert repr(read([payload_of(batch) for batch in batches], SCHEMA, text, SCHEMA.names)) == repr(expected)
