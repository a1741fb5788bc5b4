"""Chunked messages: puts the chunks of large messages together, by the rules of Pulsar's own consumer. Pure.

A producer cuts a value that is too large for an entry into chunks with one ``uuid``, and ids from 0 on. Chunks of several
messages interleave, and a producer that resends stores some twice. For each message:

- chunk 0 begins it, also anew: what was there of it is dropped;
- the next id is appended; an id that is there already is passed over;
- an id that leaves a gap, or whose beginning is unknown, drops what was there;
- the last id completes it. A chunk that comes after that has no beginning.

    ids 0 1 0 1 2 of 3 → one message, of the last three     0 1 1 2 → one message     0 2 → none

A message that is dropped is counted as incomplete, and so is one whose last chunk has no beginning, unless it was completed or
counted before: a producer that resends leaves such chunks too. A chunk 0 that begins a message anew counts nothing: it is the
same message, and may still be completed.

A message lies where its last chunk lies. Who begins to read in the middle of a topic looks back for the chunks before: chunk 0
forgets all that was before it, so the last chunk 0 before the middle is far enough.

Ref: docs/formats.md, "Pulsar's entries"; Apache Pulsar's PIP-37.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.entries.batch import binaries, int64s
from bk_spark.pulsar.compression import DamagedPayloadError, decompress
from bk_spark.pulsar.messages import Unreadable
from bk_spark.pulsar.slices import bitmap

MAX_PENDING_BYTES: Final = 256 * 1024 * 1024
"""Bytes of chunks whose message is not complete. Above them the message that began first is dropped, as Pulsar's consumers drop
it above ten messages: a producer that died leaves such messages. One message alone may have more."""

MAX_WHOLE_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of a message, and of all messages that one call of ``feed`` completes. A column of bytes holds twice as much, and the
other rows need some of it."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """``rows`` without chunks, but with each message that they complete."""

    rows: pa.RecordBatch
    unreadable: tuple[Unreadable, ...] = ()
    incomplete: int = 0
    """Messages that were dropped, because chunks are missing."""


class TooLargeError(Exception):
    """A message that has more than MAX_WHOLE_BYTES, alone or with those that are completed beside it."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    row: int
    uuid: str
    chunk_id: int
    is_last: bool


@dataclass(slots=True)
class _Pending:
    """What is there of a message: the chunks from 0 on."""

    parts: list[bytes] = field(default_factory=list)
    nbytes: int = 0


class ChunkAssembler:
    """Replays the chunks of one reading. One thread uses it.

    It keeps the bytes of messages that are not complete, and the uuid of each message that it met.
    """

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}
        self._pending_bytes = 0
        self._known: set[str] = set()
        """Messages of which no chunk before the next row matters any more."""
        self._ended: set[str] = set()
        """Messages that were completed or counted as incomplete: more chunks of them without a beginning are no loss."""
        self._incomplete = 0

    def needs_look_back(self, rows: pa.RecordBatch) -> frozenset[str]:
        """The messages in ``rows`` whose beginning may lie before all that was fed and primed."""
        first: dict[str, int] = {}
        for chunk in _chunks(rows):
            first.setdefault(chunk.uuid, chunk.chunk_id)
        return frozenset(uuid for uuid, chunk_id in first.items() if chunk_id > 0 and uuid not in self._known)

    def prime(self, rows: Iterable[pa.RecordBatch], uuids: frozenset[str]) -> None:
        """Take in the earlier chunks of these messages, in the topic's order. What they complete or lose is not counted."""
        for batch in rows:
            for chunk in _chunks(batch):
                if chunk.uuid in uuids:
                    with suppress(TooLargeError):  # whoever reads that part says so
                        self._take(chunk, batch)
        self._known |= uuids

    def feed(self, ledger_id: int, rows: pa.RecordBatch) -> Assembled:
        """The next rows of the topic, of one ledger.

        Messages that cannot be decompressed, or exceed MAX_WHOLE_BYTES, are unreadable at the entry that shows it.
        """
        chunks = _chunks(rows)
        if not chunks:
            return Assembled(rows)
        values: dict[int, bytes] = {}
        unreadable = []
        self._incomplete = nbytes = 0
        for chunk in chunks:
            self._known.add(chunk.uuid)
            try:
                stored = self._take(chunk, rows)
                if stored is None:
                    continue
                value = _decompressed(stored, chunk.row, rows)
                _check_size(nbytes + len(value))
            except (DamagedPayloadError, TooLargeError) as problem:
                unreadable.append(Unreadable(rows.column("entry_id")[chunk.row].as_py(), str(problem)))
            else:
                values[chunk.row] = value
                nbytes += len(value)
        return Assembled(_replaced(rows, values), tuple(unreadable), self._incomplete)

    def _take(self, chunk: _Chunk, rows: pa.RecordBatch) -> bytes | None:
        """The stored bytes of the message that this chunk completes, if it does. Raises TooLargeError."""
        if chunk.chunk_id == 0:
            self._remove(chunk.uuid)
            self._pending[chunk.uuid] = _Pending()
        pending = self._pending.get(chunk.uuid)
        if pending is None:
            if chunk.is_last and chunk.uuid not in self._ended:
                self._lose(chunk.uuid)
            return None
        if chunk.chunk_id != len(pending.parts):
            if chunk.chunk_id > len(pending.parts):
                self._lose(chunk.uuid)
            return None
        self._append(chunk.uuid, pending, rows.column("value")[chunk.row].as_py() or b"")
        if chunk.is_last:
            self._remove(chunk.uuid)
            self._ended.add(chunk.uuid)
            return b"".join(pending.parts)
        while self._pending_bytes > MAX_PENDING_BYTES and len(self._pending) > 1:
            self._lose(next(iter(self._pending)))
        return None

    def _append(self, uuid: str, pending: _Pending, part: bytes) -> None:
        try:
            _check_size(pending.nbytes + len(part))
        except TooLargeError:
            self._remove(uuid)
            self._ended.add(uuid)
            raise
        pending.parts.append(part)
        pending.nbytes += len(part)
        self._pending_bytes += len(part)

    def _remove(self, uuid: str) -> None:
        pending = self._pending.pop(uuid, None)
        if pending is not None:
            self._pending_bytes -= pending.nbytes

    def _lose(self, uuid: str) -> None:
        self._remove(uuid)
        self._ended.add(uuid)
        self._incomplete += 1


def _chunks(rows: pa.RecordBatch) -> list[_Chunk]:
    ids = rows.column("chunk_id")
    if ids.null_count == rows.num_rows:
        return []
    places = np.flatnonzero(np.asarray(pc.is_valid(ids)))
    columns = (rows.column(name).take(int64s(places)).to_pylist() for name in ("uuid", "chunk_id", "chunks"))
    found = zip(places.tolist(), *columns, strict=True)
    return [_Chunk(row, uuid, number, number == count - 1) for row, uuid, number, count in found]


def _decompressed(stored: bytes, row: int, rows: pa.RecordBatch) -> bytes:
    compression, size = (rows.column(name)[row].as_py() for name in ("compression", "uncompressed_size"))
    return decompress(stored, compression, size)


def _check_size(nbytes: int) -> None:
    if nbytes > MAX_WHOLE_BYTES:
        raise TooLargeError(f"its chunks, with the messages completed beside it, are more than {MAX_WHOLE_BYTES} bytes")


def _replaced(rows: pa.RecordBatch, values: dict[int, bytes]) -> pa.RecordBatch:
    """``rows`` without chunks, and with the whole value in each row that completes one. ``values`` ascend by row."""
    kept = np.array(pc.is_null(rows.column("chunk_id")))
    kept[list(values)] = True
    found = rows.filter(pa.Array.from_buffers(pa.bool_(), len(kept), [None, bitmap(kept)]))
    if not values:
        return found
    is_whole = pc.is_valid(found.column("chunk_id"))
    whole = binaries(list(values.values()))
    column = whole if len(whole) == len(found) else pc.replace_with_mask(found.column("value"), is_whole, whole)
    return found.set_column(found.schema.get_field_index("value"), found.schema.field("value"), column)
