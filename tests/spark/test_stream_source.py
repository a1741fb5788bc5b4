"""Streams as Spark runs them: tailing, limits, restarts, compaction, truncation, overwrites, progress.

Ref: docs/rules.md, log rules 2, 6, 7 and 10.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster
from tests.cluster.datasource.direct import Direct
from tests.cluster.datasource.streams import compact
from tests.unit.datasource.batches import numbers, wait_until

pytestmark = pytest.mark.timeout(300)
"""A query takes seconds to start: a process for its source, imports in each of Spark's workers, a checkpoint."""


class Collector:
    """A query whose batches are kept: the values of one column, a list for each batch."""

    def __init__(self, spark: SparkSession, uri: str, checkpoint: Path) -> None:
        self._spark = spark
        self._uri = uri
        self._checkpoint = checkpoint
        self.batches: list[list[Any]] = []
        self.queries: list[StreamingQuery] = []

    def start(self, log: str | None, *, column: str = "id", available_now: bool = False, **options: Any) -> StreamingQuery:
        reader = self._spark.readStream.format("bookkeeper").option("metadata", self._uri).options(**options)
        trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}

        def keep(batch: DataFrame, _: int) -> None:
            rows = [row[column] for row in batch.collect()]
            if rows:
                self.batches.append(rows)

        stream = reader.load(log).writeStream.foreachBatch(keep).option("checkpointLocation", str(self._checkpoint))
        self.queries.append(stream.trigger(**trigger).start())
        return self.queries[-1]

    def drain(self, log: str | None, **options: Any) -> list[list[Any]]:
        """Everything there is now, by Trigger.AvailableNow: its batches."""
        before = len(self.batches)
        for remaining in (2, 1, 0):
            try:
                self.start(log, available_now=True, **options).awaitTermination()
                break
            except StreamingQueryException as failure:
                # Spark gives the process of a source ten seconds to start, a constant of PythonWorkerFactory that no setting
                # changes; an overloaded machine does not keep it.
                if remaining == 0 or "failed to connect back" not in str(failure):
                    raise
        return self.batches[before:]

    @property
    def values(self) -> list[Any]:
        return [value for batch in self.batches for value in batch]


@pytest.fixture
def collector(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[[], Collector]]:
    made: list[Collector] = []

    def make() -> Collector:
        made.append(Collector(spark, cluster.metadata_uri, tmp_path / f"checkpoint{len(made)}"))
        return made[-1]

    yield make
    for one in made:
        for query in one.queries:
            query.stop()


def test_a_query_tails_a_live_leader_and_spark_s_appends(collector: Any, direct: Direct, leading: BookKeeper, log: str) -> None:
    """Log rules 2 and 7: the leader is not fenced until the append displaces it."""
    tail = collector()
    writer = leading.open_log(log, create=True).open_writer()
    query = tail.start(log, column="payload", content="entries", cursorName="tail")
    wait_until(lambda: query.recentProgress or query.exception() is not None, 60)
    for number in range(3):
        writer.append(b"%d" % number)
        wait_until(lambda count=number + 1: len(tail.values) == count)
    writer.roll()
    writer.append(b"rolled")
    wait_until(lambda: len(tail.values) == 4)
    direct.write(log, payloads(b"appended"), content="entries")
    wait_until(lambda: len(tail.values) == 5)
    assert tail.values == [b"0", b"1", b"2", b"rolled", b"appended"]
    assert_progress_and_cursor(query, leading, log)


def assert_progress_and_cursor(query: StreamingQuery, bookkeeper: BookKeeper, log: str) -> None:
    """Spark's progress has the latest offset, and the cursor follows it, without another batch."""
    head = bookkeeper.logs.names.head(log, bookkeeper.logs.names.uid(log))

    def shown() -> bool:
        [cursor] = bookkeeper.logs.cursors.all(log, bookkeeper.logs.names.uid(log))
        return cursor.name == "tail" and cursor.position.version == head.version and cursor.lag(head) == 0

    wait_until(shown)
    sources = [json.loads(json.dumps(progress["sources"][0])) for progress in query.recentProgress]
    latest = [json.loads(one["latestOffset"]) for one in sources if one["latestOffset"]]
    assert latest[-1]["version"] == head.version


def payloads(*values: bytes) -> Any:
    import pyarrow as pa

    return pa.record_batch({"payload": pa.array(values, pa.binary())})


def test_available_now_drains_in_limited_batches_and_a_restart_goes_on_from_the_checkpoint(
    collector: Any, direct: Direct, bookkeeper: BookKeeper, log: str
) -> None:
    """Log rules 6 and 7, with a compaction while the query is stopped in the middle of the log."""
    for number in range(3):
        direct.write(log, numbers(number * 2, number * 2 + 1), maxRowsPerEntry=1)
    options = {"startingOffsets": "earliest", "maxRowsPerTrigger": 4}
    one = collector()
    assert one.drain(log, **options) == [[0, 1, 2, 3], [4, 5]]
    assert one.drain(log, **options) == []
    direct.write(log, numbers(6), numbers(7))
    compact(bookkeeper, log)
    direct.write(log, numbers(8))
    assert one.drain(log, **options) == [[6, 7, 8]]
    uncommit(one._checkpoint)
    assert one.drain(log, **options) == [[6, 7, 8]]


def test_the_first_batch_keeps_its_start_when_it_is_repeated(collector: Any, direct: Direct, log: str) -> None:
    """Log rule 6: the checkpoint has the batch's end; what Spark asks for again, the start, is another one by then."""
    direct.write(log, numbers(0))
    one = collector()
    query = one.start(log)
    wait_until(lambda: query.recentProgress or query.exception() is not None, 60)
    query.stop()
    uncommit(one._checkpoint)
    direct.write(log, numbers(1), numbers(2))
    assert one.drain(log) == [[1, 2]]  # the repeated first batch is empty, as it was
    other = collector()
    assert other.drain(log, startingOffsets="earliest") == [[0, 1, 2]]
    uncommit(other._checkpoint)
    assert other.drain(log, startingOffsets="latest") == [[0, 1, 2]]


def uncommit(checkpoint: Path) -> None:
    """As a driver leaves it that was killed after a batch's work and before its commit log."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def here(direct: Direct, log: str) -> str:
    """The offset behind all that there is, for ``startingOffsets``."""
    return json.dumps(direct.stream(log).initialOffset())


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/read/test_micro_batch.py::test_an_overwrite_is_read_or_skipped_as_the_option_says,"
    "tests/cluster/datasource/read/test_micro_batch.py::test_an_overwrite_fails_a_stream_after_all_that_came_before_it"
)
def test_overwrites_fail_a_query_or_are_read_or_skipped(collector: Any, direct: Direct, log: str) -> None:
    """Log rule 6."""
    direct.write(log, numbers(1))
    start = here(direct, log)
    direct.write(log, numbers(2), overwrite=True)
    direct.write(log, numbers(3))
    assert collector().drain(log, startingOffsets=start, overwrites="read") == [[2, 3]]
    assert collector().drain(log, startingOffsets=start, overwrites="skip") == [[3]]
    with pytest.raises(Exception, match=f"LogReplacedError: version 2 of log '{log}' replaced content"):
        collector().drain(log, startingOffsets=start)


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/read/test_large_rows.py::test_streams_give_every_row_once_whatever_their_limits,"
    "tests/spark/test_source.py::test_rows_above_the_maximum_entry_are_read_back_and_compacted"
)
def test_a_row_above_the_maximum_entry_comes_once_in_a_batch_of_its_own(collector: Any, direct: Direct, log: str) -> None:
    data = [bytes(1), random.Random(1).randbytes(17 << 20), bytes(2)]
    direct.write(log, pa.record_batch({"id": data}))
    batches = collector().drain(log, startingOffsets="earliest", maxRowsPerTrigger=1)
    assert [[bytes(row) for row in batch] == [one] for batch, one in zip(batches, data, strict=True)] == [True] * 3


def test_a_query_stops_at_a_wider_type_and_its_restart_reads_on(collector: Any, direct: Direct, log: str) -> None:
    direct.write(log, pa.record_batch({"id": pa.array([1], pa.int32())}))
    tail = collector()
    query = tail.start(log, startingOffsets="earliest")
    wait_until(lambda: tail.values == [1] or query.exception() is not None, 60)
    direct.write(log, numbers(2**40), mergeSchema=True)
    wait_until(lambda: query.exception() is not None, 60)
    assert "'id' is int64 in version 2, the stream reads int32: restart the query" in str(query.exception())
    assert tail.drain(log, startingOffsets="earliest") == [[2**40]]


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/read/test_micro_batch.py::test_truncation_that_overtook_a_stream_is_an_error_or_skipped,"
    "tests/spark/test_user_errors.py::test_a_stream_that_cannot_be_read_ends_in_one_clear_sentence"
)
def test_truncation_that_overtook_a_query_fails_it_or_is_skipped(
    collector: Any, direct: Direct, bookkeeper: BookKeeper, log: str
) -> None:
    """Log rule 10."""
    direct.write(log, numbers(0))
    start = here(direct, log)
    for number in range(1, 4):
        direct.write(log, numbers(number))
    third = bookkeeper.logs.reader.snapshot(log).ledgers[2].ledger_id
    bookkeeper.logs.truncate(log, bookkeeper.logs.names.uid(log), third)
    with pytest.raises(Exception, match=r"DataLossError: rows of log .* was truncated; to go on .* failOnDataLoss to false"):
        collector().drain(log, startingOffsets=start)
    assert collector().drain(log, startingOffsets=start, failOnDataLoss="false") == [[2, 3]]


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/test_ledger_stream.py::test_a_run_until_now_ends_there_and_the_next_one_goes_on,"
    "tests/cluster/datasource/test_ledger_stream.py::test_the_first_batch_keeps_its_start_when_spark_repeats_it_after_a_restart,"
    "tests/spark/test_examples.py::test_the_examples_of_a_page_run"
)
def test_a_stream_over_one_ledger_goes_on_from_its_checkpoint_with_each_entry_once(collector, bookkeeper: BookKeeper) -> None:
    found = collector()
    with bookkeeper.create_ledger() as writer:
        writer.append_batch([b"0", b"1", b"2"])
        asked = {"ledger": writer.ledger_id, "column": "payload", "startingOffsets": "earliest"}
        found.drain(None, **asked)
        writer.append_batch([b"3", b"4"])
    found.drain(None, **asked)
    assert [bytes(value) for value in found.values] == [b"0", b"1", b"2", b"3", b"4"]
