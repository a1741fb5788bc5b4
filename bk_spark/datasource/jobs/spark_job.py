"""A Spark job that runs numbered tasks on the executors and collects the rows that they give.

It is a DataFrame job, ``mapInArrow`` over a range, so it runs on classic Spark and on Spark Connect alike. ``bk_spark`` must be
importable on the executors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from bk_spark.datasource.worker_python import use_this_python
from bk_spark.errors import JobFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OUR_ERROR = re.compile(r"^bk_spark\.errors\.\w+: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SparkJob:
    """``what`` names the job and ``consequence`` says what its failure leaves, both in JobFailedError."""

    what: str
    consequence: str
    task: Callable[[int], list[dict[str, Any]]]
    """The number of a task → its rows, with the fields of ``result``. Pickled to every task."""
    result: pa.Schema

    def run(self, spark: SparkSession, count: int) -> list[Any]:
        """Run the tasks 0 to ``count`` - 1 and return all their rows, in any order. Raises JobFailedError."""
        use_this_python(spark)
        frame = spark.range(0, count, 1, count).mapInArrow(self._rows, from_arrow_schema(self.result))
        try:
            return frame.collect()
        except (PySparkException, Py4JJavaError) as problem:
            raise JobFailedError(self.what, _sentence_of(problem), self.consequence) from None

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pylist(self.task(number), schema=self.result)


def _sentence_of(problem: Exception) -> str:
    """The message of one of our errors that a task raised; else the first line of Spark's message."""
    ours = _OUR_ERROR.findall(str(problem))
    return str(ours[-1]) if ours else next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)


@contextmanager
def session(master: str, *, show_progress: bool) -> Iterator[SparkSession]:
    """A Spark session for one job. It is ended afterwards, unless this process had one before: then that one is used.

    ``show_progress`` draws Spark's bar on stderr.
    """
    from pyspark.sql import SparkSession

    had_one = SparkSession.getActiveSession() is not None
    builder = SparkSession.builder.master(master).appName("bk-spark").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", str(show_progress).lower()).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        if not had_one:
            spark.stop()
