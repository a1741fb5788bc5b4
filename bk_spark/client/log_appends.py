"""Appends to a log: what is sent to whichever ledger it is that takes them, and what their callers are told."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from bk_spark.client.log_leadership import LedgerWriter
from bk_spark.client.log_read import LogPosition
from bk_spark.client.write_handle import Payloads, checked_payload, checked_payloads
from bk_spark.client.write_items import new_future
from bk_spark.digest import payload_sizes
from bk_spark.entry import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import BookKeeperError


class LogAppend(Protocol):
    """One call of the application. Checked when it is made: a later failure is one of the writer."""

    nbytes: int
    """As windows and rolls count it: payloads, with ENTRY_OVERHEAD_BYTES for each entry."""

    def send(self, ledger: LedgerWriter) -> Future[Any]:
        """Waits while the ledger's window is full."""

    def confirm(self, ledger_id: int, result: Any) -> None:
        """``result`` is what the future of ``send`` held."""

    def fail(self, error: BookKeeperError) -> None: ...


class EntryAppend:
    """Of one entry."""

    def __init__(self, payload: bytes) -> None:
        self._payload = checked_payload(payload)
        self.nbytes = len(self._payload) + ENTRY_OVERHEAD_BYTES
        self.future: Future[LogPosition] = new_future()

    def send(self, ledger: LedgerWriter) -> Future[Any]:
        return ledger.append_async(self._payload)

    def confirm(self, ledger_id: int, result: Any) -> None:
        self.future.set_result(LogPosition(ledger_id, result))

    def fail(self, error: BookKeeperError) -> None:
        self.future.set_exception(error)


class BatchAppend:
    """Of several entries, which stand together."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = checked_payloads(payloads)
        self.nbytes = int(payload_sizes(self._payloads).sum()) + len(self._payloads) * ENTRY_OVERHEAD_BYTES
        self.future: Future[tuple[LogPosition, LogPosition]] = new_future()

    def send(self, ledger: LedgerWriter) -> Future[Any]:
        return ledger.append_batch_async(self._payloads)

    def confirm(self, ledger_id: int, result: Any) -> None:
        first, last = result
        self.future.set_result((LogPosition(ledger_id, first), LogPosition(ledger_id, last)))

    def fail(self, error: BookKeeperError) -> None:
        self.future.set_exception(error)
