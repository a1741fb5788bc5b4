"""Repairs one ledger on this bookie: fences it, and copies every entry that is missing here from the other bookies.

The ledger's metadata, read after a ``sync``, says what to do:

- *None*: the ledger does not exist (any more), and nothing is promised to anybody.
- *CLOSED*: it is fenced, even if no fragment names this bookie any more, because its writer may have been frozen since an
  ensemble that did. Then every entry that the index lacks is copied, of the fragments that name this bookie.
- *OPEN or IN_RECOVERY, and a fragment names this bookie*: only a recovery can find its end without asking this bookie. So it is
  recovered, which closes it; then as above.
- *IN_RECOVERY, and no fragment names this bookie*: it is fenced, because a fence promised here may be lost.
- *OPEN, and no fragment names this bookie*: nothing, because no promise of this bookie can have been lost. No fence: every
  recovery marks the ledger IN_RECOVERY before it fences, and it is never OPEN again, so nobody has fenced this ledger. No
  entry: a writer has its ensemble in the metadata before an ack counts, so acks of this bookie count only where it is named;
  where it was replaced, the writer took them back.

Whatever the state, somebody may be about to name this bookie: a re-replication that has copied to it, or a recovery that took
it into its ensemble. Their copies are not in the metadata yet, so nothing here brings back those that were lost. They need not
be: before such a bookie is named it is forced, in the boot that acked the copies. A loss before that starts the copy anew, and
after it there is nothing to lose (client/protocol/force_adds.py, protocol rule 61).

To find missing entries takes only a look at the index and at which entry logs exist: a disk of entry logs may be lost while the
index is not. Data is read only to copy it; damaged records are left to the scrub.

Ref: BP-46, "Protection Mechanism"; docs/rules.md, storage rules 10 and 11, protocol rules 12, 18, 20, 50,
61 and 64, situation 72.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import BookKeeperError, StorageError
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState
from bk_spark.quorum import IdPattern
from bk_spark.wire.messages import AddRequest, FenceRequest, StagedReply, StagedRequest, Status


class Peers(Protocol):
    """The cluster from the view of a bookie that repairs itself. It is passed in, because a bookie imports no client."""

    def ledger_ids(self) -> Iterator[int]:
        """The ids of all ledgers that existed at the time of the call, ascending."""

    def metadata(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata | BookKeeperError | None]:
        """As of now, in the order of the ids. None: there is no such ledger; an error: its stored metadata is unreadable."""

    def recover(self, ledger_id: int) -> LedgerMetadata:
        """Recover a ledger. Returns its CLOSED metadata."""

    def read(self, metadata: LedgerMetadata, first: int, last: int, without: str) -> Iterator[EncodedBatch]:
        """The entries from ``first`` to ``last``, inclusive, that belong on the bookie ``without``, from the other copies.

        They lie in one fragment, whose ensemble names that bookie. Every entry was verified.
        """

    def write_key(self, metadata: LedgerMetadata) -> bytes:
        """The master key of requests that add to the ledger or fence it."""

    def check_key(self, metadata: LedgerMetadata) -> None:
        """Raise BookKeeperError if enough bookies for an ack quorum may hold the ledger under another key than its own."""


Stage = Callable[[StagedRequest], StagedReply]
"""Has the sync thread make a request durable, and waits for its reply. Raises StorageError once the bookie stops."""


@dataclass(frozen=True, slots=True)
class Copied:
    """How much was copied from other bookies."""

    entries: int
    nbytes: int


NoteCopied = Callable[[Copied], None]
"""Called after each batch, on the thread that copies."""


class LedgerRepair:
    """Repairs ledgers of one bookie. Threads may share it."""

    def __init__(self, bookie_id: str, storage: LedgerStorage, peers: Peers, stage: Stage) -> None:
        self.bookie_id = bookie_id
        self.peers = peers
        self._storage = storage
        self._stage = stage
        self._numbers = itertools.count(1)

    def settle(self, metadata: LedgerMetadata, note: NoteCopied = lambda copied: None) -> None:
        """Have everything of the ledger that belongs here, durably. ``metadata`` was read after a sync, in the same limbo.
        ``note`` is told of each copied batch.

        Raises BookKeeperError if that failed: what was copied stays, and the ledger is not settled.
        """
        is_named = any(self.bookie_id in fragment.ensemble for fragment in metadata.fragments)
        if is_named and not metadata.is_closed:
            metadata = self.peers.recover(metadata.ledger_id)
        if metadata.state is LedgerState.OPEN or self._is_other_ledger(metadata):
            return
        self._fence(metadata)
        if metadata.last_entry_id is None:
            return
        for pattern, first, last in self.shares(metadata, 0, metadata.last_entry_id):
            for start, end in missing(self._storage, metadata.ledger_id, pattern, first, last):
                self.copy(metadata, start, end, note)
                self._check(metadata, pattern, start, end)

    def fence_only(self, ledger_id: int) -> None:
        """Fence a ledger, durably, if it has metadata. Raises BookKeeperError if that failed, or its metadata is unreadable."""
        [metadata] = self.peers.metadata([ledger_id])
        if isinstance(metadata, BookKeeperError):
            raise metadata
        if metadata is not None and not self._is_other_ledger(metadata):
            self._fence(metadata)

    def copy(self, metadata: LedgerMetadata, first: int, last: int, note: NoteCopied = lambda copied: None) -> None:
        """Copy the entries of one fragment that belong here from the other bookies, whether they are stored already or not."""
        key = self.peers.write_key(metadata)
        for batch in self.peers.read(metadata, first, last, self.bookie_id):
            self._done(AddRequest(next(self._numbers), self.bookie_id, key, batch, recovery=True))
            note(Copied(batch.header.count, len(batch.body)))

    def shares(self, metadata: LedgerMetadata, first: int, last: int) -> list[tuple[IdPattern, int, int]]:
        """The entries from ``first`` to ``last`` that belong here: for each fragment the pattern and interval, inclusive."""
        return [
            (metadata.slot_pattern(fragment.ensemble.index(self.bookie_id)), max(start, first), end)
            for fragment, start, end in metadata.fragment_ranges(last)
            if self.bookie_id in fragment.ensemble and end >= first
        ]

    def _is_other_ledger(self, metadata: LedgerMetadata) -> bool:
        """Whether another creator's ledger of this id is stored here: then every request about this one is refused as such."""
        facts = self._storage.facts(metadata.ledger_id)
        return facts is not None and facts.is_of_another_creator(metadata.master_key)

    def _fence(self, metadata: LedgerMetadata) -> None:
        facts = self._storage.facts(metadata.ledger_id)
        if facts is None or not facts.is_durably_fenced:
            self._done(FenceRequest(self.bookie_id, metadata.ledger_id, self.peers.write_key(metadata)))

    def _done(self, request: AddRequest | FenceRequest) -> None:
        reply = self._stage(request)
        if reply.status is not Status.OK:
            raise StorageError(request.describe(), f"{reply.status.name} {reply.detail}")

    def _check(self, metadata: LedgerMetadata, pattern: IdPattern, first: int, last: int) -> None:
        """Raise StorageError if a copy left something out."""
        left = next(missing(self._storage, metadata.ledger_id, pattern, first, last), None)
        if left is not None:
            raise StorageError(f"copying ledger {metadata.ledger_id}", f"entries {left[0]} to {left[1]} did not come")


def missing(storage: LedgerStorage, ledger_id: int, pattern: IdPattern, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The stretches of ``pattern``'s ids from ``first`` to ``last`` that are not stored: first and last of each, inclusive.

    An id is stored if a batch holds it that is in memory, or whose entry log exists. Raises CorruptionError (a damaged index).
    """

    @cache
    def exists(file_id: int) -> bool:
        return storage.log_files.path_of(file_id) is not None

    window = storage.batches(ledger_id, first, last)
    for start in range(first, last + 1, MAX_BATCH_ENTRIES):
        end = min(start + MAX_BATCH_ENTRIES - 1, last)
        asked = pattern.ids(start, end)
        is_here = np.zeros(end - start + 1, dtype=np.bool_)
        for stored in window.overlapping(start, end):
            if stored.location is not None and not exists(stored.location.file_id):
                continue  # also if the log was compacted meanwhile: then it is copied needlessly
            low, high = max(stored.first_entry_id, start), min(stored.last_entry_id, end)
            if stored.pattern.is_dense:
                is_here[low - start : high - start + 1] = True
            else:
                is_here[stored.pattern.ids(low, high) - start] = True
        yield from ((int(part[0]), int(part[-1])) for part in _stretches(asked, ~is_here[asked - start]))


def _stretches(ids: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int64]]:
    """The chosen ids, in runs of neighbours among ``ids``."""
    places = np.flatnonzero(chosen)
    parts = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    return [ids[part] for part in parts if len(part)]
