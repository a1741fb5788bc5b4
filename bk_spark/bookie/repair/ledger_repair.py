"""Making one ledger whole on this bookie again: fenced, and with every entry that it should hold, from the other bookies.

What a ledger needs is in its metadata, read after a ``sync``:

- *None*: it does not exist (any more); nothing is promised to anybody.
- *CLOSED*: it is fenced here, also where no fragment names this bookie any more: its writer may have been frozen since an
  ensemble that did. Then every entry of the fragments that name this bookie is copied that the index does not have.
- *OPEN or IN_RECOVERY, and a fragment names this bookie*: only a recovery can tell where it ends without asking this bookie, so
  it is recovered, which closes it; then as above.
- *IN_RECOVERY, and none does*: a fence that was promised here may be lost: it is fenced.
- *OPEN, and none does*: nothing, for no promise of this bookie can have been lost. A fence: every recovery marks the ledger
  IN_RECOVERY before it fences anything, and it is never OPEN again, so nobody has fenced this ledger. An entry: a writer has
  its ensemble in the metadata before an ack counts, so the acks of this bookie count only where it is named; where it was
  replaced they were taken back.

That all entries are here costs a look at the index, and at which entry logs there are: a disk of them may be lost, and the
index not. Data is read only where something is copied; what is damaged is the scrub's.

Ref: BP-46, "Protection Mechanism"; docs/rules.md, storage rules 10 and 11, protocol rules 12, 18, 20 and 50, situation 72.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bk_spark.bookie.index.rows import BatchRow
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.entries.batch import EncodedBatch
from bk_spark.entries.digest import master_key
from bk_spark.errors import BookKeeperError, StorageError
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState
from bk_spark.quorum import IdPattern
from bk_spark.wire.messages import AddRequest, FenceRequest, StagedReply, StagedRequest, Status


class Peers(Protocol):
    """The cluster as a bookie sees it that repairs itself; bookie/ imports no client, so it is handed in."""

    def ledger_ids(self) -> Iterator[int]:
        """The ids of all ledgers that existed when this was called, ascending."""
        ...

    def metadata(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata | BookKeeperError | None]:
        """As of now, in their order. None: there is no such ledger; an error: what is stored of it cannot be read."""
        ...

    def recover(self, ledger_id: int) -> LedgerMetadata:
        """The ledger CLOSED."""
        ...

    def read(self, metadata: LedgerMetadata, first: int, last: int, without: str) -> Iterator[EncodedBatch]:
        """What the bookie ``without`` holds of the entries from ``first`` to ``last``, inclusive, from the others' copies.

        All of it lies in one fragment, whose ensemble names that bookie. Every entry was verified.
        """
        ...


Stage = Callable[[StagedRequest], StagedReply]
"""Has a request made durable by the sync thread, and waits for its reply. Raises StorageError once the bookie stops."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What came from other bookies."""

    entries: int = 0
    nbytes: int = 0

    def __add__(self, other: Copied) -> Copied:
        return Copied(self.entries + other.entries, self.nbytes + other.nbytes)


class LedgerRepair:
    """Repairs ledgers of one bookie. Threads may share it."""

    def __init__(self, bookie_id: str, storage: LedgerStorage, peers: Peers, stage: Stage) -> None:
        self.bookie_id = bookie_id
        self.peers = peers
        self._storage = storage
        self._stage = stage
        self._numbers = itertools.count(1)

    def settle(self, metadata: LedgerMetadata) -> Copied:
        """Have all that this bookie owes the ledger, durably; ``metadata`` was read after a sync, in the same limbo.

        Raises BookKeeperError where it could not be done: what was copied stays, and the ledger is not settled.
        """
        is_named = any(self.bookie_id in fragment.ensemble for fragment in metadata.fragments)
        if is_named and not metadata.is_closed:
            metadata = self.peers.recover(metadata.ledger_id)
        if metadata.state is LedgerState.OPEN:
            return Copied()
        self._fence(metadata)
        if metadata.last_entry_id is None:
            return Copied()
        copied = Copied()
        for pattern, first, last in self.shares(metadata, 0, metadata.last_entry_id):
            for start, end in missing(self._storage, metadata.ledger_id, pattern, first, last):
                copied += self.copy(metadata, start, end)
                self._check(metadata, pattern, start, end)
        return copied

    def copy(self, metadata: LedgerMetadata, first: int, last: int) -> Copied:
        """Bring what this bookie should hold of one fragment's entries, stored already or not, from the other bookies."""
        copied = Copied()
        for batch in self.peers.read(metadata, first, last, self.bookie_id):
            key = master_key(metadata.password)
            self._done(AddRequest(next(self._numbers), self.bookie_id, key, batch, recovery=True))
            copied += Copied(batch.header.count, len(batch.body))
        return copied

    def shares(self, metadata: LedgerMetadata, first: int, last: int) -> list[tuple[IdPattern, int, int]]:
        """Which entries from ``first`` to ``last`` are to be here: by fragment the pattern, and the interval, inclusive."""
        return [
            (metadata.slot_pattern(fragment.ensemble.index(self.bookie_id)), max(start, first), end)
            for fragment, start, end in metadata.fragment_ranges(last)
            if self.bookie_id in fragment.ensemble and end >= first
        ]

    def _fence(self, metadata: LedgerMetadata) -> None:
        facts = self._storage.facts(metadata.ledger_id)
        if facts is None or not facts.is_durably_fenced:
            self._done(FenceRequest(self.bookie_id, metadata.ledger_id, master_key(metadata.password)))

    def _done(self, request: AddRequest | FenceRequest) -> None:
        reply = self._stage(request)
        if reply.status is not Status.OK:
            raise StorageError(request.describe(), f"{reply.status.name} {reply.detail}")

    def _check(self, metadata: LedgerMetadata, pattern: IdPattern, first: int, last: int) -> None:
        """A copy that left something out is none."""
        left = next(missing(self._storage, metadata.ledger_id, pattern, first, last), None)
        if left is not None:
            raise StorageError(f"copying ledger {metadata.ledger_id}", f"entries {left[0]} to {left[1]} did not come")


def missing(storage: LedgerStorage, ledger_id: int, pattern: IdPattern, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The ids of ``pattern`` from ``first`` to ``last`` that no row holds whose entry log is there: first and last of each
    stretch, inclusive.

    A stretch has no gap as far as the pattern goes. Raises CorruptionError where the index is damaged.
    """
    window, logs = storage.rows(ledger_id, first, last), _ExistingLogs(storage)
    for start in range(first, last + 1, MAX_BATCH_ENTRIES):
        end = min(start + MAX_BATCH_ENTRIES - 1, last)
        asked = pattern.ids(start, end)
        is_here = np.zeros(end - start + 1, dtype=np.bool_)
        for row in filter(logs.have, window.overlapping(start, end)):
            low, high = max(row.first_entry_id, start), min(row.last_entry_id, end)
            if row.pattern.is_dense:
                is_here[low - start : high - start + 1] = True
            else:
                is_here[row.pattern.ids(low, high) - start] = True
        yield from ((int(part[0]), int(part[-1])) for part in _stretches(asked, ~is_here[asked - start]))


class _ExistingLogs:
    """Which entry logs have their files, each looked for once."""

    def __init__(self, storage: LedgerStorage) -> None:
        self._logs = storage.logs
        self._found: dict[int, bool] = {}

    def have(self, row: BatchRow) -> bool:
        """Also what is in memory. A log that was compacted meanwhile seems to be gone, and its row is copied in vain."""
        if row.location is None:
            return True
        file_id = row.location.file_id
        if file_id not in self._found:
            self._found[file_id] = self._logs.path_of(file_id) is not None
        return self._found[file_id]


def _stretches(ids: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int64]]:
    """The chosen ids, in parts whose ids are neighbours among ``ids``."""
    places = np.flatnonzero(chosen)
    parts = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    return [ids[part] for part in parts if len(part)]
