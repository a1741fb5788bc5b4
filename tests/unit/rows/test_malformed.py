"""Columns whose parts do not fit together, as damaged messages hold them."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from bk_spark.rows.malformed import check_whole

VALUES = 7_777


def test_a_list_of_values_of_a_negative_number_is_malformed() -> None:
    column = pa.array([list(range(VALUES))], pa.list_(pa.int64()))
    batch = pa.record_batch({"x": column})
    message = batch.serialize().to_pybytes()
    node = struct.pack("<qq", VALUES, 0)
    assert message.count(node) == 1
    damaged = pa.ipc.read_record_batch(pa.py_buffer(message.replace(node, struct.pack("<qq", -1, 0))), batch.schema)
    check_whole(column)
    with pytest.raises(pa.ArrowException):
        check_whole(damaged["x"])
