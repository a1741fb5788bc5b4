"""RowWriteHandle: the leader of a log of rows, for programs that have a few rows at a time.

Rows wait until they fill an entry, or until the first of them has waited for ``max_delay_s``. They go to the leader's ledger
(``leader/log_write_handle.py``), in the order in which they were appended. Each payload says how many rows stand before it in
its ledger, so whoever recovers the ledger counts its rows by reading one entry.

Locks: ``_lock`` is held while rows are buffered; ``_sending`` is held from taking the buffer until its payloads are
submitted, so that two flushes do not overtake each other. ``_sending`` is taken first.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from bk_spark.client.driver.event_loop import EventLoop, check_may_wait
from bk_spark.client.ledger.write_handle import ClosedAfterBlock, WriteHandle
from bk_spark.client.ledger.write_items import new_future
from bk_spark.client.log.entry_range import LogPosition
from bk_spark.client.log.leader.log_write_handle import LogAppend, LogWriteHandle, submit
from bk_spark.client.log.rows.append_rows import stream_of
from bk_spark.config import MAX_ENTRY_BYTES
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import ConfigError, EntryTooLargeError, LedgerClosedError, SchemaMismatchError
from bk_spark.rows.arrow_types import Conversion
from bk_spark.rows.codec import MAX_ROWS, RowEncoder, numbered
from bk_spark.rows.gathering import gathered_batches

MAX_DELAY_S = 0.1
"""Rows wait for others for this long: ten entries a second at most while little comes."""

MAX_LED_BYTES = MAX_ENTRY_BYTES - 64
"""A leader's payload is one entry, and gets its number of rows besides: parts of a larger one could be read before the last."""

MOST_DELAY_S = 3600.0
"""A row that waits longer was forgotten."""


@dataclass(frozen=True, slots=True)
class RowLimits:
    """When waiting rows are written. Raises ConfigError for limits that make no sense."""

    log: str
    max_rows: int
    max_bytes: int
    """Before compression."""
    max_delay_s: float

    def __post_init__(self) -> None:
        for name, most in (("max_rows", MAX_ROWS), ("max_bytes", MAX_ENTRY_BYTES)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise ConfigError(name, value, f"it must be a whole number from 1 to {most}")
        delay_s = self.max_delay_s
        if isinstance(delay_s, bool) or not isinstance(delay_s, int | float) or not 0 <= delay_s <= MOST_DELAY_S:
            raise ConfigError("max_delay_s", delay_s, f"it must be a number of seconds from 0 to {MOST_DELAY_S:g}")


@dataclass
class RowNumbers:
    """How many rows this leader has written to each of its ledgers. What ``leadership.RowsWritten`` asks for."""

    schema_json: str
    merge_schema: bool
    lock: threading.Lock = field(default_factory=threading.Lock)
    _rows: dict[int, int] = field(default_factory=dict)

    def in_ledger(self, ledger_id: int) -> int:
        return self._rows.get(ledger_id, 0)

    def add(self, ledger_id: int, rows: int) -> None:
        """A leader has two open ledgers at most; what older ones held is recorded."""
        self._rows[ledger_id] = self.in_ledger(ledger_id) + rows
        for old in list(self._rows)[:-3]:
            del self._rows[old]


@dataclass(frozen=True, slots=True, eq=False)
class _Payload(LogAppend):
    """One entry of rows. It is numbered when its ledger is known."""

    rows: int = 0
    numbers: RowNumbers | None = None

    def send(self, ledger: WriteHandle) -> Future[Any]:
        assert self.numbers is not None
        assert isinstance(self.payload, bytes)
        with self.numbers.lock:  # payloads reach the ledger in the order of their numbers
            sent = ledger.append_async(numbered(pa.py_buffer(self.payload), self.numbers.in_ledger(ledger.ledger_id)))
            self.numbers.add(ledger.ledger_id, self.rows)
        return sent


@dataclass(slots=True)
class _Buffer:
    """Rows that wait, with the future of each append that brought some of them."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    futures: list[Future[LogPosition]] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0
    due_s: float = 0.0


class RowWriteHandle(ClosedAfterBlock):
    """Leads a log of rows: appends rows, each confirmed, until somebody displaces it. Several threads may use it.

    Rows become visible to readers with the entry that they are in, and stay in the order of the calls. Errors are those of
    ``LogWriteHandle``: once displaced, every call raises LedgerFencedError; the outcome of unconfirmed rows is unknown.
    """

    def __init__(
        self, leader: LogWriteHandle, encoder: RowEncoder, schema: pa.Schema, numbers: RowNumbers, limits: RowLimits
    ) -> None:
        self._leader = leader
        self._encoder = encoder
        self._schema = schema
        self._numbers = numbers
        self._limits = limits
        self._buffer = _Buffer()
        self._lock = threading.Condition()
        self._sending = threading.Lock()
        self._last: Future[Any] | None = None
        self._untold: BaseException | None = None
        """Why rows could not be submitted, until a call has raised it: nobody has to look at the futures."""
        self._is_closed = False
        threading.Thread(target=self._flush_when_due, name="bk_spark-row-writer", daemon=True).start()

    @property
    def schema(self) -> pa.Schema:
        """The columns that rows are stored with."""
        return self._schema

    @property
    def ledger_id(self) -> int:
        """The ledger that rows go to; a roll changes it."""
        return self._leader.ledger_id

    def append(self, rows: Any) -> LogPosition:
        """Append rows, and wait until all are confirmed. Returns the entry that holds the last of them."""
        check_may_wait(EventLoop.get())
        appended = self.append_async(rows)
        self._send()
        try:
            return appended.result()
        except BaseException as problem:
            with self._lock:
                if self._untold is problem:
                    self._untold = None
            raise

    def append_async(self, rows: Any) -> Future[LogPosition]:
        """Append rows: Arrow data, a pandas DataFrame, a dict (one row), or a list of dicts. At least one row.

        Columns match by name; missing ones are null. The future holds the entry of the last row, once all are confirmed.
        Waits while too much is unconfirmed. Raises SchemaMismatchError for other columns, ConfigError for a value that would
        be changed, or that is not of its column's type.
        """
        batches = self._conformed(rows)
        future: Future[LogPosition] = new_future()
        with self._lock:
            if self._is_closed:
                raise LedgerClosedError(self.ledger_id)
            if not self._buffer.batches:
                self._buffer.due_s = time.monotonic() + self._limits.max_delay_s
                self._lock.notify_all()
            self._buffer.batches += batches
            self._buffer.futures.append(future)
            self._buffer.rows += sum(batch.num_rows for batch in batches)
            self._buffer.nbytes += sum(batch.nbytes for batch in batches)
            is_full = self._buffer.rows >= self._limits.max_rows or self._buffer.nbytes >= self._limits.max_bytes
        if is_full:
            self._send()
        return future

    def flush(self) -> None:
        """Wait until all rows that were appended before the call are confirmed.

        Raises what failed the writer, and what kept rows from being written where no call has raised it yet.
        """
        check_may_wait(EventLoop.get())
        self._send()
        last = self._last
        if last is not None:
            last.result()
        self._raise_untold()

    def close(self) -> None:
        """Write what waits, wait until it is confirmed, close the ledgers and record their ends. Raises as ``flush``."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        try:
            self._send()
        finally:
            self._leader.close()
        self._raise_untold()

    @property
    def _title(self) -> str:
        return f"the row writer of log '{self._limits.log}'"

    # --- the buffer

    def _conformed(self, rows: Any) -> list[pa.RecordBatch]:
        batches = [self._with_all_columns(batch) for batch in self._batches(rows) if batch.num_rows]
        if not batches:
            raise ConfigError("rows", rows if isinstance(rows, list) else str(rows)[:200], "at least one row is expected")
        return batches

    def _batches(self, rows: Any) -> list[pa.RecordBatch]:
        if isinstance(rows, dict):
            rows = [rows]
        if isinstance(rows, list):
            return [self._from_python(rows)]
        stream = stream_of(rows)
        conversion = Conversion(stream.schema)
        return [conversion.of(batch) for batch in stream]

    def _from_python(self, rows: list[Any]) -> pa.RecordBatch:
        names = {name for row in rows for name in row}
        self._check_columns(names)
        try:
            return pa.RecordBatch.from_pylist(rows, schema=self._schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as problem:
            remedy = f"they do not fit the columns {', '.join(self._schema.names)}: {problem}"
            raise ConfigError("rows", str(rows[0])[:200], remedy) from None

    def _with_all_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self._schema):
            return batch
        self._check_columns(set(batch.schema.names))
        columns = []
        for wanted in self._schema:
            index = batch.schema.get_field_index(wanted.name)
            column = pa.nulls(batch.num_rows, wanted.type) if index < 0 else batch.column(index)
            if not column.type.equals(wanted.type):
                problem = f"column '{wanted.name}' is {wanted.type} in the log and {column.type} in the data: cast it"
                raise SchemaMismatchError(self._limits.log, problem)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _check_columns(self, names: set[str]) -> None:
        extra = sorted(names - set(self._schema.names))
        if extra:
            problem = f"the writer has no column '{extra[0]}', its columns are {', '.join(self._schema.names)}"
            raise SchemaMismatchError(self._limits.log, f"{problem}: open it with a schema that has it, and merge_schema=True")

    def _flush_when_due(self) -> None:
        """The thread: it ends with the writer."""
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._buffer.batches or self._is_closed)
                if self._is_closed:
                    return
                left_s = self._buffer.due_s - time.monotonic()
                if left_s > 0:
                    self._lock.wait(left_s)
                    continue
            self._send()

    # --- sending

    def _send(self) -> None:
        """Submit what waits, in the order in which it was appended. Waits while too much is unconfirmed."""
        with self._sending:
            with self._lock:
                taken, self._buffer = self._buffer, _Buffer()
            if taken.batches:
                self._submit(taken)

    def _submit(self, taken: _Buffer) -> None:
        try:
            # Up to twice the limits are one piece, so that what has just reached a limit is.
            pieces = gathered_batches(taken.batches, 2 * self._limits.max_rows, 2 * self._limits.max_bytes)
            payloads = [payload for piece in pieces for payload in self._encoder.encode(piece)]
            largest = max(payload.size for payload, _ in payloads)
            if largest > MAX_LED_BYTES:
                raise EntryTooLargeError(largest, MAX_LED_BYTES)
            for payload, rows in payloads:
                entry = payload.to_pybytes()
                append = _Payload(entry, len(entry) + ENTRY_OVERHEAD_BYTES, rows=rows, numbers=self._numbers)
                self._last = submit(self._leader, append)
        except BaseException as problem:
            with self._lock:
                self._untold = problem
            for future in taken.futures:
                future.set_exception(problem)
            if not isinstance(
                problem, Exception
            ):  # an interrupt is its thread's; other errors are told, and the writer goes on
                raise
            return
        assert self._last is not None
        # Entries are confirmed in order: with the last one, all are.
        self._last.add_done_callback(lambda done: _tell(taken.futures, done))

    def _raise_untold(self) -> None:
        with self._lock:
            untold, self._untold = self._untold, None
        if untold is not None:
            raise untold


def _tell(futures: list[Future[LogPosition]], done: Future[LogPosition]) -> None:
    problem = done.exception()
    for future in futures:
        if problem is None:
            future.set_result(done.result())
        else:
            future.set_exception(problem)
