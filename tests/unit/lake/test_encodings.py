"""How columns of a tier's files are encoded: small, and read by all as they were."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bk_spark.lake.encodings import Encodings

ROWS = 1000


def test_what_repeats_has_a_dictionary_and_numbers_that_differ_are_differences() -> None:
    nested = [{"id": n, "tags": [f"t{n % 3}"], "of": [(f"k{n}", n % 2)]} for n in range(ROWS)]
    kind = pa.struct([("id", pa.int64()), ("tags", pa.list_(pa.string())), ("of", pa.map_(pa.string(), pa.int32()))])
    columns = {
        "id": pa.array(range(ROWS)),
        "day": pa.array([n // 100 for n in range(ROWS)]),
        "name": pa.array([f"name {n}" for n in range(ROWS)]),
        "shop": pa.array([f"shop {n % 10}" for n in range(ROWS)]),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC).replace(microsecond=n) for n in range(ROWS)]),
        "yes": pa.array([True] * ROWS),
        "none": pa.nulls(ROWS, pa.int64()),
        "deep": pa.array(nested, kind),
    }
    found = Encodings.of(pa.table(columns))
    assert found.use_dictionary == ["day", "shop", "deep.tags.list.element", "deep.of.key_value.value"]
    assert set(found.column_encoding) == {"id", "at", "none", "deep.id"}


@pytest.mark.parametrize("first", [0, 3])
def test_columns_that_are_other_than_their_first_rows_are_read_as_they_were(first: int) -> None:
    """Null, empty, and sliced at first."""
    kind = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.decimal128(9, 2)))]))
    values = [None, [], [None], [{"a": 1, "b": None}], [{"a": -(2**63), "b": [("k", None)]}, {"a": 2**63 - 1, "b": []}]]
    rows = pa.table({"x": pa.array(values * 3, kind), "y": pa.array([None, 1, -1, 2**31 - 1, -(2**31)] * 3, pa.int32())})
    file = io.BytesIO()
    found = Encodings.of(rows.slice(first, 4))
    pq.write_table(rows, file, use_dictionary=found.use_dictionary, column_encoding=found.column_encoding)
    assert pq.read_table(file).equals(rows)


def test_a_file_without_rows_has_encodings_too() -> None:
    assert Encodings.of(pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))]).empty_table()).use_dictionary == []
