"""What Spark is given: batches of a useful size, in order."""

from __future__ import annotations

import pyarrow as pa

from bk_spark.rows.reading import BATCH_BYTES, BATCH_ROWS, joined


def longs(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())})


def test_small_batches_are_joined_in_order_up_to_the_bound() -> None:
    given = [longs(1000 * i, 1000) for i in range(500)]
    found = list(joined(iter(given)))
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(given).combine_chunks())
    assert all(batch.nbytes >= min(BATCH_BYTES, 8 * BATCH_ROWS) for batch in found[:-1])
    assert all(batch.nbytes < BATCH_BYTES + 8000 for batch in found)


def test_rows_without_bytes_are_bounded_by_their_number() -> None:
    found = list(joined(pa.record_batch({"n": pa.nulls(50_000)}) for _ in range(10)))
    assert [batch.num_rows for batch in found] == [150_000, 150_000, 150_000, 50_000]


def test_a_large_batch_passes_uncopied() -> None:
    large = longs(0, BATCH_ROWS * 2)
    assert next(joined(iter([large]))) is large


def test_no_batches_give_none() -> None:
    assert list(joined(iter([]))) == []
