"""A stream of Spark that follows every topic by a pattern while they are written, and is stopped and started meanwhile.

Each micro-batch is kept by its number. Spark gives a batch again if it was stopped before it was done: it must be the same one.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bk_spark.pulsar.columns import MESSAGE_SCHEMA
from tests.soak.topics.compare import ids_of

PATTERN = "persistent://topics/proof/[^_].*"
"""All but the broker's own."""

EVERY = "3 seconds"
BATCH_BYTES = "4m"
"""Micro-batches are cut, also within topics, when many messages wait."""


class Follower:
    """``directory`` keeps the checkpoint. One thread uses it."""

    def __init__(self, spark: SparkSession, metadata_uri: str, pulsar_uri: str, directory: Path) -> None:
        self.starts = 0
        self.differences: list[str] = []
        self._options = {"metadata": metadata_uri, "pulsarMetadata": pulsar_uri, "topicsPattern": PATTERN}
        self._spark = spark
        self._checkpoint = directory / "checkpoint"
        self._batches: dict[int, pa.Table] = {}
        self._query: StreamingQuery | None = None
        self._batches_at_start = 0

    def start(self) -> None:
        options = {**self._options, "startingOffsets": "earliest", "unreadable": "skip", "maxBytesPerTrigger": BATCH_BYTES}
        rows = self._spark.readStream.format("bookkeeper").options(**options).load()
        writer = rows.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._checkpoint))
        self._query = writer.trigger(processingTime=EVERY).start()
        self.starts += 1
        self._batches_at_start = self.batches

    def restart(self) -> None:
        """Stop wherever it is, and go on from the checkpoint. Raises what ended the query."""
        self.stop()
        self.start()

    def catch_up(self) -> None:
        """Wait for all that there is. Raises what ended the query."""
        assert self._query is not None
        self._query.processAllAvailable()

    def stop(self) -> None:
        assert self._query is not None
        failure = self._query.exception()
        self._query.stop()
        if failure is not None:
            raise failure

    @property
    def is_at_work(self) -> bool:
        """Whether it made a micro-batch since its last start."""
        return self.batches > self._batches_at_start

    @property
    def batches(self) -> int:
        return len(self._batches)

    def rows(self) -> pa.Table:
        """All rows so far, those of a partition by their id; Spark's tasks end in any order."""
        return pa.concat_tables([MESSAGE_SCHEMA.empty_table(), *(self._batches[one] for one in sorted(self._batches))])

    def _take(self, rows: DataFrame, number: int) -> None:
        found = by_id(rows.toArrow().cast(MESSAGE_SCHEMA))
        before = self._batches.get(number)
        if before is not None and not before.equals(found):
            self.differences.append(f"batch {number} had {before.num_rows} rows, and {found.num_rows} when it came again")
        self._batches[number] = found


def by_id(rows: pa.Table) -> pa.Table:
    """Sorted by ledger, entry and index in the batch."""
    return rows.take(pa.array(ids_of(rows).argsort(kind="stable")))
