"""The values that the index holds: stored batches, summaries of ledgers, its state, limbo.

In the index each of them carries a CRC32C over all its fields, key included, so that a read finds a flipped bit. Tallies find
what was lost as a whole or came back from an older page: a tally is a count and the sum of the CRCs, whatever their order.
Segments of a ledger tally its batches, the ledger's summary tallies the segments, buckets of ledgers tally the summaries, and
the state tallies buckets and entry logs.

Ref: docs/rules.md, "LastLogMark" and storage rule 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from bk_spark.bookie.log_files.log_file import FilePosition
from bk_spark.bookie.log_files.mark import NO_MARK, LogMark
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.entries.batch import EncodedBatch
from bk_spark.entries.crc import crc32c
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.quorum import IdPattern

INDEX_VERSION = 3
SUM_MODULUS = 1 << 62
"""Sums of CRCs are kept modulo this number, so that they fit SQLite's integers."""

FENCED = 1
"""The flag of a ledger that takes only adds of its recovery."""

DELETED = 2
"""The flag of a tombstone: the ledger was deleted and got nothing since."""

CHOSEN_ID = 4
"""The flag of a ledger whose creator chose its id: it says nothing of the ids that the metadata store gives out."""

MAX_UNSETTLED = 1_000
"""So many ledgers limbo names one by one: eight kilobytes, written with every commit while limbo lasts."""

_STATE = struct.Struct("<I16s8Q4I")
_POSITION = struct.Struct("<QQ")
_NUMBER = struct.Struct("<q")
_PROVEN = struct.Struct("<2q")
_CRC = struct.Struct("<I")


class Tally(NamedTuple):
    """A count, and the sum of so many CRCs modulo SUM_MODULUS."""

    size: int
    crc_sum: int

    def plus(self, size: int, crc_sum: int) -> Tally:
        """With ``size`` more, whose CRCs add up to ``crc_sum``. Both may be negative."""
        return Tally(self.size + size, (self.crc_sum + crc_sum) % SUM_MODULUS)


NO_TALLY = Tally(0, 0)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A stored batch: the ids it holds and its place, in memory (``batch``), in an entry log (``location``) or both."""

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
        """About the bytes that it takes on the wire."""
        if self.batch is not None:
            return len(self.batch.body)
        return self.location.length if self.location is not None else 0

    @property
    def identity(self) -> tuple[object, ...]:
        """The same for two copies of one batch: the ids, and the CRC of the body, whose digests, if any, cover the rest.

        NB: another body has the same CRC with a chance of 1 in 4 billion. Only a writer at fault sends one under the same ids.
        """
        return self.ledger_id, self.first_entry_id, self.last_entry_id, self.pattern, self.body_crc32c

    def holds(self, entry_id: int) -> bool:
        return self.first_entry_id <= entry_id <= self.last_entry_id and self.pattern.holds(entry_id)


def stored_batch(batch: EncodedBatch, sequence: int, location: EntryLocation | None) -> StoredBatch:
    """A batch as it was written with ``sequence``. It keeps the body if there is no location."""
    header = batch.header
    ids = (header.ledger_id, header.first_entry_id, header.last_entry_id)
    return StoredBatch(*ids, sequence, header.pattern, batch.body_crc32c, location, None if location else batch)


@dataclass(frozen=True, slots=True)
class ProvenConfirmation:
    """A last add confirmed that its writer gave with a digest of the ledger id and of this number.

    Only Apache's clients ask for it. One that is lost does no harm: readers go by the entries then.
    """

    last_add_confirmed: int
    proof: bytes


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """What the index knows of a ledger as a whole."""

    ledger_id: int
    batch_count: int
    segments: Tally
    """Of its segments with numbers below 256, of all levels (segments.py)."""
    max_span: int
    """The most ids from first to last of one batch, inclusive. It bounds how far back a look-up must go."""
    highest_entry_id: int
    """No batch has a higher one."""
    last_add_confirmed: int
    master_key_hash: bytes
    flags: int = 0
    """FENCED, DELETED and CHOSEN_ID, any or none of them."""
    deleted_at: int = 0
    """The sequence of its last deletion, 0 if there was none. Everything with a lower sequence is gone for ever."""
    deleted_ms: int = 0
    """The time of that deletion, in milliseconds since 1970."""

    @property
    def is_fenced(self) -> bool:
        return bool(self.flags & FENCED)

    @property
    def is_deleted(self) -> bool:
        return bool(self.flags & DELETED)

    @property
    def has_chosen_id(self) -> bool:
        return bool(self.flags & CHOSEN_ID)


@dataclass(frozen=True, slots=True)
class Limbo:
    """The ledgers of which this bookie may have lost something. It answers neither "no" nor "not fenced" for them.

    Ref: docs/rules.md, storage rule 11.
    """

    fence_watermark: int
    """The highest ledger id issued when the loss was noticed."""
    settled_through: int = -1
    """All ledgers up to this one are settled, except the ``unsettled``."""
    unsettled: frozenset[int] = frozenset()
    """At most MAX_UNSETTLED."""

    def __post_init__(self) -> None:
        if len(self.unsettled) > MAX_UNSETTLED:
            count = len(self.unsettled)
            raise ConfigError(
                "the number of unsettled ledgers", count, f"limbo names at most {MAX_UNSETTLED}: settle through fewer ledgers"
            )

    @property
    def ids(self) -> int:
        """How many ledger ids it holds; there may be fewer ledgers."""
        return max(0, self.fence_watermark - self.settled_through) + len(self.unsettled)

    def holds(self, ledger_id: int) -> bool:
        return self.settled_through < ledger_id <= self.fence_watermark or ledger_id in self.unsettled


@dataclass(frozen=True, slots=True)
class IndexState:
    """The one row of the state table."""

    bookie_id: str
    incarnation: bytes
    generation: int
    buckets: Tally = NO_TALLY
    entry_logs: Tally = NO_TALLY
    mark: LogMark = NO_MARK
    limbo: Limbo | None = None


def check_index_version(what: str, version: int) -> None:
    """Raises FormatVersionError for a newer version, ConfigError for an older one. ``what`` names the index."""
    if version > INDEX_VERSION:
        raise FormatVersionError(what, version, INDEX_VERSION)
    if version < INDEX_VERSION:
        remedy = f"this bk_spark reads version {INDEX_VERSION} only: read the data with the release that wrote it"
        raise ConfigError(f"the format version of {what}", version, remedy)


def pack_state(state: IndexState) -> bytes:
    mark, name, limbo = state.mark, state.bookie_id.encode(), _packed_limbo(state.limbo)
    numbers = (*state.buckets, *state.entry_logs, mark.next_sequence, mark.next_journal_id, mark.next_entry_log_id)
    counts = (len(mark.journals), len(mark.entry_logs), len(limbo), len(name))
    positions = b"".join(_POSITION.pack(one.file_id, one.offset) for one in (*mark.journals, *mark.entry_logs))
    fixed = _STATE.pack(INDEX_VERSION, state.incarnation, state.generation, *numbers, *counts)
    packed = fixed + positions + limbo + name
    return packed + _CRC.pack(crc32c(packed))


def unpack_state(data: bytes, what: str) -> IndexState:
    """Raises CorruptionError, FormatVersionError, ConfigError (an older version). ``what`` names the index."""
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


def pack_proven(ledger_id: int, proven: ProvenConfirmation) -> bytes:
    packed = _PROVEN.pack(ledger_id, proven.last_add_confirmed) + proven.proof
    return packed + _CRC.pack(crc32c(packed))


def unpack_proven(ledger_id: int, data: bytes) -> ProvenConfirmation | None:
    """None if it is damaged."""
    packed = data[: -_CRC.size]
    if len(packed) < _PROVEN.size or _CRC.pack(crc32c(packed)) != data[-_CRC.size :]:
        return None
    found, confirmed = _PROVEN.unpack_from(packed)
    return ProvenConfirmation(confirmed, packed[_PROVEN.size :]) if found == ledger_id else None


def _packed_limbo(limbo: Limbo | None) -> bytes:
    numbers = () if limbo is None else (limbo.fence_watermark, limbo.settled_through, *sorted(limbo.unsettled))
    return b"".join(map(_NUMBER.pack, numbers))


def _unpacked_limbo(data: bytes) -> Limbo | None:
    if not data:
        return None
    watermark, settled_through, *unsettled = (number for (number,) in _NUMBER.iter_unpack(data))
    return Limbo(watermark, settled_through, frozenset(unsettled))
