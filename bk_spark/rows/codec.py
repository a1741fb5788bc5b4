"""Encodes rows as payloads of entries, and decodes them.

A payload is a header, then one Arrow IPC stream without its end mark: a schema message and one record batch message,
whose buffers may be compressed (Arrow's LZ4 or ZSTD).

====== ====== ===========================================================
offset type   header, little endian
====== ====== ===========================================================
0      4s     magic, ``BKRW``
4      u16    format version, 1; a newer one is refused by name (2: a part of a larger payload, parts.py)
6      u16    bytes of this header; readers skip fields that they do not know
8      u32    rows, at least 1
12     u32    bytes of the schema message
16     …      fields, each: u16 kind, u16 size in bytes, then those bytes
====== ====== ===========================================================

A field of kind 1 holds statistics of the columns (statistics.py). A field of kind 2 is a u64: the rows that stand before the
payload in its ledger, where a leader wrote it. A field of kind 3 is a filter of the keys, in a log with keys (key_filter.py in
keys/). Headers without fields are valid.

Each payload carries its schema, so it can be decoded by itself: in any slice of a ledger, after the log's schema has grown or
was replaced, and in a log that adopts the ledger. No look-up can pair it with a wrong schema. The cost is about 120 bytes a
column, against entries of about a megabyte.

The stored schema is normalised: every field is nullable, nested ones too, timestamps are in UTC, there are no large or view
types. Spark's batches arrive with the plan's nullability and the session's time zone. A record batch message carries no schema
and its layout depends on neither of the two, so a batch is written as it arrives and read back under the normalised schema,
without a copy of its data. The encoder checks for each arriving schema that the layouts are the same, and casts large types.

Ref: docs/formats.md, "Row payloads".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from bk_spark.config import MAX_ENTRY_BYTES
from bk_spark.entries.arrow_message import PREFIX_BYTES, SchemaBounds, check_schema, metadata_end, record_batch_facts
from bk_spark.errors import CorruptionError, EntryTooLargeError, FormatVersionError, SchemaMismatchError, WrongValueError
from bk_spark.rows.arrow_types import MAX_LEVELS
from bk_spark.rows.keys.key_filter import decode_key_filter, encode_key_filter
from bk_spark.rows.statistics import ColumnStatistics, decode_statistics, encode_statistics
from bk_spark.rows.validity import far_date, is_sound, wrong_value
from bk_spark.rows.widening import TooLargeToWiden, check_widened, is_readable, read_as, statistics_as, unreadable

MAGIC = b"BKRW"
VERSION = 1
PART_VERSION = 2
"""Of an entry that holds only a part of a payload: parts.py."""

MAX_DECODED_BYTES = 16 * MAX_ENTRY_BYTES
"""The most bytes that the buffers of one payload hold before compression. Arrow allocates what a payload claims to hold, and a
few bytes can claim terabytes. A larger row is refused when it is written."""

MAX_ROWS = 1 << 22
"""The most rows of one payload. Rows of a column of nulls take no bytes in the payload, only in its reader."""

_SCHEMA_BOUNDS = SchemaBounds(fields=100_000, nbytes=64 << 20, levels=MAX_LEVELS)
"""Of a payload's schema, which others may have made: ten times what a gateway takes, so that no sound payload is refused."""

_HEADER = struct.Struct("<4sHHII")
_FIELD = struct.Struct("<HH")
_STATISTICS = 1
_ROWS_BEFORE = 2
_KEY_FILTER = 3
_ROW_NUMBER = struct.Struct("<Q")
_MARGIN_BYTES = 1 << 20
"""Room for padding, and for offsets and bitmaps that the size of a slice does not count."""

_MAX_FIELD_BYTES = 2**16 - 1 - _HEADER.size - 2 * _FIELD.size - _ROW_NUMBER.size

_LARGE = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


@dataclass(frozen=True, kw_only=True, slots=True)
class PayloadFormat:
    """How rows become payloads: ``compression`` is none, lz4 or zstd; bytes are counted before compression."""

    compression: str
    max_rows: int
    max_bytes: int
    key: tuple[str, ...] = ()
    """The key columns of the log: payloads get a filter of their keys."""
    read_as: tuple[tuple[str, pa.DataType], ...] = ()
    """Columns that are read as a wider type than the one they are written with (``widening.wider_types``)."""


class RowEncoder:
    """Cuts record batches into payloads. ``schema`` is the normalised one that is stored."""

    def __init__(self, log: str, schema: pa.Schema, payload_format: PayloadFormat) -> None:
        self._log = log
        self._schema = schema
        self._format = payload_format
        self._schema_message = schema.serialize()
        codec = None if payload_format.compression == "none" else payload_format.compression
        self._options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        self._arriving: pa.Schema | None = None
        self._same_layout = False

    def encode(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.Buffer, int]]:
        """The payloads of ``batch``, in the order of its rows, each with its number of rows; none for an empty batch.

        That of a large row may be above the maximum entry: parts.py cuts it. Raises EntryTooLargeError for a row above
        MAX_DECODED_BYTES before compression, SchemaMismatchError for a batch of another schema, and for a column that no
        reader could read as the type that the log has for it.
        """
        for piece in cut(self._retyped(batch), min(self._format.max_rows, MAX_ROWS), self._format.max_bytes):
            yield self._payload(piece), piece.num_rows

    def _payload(self, batch: pa.RecordBatch) -> pa.Buffer:
        if batch.nbytes > MAX_DECODED_BYTES - _MARGIN_BYTES:
            raise EntryTooLargeError(batch.nbytes, MAX_DECODED_BYTES - _MARGIN_BYTES)
        for name, kind in self._format.read_as:
            self._check_reads(name, batch.column(name), kind)
        message = self._message(batch)
        fields = self._fields(batch)
        header_bytes = _HEADER.size + len(fields)
        sink = pa.BufferOutputStream()
        sink.write(_HEADER.pack(MAGIC, VERSION, header_bytes, batch.num_rows, self._schema_message.size))
        sink.write(fields)
        sink.write(self._schema_message)
        sink.write(message)
        return sink.getvalue()

    def _check_reads(self, name: str, column: pa.Array, kind: pa.DataType) -> None:
        try:
            check_widened(column, kind)
        except TooLargeToWiden as problem:
            raise SchemaMismatchError(self._log, unreadable(name, column.type, kind, problem)) from None

    def _fields(self, batch: pa.RecordBatch) -> bytes:
        """Those of the header. The statistics come first; the filter makes do with the room that they leave."""
        statistics = encode_statistics(batch, _MAX_FIELD_BYTES)
        fields = _FIELD.pack(_STATISTICS, len(statistics)) + statistics
        if self._format.key:
            keys = encode_key_filter(batch, self._format.key, _MAX_FIELD_BYTES - len(statistics) - _FIELD.size)
            fields += _FIELD.pack(_KEY_FILTER, len(keys)) + keys if keys else b""
        return fields

    def _message(self, batch: pa.RecordBatch) -> pa.Buffer:
        """The record batch message: all of a stream after its schema message."""
        sink = pa.BufferOutputStream()
        stream = pa.ipc.new_stream(sink, batch.schema, options=self._options)
        stream.write_batch(batch)
        return sink.getvalue()[batch.schema.serialize().size :]

    def _retyped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._arriving is None or not batch.schema.equals(self._arriving):
            self._arriving = batch.schema
            self._same_layout = self._check(batch.schema)
        if self._same_layout:
            return batch
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _check(self, arriving: pa.Schema) -> bool:
        """True if batches of this schema can be written as they are, False if they must be cast."""
        mine = [(field.name, layout(field.type)) for field in self._schema]
        theirs = [(field.name, layout(field.type)) for field in arriving]
        if mine == theirs:
            return True
        if mine == [(name, without_large(kind)) for name, kind in theirs]:
            return False
        raise SchemaMismatchError(self._log, f"rows came with the columns {theirs}, planned were {mine}")


Wanted: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Rows → some of them, with some of their columns."""


class RowDecoder:
    """Decodes payloads to rows in ``schema``: columns are picked by name, and are null where a payload lacks them.

    A column of a payload may have a narrower type than ``schema``: widening.py says which. Without ``checks_values`` rows are
    given whatever their values are (validity.py): who copies rows keeps them.
    """

    def __init__(self, schema: pa.Schema, *, checks_values: bool = True) -> None:
        self._schema = schema
        self._checks_values = checks_values
        self._stored = pa.schema([])
        self._message: pa.Buffer | None = None
        self._options = pa.ipc.IpcReadOptions(use_threads=False)

    def decode(self, payload: pa.Buffer, what: str, wanted: Wanted | None = None) -> pa.RecordBatch:
        """The rows of one payload, which errors call ``what``; of them, and of their columns, those that are ``wanted``.

        Raises CorruptionError for bytes that are no payload or have a column that cannot be read as the schema's type,
        FormatVersionError for a newer format, and WrongValueError where what is wanted has a value that its type does not have.
        """
        opened = _open(payload, what)
        try:
            self._follow(opened.schema_message, what)
            _check_claims(opened, what)
            found = pa.ipc.open_stream(opened.stream, options=self._options).read_next_batch()
            found.validate()  # a cast relies on what this looks at
            unsound = [name for name, column in zip(found.schema.names, found.columns, strict=True) if not is_sound(column)]
        except (pa.ArrowException, OSError, StopIteration, UnicodeDecodeError) as problem:
            raise CorruptionError(what, f"not Arrow rows ({problem})") from None
        columns = [self._column(found, field, what) for field in self._schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if wanted is not None:
            rows = wanted(rows)
        if self._checks_values:
            _check_values(rows, unsound, what)
        return rows

    def statistics(self, payload: pa.Buffer, what: str, columns: Collection[str]) -> tuple[int, Mapping[str, ColumnStatistics]]:
        """The payload's number of rows, and the statistics of those of ``columns`` that are known, without decoding a row.

        Bounds have the form of the column's type in the decoder's schema. A column that the payload lacks counts as all null.
        Raises the same errors as ``decode``.
        """
        opened = _open(payload, what)
        self._follow_schema(opened, what)
        lacking = {name: ColumnStatistics(opened.rows) for name in columns if self._stored.get_field_index(name) < 0}
        known = decode_statistics(_field(opened.fields, _STATISTICS, what) or b"", self._stored, columns, what)
        try:
            return opened.rows, {**lacking, **{name: self._in_my_form(name, one) for name, one in known.items()}}
        except OverflowError:
            raise CorruptionError(what, "a bound of its statistics is no value of its column") from None

    def key_filter(self, payload: pa.Buffer, what: str, key: Sequence[str]) -> bytes | None:
        """The filter of the payload's keys (keys/key_filter.py); None if it has none of the key columns ``key``.

        Raises the same errors as ``statistics``.
        """
        opened = _open(payload, what)
        block = _field(opened.fields, _KEY_FILTER, what)
        if block is None:
            return None
        self._follow_schema(opened, what)
        return decode_key_filter(block, self._stored, key, what)

    def _in_my_form(self, name: str, known: ColumnStatistics) -> ColumnStatistics:
        return statistics_as(known, self._stored.field(name).type, self._schema.field(name).type)

    def _follow_schema(self, opened: _Opened, what: str) -> None:
        try:
            self._follow(opened.schema_message, what)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
            raise CorruptionError(what, f"not an Arrow schema ({problem})") from None

    def _follow(self, schema_message: pa.Buffer, what: str) -> None:
        """Check a payload's schema and choose the columns to read, once for consecutive payloads with the same schema."""
        if self._message is not None and schema_message.equals(self._message):
            return
        message = memoryview(schema_message)
        check_schema(message[PREFIX_BYTES : metadata_end(message, what)], _SCHEMA_BOUNDS, what)
        stored = pa.ipc.read_schema(schema_message)
        if not len(stored):
            raise CorruptionError(what, "its schema has no column")
        if len(set(stored.names)) != len(stored.names):
            raise CorruptionError(what, "it has two columns of one name")
        for field in self._schema:
            index = stored.get_field_index(field.name)
            if index >= 0 and not is_readable(stored.field(index).type, field.type):
                problem = f"its column '{field.name}' is {stored.field(index).type}, which cannot be read as {field.type}"
                raise CorruptionError(what, problem)
        wanted = [index for index, name in enumerate(stored.names) if self._schema.get_field_index(name) >= 0]
        self._options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=wanted)
        self._stored = stored
        self._message = schema_message

    def _column(self, found: pa.RecordBatch, field: pa.Field, what: str) -> pa.Array:
        index = found.schema.get_field_index(field.name)
        if index < 0:
            return pa.nulls(found.num_rows, field.type)
        try:
            return read_as(found.column(index), field.type)
        except TooLargeToWiden as problem:
            raise CorruptionError(what, f"its column '{field.name}' cannot be read as {field.type} ({problem})") from None
        except pa.ArrowInvalid as problem:
            column = found.column(index)
            wrong = wrong_value(column, field.name) or far_date(column, field.name)
            value = wrong.value if wrong else f"a value that is too large ({problem})"
            raise WrongValueError(what, wrong.place if wrong else field.name, value, str(field.type)) from None


def row_count(payload: pa.Buffer, what: str) -> int:
    """The number of rows in a payload's header. Raises CorruptionError, FormatVersionError."""
    return _open(payload, what).rows


def cut(batch: pa.RecordBatch, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Even slices of at most ``max_rows`` rows and ``max_bytes`` bytes; a single larger row is a slice of its own."""
    pieces = max(-(-batch.num_rows // max_rows), min(-(-batch.nbytes // max_bytes), batch.num_rows))
    if pieces <= 1:
        if batch.num_rows:
            yield batch
        return
    step = -(-batch.num_rows // pieces)
    for start in range(0, batch.num_rows, step):
        yield from cut(batch.slice(start, step), max_rows, max_bytes)


def layout(kind: pa.DataType) -> pa.DataType:
    """The normal form of all types with the same layout in memory: nullable throughout, timestamps in UTC."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return _rebuilt(kind, layout)


def _check_values(rows: pa.RecordBatch, unsound: Collection[str], what: str) -> None:
    """Raise WrongValueError for the first wrong value of the columns ``unsound``, as far as they are among ``rows``."""
    for name in rows.schema.names:
        found = wrong_value(rows.column(name), name) if name in unsound else None
        if found is not None:
            raise WrongValueError(what, found.place, found.value, str(found.kind))


def without_large(kind: pa.DataType) -> pa.DataType:
    """The same type with 32-bit offsets."""
    if pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", without_large(kind.value_type)))
    return _LARGE.get(kind) or _rebuilt(kind, without_large)


def _rebuilt(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """``kind`` with ``change`` applied to the types it contains, which become nullable and lose their metadata."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", change(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_type), pa.field("value", change(kind.item_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, change(field.type)) for field in kind])
    return kind


@dataclass(frozen=True, slots=True)
class _Opened:
    """The parts of a payload."""

    rows: int
    fields: bytes
    """The header behind its fixed part."""
    stream: pa.Buffer
    """The Arrow stream."""
    schema_message: pa.Buffer
    """The first part of ``stream``."""


def _open(payload: pa.Buffer, what: str) -> _Opened:
    if payload.size < _HEADER.size or bytes(payload[:4]) != MAGIC:
        raise CorruptionError(what, "it does not start as rows do; entries are read with option content=entries")
    _, version, header_bytes, rows, schema_bytes = _HEADER.unpack(bytes(payload[: _HEADER.size]))
    if version == PART_VERSION:
        raise CorruptionError(what, "it is one part of a larger payload, and the others are not with it")
    if version > PART_VERSION:
        raise FormatVersionError(what, version, PART_VERSION)
    if version < VERSION or header_bytes < _HEADER.size or header_bytes + schema_bytes >= payload.size:
        raise CorruptionError(what, f"its header says version {version}, {header_bytes} and {schema_bytes} bytes")
    if not 1 <= rows <= MAX_ROWS:
        raise CorruptionError(what, f"it announces {rows} rows, the maximum is {MAX_ROWS}")
    stream = payload[header_bytes:]
    return _Opened(rows, bytes(payload[_HEADER.size : header_bytes]), stream, stream[:schema_bytes])


def _check_claims(opened: _Opened, what: str) -> None:
    """Raise CorruptionError if the message claims to hold more than the bounds, before Arrow allocates anything."""
    schema_bytes = opened.schema_message.size
    if metadata_end(memoryview(opened.schema_message), what) != schema_bytes:
        raise CorruptionError(what, f"its schema message does not have {schema_bytes} bytes")
    facts = record_batch_facts(memoryview(opened.stream)[schema_bytes:], what)
    if facts.rows != opened.rows:
        raise CorruptionError(what, f"{facts.rows} rows where {opened.rows} are announced")
    if facts.announced_bytes > MAX_DECODED_BYTES:
        raise CorruptionError(what, f"it claims to hold {facts.announced_bytes} bytes, the maximum is {MAX_DECODED_BYTES}")


def _field(fields: bytes, wanted: int, what: str) -> bytes | None:
    """One of a header's fields; None if it is not there."""
    while fields:
        if len(fields) < _FIELD.size or len(fields) < _FIELD.size + _FIELD.unpack_from(fields)[1]:
            raise CorruptionError(what, "its header ends within a field")
        kind, size = _FIELD.unpack_from(fields)
        if kind == wanted:
            return fields[_FIELD.size : _FIELD.size + size]
        fields = fields[_FIELD.size + size :]
    return None


NUMBER_BYTES = _FIELD.size + _ROW_NUMBER.size
"""By how much ``numbered`` makes a payload longer."""


def numbered(payload: pa.Buffer, rows_before: int) -> bytes:
    """The payload with the number of rows that stand before it in its ledger.

    With it the last entry alone says how many rows a ledger holds (``rows_up_to``), also after its writer was killed.
    """
    magic, version, header_bytes, rows, schema_bytes = _HEADER.unpack(bytes(payload[: _HEADER.size]))
    field = _FIELD.pack(_ROWS_BEFORE, _ROW_NUMBER.size) + _ROW_NUMBER.pack(rows_before)
    header = _HEADER.pack(magic, version, header_bytes + len(field), rows, schema_bytes)
    return b"".join((header, memoryview(payload)[_HEADER.size : header_bytes], field, memoryview(payload)[header_bytes:]))


def rows_up_to(payload: pa.Buffer, what: str) -> int | None:
    """How many rows a ledger holds up to this payload, inclusive; None if the payload does not say.

    Raises CorruptionError, FormatVersionError.
    """
    opened = _open(payload, what)
    found = _field(opened.fields, _ROWS_BEFORE, what)
    if found is None:
        return None
    if len(found) != _ROW_NUMBER.size:
        raise CorruptionError(what, f"the rows before it are {len(found)} bytes, not {_ROW_NUMBER.size}")
    (before,) = _ROW_NUMBER.unpack(found)
    return int(before) + opened.rows
