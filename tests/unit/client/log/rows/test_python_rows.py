"""Rows as dicts: what is stored is what was given, or the value is refused with its place."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.client.log.rows.python_rows import batch_of_dicts
from bk_spark.errors import ConfigError, SchemaMismatchError

NOW = datetime.datetime(2026, 3, 1, 12, 30)
PLACE = pa.struct([("x", pa.int8()), ("day", pa.date32())])
KINDS = {
    "n": pa.int8(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "moment": pa.timestamp("us", "UTC"),
    "price": pa.decimal128(4, 2),
    "text": pa.string(),
    "place": PLACE,
    "places": pa.list_(PLACE),
    "counts": pa.map_(pa.string(), pa.int8()),
}
SCHEMA = pa.schema(list(KINDS.items()))


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("n", 1.5, "n"),
        ("n", Decimal("1.5"), "n"),
        ("n", 300, "n"),
        ("n", True, "n"),
        ("n", "7", "n"),
        ("n", float("nan"), "n"),
        ("day", NOW, "day"),
        ("at", NOW.replace(tzinfo=datetime.UTC), "at"),
        ("price", Decimal("1.234"), "price"),
        ("price", Decimal("123.45"), "price"),
        ("text", 7, "text"),
        ("place", {"x": 1, "y": 2}, "place.y"),
        ("place", {"x": 1.5}, "place.x"),
        ("place", 7, "place"),
        ("places", [{"x": 1}, {"day": NOW}], "places.element.day"),
        ("places", 7, "places"),
        ("counts", {"a": 1.5}, "counts.value"),
        ("counts", [("a", 1.5)], "counts.value"),
        ("counts", 7, "counts"),
    ],
)
def test_a_value_that_would_be_changed_is_refused_with_its_place(name: str, value: Any, place: str) -> None:
    with pytest.raises(ConfigError, match=f"a value of column '{place}' for log 'orders' is "):
        batch_of_dicts("orders", SCHEMA, [{}, {name: None}, {name: value}])


def test_values_that_fit_are_what_they_were() -> None:
    rows = [
        {"n": -128, "day": NOW.date(), "at": NOW, "moment": NOW.replace(tzinfo=datetime.UTC), "price": Decimal("99.99")},
        {"text": "", "place": {"x": 1}, "places": [None, {"day": NOW.date()}], "counts": {"a": None}},
        {},
    ]
    found = batch_of_dicts("orders", SCHEMA, rows).to_pylist()
    assert {name: found[0][name] for name in rows[0]} == rows[0]
    assert found[1]["places"] == [None, {"x": None, "day": NOW.date()}]
    assert (found[1]["text"], found[1]["place"], found[1]["counts"]) == ("", {"x": 1, "day": None}, [("a", None)])
    assert found[2] == dict.fromkeys(KINDS)
    assert batch_of_dicts("orders", SCHEMA, [{"n": 2.0, "day": datetime.datetime(2026, 3, 1)}]).column("n").to_pylist() == [2]


@pytest.mark.parametrize("row", [7, None, "ab", [1], {1: 2}, {1: 2, "n": 3}], ids=repr)
def test_what_is_no_row_is_refused(row: Any) -> None:
    with pytest.raises(ConfigError, match=r"a row for log 'orders' is .*it must be a dict"):
        batch_of_dicts("orders", SCHEMA, [{"n": 1}, row])


def test_a_column_that_the_writer_does_not_have_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match=r"the writer has no column 'price2'.*merge_schema=True"):
        batch_of_dicts("orders", SCHEMA, [{"price2": 5}])
