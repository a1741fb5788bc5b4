"""What the index holds, as values with their checksums: rows of batches, summaries of ledgers, entry logs, the state.

Every one of them carries a CRC32C over all its fields, its key included, so that a flipped bit in the index file is found where
it is read. What was lost as a whole, or came back from an older page, is found by tallies: how many there are and the sum
of their CRCs, in no order. Rows are tallied by segments of a ledger, segments by the ledger's summary, summaries by buckets of
ledgers, buckets and entry logs by the state.

Ref: docs/rules.md, "LastLogMark" and storage rule 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from bk_spark.bookie.logs.log_file import FilePosition
from bk_spark.bookie.logs.mark import NO_MARK, EntryLogRow, LogMark
from bk_spark.bookie.logs.writer import EntryLocation
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch
from bk_spark.entries.crc import crc32c
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.quorum import DENSE, IdPattern

INDEX_VERSION = 2
SUM_MODULUS = 1 << 62
"""Sums of CRCs are kept modulo this: they fit SQLite's integers."""

FENCED = 1
"""The flag of a ledger that takes adds of its recovery only."""

DELETED = 2
"""The flag of a tombstone: a ledger that was deleted and got nothing since."""

MAX_UNSETTLED = 1_000
"""Ledgers that limbo names one by one: eight kilobytes, written with every commit while limbo lasts."""

_ROW = struct.Struct("<5qIqqqI")
_SUMMARY = struct.Struct("<11q16s")
_ENTRY_LOG = struct.Struct("<qIIqqI")
_TALLY = struct.Struct("<5qI")
_STATE = struct.Struct("<I16s8Q4I")
_POSITION = struct.Struct("<QQ")
_LIMBO = struct.Struct("<qq")
_ID = struct.Struct("<q")
_CRC = struct.Struct("<I")


class Tally(NamedTuple):
    """How many there are, and the sum of their CRCs modulo SUM_MODULUS."""

    size: int
    crc_sum: int

    def plus(self, size: int, crc_sum: int) -> Tally:
        """After ``size`` more, whose CRCs add up to ``crc_sum``; both may be negative."""
        return Tally(self.size + size, (self.crc_sum + crc_sum) % SUM_MODULUS)


NO_TALLY = Tally(0, 0)


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A stored batch: which ids it holds, and where it is, in memory (``batch``), in the entry log (``location``) or both."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    sequence: int
    pattern: IdPattern
    body_crc32c: int
    location: EntryLocation | None
    batch: EncodedBatch | None = field(default=None, repr=False)

    @property
    def span(self) -> int:
        return self.last_entry_id - self.first_entry_id + 1

    @property
    def size_bytes(self) -> int:
        """About what it takes on the wire."""
        if self.batch is not None:
            return len(self.batch.body)
        return self.location.length if self.location is not None else 0

    @property
    def identity(self) -> tuple[object, ...]:
        """What is the same for two copies of one batch: the ids and, with the body's digests, all the rest."""
        return self.ledger_id, self.first_entry_id, self.last_entry_id, self.pattern, self.body_crc32c

    def holds(self, entry_id: int) -> bool:
        return self.first_entry_id <= entry_id <= self.last_entry_id and self.pattern.holds(entry_id)


def row_of(batch: EncodedBatch, sequence: int, location: EntryLocation | None) -> BatchRow:
    """The row of a batch that was written under ``sequence``: it keeps the body if there is no location."""
    header = batch.header
    ids = (header.ledger_id, header.first_entry_id, header.last_entry_id)
    return BatchRow(*ids, sequence, header.pattern, batch.body_crc32c, location, None if location else batch)


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """What the index says of a whole ledger."""

    ledger_id: int
    row_count: int
    segments: Tally
    """Of the highest level of its segments (segments.py)."""
    max_span: int
    """The most ids between first and last of one row, both counted: bounds how far back a look-up must go."""
    highest_entry_id: int
    """No row has a higher one."""
    last_add_confirmed: int
    master_key_hash: bytes
    flags: int = 0
    """FENCED, DELETED, both or none."""
    deleted_at: int = 0
    """The sequence of its last deletion: everything below it is gone, for ever. 0: it never was deleted."""
    deleted_ms: int = 0
    """When that was, in milliseconds since 1970."""

    @property
    def is_fenced(self) -> bool:
        return bool(self.flags & FENCED)

    @property
    def is_deleted(self) -> bool:
        return bool(self.flags & DELETED)


@dataclass(frozen=True, slots=True)
class Limbo:
    """The ledgers of which this bookie may have lost something: it says neither no nor "not fenced" of them.

    Ref: docs/rules.md, storage rule 11.
    """

    fence_watermark: int
    """The highest ledger id that was issued when the loss was noticed."""
    settled_through: int = -1
    """All ledgers up to this one are settled, but for the ``unsettled``."""
    unsettled: frozenset[int] = frozenset()
    """At most MAX_UNSETTLED."""

    def __post_init__(self) -> None:
        if len(self.unsettled) > MAX_UNSETTLED:
            count = len(self.unsettled)
            raise ConfigError("unsettled ledgers", count, f"limbo names at most {MAX_UNSETTLED}: settle through fewer ledgers")

    def holds(self, ledger_id: int) -> bool:
        return self.settled_through < ledger_id <= self.fence_watermark or ledger_id in self.unsettled


@dataclass(frozen=True, slots=True)
class IndexState:
    """The one row of the state table."""

    bookie_id: str
    incarnation: bytes
    generation: int
    buckets: Tally = NO_TALLY
    logs: Tally = NO_TALLY
    mark: LogMark = NO_MARK
    limbo: Limbo | None = None


def pack_pattern(pattern: IdPattern) -> int:
    return pattern.ensemble_size << 16 | pattern.write_quorum << 8 | pattern.slot


def unpack_pattern(number: int) -> IdPattern:
    """Raises ConfigError if it is none."""
    parts = (number >> 16, number >> 8 & 255, number & 255)
    return DENSE if parts == (1, 1, 0) else IdPattern(*parts)


def row_crc(columns: tuple[int, ...]) -> int:
    """Of ledger, first, sequence, last, pattern, body CRC, file id, offset, length: the columns of the table in order."""
    ledger_id, first, sequence, last, pattern, body_crc32c, file_id, offset, length = columns
    crc: int = crc32c(_ROW.pack(ledger_id, first, sequence, last, pattern, body_crc32c, file_id, offset, length, INDEX_VERSION))
    return crc


def summary_crc(summary: LedgerSummary) -> int:
    one = summary
    ids = (one.max_span, one.highest_entry_id, one.last_add_confirmed)
    numbers = (one.ledger_id, one.row_count, *one.segments, *ids, one.flags, one.deleted_at, one.deleted_ms, INDEX_VERSION)
    crc: int = crc32c(_SUMMARY.pack(*numbers, one.master_key_hash))
    return crc


def tally_crc(key: tuple[int, ...], tally: Tally) -> int:
    """Of the tally that a table has under ``key``, three numbers."""
    crc: int = crc32c(_TALLY.pack(*key, *tally, INDEX_VERSION))
    return crc


def entry_log_crc(log: EntryLogRow) -> int:
    crc: int = crc32c(_ENTRY_LOG.pack(log.file_id, log.directory, log.state, log.total_bytes, log.live_bytes, INDEX_VERSION))
    return crc


def new_summary(ledger_id: int, master_key_hash: bytes) -> LedgerSummary:
    return LedgerSummary(ledger_id, 0, NO_TALLY, 0, NO_ENTRY, NO_ENTRY, master_key_hash)


def check_index_version(what: str, version: int) -> None:
    """Raises FormatVersionError for a newer one, ConfigError for an older one; ``what`` names the index."""
    if version > INDEX_VERSION:
        raise FormatVersionError(what, version, INDEX_VERSION)
    if version < INDEX_VERSION:
        remedy = f"this bk_spark reads version {INDEX_VERSION} only: read the data with the release that wrote it"
        raise ConfigError(f"the format version of {what}", version, remedy)


def pack_state(state: IndexState) -> bytes:
    mark, name, limbo = state.mark, state.bookie_id.encode(), _packed_limbo(state.limbo)
    numbers = (*state.buckets, *state.logs, mark.next_sequence, mark.next_journal_id, mark.next_entry_log_id)
    counts = (len(mark.journals), len(mark.entry_logs), len(limbo), len(name))
    positions = b"".join(_POSITION.pack(one.file_id, one.offset) for one in (*mark.journals, *mark.entry_logs))
    fixed = _STATE.pack(INDEX_VERSION, state.incarnation, state.generation, *numbers, *counts)
    packed = fixed + positions + limbo + name
    return packed + _CRC.pack(crc32c(packed))


def unpack_state(data: bytes, what: str) -> IndexState:
    """Raises CorruptionError, FormatVersionError, ConfigError (an older version); ``what`` names the index."""
    if len(data) < _STATE.size + _CRC.size or crc32c(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise CorruptionError(what, "the checksum of its state is wrong")
    version, incarnation, generation, *numbers = _STATE.unpack_from(data)
    check_index_version(what, version)
    *sums, sequence, journal_id, entry_log_id, journals, entry_logs, limbo_bytes, _ = numbers
    limbo_start = _STATE.size + (journals + entry_logs) * _POSITION.size
    name_start = limbo_start + limbo_bytes
    positions = [FilePosition(*one) for one in _POSITION.iter_unpack(data[_STATE.size : limbo_start])]
    mark = LogMark(sequence, journal_id, entry_log_id, tuple(positions[:journals]), tuple(positions[journals:]))
    limbo = _unpacked_limbo(data[limbo_start:name_start])
    name = data[name_start : -_CRC.size].decode()
    return IndexState(name, incarnation, generation, Tally(*sums[:2]), Tally(*sums[2:]), mark, limbo)


def _packed_limbo(limbo: Limbo | None) -> bytes:
    """Nothing for none."""
    if limbo is None:
        return b""
    ids = b"".join(map(_ID.pack, sorted(limbo.unsettled)))
    return _LIMBO.pack(limbo.fence_watermark, limbo.settled_through) + ids


def _unpacked_limbo(data: bytes) -> Limbo | None:
    if not data:
        return None
    watermark, settled_through = _LIMBO.unpack_from(data)
    return Limbo(watermark, settled_through, frozenset(one for (one,) in _ID.iter_unpack(data[_LIMBO.size :])))
