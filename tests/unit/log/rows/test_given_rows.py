"""Data of other libraries as a stream of Arrow; what they raise names the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow.dataset import dataset

from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.log.rows.given_rows import batches_of, stream_of
from bk_spark.rows.conversion import Conversion

ID = pa.schema([("id", pa.int64())])


class Fails:
    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise self._problem


class GivesNone:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return 7


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (pd.DataFrame({"a": [1, "x", 2.5]}), "'DataFrame': .*Could not convert 'x' with type str.*column a"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'DataFrame': .*Duplicate column names.*give each column a name"),
        (pd.DataFrame({"b": [1], "a": [2**70]}), "'DataFrame': .*column 'a': .*too large.*astype"),
        (pd.DataFrame({"b": [1], "a": [1 + 2j]}), "'DataFrame': .*column 'a': .*Unsupported numpy type.*astype"),
        (pd.DataFrame({"a": [object()]}), "'DataFrame': .*did not recognize Python value type"),
        (pd.DataFrame({"b": [1], "a": ["\udc80"]}), "'DataFrame': .*column 'a': 'utf-8' codec can't .*surrogates not allowed"),
        (pd.DataFrame(), "'DataFrame': it has no column"),
        (pd.Series([1]), r"'Series': it must be a pyarrow Table.*: give what its to_frame\(\) gives"),
        (pl.Series("a", [1]), "'Series': .*non-struct.*: give it a name, with pyarrow.table"),
        (pa.chunked_array([[1]]), "'ChunkedArray': .*non-struct.*: give it a name, with pyarrow.table"),
        (pl.LazyFrame({"a": [1]}), r"'LazyFrame': it must be .*: give what its collect\(\) gives"),
        (dataset(pa.table({"a": [1]})), r"'InMemoryDataset': it must be .*: give what its scanner\(\).to_reader\(\) gives"),
        (duckdb.connect(), r"'DuckDBPyConnection': it must be .*: give what its to_arrow_reader\(\) gives"),
        ([{"id": 1}], r"'list': it must be .*: pyarrow.Table.from_pylist\(rows\) makes one"),
        ([pa.record_batch({"id": [1]})], r"'list': it must be .*: pyarrow.Table.from_batches\(rows\) makes one"),
        (iter([pa.record_batch({"id": [1]})]), "'list_iterator': it must be .*RecordBatchReader.from_batches"),
        (pa.table({}), "'Table': it has no column"),
        (Fails(pa.ArrowInvalid("no stream today")), "'Fails': .*no stream today"),
        (GivesNone(), "'GivesNone': .*invalid PyCapsule"),
        (None, "'NoneType': it must be"),
        ({"id": [1]}, r"'dict': it must be .*: pyarrow.table\(rows\) makes one"),
    ],
    ids=lambda one: one[:50] if isinstance(one, str) else type(one).__name__,
)
def test_data_that_arrow_does_not_take_is_refused_with_the_log_and_the_reason(rows: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"the data for log 'orders' is {says}"):
        stream_of("orders", rows)


def read(batches: Iterator[Any]) -> list[pa.RecordBatch]:
    return list(batches_of("orders", pa.RecordBatchReader.from_batches(ID, batches)))


def test_a_stream_that_arrow_cannot_go_on_with_is_refused_with_the_log() -> None:
    def fails() -> Iterator[Any]:
        yield pa.record_batch({"id": [1]})
        raise pa.ArrowInvalid("a broken file")

    with pytest.raises(ConfigError, match=r"the data for log 'orders' is incomplete: .*nothing of it was written .a broken"):
        read(fails())
    with pytest.raises(ConfigError, match="the data for log 'orders' is incomplete"):
        read(iter([7]))


def test_an_error_of_the_program_s_own_source_stays_what_it_is() -> None:
    def fails() -> Iterator[Any]:
        yield pa.record_batch({"id": [1]})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read(fails())


@pytest.mark.parametrize("problem", [KeyError("of mine"), TypeError("of mine"), RuntimeError("of mine")], ids=repr)
def test_an_error_of_the_program_s_own_source_that_gives_no_stream_stays_what_it_is(problem: Exception) -> None:
    with pytest.raises(type(problem)) as caught:
        stream_of("orders", Fails(problem))
    assert caught.value is problem


# --- frames


class Orders(pd.DataFrame):
    """A program's own kind of frame."""


SUMS = pd.DataFrame({"shop": ["x", "y"], "day": ["mon", "tue"], "v": [1, 2]})


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (SUMS.groupby("shop")[["v"]].sum(), "its index 'shop' has a name"),
        (SUMS.groupby(["shop", "day"]).sum(), "its index 'shop, day' has a name"),
        (Orders(SUMS).set_index("v"), "its index 'v' has a name"),
        (pd.DataFrame({"v": [1]}, index=["x"]), "its index has no name, and other values than integers"),
        (pd.DataFrame({"v": [1]}, index=pd.to_datetime(["2026-01-01"])), "its index has no name"),
        (pd.DataFrame({"v": [1]}, index=pd.MultiIndex.from_tuples([(1, 2)])), "its index has no name"),
        (SUMS.iloc[:0].groupby("shop")[["v"]].sum(), "its index 'shop' has a name"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_an_index_that_would_be_lost_is_refused_with_the_two_ways_out(frame: pd.DataFrame, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"{says}.*reset_index\(\), or drop it with reset_index\(drop=True\)"):
        stream_of("orders", frame)
    assert len(stream_of("orders", frame.reset_index()).read_all().schema) == len(frame.columns) + frame.index.nlevels


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"v": [1, 2, 3]}),
        pd.DataFrame({"v": [3, 1, 2]}).sort_values("v"),
        pd.DataFrame({"v": [1, 2, 3, 4]})[lambda frame: frame.v != 2],
        pd.concat([pd.DataFrame({"v": [1]}), pd.DataFrame({"v": [2]})]),
        Orders({"v": [1, 2, 3]}),
        pd.DataFrame({"v": pd.Series([], dtype="int64")}),
        pd.DataFrame({"v": pd.Series([], dtype="int64", index=pd.Index([], dtype=object))}),
    ],
)
def test_an_index_of_integers_without_a_name_is_no_column(frame: pd.DataFrame) -> None:
    stream = stream_of("orders", frame)
    assert stream.schema.names == ["v"]
    assert stream.read_all().column("v").to_pylist() == frame.v.tolist()


def test_objects_of_python_in_a_frame_of_polars_are_refused_with_their_column() -> None:
    with pytest.raises(ConfigError, match="column 'o' holds objects of Python"):
        stream_of("orders", pl.DataFrame({"id": [1], "o": pl.Series([object()], dtype=pl.Object)}))
    with pytest.raises(ConfigError, match="column 'o' holds objects of Python"):
        stream_of("orders", pl.DataFrame({"o": pl.Series([], dtype=pl.Object)}))
    assert stream_of("orders", pl.DataFrame({"Object": [b"8 bytes."]})).read_all().to_pylist() == [{"Object": b"8 bytes."}]


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"a\0b": [1]}),
        pa.table({"\0x": [1]}),
        pa.record_batch({"a\0b": [1]}),
        pa.table({"a\0b": [1]}).to_reader(),
        pa.table({"s": [{"a\0b": 1}]}),
        pa.table({"s": [[{"x": {"a\0b": 1}}]]}),
        pd.DataFrame({"a\0b": [1]}),
        pl.DataFrame({"a\0b": [1]}),
        pl.DataFrame({"s": [[{"x": {"a\0b": 1}}]]}),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_a_name_that_other_programs_would_cut_is_refused(rows: Any) -> None:
    with pytest.raises(ConfigError, match=r"NUL.*: rename it") as caught:
        Conversion("orders", stream_of("orders", rows).schema)
    assert "x00" in str(caught.value)


# --- what a batch holds, and what its reader said


def read_as_said(said: pa.DataType, given: pa.Array) -> list[Any]:
    batch = pa.record_batch({"a": given})
    reader = pa.RecordBatchReader.from_batches(pa.schema([("a", said)]), iter([batch]))
    conversion = Conversion("orders", reader.schema)
    return [row["a"] for batch in batches_of("orders", reader) for row in conversion.of(batch).to_pylist()]


@pytest.mark.parametrize(
    ("said", "given"),
    [
        (pa.int64(), pa.array(["5"])),
        (pa.int64(), pa.array([b"5"])),
        (pa.int64(), pa.array([True])),
        (pa.int64(), pa.array([5], pa.int8())),
        (pa.int64(), pa.array([5.0])),
        (pa.int64(), pa.array([5], pa.timestamp("us"))),
        (pa.int64(), pa.array(["5"]).dictionary_encode()),
        (pa.string(), pa.array([1.5])),
        (pa.string(), pa.array([b"x"])),
        (pa.timestamp("us"), pa.array([5], pa.timestamp("us", "UTC"))),
        (pa.list_(pa.int64()), pa.array([["5"]])),
        (pa.struct([("x", pa.int64())]), pa.array([{"y": 5}])),
        (pa.struct([("x", pa.int64()), ("y", pa.int64())]), pa.array([{"y": 5, "x": 6}])),
        (pa.decimal128(5, 2), pa.array([5], pa.decimal128(6, 2))),
    ],
    ids=str,
)
def test_a_batch_of_other_types_than_its_reader_said_is_refused_with_the_column(said: pa.DataType, given: pa.Array) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        read_as_said(said, given)
    assert f"column 'a' is {given.type} in a batch and {said} in the schema of its reader: cast it before" in str(caught.value)


@pytest.mark.parametrize(
    ("said", "given", "stored"),
    [
        (pa.string(), pa.array(["x"]).dictionary_encode(), "x"),
        (pa.string(), pa.array(["x"], pa.large_string()), "x"),
        (pa.int16(), pa.array([5], pa.uint8()), 5),
        (pa.uint8(), pa.array([5], pa.int16()), 5),
        (pa.list_(pa.field("item", pa.int8())), pa.array([[5]], pa.large_list(pa.field("x", pa.int8(), nullable=False))), [5]),
        (pa.int64(), pa.nulls(1), None),
        (pa.list_(pa.int64()), pa.array([[None]]), [None]),
    ],
    ids=str,
)
def test_a_batch_of_another_encoding_than_its_reader_said_keeps_its_values(
    said: pa.DataType, given: pa.Array, stored: object
) -> None:
    assert read_as_said(said, given) == [stored]


def test_a_batch_of_other_columns_than_its_reader_said_is_refused_with_both() -> None:
    reader = pa.RecordBatchReader.from_batches(
        pa.schema([("a", pa.int64()), ("b", pa.int64())]), iter([pa.record_batch({"b": [2], "a": [1]})])
    )
    with pytest.raises(SchemaMismatchError, match="a batch has the columns 'b', 'a', the schema of its reader 'a', 'b'"):
        list(batches_of("orders", reader))


@pytest.mark.parametrize("struct", [pl.struct("x\0y"), pl.struct(pl.col("x\0y").alias("fine"), pl.col("x\0y")).alias("s")])
def test_a_single_column_of_polars_with_a_nul_in_a_name_is_refused(struct: pl.Expr) -> None:
    """Polars would end the process."""
    with pytest.raises(ConfigError, match=r"the name 'x\\x00y' holds a NUL"):
        stream_of("orders", pl.DataFrame({"x\0y": [1]}).select(struct).to_series())


def test_other_objects_of_pandas_than_frames_are_refused() -> None:
    grouped = pd.DataFrame({"a": [1], "columns": [2]}).groupby("a")
    with pytest.raises(ConfigError, match="the data for log 'orders' is 'DataFrameGroupBy': it must be"):
        stream_of("orders", grouped)
