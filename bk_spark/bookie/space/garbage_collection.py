"""Which ledgers a bookie may forget, and when: those that the metadata store no longer has.

What must hold before anything goes, for an absence is easily imagined:

- the ids that are here are taken first, then the store is synced, then it is listed: a ledger made meanwhile is no candidate;
- each candidate is read once more after a second sync;
- it was missing in the round before this one too;
- the listing of a round was whole: a failure anywhere ends the round with nothing deleted;
- the store is the one that this bookie belongs to, by its INSTANCEID: one that was emptied and made anew has no ledgers either;
- no ledger in limbo is a candidate: what this bookie knows of it may be too little.

What goes is the data. Fence and master key stay as a **tombstone**, so that a writer that was frozen all the while gets no acks
when it thaws: for at least TOMBSTONE_MS after the metadata was found gone.

Ref: docs/rules.md, protocol rules 44 and 46, storage rules 8 and 10, situation 64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bk_spark.bookie.index.rows import BatchRow, LedgerSummary
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.errors import StorageError
from bk_spark.metadata.ledger_ids import listed_among
from bk_spark.metadata.registration import instance_id, sync_same_cluster
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes

TOMBSTONE_MS = 7 * 24 * 3600 * 1000
"""A week, as in Apache BookKeeper: longer than a stopped machine is left standing before somebody looks after it."""

METADATA_EXISTS = 0
"""In the place of the time of a deletion: the ledger went from here alone, and its tombstone's week has not begun."""

PAGE_LEDGERS = 10_000
"""Ledgers that are looked at between two syncs of the store: as many as one of its directories has at most."""

INDEX_PAGE = 1_000
"""Ledgers that are asked of the index, or purged, at once: some ten milliseconds in which nobody else can ask it."""

MAX_CANDIDATES = 100_000
"""What one round deletes at most, some megabytes of ids between two rounds; the next one goes on."""

GoOn = Callable[[], bool]
"""False once the work is to end; asked between steps."""


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """The metadata store, and who we are in it. Made by ``of``."""

    store: MetadataStore
    znodes: Znodes
    bookie_id: str
    instance_id: str

    @classmethod
    def of(cls, store: MetadataStore, znodes: Znodes, bookie_id: str) -> ClusterMember:
        """To be called right after the cookie was checked. Raises ConfigError, MetadataUnavailableError."""
        return cls(store, znodes, bookie_id, instance_id(store, znodes))

    def sync(self) -> None:
        """Later reads see all that was committed before. Raises MetadataConflictError if the store is another cluster's."""
        sync_same_cluster(self.store, self.znodes, self.instance_id)


class DeleteLedger(Protocol):
    """The fields of a DeleteLedgerRequest."""

    def __call__(self, ledger_id: int, deleted_ms: int, decided_at: int | None = None, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class LocalLedgers:
    """What is stored here, and how to be rid of it."""

    storage: LedgerStorage
    delete_ledger: DeleteLedger
    """Stages a DeleteLedgerRequest through the sync thread; True once it is durable."""
    free_bytes: Callable[[], int]
    """The space that is left for copies made by compaction."""
    report_damage: Callable[[Sequence[BatchRow]], None]
    """Takes the rows whose records are damaged, for the scrub to repair."""

    def pages(self, limit: int) -> Iterator[list[LedgerSummary]]:
        """All ledgers that the index has, ascending, without those in limbo, in lists of ``limit`` at most."""
        page: list[LedgerSummary] = []
        for one in self._certain_ledgers():
            page.append(one)
            if len(page) >= limit:
                yield page
                page = []
        if page:
            yield page

    def delete(self, ledger_id: int, deleted_ms: int) -> None:
        """Raises StorageError if it is not certain that the deletion is durable."""
        if not self.delete_ledger(ledger_id, deleted_ms):
            raise StorageError(f"deleting ledger {ledger_id}", "the bookie takes no changes, see its log")

    def _certain_ledgers(self) -> Iterator[LedgerSummary]:
        after = -1
        while found := self.storage.ledgers(after, INDEX_PAGE):
            limbo = self.storage.limbo
            yield from (one for one in found if limbo is None or not limbo.holds(one.ledger_id))
            after = found[-1].ledger_id


@dataclass(frozen=True, slots=True)
class Collected:
    """What one round did."""

    deleted: int = 0
    """Ledgers whose data was deleted."""
    purged: int = 0
    """Ledgers whose tombstones went."""


class DeletedLedgers:
    """Finds ledgers without metadata, round by round."""

    def __init__(self, local: LocalLedgers, cluster: ClusterMember, clock_ms: Callable[[], int]) -> None:
        """``clock_ms`` is the wall clock."""
        self._local = local
        self._cluster = cluster
        self._clock_ms = clock_ms
        self._missing_before: frozenset[int] = frozenset()

    def collect(self, go_on: GoOn) -> Collected:
        """One round. Raises what reading the store or staging a deletion raises; nothing was deleted if it was the store."""
        now_ms = self._clock_ms()
        missing: dict[int, LedgerSummary] = {}
        for page in self._local.pages(PAGE_LEDGERS):
            missing |= self._without_metadata([one for one in page if _may_go(one, now_ms)])
            if not go_on():
                return Collected()
            if len(missing) >= MAX_CANDIDATES:
                break
        confirmed = [one for ledger_id, one in missing.items() if ledger_id in self._missing_before]
        self._missing_before = frozenset(missing)
        return self._forget(confirmed, now_ms, go_on)

    def _without_metadata(self, candidates: list[LedgerSummary]) -> dict[int, LedgerSummary]:
        """Those that are missing in a listing and in a second look; both come after ``candidates`` were taken."""
        if not candidates:
            return {}
        self._cluster.sync()
        store, znodes = self._cluster.store, self._cluster.znodes
        listed = listed_among(store, znodes, [one.ledger_id for one in candidates])
        unlisted = [one for one in candidates if one.ledger_id not in listed]
        if not unlisted:
            return {}
        self._cluster.sync()
        values = store.get_many([znodes.ledger(one.ledger_id) for one in unlisted])
        return {one.ledger_id: one for one, value in zip(unlisted, values, strict=True) if value is None}

    def _forget(self, confirmed: list[LedgerSummary], now_ms: int, go_on: GoOn) -> Collected:
        tombstones = [one.ledger_id for one in confirmed if _is_expired(one, now_ms)]
        for start in range(0, len(tombstones), INDEX_PAGE):
            self._local.storage.purge(tombstones[start : start + INDEX_PAGE])
        deleted = 0
        for one in confirmed:
            if not go_on():
                break
            if not _is_expired(one, now_ms):
                self._local.delete(one.ledger_id, now_ms)
                deleted += not one.is_deleted
        return Collected(deleted, len(tombstones))


def _may_go(summary: LedgerSummary, now_ms: int) -> bool:
    """Whether there is anything to do if the metadata is gone: data to delete, or a tombstone whose week begins or is over."""
    return not summary.is_deleted or summary.deleted_ms == METADATA_EXISTS or _is_expired(summary, now_ms)


def _is_expired(summary: LedgerSummary, now_ms: int) -> bool:
    begun = summary.is_deleted and summary.deleted_ms != METADATA_EXISTS
    return begun and summary.row_count == 0 and now_ms - summary.deleted_ms >= TOMBSTONE_MS
