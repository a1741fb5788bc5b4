"""Log: the named, ordered list of ledgers that users hold.

Ref: the BookKeeper protocol, "Ledgers to logs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from bk_spark.client.log_layout import CommitKind, CommittedLedger, Content, LogVersion
from bk_spark.client.log_plan import CommitRequest
from bk_spark.client.log_snapshot import LogSnapshot
from bk_spark.client.log_store import LogStore
from bk_spark.errors import ConfigError, MetadataUnavailableError, NoSuchLogError


class LedgerReader(Protocol):
    """What reading a log needs of an open ledger."""

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """The entries ``first`` to ``last``, inclusive."""


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """A place in a log: an entry of one of its ledgers."""

    ledger_id: int
    entry_id: int


class Log:
    """One log. It stays the same one: after a deletion its methods raise NoSuchLogError, also if the name is used anew."""

    def __init__(self, logs: LogStore, name: str, uid: str, open_ledger: Callable[[int], LedgerReader]) -> None:
        self._logs = logs
        self._name = name
        self._uid = uid
        self._open_ledger = open_ledger

    @property
    def name(self) -> str:
        return self._name

    @property
    def uid(self) -> str:
        """The random id that tells this log from others that had or will have its name."""
        return self._uid

    def snapshot(self, version: int | None = None) -> LogSnapshot:
        """The log at ``version``, by default the newest. Raises NoSuchLogError, ConfigError."""
        snapshot = self._logs.snapshot(self._name, version)
        self._check_same(snapshot.uid)
        return snapshot

    def ledgers(self) -> list[CommittedLedger]:
        """The ledgers that the log lists now, in log order."""
        return list(self.snapshot().ledgers)

    def versions(self) -> list[LogVersion]:
        """Every commit to the log, oldest first."""
        self.snapshot(0)
        return self._logs.versions(self._name)

    def append_ledgers(
        self, ledgers: Sequence[int | CommittedLedger], application: tuple[str, int] | None = None
    ) -> LogVersion:
        """List ledgers of entries at the end of the log, all at once. They must be CLOSED, and become this log's for good.

        ``application`` is an id and a version: if the log has that version of the id or a later one, the call changes
        nothing and the result's ``duplicate_of`` names the version that holds it.

        Raises SchemaMismatchError on a log of rows; NoSuchLedgerError, LedgerNotClosedError or ConfigError for a ledger
        that cannot be listed; NoSuchLogError; MetadataUnavailableError.
        """
        request = CommitRequest(CommitKind.APPEND, self._described(ledgers), application=application)
        return self._commit(request)

    def replace_ledgers(self, remove: Sequence[int], add: Sequence[int | CommittedLedger]) -> LogVersion:
        """Put ``add`` in the place of ``remove``, all at once; ``add`` may be empty.

        ``remove`` is one stretch of the log in its order, all of which must still be listed: MetadataConflictError
        otherwise. All else stays, also what others append meanwhile. In a log of rows only ledgers whose rows are
        given (CommittedLedger) can be added. Older versions keep listing what was removed. Errors as ``append_ledgers``.
        """
        by_id = [one for one in add if not isinstance(one, CommittedLedger)]
        if by_id and self.snapshot().content is Content.ROWS:
            problem = f"log '{self._name}' holds rows: give a CommittedLedger, which says how many rows it holds"
            raise ConfigError("a ledger to add", by_id[0], problem)
        return self._commit(CommitRequest(CommitKind.REPLACE, self._described(add), remove=tuple(remove)))

    def read(self, start: LogPosition | None = None, end: LogPosition | None = None) -> Iterator[pa.RecordBatch]:
        """The log's entries as they stand at the call, in log order, from ``start`` (included) to ``end`` (excluded).

        Batches have the columns of a ledger's ``read``, and never span ledgers. Raises ConfigError for a position in a
        ledger that the log does not list; NoSuchLedgerError where a ledger was deleted underneath.
        """
        listed = self.snapshot().ledgers
        first, last = self._bounds(listed, start, end)
        return self._read(listed, first, last)

    def delete(self) -> None:
        """Delete the log and all its ledgers, those of old versions too. Called again, it finishes what was cut short."""
        self._logs.delete(self._name, self._uid)

    def _commit(self, request: CommitRequest) -> LogVersion:
        job = self._logs.begin_job(self._name)
        self._check_same(job.uid)
        try:
            version = self._logs.commit(job, request)
        except BaseException as problem:
            if self._logs.abort(job) or not isinstance(problem, MetadataUnavailableError):
                raise
            version = self._logs.commit(job, request)  # it had taken effect: this reads as which version
        if version.duplicate_of is None:
            self._logs.finish(job, [one.ledger_id for one in request.ledgers])
        return version

    def _described(self, ledgers: Sequence[int | CommittedLedger]) -> tuple[CommittedLedger, ...]:
        ids = [one for one in ledgers if not isinstance(one, CommittedLedger)]
        entries = {one.ledger_id: one for one in self._logs.describe_ledgers(ids)}
        described = []
        for one in ledgers:
            if isinstance(one, CommittedLedger):
                described.append(one)
                continue
            last = entries[one].last_entry_id
            assert last is not None, "a CLOSED ledger has a last entry id"
            described.append(CommittedLedger(one, last, entries[one].length, last + 1))
        return tuple(described)

    def _check_same(self, uid: str) -> None:
        if uid != self._uid:
            raise NoSuchLogError(self._name)

    def _bounds(
        self, listed: Sequence[CommittedLedger], start: LogPosition | None, end: LogPosition | None
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Both as (index in the list, entry id), so that they compare in log order."""
        index = {one.ledger_id: place for place, one in enumerate(listed)}
        for name, position in (("start", start), ("end", end)):
            if position is not None and position.ledger_id not in index:
                raise ConfigError(name, position, f"log '{self._name}' does not list ledger {position.ledger_id}")
        first = (0, 0) if start is None else (index[start.ledger_id], start.entry_id)
        last = (len(listed), 0) if end is None else (index[end.ledger_id], end.entry_id)
        return first, last

    def _read(
        self, listed: Sequence[CommittedLedger], first: tuple[int, int], last: tuple[int, int]
    ) -> Iterator[pa.RecordBatch]:
        for place, ledger in enumerate(listed):
            begin = first[1] if place == first[0] else 0
            stop = min(ledger.last_entry_id, last[1] - 1) if place == last[0] else ledger.last_entry_id
            if first[0] <= place <= last[0] and begin <= stop:
                yield from self._open_ledger(ledger.ledger_id).read(begin, stop)
