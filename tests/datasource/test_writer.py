"""Task attempts that fail, jobs that fail: each row once, and nothing left behind."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.log_layout import CommitKind, CommittedLedger
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.writer import LedgerMessage, LogWriter
from bk_spark.errors import ConfigError, JobEndedError
from bk_spark.local_cluster import LocalCluster

ROOT = Path(__file__).parents[2]

RETRY = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark import TaskContext
from pyspark.sql import SparkSession

def fails_at_first(batches):
    context = TaskContext.get()
    for batch in batches:
        yield batch
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        raise RuntimeError("this attempt fails after its rows were written")

uri, log = sys.argv[1:]
spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = spark.range(0, 60000, 1, 3).mapInArrow(fails_at_first, "id bigint")
rows.write.format("bookkeeper").option("metadata", uri).mode("append").save(log)
"""


def wait_until(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "still not"
        time.sleep(0.05)


def rows_of(spark, cluster: LocalCluster, log: str) -> list[int]:
    return [row.id for row in spark.read.format("bookkeeper").option("metadata", cluster.metadata_uri).load(log).collect()]


def test_a_task_that_fails_and_is_retried_leaves_each_row_once(spark, cluster, bookkeeper: BookKeeper, log, tmp_path) -> None:
    script = tmp_path / "retry.py"
    script.write_text(RETRY)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    before = set(bookkeeper.list_ledgers())
    command = [sys.executable, str(script), cluster.metadata_uri, log]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert rows_of(spark, cluster, log) == list(range(60000))
    assert len(set(bookkeeper.list_ledgers()) - before) == 3


def test_a_job_that_fails_leaves_the_log_as_it_was_and_no_ledger(spark, cluster, bookkeeper: BookKeeper, log) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise RuntimeError("every attempt fails after its rows were written")

    source = spark.range(5).write.format("bookkeeper").option("metadata", cluster.metadata_uri).mode("append")
    source.save(log)
    before = set(bookkeeper.list_ledgers())
    for mode in ("append", "overwrite"):
        failing = spark.range(0, 60000, 1, 3).mapInArrow(fails, "id bigint").write.format("bookkeeper")
        with pytest.raises(Exception, match="every attempt fails"):
            failing.option("metadata", cluster.metadata_uri).mode(mode).save(log)
    wait_until(lambda: set(bookkeeper.list_ledgers()) == before)
    assert rows_of(spark, cluster, log) == list(range(5))
    assert len(bookkeeper.logs.versions(log)) == 1


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(values, pa.int64())})


@pytest.fixture
def writer(cluster: LocalCluster, bookkeeper: BookKeeper, log: str) -> LogWriter:
    from pyspark.sql.types import LongType, StructField, StructType

    options = SourceOptions(metadata=cluster.metadata_uri, path=log)
    schema = StructType([StructField("id", LongType())])
    return LogWriter(options, bookkeeper.logs.begin_job(log), CommitKind.APPEND, schema)


def test_a_task_without_rows_makes_no_ledger(writer: LogWriter, bookkeeper: BookKeeper) -> None:
    before = set(bookkeeper.list_ledgers())
    assert writer.write(iter([numbers().slice(0, 0)])).ledger is None
    assert set(bookkeeper.list_ledgers()) == before


def test_the_message_tells_what_was_written(writer: LogWriter, bookkeeper: BookKeeper) -> None:
    ledger = pickle.loads(pickle.dumps(writer)).write(iter([numbers(1, 2), numbers(3)])).ledger
    metadata = bookkeeper.ledger_metadata(ledger.ledger_id)
    assert ledger == CommittedLedger(metadata.ledger_id, 1, metadata.length, 3)
    assert metadata.is_closed
    assert metadata.last_entry_id == 1


def test_ledgers_are_committed_in_the_order_of_partitions_and_losers_are_deleted(writer, bookkeeper: BookKeeper, log) -> None:
    second, loser, first = (writer.write(iter([numbers(n)])) for n in (2, 9, 1))
    writer.commit([first, LedgerMessage(first.job_id, None), second])
    assert [one.ledger_id for one in bookkeeper.logs.snapshot(log).ledgers] == [first.ledger.ledger_id, second.ledger.ledger_id]
    assert loser.ledger.ledger_id not in set(bookkeeper.list_ledgers())


def test_messages_of_another_job_are_refused_and_nothing_is_committed(writer, bookkeeper: BookKeeper, log) -> None:
    mine = writer.write(iter([numbers(1)]))
    for stranger in (LedgerMessage("another", mine.ledger), None):
        with pytest.raises(ConfigError, match="nothing is committed"):
            writer.commit([mine, stranger])
    assert log not in bookkeeper.list_logs()


def test_an_attempt_that_fails_leaves_its_ledger_closed(writer, bookkeeper: BookKeeper) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield numbers(1)
        raise RuntimeError("upstream")

    before = set(bookkeeper.list_ledgers())
    with pytest.raises(RuntimeError, match="upstream"):
        writer.write(rows())
    (made,) = set(bookkeeper.list_ledgers()) - before
    assert bookkeeper.ledger_metadata(made).is_closed


def test_after_an_abort_a_late_attempt_cannot_write(writer, bookkeeper: BookKeeper) -> None:
    before = set(bookkeeper.list_ledgers())
    writer.write(iter([numbers(1)]))
    writer.abort([None])
    with pytest.raises(JobEndedError):
        writer.write(iter([numbers(2)]))
    assert set(bookkeeper.list_ledgers()) == before


def test_an_abort_after_a_commit_deletes_nothing(writer, spark, cluster, log) -> None:
    message = writer.write(iter([numbers(1, 2)]))
    writer.commit([message])
    writer.abort([message])
    assert rows_of(spark, cluster, log) == [1, 2]


def test_the_password_is_in_no_text_of_a_writer(cluster, bookkeeper: BookKeeper, log) -> None:
    options = SourceOptions(metadata=cluster.metadata_uri, path=log, password=b"s3cret")
    writer = LogWriter(options, bookkeeper.logs.begin_job(log), CommitKind.APPEND, None)
    assert "s3cret" not in repr(writer) + str(vars(writer))
