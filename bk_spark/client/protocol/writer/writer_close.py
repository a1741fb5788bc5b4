"""The end of a writer: its closing write, and the answers that bookies owe for confirmed entries.

* The closing write is a compare-and-set. Its answer decides the end of the ledger, or why this writer cannot end it (25, 26).
* Adds of confirmed entries still go to their whole write quorum. A bookie gets a moment to answer them. If it refuses, or stays
  silent, it may lack the entries, and the ledger is marked for it (63).

When each part is due the state says (``writer_states.py``). The numbers are those of docs/rules.md, "Protocol".
"""

from __future__ import annotations

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.pending_adds import OWED_PATIENCE_MS, KnownGaps
from bk_spark.client.protocol.update_metadata import CloseLedger, UpdateMetadata
from bk_spark.client.protocol.writer.writer_ensemble import WriterEnsemble
from bk_spark.errors import BookKeeperError
from bk_spark.wire.messages import Status


class WriterClose:
    """What a writer knows of its close."""

    def __init__(self, ensemble: WriterEnsemble, gaps: KnownGaps) -> None:
        self.owed_until_ms = 0
        """Who has not answered by then may lack entries."""
        self._ensemble = ensemble
        self._gaps = gaps
        self._update: UpdateMetadata | None = None
        self._owed: dict[int, str] = {}
        """The unanswered requests with confirmed entries, and the bookie of each."""

    @property
    def is_answered(self) -> bool:
        """Whether the closing write has ended, with an ``error`` or without."""
        return self._update is not None and self._update.is_done

    @property
    def error(self) -> BookKeeperError | None:
        return None if self._update is None else self._update.error

    def write(self, last_entry_id: int, length: int) -> list[sm.Command]:
        """Start the closing write. No other metadata write may be under way."""
        ensemble = self._ensemble
        end = CloseLedger(last_entry_id, length, ensemble.own_tails)
        self._update = UpdateMetadata(ensemble.metadata, ensemble.version, end)
        return self._update.start()

    def metadata_answered(self, event: sm.MetadataEvent) -> list[sm.Command]:
        update = self._update
        assert update is not None
        commands = update.handle(event)
        if update.is_done and update.error is None:
            self._ensemble.metadata, self._ensemble.version = update.metadata, update.version
        return commands

    def await_answers(self, owed: dict[int, str], now_ms: int) -> None:
        self._owed, self.owed_until_ms = owed, now_ms + OWED_PATIENCE_MS

    def add_answered(self, event: sm.AddAnswered) -> None:
        bookie_id = self._owed.pop(event.request_id, None)
        if bookie_id is not None and event.status is not Status.OK:
            self._gaps.note(bookie_id)

    def has_collected(self, now_ms: int) -> bool:
        """Whether no answer is waited for any more."""
        return not self._owed or now_ms >= self.owed_until_ms

    def mark_gaps(self) -> None:
        """The ledger has an end: all gaps may be marked, also those of bookies that still owe answers."""
        for bookie_id in self._owed.values():
            self._gaps.note(bookie_id)
        self._gaps.ledger_closed()
