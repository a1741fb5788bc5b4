"""The calls of writers that are interrupted: of ledgers, of logs, and of rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bk_spark.client.ledger.write_handle import AdvWriteHandle, WriteHandle
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.leader.leadership import CreatedLedger, end_of
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from bk_spark.log.leader.roll_log import RollLimits
from bk_spark.log.rows.row_buffer import RowLimits
from bk_spark.log.rows.row_entries import RowEntries, RowLeader, RowNumbers
from bk_spark.log.rows.row_form import RowForm
from bk_spark.log.rows.row_writer import RowWriteHandle
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.rows.codec import PayloadFormat, RowEncoder
from tests.soak.interrupts.bookies import MemoryClient
from tests.soak.interrupts.case import CONFIG, LARGE, Case
from tests.soak.interrupts.judge import DEADLINE_S, FoundError, in_time, until

COLUMNS = pa.schema([("i", pa.int64())])
AFTER = b"after"


def ledger(client: MemoryClient) -> WriteHandle:
    return WriteHandle(client.context, client.ledger(), 0)


def adv_ledger(client: MemoryClient) -> AdvWriteHandle:
    return AdvWriteHandle(client.context, client.ledger(), 0)


class Leadership:
    """Lists ledgers in memory."""

    name, epoch = "orders", 1

    def __init__(self, client: MemoryClient) -> None:
        self._client = client

    def create(self) -> CreatedLedger:
        return CreatedLedger(ledger(self._client), job=None)  # type: ignore[arg-type]

    def list_next(self, created: CreatedLedger) -> None: ...

    def record(self, end: object) -> None: ...

    def tier_wait(self) -> None: ...

    def end_of(self, one: WriteHandle) -> CommittedLedger:
        return end_of(one)


def log_writer(client: MemoryClient, roll_bytes: int = 10**9) -> LogWriteHandle:
    leadership: Any = Leadership(client)
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
    return writer.append_async(AFTER).result(DEADLINE_S)


def _next_row(writer: Any) -> Any:
    return writer.append({"i": 2})


def _check_window(queue: Any, name: str) -> None:
    """It is as large as it was, to the byte."""
    arrivals = queue._arrivals if hasattr(queue, "_arrivals") else queue._calls
    held = lambda: arrivals._sum() - arrivals._settled_bytes  # noqa: E731
    until(lambda: held() == 0, lambda: f"{name}: {held()} bytes are held, of no append")


def check_ledger(client: MemoryClient, writer: Any, result: Any, name: str) -> None:
    """What was confirmed is stored, and nothing is between it and the entries before."""
    _check_window(writer._queue, name)
    until(lambda: not writer._queue._line, lambda: f"{name}: calls stand in line")
    stored = client.bookie.payloads(writer.ledger_id)
    if list(stored) != list(range(len(stored))) or (isinstance(result, int) and stored.get(result) != AFTER):
        raise FoundError(f"{name}: confirmed as entry {result}, of {len(stored)} that are stored")


def check_adv(client: MemoryClient, writer: Any, result: Any, name: str) -> None:
    in_time(writer.close, f"{name}: close")


def check_log(client: MemoryClient, writer: LogWriteHandle, result: Any, name: str) -> None:
    in_time(writer.close, f"{name}: close")
    _check_window(writer, name)
    if isinstance(result, LogPosition) and client.bookie.payloads(result.ledger_id).get(result.entry_id) != AFTER:
        raise FoundError(f"{name}: the entry that was confirmed at {result} is not there")


def check_rows(client: MemoryClient, writer: RowWriteHandle, result: Any, name: str) -> None:
    in_time(writer.close, f"{name}: close")
    _check_window(writer, name)
    _check_window(writer._leader.handle, name)
    if isinstance(result, LogPosition) and result.entry_id not in client.bookie.payloads(result.ledger_id):
        raise FoundError(f"{name}: the rows that were confirmed at {result} are not there")


def _ledger_case(name: str, call: Any, *, is_full: bool = False) -> Case:
    return Case(name, ledger, call, _next_entry, check_ledger, is_full)


def _log_case(name: str, call: Any, make: Any = log_writer, *, is_full: bool = False) -> Case:
    return Case(name, make, call, _next_entry, check_log, is_full)


def _row_case(name: str, call: Any) -> Case:
    return Case(name, row_writer, call, _next_row, check_rows)


def _close(writer: Any) -> Any:
    return writer.close()


CASES = (
    _ledger_case("append", lambda one: one.append(b"x")),
    _ledger_case("append_async", lambda one: one.append_async(b"x")),
    _ledger_case("append_async without room", lambda one: one.append_async(LARGE), is_full=True),
    _ledger_case("append_batch", lambda one: one.append_batch([b"x", b"y"])),
    _ledger_case("append_batch without room", lambda one: one.append_batch_async([LARGE] * 9), is_full=True),
    _ledger_case("append_batch of an array", lambda one: one.append_batch(pa.array([b"x", LARGE]))),
    _ledger_case("force", lambda one: one.force()),
    Case("close", ledger, lambda one: (one.append(b"x"), one.close()), _close, check_ledger),
    Case("append of an id", adv_ledger, lambda one: one.append(0, b"x"), lambda one: one.append_async(7, b"y"), check_adv),
    _log_case("append to a log", lambda one: one.append(b"x")),
    _log_case("append_async to a log", lambda one: one.append_async(b"x")),
    _log_case("append_async to a log without room", lambda one: one.append_async(LARGE), is_full=True),
    _log_case("append_batch to a log", lambda one: one.append_batch(pa.array([b"x", LARGE]))),
    _log_case("append_batch to a log without room", lambda one: one.append_batch([LARGE] * 9), is_full=True),
    _log_case("append to a log that rolls", lambda one: [one.append(b"x") for _ in range(3)], rolling_log_writer),
    _log_case("roll of a log", lambda one: (one.append_async(b"x"), one.roll())),
    Case("close of a log", log_writer, lambda one: (one.append_async(b"x"), one.close()), _close, check_log),
    _row_case("append of a row", lambda one: one.append({"i": 1})),
    _row_case("append_async of a row", lambda one: one.append_async({"i": 1})),
    _row_case("append of a table", lambda one: one.append(pa.table({"i": list(range(5))}))),
    _row_case("flush of rows", lambda one: (one.append_async({"i": 1}), one.flush())),
    Case("close of rows", row_writer, lambda one: (one.append_async({"i": 1}), one.close()), _close, check_rows),
)
