"""The change that ends a re-replication: the new bookies take their slots in one fragment's ensemble, and nothing else changes.

Worked example: the fragments are 0: (b1, b2, b3), 42: (b1, b4, b3). b2 is lost, and b5 holds what slot 1 of the first fragment
should hold. The change results in 0: (b1, b5, b3), 42: (b1, b4, b3), even if a writer has added 77: (b1, b6, b3) meanwhile.

Ref: docs/rules.md, protocol rules 6, 20 and 22; situation 6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bk_spark.errors import MetadataConflictError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata


@dataclass(frozen=True, slots=True)
class ReplaceBookies:
    """A change for UpdateMetadata. Raises MetadataConflictError if the fragment is not the one that was copied."""

    fragment: Fragment
    """As it was when its entries were read."""
    last: int
    """Its last entry; below its first one if it has no entries."""
    bookies: tuple[tuple[int, str], ...]
    """Slots, each with a bookie that holds everything that the slot should hold, durably."""

    def __call__(self, current: LedgerMetadata) -> LedgerMetadata:
        index = self._index_in(current)
        ensemble = list(current.fragments[index].ensemble)
        for slot, bookie_id in self.bookies:
            # A slot that was filled by others meanwhile keeps its bookie: then this copy is superfluous.
            if ensemble[slot] == self.fragment.ensemble[slot]:
                ensemble[slot] = bookie_id
        if len(set(ensemble)) < len(ensemble):
            raise self._conflict(
                current, f"its ensemble is {current.fragments[index].ensemble}, and one bookie may be in it once"
            )
        changed = Fragment(self.fragment.first_entry_id, tuple(ensemble))
        return replace(current, fragments=(*current.fragments[:index], changed, *current.fragments[index + 1 :]))

    def _index_in(self, current: LedgerMetadata) -> int:
        firsts = [fragment.first_entry_id for fragment in current.fragments]
        if self.fragment.first_entry_id not in firsts:
            raise self._conflict(current, f"fragments start at {firsts}")
        index = firsts.index(self.fragment.first_entry_id)
        if last_entry_of(current, index) != self.last:
            raise self._conflict(current, f"it does not end at {self.last}")
        return index

    def _conflict(self, current: LedgerMetadata, problem: str) -> MetadataConflictError:
        what = f"the fragment of ledger {current.ledger_id} that starts at entry {self.fragment.first_entry_id}"
        return MetadataConflictError(what, problem)


def last_entry_of(metadata: LedgerMetadata, index: int) -> int | None:
    """The last entry of a fragment, below its first one if it has no entries; None if the fragment is still open.

    It is the entry before the next fragment, or the last entry of the closed ledger.
    """
    if index + 1 < len(metadata.fragments):
        end = metadata.fragments[index + 1].first_entry_id - 1
        return end if metadata.last_entry_id is None else min(end, metadata.last_entry_id)
    return metadata.last_entry_id
