"""Deletes the data of ledgers that the metadata store no longer has.

A ledger can seem to be missing by mistake. So all of this must hold before anything is deleted:

- The local ids are taken first, then the store is synced, then listed: a ledger created meanwhile is no candidate.
- Each candidate is read again after a second sync.
- It was missing in the previous round, too.
- The listing of the round was complete: any failure ends the round with nothing deleted.
- The store is this bookie's, by its INSTANCEID: a store that was emptied and set up again has no ledgers either.
- The ledger is not in limbo: the bookie may know too little of it.

Only the data is deleted. Fence and master key stay as a **tombstone** for at least TOMBSTONE_MS after the metadata was found
gone, so that a writer that was frozen in the meantime gets no acks when it goes on.

Ref: docs/rules.md, protocol rules 44 and 46, storage rules 8 and 10, situation 64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from bk_spark.bookie.index.values import LedgerSummary, StoredBatch
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.errors import StorageError
from bk_spark.metadata.ledger_ids import listed_among, next_ledger_id, next_ledger_id_from
from bk_spark.metadata.registration import instance_id, sync_same_cluster
from bk_spark.metadata.store import MetadataStore, find
from bk_spark.metadata.znodes import Znodes

TOMBSTONE_MS = 7 * 24 * 3600 * 1000
"""A week, as in Apache BookKeeper: longer than a machine stands still before somebody looks after it.

NB: it goes by the wall clock of this machine. A clock that jumps ahead ends tombstones early, by as much as it jumps."""

METADATA_EXISTS = 0
"""Stands for the time of a deletion: only this bookie's copy was deleted, and the tombstone's week has not begun."""

PAGE_LEDGERS = 10_000
"""Ledgers that are looked at between two syncs of the store: as many as one of its directories has at most."""

INDEX_PAGE = 1_000
"""Ledgers that are read from the index, or purged, at once. That blocks the index for about ten milliseconds."""

MAX_CANDIDATES = 100_000
"""At most this many ledgers are deleted in one round; the next goes on. The ids kept between rounds take some megabytes."""

GoOn = Callable[[], bool]
"""Asked between steps; False once the work must end."""


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """The metadata store, and this bookie's place in it. Made by ``of``."""

    store: MetadataStore
    znodes: Znodes
    bookie_id: str
    instance_id: str

    @classmethod
    def of(cls, store: MetadataStore, znodes: Znodes, bookie_id: str) -> ClusterMember:
        """Call this right after the cookie was checked. Raises ConfigError, MetadataUnavailableError."""
        return cls(store, znodes, bookie_id, instance_id(store, znodes))

    def sync(self) -> None:
        """Have later reads see all earlier changes. Raises MetadataConflictError if the store is another cluster's."""
        sync_same_cluster(self.store, self.znodes, self.instance_id)

    def has_ledger(self, ledger_id: int) -> bool:
        """Whether a ledger exists, as this session sees it."""
        return find(self.store, self.znodes.ledger(ledger_id)) is not None

    def next_ledger_id(self) -> int:
        """The id that the store issues next; all that it issued before the call are lower. Raises as ``sync``."""
        self.sync()
        return next_ledger_id(self.store, self.znodes)

    def next_ledger_id_from(self, known: int) -> int:
        """What is seen of it without a ``sync``, if it was ``known`` before: all lower ids were issued."""
        return next_ledger_id_from(self.store, self.znodes, known)


class DeleteLedger(Protocol):
    """Takes the fields of a DeleteLedgerRequest."""

    def __call__(self, ledger_id: int, deleted_ms: int, decided_at: int | None = None, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class LocalLedgers:
    """The ledgers stored here, and how to delete them."""

    storage: LedgerStorage
    delete_ledger: DeleteLedger
    """Stages a DeleteLedgerRequest through the sync thread; True once it is durable."""
    free_bytes: Callable[[], int]
    """The space that compaction may use for copies."""
    report_damage: Callable[[Sequence[StoredBatch]], None]
    """Passes stored batches whose records are damaged to the scrub."""

    def pages(self, limit: int) -> Iterator[list[LedgerSummary]]:
        """The ledgers in the index, ascending, without those in limbo, in lists of at most ``limit``."""
        ledgers = self._certain_ledgers()
        while page := list(islice(ledgers, limit)):
            yield page

    def _certain_ledgers(self) -> Iterator[LedgerSummary]:
        after = -1
        while found := self.storage.ledgers(after, INDEX_PAGE):
            limbo = self.storage.limbo
            yield from (ledger for ledger in found if limbo is None or not limbo.holds(ledger.ledger_id))
            after = found[-1].ledger_id


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of one round."""

    deleted: int = 0
    """Ledgers whose data was deleted."""
    purged: int = 0
    """Ledgers whose tombstones were removed."""


class DeletedLedgers:
    """Finds ledgers without metadata, round by round."""

    def __init__(self, local: LocalLedgers, cluster: ClusterMember, clock_ms: Callable[[], int]) -> None:
        """``clock_ms`` is the wall clock."""
        self._local = local
        self._cluster = cluster
        self._clock_ms = clock_ms
        self._missing_before: frozenset[int] = frozenset()

    def collect(self, go_on: GoOn) -> Collected:
        """One round. Raises what the store or a deletion raises; if it was the store, nothing was deleted."""
        now_ms = self._clock_ms()
        missing: dict[int, LedgerSummary] = {}
        for page in self._local.pages(PAGE_LEDGERS):
            missing |= self._without_metadata([ledger for ledger in page if _may_go(ledger, now_ms)])
            if not go_on():
                return Collected()
            if len(missing) >= MAX_CANDIDATES:
                break
        confirmed = [ledger for ledger_id, ledger in missing.items() if ledger_id in self._missing_before]
        self._missing_before = frozenset(missing)
        return self._forget(confirmed, now_ms, go_on)

    def _without_metadata(self, candidates: list[LedgerSummary]) -> dict[int, LedgerSummary]:
        """The candidates that are missing in a listing and in a second read, which both happen now."""
        if not candidates:
            return {}
        self._cluster.sync()
        store, znodes = self._cluster.store, self._cluster.znodes
        listed = listed_among(store, znodes, [ledger.ledger_id for ledger in candidates])
        unlisted = [ledger for ledger in candidates if ledger.ledger_id not in listed]
        if not unlisted:
            return {}
        self._cluster.sync()
        values = store.get_many([znodes.ledger(ledger.ledger_id) for ledger in unlisted])
        return {ledger.ledger_id: ledger for ledger, value in zip(unlisted, values, strict=True) if value is None}

    def _forget(self, confirmed: list[LedgerSummary], now_ms: int, go_on: GoOn) -> Collected:
        tombstones = [ledger.ledger_id for ledger in confirmed if _is_expired(ledger, now_ms)]
        for start in range(0, len(tombstones), INDEX_PAGE):
            self._local.storage.purge(tombstones[start : start + INDEX_PAGE])
        deleted = 0
        for ledger in confirmed:
            if not go_on():
                break
            if not _is_expired(ledger, now_ms):
                if not self._local.delete_ledger(ledger.ledger_id, now_ms):
                    raise StorageError(f"deleting ledger {ledger.ledger_id}", "the bookie takes no changes, see its log")
                deleted += not ledger.is_deleted
        return Collected(deleted, len(tombstones))


def _may_go(summary: LedgerSummary, now_ms: int) -> bool:
    """Whether a ledger without metadata needs work: data to delete, or a tombstone whose week begins or is over."""
    return not summary.is_deleted or summary.deleted_ms == METADATA_EXISTS or _is_expired(summary, now_ms)


def _is_expired(summary: LedgerSummary, now_ms: int) -> bool:
    begun = summary.is_deleted and summary.deleted_ms != METADATA_EXISTS
    return begun and summary.batch_count == 0 and now_ms - summary.deleted_ms >= TOMBSTONE_MS
