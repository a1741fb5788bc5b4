"""Reads how large an Arrow message claims to be, before Arrow decodes it.

Arrow allocates what a compressed buffer claims to hold before it reads the buffer's bytes, and a column of nulls takes no bytes
at all: a message of 100 bytes can claim terabytes or billions of rows. The fields of a schema may share their children and
their texts: a schema of 2,000 bytes can stand for billions of fields. This module reads those claims so that callers can refuse
them first. The message is::

    4 bytes FF FF FF FF, int32 bytes of the metadata, the metadata (a flatbuffer), the body
    Message:      0 version, 1 type of the header (1: Schema, 2: DictionaryBatch, 3: RecordBatch), 2 header, 3 bytes of the body
    Schema:       1 fields, 2 pairs of metadata
    Field:        0 name, 2 type (uint8), 3 table of the type, 5 children (fields), 6 pairs of metadata
    Timestamp:    1 time zone;  Union: 1 ids (int32 each);  a pair of metadata: 0 key, 1 value
    DictionaryBatch: 0 id, 1 the RecordBatch of its values, 2 whether they are added to those before (uint8)
    RecordBatch:  0 rows, 1 nodes, 2 buffers (each: int64 offset in the body, int64 bytes), 3 compression
    BodyCompression: 0 codec (int8: 0 LZ4 frame, 1 Zstandard)
    a compressed buffer: int64 bytes before compression, or -1 if it is stored as it was; then its bytes

Every offset is checked before it is used.

Ref: Apache Arrow, "Encapsulated message format", Message.fbs; RFC 8878, 3.1.1.2; lz4_Block_format.md, "Limits".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bk_spark.errors import CorruptionError

_MOST_BYTES_PER_BYTE = {0: 255, 1: 2**17 // 4}
"""The most that one compressed byte stands for, by codec: a further length byte of LZ4 is 255 bytes more, and four bytes are a
block of Zstandard with one byte repeated 128 KiB times. What claims more is damaged."""

_PAIR_BYTES = 128
"""Of a pair of metadata beside its texts, in Arrow's memory."""

_PREFIX = struct.Struct("<iI")
PREFIX_BYTES: Final = _PREFIX.size
"""Before a message's metadata."""
_CONTINUES = -1
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3
_VECTORS_OF_TYPES = {10: (1, 1), 14: (1, 4)}
"""In the tables of a Timestamp and a Union: the number of the vector, and the bytes of each value. Other types have none."""
_BUFFER = struct.Struct("<qq")
_INT8, _UINT8, _UINT16, _INT32, _UINT32, _INT64 = (struct.Struct(f"<{code}") for code in "bBHiIq")


@dataclass(frozen=True, slots=True)
class RecordBatchFacts:
    rows: int
    is_compressed: bool
    announced_bytes: int
    """What the compressed buffers together claim to hold; 0 if they are not compressed."""
    dictionary: DictionaryFacts | None = None
    """Of which the rows are the values; None for a record batch."""


@dataclass(frozen=True, slots=True)
class DictionaryFacts:
    """What a message with a dictionary's values claims."""

    dictionary_id: int
    is_delta: bool
    """The values are added to those before; otherwise they replace them."""


@dataclass(frozen=True, slots=True)
class SchemaBounds:
    """The most that a schema may stand for, where everything counts as often as something refers to it."""

    fields: int
    """With those inside of others."""
    nbytes: int
    """Of all names and metadata."""
    levels: int
    """Of a column and the types inside of it."""


def check_schema(metadata: memoryview, bounds: SchemaBounds, what: str) -> None:
    """Raise CorruptionError for a schema message above ``bounds``: ``metadata`` has no length before it, ``what`` names it."""
    try:
        message = _Table(metadata, _get(metadata, _UINT32, 0))
        if message.number(1, _UINT8) != _SCHEMA:
            raise _MalformedError("it is of another type")
        schema, walk = message.table(2), _SchemaWalk(bounds)
        walk.metadata(schema, 2)
        walk.fields(schema, 1, 1)
    except (struct.error, _MalformedError) as problem:
        raise CorruptionError(what, f"no Arrow schema message ({problem})") from None
    except _TooLargeError as problem:
        raise CorruptionError(what, str(problem)) from None


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
    """An offset points outside the message, or the message is of another type."""


class _TooLargeError(Exception):
    """A schema stands for more than Arrow is to build."""


def _facts(metadata: memoryview, body: memoryview, *, takes_dictionaries: bool = False) -> RecordBatchFacts:
    message = _Table(metadata, _get(metadata, _UINT32, 0))
    kind = message.number(1, _UINT8)
    if kind != _RECORD_BATCH and not (takes_dictionaries and kind == _DICTIONARY_BATCH):
        raise _MalformedError("it is of another type")
    batch, dictionary = message.table(2), None
    if kind == _DICTIONARY_BATCH:
        dictionary = DictionaryFacts(batch.number(0, _INT64), bool(batch.number(2, _UINT8)))
        batch = batch.table(1)
    rows = batch.number(0, _INT64)
    if rows < 0:
        raise _MalformedError(f"{rows} rows")
    if not batch.has(3):
        return RecordBatchFacts(rows, False, 0, dictionary)
    codec = batch.table(3).number(0, _INT8)
    if codec not in _MOST_BYTES_PER_BYTE:
        raise _MalformedError(f"compression {codec}")
    most = _MOST_BYTES_PER_BYTE[codec]
    announced = sum(_announced(body, offset, size, most) for offset, size in batch.buffers(2))
    return RecordBatchFacts(rows, True, announced, dictionary)


class _SchemaWalk:
    """Counts what Arrow would build of a schema, up to the bounds: it takes no longer than for the largest sound one."""

    def __init__(self, bounds: SchemaBounds) -> None:
        self._bounds = bounds
        self._fields = 0
        self._bytes = 0

    def fields(self, table: _Table, number: int, level: int) -> None:
        for field in table.tables(number):
            self._fields += 1
            if self._fields > self._bounds.fields:
                raise _TooLargeError(f"its schema has more than {self._bounds.fields} fields, with those inside of others")
            if level > self._bounds.levels:
                raise _TooLargeError(f"its schema has a column of more than {self._bounds.levels} levels")
            self._take(field.count(0))
            vector, nbytes = _VECTORS_OF_TYPES.get(field.number(2, _UINT8), (0, 0))
            if nbytes and field.has(3):
                self._take(field.table(3).count(vector) * nbytes)
            self.metadata(field, 6)
            self.fields(field, 5, level + 1)

    def metadata(self, table: _Table, number: int) -> None:
        for pair in table.tables(number):
            self._take(_PAIR_BYTES + pair.count(0) + pair.count(1))

    def _take(self, nbytes: int) -> None:
        self._bytes += nbytes
        if self._bytes > self._bounds.nbytes:
            raise _TooLargeError(f"the names and metadata of its schema take more than {self._bounds.nbytes} bytes")


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

    def tables(self, field: int) -> Iterator[_Table]:
        """Those that a vector refers to; none if it is not there."""
        for place in self.vector(field, _UINT32.size) if self.has(field) else ():
            yield _Table(self._data, place + _get(self._data, _UINT32, place))

    def count(self, field: int) -> int:
        """The number of values in a vector, or of bytes in a text; 0 if it is not there."""
        return _get(self._data, _UINT32, self._target(field)) if self.has(field) else 0

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
