"""What tests of writers share: batches of numbers, and waiting."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.rows.codec import RowDecoder

NUMBERS = StructType([StructField("id", LongType())])


def numbers(*values: int) -> pa.RecordBatch:
    """Rows of schema NUMBERS."""
    return pa.record_batch({"id": pa.array(values, pa.int64())})


def numbers_of(bookkeeper: BookKeeper, log: str) -> list[int]:
    """What a log of NUMBERS holds, in its order."""
    found: list[int] = []
    decoder = RowDecoder(pa.schema([("id", pa.int64())]))
    for ledger in bookkeeper.logs.reader.snapshot(log).ledgers:
        for batch in bookkeeper.open_ledger(ledger.ledger_id, recover=False).read(0, ledger.last_entry_id):
            for payload in batch.column("payload"):
                found += decoder.decode(payload.as_buffer(), "an entry").column("id").to_pylist()
    return found


def wait_until(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "still not"
        time.sleep(0.02)
