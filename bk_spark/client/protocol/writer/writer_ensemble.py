"""The bookies of a writer: which of its last ensemble have failed, and the ensemble changes that replace them.

When to change (``WriterEnsemble``):

* Only one change runs at a time. Slots that fail meanwhile join it, or the next change, which follows at once (21).
* A change may be delayed while every write set keeps Qa slots that have not failed (23).
* A slot for which there is no other bookie stays failed. It is tried again at growing intervals; its former bookie may then
  take it again, if it is back. Below Qa in any write set, and after too many changes, there is an ``error``.
* A bookie that is merely silent may be overloaded, as all others may be at that moment. While the others keep Qa slots of every
  write set it counts as failed. Until the first retry only a bookie that has not failed lately takes its slot, because one that
  is as slow would be sent everything once more. If the others do not keep Qa slots it is given up only for such a bookie; if
  there is none the writer waits for the silent one, and looks again after a pause.
* While every write set keeps Qa slots, a replaced bookie may return after one such interval at the earliest. Otherwise two
  registered bookies that refuse every add would take turns, each time with a new fragment.

How to change (``ChangeEnsemble``): find bookies for the failed slots, then put the new fragment into the metadata.

* The new fragment is in the metadata before anything relies on it (20). It is written by compare-and-set, and what others
  changed in older fragments stays. A ledger that is in recovery or closed is not changed (12, 22).
* A recovery's changes are local: its closing write stores them all at once (9).

Worked example, E = 3, entries up to 41 confirmed, fragments 0: (b1, b2, b3): b2 fails, b4 is found. The fragments become
0: (b1, b2, b3), 42: (b1, b4, b3). Before entry 42 is confirmed b1 fails, b2 is back: 0: (b1, b2, b3), 42: (b2, b4, b3).

AddEntries sends to the slots that have not failed. For the slots in ``take_replaced`` it takes acks back and sends again.

Ref: the BookKeeper protocol, "Changing ensembles". The numbers are those of docs/rules.md, "Protocol".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.limits import AddLimits
from bk_spark.client.protocol.pending_adds import fewest_left
from bk_spark.client.protocol.update_metadata import UpdateMetadata
from bk_spark.errors import (
    BookKeeperError,
    EnsembleChangesExceededError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataConflictError,
    NotEnoughBookiesError,
)
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState

MAX_RETRY_DOUBLINGS = 6
"""The pause between fruitless searches for a replacement grows up to 64 times the first one, which is minutes."""


@dataclass(frozen=True, slots=True)
class _Tail:
    """A change for UpdateMetadata: the new last fragment."""

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
    """A change under way. After ``is_done`` there is an ``error``, or ``replaced`` has the slots that got a bookie."""

    def __init__(self, metadata: LedgerMetadata, version: int, first_entry_id: int, *, is_local: bool) -> None:
        """``first_entry_id`` is the first unconfirmed entry; nothing may be confirmed before the change is done."""
        assert first_entry_id >= metadata.last_fragment.first_entry_id
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
        """The fragment that the metadata may hold, whether or not the change succeeded."""
        return self._new_fragment() if self._update is not None else None

    def choose(
        self, request_id: int, slots: Collection[int], excluded: frozenset[str], *, must_be_sound: bool = False
    ) -> list[sm.Command]:
        """Ask for bookies for ``slots``."""
        self._request_id = request_id
        self._asked.update(slots)
        wanted = tuple(sorted(slots))
        return [sm.ChooseReplacements(request_id, self._ensemble(), wanted, excluded, must_be_sound=must_be_sound)]

    def chosen(self, event: sm.ReplacementsChosen, failed: Mapping[int, str]) -> list[sm.Command] | None:
        """Take in the answer. None if slots have failed since the request: then call ``choose`` for those ``unasked``."""
        if event.request_id != self._request_id or self._update is not None:
            return []
        assert self._asked.issuperset(slot for slot, _ in event.bookies), "only slots that were asked for get a bookie"
        self.replaced.update(event.bookies)
        self.detail = event.detail or self.detail
        if self.unasked(failed):
            return None
        return self._write()

    def unasked(self, failed: Mapping[int, str]) -> list[int]:
        return sorted(failed.keys() - self._asked)

    def handle(self, event: sm.MetadataEvent) -> list[sm.Command]:
        if self._update is None:
            return []
        commands = self._update.handle(event)
        self._take_result(self._update)
        return commands

    def _write(self) -> list[sm.Command]:
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


class WriterEnsemble:
    """Its methods return commands. After every call the writer looks at ``error`` and ``take_replaced()``."""

    def __init__(self, metadata: LedgerMetadata, version: int, limits: AddLimits, numbers: Iterator[int]) -> None:
        """``numbers`` gives the ids of requests."""
        self.metadata = metadata
        self.version = version
        self.failed: dict[int, str] = {}
        """Slots that are sent nothing, with the reason."""
        self.may_change = True
        self.is_local = False
        """Whether changes stay out of the metadata store: those of a recovery do, until it closes the ledger."""
        self.error: BookKeeperError | None = None
        self.retry_ms: int | None = None
        """When to look again for bookies that were not found."""
        self._limits = limits
        self._numbers = numbers
        self._change: ChangeEnsemble | None = None
        self._changes = 0
        self._retries = 0
        self._must_follow = False
        """Whether a slot failed during the current change for a reason that allows no delay of the next one."""
        self._must_be_sound = False
        """Whether a slot failed during the current change by silence."""
        self._left: dict[str, int] = {}
        """Recently replaced bookies, with the time."""
        self._replaced: list[int] = []
        self._attempted: Fragment | None = None
        self._seeking = 0
        """The request that looks for bookies in place of silent ones; 0, which no request has: none does."""
        self._patient_until_ms = 0
        """When to look again for such bookies."""

    @property
    def bookies(self) -> tuple[str, ...]:
        return self.metadata.last_fragment.ensemble

    @property
    def is_changing(self) -> bool:
        return self._change is not None

    @property
    def own_tails(self) -> tuple[Fragment, ...]:
        """The last fragments that the store may hold if only this writer changed it: a failed write may have happened."""
        tails = (self.metadata.last_fragment, self._attempted)
        return tuple(tail for tail in tails if tail is not None)

    def take_replaced(self) -> list[int]:
        """The slots that have a new bookie; each is given once."""
        replaced, self._replaced = self._replaced, []
        assert self.failed.keys().isdisjoint(replaced), "a slot with a new bookie has not failed"
        return replaced

    def can_spare(self, slots: Collection[int]) -> bool:
        """Whether every write set keeps an ack quorum without ``slots``."""
        return fewest_left(self.metadata, self.failed.keys() | set(slots)) >= self.metadata.ack_quorum

    def silence_due_ms(self, due_ms: int) -> int | None:
        """When to act on a silence that is too long from ``due_ms`` on; None while others are sought for silent ones."""
        return None if self._seeking else max(due_ms, self._patient_until_ms)

    def seek(self, silent: Collection[int], now_ms: int) -> list[sm.Command]:
        """Look for bookies in place of silent ones, which are not given up before. The answer goes to ``found``."""
        self._patient_until_ms = now_ms + self._limits.replacement_retry_ms
        if not self.may_change or self._change is not None:
            return []
        self._seeking = next(self._numbers)
        excluded = self._failed_bookies() | {self.bookies[slot] for slot in silent}
        slots = tuple(sorted(silent))
        wanted = sm.ChooseReplacements(self._seeking, self.bookies, slots, excluded, is_patient=True, must_be_sound=True)
        return [wanted]

    def found(self, event: sm.ReplacementsChosen) -> bool:
        """Whether this answers ``seek``."""
        if event.request_id != self._seeking:
            return False
        self._seeking = 0
        return True

    def replace_by(self, found: sm.ReplacementsChosen, first: int, now_ms: int) -> list[sm.Command]:
        """Give the slots of silent bookies, which count as failed now, to those that were found. No change may be running."""
        question = self._begin(first, frozenset())
        numbers = [one.request_id for one in question if isinstance(one, sm.ChooseReplacements)]
        return self.chosen(replace(found, request_id=numbers[0]), first, now_ms) if numbers else []

    def replace_failed(self, first: int, now_ms: int, *, may_delay: bool, must_be_sound: bool = False) -> list[sm.Command]:
        """Start to replace the failed bookies from the first unconfirmed entry on, ``first``, unless a change is running."""
        if self.error is not None or self._change is not None:
            self._must_follow = self._must_follow or not may_delay
            self._must_be_sound = self._must_be_sound or must_be_sound
            return []
        if not self.may_change or (may_delay and self._has_quorums_left()):
            self._must_be_sound = False
            self._check_quorums_left("")
            return []
        return self._begin(first, self._excluded(now_ms), must_be_sound=must_be_sound)

    def retry(self, first: int, now_ms: int) -> list[sm.Command]:
        """Look again for bookies that were not found, if it is time."""
        if self.retry_ms is None or now_ms < self.retry_ms or self._change is not None:
            return []
        return self._begin(first, frozenset())

    def chosen(self, event: sm.ReplacementsChosen, first: int, now_ms: int) -> list[sm.Command]:
        change = self._change
        if change is None or self.error is not None:
            return []
        commands = change.chosen(event, self.failed)
        if commands is None:
            excluded = self._excluded(now_ms) | frozenset(change.replaced.values())
            commands = self._choose(change, change.unasked(self.failed), excluded)
        return commands + self._end(change, first, now_ms)

    def metadata_answered(self, event: sm.MetadataEvent, first: int, now_ms: int) -> list[sm.Command]:
        change = self._change
        if change is None:
            return []
        return change.handle(event) + self._end(change, first, now_ms)

    def give_up(self, error: BookKeeperError) -> None:
        """The writer failed: end the change, unless its metadata write is under way, whose answer is still awaited."""
        self.retry_ms, self.error = None, self.error or error
        if self._change is not None and self._change.attempted is None:
            self._change = None

    def _begin(self, first: int, excluded: frozenset[str], *, must_be_sound: bool = False) -> list[sm.Command]:
        assert self._change is None, "two changes never run at once"
        assert self.failed
        self.retry_ms = None
        if self._changes >= self._limits.max_ensemble_changes:
            self.error = EnsembleChangesExceededError(self.metadata.ledger_id, self._changes)
            return []
        self._change = ChangeEnsemble(self.metadata, self.version, first, is_local=self.is_local)
        return self._choose(self._change, list(self.failed), excluded, must_be_sound=must_be_sound)

    def _choose(
        self, change: ChangeEnsemble, slots: list[int], excluded: frozenset[str], *, must_be_sound: bool = False
    ) -> list[sm.Command]:
        must_be_sound = must_be_sound or self._must_be_sound
        self._must_follow = self._must_be_sound = False
        return change.choose(next(self._numbers), slots, excluded, must_be_sound=must_be_sound)

    def _end(self, change: ChangeEnsemble, first: int, now_ms: int) -> list[sm.Command]:
        if not change.is_done:
            return []
        self._change = None
        if change.error is not None:
            self.error, self._attempted = change.error, change.attempted
        elif change.replaced:
            self._install(change, now_ms)
        return self._look_again(change, first, now_ms)

    def _install(self, change: ChangeEnsemble, now_ms: int) -> None:
        assert not self._replaced, "the writer has acted on the change before"
        left = self._left_lately(now_ms)
        if not (self._failed_bookies() | left.keys()).issuperset(change.replaced.values()):
            self._retries = 0
        self._left = left | {self.bookies[slot]: now_ms for slot in change.replaced}
        self._changes += 1
        self.metadata, self.version = change.metadata, change.version
        self._replaced = sorted(change.replaced)
        for slot in self._replaced:
            del self.failed[slot]
            assert self.bookies[slot] == change.replaced[slot]

    def _look_again(self, change: ChangeEnsemble, first: int, now_ms: int) -> list[sm.Command]:
        """Replace the slots that failed while the metadata was written; retry later those that got no bookie."""
        if not self.failed or self.error is not None:
            return []
        if change.unasked(self.failed):
            may_delay = self._limits.delay_ensemble_change and not self._must_follow
            return self.replace_failed(first, now_ms, may_delay=may_delay)
        self._check_quorums_left(change.detail)
        self.retry_ms = now_ms + self._pause_ms
        self._retries += 1
        return []

    @property
    def _pause_ms(self) -> int:
        return self._limits.replacement_retry_ms << min(self._retries, MAX_RETRY_DOUBLINGS)

    def _excluded(self, now_ms: int) -> frozenset[str]:
        """Bookies that must not take a slot now. If an ack quorum is at stake, recently replaced ones may."""
        lately = frozenset(self._left_lately(now_ms)) if self._has_quorums_left() else frozenset()
        return self._failed_bookies() | lately

    def _left_lately(self, now_ms: int) -> dict[str, int]:
        return {bookie_id: left_ms for bookie_id, left_ms in self._left.items() if now_ms - left_ms <= self._pause_ms}

    def _has_quorums_left(self) -> bool:
        return fewest_left(self.metadata, self.failed) >= self.metadata.ack_quorum

    def _check_quorums_left(self, detail: str) -> None:
        if not self._has_quorums_left():
            left = fewest_left(self.metadata, self.failed)
            reasons = ", ".join(f"{self.bookies[slot]}: {reason}" for slot, reason in sorted(self.failed.items()))
            purpose = f"an ack quorum of ledger {self.metadata.ledger_id} (failed: {reasons}{'; ' + detail if detail else ''})"
            self.error = NotEnoughBookiesError(self.metadata.ack_quorum, left, purpose)

    def _failed_bookies(self) -> frozenset[str]:
        return frozenset(self.bookies[slot] for slot in self.failed)
