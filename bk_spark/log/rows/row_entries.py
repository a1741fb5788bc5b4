"""Makes entries of the rows that wait, and numbers them in their ledgers.

Each payload says how many rows stand before it in its ledger, so whoever recovers the ledger counts its rows by reading one
entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.config import MAX_ENTRY_BYTES
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import EntryTooLargeError
from bk_spark.log.leader.log_append import LogAppend
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from bk_spark.log.rows.row_buffer import RowCall, RowLimits
from bk_spark.log.rows.row_form import RowForm
from bk_spark.rows.codec import NUMBER_BYTES, RowEncoder, numbered
from bk_spark.rows.gathering import gathered_batches

MAX_LED_BYTES = MAX_ENTRY_BYTES - 64
"""A leader's payload is one entry, and gets its number of rows besides: parts of a larger one could be read before the last."""

_Future = TypeVar("_Future")


@dataclass
class RowNumbers:
    """How many rows this leader has written to each of its ledgers. What ``leadership.RowsWritten`` asks for."""

    schema_json: str
    merge_schema: bool
    _rows: dict[int, int] = field(default_factory=dict)

    def in_ledger(self, ledger_id: int) -> int:
        return self._rows.get(ledger_id, 0)

    def add(self, ledger_id: int, rows: int) -> None:
        """A leader has two open ledgers at most; what older ones held is recorded."""
        self._rows[ledger_id] = self.in_ledger(ledger_id) + rows
        for old in list(self._rows)[:-3]:
            del self._rows[old]


@dataclass(frozen=True, slots=True, eq=False)
class RowAppend(LogAppend):
    """One entry of rows. It is numbered when its ledger is known."""

    rows: int = 0
    numbers: RowNumbers | None = None

    def send(self, ledger: WriteHandle) -> Future[Any]:
        assert self.numbers is not None
        assert isinstance(self.payload, pa.Buffer)
        sent = ledger.append_async(numbered(self.payload, self.numbers.in_ledger(ledger.ledger_id)))
        self.numbers.add(ledger.ledger_id, self.rows)
        return sent

    @property
    def largest(self) -> int:
        assert isinstance(self.payload, pa.Buffer)
        return len(self.payload) + NUMBER_BYTES


@dataclass(frozen=True, slots=True)
class RowGroup(Generic[_Future]):
    """Calls, one behind the other, whose rows share entries; or one call whose rows cannot be written."""

    futures: list[_Future]
    entries: list[RowAppend]
    problem: Exception | None = None


class RowEntries:
    """Encodes calls in their order. One thread uses it at a time."""

    def __init__(self, encoder: RowEncoder, numbers: RowNumbers, limits: RowLimits) -> None:
        self._encoder = encoder
        self._numbers = numbers
        self._limits = limits

    def of(self, calls: Sequence[RowCall[_Future]]) -> list[RowGroup[_Future]]:
        """All of them together; or, where that fails, halves, so that only the call at fault fails and few entries are made."""
        try:
            batches = [batch for call in calls for batch in call.batches]
            return [RowGroup([call.future for call in calls], self._encoded(batches))]
        except Exception as problem:
            if len(calls) == 1:
                return [RowGroup([calls[0].future], [], problem)]
        middle = len(calls) // 2
        return [*self.of(calls[:middle]), *self.of(calls[middle:])]

    def _encoded(self, batches: list[pa.RecordBatch]) -> list[RowAppend]:
        # Up to twice the limits are one piece, so that what has just reached a limit is.
        pieces = gathered_batches(batches, 2 * self._limits.max_rows, 2 * self._limits.max_bytes)
        entries = []
        for payload, rows in (encoded for piece in pieces for encoded in self._encoder.encode(piece)):
            if payload.size > MAX_LED_BYTES:
                raise EntryTooLargeError(payload.size, MAX_LED_BYTES)
            entries.append(RowAppend(payload, payload.size + ENTRY_OVERHEAD_BYTES, rows=rows, numbers=self._numbers))
        return entries


@dataclass(frozen=True, slots=True)
class RowLeader:
    """A leader of a log of rows, and what turns rows into its entries: what every row writer is made of."""

    handle: LogWriteHandle
    form: RowForm
    entries: RowEntries
    limits: RowLimits
