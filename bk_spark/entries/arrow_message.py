"""Reads how large an Arrow record batch message claims to be, before Arrow decodes it.

Arrow allocates what a compressed buffer claims to hold before it reads the buffer's bytes, and a column of nulls takes no bytes
at all: a message of 100 bytes can claim terabytes or billions of rows. This module reads those claims so that callers can
refuse them first. The message is::

    4 bytes FF FF FF FF, int32 bytes of the metadata, the metadata (a flatbuffer), the body
    Message:      0 version, 1 type of the header (1: Schema, 2: DictionaryBatch, 3: RecordBatch), 2 header, 3 bytes of the body
    DictionaryBatch: 0 id, 1 the RecordBatch of its values
    RecordBatch:  0 rows, 1 nodes, 2 buffers (each: int64 offset in the body, int64 bytes), 3 compression
    BodyCompression: 0 codec (int8: 0 LZ4 frame, 1 Zstandard)
    a compressed buffer: int64 bytes before compression, or -1 if it is stored as it was; then its bytes

Every offset is checked before it is used.

Ref: Apache Arrow, "Encapsulated message format", Message.fbs; RFC 8878, 3.1.1.2; lz4_Block_format.md, "Limits".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bk_spark.errors import CorruptionError

_MOST_BYTES_PER_BYTE = {0: 255, 1: 2**17 // 4}
"""The most that one compressed byte stands for, by codec: a further length byte of LZ4 is 255 bytes more, and four bytes are a
block of Zstandard with one byte repeated 128 KiB times. What claims more is damaged."""

_PREFIX = struct.Struct("<iI")
_CONTINUES = -1
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_BUFFER = struct.Struct("<qq")
_INT8, _UINT8, _UINT16, _INT32, _UINT32, _INT64 = (struct.Struct(f"<{code}") for code in "bBHiIq")


@dataclass(frozen=True, slots=True)
class RecordBatchFacts:
    rows: int
    is_compressed: bool
    announced_bytes: int
    """What the compressed buffers together claim to hold; 0 if they are not compressed."""


def metadata_end(message: memoryview, what: str) -> int:
    """The offset where a message's metadata ends and its body begins. Raises CorruptionError; ``what`` names the message."""
    if len(message) < _PREFIX.size:
        raise CorruptionError(what, f"{len(message)} bytes are no Arrow message")
    continues, size = _PREFIX.unpack_from(message)
    if continues != _CONTINUES or _PREFIX.size + size > len(message):
        raise CorruptionError(what, "it does not begin as an Arrow message does")
    return _PREFIX.size + int(size)


def record_batch_facts(message: memoryview, what: str) -> RecordBatchFacts:
    """What a record batch message claims. Raises CorruptionError for any other message; ``what`` names it."""
    end = metadata_end(message, what)
    try:
        return _facts(message[_PREFIX.size : end], message[end:])
    except (struct.error, _MalformedError) as problem:
        raise CorruptionError(what, f"no Arrow record batch message ({problem})") from None


def batch_facts(metadata: memoryview, body: memoryview, what: str) -> RecordBatchFacts:
    """What a message claims whose metadata, without its length, and body are apart: a record batch, or a dictionary's values.

    Raises CorruptionError for any other message.
    """
    try:
        return _facts(metadata, body, takes_dictionaries=True)
    except (struct.error, _MalformedError) as problem:
        raise CorruptionError(what, f"no Arrow record batch message ({problem})") from None


def number_places(message: memoryview, what: str) -> list[int]:
    """Where in a record batch message the eight-byte numbers are that depend on its content. Raises CorruptionError.

    They are its rows, the bytes of its body, the rows and nulls of each column, and the place and size of each buffer.
    """
    end = metadata_end(message, what)
    try:
        return [_PREFIX.size + place for place in _number_places(message[_PREFIX.size : end])]
    except (struct.error, _MalformedError) as problem:
        raise CorruptionError(what, f"no Arrow record batch message ({problem})") from None


class _MalformedError(Exception):
    """An offset points outside the message, or the message is no record batch."""


def _facts(metadata: memoryview, body: memoryview, *, takes_dictionaries: bool = False) -> RecordBatchFacts:
    message = _Table(metadata, _get(metadata, _UINT32, 0))
    kind = message.number(1, _UINT8)
    if kind != _RECORD_BATCH and not (takes_dictionaries and kind == _DICTIONARY_BATCH):
        raise _MalformedError("it is of another type")
    batch = message.table(2) if kind == _RECORD_BATCH else message.table(2).table(1)
    rows = batch.number(0, _INT64)
    if rows < 0:
        raise _MalformedError(f"{rows} rows")
    if not batch.has(3):
        return RecordBatchFacts(rows, False, 0)
    codec = batch.table(3).number(0, _INT8)
    if codec not in _MOST_BYTES_PER_BYTE:
        raise _MalformedError(f"compression {codec}")
    most = _MOST_BYTES_PER_BYTE[codec]
    return RecordBatchFacts(rows, True, sum(_announced(body, offset, size, most) for offset, size in batch.buffers(2)))


def _number_places(metadata: memoryview) -> list[int]:
    message = _Table(metadata, _get(metadata, _UINT32, 0))
    batch = message.table(2)
    pairs = [place for field in (1, 2) for place in batch.vector(field, _BUFFER.size)]
    return [batch.place(0), message.place(3), *(place + half for place in pairs for half in (0, _INT64.size))]


def _announced(body: memoryview, offset: int, size: int, most_per_byte: int) -> int:
    if size == 0:
        return 0
    if size < _INT64.size or offset < 0 or offset + size > len(body):
        raise _MalformedError("a buffer outside of its body")
    claimed = _get(body, _INT64, offset)
    held = size - _INT64.size
    if not -1 <= claimed <= held * most_per_byte:
        raise _MalformedError(f"a buffer of {held} bytes that stands for {claimed}")
    return held if claimed == -1 else claimed


def _get(data: memoryview, kind: struct.Struct, at: int) -> int:
    if at < 0:  # Python would count it from the end
        raise _MalformedError(f"an offset of {at}")
    return int(kind.unpack_from(data, at)[0])


class _Table:
    """A table of a flatbuffer at offset ``at``: its vtable says where each numbered field is."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._vtable = at - _get(data, _INT32, at)
        self._fields = (_get(data, _UINT16, self._vtable) - 4) // 2

    def has(self, field: int) -> bool:
        return self._place(field) is not None

    def number(self, field: int, kind: struct.Struct) -> int:
        place = self._place(field)
        return 0 if place is None else _get(self._data, kind, place)

    def table(self, field: int) -> _Table:
        return _Table(self._data, self._target(field))

    def buffers(self, field: int) -> list[tuple[int, int]]:
        """The offset and size of each buffer in a vector."""
        if self._place(field) is None:
            return []
        start = self._target(field)
        end = start + _UINT32.size + _get(self._data, _UINT32, start) * _BUFFER.size
        if end > len(self._data):
            raise _MalformedError("a vector that does not end")
        return [(int(offset), int(size)) for offset, size in _BUFFER.iter_unpack(self._data[start + _UINT32.size : end])]

    def place(self, field: int) -> int:
        """Where the value of a field is."""
        place = self._place(field)
        if place is None:
            raise _MalformedError("a part is missing")
        return place

    def vector(self, field: int, size: int) -> range:
        """Where the values of a vector are, each of ``size`` bytes."""
        start = self._target(field)
        begin = start + _UINT32.size
        return range(begin, begin + _get(self._data, _UINT32, start) * size, size)

    def _place(self, field: int) -> int | None:
        if field >= self._fields:
            return None
        offset = _get(self._data, _UINT16, self._vtable + 4 + 2 * field)
        return self._at + offset if offset else None

    def _target(self, field: int) -> int:
        place = self.place(field)
        return place + _get(self._data, _UINT32, place)
