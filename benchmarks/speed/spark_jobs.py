"""Our data source as a contestant: a table that becomes a new log each time, and a log that is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.speed.ledger_runs import Quorums
from benchmarks.speed.measure import Sample
from benchmarks.speed.processes import usage
from benchmarks.speed.spark_session import PARTITIONS, SparkTable, read_through
from bk_spark import BookKeeper, LocalCluster
from bk_spark.local.process import LocalProcess


class SparkJobs:
    """Three bookies, and Spark jobs on logs of theirs. Close it, or use it in a ``with`` statement."""

    def __init__(self, spark: SparkSession, directory: Path, content: str) -> None:
        with ExitStack() as stack:
            self.cluster = stack.enter_context(LocalCluster(bookies=3, data_dir=directory / "cluster"))
            self.client = stack.enter_context(BookKeeper(self.cluster.metadata_uri))
            self._bookies: Sequence[LocalProcess] = self.cluster.bookies
            self._spark = spark
            self._options = {"metadata": self.cluster.metadata_uri, "content": content}
            self._stack = stack.pop_all()

    @contextmanager
    def at(self, metadata_uri: str, bookies: Sequence[LocalProcess]) -> Iterator[SparkJobs]:
        """The same on another cluster."""
        other = copy(self)
        other._bookies, other._options = bookies, {**self._options, "metadata": metadata_uri}
        with BookKeeper(metadata_uri) as other.client:
            yield other

    def write_and_delete(self, table: SparkTable, quorums: Quorums, **options: str) -> Sample:
        """A job that writes the table to a new log, which is gone afterwards. Figure: CPU seconds of the bookies."""
        before = self._bookies_cpu_s()
        sample = self.write(table, "written", quorums, **options)
        used = self._bookies_cpu_s() - before
        self.client.open_log("written").delete()
        return Sample(sample.seconds, sample.rows, sample.nbytes, {"bookies_cpu_s": used})

    def write(self, table: SparkTable, log: str, quorums: Quorums, **options: str) -> Sample:
        """A job that writes the table to a log, which is not there yet."""
        sizes = {"ensembleSize": quorums.ensemble_size, "writeQuorum": quorums.write_quorum, "ackQuorum": quorums.ack_quorum}
        writer = table.frame.write.format("bookkeeper").options(**self._options, **sizes, **options).mode("append")
        sample = table.timed(lambda: writer.save(log))
        table.check(self.client.open_log(log).snapshot().end_row)
        return sample

    def read(self, expected: SparkTable, log: str) -> Sample:
        """A job that reads a log, which holds that table."""
        return read_through(self.frame(log), expected)

    def frame(self, log: str) -> DataFrame:
        """The log, cut as the table is that was written to it."""
        return self._spark.read.format("bookkeeper").options(**self._options, minPartitions=PARTITIONS).load(log)

    def ledger_ids(self, log: str) -> list[int]:
        return [ledger.ledger_id for ledger in self.client.open_log(log).snapshot().ledgers]

    def _bookies_cpu_s(self) -> float:
        return usage(bookie.pid for bookie in self._bookies if bookie.pid is not None).cpu_s

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> SparkJobs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
