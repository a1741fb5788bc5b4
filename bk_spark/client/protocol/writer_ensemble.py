"""The bookies of a writer: which of its last ensemble failed, and the change that replaces them.

* One change at a time; slots that fail meanwhile join it, or the next one, which follows at once.
* A change may be delayed while every write set keeps Qa slots that have not failed (docs/rules.md, protocol rule 23).
* Slots for which there was no bookie stay failed; at growing intervals they are tried again, and then the former bookie
  itself is welcome, if it is back. Below Qa in any write set, and after too many changes, there is an ``error``.
* While every write set keeps Qa slots, a bookie that was replaced comes back after such an interval at the earliest:
  otherwise two registered bookies that refuse every add would take turns, a fragment each time.

Used by AddEntries, which sends to the slots that have not failed, and takes acks back and sends anew what ``take_replaced``
names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from bk_spark.client.protocol.limits import AddLimits
from bk_spark.client.protocol.pending_adds import fewest_left
from bk_spark.client.protocol.state_machine import ChooseReplacements, Command, ReplacementsChosen
from bk_spark.client.protocol.update_metadata import MetadataEvent, UpdateMetadata
from bk_spark.errors import (
    BookKeeperError,
    EnsembleChangesExceededError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataConflictError,
    NotEnoughBookiesError,
)
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState

# --- One ensemble change: find bookies for the failed slots, then put the new fragment into the metadata
#
# Rules, each with its number in docs/rules.md, "Protocol":
#
# * Bookies that fail meanwhile join the change; there is never a second one beside it (21).
# * The new fragment is in the metadata before anything relies on it (20); it is written by compare-and-set, what others
#   changed in older fragments stays, and a ledger that is in recovery or closed is left alone (12, 22).
# * A recovery's changes are local: they reach the metadata in its closing write, all at once (9).
#
# Worked example, E = 3, entries up to 41 confirmed, fragments 0: (b1, b2, b3): b2 fails, b4 is found. The fragments become
# 0: (b1, b2, b3), 42: (b1, b4, b3). Before entry 42 is confirmed b1 fails, b2 is back: 0: (b1, b2, b3), 42: (b2, b4, b3).
#
# Ref: the BookKeeper protocol, "Changing ensembles".


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


MAX_RETRY_DOUBLINGS = 6
"""Looking for a replacement again and again in vain slows down to 64 times the first pause, minutes."""


class WriterEnsemble:
    """Gives back commands; after every call the writer looks at ``error`` and ``take_replaced()``."""

    def __init__(self, metadata: LedgerMetadata, version: int, limits: AddLimits, numbers: Iterator[int]) -> None:
        """``numbers`` are those of requests."""
        self.metadata = metadata
        self.version = version
        self.failed: dict[int, str] = {}
        """Slots that are sent nothing, with the reason."""
        self.may_change = True
        self.is_local = False
        """Whether changes stay out of the metadata store: a recovery's do, until it closes the ledger."""
        self.error: BookKeeperError | None = None
        self.retry_ms: int | None = None
        """When to try again to replace what could not be replaced."""
        self._limits = limits
        self._numbers = numbers
        self._change: ChangeEnsemble | None = None
        self._changes = 0
        self._retries = 0
        self._must_follow = False
        self._left: dict[str, int] = {}
        """Bookies that were replaced lately, with when."""
        self._replaced: list[int] = []
        self._attempted: Fragment | None = None

    @property
    def bookies(self) -> tuple[str, ...]:
        return self.metadata.last_fragment.ensemble

    @property
    def is_changing(self) -> bool:
        return self._change is not None

    @property
    def own_tails(self) -> tuple[Fragment, ...]:
        """The last fragments that the store may hold if nobody else changed it: a failed write may have happened."""
        tails = (self.metadata.last_fragment, self._attempted)
        return tuple(tail for tail in tails if tail is not None)

    def take_replaced(self) -> list[int]:
        """The slots that have a new bookie, each given once."""
        replaced, self._replaced = self._replaced, []
        return replaced

    def replace_failed(self, first: int, now_ms: int, *, may_delay: bool) -> list[Command]:
        """Begin to replace the failed bookies from entry ``first`` on, the first unconfirmed one, unless that is under way."""
        if self.error is not None or self._change is not None:
            self._must_follow = self._must_follow or not may_delay
            return []
        if not self.may_change or (may_delay and self._has_quorums_left()):
            self._check_quorums_left("")
            return []
        return self._begin(first, self._excluded(now_ms))

    def retry(self, first: int, now_ms: int) -> list[Command]:
        """Try again what could not be replaced, if it is time."""
        if self.retry_ms is None or now_ms < self.retry_ms or self._change is not None:
            return []
        return self._begin(first, frozenset())

    def chosen(self, event: ReplacementsChosen, first: int, now_ms: int) -> list[Command]:
        change = self._change
        if change is None or self.error is not None:
            return []
        commands = change.chosen(event, self.failed)
        if commands is None:
            excluded = self._excluded(now_ms) | frozenset(change.replaced.values())
            commands = self._choose(change, change.unasked(self.failed), excluded)
        return commands + self._end(change, first, now_ms)

    def metadata_answered(self, event: MetadataEvent, first: int, now_ms: int) -> list[Command]:
        change = self._change
        if change is None:
            return []
        return change.handle(event) + self._end(change, first, now_ms)

    def give_up(self, error: BookKeeperError) -> None:
        """The writer failed: a change ends, unless its metadata write is under way, whose answer is still awaited."""
        self.retry_ms, self.error = None, self.error or error
        if self._change is not None and self._change.attempted is None:
            self._change = None

    # --- inside

    def _begin(self, first: int, excluded: frozenset[str]) -> list[Command]:
        self.retry_ms = None
        if self._changes >= self._limits.max_ensemble_changes:
            self.error = EnsembleChangesExceededError(self.metadata.ledger_id, self._changes)
            return []
        self._change = ChangeEnsemble(self.metadata, self.version, first, is_local=self.is_local)
        return self._choose(self._change, list(self.failed), excluded)

    def _choose(self, change: ChangeEnsemble, slots: list[int], excluded: frozenset[str]) -> list[Command]:
        self._must_follow = False
        return change.choose(next(self._numbers), slots, excluded)

    def _end(self, change: ChangeEnsemble, first: int, now_ms: int) -> list[Command]:
        if not change.is_done:
            return []
        self._change = None
        if change.error is not None:
            self.error, self._attempted = change.error, change.attempted
        elif change.replaced:
            self._install(change, now_ms)
        return self._look_again(change, first, now_ms)

    def _install(self, change: ChangeEnsemble, now_ms: int) -> None:
        left = self._left_lately(now_ms)
        if not (self._failed_bookies() | left.keys()).issuperset(change.replaced.values()):
            self._retries = 0
        self._left = left | {self.bookies[slot]: now_ms for slot in change.replaced}
        self._changes += 1
        self.metadata, self.version = change.metadata, change.version
        self._replaced = sorted(change.replaced)
        for slot in self._replaced:
            del self.failed[slot]

    def _look_again(self, change: ChangeEnsemble, first: int, now_ms: int) -> list[Command]:
        """Slots that failed while the metadata was written are next; those that got no bookie are tried again later."""
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
        """Who must not take a slot now. Where an ack quorum is at stake nobody who may be back is left out."""
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
