"""The reads of a recovery: decide one id after the other whether its entry is there, and never on a guess.

Every slot of one ensemble, which stays the same to the end, is asked for the entries of its pattern in a window of ids. Every
read fences. An entry is

* *there* once one copy with the right digest has come,
* *absent* once ``negatives`` slots of its own write set have said explicitly that they do not have it,
* otherwise unknown: its bookies are asked again, until asking is hopeless.

Ids are decided in order. The first absent one is the ``end``, even if later ones are readable. A copy with a wrong digest, an
answer that breaks off and a silent bookie leave an entry unknown. "No such entry" denies only the one id that it names. The
bookie is asked for higher ids only after another bookie had that entry, because usually it is the end for all of them.

Worked example, 3/3/2, so two negatives: slots 0, 1, 2 hold entries 0-1, 0 and 0-1. Slot 1 denies entry 1, slot 0 brings
it, entry 1 is there; then slots 0 and 1 deny entry 2, which is the end whatever slot 2 says.

Memory: the entries held above an undecided id are bounded by the bytes of E requests, plus E requests that may be under way.

Ref: BP-46, "A note on Quorums" (recovery read); docs/rules.md, protocol rules 1, 5, 8, 10 and 39; situation 35.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.asking import Asking
from bk_spark.client.protocol.limits import RecoverLimits
from bk_spark.client.protocol.stripe_reads import merged
from bk_spark.entries.batch import EncodedBatch, EntryBatch, decode
from bk_spark.entries.digest import Digester
from bk_spark.errors import BookKeeperError, CorruptionError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.quorum import write_set
from bk_spark.wire.messages import Status, Verdict

_NOTHING = range(0)


class HeldEntries:
    """Entries that wait for lower ones, without duplicates."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.nbytes = 0
        self._parts: list[EntryBatch] = []

    def add(self, entries: EntryBatch) -> None:
        """Add entries that are not held yet."""
        if len(entries):
            self.ids.update(entries.entry_ids.tolist())
            self.nbytes += entries.nbytes
            self._parts.append(entries)

    def take_run(self, first: int) -> EntryBatch | None:
        """Take the entries from ``first``, the lowest wanted id, up to the next gap; None if ``first`` is missing."""
        if first not in self.ids:
            return None
        held = self._parts[0] if len(self._parts) == 1 else merged(self._parts)
        # Ascending ids without duplicates lie on id - row = first until there is a gap.
        count = int(np.searchsorted(held.entry_ids - np.arange(len(held)), first, side="right"))
        run = held.slice(0, count)
        self._parts = [held.slice(count, len(held) - count)] if count < len(held) else []
        self.ids.difference_update(run.entry_ids.tolist())
        self.nbytes -= run.nbytes
        assert len(self.ids) == sum(map(len, self._parts))
        return run


@dataclass(slots=True)
class _Slot:
    """What is known of one slot."""

    position: int
    """All wanted ids of its pattern are at or above it."""
    asked: range = _NOTHING
    """The ids of the request under way."""
    denied: range = _NOTHING
    """The ids of its pattern that it does not have. It is fenced, so it will not get them from the writer."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Which entries to read: those of ``fragment`` from ``first`` to ``last``, inclusive; None: to the first absent one."""

    fragment: Fragment
    first: int
    last: int | None
    negatives: int
    """How many slots of a write set must deny an entry for it to be absent."""


class RecoveryReads:
    """Reads one fragment's entries in order. It has ended when ``is_done``, or when there is an ``error``."""

    def __init__(self, metadata: LedgerMetadata, task: ReadTask, limits: RecoverLimits, asking: Asking) -> None:
        self.end: int | None = None
        """The first absent id, once it is known."""
        self.error: BookKeeperError | None = None
        self._metadata = metadata
        self._task = task
        self._limits = limits
        self._asking = asking
        self._digester = Digester(metadata.digest_type, metadata.password)
        self._frontier = task.first
        self._slots = [_Slot(task.first) for _ in range(metadata.ensemble_size)]
        self._held = HeldEntries()
        self._ready: list[EntryBatch] = []

    @property
    def is_done(self) -> bool:
        return self.end is not None or (self._task.last is not None and self._frontier > self._task.last)

    def take_ready(self) -> list[EntryBatch]:
        """The next entries that are there, in order and without gaps; each is given once."""
        ready, self._ready = self._ready, []
        return ready

    def arrived(self, event: sm.ReadArrived, now_ms: int) -> None:
        slot = self._asking.slot_of(event.request_id)
        if slot is None or self.is_done:
            return
        self._asking.heard(slot, now_ms)
        if self._hold(self._verified(event.batch, self._slots[slot].asked)):
            self._asking.learnt(now_ms)
            self._decide()

    def ended(self, event: sm.ReadEnded, now_ms: int) -> None:
        slot = self._asking.slot_of(event.request_id)
        if slot is None or self.is_done:
            return
        denied = self._denied_by(slot, event)
        if denied:
            self._slots[slot].denied = denied
            self._asking.answered(slot)
            self._asking.learnt(now_ms)
            self._decide()
        elif event.status is Status.OK and self._was_of_use(slot, event.entry_id):
            self._asking.answered(slot)
        else:
            useless = f"it did not send entry {self._slots[slot].position}, or sent it damaged"
            self._asking.failed(slot, useless if event.status is Status.OK else event.problem, now_ms)

    def go_on(self, now_ms: int, *, may_ask: bool = True) -> list[sm.Command]:
        """Ask the slots that have wanted entries. Without ``may_ask`` only check for timeouts; patience does not run out."""
        commands: list[sm.Command] = [sm.CancelRead(request_id) for request_id in self._asking.time_out(now_ms)]
        if not may_ask:
            self._asking.learnt(now_ms)
        elif self.error is None and not self.is_done and self._asking.is_hopeless(now_ms):
            unknown = [slot for slot in self._write_set(self._frontier) if self._frontier not in self._slots[slot].denied]
            self.error = self._asking.unavailable(self._frontier, unknown)
        if may_ask and self.error is None and not self.is_done:
            commands += self._requests(now_ms)
        return commands

    def cancel(self) -> list[sm.Command]:
        """Cancel all requests under way."""
        return [sm.CancelRead(request_id) for request_id in self._asking.outstanding()]

    def deadline_ms(self) -> int:
        return self._asking.deadline_ms()

    # --- requests

    def _requests(self, now_ms: int) -> list[sm.Command]:
        has_room = self._held.nbytes < self._metadata.ensemble_size * self._limits.request_bytes
        requests: list[sm.Command] = []
        for slot, state in enumerate(self._slots):
            wanted = self._wanted(slot)
            # The lowest undecided id may always be asked for: everything held waits for it.
            if wanted and self._asking.may_ask(slot, now_ms) and (has_room or wanted.start == self._frontier):
                state.asked = wanted
                requests.append(self._request(slot, wanted, now_ms))
        return requests

    def _request(self, slot: int, wanted: range, now_ms: int) -> sm.SendRead:
        return sm.SendRead(
            self._asking.ask(slot, now_ms),
            self._task.fragment.ensemble[slot],
            wanted.start,
            wanted[-1],
            self._metadata.slot_pattern(slot),
            self._limits.request_bytes,
            fence=True,
        )

    def _wanted(self, slot: int) -> range:
        """The ids to ask a slot for: within the window, below the ids that it denied, from the first missing one on."""
        state, pattern = self._slots[slot], self._metadata.slot_pattern(slot)
        stop = self._frontier + self._limits.window_entries
        if self._task.last is not None:
            stop = min(stop, self._task.last + 1)
        if state.denied.stop > self._frontier:
            stop = min(stop, state.denied.start)
        state.position = max(state.position, self._frontier)
        while state.position < stop and (state.position in self._held.ids or not pattern.holds(state.position)):
            state.position += 1
        return range(state.position, stop)

    # --- answers

    def _verified(self, encoded: EncodedBatch, asked: range) -> EntryBatch | None:
        """The wanted entries of an answer with a right digest; None if it is not a batch of this ledger, or not wanted."""
        try:
            batch = decode(encoded)
        except CorruptionError:
            return None
        if batch.ledger_id != self._metadata.ledger_id:
            return None
        new = batch.select((batch.entry_ids >= max(self._frontier, asked.start)) & (batch.entry_ids < asked.stop))
        return new.select(new.matching(self._digester)) if len(new) else None

    def _hold(self, batch: EntryBatch | None) -> bool:
        """Keep the new entries of a batch; returns whether there were any."""
        if batch is None:
            return False
        ids, held = batch.entry_ids.tolist(), self._held.ids
        is_new = np.fromiter((entry_id not in held for entry_id in ids), np.bool_, len(ids))
        self._held.add(detached(batch, is_new))
        return bool(is_new.any())

    def _denied_by(self, slot: int, event: sm.ReadEnded) -> range:
        """The asked ids that an answer explicitly denies: one with "no such entry", all of them with "no such ledger"."""
        asked = self._slots[slot].asked
        if event.status.verdict is not Verdict.NEGATIVE:
            return _NOTHING
        if event.status is Status.NO_SUCH_LEDGER:
            return asked
        about = event.entry_id
        if about is None or about not in asked or not self._metadata.slot_pattern(slot).holds(about):
            return _NOTHING
        return range(about, about + 1)

    def _was_of_use(self, slot: int, next_entry_id: int | None) -> bool:
        """Whether a read that ended with OK brought at least one entry, and left out none that it says it sent."""
        asked = self._slots[slot].asked
        wanted = self._wanted(slot)
        return wanted.start > asked.start and (next_entry_id is None or wanted.start >= min(next_entry_id, asked.stop))

    # --- decisions

    def _decide(self) -> None:
        """Decide as many ids as possible, from the lowest undecided one on."""
        run = self._held.take_run(self._frontier)
        if run is not None:
            assert int(run.entry_ids[0]) == self._frontier, "ids are decided without a gap"
            assert self.end is None, "nothing is read beyond the end"
            self._ready.append(run)
            self._frontier = int(run.entry_ids[-1]) + 1
        if not self.is_done and self._is_absent(self._frontier):
            self.end = self._frontier

    def _is_absent(self, entry_id: int) -> bool:
        return sum(entry_id in self._slots[slot].denied for slot in self._write_set(entry_id)) >= self._task.negatives

    def _write_set(self, entry_id: int) -> tuple[int, ...]:
        return write_set(entry_id, self._metadata.ensemble_size, self._metadata.write_quorum)


def detached(batch: EntryBatch, mask: npt.NDArray[np.bool_]) -> EntryBatch:
    """The entries where ``mask`` is true. A part is copied, or it would keep the whole message in memory."""
    part = batch.select(mask)
    if part is batch:
        return batch
    return replace(
        part,
        last_add_confirmed=part.last_add_confirmed.copy(),
        lengths=part.lengths.copy(),
        digests=pa.concat_arrays([part.digests]),
        payloads=pa.concat_arrays([part.payloads]),
    )
