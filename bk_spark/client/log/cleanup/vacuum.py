"""Vacuum: gives back what a log keeps for nobody any more. Log rule 8.

In this order, each step complete before the next:

1. data: ledgers that ``retention_s`` or ``retention_bytes`` let go are truncated, which is a commit;
2. ``oldest_version`` is raised, by a compare-and-set on the head, to the oldest version that was the newest one at some
   moment within ``version_retention_s``. From then on versions below cannot be read. A checkpoint of the listing
   stands at it before, so that no reader needs what is older;
3. ledgers that versions up to it stopped listing are deleted, then ``vacuumed_version`` follows;
4. checkpoints below it go; records of versions far below it go, after ``oldest_record`` was raised (``records.py``).

So a ledger is as old as the commit that *unlisted* it, whenever it was written, and all times are ZooKeeper's. No ledger is
deleted that a readable version lists. Whatever step a crash falls on, the next run goes on from what the head says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bk_spark.client.log.changes.ledgers import LogLedgers
from bk_spark.client.log.cleanup.records import LogRecords
from bk_spark.client.log.cleanup.store_clock import StoreTimes
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.stored.checkpoint import CheckpointGoneError, ListingCheckpoints
from bk_spark.client.log.stored.listing import Listing, ListingFold
from bk_spark.client.log.stored.names import LogNames
from bk_spark.client.log.stored.tree import READS_AT_ONCE, chunks
from bk_spark.client.log.stored.values import CommittedLedger, Head
from bk_spark.client.progress import Progress, no_progress
from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError
from bk_spark.metadata.store import MetadataStore, StoreError
from bk_spark.metadata.znodes import Znodes

# --- How much of a log's data its retention lets go. Pure arithmetic
#
# Data goes from the head of the log by whole ledgers. How old a ledger is, its rows say: rows are numbered in the order in
# which they were committed, and a ledger is as old as its last row, also after a compaction has written it anew. The newest
# CLOSED ledger always stays, and so do open ones: retention never empties a log.


def expired_ledgers(
    closed: Sequence[CommittedLedger], first_row: int, expired_rows: int | None, retention_bytes: int | None
) -> int:
    """How many ledgers at the head of ``closed``, the log's CLOSED ledgers in order, are to go.

    A ledger goes if all its rows are below row number ``expired_rows``, ``first_row`` being the number of the first one
    listed; or if at least ``retention_bytes`` of payload stay without it. None switches either off.
    """
    row, left = first_row, sum(one.length for one in closed)
    for count, ledger in enumerate(closed[:-1]):
        row, left = row + ledger.rows, left - ledger.length
        is_old = expired_rows is not None and row <= expired_rows
        is_excess = retention_bytes is not None and left >= retention_bytes
        if not is_old and not is_excess:
            return count
    return max(len(closed) - 1, 0)


RECORDS_KEPT = 100_000
"""Versions below the oldest readable one whose records stay: a stream that was away for longer than the retention finds by
them the row number at which it stands."""

_VERSIONS_AT_ONCE = 10_000
"""Versions whose ledgers are deleted before ``vacuumed_version`` follows: their ids fit into memory, and a run that is cut
short repeats little."""
_TRIES = 10
"""Each further one means that somebody else committed meanwhile."""


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What one vacuum of a log did."""

    log: str
    truncated_ledgers: int
    oldest_version: int
    """The oldest version that can be read now."""
    deleted_ledgers: int
    deleted_records: int
    """Versions whose records were deleted."""


@dataclass(frozen=True, slots=True)
class _Log:
    name: str
    uid: str


class LogVacuum:
    """Vacuums the logs of one cluster. ``records_kept`` is for tests."""

    def __init__(
        self,
        store: MetadataStore,
        znodes: Znodes,
        logs: LogStore,
        progress: Progress = no_progress,
        *,
        records_kept: int = RECORDS_KEPT,
    ) -> None:
        self._logs = logs
        self._progress = progress
        self._names = LogNames(store, znodes)
        self._checkpoints = ListingCheckpoints(store, self._names)
        self._ledgers = LogLedgers(store, znodes)
        self._times = StoreTimes(store, znodes)
        self._records = LogRecords(store, znodes, logs, records_kept)

    def run(self, name: str) -> VacuumReport:
        """Vacuum one log. May be called at any time, by several at once, and again after any error.

        Raises NoSuchLogError, also where the log is deleted meanwhile; MetadataUnavailableError.
        """
        log = _Log(name, self._logs.uid(name))
        for _ in range(_TRIES):
            before = self._logs.head(name, log.uid)
            try:
                return self._run(log)
            except (ConfigError, CorruptionError, StoreError):
                if _marks(self._logs.head(name, log.uid)) == _marks(before):
                    raise  # else another vacuum has removed what this one was reading
        raise MetadataConflictError(f"log '{name}'", f"{_TRIES} tries to vacuum it met another vacuum: let one run alone")

    def _run(self, log: _Log) -> VacuumReport:
        truncated = self._truncate(log, self._times.now_ms())
        now_ms = self._times.now_ms()
        self._raise_oldest_version(log, now_ms)
        deleted = self._delete_unlisted(log)
        records = self._delete_records(log, now_ms)
        return VacuumReport(log.name, truncated, self._logs.head(log.name, log.uid).oldest_version, deleted, records)

    def _truncate(self, log: _Log, now_ms: int) -> int:
        """Step 1; gives back how many ledgers went."""
        for tries_left in reversed(range(_TRIES)):
            head = self._logs.head(log.name, log.uid)
            closed = self._logs.reader.listing(log.name, log.uid, head.version).closed
            count = expired_ledgers(
                closed, head.first_row, self._expired_rows(log, head, now_ms), head.retention.retention_bytes
            )
            if not count:
                return 0
            try:
                return self._logs.truncate(log.name, log.uid, closed[count].ledger_id).removed.ledgers
            except MetadataConflictError:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _expired_rows(self, log: _Log, head: Head, now_ms: int) -> int | None:
        """The row number below which data is older than ``retention_s``: where the last commit so old ended."""
        if head.retention.retention_s is None:
            return None
        first = max(head.oldest_record, 1)
        limit_ms = now_ms - head.retention.retention_s * 1000
        version = self._times.last_before(self._names.paths(log.uid), first, head.version, limit_ms)
        return 0 if version < first else self._logs.reader.version(log.name, log.uid, version).end_row

    def _raise_oldest_version(self, log: _Log, now_ms: int) -> None:
        """Step 2. Never lowers it, also where the retention was made longer meanwhile."""
        head = self._logs.head(log.name, log.uid)
        oldest = self._oldest_version(log, head, now_ms)
        if oldest > head.oldest_version:
            self._logs.write_checkpoint(log.name, log.uid, oldest)
            self._logs.change_head(log.name, log.uid, lambda now: replace(now, oldest_version=max(now.oldest_version, oldest)))

    def _oldest_version(self, log: _Log, head: Head, now_ms: int) -> int:
        """A version stops being the newest when the next one is committed: the first whose successor is young enough."""
        limit_ms = now_ms - head.retention.version_retention_s * 1000
        for version, committed_ms in self._times.of_versions(self._names.paths(log.uid), head.oldest_version + 1, head.version):
            if committed_ms >= limit_ms:
                return version - 1
        return head.version

    def _delete_unlisted(self, log: _Log) -> int:
        """Step 3; gives back how many ledgers went."""
        deleted = 0
        while True:
            head = self._logs.head(log.name, log.uid)
            if head.vacuumed_version >= head.oldest_version:
                return deleted
            before = self._listing_at_vacuumed(log, head)
            if before is not None:
                deleted += self._delete_next(log, before, head)

    def _delete_next(self, log: _Log, before: Listing, head: Head) -> int:
        """What version ``vacuumed_version`` listed, or one of the next ones added, and the last of those does not list.

        A ledger that was unlisted is never listed again (log rule 9), so no later version lists it either. The checkpoint
        is what the next step, or the next run, starts from.
        """
        first = head.vacuumed_version
        last = min(first + _VERSIONS_AT_ONCE, head.oldest_version)
        ids, fold = _ids(before), ListingFold(log.name, before)
        for commit, pages in self._logs.reader.commits(log.name, log.uid, first + 1, last):
            fold.apply(commit, pages)
            ids.update(one.ledger_id for page in pages for one in page.ledgers)
            ids.update([] if commit.opened is None else [commit.opened])
        deleted = self._delete_ledgers(log, sorted(ids - _ids(fold.listing())))
        self._checkpoints.write(log.name, log.uid, last, fold.listing())
        self._logs.change_head(log.name, log.uid, lambda now: replace(now, vacuumed_version=max(now.vacuumed_version, last)))
        return deleted

    def _delete_ledgers(self, log: _Log, ids: list[int]) -> int:
        deleted = 0
        for some in chunks(ids, READS_AT_ONCE):
            deleted += self._ledgers.delete_listed(some, log.uid)
            self._progress("ledgers deleted", deleted, len(ids))
        return deleted

    def _listing_at_vacuumed(self, log: _Log, head: Head) -> Listing | None:
        """None where another vacuum has gone on from there meanwhile."""
        if head.vacuumed_version == 0:
            return Listing()
        checkpoint = self._checkpoints.newest(log.name, log.uid, [head.vacuumed_version])
        try:
            if checkpoint is not None:
                return self._checkpoints.listing(log.name, log.uid, checkpoint)
        except CheckpointGoneError:
            checkpoint = None
        if self._logs.head(log.name, log.uid).vacuumed_version == head.vacuumed_version:
            what = f"checkpoint {head.vacuumed_version} of log '{log.name}'"
            raise CorruptionError(what, "it is missing from the metadata store")
        return None

    def _delete_records(self, log: _Log, now_ms: int) -> int:
        """Step 4; gives back how many records went."""
        head = self._logs.head(log.name, log.uid)
        self._records.delete_checkpoints(log.uid, head)
        oldest = self._records.oldest_to_keep(log.uid, head, now_ms)
        if oldest > head.oldest_record:
            head = self._logs.change_head(
                log.name, log.uid, lambda now: replace(now, oldest_record=max(now.oldest_record, oldest))
            )
        return self._records.delete_below(log.name, log.uid, head, self._progress)


def _ids(listing: Listing) -> set[int]:
    return {one.ledger_id for one in listing.closed} | {one.ledger_id for one in listing.open}


def _marks(head: Head) -> tuple[int, int, int]:
    """How far vacuums have come."""
    return head.oldest_version, head.vacuumed_version, head.oldest_record
