"""One ensemble change: find bookies for the failed slots, then put the new fragment into the metadata.

Rules, each with its number in docs/rules.md, "Protocol":

* Bookies that fail meanwhile join the change; there is never a second one beside it (21).
* The new fragment is in the metadata before anything relies on it (20); it is written by compare-and-set, what others
  changed in older fragments stays, and a ledger that is in recovery or closed is left alone (12, 22).
* A recovery's changes are local: they reach the metadata in its closing write, all at once (9).

Worked example, E = 3, entries up to 41 confirmed, fragments 0: (b1, b2, b3): b2 fails, b4 is found. The fragments become
0: (b1, b2, b3), 42: (b1, b4, b3). Before entry 42 is confirmed b1 fails, b2 is back: 0: (b1, b2, b3), 42: (b2, b4, b3).

Ref: the BookKeeper protocol, "Changing ensembles".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bk_spark.client.operation import ChooseReplacements, Command, ReplacementsChosen
from bk_spark.client.update_metadata import MetadataEvent, UpdateMetadata
from bk_spark.errors import BookKeeperError, LedgerClosedError, LedgerFencedError, MetadataConflictError
from bk_spark.ledger_metadata import Fragment, LedgerMetadata, LedgerState


@dataclass(frozen=True, slots=True)
class _Tail:
    """What the last fragment is to become: a change for UpdateMetadata."""

    before: Fragment
    after: Fragment

    def __call__(self, current: LedgerMetadata) -> LedgerMetadata:
        if current.state is LedgerState.IN_RECOVERY:
            raise LedgerFencedError(current.ledger_id)
        if current.state is LedgerState.CLOSED:
            raise LedgerClosedError(current.ledger_id)
        if current.last_fragment == self.after:
            return current
        if current.last_fragment != self.before:
            problem = f"its last fragment is {current.last_fragment}, this writer's is {self.before}"
            raise MetadataConflictError(f"the metadata of ledger {current.ledger_id}", problem)
        return current.with_ensemble(self.after.first_entry_id, self.after.ensemble)


class ChangeEnsemble:
    """A change under way. Done when ``is_done``: with an ``error``, or ``replaced`` slots, none where no bookie was found."""

    def __init__(self, metadata: LedgerMetadata, version: int, first_entry_id: int, *, is_local: bool) -> None:
        """``first_entry_id`` is the first that is not confirmed; none may be confirmed before the change is done."""
        self.metadata = metadata
        self.version = version
        self.is_done = False
        self.error: BookKeeperError | None = None
        self.replaced: dict[int, str] = {}
        self.detail = ""
        """Why a slot got no new bookie."""
        self._first_entry_id = first_entry_id
        self._is_local = is_local
        self._asked: set[int] = set()
        self._request_id = 0
        self._update: UpdateMetadata | None = None

    @property
    def attempted(self) -> Fragment | None:
        """The fragment that may be in the metadata, whatever became of the change."""
        return self._new_fragment() if self._update is not None else None

    def choose(self, request_id: int, slots: Collection[int], excluded: frozenset[str]) -> list[Command]:
        """Ask for bookies for ``slots``."""
        self._request_id = request_id
        self._asked.update(slots)
        return [ChooseReplacements(request_id, self._ensemble(), tuple(sorted(slots)), excluded)]

    def chosen(self, event: ReplacementsChosen, failed: Mapping[int, str]) -> list[Command] | None:
        """Take the answer in; None if slots failed since the question: ``choose`` for ``unasked`` is due then."""
        if event.request_id != self._request_id or self._update is not None:
            return []
        self.replaced.update(event.bookies)
        self.detail = event.detail or self.detail
        if self.unasked(failed):
            return None
        return self._write()

    def unasked(self, failed: Mapping[int, str]) -> list[int]:
        return sorted(failed.keys() - self._asked)

    def handle(self, event: MetadataEvent) -> list[Command]:
        if self._update is None:
            return []
        commands = self._update.handle(event)
        self._take_result(self._update)
        return commands

    def _write(self) -> list[Command]:
        if not self.replaced:
            self.is_done = True
            return []
        after = self._new_fragment()
        if self._is_local:
            self.metadata = self.metadata.with_ensemble(after.first_entry_id, after.ensemble)
            self.is_done = True
            return []
        self._update = UpdateMetadata(self.metadata, self.version, _Tail(self.metadata.last_fragment, after))
        commands = self._update.start()
        self._take_result(self._update)
        return commands

    def _take_result(self, update: UpdateMetadata) -> None:
        if update.is_done:
            self.is_done, self.error = True, update.error
            if update.error is None:
                self.metadata, self.version = update.metadata, update.version

    def _ensemble(self) -> tuple[str, ...]:
        return tuple(self.replaced.get(slot, bookie) for slot, bookie in enumerate(self.metadata.last_fragment.ensemble))

    def _new_fragment(self) -> Fragment:
        return Fragment(self._first_entry_id, self._ensemble())
