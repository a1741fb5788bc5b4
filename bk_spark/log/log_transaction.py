"""A transaction: changes to several logs that become visible in one step, or not at all.

Ref: DESIGN.md, "Transactions".
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self, TypedDict, Unpack

from bk_spark.config import DigestType, LedgerOptions
from bk_spark.errors import BookKeeperError, ConfigError, State
from bk_spark.log.changes.commit_logs import MAX_LOGS, CommittedTransaction, LogCommit
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest, check_application
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_handle import LedgerAccess, Log, described, first_kept
from bk_spark.log.log_store import LogStore
from bk_spark.log.rows.append_rows import PlannedWrite, RowTarget, RowWrite, planned_write
from bk_spark.log.rows.key_lanes import AskedLanes
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from bk_spark.log.write_ledger import JobRefresh
from bk_spark.metadata.store import StoreError, TransactionFailedError
from bk_spark.rows.payload_defaults import COMPRESSION

logger = logging.getLogger(__name__)


class RowOptions(TypedDict, total=False):
    """How rows are written: as in ``Log.append_rows``, with the same defaults."""

    merge_schema: bool
    partition_key: str | Sequence[str] | None
    lanes: int | None
    compression: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest_type: DigestType | str


@dataclass(frozen=True, slots=True)
class _Change:
    """What is going to become of one log."""

    job: WriteJob
    request: CommitRequest
    rows: PlannedWrite | None = None

    def with_more(self, request: CommitRequest, rows: PlannedWrite | None) -> _Change:
        """One commit of two appends: the ledgers of each lane in the order of the appends, the columns of both."""
        ledgers = tuple(sorted(self.request.ledgers + request.ledgers, key=lambda one: one.lane))
        schema_json = None if rows is None else json.dumps(rows.appended)
        merge = self.request.merge_schema or request.merge_schema
        return _Change(self.job, replace(request, ledgers=ledgers, schema_json=schema_json, merge_schema=merge), rows)


class LogTransaction:
    """Changes to several logs, in a ``with`` block, whose end commits all of them at once. Threads may share it.

    Rows are written as the methods are called; nobody sees them before the end of the block. If the block raises, nothing is
    changed. Within one transaction a log takes either appends, or one overwrite, or one truncation.
    """

    def __init__(self, logs: LogStore, access: LedgerAccess, application: tuple[str, int] | None) -> None:
        check_application(application)
        self._logs = logs
        self._access = access
        self._application = application
        self._changes: dict[str, _Change] = {}
        self._jobs: list[WriteJob] = []
        """Of all changes, also of one under way: they are kept alive, and ended with the transaction."""
        self._refresh: Final = JobRefresh(self._refresh_jobs)
        self._lock = threading.RLock()
        """Held during each change, and at the end, which waits for a change under way."""
        self._changing_now: set[str] = set()
        """Logs whose change is under way: more than one where the rows of one come from code that changes another."""
        self._is_given_up = False
        self._state = "not begun"
        self._outcome: CommittedTransaction | None = None

    def __repr__(self) -> str:
        return f"<LogTransaction of {len(self._changes)} logs, {self._state}>"

    @property
    def versions(self) -> Mapping[str, int]:
        """After the block, by the name of each log that was changed: the version that the transaction made."""
        return self._committed.versions

    @property
    def is_duplicate(self) -> bool:
        """After the block: whether nothing was changed, because the application had committed this version or a later one."""
        return self._committed.is_duplicate

    @property
    def transaction_id(self) -> str:
        """After the block: what the versions of all logs name (``LogVersion.transaction``)."""
        return self._committed.transaction_id

    def append_rows(self, log: str, rows: Any, *, create: bool = False, **options: Unpack[RowOptions]) -> None:
        """Append rows, as ``Log.append_rows``. With ``create`` the transaction makes a missing log."""
        self._write(CommitKind.APPEND, log, rows, create, options)

    def overwrite(self, log: str, rows: Any, *, create: bool = False, **options: Unpack[RowOptions]) -> None:
        """Replace all rows of a log by these, which may have other columns. Older versions keep what they list."""
        self._write(CommitKind.OVERWRITE, log, rows, create, options)

    def append_ledgers(self, log: str, ledgers: Sequence[int | CommittedLedger]) -> None:
        """List ledgers of entries at the end of a log, as ``Log.append_ledgers``."""
        with self._changing(log, CommitKind.APPEND, is_rows=False):
            request = CommitRequest(CommitKind.APPEND, described(self._logs, ledgers))
            self._check_apart(log, request)
            self._add(log, self._job(log, self._logs.names.uid(log)), request)

    def truncate(self, log: str, before: LogPosition) -> None:
        """Remove the ledgers of a log whose entries are all before ``before``, as ``Log.truncate``."""
        with self._changing(log, CommitKind.TRUNCATE):
            uid = self._logs.names.uid(log)
            first = first_kept(Log(self._logs, log, uid, self._access), before)
            self._add(log, self._job(log, uid), CommitRequest(CommitKind.TRUNCATE, before=first))

    def give_up(self) -> None:
        """Let the transaction fail, whatever its block does from now on. Waits for nothing."""
        self._is_given_up = True

    def __enter__(self) -> Self:
        if self._state != "not begun":
            raise ConfigError("the transaction", State(self._state), "begin another one for each block")
        self._refresh.__enter__()
        self._state = "open"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Commit, or change nothing. Raises as ``LogStore.commit``, and ConfigError where a change has failed before."""
        with self._lock:
            try:
                self._end(is_wanted=error is None)
            finally:
                self._refresh.__exit__(kind, error, trace)
                self._state = "over"

    @property
    def _committed(self) -> CommittedTransaction:
        if self._outcome is None:
            raise ConfigError("the transaction", State(self._state), "it tells what it made once its block has ended")
        return self._outcome

    def _write(self, kind: CommitKind, log: str, rows: Any, create: bool, options: RowOptions) -> None:
        unknown = sorted(options.keys() - RowOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(RowOptions.__annotations__)
            raise TypeError(f"rows of a transaction are written without an argument '{unknown[0]}': there are {known}")
        with self._changing(log, kind):
            uid = self._logs.names.find_usable(log) if create else self._logs.names.uid(log)
            after = self._changes[log].rows if log in self._changes else None
            access = self._access
            compression = options.get("compression", COMPRESSION)
            target = RowTarget(self._logs, log, uid, access.batch_bytes, access.window_bytes, compression)
            planned = planned_write(target, self._row_write(kind, rows, options, after))
            job = self._job(log, uid)
            self._add(log, job, planned.written(job, self._refresh), planned)

    def _row_write(self, kind: CommitKind, rows: Any, options: RowOptions, after: PlannedWrite | None) -> RowWrite:
        stored = LedgerOptions(
            ensemble_size=options.get("ensemble_size", 3),
            write_quorum=options.get("write_quorum", 3),
            ack_quorum=options.get("ack_quorum", 2),
            digest_type=DigestType.of(options.get("digest_type", DigestType.CRC32C)),
            password=self._access.password,
        )
        asked = AskedLanes.of(options.get("partition_key"), options.get("lanes"))
        create, merge = self._access.create_ledger, options.get("merge_schema", False)
        return RowWrite(rows, asked, merge, lambda job: create(stored, job), kind, after)

    @contextmanager
    def _changing(self, log: str, kind: CommitKind, *, is_rows: bool = True) -> Iterator[None]:
        """A change that fails lets the transaction fail, whatever the block does with the error."""
        with self._lock:
            if self._state != "open":
                raise ConfigError("the transaction", State(self._state), "change logs inside of its 'with' block")
            try:
                self._check(log, kind, is_rows=is_rows)
                self._changing_now.add(log)
                yield
            except BaseException:
                self._state = "failed"
                raise
            finally:
                self._changing_now.discard(log)

    def _check(self, log: str, kind: CommitKind, *, is_rows: bool) -> None:
        known = self._changes.get(log)
        if log in self._changing_now:
            raise ConfigError("the log", log, "its change is under way, and its rows come from code that changes it again")
        if known is None and len(self._changes) >= MAX_LOGS:
            remedy = f"a transaction takes {MAX_LOGS} logs at most, all of which are in one request to the metadata store"
            raise ConfigError("the number of logs in a transaction", MAX_LOGS + 1, f"{remedy}: use several")
        if known is not None and (kind is not CommitKind.APPEND or known.request.kind is not kind):
            remedy = f"the transaction has another change of this log, of kind {known.request.kind.value}: use a second one"
            raise ConfigError(f"the change of log '{log}'", State(kind.value), remedy)
        if known is not None and (known.rows is not None) != is_rows:
            remedy = "the transaction appends both rows and ledgers of entries to it: a log holds one of the two"
            raise ConfigError("the log", log, remedy)

    def _check_apart(self, log: str, request: CommitRequest) -> None:
        """Refuses a ledger of another log before the commit, which would give it to that log for life and then fail."""
        others = {
            ledger.ledger_id: name for name, one in self._changes.items() for ledger in one.request.ledgers if name != log
        }
        twice = next((one.ledger_id for one in request.ledgers if one.ledger_id in others), None)
        if twice is not None:
            remedy = f"the transaction gives it to log '{others[twice]}', too, and a ledger has one log for life"
            raise ConfigError(f"a ledger given to log '{log}'", twice, remedy)

    def _job(self, log: str, uid: str | None) -> WriteJob:
        if log in self._changes:
            return self._changes[log].job
        job = self._logs.jobs.begin(log, uid)
        self._jobs.append(job)
        return job

    def _add(self, log: str, job: WriteJob, request: CommitRequest, rows: PlannedWrite | None = None) -> None:
        known = self._changes.get(log)
        self._changes[log] = _Change(job, request, rows) if known is None else known.with_more(request, rows)

    def _refresh_jobs(self) -> None:
        for job in list(self._jobs):
            self._logs.jobs.refresh(job)

    def _end(self, *, is_wanted: bool) -> None:
        if self._is_given_up:
            self._state = "failed"
        if is_wanted and self._state == "open":
            self._commit()
            return
        self._abort()
        if is_wanted:
            raise ConfigError("the transaction", State(self._state), "one of its changes failed: nothing is committed")

    def _commit(self) -> None:
        commits = [LogCommit(one.job, one.request) for _, one in sorted(self._changes.items())]
        self._outcome = self._logs.commit_logs(commits, self._application)

    def _abort(self) -> None:
        try:
            self._logs.abort_logs(self._jobs)
        except (BookKeeperError, StoreError, TransactionFailedError) as problem:  # the first failure counts
            logger.warning("the write jobs of a transaction are left to the sweep: %s", problem)
