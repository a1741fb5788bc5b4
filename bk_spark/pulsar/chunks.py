"""Chunked messages: puts the chunks of large messages together, by the rules of Pulsar's own consumer. Pure.

A producer cuts a value that is too large for an entry into chunks with one ``uuid``, and ids from 0 on. Chunks of several
messages interleave, and a producer that resends stores some twice. For each message:

- chunk 0 begins it, also anew: what was there of it is dropped;
- the next id is appended; an id that is there already is passed over;
- an id that leaves a gap, or whose beginning is unknown, drops what was there;
- the last id completes it. A chunk that comes after that has no beginning.

    ids 0 1 0 1 2 of 3 → one message, of the last three     0 1 1 2 → one message     0 2 → none

A message lies where its last chunk lies. Who begins to read in the middle of a topic looks back for the chunks before: chunk 0
forgets all that was before it, so the last chunk 0 before the middle is far enough.

Ref: docs/formats.md, "Pulsar's entries"; Apache Pulsar's PIP-37.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.pulsar.columns import DECODED_SCHEMA
from bk_spark.pulsar.compression import DamagedPayloadError, decompress
from bk_spark.pulsar.messages import Unreadable

MAX_PENDING_BYTES: Final = 256 * 1024 * 1024
"""Bytes of chunks whose message is not complete. Above them the message that began first is dropped, as Pulsar's consumers drop
it above ten messages: a producer that died leaves such messages."""


@dataclass(slots=True)
class _Pending:
    """What is there of a message: the chunks from 0 on."""

    parts: list[bytes] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.parts))


@dataclass(frozen=True, slots=True)
class Assembled:
    """``rows`` without chunks, but with each message that they complete."""

    rows: pa.RecordBatch
    unreadable: tuple[Unreadable, ...] = ()
    incomplete: int = 0
    """Messages that were dropped, because chunks are missing."""


class ChunkAssembler:
    """Replays the chunks of one reading. One thread uses it."""

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}
        self._known: set[str] = set()
        """Messages of which no chunk before the next row matters any more."""

    def needs_look_back(self, rows: pa.RecordBatch) -> frozenset[str]:
        """The messages in ``rows`` whose beginning may lie before all that was fed and primed."""
        ids = rows.column("chunk_id")
        if ids.null_count == rows.num_rows:
            return frozenset()
        found: dict[str, int] = {}
        for uuid, chunk_id in _chunks(rows):
            found.setdefault(uuid, chunk_id)
        return frozenset(uuid for uuid, first in found.items() if first > 0 and uuid not in self._known)

    def prime(self, rows: Iterable[pa.RecordBatch], uuids: frozenset[str]) -> None:
        """Take in the earlier chunks of these messages, in the topic's order."""
        for batch in rows:
            for number, (uuid, chunk_id) in enumerate(_chunks(batch)):
                if uuid in uuids:
                    row = batch.filter(pc.is_valid(batch.column("chunk_id"))).slice(number, 1)
                    self._take(uuid, chunk_id, row)
        self._known |= uuids

    def feed(self, ledger_id: int, rows: pa.RecordBatch) -> Assembled:
        """The next rows of the topic, of one ledger."""
        ids = rows.column("chunk_id")
        if ids.null_count == rows.num_rows:
            return Assembled(rows)
        places = np.flatnonzero(np.asarray(pc.is_valid(ids)))
        values: dict[int, bytes] = {}
        unreadable = []
        incomplete = 0
        for place, (uuid, chunk_id) in zip(places.tolist(), _chunks(rows), strict=True):
            self._known.add(uuid)
            row = rows.slice(place, 1)
            whole, dropped = self._take(uuid, chunk_id, row)
            incomplete += dropped
            if whole is None:
                continue
            try:
                values[place] = decompress(whole, int(_one(row, "compression")), int(_one(row, "uncompressed_size")))
            except DamagedPayloadError as problem:
                unreadable.append(Unreadable(int(_one(row, "entry_id")), str(problem)))
        return Assembled(_replaced(rows, places, values), tuple(unreadable), incomplete)

    def _take(self, uuid: str, chunk_id: int, row: pa.RecordBatch) -> tuple[bytes | None, int]:
        """The stored bytes of the message that this chunk completes, and how many messages were dropped."""
        dropped = 0
        if chunk_id == 0:
            dropped += self._pending.pop(uuid, None) is not None
            self._pending[uuid] = _Pending()
        pending = self._pending.get(uuid)
        if pending is None:
            return None, dropped
        if chunk_id < len(pending.parts):
            return None, dropped
        if chunk_id > len(pending.parts):
            del self._pending[uuid]
            return None, dropped + 1
        pending.parts.append(_one(row, "value") or b"")
        if chunk_id == _one(row, "chunks") - 1:
            return b"".join(self._pending.pop(uuid).parts), dropped
        while len(self._pending) > 1 and sum(one.nbytes for one in self._pending.values()) > MAX_PENDING_BYTES:
            self._pending.pop(next(iter(self._pending)))
            dropped += 1
        return None, dropped


def _chunks(rows: pa.RecordBatch) -> list[tuple[str, int]]:
    chosen = rows.filter(pc.is_valid(rows.column("chunk_id")))
    return list(zip(chosen.column("uuid").to_pylist(), chosen.column("chunk_id").to_pylist(), strict=True))


def _one(row: pa.RecordBatch, name: str) -> Any:
    return row.column(name)[0].as_py()


def _replaced(rows: pa.RecordBatch, places: Any, values: dict[int, bytes]) -> pa.RecordBatch:
    """``rows`` without the chunks at ``places``, and with the whole value where one was completed."""
    kept = np.ones(rows.num_rows, np.bool_)
    kept[places] = False
    kept[list(values)] = True
    column = rows.column("value")
    if values:
        mask = np.zeros(rows.num_rows, np.bool_)
        mask[list(values)] = True
        column = pc.replace_with_mask(
            column, pa.array(mask), pa.array([values[place] for place in sorted(values)], pa.binary())
        )
    columns = [column if name == "value" else rows.column(name) for name in DECODED_SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema).filter(pa.array(kept))
