"""What an open index keeps in memory: its state, the tally of each bucket of ledgers, and all entry logs.

They were verified when the index was opened and are what everything else is held against, so that later damage in the file
cannot change them. Memory: one mebibyte for the buckets, about 200 bytes an entry log.

Ref: docs/rules.md, storage rule 3.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from bk_spark.bookie.index_rows import EntryLogRow, IndexState, Tally

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
