"""Rows in many forms become record batches of the writer's columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.log.rows.row_form import RowForm
from bk_spark.rows.own_memory import taken_rows

SCHEMA = pa.schema([("id", pa.int64()), ("item", pa.string())])


@pytest.mark.parametrize(
    "rows",
    [
        {"item": "a", "id": 1},
        [{"id": 1, "item": "a"}],
        pa.table({"item": ["a"], "id": [1]}),
        pa.table({"id": [1], "item": ["a"]}).to_batches()[0],
        pd.DataFrame({"item": ["a"], "id": [1]}),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_columns_match_by_name(rows: Any) -> None:
    batches = RowForm("orders", SCHEMA).of(rows)
    assert [batch.to_pylist() for batch in batches] == [[{"id": 1, "item": "a"}]]
    assert batches[0].schema == SCHEMA


def test_a_date_that_the_log_s_timestamps_cannot_be_is_refused_and_every_other_one_is_taken() -> None:
    dates = pa.schema([("day", pa.date32())])
    last = pa.array([106_751_991, -106_751_991], pa.int32()).cast(pa.date32())
    beyond = pa.array([0, 106_751_992], pa.int32()).cast(pa.date32())
    form = RowForm("orders", dates, frozenset({"day"}))
    assert form.of(pa.table({"day": last}))[0].column("day").equals(last)
    with pytest.raises(ConfigError, match="a value of column 'day' for log 'orders' is '294247-01-11': the log has timestamps"):
        form.of(pa.table({"day": beyond}))
    assert RowForm("orders", dates).of(pa.table({"day": beyond}))[0].column("day").equals(beyond)


def test_columns_that_are_missing_are_null() -> None:
    form = RowForm("orders", SCHEMA)
    assert form.of({"id": 1})[0].to_pylist() == form.of(pa.table({"id": [1]}))[0].to_pylist() == [{"id": 1, "item": None}]


def test_a_column_of_nulls_goes_with_every_type_also_inside_of_others() -> None:
    tags = pa.list_(pa.field("element", pa.string()))
    form = RowForm("orders", pa.schema([("id", pa.int64()), ("tags", tags), ("place", pa.struct([("x", tags)]))]))
    rows = pd.DataFrame({"id": [None, None], "tags": [[], [None]], "place": [{"x": None}, None]})
    [batch] = form.of(rows)
    assert batch.schema == form.schema
    assert batch.to_pylist() == [
        {"id": None, "tags": [], "place": {"x": None}},
        {"id": None, "tags": [None], "place": None},
    ]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"price": 5}, "the writer has no column 'price'"),
        ({"id": "five"}, "a value of column 'id' for log 'orders' is 'five': it is no int64"),
        (pa.table({"id": ["five"]}), "column 'id' is int64 in the log and string in the data"),
        (pa.table({"id": pa.array([], pa.int64())}), "at least one row is expected"),
        ([], "at least one row is expected"),
        (7, "it must be a pyarrow Table"),
    ],
    ids=str,
)
def test_rows_that_do_not_fit_are_refused(rows: Any, says: str) -> None:
    with pytest.raises((SchemaMismatchError, ConfigError), match=says):
        RowForm("orders", SCHEMA).of(rows)


# --- memory that the caller changes after the call


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", ["table", "batch", "pandas", "stream of another library"])
def test_rows_are_what_was_handed_over_though_their_memory_changes(kind: str, read_only: bool) -> None:
    memory = np.zeros(4, np.int64)
    view = memory.view()
    view.flags.writeable = not read_only
    table = pa.table({"id": view, "item": list("abcd")}).slice(1, 2)
    given: dict[str, Any] = {
        "table": table,
        "batch": table.to_batches()[0],
        "pandas": pd.DataFrame({"id": view, "item": list("abcd")}, copy=False)[1:3],
        "stream of another library": SimpleNamespace(__arrow_c_stream__=table.__arrow_c_stream__),
    }
    taken, taken_later = RowForm("orders", SCHEMA).of(given[kind]), taken_rows(table)
    memory[:] = 7
    assert [row["id"] for batch in taken for row in batch.to_pylist()] == [0, 0]
    assert taken_later.column("id").to_pylist() == [0, 0]


def test_dicts_are_what_was_handed_over_though_they_change() -> None:
    row = {"id": 1, "item": "a"}
    taken = RowForm("orders", SCHEMA).of([row])
    row["id"] = 2
    assert taken[0].to_pylist() == [{"id": 1, "item": "a"}]


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int8(), pa.string()), pa.string_view(), pa.large_string()])
def test_rows_of_types_that_are_converted_later_are_taken_as_they_are(kind: pa.DataType) -> None:
    table = pa.table({"item": pa.chunked_array([["a", None], ["b"]]).cast(kind)})
    assert taken_rows(table).equals(table)
    assert taken_rows(table.to_batches()[0]).to_pylist() == [{"item": "a"}, {"item": None}]


def test_rows_that_arrow_cannot_copy_are_for_the_caller_to_convert() -> None:
    values = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "{}"]))
    assert taken_rows(pa.table({"item": pa.DictionaryArray.from_arrays([0, 1, 0], values)})) is None
