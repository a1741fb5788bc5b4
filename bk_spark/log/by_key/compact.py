"""Compacts a log by key, without Spark: plan, choose, write, commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.config import LedgerOptions
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import BookKeeperError, MetadataConflictError, NoSuchLedgerError, NoSuchLogError
from bk_spark.log.by_key.plan import KeyCompactionPlan, check_by_key, has_tier, plan_by_key
from bk_spark.log.by_key.share import Choice, KeyShare
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.cleanup.compaction_plan import CompactionReport
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.values import CommittedLedger, Head, LogVersion, Totals
from bk_spark.log.stream.order import Describe
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.log.write_ledger import JobRefresh, until_ended, write_ledgers
from bk_spark.progress import Progress, no_progress
from bk_spark.rows.codec import PayloadFormat
from bk_spark.rows.payload_defaults import COMPRESSION, MAX_BYTES_PER_ENTRY, MAX_ROWS_PER_ENTRY
from bk_spark.rows.writing import row_payloads

TRIES = 3
"""Each further one means that somebody truncated or replaced meanwhile what was being compacted."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpanTarget:
    """Where the ledgers of a span are written, and how."""

    create_ledger: Callable[[LedgerOptions, WriteJob], WriteHandle]
    describe: Describe
    password: bytes
    add_bytes: int
    window_bytes: int

    def options(self, ledgers: tuple[CommittedLedger, ...]) -> LedgerOptions:
        """Ensemble, quorums and digest type of the newest of the ledgers to compact."""
        newest = next(iter(self.describe([ledgers[-1].ledger_id])), None)
        if newest is None:
            raise NoSuchLedgerError(ledgers[-1].ledger_id)
        return LedgerOptions(
            ensemble_size=newest.ensemble_size,
            write_quorum=newest.write_quorum,
            ack_quorum=newest.ack_quorum,
            digest_type=newest.digest_type,
            password=self.password,
        )


class KeyCompactor:
    """Compacts one log by key. ``run`` may be called at any time, by several clients at once, and again after any error."""

    def __init__(
        self, opener: LogLedgerOpener, target: SpanTarget, check_wanted: Callable[[], None], progress: Progress = no_progress
    ) -> None:
        assert opener.uid is not None, "only logs have keys"
        self._opener = opener
        self._logs = opener.logs
        self._name, self._uid = opener.name, opener.uid
        self._target = target
        self._check_wanted = check_wanted
        self._progress = progress

    def run(self, compaction: KeyCompaction | None = None) -> CompactionReport:
        """``compaction``: by default what is set for the log, or else the defaults. Raises as ``Log.compact_by_key``."""
        conflict: BookKeeperError | None = None
        for _ in range(TRIES):
            snapshot = self._logs.reader.snapshot(self._name)
            if snapshot.uid != self._uid:
                raise NoSuchLogError(self._name)
            plan = plan_by_key(self._logs, snapshot, compaction or setting_of(self._logs, self._name, self._uid))
            try:
                made = self._compacted(plan) if plan.ledgers else None
            except (MetadataConflictError, NoSuchLedgerError) as problem:
                conflict = problem  # what was being compacted is listed no more, or a vacuum has deleted it since
                continue
            return report_of(self._name, snapshot, made)
        assert conflict is not None
        raise conflict

    def _compacted(self, plan: KeyCompactionPlan) -> LogVersion | None:
        chosen: list[Choice] = []
        for number, share in enumerate(plan.shares):
            chosen.append(share.chosen(self._read))
            self._progress("lanes looked at", number + 1, len(plan.shares))
        if sum(one.kept for one in chosen) == plan.total.rows:
            return None
        job = self._logs.jobs.begin(self._name, self._uid)
        try:
            with JobRefresh(lambda: self._logs.jobs.refresh(job)) as refresh:
                ledgers = self._written(plan, chosen, job, refresh)
        except BaseException:
            self._abort(job)
            raise
        return self._logs.commit_or_abort(job, plan.request(ledgers, [one for each in chosen for one in each.entries]))

    def _written(
        self, plan: KeyCompactionPlan, chosen: list[Choice], job: WriteJob, refresh: JobRefresh
    ) -> list[CommittedLedger]:
        options, target = self._target.options(plan.ledgers), self._target
        written: list[CommittedLedger] = []
        for number, (share, found) in enumerate(zip(plan.shares, chosen, strict=True)):
            rows = until_ended(share.kept(self._read, found.rows), refresh)
            payloads = row_payloads(self._name, share.stored, form_of(share), rows, target.add_bytes)
            written += write_ledgers(lambda _: target.create_ledger(options, job), payloads, target.window_bytes)
            self._progress("lanes compacted", number + 1, len(plan.shares))
        return written or [empty_ledger(target.create_ledger(options, job))]

    def _read(self, ledger: CommittedLedger, asked: AskedRows) -> Iterator[pa.RecordBatch]:
        for rows in self._opener.rows(self._opener(ledger.ledger_id), 0, ledger.last_entry_id, asked):
            self._check_wanted()
            yield rows

    def _abort(self, job: WriteJob) -> None:
        try:
            self._logs.jobs.abort(job)
        except BookKeeperError as problem:  # the first failure counts
            logger.warning("write job %s on log '%s' is left to the sweep: %s", job.job_id, self._name, problem)


def form_of(share: KeyShare) -> PayloadFormat:
    """How the rows of a span are cut into entries."""
    return PayloadFormat(compression=COMPRESSION, max_rows=MAX_ROWS_PER_ENTRY, max_bytes=MAX_BYTES_PER_ENTRY, key=share.key)


def empty_ledger(handle: WriteHandle) -> CommittedLedger:
    """Closes the ledger of a span without rows: the log still knows how many row numbers there were."""
    handle.close()
    return CommittedLedger(handle.ledger_id, NO_ENTRY, 0, 0)


def setting_of(logs: LogStore, name: str, uid: str) -> KeyCompaction:
    """What is set for a log, or else the defaults."""
    return logs.names.head(name, uid).compaction or KeyCompaction()


def set_compaction(logs: LogStore, name: str, uid: str, change: Callable[[KeyCompaction | None], KeyCompaction | None]) -> None:
    """``change`` makes the setting of the log from the one that is there. Raises as ``Log.set_compaction``."""
    snapshot = logs.reader.snapshot(name)
    if snapshot.uid != uid:
        raise NoSuchLogError(name)

    def changed(head: Head) -> Head:
        wanted = change(head.compaction)
        if wanted is not None and head.tier is not None:
            raise has_tier(name)
        if wanted is not None:
            check_by_key(snapshot, wanted)
        return replace(head, compaction=wanted)

    logs.names.change_head(name, uid, changed)


def report_of(name: str, snapshot: LogSnapshot, made: LogVersion | None) -> CompactionReport:
    if made is None:
        return CompactionReport(name, snapshot.version, 0, Totals(), Totals())
    return CompactionReport(name, made.version, 1, made.removed, made.added)
