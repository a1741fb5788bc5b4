"""Which batches the journals hold, for a rebuild of the index: the next start replays them, and may join them once more.

The copy of a journalled batch in an entry log has its ids and its sequence, a joined one the ids of all its parts and the
highest of their sequences. Such a copy must have no row in the rebuilt index: the replay makes one of the same key.

Ref: docs/rules.md, storage rules 1 and 13.
"""

from __future__ import annotations

from enum import Enum

from bk_spark.bookie.look_up import next_asked
from bk_spark.bookie.record import RecordHeader


class Copy(Enum):
    """What a record in an entry log is to the journals."""

    NONE = "the journals do not have it"
    WHOLE = "the journals have all of it"
    PART = "the journals have its first entries, and not all of it"


class JournalledBatches:
    """A number or two for each batch in a journal: a few checkpoints' worth, some hundred thousand at most."""

    def __init__(self) -> None:
        self._sequences: set[int] = set()
        self._last_ids: dict[tuple[int, int], list[int]] = {}
        """By ledger and first entry id."""

    def add(self, header: RecordHeader) -> None:
        batch = header.batch
        assert batch is not None
        self._sequences.add(header.sequence)
        self._last_ids.setdefault((batch.ledger_id, batch.first_entry_id), []).append(batch.last_entry_id)

    def copy_of(self, header: RecordHeader) -> Copy:
        """Follows the chains of journalled batches that begin where the record does.

        One that was added again later may stand in a chain, too: it holds the same ids, and is the newer one.
        """
        batch = header.batch
        assert batch is not None
        if header.sequence not in self._sequences:
            return Copy.NONE
        firsts, seen = {batch.first_entry_id}, set[int]()
        while firsts:
            first = firsts.pop()
            if first > batch.last_entry_id:
                return Copy.WHOLE
            seen.add(first)
            last_ids = self._last_ids.get((batch.ledger_id, first), ())
            firsts |= {next_asked(batch.pattern, last + 1) for last in last_ids} - seen
        return Copy.PART if (batch.ledger_id, batch.first_entry_id) in self._last_ids else Copy.NONE
