"""Data of other libraries as a stream of Arrow; what they raise names the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bk_spark.client.log.rows.given_rows import batches_of, stream_of
from bk_spark.errors import ConfigError

ID = pa.schema([("id", pa.int64())])


class Fails:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise RuntimeError("no stream today")


class GivesNone:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return 7


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (pd.DataFrame({"a": [1, "x", 2.5]}), "'DataFrame': .*Could not convert 'x' with type str.*column a"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'DataFrame': .*Duplicate column names"),
        (pd.DataFrame({"a": [2**70]}), "'DataFrame': .*too large"),
        (pd.DataFrame({"a": [object()]}), "'DataFrame': .*did not recognize Python value type"),
        (pd.DataFrame({"a": ["\udc80"]}), "'DataFrame': .*surrogates not allowed"),
        (pd.DataFrame(), "'DataFrame': it has no column"),
        (pd.Series([1]), "'Series': it must be a pyarrow Table"),
        (pl.Series("a", [1]), "'Series': .*non-struct"),
        (pa.chunked_array([[1]]), "'ChunkedArray': .*non-struct"),
        (pa.table({}), "'Table': it has no column"),
        (Fails(), "'Fails': .*no stream today"),
        (GivesNone(), "'GivesNone': .*invalid PyCapsule"),
        (None, "'NoneType': it must be"),
        ({"id": [1]}, "'dict': it must be"),
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

    with pytest.raises(ConfigError, match=r"the data for log 'orders' is 'incomplete': .*nothing of it was written .a broken"):
        read(fails())
    with pytest.raises(ConfigError, match="the data for log 'orders' is 'incomplete'"):
        read(iter([7]))


def test_an_error_of_the_program_s_own_source_stays_what_it_is() -> None:
    def fails() -> Iterator[Any]:
        yield pa.record_batch({"id": [1]})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read(fails())
