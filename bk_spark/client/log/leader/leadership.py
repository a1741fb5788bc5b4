"""What the leader of a log does in the metadata store: it lists ledgers before it writes to them, and records their ends.

Each of its commits is a write job of its own, so that a ledger exists only with a job that ends in a commit that lists it,
or in its deletion. The five steps of "Opening a log":

    create      a ledger under a new write job: nobody knows of it yet
    read, fence, add, compare-and-set      all in the commit (commit.py), again and again until the compare-and-set
                succeeds: it recovers every open ledger that the head names. Those are the ledgers that are not closed,
                two at most, so the last two are covered.

The protocol creates the ledger after it has fenced. It may as well come first: nothing is in it before the compare-and-set,
and so no try of the commit has to make another one.

Ref: the BookKeeper protocol, "Ledgers to logs"; docs/rules.md, protocol rule 60.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from bk_spark.client.log.changes.jobs import WriteJob
from bk_spark.client.log.changes.plan import CommitRequest
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.stored.values import CommitKind, CommittedLedger
from bk_spark.errors import NoSuchLogError


class LedgerWriter(Protocol):
    """What leading a log needs of a ledger's WriteHandle."""

    @property
    def ledger_id(self) -> int: ...

    @property
    def last_add_confirmed(self) -> int: ...

    @property
    def length(self) -> int: ...

    def append_async(self, payload: bytes) -> Future[int]: ...

    def append_batch_async(self, payloads: pa.BinaryArray) -> Future[tuple[int, int]]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CreatedLedger:
    """A ledger that no version of the log lists yet, and the job that will."""

    ledger: LedgerWriter
    job: WriteJob


class Leadership:
    """One leader. Once displaced it stays so: each of its commits then raises LedgerFencedError."""

    def __init__(self, logs: LogStore, name: str, uid: str, create_ledger: Callable[[WriteJob], LedgerWriter]) -> None:
        self.name = name
        self.epoch = 0
        """The log's, as ``take_over`` raised it."""
        self._logs = logs
        self._uid = uid
        self._create_ledger = create_ledger

    def create(self) -> CreatedLedger:
        """An empty ledger for the log. A failure leaves at most that to the sweep of orphans."""
        job = self._begin_job()
        return CreatedLedger(self._create_ledger(job), job)

    def take_over(self) -> LedgerWriter:
        """Displace whoever leads the log, and list an empty ledger: from the return on entries may be added to it."""
        created = self.create()
        request = CommitRequest(CommitKind.APPEND, opened=created.ledger.ledger_id)
        self.epoch = self._logs.commit_or_abort(created.job, request).epoch
        return created.ledger

    def list_next(self, created: CreatedLedger, ends: tuple[CommittedLedger, ...]) -> None:
        """List the next ledger, and record the ends of own ledgers that are closed. Raises LedgerFencedError."""
        self._commit(created.job, ends, opened=created.ledger.ledger_id)

    def record(self, ends: tuple[CommittedLedger, ...]) -> None:
        """Record the ends of all own ledgers that the log lists as open. Raises LedgerFencedError."""
        self._commit(self._begin_job(), ends, opened=None)

    def _begin_job(self) -> WriteJob:
        job = self._logs.jobs.begin(self.name)
        if job.uid != self._uid:
            raise NoSuchLogError(self.name)
        return job

    def _commit(self, job: WriteJob, ends: tuple[CommittedLedger, ...], opened: int | None) -> None:
        request = CommitRequest(CommitKind.APPEND, opened=opened, closed=ends, epoch=self.epoch)
        self._logs.commit_or_abort(job, request)


def end_of(ledger: LedgerWriter) -> CommittedLedger:
    """A closed ledger's end, as a commit records it: a log of entries has one row an entry."""
    last = ledger.last_add_confirmed
    return CommittedLedger(ledger.ledger_id, last, ledger.length, last + 1)
