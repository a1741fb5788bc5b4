"""What a batch takes without its encodings is known before they are expanded."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.gateway.flight.expanded import expanded_bytes
from bk_spark.rows.conversion import Conversion

NUMBERS = pa.array([[1, 2, 3], None, [], [4] * 50], pa.list_(pa.int64()))
TEXTS = pa.array(["a" * 100, None, "", "b"])


def _list_views(values: pa.Array) -> pa.Array:
    """All rows have all values."""
    return pa.ListViewArray.from_arrays(pa.array([0] * 500, pa.int32()), pa.array([len(values)] * 500, pa.int32()), values)


SHARED = {
    "dictionary of lists": pa.DictionaryArray.from_arrays(pa.array([0, 3, None, 1, 2, 3] * 100, pa.int8()), NUMBERS),
    "dictionary of texts": pa.DictionaryArray.from_arrays(pa.array([0, 3, None, 1, 2, 0] * 100, pa.uint8()), TEXTS),
    "dictionary of numbers": pa.DictionaryArray.from_arrays(pa.array([0, 1] * 300, pa.int8()), pa.array([1, 2])),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([3, 600], pa.int32()), NUMBERS.slice(2)),
    "view of texts": pa.array(["a" * 100, None, "", "b"] * 100, pa.string_view()),
    "views of a list": _list_views(pa.array(range(40))),
    "views of lists": _list_views(NUMBERS),
    "views of maps": _list_views(pa.array([[("k", 1), ("l", 2)]], pa.map_(pa.string(), pa.int64()))),
    "fixed lists of a dictionary": pa.FixedSizeListArray.from_arrays(TEXTS.dictionary_encode().take(pa.array([0, 3] * 90)), 2),
    "struct": pa.StructArray.from_arrays([TEXTS.dictionary_encode(), NUMBERS], names=["a", "b"]),
    "nothing": pa.nulls(5).dictionary_encode(),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("first", [0, 2])
def test_what_is_said_is_about_what_is_made(name: str, first: int) -> None:
    batch = pa.record_batch({"x": SHARED[name].slice(first)})
    made = Conversion("orders", batch.schema).of(batch).nbytes
    assert made * 0.8 - 64 <= expanded_bytes(batch) <= made * 1.25 + 64


def test_columns_whose_rows_share_nothing_cost_nothing() -> None:
    assert expanded_bytes(pa.record_batch({"a": NUMBERS, "b": TEXTS})) == 0


def test_values_that_take_no_byte_are_not_counted_one_by_one() -> None:
    many = 2**31 - 1
    nulls = pa.ListViewArray.from_arrays(pa.array([0], pa.int32()), pa.array([many], pa.int32()), pa.nulls(many))
    assert expanded_bytes(pa.record_batch({"a": nulls})) < 64
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([many], pa.int32()), pa.array([1]))
    lists = pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), runs)
    assert expanded_bytes(pa.record_batch({"a": lists})) > 2**60
