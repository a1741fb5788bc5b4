"""Record batches and payloads put together with their neighbours, within bounds."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.rows.gathering import gathered_batches, gathered_entries, gathered_payloads


def _numbers(*values: int, name: str = "id") -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, pa.int64())})


def _rows(batches: Iterator[pa.RecordBatch]) -> list[list[int]]:
    return [batch.column(0).to_pylist() for batch in batches]


@pytest.mark.parametrize(
    ("sizes", "max_rows", "joined"),
    [
        ([], 10, []),
        ([3], 10, [3]),
        ([3, 2], 10, [5]),
        ([3, 3, 3], 10, [6, 3]),
        ([4, 7], 10, [4, 7]),
        ([20, 1], 10, [20, 1]),
        ([1] * 25, 10, [6, 6, 6, 6, 1]),
        ([0, 3, 0], 10, [3]),
    ],
)
def test_batches_are_joined_until_more_than_half_of_the_rows_are_there(
    sizes: list[int], max_rows: int, joined: list[int]
) -> None:
    batches = [_numbers(*range(size)) for size in sizes]
    assert [len(rows) for rows in _rows(gathered_batches(batches, max_rows, 1 << 20))] == joined


def test_batches_are_joined_until_more_than_half_of_the_bytes_are_there() -> None:
    batches = [_numbers(*range(start, start + 10)) for start in range(0, 100, 10)]  # 80 bytes each
    assert [len(rows) for rows in _rows(gathered_batches(batches, 1000, 300))] == [20] * 5
    assert [len(rows) for rows in _rows(gathered_batches(batches, 1000, 100))] == [10] * 10


def test_rows_stay_in_their_order() -> None:
    batches = [_numbers(*range(start, start + 7)) for start in range(0, 700, 7)]
    found = _rows(gathered_batches(batches, 50, 1 << 20))
    assert [one for rows in found for one in rows] == list(range(700))


def test_batches_of_another_schema_are_not_joined() -> None:
    batches = [_numbers(1), _numbers(2, name="other"), _numbers(3, name="other")]
    assert [batch.schema.names for batch in gathered_batches(batches, 10, 1000)] == [["id"], ["other"]]


def test_a_large_batch_does_not_wait_for_the_next_one() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield _numbers(*range(6))
        raise AssertionError("the next one was asked for")

    assert next(gathered_batches(batches(), 10, 1 << 20)).num_rows == 6


def test_payloads_are_appended_together_up_to_a_bound() -> None:
    payloads = [(pa.py_buffer(bytes([number]) * size), 1) for number, size in enumerate([100, 100, 300, 900, 5000, 10])]
    found = list(gathered_payloads(payloads, 1000 + ENTRY_OVERHEAD_BYTES))
    assert [(len(array), rows) for array, rows in found] == [(3, 3), (1, 1), (1, 1), (1, 1)]
    assert [one for array, _ in found for one in array.to_pylist()] == [payload.to_pybytes() for payload, _ in payloads]
    assert all(array.type == pa.binary() for array, _ in found)


@pytest.mark.parametrize(
    ("sizes", "adds"),
    [
        ([], []),
        ([[]], []),
        ([[1, 2], [3]], [3]),
        ([[40] * 30], [13, 13, 4]),
        ([[40] * 10, [40] * 10, [], [40] * 10], [13, 13, 4]),
        ([[2000, 10], [10, 2000, 2000]], [1, 2, 1, 1]),
        ([[968], [0], [1]], [1, 2]),
    ],
)
def test_entries_are_appended_in_full_adds(sizes: list[list[int]], adds: list[int]) -> None:
    """A bound of 1000 bytes; each entry counts 32 bytes beside its payload."""
    count = iter(range(256))
    arrays = [pa.array([bytes([next(count)]) * size for size in some], pa.binary()) for some in sizes]
    found = list(gathered_entries(iter(arrays), 1000))
    assert [len(array) for array in found] == adds
    assert [one for array in found for one in array.to_pylist()] == [one for array in arrays for one in array.to_pylist()]
