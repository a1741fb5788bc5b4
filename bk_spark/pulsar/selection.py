"""Chooses among decoded rows, and gives them the form that readers get."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.entries.batch import int64s
from bk_spark.pulsar.columns import MESSAGE_ID, MESSAGE_SCHEMA


@dataclass(frozen=True, slots=True)
class Encrypted:
    """An entry that only the holder of a key can read."""

    entry_id: int
    key: str


def encrypted(rows: pa.RecordBatch) -> list[Encrypted]:
    """The encrypted entries among the rows."""
    if rows.column("encryption_key").null_count == rows.num_rows:
        return []
    locked = rows.filter(pc.is_valid(rows.column("encryption_key")))
    pairs = zip(locked.column("entry_id").to_pylist(), locked.column("encryption_key").to_pylist(), strict=True)
    return [Encrypted(entry_id, key) for entry_id, key in pairs]


def without_markers(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that are messages, not the broker's own entries."""
    kinds = rows.column("marker_type")
    return rows if kinds.null_count == rows.num_rows else rows.filter(pc.is_null(kinds))


def without_tombstones(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The messages that have a value."""
    values = rows.column("value")
    return rows if values.null_count == 0 else rows.filter(pc.is_valid(values))


def of_chunks(rows: pa.RecordBatch, uuids: frozenset[str]) -> pa.RecordBatch:
    """The chunks of these messages."""
    if rows.column("uuid").null_count == rows.num_rows:
        return rows.slice(0, 0)
    return rows.filter(pc.is_in(rows.column("uuid"), pa.array(sorted(uuids), pa.string())))


def without(rows: pa.RecordBatch, places: set[int]) -> pa.RecordBatch:
    """The rows at other places than these."""
    kept = np.ones(rows.num_rows, np.bool_)
    kept[sorted(places)] = False
    return rows.filter(pa.array(kept))


def to_messages(topic: str, ledger_id: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Messages of one ledger in MESSAGE_SCHEMA. Their columns are not copied."""
    count = rows.num_rows
    ledgers = int64s(np.full(count, ledger_id, np.int64))
    place = [ledgers, rows.column("entry_id"), rows.column("batch_index")]
    columns = {
        "_topic": pa.repeat(pa.scalar(topic, pa.string()), count),
        "_message_id": pa.StructArray.from_arrays(place, fields=list(MESSAGE_ID)),
    }
    chosen = [columns[name] if name in columns else rows.column(name) for name in MESSAGE_SCHEMA.names]
    return pa.RecordBatch.from_arrays(chosen, schema=MESSAGE_SCHEMA)
