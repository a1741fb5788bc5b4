"""What a writer's close makes of a ledger's metadata: a change for UpdateMetadata.

* OPEN becomes CLOSED at the last confirmed entry; what others changed in older fragments stays.
* CLOSED at the same end is what was wanted: by this writer, whose reply was lost, or by a recoverer that came to the same end.
* CLOSED at another end, and IN_RECOVERY, fail: the recoverer decides the end.

Ref: the BookKeeper protocol, "Closing a ledger as a writer"; docs/rules.md, protocol rules 25 and 26.
"""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.errors import LedgerFencedError, MetadataConflictError
from bk_spark.ledger_metadata import Fragment, LedgerMetadata, LedgerState


@dataclass(frozen=True, slots=True)
class CloseLedger:
    """``tails`` are the last fragments that this writer wrote, or tried to."""

    last_entry_id: int
    length: int
    tails: tuple[Fragment, ...]

    def __call__(self, current: LedgerMetadata) -> LedgerMetadata:
        what = f"the metadata of ledger {current.ledger_id}"
        if current.state is LedgerState.IN_RECOVERY:
            raise LedgerFencedError(current.ledger_id)
        if current.state is LedgerState.CLOSED:
            if (current.last_entry_id, current.length) == (self.last_entry_id, self.length):
                return current
            end = f"it was closed at entry {current.last_entry_id}, this writer confirmed up to {self.last_entry_id}"
            raise MetadataConflictError(what, end)
        if current.last_fragment not in self.tails:
            raise MetadataConflictError(what, f"its last fragment is {current.last_fragment}, not one of this writer's")
        return current.closed_at(self.last_entry_id, self.length)
