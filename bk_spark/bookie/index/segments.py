"""Segments of a ledger and buckets of ledgers: with them the index notices that a batch is missing, and reads a few rows for
it.

A stored batch belongs to the segment of 65,536 ids that its first id lies in: level 0, number ``first >> 16``. 256 neighbours
of a level form one segment of the next level: level 1 has numbers ``first >> 24``, level 2 ``first >> 32``, and so on. Number 0
of a higher level is not kept; the ledger's summary tallies what would lie below it. So a ledger of less than 16 million ids has
only level 0, and no ledger needs to change its levels when it grows.

Worked example: batches at the first ids 0, 70,000 and 20,000,000 lie in the segments 0, 1 and 305. 305 belongs to segment 1 of
level 1 (305 >> 8), and the summary tallies three: 0 and 1 of level 0, 1 of level 1.

To prove that a stored batch is missing, compare what is there with the tally of its segment, of each segment above that, and of
the summary. These are at most 256 segments of each level, and six levels cover all ids.

Ref: docs/rules.md, storage rule 3.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from bk_spark.bookie.index.values import IndexState, Tally
from bk_spark.bookie.log_files.mark import KnownEntryLog
from bk_spark.config import MAX_BATCH_ENTRIES

CHILD_BITS = 8
_SEGMENT_BITS = MAX_BATCH_ENTRIES.bit_length() - 1

BUCKETS = 1 << 16
"""A bookie of a million ledgers has 16 in each, and reads its buckets in a tenth of a second."""

_NEIGHBOUR_BITS = 4


def segment_of(first_entry_id: int) -> int:
    """The number of a stored batch's segment of level 0."""
    return first_entry_id >> _SEGMENT_BITS


def segments_before(entry_id: int, span: int) -> range:
    """The segments of the stored batches that may hold an entry, if none spans more ids than ``span``. At most two."""
    return range(segment_of(max(0, entry_id - span + 1)), segment_of(entry_id) + 1)


def first_id(number: int) -> int:
    """The first entry id of a segment of level 0."""
    return number << _SEGMENT_BITS


def parent_of(number: int) -> int:
    """The number of the segment one level up that tallies this one. 0 means the ledger's summary."""
    return number >> CHILD_BITS


def children_of(number: int) -> range:
    """The numbers of the segments one level down that a segment tallies."""
    return range(number << CHILD_BITS, number + 1 << CHILD_BITS)


def bucket_of(ledger_id: int) -> int:
    """Sixteen neighbours share a bucket: they are created and deleted at about the same time."""
    return ledger_id >> _NEIGHBOUR_BITS & BUCKETS - 1


class Buckets:
    """Each bucket's tally of its ledgers' summaries, in one mebibyte."""

    def __init__(self) -> None:
        self._counts = array("q", bytes(8 * BUCKETS))
        self._crc_sums = array("q", bytes(8 * BUCKETS))

    def tally(self, bucket: int) -> Tally:
        return Tally(self._counts[bucket], self._crc_sums[bucket])

    def put(self, bucket: int, tally: Tally) -> None:
        self._counts[bucket], self._crc_sums[bucket] = tally


@dataclass(slots=True)
class IndexMemory:
    """What an open index keeps in memory: its state, all buckets, and all entry logs, about 200 bytes each.

    It was verified when the index was opened, and everything else is held against it, so that later damage in the file cannot
    change it. It changes only after the transaction that stores the same.
    """

    state: IndexState
    buckets: Buckets
    entry_logs: dict[int, KnownEntryLog]
    """By file id."""
