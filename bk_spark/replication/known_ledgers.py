"""Remembers which ledgers named which bookies at the last audit, so that the next audit marks those of a lost bookie first.

It is a hint, and decides nothing: an audit reads the ledgers that it names anew, and all others after them.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable

from bk_spark.metadata.ledger_metadata import LedgerMetadata

MAX_NAMES = 1 << 25
"""Names of bookies in ledgers that are remembered: 256 MiB, 11 million ledgers of three bookies. The pass over all finds the
ledgers beyond."""


class KnownLedgers:
    """Eight bytes for each bookie that a ledger names."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._left = max_names
        self._ledgers: dict[str, array[int]] = {}
        """Bookie → ids of ledgers that name it."""

    def note(self, ledgers: Iterable[LedgerMetadata]) -> None:
        for ledger in ledgers:
            self._left -= len(ledger.bookies)
            if self._left < 0:
                return
            for bookie in ledger.bookies:
                self._ledgers.setdefault(bookie, array("q")).append(ledger.ledger_id)

    def naming(self, bookies: Collection[str]) -> list[int]:
        """The ids of the ledgers that name one of ``bookies``, ascending."""
        return sorted({ledger_id for bookie in bookies for ledger_id in self._ledgers.get(bookie, ())})
