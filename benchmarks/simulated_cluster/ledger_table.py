"""All ledgers of a simulated cluster, as arrays: ensembles as numbers of bookies, and bytes.

Every ledger is closed and has one fragment. Its metadata say that it has no entries (the shipped state machines then copy
nothing by themselves) and has as many bytes as the table says: the simulation moves these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from bk_spark.config import DigestType
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState

Ensembles = npt.NDArray[np.int16]
"""A row for each ledger, a column for each slot: the number of a bookie."""


class LedgerTable:
    """``bookies`` gives names to numbers."""

    def __init__(
        self, bookies: Sequence[str], ensembles: Ensembles, nbytes: npt.NDArray[np.int64], ack_quorum: int = 2
    ) -> None:
        self.bookies = list(bookies)
        self.number = {name: number for number, name in enumerate(self.bookies)}
        self.ensembles = ensembles
        self.nbytes = nbytes
        self.versions: dict[int, int] = {}
        """Of the ledgers that were changed."""
        self.lacking = 0
        """Ledgers that name one of the bookies of ``count_lacking``."""
        self.on_whole: Callable[[], None] = lambda: None
        """Called when that number comes to 0."""
        self._ack_quorum = ack_quorum
        self._gone = frozenset[int]()

    def __len__(self) -> int:
        return len(self.ensembles)

    def naming(self, bookies: frozenset[str], first: int = 0, end: int | None = None) -> npt.NDArray[np.int64]:
        """The ids from ``first`` to below ``end`` of the ledgers that name one of ``bookies``, ascending."""
        numbers = [self.number[one] for one in bookies if one in self.number]
        rows = np.isin(self.ensembles[first:end], numbers).any(axis=1)
        return np.flatnonzero(rows).astype(np.int64) + first

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        ensemble = tuple(self.bookies[number] for number in self.ensembles[ledger_id])
        size, length = len(ensemble), int(self.nbytes[ledger_id])
        return LedgerMetadata(
            ledger_id,
            size,
            size,
            min(self._ack_quorum, size),
            DigestType.CRC32C,
            b"",
            (Fragment(0, ensemble),),
            LedgerState.CLOSED,
            last_entry_id=-1,
            length=length,
            creator_token=ledger_id + 1,
        )

    def version(self, ledger_id: int) -> int:
        return self.versions.get(ledger_id, 0)

    def write(self, ledger_id: int, value: bytes) -> None:
        written = LedgerMetadata.decode(ledger_id, value)
        assert len(written.fragments) == 1, "a replacement changes no borders"
        before = self._gone.intersection(self.ensembles[ledger_id].tolist())
        self.ensembles[ledger_id] = [self.number[name] for name in written.last_fragment.ensemble]
        self.versions[ledger_id] = self.version(ledger_id) + 1
        if before and self._gone.isdisjoint(self.ensembles[ledger_id].tolist()):
            self.lacking -= 1
            if not self.lacking:
                self.on_whole()

    def count_lacking(self, gone: frozenset[str]) -> None:
        """From now on ``lacking`` counts the ledgers that name one of these."""
        self._gone = frozenset(self.number[one] for one in gone)
        self.lacking = len(self.naming(gone))

    def held_bytes(self) -> npt.NDArray[np.float64]:
        """Of each bookie."""
        held = np.zeros(len(self.bookies))
        for slot in range(self.ensembles.shape[1]):
            held += np.bincount(self.ensembles[:, slot], weights=self.nbytes, minlength=len(self.bookies))
        return held
