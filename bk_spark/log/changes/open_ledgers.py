"""What a commit does with open ledgers (log rule 2).

Nothing may be listed behind a ledger that still grows: its leader would get confirmations for entries that stand before rows
already read. So an append or overwrite first recovers every open ledger, records all their ends, and raises the leader's epoch,
which displaces the leader. Commits that add nothing at the end leave a leader alone, and record only the ends of ledgers that
are closed already. A leader's own commits name the leader's epoch, and are refused once the log has a higher one.

A commit can record only the ends of the first open ledgers: behind an open ledger, no ledger's end is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from bk_spark.errors import ConfigError, LedgerFencedError
from bk_spark.log.changes.ledgers import LogLedgers
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommittedLedger, Content, Head, OpenLedger
from bk_spark.metadata.ledger_metadata import LedgerMetadata

EndOf: TypeAlias = Callable[[LedgerMetadata, Content | None], CommittedLedger]
"""``LogReader.end_of``."""


class OpenLedgerEnds:
    """The ends that one call of commit records. Each ledger is recovered once, whatever the number of tries."""

    def __init__(
        self, ledgers: LogLedgers, recover: Callable[[int], LedgerMetadata], end_of: EndOf, request: CommitRequest
    ) -> None:
        self._ledgers = ledgers
        self._recover = recover
        self._end_of = end_of
        self._request = request
        self._recovered: dict[int, CommittedLedger] = {}

    def check_leader(self, head: Head) -> None:
        """Raises LedgerFencedError if a displaced leader makes the request. Checked first, whatever else is wrong."""
        if self._request.leader_epoch in (None, head.writer.epoch):
            return
        own = [ledger.ledger_id for ledger in self._request.closed]
        if self._request.opened is not None:
            own.append(self._request.opened)
        raise LedgerFencedError(own[0] if own else -1, head.name)

    def find(self, head: Head) -> tuple[CommittedLedger, ...]:
        """The ends of the first open ledgers of ``head``, which has passed ``check_leader``.

        Raises ConfigError for an end that is not the ledger's; what a recovery raises.
        """
        found = head.writer.open_ledgers
        if self._request.leader_epoch is not None:
            return self._given(head.name, found)
        if self._request.displaces:
            return tuple(self._recovered_end(one.ledger_id, head.content) for one in found)
        return self._closed_already(found, head.content)

    def _given(self, name: str, found: Sequence[OpenLedger]) -> tuple[CommittedLedger, ...]:
        """The ends that the leader gives, without those recorded already. Each ledger must be CLOSED at its end."""
        open_ids = [ledger.ledger_id for ledger in found]
        ends = tuple(ledger for ledger in self._request.closed if ledger.ledger_id in open_ids)
        ids = [ledger.ledger_id for ledger in ends]
        if ids != open_ids[: len(ends)]:
            raise ConfigError(
                "the list of ledgers to close", ids, f"log '{name}' has {open_ids} open: close the first ones first"
            )
        for given, metadata in zip(ends, self._ledgers.describe(ids), strict=True):
            closed = CommittedLedger.of_entries(metadata)
            if replace(given, rows=closed.rows) != closed:  # only the leader knows how many rows it wrote
                raise ConfigError("the end of a ledger to close", given, f"it was closed as {closed}")
        return ends

    def _recovered_end(self, ledger_id: int, content: Content | None) -> CommittedLedger:
        if ledger_id not in self._recovered:
            self._recovered[ledger_id] = self._end_of(self._recover(ledger_id), content)
        return self._recovered[ledger_id]

    def _closed_already(self, found: Sequence[OpenLedger], content: Content | None) -> tuple[CommittedLedger, ...]:
        ends: list[CommittedLedger] = []
        for metadata in self._ledgers.find([ledger.ledger_id for ledger in found]):
            if metadata is None or not metadata.is_closed:
                break
            ends.append(self._end_of(metadata, content))
        return tuple(ends)
