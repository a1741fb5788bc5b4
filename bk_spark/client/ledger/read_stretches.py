"""The stretches of a long read from Apache's bookies, of which three are under way at a time, each from another replica. Pure.

Such a bookie serves all reads of a ledger on one thread, which is slower than the client. So while the application takes in
one stretch, the next ones come from the next slots of the ensemble.

    entries 0 to 99 in 3/3/2, a stretch has 40 → 0–39 from slot 0, 40–79 from slot 1, 80–99 from slot 2

Striped ledgers are read as a whole, because several slots are asked for them anyway. So are open ones, because nobody knows how
large their entries are.
"""

from __future__ import annotations

from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.metadata.ledger_metadata import LedgerMetadata

AT_ONCE = 3
"""Stretches under way: a bookie for each of the usual three slots. With two, reads were a tenth slower."""


def stretch_starts(metadata: LedgerMetadata, first: int, last: int, stretch_bytes: int) -> range:
    """Where the stretches of ``first`` to ``last``, inclusive, begin. The step is the length of a stretch, of about
    ``stretch_bytes``."""
    return range(first, last + 1, _entries_of_stretch(metadata, stretch_bytes) or last - first + 1)


def _entries_of_stretch(metadata: LedgerMetadata, stretch_bytes: int) -> int | None:
    """How many entries a stretch has, so that each stretch begins at the slot after the one before; None: all of them."""
    size, entries = metadata.ensemble_size, (metadata.last_entry_id or 0) + 1
    if entries < 2 or metadata.write_quorum < size or size == 1:
        return None
    entry_bytes = metadata.length // entries + ENTRY_OVERHEAD_BYTES
    count = max(stretch_bytes // entry_bytes, 1)
    return count - (count - 1) % size
