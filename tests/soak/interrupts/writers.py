"""The calls of writers that are interrupted, and the judge: what an interrupt may leave behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bk_spark.client.ledger.write_handle import AdvWriteHandle, WriteHandle
from bk_spark.client.log.leader.leadership import CreatedLedger, end_of
from bk_spark.client.log.leader.log_write_handle import LogWriteHandle
from bk_spark.client.log.leader.roll_log import RollLimits
from bk_spark.client.log.rows.row_buffer import RowLimits
from bk_spark.client.log.rows.row_entries import RowEntries, RowLeader, RowNumbers
from bk_spark.client.log.rows.row_form import RowForm
from bk_spark.client.log.rows.row_writer import RowWriteHandle
from bk_spark.client.log.stored.values import CommittedLedger
from bk_spark.config import ClientConfig
from bk_spark.rows.codec import PayloadFormat, RowEncoder
from tests.soak.interrupts.bookies import MemoryClient
from tests.soak.interrupts.injection import Interruption

CONFIG = ClientConfig(add_window_bytes=8_000, add_batch_bytes=4_000, explicit_lac_s=3_600.0)
LARGE = bytes(3_000)
DEADLINE_S = 5.0
COLUMNS = pa.schema([("i", pa.int64())])


class FoundError(AssertionError):
    """An interrupt left something behind."""


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise FoundError(what)
        time.sleep(0.0005)


@dataclass(frozen=True, slots=True)
class Case:
    """One public call, of a writer that ``make`` makes."""

    name: str
    make: Callable[[MemoryClient], Any]
    call: Callable[[Any], Any]
    after: Callable[[Any], Any]
    """What must work after it."""
    is_full: bool = False
    """Whether the window is full when the call is made, and gets room a moment later."""


def ledger(client: MemoryClient) -> WriteHandle:
    return WriteHandle(client.context, client.ledger(), 0)


def adv_ledger(client: MemoryClient) -> AdvWriteHandle:
    return AdvWriteHandle(client.context, client.ledger(), 0)


class _Leadership:
    """Lists ledgers in memory."""

    name, epoch = "orders", 1

    def __init__(self, client: MemoryClient) -> None:
        self._client = client

    def create(self) -> CreatedLedger:
        return CreatedLedger(ledger(self._client), job=None)  # type: ignore[arg-type]

    def list_next(self, created: CreatedLedger, ends: object) -> None: ...

    def record(self, ends: object) -> None: ...

    def end_of(self, one: WriteHandle) -> CommittedLedger:
        return end_of(one)


def log_writer(client: MemoryClient, roll_bytes: int = 10**9) -> LogWriteHandle:
    leadership: Any = _Leadership(client)
    return LogWriteHandle(leadership, ledger(client), RollLimits(roll_bytes, CONFIG.add_window_bytes))


def rolling_log_writer(client: MemoryClient) -> LogWriteHandle:
    """Each entry fills a ledger."""
    return log_writer(client, roll_bytes=1)


def row_writer(client: MemoryClient) -> RowWriteHandle:
    limits = RowLimits("orders", 1_000, 100_000, 0.05)
    encoder = RowEncoder("orders", COLUMNS, PayloadFormat(compression="none", max_rows=1_000, max_bytes=100_000))
    numbers = RowNumbers("{}", merge_schema=False)
    return RowWriteHandle(
        RowLeader(log_writer(client), RowForm("orders", COLUMNS), RowEntries(encoder, numbers, limits), limits)
    )


def _next_entry(writer: Any) -> Any:
    return writer.append_async(b"after").result(DEADLINE_S)


def _next_row(writer: Any) -> Any:
    return writer.append({"i": 2})


CASES = (
    Case("append", ledger, lambda one: one.append(b"x"), _next_entry),
    Case("append_async", ledger, lambda one: one.append_async(b"x"), _next_entry),
    Case("append_async without room", ledger, lambda one: one.append_async(LARGE), _next_entry, is_full=True),
    Case("append_batch", ledger, lambda one: one.append_batch([b"x", b"y"]), _next_entry),
    Case("append_batch without room", ledger, lambda one: one.append_batch_async([LARGE] * 9), _next_entry, is_full=True),
    Case("append_batch of an array", ledger, lambda one: one.append_batch(pa.array([b"x", LARGE])), _next_entry),
    Case("force", ledger, lambda one: one.force(), _next_entry),
    Case("close", ledger, lambda one: one.close(), lambda one: one.close()),
    Case("append of an id", adv_ledger, lambda one: one.append(0, b"x"), lambda one: one.append_async(7, b"y").done()),
    Case("append to a log", log_writer, lambda one: one.append(b"x"), _next_entry),
    Case("append_async to a log", log_writer, lambda one: one.append_async(b"x"), _next_entry),
    Case("append_async to a log without room", log_writer, lambda one: one.append_async(LARGE), _next_entry, is_full=True),
    Case("append_batch to a log", log_writer, lambda one: one.append_batch(pa.array([b"x", LARGE])), _next_entry),
    Case(
        "append_batch to a log without room", log_writer, lambda one: one.append_batch([LARGE] * 9), _next_entry, is_full=True
    ),
    Case("append to a log that rolls", rolling_log_writer, lambda one: [one.append(b"x") for _ in range(3)], _next_entry),
    Case("roll of a log", log_writer, lambda one: (one.append_async(b"x"), one.roll()), _next_entry),
    Case("close of a log", log_writer, lambda one: (one.append_async(b"x"), one.close()), lambda one: one.close()),
    Case("append of a row", row_writer, lambda one: one.append({"i": 1}), _next_row),
    Case("append_async of a row", row_writer, lambda one: one.append_async({"i": 1}), _next_row),
    Case("append of a table", row_writer, lambda one: one.append(pa.table({"i": list(range(5))})), _next_row),
    Case("flush of rows", row_writer, lambda one: (one.append_async({"i": 1}), one.flush()), _next_row),
    Case("close of rows", row_writer, lambda one: (one.append_async({"i": 1}), one.close()), lambda one: one.close()),
)


class Sweep:
    """Interrupts one call after the other, at one step after the other."""

    def __init__(self) -> None:
        self.client = MemoryClient(CONFIG)
        self.injections = 0

    def steps(self, case: Case) -> int:
        """How many there are."""
        return self._made(case, 0)

    def interrupt(self, case: Case, step: int) -> None:
        """Raises FoundError."""
        self.injections += 1
        self._made(case, step)

    def close(self) -> None:
        self.client.context.close()

    def _made(self, case: Case, step: int) -> int:
        writer = case.make(self.client)
        others = self._fill(writer) if case.is_full else []
        interruption, threads = Interruption(step), threading.active_count()
        try:
            interruption.during(lambda: case.call(writer))
        except KeyboardInterrupt:
            if step == 0:
                raise
        self._judge(replace(case, name=f"{case.name}, interrupted at step {step}"), writer, others, threads)
        return interruption.steps

    def _fill(self, writer: WriteHandle) -> list[Any]:
        """The bookies stand still until just after the call has begun to wait."""
        self.client.bookie.stand_still()
        others = [writer.append_async(LARGE) for _ in range(2)]
        until(lambda: bool(self.client.bookie.held), "nothing was sent")
        threading.Timer(0.002, self.client.bookie.go_on).start()
        return others

    def _judge(self, case: Case, writer: Any, others: list[Any], threads: int) -> None:
        problems: list[BaseException] = []

        def go_on() -> None:
            try:
                for other in others:
                    other.result(DEADLINE_S)
                case.after(writer)
            except BaseException as problem:
                problems.append(problem)

        going = threading.Thread(target=go_on, daemon=True)
        going.start()
        going.join(DEADLINE_S)
        if going.is_alive() or problems:
            raise FoundError(f"{case.name}: what comes after it {problems or 'never returns'}")
        if isinstance(writer, (RowWriteHandle, LogWriteHandle)):
            self._close(case, writer.close)
        if isinstance(writer, WriteHandle):
            queue = writer._queue
            until(lambda: queue._held_bytes == 0 and not queue._line, f"{case.name}: {queue._held_bytes} bytes are held")
            if not queue._arrivals.has_room(CONFIG.add_window_bytes):
                raise FoundError(f"{case.name}: the window is smaller than it was")
        timers = lambda: sum(isinstance(one, threading.Timer) for one in threading.enumerate())  # noqa: E731
        until(lambda: threading.active_count() - timers() <= threads + 9, f"{case.name}: threads are left")

    def _close(self, case: Case, close: Callable[[], None]) -> None:
        problems: list[BaseException] = []

        def run() -> None:
            try:
                close()
            except BaseException as problem:
                problems.append(problem)

        closing = threading.Thread(target=run, daemon=True)
        closing.start()
        closing.join(DEADLINE_S)
        if closing.is_alive() or problems:
            raise FoundError(f"{case.name}: close {problems or 'never returns'}")
