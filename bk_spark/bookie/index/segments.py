"""How the rows of a ledger are tallied, so that a missing one is noticed at the cost of a bounded number of rows.

A row belongs to the segment of 65,536 ids that its first id lies in: level 0, number ``first >> 16``. 256 neighbours of a
level make one of the next level: level 1 has numbers ``first >> 24``, level 2 ``first >> 32``, and so on. The first one of each
higher level, number 0, is not kept: what would lie below it is tallied by the ledger's summary itself, so that a ledger of less
than 16 million ids has the one level only, and no ledger needs to change when it grows.

Worked example: rows at the first ids 0, 70,000 and 20,000,000 lie in the segments 0, 1 and 305. 305 belongs to segment 1 of
level 1 (305 >> 8), and the summary tallies three: 0 and 1 of level 0, 1 of level 1.

To prove that a row is not there: the tally of its segment's rows, the tally of each segment above it, and the summary's.
These are at most 256 of each level, and six levels cover all ids.

Ref: docs/rules.md, storage rule 3.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from bk_spark.bookie.index.rows import IndexState, Tally
from bk_spark.bookie.logs.mark import EntryLogRow
from bk_spark.config import MAX_BATCH_ENTRIES

CHILD_BITS = 8
_SEGMENT_BITS = MAX_BATCH_ENTRIES.bit_length() - 1


def segment_of(first_entry_id: int) -> int:
    """The number, on level 0, of the segment of a row."""
    return first_entry_id >> _SEGMENT_BITS


def segments_before(entry_id: int, span: int) -> range:
    """The segments of the rows that may hold an entry, if none spans more ids than ``span``; at most two."""
    return range(segment_of(max(0, entry_id - span + 1)), segment_of(entry_id) + 1)


def first_id(number: int) -> int:
    """The first entry id of a segment of level 0."""
    return number << _SEGMENT_BITS


def parent_of(number: int) -> int:
    """The number, one level up, of the segment that tallies this one; 0 means the ledger's summary."""
    return number >> CHILD_BITS


def children_of(number: int) -> range:
    """The numbers, one level down, of those that a segment tallies."""
    return range(number << CHILD_BITS, number + 1 << CHILD_BITS)


# --- What an open index keeps in memory: its state, the tally of each bucket of ledgers, and all entry logs
#
# They were verified when the index was opened and are what everything else is held against, so that later damage in the file
# cannot change them. Memory: one mebibyte for the buckets, about 200 bytes an entry log.
#
# Ref: docs/rules.md, storage rule 3.

BUCKETS = 1 << 16
"""A bookie of a million ledgers has 16 in each, and reads its buckets in a tenth of a second."""

_NEIGHBOUR_BITS = 4


def bucket_of(ledger_id: int) -> int:
    """Sixteen neighbours share a bucket: they are made and deleted at about the same time."""
    return ledger_id >> _NEIGHBOUR_BITS & BUCKETS - 1


class Buckets:
    """The tallies of the summaries of each bucket."""

    def __init__(self) -> None:
        self._counts = array("q", bytes(8 * BUCKETS))
        self._crc_sums = array("q", bytes(8 * BUCKETS))

    def tally(self, bucket: int) -> Tally:
        return Tally(self._counts[bucket], self._crc_sums[bucket])

    def put(self, bucket: int, tally: Tally) -> None:
        self._counts[bucket], self._crc_sums[bucket] = tally

    @property
    def ledger_count(self) -> int:
        return sum(self._counts)


@dataclass(slots=True)
class IndexMemory:
    """Changed only after the transaction that stores the same."""

    state: IndexState
    buckets: Buckets
    logs: dict[int, EntryLogRow]
    """By file id."""
