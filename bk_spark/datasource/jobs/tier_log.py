"""``tier run`` as a Spark job: executors write the files of a step and read them back, the driver does all else.

The protocol is that of ``bk_spark/lake``. Spark may lose tasks, and try them again, as it likes: each try writes files of its
own, and only those that a finished task told of come into the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bk_spark.datasource.connection import connect
from bk_spark.datasource.jobs.spark_job import SparkJob
from bk_spark.datasource.options import SourceOptions, parse_options
from bk_spark.files.file_store import store_with
from bk_spark.lake.file_tasks import FileTasks, WriteTask, Written
from bk_spark.lake.row_source import RowSource
from bk_spark.lake.tier_log import Tiering, TierReport
from bk_spark.log.stored.tier_records import DataFile, LedgerContent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESULT = pa.schema([("place", pa.int64()), ("told", pa.string())])


def tier_log(spark: SparkSession, metadata_uri: str, name: str, *, options: Mapping[str, str] | None = None) -> TierReport:
    """Copy the rows of a log's closed ledgers to its tier, and delete ledgers that have been there for long enough.

    As ``BookKeeper.tier_log``, with files that Spark's executors write and prove, several at a time. ``options`` are those of
    the format ``bookkeeper`` for a read: ``password`` where the ledgers have one. May be called again after any error.

    Raises ConfigError for a log without a tier, or where the driver has no pyiceberg; NoSuchLogError; JobFailedError where
    Spark's job fails; what ``Tiering.run`` raises.
    """
    settings = parse_options({"metadata": metadata_uri, "path": name, **(options or {})})
    settings.check_use("batch read")
    bookkeeper = connect(settings.metadata, settings.client)
    uid = bookkeeper.logs.names.uid(name)
    opener = bookkeeper.log_opener(name, uid, settings.password)
    return Tiering(opener, runner=_OnExecutors(spark, _Access(settings, name, uid))).run()


@dataclass(frozen=True, slots=True)
class _Access:
    """What a task needs to come to the log and its tier."""

    settings: SourceOptions
    name: str
    uid: str

    def tasks(self) -> FileTasks:
        bookkeeper = connect(self.settings.metadata, self.settings.client)
        tier = bookkeeper.logs.reader.tier.known_settings(self.name, self.uid)
        return FileTasks(
            store_with(tier.catalog), RowSource(bookkeeper.log_opener(self.name, self.uid, self.settings.password))
        )


class _OnExecutors:
    """A ``TaskRunner``. One Spark job for each call, with a Spark task for each of the tasks."""

    def __init__(self, spark: SparkSession, access: _Access) -> None:
        self._spark = spark
        self._access = access

    def write(self, tasks: Sequence[WriteTask]) -> Sequence[Written]:
        job = self._job("nothing of it is in the table", partial(_write, self._access, tuple(tasks)))
        return [_written(one) for one in self._run(job, len(tasks))]

    def read(self, tasks: Sequence[Sequence[DataFile]]) -> Sequence[dict[int, LedgerContent]]:
        job = self._job("what it was to prove is not proved", partial(_read, self._access, tuple(tasks)))
        return [_content(one) for one in self._run(job, len(tasks))]

    def _job(self, consequence: str, task: Callable[[int], list[dict[str, Any]]]) -> SparkJob:
        return SparkJob(f"the tiering of log '{self._access.name}'", consequence, task, _RESULT)

    def _run(self, job: SparkJob, count: int) -> list[Any]:
        """What each of the tasks told, in their order."""
        if not count:
            return []
        return [json.loads(row.told) for row in sorted(job.run(self._spark, count), key=lambda row: row.place)]


def _write(access: _Access, tasks: Sequence[WriteTask], place: int) -> list[dict[str, Any]]:
    written = access.tasks().write(tasks[place])
    files = [[one.path, one.size, list(one.ledgers)] for one in written.files]
    return [{"place": place, "told": json.dumps([_told(written.content), files])}]


def _read(access: _Access, tasks: Sequence[Sequence[DataFile]], place: int) -> list[dict[str, Any]]:
    return [{"place": place, "told": json.dumps(_told(access.tasks().read(tasks[place])))}]


def _told(content: Mapping[int, LedgerContent]) -> list[list[object]]:
    return [[ledger_id, one.rows, one.digest] for ledger_id, one in content.items()]


def _content(told: list[Any]) -> dict[int, LedgerContent]:
    return {ledger_id: LedgerContent(rows, digest) for ledger_id, rows, digest in told}


def _written(told: list[Any]) -> Written:
    content, files = told
    return Written(_content(content), tuple(DataFile(path, size, tuple(ledgers)) for path, size, ledgers in files))
