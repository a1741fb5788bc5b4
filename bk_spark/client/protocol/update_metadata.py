"""Updates of a ledger's metadata: a compare-and-set loop around a pure change, and the change that closes a writer's ledger.

A *change* is a function from the stored metadata to the wanted metadata. It is applied to what the store holds, and again after
every lost compare-and-set. It returns a new value, which is written; or the same value if nothing is left to do; or it raises
the error that the caller gets. So one function decides after a lost compare-and-set, a lost reply and an edit by others: was
the write mine, does the change still apply, and which edits of others stay.

If the reply to a write is lost, the write counts neither as done nor as not done: the store is read again.

Ref: the BookKeeper protocol, "Closing a ledger as a writer"; docs/rules.md, protocol rules 22, 25 and 26; situation 43.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bk_spark.client.protocol import state_machine as sm
from bk_spark.errors import BookKeeperError, LedgerFencedError, MetadataConflictError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState

MAX_LOST_WRITES = 10
"""Compare-and-sets of one update that may be lost. Each means that somebody else changed the metadata in between,
which happens once or twice. After the last one the update fails, and whoever made it decides again."""

MAX_UNKNOWN_ANSWERS = 3
"""Calls of one update that the metadata store may leave unanswered, each for its own timeout: by then it is down. The update
fails, and whether its write happened stays unknown."""

Change = Callable[[LedgerMetadata], LedgerMetadata]


class UpdateMetadata:
    """One update under way. After ``is_done`` either ``error`` is set, or the store holds ``metadata`` at ``version``."""

    def __init__(self, metadata: LedgerMetadata, version: int, change: Change) -> None:
        """``metadata`` is what the store held at ``version``, as far as the caller knows."""
        self.metadata = metadata
        self.version = version
        self.error: BookKeeperError | None = None
        self.is_done = False
        self._change = change
        self._wanted: LedgerMetadata | None = None
        self._lost_writes = 0
        self._unknown_answers = 0

    def handle(self, event: sm.MetadataEvent) -> list[sm.Command]:
        """The next commands. Call it only until the update is done."""
        assert not self.is_done
        if isinstance(event, sm.MetadataWritten):
            assert self._wanted is not None
            self.metadata, self.version, self.is_done = self._wanted, event.version, True
            return []
        if isinstance(event, sm.MetadataGone):
            return self._fail(NoSuchLedgerError(self.metadata.ledger_id))
        if isinstance(event, sm.MetadataUnknown):
            self._unknown_answers += 1
            return [sm.ReadMetadata()] if self._unknown_answers <= MAX_UNKNOWN_ANSWERS else self._fail(event.error)
        self.metadata, self.version = event.metadata, event.version
        self._lost_writes += 1
        return self.start()

    def start(self) -> list[sm.Command]:
        """Apply the change to ``metadata``; also after each lost compare-and-set."""
        if self._lost_writes > MAX_LOST_WRITES:
            what = f"the metadata of ledger {self.metadata.ledger_id}"
            return self._fail(MetadataConflictError(what, f"{MAX_LOST_WRITES} compare-and-sets in a row were lost"))
        try:
            self._wanted = self._change(self.metadata)
        except BookKeeperError as refused:
            return self._fail(refused)
        if self._wanted == self.metadata:
            self.is_done = True
            return []
        before, after = self.metadata, self._wanted
        assert after.ledger_id == before.ledger_id
        assert after.state.value >= before.state.value, "OPEN, IN_RECOVERY, CLOSED: never back"
        assert not before.is_closed or (after.last_entry_id, after.length) == (before.last_entry_id, before.length)
        return [sm.WriteMetadata(self._wanted, self.version)]

    def _fail(self, error: BookKeeperError) -> list[sm.Command]:
        self.error, self.is_done = error, True
        return []


@dataclass(frozen=True, slots=True)
class CloseLedger:
    """The change with which a writer closes its ledger (protocol rules 25 and 26).

    * OPEN becomes CLOSED at the last confirmed entry; what others changed in older fragments stays.
    * CLOSED at the same end is a success: this writer closed it and lost the reply, or a recoverer found the same end.
    * CLOSED at another end, and IN_RECOVERY, fail: the recoverer decides the end.
    """

    last_entry_id: int
    length: int
    tails: tuple[Fragment, ...]
    """The last fragments that this writer wrote, or tried to write."""

    def __call__(self, current: LedgerMetadata) -> LedgerMetadata:
        what = f"the metadata of ledger {current.ledger_id}"
        if current.state is LedgerState.IN_RECOVERY:
            raise LedgerFencedError(current.ledger_id)
        if current.state is LedgerState.CLOSED:
            if (current.last_entry_id, current.length) == (self.last_entry_id, self.length):
                return current
            end = f"it was closed at entry {current.last_entry_id}, this writer confirmed up to {self.last_entry_id}"
            raise MetadataConflictError(what, end)
        if current.last_fragment not in self.tails:
            raise MetadataConflictError(what, f"its last fragment is {current.last_fragment}, not one of this writer's")
        return current.closed_at(self.last_entry_id, self.length)
