"""What the index holds, as values with their checksums: rows of batches, summaries of ledgers, its state with the mark.

Every one of them carries a CRC32C over all its fields, its key included, so that a flipped bit in the index file is found where
it is read. What was lost as a whole is found by sums: a ledger's summary counts its rows and adds up their CRCs, the state
does the same with the summaries; neither sum depends on an order.

Ref: docs/rules.md, "LastLogMark" and storage rule 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from bk_spark.bookie.log_file import LOG_START, LogPosition
from bk_spark.bookie.log_writer import EntryLocation
from bk_spark.checksum import crc32c
from bk_spark.entry import NO_ENTRY, EncodedBatch
from bk_spark.errors import CorruptionError, FormatVersionError
from bk_spark.quorum import DENSE, IdPattern

INDEX_VERSION = 1
SUM_MODULUS = 1 << 62
"""Sums of CRCs are kept modulo this: they fit SQLite's integers."""

FENCED = 1
"""The flag of a ledger that takes adds of its recovery only."""

_ROW = struct.Struct("<5qIqqqI")
_SUMMARY = struct.Struct("<7q16s")
_STATE = struct.Struct("<I16s10QI")
_CRC = struct.Struct("<I")


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
    row_crc_sum: int
    max_span: int
    """The most ids between first and last of one row, both counted: bounds how far back a look-up must go."""
    highest_entry_id: int
    last_add_confirmed: int
    master_key_hash: bytes
    flags: int = 0
    """FENCED or nothing."""

    @property
    def is_fenced(self) -> bool:
        return bool(self.flags & FENCED)


@dataclass(frozen=True, slots=True)
class LogMark:
    """Up to where all that was logged is in the index, and the numbers that were never used."""

    next_sequence: int = 1
    next_journal_id: int = 1
    next_entry_log_id: int = 1
    journal: LogPosition = LOG_START
    entry_log: LogPosition = LOG_START


@dataclass(frozen=True, slots=True)
class IndexState:
    """The one row of the state table."""

    bookie_id: str
    incarnation: bytes
    generation: int
    ledger_count: int
    summary_crc_sum: int
    mark: LogMark


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
    numbers = (one.ledger_id, one.row_count, one.row_crc_sum, one.max_span, one.highest_entry_id, one.last_add_confirmed)
    crc: int = crc32c(_SUMMARY.pack(*numbers, one.flags, one.master_key_hash))
    return crc


def new_summary(ledger_id: int, master_key_hash: bytes) -> LedgerSummary:
    return LedgerSummary(ledger_id, 0, 0, 0, NO_ENTRY, NO_ENTRY, master_key_hash)


def pack_state(state: IndexState) -> bytes:
    mark, name = state.mark, state.bookie_id.encode()
    positions = (mark.journal.file_id, mark.journal.offset, mark.entry_log.file_id, mark.entry_log.offset)
    numbers = (mark.next_sequence, mark.next_journal_id, mark.next_entry_log_id, *positions)
    sums = (state.generation, state.ledger_count, state.summary_crc_sum)
    packed = _STATE.pack(INDEX_VERSION, state.incarnation, *sums, *numbers, len(name)) + name
    return packed + _CRC.pack(crc32c(packed))


def unpack_state(data: bytes, what: str) -> IndexState:
    """Raises CorruptionError, FormatVersionError; ``what`` names the index."""
    if len(data) < _STATE.size + _CRC.size or crc32c(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise CorruptionError(what, "the checksum of its state is wrong")
    version, incarnation, generation, ledgers, crc_sum, *numbers = _STATE.unpack_from(data)
    if version > INDEX_VERSION:
        raise FormatVersionError(what, version, INDEX_VERSION)
    sequence, journal_id, entry_log_id, *positions, _ = numbers
    mark = LogMark(sequence, journal_id, entry_log_id, LogPosition(*positions[:2]), LogPosition(*positions[2:]))
    return IndexState(data[_STATE.size : -_CRC.size].decode(), incarnation, generation, ledgers, crc_sum, mark)
