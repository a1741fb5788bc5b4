"""A log with keys in memory, and what a look-up in it must find, by going through all rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import Mock

import pyarrow as pa

from bk_spark.errors import NoSuchLedgerError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.log_handle import LedgerAccess, Log, TierTables
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from bk_spark.rows.codec import PayloadFormat
from bk_spark.rows.conversion import Conversion
from bk_spark.rows.lanes import in_lanes, kind_of_key
from bk_spark.rows.writing import row_payloads
from tests.unit.log.log_world import LogWorld


class Handle:
    """A closed ledger, whose reads are counted."""

    def __init__(self, log: KeyedLog, ledger_id: int) -> None:
        self._log = log
        self.ledger_id = ledger_id

    def read_unconfirmed(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        if self._log.error is not None:
            raise self._log.error
        self._log.reads += [(self.ledger_id, entry_id) for entry_id in range(first, last + 1)]
        payloads = self._log.payloads[self.ledger_id][first : last + 1]
        yield pa.record_batch({"entry_id": list(range(first, last + 1)), "payload": pa.array(payloads, pa.binary())})


class KeyedLog:
    """A log, and all rows of each of its ledgers."""

    def __init__(self, world: LogWorld, key: Sequence[str], lanes: int = 3, *, max_rows: int = 70) -> None:
        self.world = world
        self.key = tuple(key)
        self.lanes = lanes
        self.max_rows = max_rows
        self.has_filters = True
        self.payloads: dict[int, list[bytes]] = {}
        self.rows: dict[int, list[dict[str, Any]]] = {}
        self.reads: list[tuple[int, int]] = []
        """Each entry that was read."""
        self.opened: list[int] = []
        self.error: Exception | None = None
        """What reads raise."""
        self.gone: set[int] = set()
        """Ledgers that bookies do not have."""
        self.log = self.open()

    def open(self) -> Log:
        """As another client, which knows nothing yet."""

        def open_ledger(ledger_id: int) -> Any:
            self.opened.append(ledger_id)
            if ledger_id in self.gone:
                raise NoSuchLedgerError(ledger_id)
            return Handle(self, ledger_id)

        access = LedgerAccess(open_ledger, Mock(), existing_ledgers=lambda ids: [], tables=Mock(spec=TierTables))
        return Log(self.world.logs, "orders", self.world.logs.open("orders", create=True), access)

    def append(self, rows: pa.Table, kind: CommitKind = CommitKind.APPEND, *, merge: bool = False) -> list[int]:
        """Commit rows, a ledger for each lane. Returns the ledgers."""
        conversion = Conversion("orders", rows.schema)
        kinds = tuple(kind_of_key(rows.schema.field(name).type) or "" for name in self.key)
        lanes = Lanes(self.key, kinds, self.lanes)
        key = self.key if self.has_filters else ()
        cut = PayloadFormat(compression="none", max_rows=self.max_rows, max_bytes=1 << 20, key=key)
        batches = [conversion.of(batch) for batch in rows.combine_chunks().to_batches()]
        split = list(in_lanes(batches, self.key, self.lanes))
        payloads: dict[int, list[bytes]] = {}
        counts: dict[int, int] = {}
        for lane, array, count in row_payloads("orders", conversion.stored, cut, split, 1 << 20):
            payloads.setdefault(lane, []).extend(array.to_pylist())
            counts[lane] = counts.get(lane, 0) + count
        job = self.world.logs.jobs.begin("orders")
        ledgers = []
        for lane, entries in sorted(payloads.items()):
            made = self.world.job_ledger(job, len(entries))
            ledgers.append(CommittedLedger(made.ledger_id, made.last_entry_id, made.length, counts[lane], lane))
            self.payloads[made.ledger_id] = entries
            of_lane = [batch for number, batch in split if number == lane]
            self.rows[made.ledger_id] = [row for batch in of_lane for row in batch.to_pylist()]
        schema_json = json.dumps(conversion.schema)
        self.world.logs.commit(job, CommitRequest(kind, tuple(ledgers), schema_json, merge, lanes))
        return [one.ledger_id for one in ledgers]

    def expected(self, deleted_by: str | None = None, version: int | None = None) -> dict[Any, dict[str, Any]]:
        """The newest row of each key, by its tuple of values."""
        found: dict[Any, dict[str, Any]] = {}
        for ledger in self.log.snapshot(version).ledgers:
            for row in self.rows[ledger.ledger_id]:
                found[tuple(row[name] for name in self.key)] = row
        return {key: row for key, row in found.items() if deleted_by is None or not row.get(deleted_by)}
