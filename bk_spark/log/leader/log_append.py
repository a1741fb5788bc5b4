"""One append of a log's leader, until its ledger is known, and after."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from bk_spark.client.ledger.payloads import CheckedPayloads
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.client.ledger.write_items import new_future
from bk_spark.log.entry_range import LogPosition


@dataclass(frozen=True, slots=True, eq=False)
class LogAppend:
    """One call of the application. Its arguments are checked before, so a later failure is one of the writer."""

    payload: bytes | pa.Buffer | CheckedPayloads
    """One entry, in memory that nobody changes; or several, which go to one ledger with nothing else between them."""
    nbytes: int
    """As windows and rolls count it: payloads, with ENTRY_OVERHEAD_BYTES for each entry."""
    future: Future[Any] = field(default_factory=new_future)

    @property
    def count(self) -> int:
        """Entries."""
        return len(self.payload) if isinstance(self.payload, CheckedPayloads) else 1

    @property
    def largest(self) -> int:
        """The bytes of the largest entry, as it is stored."""
        return int(self.payload.sizes.max()) if isinstance(self.payload, CheckedPayloads) else len(self.payload)

    def send(self, ledger: WriteHandle) -> Future[Any]:
        """On the event loop: what has no room in the ledger's window stands in its line."""
        if isinstance(self.payload, CheckedPayloads):
            return ledger.append_batch_async(self.payload)
        return ledger.append_async(self.payload)

    def owned(self) -> LogAppend:
        """The same call, for a ledger that takes it once the call is over: in memory of our own."""
        return replace(self, payload=self.payload.owned()) if isinstance(self.payload, CheckedPayloads) else self

    def confirm(self, ledger_id: int, result: Any) -> None:
        """``result`` is what the future of ``send`` held."""
        if isinstance(self.payload, CheckedPayloads):
            first, last = result
            self.future.set_result((LogPosition(ledger_id, first), LogPosition(ledger_id, last)))
        else:
            self.future.set_result(LogPosition(ledger_id, result))
