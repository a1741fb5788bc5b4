"""Batches of entries: as arrays in memory, and as bytes on the wire and on disk.

An entry has a ledger id, entry id, last add confirmed (LAC), cumulative length, digest and payload. Entries are never handled
one by one: an ``EntryBatch`` holds many entries of one ledger as arrays, an ``EncodedBatch`` the same as bytes, in one format
for the wire and for files. The bytes leave out what follows from the header: the ids (from the interval and its pattern), the
LAC if all entries have the same, and in a dense batch the lengths (running sums of the payload sizes). A writer's batch has one
LAC; a batch that a bookie joined from several (``coalesce``) has one for each entry.

Ref: docs/formats.md, "A batch of entries".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.config import MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, DigestType
from bk_spark.entries.arrow_message import record_batch_facts
from bk_spark.entries.body_draft import BodyDraft, body_of
from bk_spark.entries.body_layout import BodyLayout, layout_of
from bk_spark.entries.crc import crc32c
from bk_spark.entries.digest import DIGEST_BYTES, Digester, payload_bytes, payload_sizes
from bk_spark.errors import ConfigError, CorruptionError, State
from bk_spark.quorum import DENSE, MAX_ENSEMBLE_SIZE, IdPattern

READ_SCHEMA = pa.schema(
    [
        pa.field("entry_id", pa.int64(), nullable=False),
        pa.field("last_add_confirmed", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""What readers get. ``length`` is the ledger's payload bytes up to and including the entry."""

ENTRY_OVERHEAD_BYTES = 32
"""Id, LAC, length, offset and digest of one entry in memory."""

MAX_BINARY_BYTES = 2**31 - 1
"""Of one array of Arrow's type ``binary``, whose offsets have 32 bits."""

NO_ENTRY = -1
"""The last add confirmed, and the last entry id, of a ledger without entries."""

MAX_ENTRY_ID = 1 << 62
"""The largest entry id, last add confirmed and length of a ledger: sums of two of them still fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What an encoded batch stores once for all its entries."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    """Inclusive. The batch holds the ids of ``pattern`` in this interval, always including the first and the last."""
    pattern: IdPattern
    last_add_confirmed: int
    """The LAC of all entries; with ``mixed_lac`` the highest of their LACs. A writer's are below the first entry. Copies that
    Apache's AutoRecovery made have the LAC of the time of copying, which may be above them."""
    length_before: int
    """The ledger's payload bytes before the first entry."""
    digest_type: DigestType | None
    """None: a batch of Apache's entries. Its body has one column, with every entry as a client of Apache's sent it
    (``apache_entries.py``). ``length_before`` is 0 there."""
    mixed_lac: bool = False
    """The body has a LAC for each entry."""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise CorruptionError(f"the header of a batch of ledger {self.ledger_id}", problem)

    @property
    def count(self) -> int:
        return self.pattern.count(self.first_entry_id, self.last_entry_id)

    @property
    def is_apache(self) -> bool:
        """Whether the batch holds Apache's entries, each in one piece, and not the columns of our own layout."""
        return self.digest_type is None

    @property
    def is_below_its_entries(self) -> bool:
        """Whether the LAC may be a writer's, who adds only what is not confirmed yet."""
        return self.last_add_confirmed < (self.last_entry_id if self.mixed_lac else self.first_entry_id)

    def is_followed_by(self, other: BatchHeader) -> bool:
        """Whether ``other`` holds the next ids of the same ledger and pattern, with digests of the same type.

        Apache's entries need no common pattern: they may have been added one by one, with gaps as striping leaves them.
        """
        if self.is_apache:
            gap = other.first_entry_id - self.last_entry_id
            return other.is_apache and self.ledger_id == other.ledger_id and 0 < gap <= MAX_ENSEMBLE_SIZE
        mine = (self.ledger_id, self.pattern, self.digest_type)
        between = range(self.last_entry_id + 1, other.first_entry_id)
        is_adjacent = other.first_entry_id > self.last_entry_id and len(between) < self.pattern.ensemble_size
        is_alike = mine == (other.ledger_id, other.pattern, other.digest_type)
        return is_alike and is_adjacent and not any(self.pattern.holds(entry_id) for entry_id in between)

    def _problem(self) -> str | None:
        if self.ledger_id < 0 or self.first_entry_id < 0 or self.length_before < 0:
            return "a negative ledger id, entry id or length"
        if max(self.last_entry_id, self.length_before) > MAX_ENTRY_ID:
            return f"entry id {self.last_entry_id} or length {self.length_before} is above {MAX_ENTRY_ID}"
        if not 0 <= self.last_entry_id - self.first_entry_id < MAX_BATCH_ENTRIES:
            return f"ids {self.first_entry_id} to {self.last_entry_id} do not span 1 to {MAX_BATCH_ENTRIES} entries"
        if not NO_ENTRY <= self.last_add_confirmed <= MAX_ENTRY_ID:
            return f"last add confirmed {self.last_add_confirmed} is not from {NO_ENTRY} to {MAX_ENTRY_ID}"
        if not (self.pattern.holds(self.first_entry_id) and self.pattern.holds(self.last_entry_id)):
            return "its first or last id is not of its own pattern"
        return None


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch as bytes: one Arrow IPC record batch message, without the schema, which follows from the header."""

    header: BatchHeader
    body: bytes | memoryview
    """A view if it is part of a received message: entries decoded from it share the message's memory."""
    body_crc32c: int

    def check(self) -> None:
        """Raise CorruptionError unless the body matches its checksum and is within bounds."""
        if len(self.body) > MAX_BATCH_BYTES:
            raise CorruptionError(batch_name(self.header), f"{len(self.body)} bytes, the maximum is {MAX_BATCH_BYTES}")
        if crc32c(self.body) != self.body_crc32c:
            raise CorruptionError(batch_name(self.header), "the checksum of its body is wrong")

    def check_entries(self) -> None:
        """Raise CorruptionError unless the body, which passed ``check``, holds an entry for each id: ``decode`` will succeed.
        The batch must not be one of whole entries.

        It costs a tenth of that, except for a batch of mixed LACs or one that pyarrow did not write.
        """
        header = self.header
        layout = None if header.mixed_lac else _layout(False, header.pattern.is_dense, header.digest_type)
        if layout is None or not layout.is_body(self.body, header.count):
            decode(self)


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """Entries of one ledger, ascending by id, as parallel arrays of one length."""

    ledger_id: int
    entry_ids: npt.NDArray[np.int64]
    last_add_confirmed: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    """Cumulative, including the entry itself."""
    digests: pa.FixedSizeBinaryArray
    payloads: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.entry_ids)

    @property
    def nbytes(self) -> int:
        """Memory of the entries; it does not depend on how they are cut into batches."""
        return payload_bytes(self.payloads) + len(self) * ENTRY_OVERHEAD_BYTES

    def select(self, mask: npt.NDArray[np.bool_]) -> EntryBatch:
        """The entries where ``mask`` is true; not copied if they are neighbours."""
        kept = np.flatnonzero(mask)
        if len(kept) == len(self):
            return self
        if len(kept) and kept[-1] - kept[0] + 1 == len(kept):
            return self.slice(int(kept[0]), len(kept))
        rows = int64s(kept)
        return _part(self, kept, lambda column: column.take(rows))

    def slice(self, start: int, count: int) -> EntryBatch:
        return _part(self, slice(start, start + count), lambda column: column.slice(start, count))

    def matching(self, digester: Digester) -> npt.NDArray[np.bool_]:
        """True for each entry whose digest is right."""
        covered = (self.ledger_id, self.entry_ids, self.last_add_confirmed, self.lengths, self.payloads)
        if digester.are_right(*covered, self.digests):
            return np.ones(len(self), dtype=np.bool_)
        right = digester.compute(*covered)
        if self.digests.type != right.type:
            return np.zeros(len(self), dtype=np.bool_)
        return np.array([found == expected for found, expected in zip(self.digests, right, strict=True)], dtype=np.bool_)

    def to_arrow(self) -> pa.RecordBatch:
        """A record batch in READ_SCHEMA."""
        columns = [int64s(self.entry_ids), int64s(self.last_add_confirmed), int64s(self.lengths), self.payloads]
        return pa.RecordBatch.from_arrays(columns, schema=READ_SCHEMA)


def _part(batch: EntryBatch, rows: slice | npt.NDArray[np.int64], of_arrow: Callable[[pa.Array], pa.Array]) -> EntryBatch:
    """Some rows of a batch: ``rows`` picks them from numpy arrays, ``of_arrow`` picks the same from Arrow arrays."""
    return replace(
        batch,
        entry_ids=batch.entry_ids[rows],
        last_add_confirmed=batch.last_add_confirmed[rows],
        lengths=batch.lengths[rows],
        digests=of_arrow(batch.digests),
        payloads=of_arrow(batch.payloads),
    )


def seal(
    digester: Digester,
    ledger_id: int,
    first_entry_id: int,
    payloads: pa.BinaryArray,
    *,
    length_before: int,
    last_add_confirmed: int,
) -> EntryBatch:
    """Payloads as consecutive entries from ``first_entry_id`` on, with their lengths and digests."""
    entry_ids = np.arange(first_entry_id, first_entry_id + len(payloads), dtype=np.int64)
    lengths = length_before + np.cumsum(payload_sizes(payloads))
    confirmed = np.full(len(payloads), last_add_confirmed, dtype=np.int64)
    digests = digester.compute(ledger_id, entry_ids, confirmed, lengths, payloads)
    return EntryBatch(ledger_id, entry_ids, confirmed, lengths, digests, payloads)


def draft_of(payloads: pa.BinaryArray, digest_type: DigestType) -> BodyDraft:
    """The body of a dense batch of one LAC, which still lacks its digests. At least one payload."""
    return BodyDraft(_layout(False, True, digest_type), payloads)


def encode(
    batch: EntryBatch, digest_type: DigestType, pattern: IdPattern = DENSE, draft: BodyDraft | None = None
) -> EncodedBatch | None:
    """The entries of ``batch`` (consecutive ids) that ``pattern`` holds, as bytes; None if it holds none of them.

    ``draft`` has the payloads of all of ``batch``, for the dense pattern and one LAC. It is used up.
    """
    chosen = batch.select(pattern.mask(batch.entry_ids))
    if not len(chosen):
        return None
    first_size = int(payload_sizes(chosen.payloads.slice(0, 1))[0])
    confirmed = int(chosen.last_add_confirmed.max())
    header = BatchHeader(
        batch.ledger_id,
        int(chosen.entry_ids[0]),
        int(chosen.entry_ids[-1]),
        pattern,
        confirmed,
        int(chosen.lengths[0]) - first_size,
        digest_type,
        mixed_lac=bool((chosen.last_add_confirmed != confirmed).any()),
    )
    columns = [np.ascontiguousarray(chosen.last_add_confirmed).data.cast("B")] if header.mixed_lac else []
    if not pattern.is_dense:
        columns.append(np.ascontiguousarray(chosen.lengths).data.cast("B"))
    columns.append(_values(chosen.digests))
    if draft is not None:
        body: bytes | memoryview = draft.completed(columns)
    else:
        body = body_of(_layout(header.mixed_lac, pattern.is_dense, digest_type), columns, chosen.payloads)
    return EncodedBatch(header, body, crc32c(body))


def decode(encoded: EncodedBatch) -> EntryBatch:
    """The entries of a batch; their payloads may share memory with ``encoded.body``.

    Raises CorruptionError if the bytes do not match the header, or if the batch has whole entries.
    """
    header = encoded.header
    if header.is_apache:
        raise CorruptionError(batch_name(header), "its entries are whole, and their digest type is not known here")
    body = read_body(encoded)
    entry_ids = header.pattern.ids(header.first_entry_id, header.last_entry_id)
    payloads = body.column("payload")
    if header.pattern.is_dense:
        lengths = header.length_before + np.cumsum(payload_sizes(payloads))
    else:
        lengths = numbers(body.column("length"))
    confirmed = confirmed_of(header, body, entry_ids)
    return EntryBatch(header.ledger_id, entry_ids, confirmed, lengths, body.column("digest"), payloads)


def confirmed_of(header: BatchHeader, body: pa.RecordBatch, entry_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The LAC of each entry. Raises CorruptionError for one that no entry can have, or if they are not as the header says."""
    if not header.mixed_lac:
        return np.full(len(entry_ids), header.last_add_confirmed, dtype=np.int64)
    confirmed = numbers(body.column("last_add_confirmed"))
    if confirmed.max() != header.last_add_confirmed or confirmed.min() < NO_ENTRY:
        raise CorruptionError(
            batch_name(header), "a last add confirmed that no entry can have, or that is not as its header says"
        )
    return confirmed


def int64s(values: npt.NDArray[np.int64]) -> pa.Array:
    """The same numbers as an Arrow array, not copied. ``pa.array`` would import pandas at its first call, which takes 0.4 s."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def binaries(payloads: Sequence[bytes | pa.Buffer]) -> pa.BinaryArray:
    """The same bytes as an Arrow array; a single payload is not copied.

    Like ``int64s`` it avoids the import of pandas, which also swallows a KeyboardInterrupt. Raises ConfigError for more bytes
    than an array holds.
    """
    ends = np.zeros(len(payloads) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)), out=ends[1:])
    if ends[-1] > MAX_BINARY_BYTES:
        raise ConfigError(
            "the size of the payloads", State(f"{ends[-1]} bytes"), f"at most {MAX_BINARY_BYTES} bytes go into one call"
        )
    data = payloads[0] if len(payloads) == 1 else b"".join(payloads)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(payloads), [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    )


def _values(column: pa.FixedSizeBinaryArray) -> memoryview:
    """The bytes of all values in a row."""
    width = column.type.byte_width
    return memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width]


def numbers(column: pa.Int64Array) -> npt.NDArray[np.int64]:
    return np.frombuffer(column.buffers()[1], dtype=np.int64, count=column.offset + len(column))[column.offset :]


def body_schema(header: BatchHeader) -> pa.Schema:
    return _schema(header.mixed_lac, header.pattern.is_dense, header.digest_type)


@cache
def _layout(mixed_lac: bool, is_dense: bool, digest_type: DigestType | None) -> BodyLayout:
    return layout_of(_schema(mixed_lac, is_dense, digest_type))


@cache
def _schema(mixed_lac: bool, is_dense: bool, digest_type: DigestType | None) -> pa.Schema:
    if digest_type is None:
        return pa.schema([pa.field("entry", pa.binary(), nullable=False)])
    fields = [pa.field("last_add_confirmed", pa.int64(), nullable=False)] if mixed_lac else []
    if not is_dense:
        fields.append(pa.field("length", pa.int64(), nullable=False))
    fields.append(pa.field("digest", pa.binary(DIGEST_BYTES[digest_type]), nullable=False))
    fields.append(pa.field("payload", pa.binary(), nullable=False))
    return pa.schema(fields)


def read_body(encoded: EncodedBatch) -> pa.RecordBatch:
    """The body of a batch, verified: its checksum, its schema, and that it has a row for each id of the header."""
    header = encoded.header
    encoded.check()
    facts = record_batch_facts(memoryview(encoded.body), batch_name(header))
    if facts.is_compressed:
        raise CorruptionError(batch_name(header), "the buffers of a batch are not compressed")
    if facts.rows != header.count:
        raise CorruptionError(batch_name(header), f"{facts.rows} rows for {header.count} ids")
    try:
        body = pa.ipc.read_record_batch(pa.py_buffer(encoded.body), body_schema(header))
        body.validate(full=True)
    except (pa.ArrowException, EOFError, OSError, ValueError) as problem:
        raise CorruptionError(batch_name(header), f"not an Arrow record batch ({problem})") from None
    if any(column.null_count for column in body.columns):
        raise CorruptionError(batch_name(header), "there are nulls in it")
    if body.nbytes > len(encoded.body):
        sizes = f"{len(encoded.body)} bytes stand for {body.nbytes}"
        raise CorruptionError(batch_name(header), f"{sizes}: the buffers of a batch are not used twice")
    return body


def batch_name(header: BatchHeader) -> str:
    """What errors call it."""
    return f"the batch of entries {header.first_entry_id} to {header.last_entry_id} of ledger {header.ledger_id}"
