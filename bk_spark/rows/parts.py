"""Payloads above the maximum entry: cut into parts for consecutive entries of one ledger, and put together again.

A part is a header and a slice of the payload (codec.py). Programs that know only format version 1 refuse it by name.

====== ====== ===========================================================
offset type   header, little endian
====== ====== ===========================================================
0      4s     magic, ``BKRW``
4      u16    format version, 2
6      u16    bytes of this header; readers skip fields that they do not know
8      u32    rows of the whole payload
12     u32    number of this part, from 0
16     u32    number of parts, at least 2
20     u32    CRC32C of the whole payload
24     u64    bytes of the whole payload
====== ====== ===========================================================

All parts say the same about the whole. A payload counts as standing in the entry of its first part: that entry has its rows,
and a reader of some entries of a ledger reads the payloads whose first part is among these, though others end behind them.

Worked example: a payload has its parts in the entries 4, 5, 6, and 7. A reader of the entries 0 to 5 reads on to 7. A reader of
the entries 6 to 9 looks at 4, where the payload of 6 begins, and leaves out 6 and 7.

Ref: docs/formats.md, "Row payloads".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.config import MAX_ENTRY_BYTES, MIB
from bk_spark.entries.batch import binaries
from bk_spark.entries.crc import crc32c
from bk_spark.errors import CorruptionError, NoSuchEntryError
from bk_spark.rows.codec import MAGIC, MAX_DECODED_BYTES, MAX_ROWS, PART_VERSION, row_count

PART_BYTES = 4 * MIB
"""Of a payload in one part. Apache's bookies take entries of 5 MiB at their defaults, and an add this large costs little more
a byte than a larger one."""

MAX_WHOLE_BYTES = MAX_DECODED_BYTES + MAX_ENTRY_BYTES
"""A whole payload: uncompressed rows, and room for header and schema."""

MAX_PARTS = MAX_WHOLE_BYTES // MIB
"""A reader takes parts of a fourth of today's size, and does not read on for longer than that."""

_HEADER = struct.Struct("<4sHHIIIIQ")
_BEGINNING = struct.Struct("<4sH").pack(MAGIC, PART_VERSION).decode("latin-1")

Read = Callable[[int, int], Iterable[pa.RecordBatch]]
"""Reads entries of one ledger, first and last inclusive: ``entry_id`` int64, ``payload`` binary, and maybe other columns."""


@dataclass(frozen=True, slots=True)
class Whole:
    """What every part says about the payload that it is of."""

    rows: int
    parts: int
    crc: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class PayloadPart:
    """One part of a payload; ``number`` counts from 0."""

    whole: Whole
    number: int
    data: pa.Buffer = field(compare=False)


def in_parts(payloads: Iterable[tuple[pa.Buffer, int]]) -> Iterator[tuple[pa.Buffer, int]]:
    """The payloads with the rows of each; one above the maximum entry as its parts, of which the first has the rows."""
    for payload, rows in payloads:
        if payload.size <= MAX_ENTRY_BYTES:
            yield payload, rows
            continue
        count = -(-payload.size // PART_BYTES)
        whole = Whole(rows, count, crc32c(payload), payload.size)
        for number in range(count):
            part = PayloadPart(whole, number, payload[number * PART_BYTES : (number + 1) * PART_BYTES])
            yield encode_part(part), 0 if number else rows


def encode_part(part: PayloadPart) -> pa.Buffer:
    whole = part.whole
    sink = pa.BufferOutputStream()
    numbers = (whole.rows, part.number, whole.parts, whole.crc, whole.nbytes)
    sink.write(_HEADER.pack(MAGIC, PART_VERSION, _HEADER.size, *numbers))
    sink.write(part.data)
    return sink.getvalue()


def decode_part(payload: pa.Buffer, what: str) -> PayloadPart | None:
    """The part that an entry holds; None if it holds anything else. Raises CorruptionError."""
    if bytes(payload[:6]) != _BEGINNING.encode("latin-1"):
        return None
    if payload.size <= _HEADER.size:
        raise CorruptionError(what, "it ends within the header of a part")
    _, _, header_bytes, rows, number, count, crc, nbytes = _HEADER.unpack(bytes(payload[: _HEADER.size]))
    data_bytes = payload.size - header_bytes
    if header_bytes < _HEADER.size or not 1 <= data_bytes <= nbytes <= MAX_WHOLE_BYTES:
        raise CorruptionError(what, f"its header says {header_bytes} bytes, and a payload of {nbytes}")
    if number >= count or not 2 <= count <= MAX_PARTS or not 1 <= rows <= MAX_ROWS:
        raise CorruptionError(what, f"its header says part {number} of {count}, {rows} rows")
    return PayloadPart(Whole(rows, count, crc, nbytes), number, payload[header_bytes:])


def rows_begun(payload: pa.Buffer, what: str) -> int:
    """The rows of the payload that stands, or begins, in an entry; 0 for a later part. Raises as ``row_count``."""
    part = decode_part(payload, what)
    if part is None:
        return row_count(payload, what)
    return 0 if part.number else part.whole.rows


def whole_payloads(read: Read, ledger_id: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """The payloads that stand or begin in the entries ``first`` to ``last`` of a ledger, each with the id of that entry.

    Batches without parts pass as they were read. Raises CorruptionError where a part is missing, is not the one that must
    stand there, or where the whole is not what was written.
    """
    joining = JoinedPayloads(read, ledger_id, first)
    for batch in read(first, last):
        yield from joining.joined(batch)
    yield from joining.rest(last + 1)


class JoinedPayloads:
    """Puts the payloads of one stretch of entries together, as they arrive. It holds the parts of one payload at most.

    ``read`` reads what the stretch alone does not tell: the parts behind it, and whether a part at its start belongs before it.
    """

    def __init__(self, read: Read, ledger_id: int, first: int) -> None:
        self._read = read
        self._ledger_id = ledger_id
        self._first = first
        self._begun_in = 0
        self._last: PayloadPart | None = None
        """The last part seen of the payload that began in entry ``_begun_in``; None between two payloads."""
        self._parts: list[PayloadPart] = []
        """Its parts so far; empty if it began before the first entry to read."""

    def joined(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The payloads that are whole with the next entries of the stretch."""
        payloads = batch.column("payload")
        if self._last is None and not pc.any(pc.starts_with(payloads, _BEGINNING)).as_py():
            yield batch
            return
        for place, (entry_id, payload) in enumerate(zip(batch.column("entry_id").to_pylist(), payloads, strict=True)):
            part = decode_part(payload.as_buffer(), self._what(entry_id))
            self._check_follows(entry_id, part)
            if part is None:
                yield batch.slice(place, 1)
            elif whole := self._add(entry_id, part):
                columns = [pa.array([self._begun_in], pa.int64()), binaries([whole])]
                yield pa.record_batch(columns, names=["entry_id", "payload"])

    def rest(self, next_entry_id: int) -> Iterator[pa.RecordBatch]:
        """Behind the stretch: read on for the parts that are missing."""
        if not self._parts:
            return
        count = self._parts[0].whole.parts
        try:
            for batch in self._read(next_entry_id, self._begun_in + count - 1):
                yield from self.joined(batch)
        except NoSuchEntryError as gone:
            problem = f"it has {count} parts, of which that in entry {gone.entry_id} is missing"
            raise CorruptionError(self._what(self._begun_in), problem) from None

    def _add(self, entry_id: int, part: PayloadPart) -> pa.Buffer | None:
        """The whole payload, if this is its last part and the first one was among the entries to read."""
        if self._last is None:
            self._begun_in = entry_id - part.number
        if self._last is None and part.number:
            self._check_begun_before(entry_id, part)
        is_last = part.number + 1 == part.whole.parts
        self._last = None if is_last else part
        if part.number and not self._parts:
            return None
        self._parts.append(part)
        if sum(one.data.size for one in self._parts) > part.whole.nbytes:
            raise CorruptionError(self._what(self._begun_in), f"its parts have more than {part.whole.nbytes} bytes")
        if not is_last:
            return None
        parts, self._parts = self._parts, []
        return _whole_of(parts, self._what(self._begun_in))

    def _check_follows(self, entry_id: int, part: PayloadPart | None) -> None:
        if self._last is None or part == replace(self._last, number=self._last.number + 1):
            return
        problem = f"part {self._last.number + 1} of the payload that begins in entry {self._begun_in} must stand here"
        raise CorruptionError(self._what(entry_id), problem)

    def _check_begun_before(self, entry_id: int, part: PayloadPart) -> None:
        """A payload that began before the first entry to read is another reader's. Make sure that it did begin there."""
        if 0 <= self._begun_in < self._first:
            found = [one.as_buffer() for batch in self._read(self._begun_in, self._begun_in) for one in batch.column("payload")]
            if [decode_part(one, self._what(self._begun_in)) for one in found] == [replace(part, number=0)]:
                return
        raise CorruptionError(self._what(entry_id), f"it is part {part.number} of a payload whose part 0 is not in its place")

    def _what(self, entry_id: int) -> str:
        return f"the payload of entry {entry_id} of ledger {self._ledger_id}"


def _whole_of(parts: list[PayloadPart], what: str) -> pa.Buffer:
    whole = pa.py_buffer(b"".join(part.data for part in parts))
    expected = parts[0].whole
    if whole.size != expected.nbytes or crc32c(whole) != expected.crc:
        raise CorruptionError(what, f"its {expected.parts} parts are not the {expected.nbytes} bytes that were written")
    return whole
