"""Rows of several lanes in one order."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.log.spans.merged import merged, places_of
from bk_spark.log.stored.by_key.settings import PLACE


def batches(lane: int, places: list[int], sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """Of one lane, in batches of these sizes, and one with the rest."""
    start = 0
    for size in [*sizes, len(places)]:
        if places[start : start + size]:
            some = places[start : start + size]
            yield pa.record_batch({"lane": [lane] * len(some), PLACE: pa.array(some, pa.int64())})
        start += size


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.lists(st.integers(1, 7), max_size=8), min_size=4, max_size=4))
def test_rows_come_once_and_in_order_however_lanes_and_batches_are_cut(lanes: list[int], sizes: list[list[int]]) -> None:
    """``lanes`` has the lane of each place."""
    parts = [[2 * place for place, one in enumerate(lanes) if one == lane] for lane in range(4)]
    found = list(merged([batches(lane, part, sizes[lane]) for lane, part in enumerate(parts)]))
    assert [place for batch in found for place in places_of(batch)] == [2 * place for place in range(len(lanes))]
    assert [lane for batch in found for lane in batch.column("lane").to_pylist()] == lanes


def test_no_lane_is_read_further_than_the_order_needs() -> None:
    asked: list[int] = []

    def lane(number: int, places: list[int]) -> Iterator[pa.RecordBatch]:
        for one in batches(number, places, [1] * len(places)):
            asked.append(number)
            yield one

    rows = merged([lane(0, [1, 2, 3]), lane(1, [10, 11])])
    assert [places_of(next(rows)).tolist() for _ in range(3)] == [[1], [2], [3]]
    assert asked == [0, 1, 0, 0]
