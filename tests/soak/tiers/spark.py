"""Spark takes part in a run: a streaming query copies the log into another one, and batches read old versions."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bk_spark import BookKeeper, register
from bk_spark.errors import BookKeeperError, ConfigError, NoSuchLedgerError, NoSuchLogError
from tests.checkout import ROOT
from tests.soak.tiers.rows import LOG, Row, read_rows

COPY = "streamed"
TICK_S = 0.2
BUSY = "Python worker failed to connect back"
"""What Spark tells where a machine is too busy to start Python within 10 s."""


class SparkBusyError(BookKeeperError):
    """It says nothing of the log: try again."""

    retryable = True
    sentence = BUSY


@contextmanager
def spark_readers(uri: str, folder: Path) -> Iterator[SparkReaders]:
    """With a session of their own."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.host", "127.0.0.1")
    session = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    register(session)
    try:
        yield SparkReaders(session, uri, folder)
    finally:
        session.stop()


class SparkReaders:
    """One query has its checkpoint below ``folder``, so it goes on where it was, however often it is ended."""

    def __init__(self, spark: SparkSession, uri: str, folder: Path) -> None:
        self._spark = spark
        self._uri = uri
        self._checkpoint = str(folder / "checkpoint")

    def version(self, version: int) -> list[Row]:
        """The rows of a version. Raises ConfigError where Spark was told that the log does not keep it."""
        try:
            return read_rows(self._read().option("versionAsOf", version).load(LOG).toArrow())
        except Exception as problem:
            if any(kind.__name__ in str(problem) for kind in (ConfigError, NoSuchLedgerError)):
                raise ConfigError("option 'versionAsOf'", version, str(problem)[-2000:]) from problem
            if BUSY in str(problem):
                raise SparkBusyError() from problem
            raise

    def stream_some(self, client: BookKeeper, max_rows: int, beyond_s: float, over: threading.Event) -> None:
        """Until it has written something, and ``beyond_s`` more: it is stopped wherever it is then.

        Raises what ends the query.
        """
        before = self.streamed_rows(client)
        query = self._query(maxRowsPerTrigger=max_rows).trigger(processingTime="100 milliseconds").start()
        try:
            while not over.is_set() and self.streamed_rows(client) == before:
                if query.awaitTermination(TICK_S):
                    raise AssertionError("the query ended, and nobody stopped it")
            query.awaitTermination(beyond_s)
        except Exception as problem:
            if BUSY in str(problem):
                raise SparkBusyError() from problem
            raise
        finally:
            query.stop()

    def streamed_rows(self, client: BookKeeper) -> int:
        """How many rows the query has written."""
        try:
            return sum(one.rows for one in client.open_log(COPY).ledgers())
        except NoSuchLogError:
            return 0

    def finished(self, client: BookKeeper) -> list[Row]:
        """All rows that the query wrote, once it has taken what is there."""
        self._query().trigger(availableNow=True).start().awaitTermination()
        return read_rows(client.open_log(COPY).read_rows().read_all())

    def _query(self, **options: Any) -> Any:
        self._spark.createDataFrame([], "n int")  # makes the session that of this thread, where Spark looks for a stream's sink
        stream = self._spark.readStream.format("bookkeeper").option("metadata", self._uri)
        rows = stream.option("startingOffsets", "earliest").options(**options).load(LOG)
        writing = rows.writeStream.format("bookkeeper").option("metadata", self._uri).option("path", COPY)
        return writing.option("checkpointLocation", self._checkpoint)

    def _read(self) -> Any:
        return self._spark.read.format("bookkeeper").option("metadata", self._uri)
