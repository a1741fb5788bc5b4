"""Vacuum: deletes what a log keeps for nobody any more (log rule 8).

In this order, each step complete before the next:

1. Ledgers that ``retention_s`` or ``retention_bytes`` let go are truncated. That is a commit.
2. A compare-and-set on the head raises ``oldest_version`` to the oldest version that was the newest one at some moment
   within ``version_retention_s``. From then on the versions below cannot be read. Before it, a checkpoint of the listing at
   that version is written, so that no reader needs anything older.
3. Ledgers that versions up to it stopped listing are deleted, then ``vacuumed_version`` follows.
4. Checkpoints below it are deleted; and, once ``oldest_record`` is raised, records of versions far below it (``records.py``).

So the age of a ledger is that of the commit that *unlisted* it, whenever it was written, and all times are ZooKeeper's. A
ledger that a readable version lists is never deleted. After a crash the next run continues from what the head says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bk_spark.errors import ConfigError, CorruptionError, MetadataConflictError
from bk_spark.log.cleanup.records import LogRecords
from bk_spark.log.cleanup.store_clock import StoreTimes
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.by_key.spans import units
from bk_spark.log.stored.checkpoint import CheckpointGoneError
from bk_spark.log.stored.listing import Listing, ListingFold
from bk_spark.log.stored.tier_records import TierStep
from bk_spark.log.stored.tree import READS_AT_ONCE, chunks
from bk_spark.log.stored.values import CommittedLedger, Head, Totals
from bk_spark.metadata.store import StoreError
from bk_spark.progress import Progress, no_progress

RECORDS_KEPT = 100_000
"""Versions below the oldest readable one whose records stay: they tell a stream that was away for longer its row number."""

_VERSIONS_AT_ONCE = 10_000
"""Versions handled before ``vacuumed_version`` follows: their ledger ids fit into memory, and a cut off run repeats little."""
_TRIES = 10
"""Each further try means that somebody else committed meanwhile."""


def expired_ledgers(
    closed: Sequence[CommittedLedger], first_row: int, expired_rows: int | None, retention_bytes: int | None
) -> int:
    """How many ledgers at the head of ``closed``, the log's CLOSED ledgers in order, are to be truncated. Pure.

    A ledger expires if all its rows are below row number ``expired_rows`` (``first_row`` is the number of the first listed
    row), or if at least ``retention_bytes`` of payload stay without it. None switches either rule off. Rows are numbered in
    the order in which they were committed, so a ledger is as old as its last row, also after a compaction rewrote it. Those of
    a span go together. The newest CLOSED ledger always stays, and so do open ones: retention never empties a log.
    """
    row, left, count = first_row, sum(ledger.length for ledger in closed), 0
    for unit in units(closed):
        total = Totals.of(unit)
        row, left = row + total.span, left - total.length
        is_old = expired_rows is not None and row <= expired_rows
        is_excess = retention_bytes is not None and left >= retention_bytes
        if count + len(unit) == len(closed) or not (is_old or is_excess):
            break
        count += len(unit)
    return count


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

    def __init__(self, logs: LogStore, progress: Progress = no_progress, *, records_kept: int = RECORDS_KEPT) -> None:
        self._logs = logs
        self._progress = progress
        self._times = StoreTimes(logs.store, logs.znodes)
        self._records = LogRecords(logs, records_kept)

    def run(self, name: str) -> VacuumReport:
        """Vacuum one log. May be called at any time, by several clients at once, and again after any error.

        Raises NoSuchLogError, also if the log is deleted meanwhile; MetadataUnavailableError.
        """
        log = _Log(name, self._logs.names.uid(name))
        for _ in range(_TRIES):
            before = self._head(log)
            try:
                return self._run(log)
            except (ConfigError, CorruptionError, StoreError):
                if _marks(self._head(log)) == _marks(before):
                    raise  # otherwise another vacuum has removed what this one was reading
        raise MetadataConflictError(f"log '{name}'", f"{_TRIES} tries to vacuum it met another vacuum: let one run alone")

    def _run(self, log: _Log) -> VacuumReport:
        truncated = self._truncate(log)
        now_ms = self._times.now_ms()
        self._raise_oldest_version(log, now_ms)
        deleted = self._delete_unlisted(log)
        records = self._delete_records(log, now_ms)
        return VacuumReport(log.name, truncated, self._head(log).oldest_version, deleted, records)

    def _head(self, log: _Log) -> Head:
        return self._logs.names.head(log.name, log.uid)

    def _truncate(self, log: _Log) -> int:
        """Step 1; returns how many ledgers were truncated. Most logs keep all: their listings are not read."""
        for tries_left in reversed(range(_TRIES)):
            head = self._head(log)
            if head.retention.retention_s is None and head.retention.retention_bytes is None:
                return 0
            closed = self._logs.reader.listing(log.name, log.uid, head.version).closed
            expired_rows = self._expired_rows(log, head)
            count = expired_ledgers(closed, head.first_row, expired_rows, head.retention.retention_bytes)
            if not count:
                return 0
            try:
                return self._logs.truncate(log.name, log.uid, closed[count].ledger_id).removed.ledgers
            except MetadataConflictError:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _expired_rows(self, log: _Log, head: Head) -> int | None:
        """The row number below which data is older than ``retention_s``: where the last commit before that ended."""
        if head.retention.retention_s is None:
            return None
        first = max(head.oldest_record, 1)
        limit_ms = self._times.now_ms() - head.retention.retention_s * 1000
        version = self._times.last_before(self._logs.names.paths(log.uid), first, head.version, limit_ms)
        return 0 if version < first else self._logs.reader.version(log.name, log.uid, version).end_row

    def _raise_oldest_version(self, log: _Log, now_ms: int) -> None:
        """Step 2. Never lowers it, also if the retention was made longer meanwhile."""
        head = self._head(log)
        oldest = self._oldest_version(log, head, now_ms)
        if oldest > head.oldest_version:
            self._logs.write_checkpoint(log.name, log.uid, oldest)
            self._raise_mark(log, "oldest_version", oldest)

    def _oldest_version(self, log: _Log, head: Head, now_ms: int) -> int:
        """The first version whose successor is young enough: a version is the newest until its successor is committed."""
        limit_ms = now_ms - head.retention.version_retention_s * 1000
        paths = self._logs.names.paths(log.uid)
        for version, committed_ms in self._times.of_versions(paths, head.oldest_version + 1, head.version):
            if committed_ms >= limit_ms:
                return version - 1
        return head.version

    def _delete_unlisted(self, log: _Log) -> int:
        """Step 3; returns how many ledgers were deleted."""
        deleted = 0
        while True:
            head = self._head(log)
            if head.vacuumed_version >= head.oldest_version:
                return deleted
            before = self._listing_at_vacuumed(log, head)
            if before is not None:
                count = self._delete_next(log, before, head)
                if count is None:
                    return deleted
                deleted += count

    def _delete_next(self, log: _Log, before: Listing, head: Head) -> int | None:
        """Handle the next versions above ``vacuumed_version``; ``before`` is its listing.

        None, and nothing is deleted, where the step of a tier still reads a ledger among them.

        Deletes every ledger that ``before`` or one of these versions lists and the last of them does not. An unlisted ledger
        is never listed again (log rule 9). The next step, or the next run, starts from the checkpoint written here.
        """
        first = head.vacuumed_version
        last = min(first + _VERSIONS_AT_ONCE, head.oldest_version)
        ids, fold = _ids(before), ListingFold(log.name, before)
        for commit, pages in self._logs.reader.commits(log.name, log.uid, first + 1, last):
            fold.apply(commit, pages)
            ids.update(ledger.ledger_id for page in pages for ledger in page.ledgers)
            ids.update([] if commit.opened is None else [commit.opened])
        unlisted, deleted = sorted(ids - _ids(fold.listing())), 0
        if not self._claimed(log).isdisjoint(unlisted):
            return None
        for some in chunks(unlisted, READS_AT_ONCE):
            deleted += self._logs.ledgers.delete_listed(some, log.uid)
            self._progress("ledgers deleted", deleted, len(unlisted))
        self._logs.checkpoints.write(log.name, log.uid, last, fold.listing())
        self._raise_mark(log, "vacuumed_version", last)
        return deleted

    def _claimed(self, log: _Log) -> set[int]:
        """The ledgers that the step of the log's tier adds. Only listed ones are claimed, so this comes after the listing."""
        [stored] = self._logs.store.get_many([self._logs.names.paths(log.uid).tier_step])
        if stored is None or not stored.value:
            return set()
        step = TierStep.decode(f"the step of the tier of log '{log.name}'", stored.value)
        return {one.ledger_id for one in step.add}

    def _listing_at_vacuumed(self, log: _Log, head: Head) -> Listing | None:
        """None if another vacuum has raised ``vacuumed_version`` meanwhile."""
        if head.vacuumed_version == 0:
            return Listing()
        checkpoints = self._logs.checkpoints
        checkpoint = checkpoints.newest(log.name, log.uid, [head.vacuumed_version])
        try:
            if checkpoint is not None:
                return checkpoints.listing(log.name, log.uid, checkpoint)
        except CheckpointGoneError:
            checkpoint = None
        if self._head(log).vacuumed_version == head.vacuumed_version:
            what = f"checkpoint {head.vacuumed_version} of log '{log.name}'"
            raise CorruptionError(what, "it is missing from the metadata store")
        return None

    def _delete_records(self, log: _Log, now_ms: int) -> int:
        """Step 4; returns how many records were deleted."""
        head = self._head(log)
        self._records.delete_checkpoints(log.uid, head)
        oldest = self._records.oldest_to_keep(log.uid, head, now_ms)
        if oldest > head.oldest_record:
            head = self._raise_mark(log, "oldest_record", oldest)
        return self._records.delete_below(log.name, log.uid, head, self._progress)

    def _raise_mark(self, log: _Log, mark: str, version: int) -> Head:
        """Raise one of the head's marks to ``version``, unless another vacuum has raised it further."""
        return self._logs.names.change_head(
            log.name, log.uid, lambda head: replace(head, **{mark: max(getattr(head, mark), version)})
        )


def _ids(listing: Listing) -> set[int]:
    return {one.ledger_id for one in listing.closed} | {one.ledger_id for one in listing.open}


def _marks(head: Head) -> tuple[int, int, int]:
    """How far vacuums have come."""
    return head.oldest_version, head.vacuumed_version, head.oldest_record
