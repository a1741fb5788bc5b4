"""Empty slices without the buffers that they point into: what they are inside of can be written and read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.rows.conversion import Conversion
from bk_spark.rows.empty_slices import renewed
from bk_spark.rows.own_memory import in_own_memory

OFFSETS = pa.array([0, 1, 2], pa.int32()).buffers()[1]
EMPTY = pa.Array.from_buffers(pa.string(), 0, [None, OFFSETS, pa.py_buffer(b"")], offset=2)
"""As Arrow's interface for C hands over the end of a column of two texts."""

NONE = pa.array([0, 0], pa.int32())
LISTS = pa.ListArray.from_arrays(NONE, EMPTY)
MAPS = pa.MapArray.from_arrays(NONE, EMPTY, EMPTY)

NUMBERS = pa.Array.from_buffers(pa.uint32(), 0, [None, pa.py_buffer(b"")], offset=1)
JOINED = pa.ListArray.from_arrays(
    pa.array([0, 1, 2, 3], pa.int32()),
    pa.ListArray.from_arrays(pa.array([0, 0, 0, 0], pa.int32()), NUMBERS),
    mask=pa.array([False, True, False]),
)
"""Arrow copies its elements, because of the one behind the null, and fails on those that are empty."""
VIEWS = pa.MapArray.from_arrays(NONE, pa.array(["a"]).slice(1), pa.array(["x"], pa.string_view()).slice(1))
CODES = pa.DictionaryArray.from_arrays(pa.array([0, 0, None], pa.int8()), pa.array(["x"]))


@pytest.mark.parametrize(
    "column",
    [
        EMPTY,
        LISTS,
        MAPS,
        pa.ListArray.from_arrays(NONE, LISTS.slice(1)),
        pa.StructArray.from_arrays([LISTS, MAPS], names=["l", "m"]),
        pa.LargeListArray.from_arrays(NONE.cast(pa.int64()), EMPTY),
        pa.DictionaryArray.from_arrays(pa.array([0, 2, None], pa.int8()), JOINED),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 3, 4], pa.int32()), JOINED),
        pa.ListArray.from_arrays(pa.array([0], pa.int32()), pa.StructArray.from_arrays([JOINED, CODES], names=["j", "c"])),
    ],
    ids=lambda column: str(column.type)[:40],
)
def test_what_is_empty_inside_can_be_copied_and_read(column: pa.Array) -> None:
    batch = pa.record_batch([column], names=["c"])
    found = in_own_memory(Conversion("orders", batch.schema).of(batch))
    found.validate(full=True)
    assert found.to_pylist() == batch.to_pylist()


def test_a_column_in_which_nothing_is_empty_is_not_copied() -> None:
    column = pa.array([[{"a": ["x"]}], None, []])
    assert renewed(column) is column


def test_a_map_whose_items_are_an_empty_slice_of_views_can_be_copied_and_read() -> None:
    [batch] = pa.RecordBatchReader.from_stream(pa.table({"c": VIEWS}))  # Arrow makes no batch of it again
    found = in_own_memory(Conversion("orders", batch.schema).of(batch))
    found.validate(full=True)
    assert found.to_pylist() == [{"c": []}]


def test_a_dictionary_of_what_is_empty_inside_can_be_copied_and_read() -> None:
    values = pa.StructArray.from_arrays([VIEWS], names=["m"])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), values)
    [batch] = pa.RecordBatchReader.from_stream(pa.table({"c": column}))
    found = in_own_memory(Conversion("orders", batch.schema).of(batch))
    found.validate(full=True)
    assert found.to_pylist() == [{"c": {"m": []}}] * 2
