"""The rows of a log's ledgers as bookies have them, with the columns that a table has for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.entries.batch import int64s
from bk_spark.lake.columns import ENTRIES, table_columns
from bk_spark.log.stored.tier_columns import PLACE
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.rows.arrow_types import arrow_schema
from bk_spark.rows.codec import RowDecoder
from bk_spark.rows.parts import whole_payloads
from bk_spark.rows.reading import joined


@dataclass(frozen=True, slots=True)
class RowSource:
    """One log's ledgers."""

    opener: LogLedgerOpener

    def columns(self, schema_id: int | None) -> pa.Schema:
        """Of rows that were written under one of the log's schemas; None: of a log of entries. Raises ConfigError."""
        return table_columns(self.opener.name, ENTRIES if schema_id is None else self._stored(schema_id))

    def rows(self, ledger: CommittedLedger, schema_id: int | None) -> Iterator[pa.RecordBatch]:
        """All rows of a closed ledger, in these columns. Raises what reading it from bookies raises."""
        columns = self.columns(schema_id)
        if ledger.last_entry_id < 0:
            return
        found = self._entries(ledger) if schema_id is None else self._rows(ledger, self._stored(schema_id))
        yield from joined(_placed(ledger.ledger_id, first, rows, columns) for first, rows in found)

    def _rows(self, ledger: CommittedLedger, stored: pa.Schema) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        decoder = RowDecoder(stored, checks_values=False)
        read = self.opener.on_bookies(ledger.ledger_id).read_unconfirmed
        for batch in whole_payloads(read, ledger.ledger_id, 0, ledger.last_entry_id):
            for entry_id, payload in zip(batch.column("entry_id").to_pylist(), batch.column("payload"), strict=True):
                what = f"the payload of entry {entry_id} of ledger {ledger.ledger_id}"
                rows = decoder.decode(payload.as_buffer(), what)
                yield np.full(rows.num_rows, entry_id, np.int64), rows

    def _entries(self, ledger: CommittedLedger) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        for batch in self.opener.on_bookies(ledger.ledger_id).read_unconfirmed(0, ledger.last_entry_id):
            columns = [batch.column(name) for name in ("payload", "length", "last_add_confirmed")]
            yield batch.column("entry_id").to_numpy(), pa.RecordBatch.from_arrays(columns, schema=ENTRIES)

    def _stored(self, schema_id: int) -> pa.Schema:
        assert self.opener.uid is not None, "a tier is a log's"
        return arrow_schema(self.opener.logs.reader.schema(self.opener.name, self.opener.uid, schema_id))


def _placed(ledger_id: int, entries: npt.NDArray[np.int64], rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """``entries``: that of each row."""
    starts = np.flatnonzero(np.diff(entries, prepend=-1))
    numbers = np.arange(len(entries)) - np.repeat(starts, np.diff(starts, append=len(entries)))
    places = dict(zip(PLACE, map(int64s, (np.full(len(entries), ledger_id, np.int64), entries, numbers)), strict=True))
    found = [places[one.name] if one.name in places else rows.column(one.name).cast(one.type) for one in columns]
    return pa.RecordBatch.from_arrays(found, schema=columns)
