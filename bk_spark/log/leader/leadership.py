"""What the leader of a log does in the metadata store: it lists ledgers before it writes to them, and records their ends.

Each commit of a leader is a write job of its own. So every ledger belongs to a job, which ends with a commit that lists the
ledger, or with the ledger's deletion. The five steps of "Opening a log":

    create      a ledger under a new write job, which nobody knows of yet
    read, fence, add, compare-and-set      all in the commit (commit.py), repeated until the compare-and-set succeeds. The
                commit recovers every open ledger that the head names. Those are all ledgers that are not closed, two at
                most, so they include any open ones among the last two.

The protocol creates the ledger after fencing. Here it comes first. That does no harm, because nothing is in it before the
compare-and-set; and then no try of the commit has to create another one.

Ref: the BookKeeper protocol, "Ledgers to logs"; docs/rules.md, protocol rule 60.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.leader.tier_rolls import TierWait
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.schema import MERGE_ARGUMENT
from bk_spark.log.stored.values import CommitKind, CommittedLedger


@dataclass(frozen=True, slots=True)
class CreatedLedger:
    """A ledger that no version of the log lists yet, and the job that will."""

    ledger: WriteHandle
    job: WriteJob


class RowsWritten(Protocol):
    """What a leader that writes rows knows of them."""

    @property
    def schema_json(self) -> str: ...

    @property
    def merge_schema(self) -> bool: ...

    def in_ledger(self, ledger_id: int) -> int:
        """How many rows were written to a ledger of this leader."""


class Leadership:
    """One leader. Once it is displaced, each of its commits raises LedgerFencedError."""

    def __init__(
        self,
        logs: LogStore,
        name: str,
        uid: str,
        create_ledger: Callable[[WriteJob], WriteHandle],
        rows: RowsWritten | None = None,
    ) -> None:
        """``rows`` is None for a leader that writes entries."""
        self.name = name
        self.epoch = 0
        """The leader's epoch, as ``take_over`` raised it."""
        self._logs = logs
        self._uid = uid
        self._create_ledger = create_ledger
        self._rows = rows

    def create(self) -> CreatedLedger:
        """Create an empty ledger for the log. If this fails, the sweep of orphans removes what it left."""
        job = self._logs.jobs.begin(self.name, self._uid)
        return CreatedLedger(self._create_ledger(job), job)

    def take_over(self) -> WriteHandle:
        """Displace the log's leader, and list an empty ledger. Once this returns, entries may be added to that ledger."""
        created = self.create()
        request = CommitRequest(CommitKind.APPEND, opened=created.ledger.ledger_id, **self._schema)
        assert self.epoch == 0, "a leader takes over once"
        self.epoch = self._logs.commit_or_abort(created.job, request).epoch
        return created.ledger

    def list_next(self, created: CreatedLedger) -> None:
        """List the next ledger. Raises LedgerFencedError."""
        self._commit(created.job, (), opened=created.ledger.ledger_id)

    def record(self, end: CommittedLedger) -> None:
        """Record the end of the first own ledger that the log lists as open. Raises LedgerFencedError."""
        self._commit(self._logs.jobs.begin(self.name, self._uid), (end,), opened=None)

    def tier_wait(self) -> TierWait | None:
        """How long rows may wait for the log's tier; None without one."""
        if self._logs.names.head(self.name, self._uid).tier is None:
            return None
        tier = self._logs.reader.tier.settings(self.name, self._uid)
        return TierWait(tier.tier_after_s, tier.tier_after_bytes)

    def end_of(self, ledger: WriteHandle) -> CommittedLedger:
        """A closed ledger's end, as a commit records it."""
        return end_of(ledger, None if self._rows is None else self._rows.in_ledger(ledger.ledger_id))

    def _commit(self, job: WriteJob, ends: tuple[CommittedLedger, ...], opened: int | None) -> None:
        assert self.epoch > 0, "it has taken over"
        assert opened not in {end.ledger_id for end in ends}
        request = CommitRequest(CommitKind.APPEND, opened=opened, closed=ends, leader_epoch=self.epoch, **self._schema)
        self._logs.commit_or_abort(job, request)

    @property
    def _schema(self) -> dict[str, Any]:
        """What a commit to a log of rows says of them."""
        if self._rows is None:
            return {}
        merge = self._rows.merge_schema
        return {"schema_json": self._rows.schema_json, "merge_schema": merge, "merge_option": MERGE_ARGUMENT}


def end_of(ledger: WriteHandle, rows: int | None = None) -> CommittedLedger:
    """A closed ledger's end; without ``rows`` it holds entries, each of which counts as a row."""
    last = ledger.last_add_confirmed
    return CommittedLedger(ledger.ledger_id, last, ledger.length, last + 1 if rows is None else rows)
