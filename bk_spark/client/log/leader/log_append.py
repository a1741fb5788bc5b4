"""One append of a log's leader, until its ledger is known, and after."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from bk_spark.client.ledger.payloads import CheckedPayloads
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.client.ledger.write_items import new_future
from bk_spark.client.log.entry_range import LogPosition


@dataclass(frozen=True, slots=True, eq=False)
class LogAppend:
    """One call of the application. Its arguments are checked before, so a later failure is one of the writer."""

    payload: bytes | CheckedPayloads
    """One entry; or several, which go to one ledger with nothing else between them."""
    nbytes: int
    """As windows and rolls count it: payloads, with ENTRY_OVERHEAD_BYTES for each entry."""
    future: Future[Any] = field(default_factory=new_future)

    @property
    def count(self) -> int:
        """Entries."""
        return 1 if isinstance(self.payload, bytes) else len(self.payload)

    @property
    def largest(self) -> int:
        """The bytes of the largest entry, as it is stored."""
        return len(self.payload) if isinstance(self.payload, bytes) else int(self.payload.sizes.max())

    def send(self, ledger: WriteHandle) -> Future[Any]:
        """On the event loop: what has no room in the ledger's window stands in its line."""
        if isinstance(self.payload, bytes):
            return ledger.append_async(self.payload)
        return ledger.append_batch_async(self.payload)

    def owned(self) -> LogAppend:
        """The same call, for a ledger that takes it once the call is over: in memory of our own."""
        return self if isinstance(self.payload, bytes) else replace(self, payload=self.payload.owned())

    def confirm(self, ledger_id: int, result: Any) -> None:
        """``result`` is what the future of ``send`` held."""
        if isinstance(self.payload, bytes):
            self.future.set_result(LogPosition(ledger_id, result))
        else:
            first, last = result
            self.future.set_result((LogPosition(ledger_id, first), LogPosition(ledger_id, last)))
