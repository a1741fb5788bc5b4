"""Conditions against a plain loop over rows, in three-valued logic."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.rows.statistics import MIN_ROWS
from tests.budget import examples
from tests.unit.rows.where.test_filter import payload_of, read

Value = Any


Column = tuple[pa.DataType, st.SearchStrategy[Value], Callable[[Value], str]]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _float_text(value: float) -> str:
    return repr(value) if math.isfinite(value) else _quoted({"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN"))


NAN, INFINITY = float("nan"), float("inf")

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
    "ntz": (pa.timestamp("us"), _times, lambda v: f"TIMESTAMP_NTZ '{v.isoformat(' ')}'"),
}


SCHEMA = pa.schema([(name, kind) for name, (kind, _, _) in COLUMNS.items()])


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Value]]:
    """Few distinct rows, so that entries have narrow bounds."""
    rows = st.fixed_dictionaries({name: st.none() | values for name, (_, values, _) in COLUMNS.items()})
    return draw(st.lists(rows, min_size=1, max_size=4))


Row = dict[str, Value]
Truth = bool | None
"""None is unknown."""

Condition = tuple[str, Callable[[Row], Truth]]
"""Its text, and what it is for a row."""


@st.composite
def single_conditions(draw: st.DrawFn) -> Condition:
    """Comparisons; numbers also between and beyond those of the column."""
    name = draw(st.sampled_from(list(COLUMNS)))
    _, values, spell = COLUMNS[name]
    operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>", "IN", "NOT IN", "IS NULL", "IS NOT NULL"]))
    if name in ("i8", "i64", "dec"):
        largest = 10**20 if name == "dec" else 2**63 - 1  # beyond it a column of integers takes no literal
        values = values | st.sampled_from([Decimal("0.5"), Decimal("-1.255"), Decimal(largest), Decimal(-largest), 200])
        spell = str
    literals = draw(st.lists(values, min_size=1, max_size=3 if "IN" in operator else 1))
    if operator.startswith("IS"):
        return f"{name} {operator}", lambda row: (row[name] is None) == (operator == "IS NULL")
    spelt = [spell(one) for one in literals]
    text = f"{name} {operator} " + (f"({', '.join(spelt)})" if "IN" in operator else spelt[0])
    return text, lambda row: holds(operator, row[name], literals)


def conditions() -> st.SearchStrategy[Condition]:
    """Comparisons joined by AND, OR and NOT."""
    return st.recursive(single_conditions(), lambda some: negations(some) | junctions(some), max_leaves=6)


def negations(some: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    return some.map(lambda one: (f"NOT ({one[0]})", lambda row: _not(one[1](row))))


@st.composite
def junctions(draw: st.DrawFn, some: st.SearchStrategy[Condition]) -> Condition:
    parts = draw(st.lists(some, min_size=2, max_size=3))
    word, decisive = draw(st.sampled_from([("AND", False), ("OR", True)]))

    def truth(row: Row) -> Truth:
        found = [part[1](row) for part in parts]
        return decisive if decisive in found else None if None in found else not decisive

    return f" {word} ".join(f"({part[0]})" for part in parts), truth


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _key(value: Value) -> Any:
    """What Python orders as Spark does."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, str):
        return value.encode()
    return Fraction(value) if isinstance(value, (int, Decimal)) else value


def holds(operator: str, value: Value, literals: list[Value]) -> Truth:
    if value is None:
        return False if operator == "<=>" else None
    found, keys = _key(value), [_key(one) for one in literals]
    return {
        "=": lambda: found == keys[0],
        "<=>": lambda: found == keys[0],
        "!=": lambda: found != keys[0],
        "<": lambda: found < keys[0],
        "<=": lambda: found <= keys[0],
        ">": lambda: found > keys[0],
        ">=": lambda: found >= keys[0],
        "IN": lambda: found in keys,
        "NOT IN": lambda: found not in keys,
    }[operator]()


@examples(100)
@given(st.lists(tables(), min_size=1, max_size=3), conditions())
def test_exactly_the_rows_that_match_are_given_and_no_entry_is_passed_over_that_holds_one(many, condition) -> None:
    batches = [pa.RecordBatch.from_pylist(rows * (MIN_ROWS // len(rows) + 1), schema=SCHEMA) for rows in many]
    text, truth = condition
    expected = [row for batch in batches for row in batch.to_pylist() if truth(row) is True]
    assert repr(read([payload_of(batch) for batch in batches], SCHEMA, text, SCHEMA.names)) == repr(expected)
