"""Commits of one ledger, which is metadata alone, to a log of entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from benchmarks.scale.made_ledgers import listed, made_ledger
from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind


class Committer:
    """Commits to one log. ``bookies`` are those that ledgers name."""

    def __init__(self, client: BookKeeper, bookies: Sequence[str], log: str) -> None:
        self._client = client
        self._bookies = bookies
        self._log = log
        self._ledgers = LedgerStore(client.metadata_store, client.znodes)

    def commit(self, measured: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """One ledger more. The commit alone is measured, not how the ledger came to be."""
        logs = self._client.logs
        job = logs.jobs.begin(self._log)
        logs.jobs.ensure(job)
        with self._ledgers.new_id() as issued:
            metadata = made_ledger(self._bookies, issued.ledger_id, job.ledger_tags())
            self._ledgers.create(metadata, logs.jobs.creation_of_ledger(job, issued.ledger_id), lambda _: None, issued)
        request = CommitRequest(CommitKind.APPEND, (listed(issued.ledger_id),))
        with measured():
            logs.commit(job, request)
        logs.jobs.finish(job, [issued.ledger_id])
