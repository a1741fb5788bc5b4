"""The calls of readers that are interrupted: no entry and no row is left out or given twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bk_spark.log.entry_range import LogRange
from bk_spark.log.rows.read_rows import RowReader
from bk_spark.log.rows.side_by_side import SideBySide
from bk_spark.log.stored.values import CommittedLedger, OpenLedger
from tests.soak.interrupts.bookies import MemoryClient
from tests.soak.interrupts.case import Case
from tests.soak.interrupts.judge import DEADLINE_S, FoundError
from tests.soak.interrupts.writers import ledger

ENTRIES = 5
PARTS, BATCHES = 4, 2


@dataclass
class Reading:
    """Batches, and what was given of them so far."""

    batches: Iterator[pa.RecordBatch]
    column: str
    given: Any = None
    """The last batch behind those before it, as pairs: to put it there takes no call, and so no signal comes in between."""

    def go_on(self) -> list[Any]:
        for batch in self.batches:
            self.given = (self.given, batch)
        found: list[Any] = []
        pair = self.given
        while pair is not None:
            found[:0] = pair[1].column(self.column).to_pylist()
            pair = pair[0]
        return found


def _written(client: MemoryClient) -> Any:
    """A ledger, each of whose entries is a batch of its own."""
    writer = ledger(client)
    for number in range(ENTRIES):
        writer.append_async(b"%d" % number).result(DEADLINE_S)
    return writer


def _ledger_read(client: MemoryClient) -> Reading:
    return Reading(client.reader(_written(client).metadata).read(0, ENTRIES - 1), "entry_id")


def _log_read(client: MemoryClient) -> Reading:
    first, last = _written(client), _written(client)
    listed = (CommittedLedger(first.ledger_id, ENTRIES - 1, first.length, ENTRIES), OpenLedger(last.ledger_id, 1))
    metadata = {one.ledger_id: one.metadata for one in (first, last)}
    read = LogRange.of("orders", listed, None, None).read(lambda ledger_id: client.reader(metadata[ledger_id]))
    return Reading(read, "payload")


class _Rows(RowReader):
    """Parts that are read in memory."""

    def __init__(self) -> None:
        self._shown = pa.schema([("i", pa.int64())])

    def read_parts(self) -> pa.RecordBatchReader:
        parts: Any = list(range(PARTS))
        return pa.RecordBatchReader.from_batches(self._shown, self._batches(parts))

    def rows_of(self, part: Any) -> Iterator[pa.RecordBatch]:
        for number in range(part * BATCHES, (part + 1) * BATCHES):
            yield pa.record_batch([pa.array([number])], schema=self._shown)


def _rows_read(client: MemoryClient) -> Reading:
    return Reading(_Rows().read_parts(), "i")


def _rows_without_end(client: MemoryClient) -> Reading:
    """Its threads wait until what they have read ahead is taken."""

    def read(part: int) -> Iterator[pa.RecordBatch]:
        while True:
            yield pa.record_batch([pa.array([part])], names=["i"])

    return Reading(SideBySide(range(PARTS), read, ahead_bytes=100).batches(), "i")


def _check(expected: list[Any]) -> Any:
    def check(client: MemoryClient, subject: object, given: list[Any], name: str) -> None:
        if given != expected:
            raise FoundError(f"{name}: {given} was read, not {expected}")

    return check


def _left(reading: Reading) -> None:
    """Read one batch, and no more."""
    next(reading.batches)
    reading.batches.close()  # type: ignore[attr-defined]


_PAYLOADS = [b"%d" % number for number in range(ENTRIES)]

CASES = (
    Case("read of a ledger", _ledger_read, Reading.go_on, Reading.go_on, _check(list(range(ENTRIES)))),
    Case("read of a log", _log_read, Reading.go_on, Reading.go_on, _check([*_PAYLOADS, *_PAYLOADS])),
    Case("read of rows", _rows_read, Reading.go_on, Reading.go_on, _check(list(range(PARTS * BATCHES)))),
    Case("a read of rows that is left", _rows_without_end, _left, lambda reading: reading.batches.close()),
    Case("a read that is left", _ledger_read, _left, lambda reading: reading.batches.close()),
    Case(
        "the last add confirmed",
        lambda client: client.reader(_written(client).metadata),
        lambda reader: reader.read_last_add_confirmed(),
        lambda reader: reader.read_last_add_confirmed(),
        _check(ENTRIES - 1),  # type: ignore[arg-type]
    ),
)
