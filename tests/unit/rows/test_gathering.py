"""Record batches and payloads put together with their neighbours, within bounds."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.rows import gathering
from bk_spark.rows.gathering import batches_of_lanes, gathered_batches, gathered_entries, gathered_payloads


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
    payloads = [(0, pa.py_buffer(bytes([number]) * size), 1) for number, size in enumerate([100, 100, 300, 900, 5000, 10])]
    found = list(gathered_payloads(payloads, 1000 + ENTRY_OVERHEAD_BYTES))
    assert [(len(array), rows) for _, array, rows in found] == [(3, 3), (1, 1), (1, 1), (1, 1)]
    assert [one for _, array, _ in found for one in array.to_pylist()] == [payload.to_pybytes() for _, payload, _ in payloads]
    assert all(array.type == pa.binary() for _, array, _ in found)


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


# --- lanes


def test_only_batches_of_one_lane_are_joined_and_each_lane_keeps_its_order() -> None:
    batches = [(number % 3, _numbers(number)) for number in range(30)]
    found = list(batches_of_lanes(batches, 8, 1 << 20))
    assert [len(batch) for _, batch in found] == [5, 5, 5, 5, 5, 5]
    for lane in range(3):
        rows = [one for own, batch in found if own == lane for one in batch.column("id").to_pylist()]
        assert rows == list(range(lane, 30, 3))


def test_payloads_of_lanes_are_appended_with_their_own() -> None:
    payloads = [(number % 2, pa.py_buffer(bytes([number])), number) for number in range(6)]
    found = [(lane, array.to_pylist(), rows) for lane, array, rows in gathered_payloads(payloads, 1 << 20)]
    assert found == [(0, [b"\0", b"\2", b"\4"], 6), (1, [b"\1", b"\3", b"\5"], 9)]


def test_what_waits_in_all_lanes_together_is_bounded_and_the_fullest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "WAITING_BYTES", 100)
    taken: list[int] = []

    def batches() -> Iterator[tuple[int, pa.RecordBatch]]:
        for lane, count in [(0, 2), (1, 5), (2, 3), (3, 4), (0, 1), (4, 1)]:  # 8 bytes a row
            taken.append(lane)
            yield lane, _numbers(*range(count))

    found = batches_of_lanes(batches(), 1000, 10_000)
    lane, batch = next(found)
    assert (lane, batch.num_rows, taken) == (1, 5, [0, 1, 2, 3])
    assert [(lane, batch.num_rows) for lane, batch in found] == [(0, 3), (2, 3), (3, 4), (4, 1)]
