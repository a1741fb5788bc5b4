"""Re-replicating a fragment: copy what some slots of its ensemble should hold to new bookies, which then take these slots.

1. *Choose* new bookies for the slots of the leaving ones: by placement, and none that is in the ensemble.
2. *Copy* what the slots hold, from any replica, with each entry verified (``read_entries.py``); a leaving bookie is asked
   last. Entries keep their digests and LACs. The adds carry the recovery flag, so that a fence does not refuse them (protocol
   rule 53).
3. A new bookie that fails is given up. The others continue; then another one is chosen and copied to from the start. The copies
   on the failed one stay there and do no harm, because nothing names them.
4. *Force*: an ack may mean memory only. When every slot's copy is complete all new bookies are forced, each in the boot that
   acked its copy (``force_adds.py``). One that was started again since has lost what it acked: its copy starts anew, once on
   the same bookie if it is chosen again, then on others only.
5. *Replace*: once every entry is durable on a new bookie one compare-and-set gives it the slot, if that still names the
   leaving bookie (``replace_bookies.py``). Until then readers do not know the new bookie. So the metadata never names a bookie
   that lacks entries, even if two workers copy one fragment at once, or one has lost its lock.

``NEXT_PHASES`` has these steps as phases, and what may follow each.

The fragment must have an end: an open tail still grows. A fragment without entries needs the last step alone (rule 54).

Memory: what is read ahead, one batch for each slot, and the window of adds.

Ref: docs/rules.md, protocol rules 22, 33, 53, 54 and 61; situations 40 and 76.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.copy_batches import CopyBatches
from bk_spark.client.protocol.force_adds import RESTARTED, ForcedCopies
from bk_spark.client.protocol.limits import CopyLimits
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.replace_bookies import ReplaceBookies
from bk_spark.client.protocol.update_metadata import UpdateMetadata
from bk_spark.entries.batch import EncodedBatch, EntryBatch
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.wire.messages import Status


class CopyPhase(Enum):
    """What a re-replication does."""

    START = "has not begun"
    CHOOSE = "asks for bookies for the slots that are left"
    COPY = "copies to the bookies that it got"
    FORCE = "makes the copies of all slots durable"
    REPLACE = "gives the slots to their new bookies"
    ENDED = "has ended"


NEXT_PHASES: Final[Mapping[CopyPhase, frozenset[CopyPhase]]] = {
    CopyPhase.START: frozenset({CopyPhase.CHOOSE, CopyPhase.FORCE}),
    CopyPhase.CHOOSE: frozenset({CopyPhase.COPY, CopyPhase.FORCE}),
    CopyPhase.COPY: frozenset({CopyPhase.CHOOSE, CopyPhase.FORCE, CopyPhase.ENDED}),
    CopyPhase.FORCE: frozenset({CopyPhase.CHOOSE, CopyPhase.REPLACE}),
    CopyPhase.REPLACE: frozenset({CopyPhase.ENDED}),
    CopyPhase.ENDED: frozenset(),
}
"""What may follow each phase. Who fails, or loses a copy, leads back to CHOOSE. Where nothing is to copy, FORCE follows."""


@dataclass(frozen=True, slots=True)
class FragmentTask:
    """What to copy."""

    metadata: LedgerMetadata
    version: int
    """The version of ``metadata`` in the store."""
    fragment: Fragment
    last: int
    """The fragment's last entry, inclusive; below its first one if the fragment has no entries."""
    leaving: frozenset[str]
    """Bookies that the fragment's ensemble should no longer name."""
    guard: str = ""
    """The path that must exist when the metadata is changed (``WriteMetadata.guard``)."""
    avoid: frozenset[str] = frozenset()
    """Further bookies to read from last."""
    alive: frozenset[str] = frozenset()
    """Bookies of ``leaving`` that are there and merely lack entries: if there is no other bookie they get them back."""
    must_widen: bool = False
    """A bookie is replaced only by one with which the write sets span more racks or zones (``ChooseReplacements``)."""
    target: str = ""
    """If not empty: the one bookie that may get a slot, as long as it is sound and writable (``ChooseReplacements.only``)."""


@dataclass(frozen=True, slots=True)
class FragmentCopied:
    """The result: the metadata as it is now, with its version, and how much was copied."""

    metadata: LedgerMetadata
    version: int
    entries: int
    nbytes: int
    """Bytes of the batches that were sent."""
    restored: frozenset[str]
    """Leaving bookies that got their own entries back, and stay."""
    problem: str
    """Why some slots still name a leaving bookie that was not restored; empty if none does."""


@dataclass(slots=True)
class _Target:
    """A slot's new bookie while it is copied to."""

    bookie_id: str
    batches: CopyBatches
    waiting: deque[EncodedBatch] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class _Sent:
    slot: int
    nbytes: int
    entries: int
    sent_ms: int


class RereplicateFragment(sm.StateMachine):
    """The state machine of one fragment. ``rate`` bounds the bytes that are sent; several fragments may share it.

    Finish comes with a FragmentCopied, or with the error of a read (no replica of an entry can be read), NoSuchLedgerError,
    MetadataConflictError, or the error of the metadata store.
    """

    def __init__(self, task: FragmentTask, limits: CopyLimits, rate: ByteRate) -> None:
        super().__init__()
        self._task = task
        self._limits = limits
        self._rate = rate
        self._numbers: Iterator[int] = itertools.count(1)
        self._phase = CopyPhase.START
        self._asked = 0
        """The id of the last ChooseReplacements."""
        self._left = {slot for slot, bookie_id in enumerate(task.fragment.ensemble) if bookie_id in task.leaving}
        """Slots with neither a complete copy nor one under way."""
        self._failed: set[str] = set()
        self._restarted: set[str] = set()
        """Bookies that were started again while they were copied to; after the second time they count as failed."""
        self._targets: dict[int, _Target] = {}
        self._complete: dict[int, str] = {}
        """Slots whose new bookie acked everything, which may not be durable yet."""
        self._copies = ForcedCopies(self._numbers, limits.add_timeout_ms)
        self._reads: ReadEntries | None = None
        self._vain_looks = 0
        """Looks at the metadata under way for reads that were dropped since: their answers are for nobody."""
        self._open_reads: set[int] = set()
        self._unconsumed_bytes = 0
        self._sent: dict[int, _Sent] = {}
        self._problem = ""
        self._update: UpdateMetadata | None = None
        self._entries = self._nbytes = 0

    def handle(self, event: sm.Event, now_ms: int) -> None:
        if self._phase is CopyPhase.ENDED:
            return
        if isinstance(event, sm.Start):
            self._choose(now_ms)
        elif isinstance(event, sm.ReplacementsChosen):
            self._chosen(event, now_ms)
        elif isinstance(event, sm.AddAnswered):
            self._add_answered(event, now_ms)
        elif isinstance(event, sm.ForceAnswered):
            self._copies.answered(event)
            self._forced(now_ms)
        elif isinstance(event, sm.MetadataLook) and self._vain_looks:
            self._vain_looks -= 1
        elif isinstance(event, sm.MetadataEvent) and self._update is not None:
            self._commands += [self._guarded(command) for command in self._update.handle(event)]
            self._updated()
        else:
            self._read(event, now_ms)
        self._check_timeouts(now_ms)
        self._go_on(now_ms)

    def deadline_ms(self) -> int | None:
        if self._phase is CopyPhase.ENDED:
            return None
        times = [sent.sent_ms + self._limits.add_timeout_ms for sent in itertools.islice(self._sent.values(), 1)]
        if self._reads is not None and (reading := self._reads.deadline_ms()) is not None:
            times.append(reading)
        if (forcing := self._copies.deadline_ms()) is not None:
            times.append(forcing)
        if self._has_room and any(target.waiting for target in self._targets.values()):
            times.append(self._rate.due_ms(0))
        return min(times, default=None)

    def _enter(self, phase: CopyPhase) -> None:
        if phase not in NEXT_PHASES[self._phase]:
            raise AssertionError(f"a re-replication that {self._phase.value} does not go on to {phase.name}")
        self._phase = phase

    # --- the bookies to copy to

    def _choose(self, now_ms: int) -> None:
        if not self._left:
            self._enter(CopyPhase.FORCE)
            self._commands += self._copies.force(self._complete.values(), now_ms)
            self._forced(now_ms)
            return
        self._enter(CopyPhase.CHOOSE)
        self._asked = next(self._numbers)
        ensemble = tuple(self._complete.get(slot, bookie_id) for slot, bookie_id in enumerate(self._task.fragment.ensemble))
        excluded, slots = self._task.leaving | self._failed, tuple(sorted(self._left))
        wanted = sm.ChooseReplacements(self._asked, ensemble, slots, excluded, is_patient=True)
        only, must_widen = self._task.target, self._task.must_widen
        self._commands.append(replace(wanted, must_be_sound=only != "", must_widen=must_widen, only=only))

    def _chosen(self, event: sm.ReplacementsChosen, now_ms: int) -> None:
        if self._phase is not CopyPhase.CHOOSE or event.request_id != self._asked:
            return
        restorable = self._task.alive - self._failed
        own = {slot: bookie_id for slot in self._left if (bookie_id := self._task.fragment.ensemble[slot]) in restorable}
        for slot, bookie_id in {**own, **dict(event.bookies)}.items():
            pattern = self._task.metadata.slot_pattern(slot)
            assert slot in self._left
            assert slot not in self._targets
            self._targets[slot] = _Target(bookie_id, CopyBatches(self._task.metadata, pattern, self._limits.batch_bytes))
            self._left.discard(slot)
        if self._left:
            self._problem = event.detail or "there is no bookie for every slot"
            self._left.clear()
        self._begin_reads(now_ms)

    def _begin_reads(self, now_ms: int) -> None:
        task = self._task
        first = task.fragment.first_entry_id
        if not self._targets or task.last < first:
            self._end_pass(now_ms)
            return
        self._enter(CopyPhase.COPY)
        avoid = task.avoid | task.leaving
        self._reads = ReadEntries(task.metadata, first, task.last, self._limits.reads, avoid=avoid, numbers=self._numbers)
        self._read(sm.Start(), now_ms)

    # --- reading

    def _read(self, event: sm.Event, now_ms: int) -> None:
        if self._reads is None:
            return
        self._reads.handle(event, now_ms)
        for command in self._reads.take_commands():
            self._take_from_reads(command)

    def _take_from_reads(self, command: sm.Command) -> None:
        if isinstance(command, sm.Deliver):
            self._delivered(command.batch)
        elif isinstance(command, sm.Finish):
            self._reads = None
            self._reads_ended(command.error)
        else:
            if isinstance(command, sm.SendRead):
                self._open_reads.add(command.request_id)
            elif isinstance(command, sm.CancelRead):
                self._open_reads.discard(command.request_id)
            self._commands.append(command)

    def _delivered(self, batch: EntryBatch) -> None:
        self._unconsumed_bytes += batch.nbytes
        for target in self._targets.values():
            target.waiting += target.batches.add(batch)

    def _reads_ended(self, error: BookKeeperError | None) -> None:
        if error is not None:
            self._end(error=error)
            return
        for target in self._targets.values():
            target.waiting += target.batches.rest()

    # --- writing

    @property
    def _has_room(self) -> bool:
        return sum(sent.nbytes for sent in self._sent.values()) < self._limits.window_bytes

    def _go_on(self, now_ms: int) -> None:
        """Send what may be sent, read on once everything is sent, end when nothing is left."""
        while self._phase is CopyPhase.COPY:
            self._send(now_ms)
            if any(target.waiting for target in self._targets.values()):
                return
            if self._reads is None:
                if not self._sent:
                    self._end_pass(now_ms)
                return
            if not self._unconsumed_bytes:
                return
            consumed, self._unconsumed_bytes = self._unconsumed_bytes, 0
            self._read(sm.Consumed(consumed), now_ms)

    def _send(self, now_ms: int) -> None:
        for slot, target in self._targets.items():
            while target.waiting and self._has_room and self._rate.due_ms(now_ms) <= now_ms:
                batch = target.waiting.popleft()
                request_id, nbytes = next(self._numbers), len(batch.body)
                self._rate.take(nbytes, now_ms)
                self._sent[request_id] = _Sent(slot, nbytes, batch.header.count, now_ms)
                self._commands.append(sm.SendAdd(request_id, target.bookie_id, batch, recovery=True))

    def _add_answered(self, event: sm.AddAnswered, now_ms: int) -> None:
        sent = self._sent.pop(event.request_id, None)
        if sent is None:
            return
        bookie_id = self._targets[sent.slot].bookie_id
        if event.status is Status.OK:
            self._entries += sent.entries
            self._nbytes += sent.nbytes
            self._copies.acked(bookie_id, event.boot)
        if event.status is not Status.OK or bookie_id in self._copies.lost:
            self._lose(sent.slot, now_ms)

    def _check_timeouts(self, now_ms: int) -> None:
        silent = {sent.slot for sent in self._sent.values() if now_ms >= sent.sent_ms + self._limits.add_timeout_ms}
        for slot in sorted(silent):
            self._lose(slot, now_ms)
        self._copies.check_timeout(now_ms)
        self._forced(now_ms)

    def _lose(self, slot: int, now_ms: int) -> None:
        """Give up the slot's new bookie. Another one is chosen when the copies to the others are done."""
        target = self._targets.pop(slot)
        self._give_up(slot, target.bookie_id)
        for request_id in [number for number, sent in self._sent.items() if sent.slot == slot]:
            del self._sent[request_id]
            self._commands.append(sm.CancelAdd(request_id))
        if not self._targets:
            self._drop_reads()
            self._end_pass(now_ms)

    def _give_up(self, slot: int, bookie_id: str) -> None:
        """What the bookie got for the slot does not count."""
        self._left.add(slot)
        if self._copies.lost.get(bookie_id) == RESTARTED and bookie_id not in self._restarted:
            self._restarted.add(bookie_id)
        else:
            self._failed.add(bookie_id)
            self._commands.append(sm.ReportFailure(bookie_id))
        self._copies.forget(bookie_id)

    def _drop_reads(self) -> None:
        self._vain_looks += self._reads is not None and self._reads.is_looking
        self._reads = None
        self._unconsumed_bytes = 0
        self._commands += [sm.CancelRead(request_id) for request_id in sorted(self._open_reads)]
        self._open_reads.clear()

    # --- the end

    def _end_pass(self, now_ms: int) -> None:
        """The current targets acked copies of everything: go on with the slots that are left."""
        assert not self._sent, "every add is answered"
        assert self._complete.keys().isdisjoint(self._targets)
        self._complete.update((slot, target.bookie_id) for slot, target in self._targets.items())
        self._targets.clear()
        self._open_reads.clear()
        self._unconsumed_bytes = 0
        self._choose(now_ms)

    def _forced(self, now_ms: int) -> None:
        """Once all forces are answered: replace the leaving bookies, or copy anew what was lost."""
        if self._phase is not CopyPhase.FORCE or self._copies.is_waiting:
            return
        lost = [slot for slot, bookie_id in sorted(self._complete.items()) if bookie_id in self._copies.lost]
        for slot in lost:
            self._give_up(slot, self._complete.pop(slot))
        if lost:
            self._choose(now_ms)
        else:
            self._replace()

    def _replace(self) -> None:
        self._enter(CopyPhase.REPLACE)
        task = self._task
        assert self._update is None
        assert self._reads is None
        assert self._copies.lost.keys().isdisjoint(self._complete.values()), "what is lost is never named"
        change = ReplaceBookies(task.fragment, task.last, tuple(sorted(self._complete.items())))
        self._update = UpdateMetadata(task.metadata, task.version, change)
        self._commands += [self._guarded(command) for command in self._update.start()]
        self._updated()

    def _guarded(self, command: sm.Command) -> sm.Command:
        return replace(command, guard=self._task.guard) if isinstance(command, sm.WriteMetadata) else command

    def _updated(self) -> None:
        update = self._update
        if update is None or not update.is_done:
            return
        if update.error is not None:
            self._end(error=update.error)
            return
        restored = self._task.leaving.intersection(self._complete.values())
        self._end(FragmentCopied(update.metadata, update.version, self._entries, self._nbytes, restored, self._problem))

    def _end(self, result: FragmentCopied | None = None, *, error: BookKeeperError | None = None) -> None:
        self._enter(CopyPhase.ENDED)
        self._drop_reads()
        self._commands += [sm.CancelAdd(request_id) for request_id in self._sent]
        self._sent.clear()
        self._finish(result, error=error)
