"""One task attempt of a write whose rows go to several logs: a column names the log of each row.

The driver does not know the logs before the tasks run. So each log's write job follows from what the driver drew and from the
log's name: all tasks that meet the name take the same job, and a log that is missing gets the same uid from all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.spark_schema import to_arrow
from bk_spark.datasource.write.checks import check_append, lanes_of_write
from bk_spark.datasource.write.task_attempt import create_ledger, payload_format
from bk_spark.errors import ConfigError, State
from bk_spark.log.changes.commit_logs import MAX_LOGS
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.write_ledger import JobRefresh, until_ended, write_ledgers
from bk_spark.rows.codec import PayloadFormat
from bk_spark.rows.conversion import check_dates, check_values
from bk_spark.rows.lane_limits import MAX_LANES
from bk_spark.rows.lanes import split
from bk_spark.rows.writing import row_payloads

MOST_LEDGERS = 1024
"""Of one task at a time: each is open at its bookies, and closed at two writes of metadata."""


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """What one task attempt wrote for one log: a ledger for each lane in which it had rows."""

    job: WriteJob
    ledgers: tuple[CommittedLedger, ...]
    lanes: Lanes


@dataclass(frozen=True, slots=True)
class SeveralAttempt:
    """What all task attempts of a write have in common: made on the driver, pickled to the tasks."""

    options: SourceOptions
    column: str
    """Names the log of each row, and is not written."""
    schema: StructType
    """Of the rows as they are stored."""
    token: str
    """Drawn for each write."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> tuple[WrittenPart, ...]:
        """Write the rows of each lane of each log to a new ledger and close it.

        Raises ConfigError for a null, and for a log that is missing; as ``check_append``; JobEndedError.
        """
        task = _Task(self)
        with JobRefresh(task.refresh_jobs) as refresh:
            payloads = task.payloads(until_ended(batches, refresh))
            return task.parts(write_ledgers(task.create_ledger, payloads, self.options.client.add_window_bytes))

    def job(self, name: str, uid: str | None) -> WriteJob:
        """The write job of one log, the same in all tasks. ``uid``: of the log that is there; None if there is none."""
        drawn = hashlib.sha256(f"{self.token}/{name}".encode()).hexdigest()[:32]
        return WriteJob(name, uid or f"{drawn[:31]}l", drawn, is_new_log=uid is None)


@dataclass(frozen=True, slots=True)
class _Destination:
    """A log that rows of the task go to."""

    number: int
    job: WriteJob
    lanes: Lanes
    timestamps: frozenset[str]
    """Places of dates that the log has as timestamps."""
    cut: PayloadFormat


class _Task:
    """The logs that the rows of one task attempt name, in the order in which they are met."""

    def __init__(self, attempt: SeveralAttempt) -> None:
        self._attempt = attempt
        self._bookkeeper = connect(attempt.options.metadata, attempt.options.client)
        self._destinations: dict[str, _Destination] = {}
        self._logs: dict[int, str] = {}
        """By ledger id."""

    def payloads(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.BinaryArray, int]]:
        """Arrays of payloads with the lane of ``write_ledgers`` and the number of rows in each."""
        options, stored = self._attempt.options, to_arrow(self._attempt.schema)
        what = f"the logs of column '{self._attempt.column}'"
        cut, add_bytes = payload_format(options), options.client.add_batch_bytes
        return row_payloads(what, stored, cut, self._rows(batches), add_bytes, lambda lane: self._of(lane).cut)

    def create_ledger(self, lane: int) -> WriteHandle:
        if len(self._logs) >= MOST_LEDGERS:
            remedy = "write fewer logs at once, or logs of fewer lanes"
            raise ConfigError("the number of ledgers that a task writes at once", MOST_LEDGERS + 1, remedy)
        job = self._of(lane).job
        handle = create_ledger(self._attempt.options, job)
        self._logs[handle.ledger_id] = job.log_name
        return handle

    def _of(self, lane: int) -> _Destination:
        return list(self._destinations.values())[lane // MAX_LANES]

    def refresh_jobs(self) -> None:
        for one in list(self._destinations.values()):
            self._bookkeeper.logs.jobs.refresh(one.job)

    def parts(self, ledgers: tuple[CommittedLedger, ...]) -> tuple[WrittenPart, ...]:
        own: dict[str, list[CommittedLedger]] = {name: [] for name in self._destinations}
        for ledger in ledgers:
            own[self._logs[ledger.ledger_id]].append(ledger)
        return tuple(WrittenPart(one.job, tuple(own[name]), one.lanes) for name, one in self._destinations.items())

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        before = 0
        for batch in batches:
            place = batch.schema.get_field_index(self._attempt.column)
            names, rows = batch.column(place), batch.remove_column(place)
            self._check_nulls(names, before)
            before += batch.num_rows
            for name, part in by_name(names, rows):
                yield from self._of_log(name, part)

    def _of_log(self, name: str, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        destination = self._destinations.get(name) or self._found(name)
        check_values(name, rows)
        checked, first = check_dates(name, rows, destination.timestamps), destination.number * MAX_LANES
        if destination.lanes.count == 1:
            yield first, checked
            return
        for lane, part in split(checked, destination.lanes.columns, destination.lanes.count):
            yield first + lane, part

    def _found(self, name: str) -> _Destination:
        attempt, number = self._attempt, len(self._destinations)
        what = f"the log that column '{attempt.column}' names"
        if number >= MAX_LOGS:
            remedy = f"a batch goes to {MAX_LOGS} logs at most, which are one commit: write fewer logs at once"
            raise ConfigError(what, name, remedy)
        uid = self._bookkeeper.logs.names.find_usable(name)
        if uid is None and not attempt.options.create_logs:
            raise ConfigError(what, name, "there is no such log: make it before, or set option 'createLogs' to true")
        options = replace(attempt.options, path=name, log_column=None, create_logs=False, given=frozenset())
        checked = check_append(self._bookkeeper, options, attempt.schema)
        lanes = lanes_of_write(options, attempt.schema, checked.head, overwrite=False)
        cut = payload_format(options, lanes.columns, checked.read_as)
        found = self._destinations[name] = _Destination(number, attempt.job(name, uid), lanes, checked.timestamps, cut)
        return found

    def _check_nulls(self, names: pa.Array, before: int) -> None:
        if names.null_count:
            row = before + names.is_null().index(True).as_py() + 1
            remedy = "each row names its log there: filter the nulls out, or coalesce them"
            raise ConfigError(f"column '{self._attempt.column}' in row {row} of a Spark partition", State("null"), remedy)


def by_name(names: pa.Array, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each name, in their order. Raises ConfigError for one that is no text: Spark's strings may be any bytes."""
    if not len(names):
        return
    encoded = names.dictionary_encode()
    numbers = encoded.indices.to_numpy(zero_copy_only=False)
    if len(encoded.dictionary) == 1:
        yield _text(encoded.dictionary[0]), rows
        return
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(encoded.dictionary)))
    for number, (first, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        yield _text(encoded.dictionary[number]), rows.take(pa.array(order[first:end]))


def _text(name: pa.StringScalar) -> str:
    try:
        return str(name.as_py())
    except UnicodeDecodeError:
        remedy = "it is no text in UTF-8: correct it, or leave the row out"
        raise ConfigError("log name", name.as_buffer().to_pybytes(), remedy) from None


def log_column_of(options: SourceOptions, schema: StructType) -> str:
    """Option ``logColumn`` as the rows spell it. Raises ConfigError where they have no such column of texts."""
    wanted = str(options.log_column)
    spelt = wanted if wanted in schema.names else next((one for one in schema.names if one.lower() == wanted.lower()), None)
    if spelt is None:
        raise ConfigError("option 'logColumn'", wanted, f"the rows have no such column, they have {', '.join(schema.names)}")
    kind = to_arrow(StructType([schema[spelt]])).field(0).type
    if not pa.types.is_string(kind):
        raise ConfigError(f"column '{spelt}' (option 'logColumn')", str(kind), "it must be a text, the name of a log: cast it")
    return spelt
