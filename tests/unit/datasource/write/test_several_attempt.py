"""The rows of a batch, apart by the log that each names."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bk_spark.datasource.write.several_attempt import by_name


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], []),
        (["a", "a"], [("a", [0, 1])]),
        (["b", "a", "b", "c", "a"], [("b", [0, 2]), ("a", [1, 4]), ("c", [3])]),
    ],
)
def test_rows_come_by_name_in_their_order(names: list[str], expected: list[tuple[str, list[int]]]) -> None:
    rows = pa.record_batch({"n": pa.array(range(len(names)), pa.int64())})
    found = by_name(pa.array(names, pa.string()), rows)
    assert [(name, part.column("n").to_pylist()) for name, part in found] == expected
