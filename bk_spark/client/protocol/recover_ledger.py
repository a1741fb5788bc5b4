"""Recovering a ledger: take it from its writer, find where it ends, and close it there.

1. *Mark* it IN_RECOVERY in the metadata before anything is fenced: from then on the writer cannot change its ensemble. If the
   ledger is IN_RECOVERY already, this recovery joins without a write; if it is CLOSED, that is the result.
2. *Fence* the last fragment's ensemble until no ack quorum can accept the writer's adds any more (``RecoveryFencing``).
   This ensemble stays the *recovery ensemble* to the end. Its answers give the *floor*, up to which entries are confirmed.
3. *Measure*: read the entry at the floor, from the fragment that holds it, for the ledger's length up to there. A LAC answer
   carries no digest; this read does, so it also proves that the ledger reaches the floor. Bookies of older fragments may have
   been replaced since the metadata was read: before this read fails, it looks there once more.
4. *Read on* from there, one id after the other, to the first absent one (``recovery_reads.py``), and at the same time *write
   back* the entries that are there (``recovery_writes.py``).
5. *Force* the bookies that joined the ensemble in this recovery, once everything is written back: the next step names them. If
   one has lost what it acked, the recovery starts anew with step 2, as another recoverer would.
6. *Close*, with one compare-and-set of the end, the length and the fragments of this recovery's own ensemble changes. If the
   ledger is CLOSED by then, its end is the result.
7. *Mark* the ledger if a bookie that it names did not take all that was written back to it.

Anything that stays unknown fails the recovery, and the ledger stays IN_RECOVERY for the next try. Nothing is decided on a
guess.

Worked example, 3/3/2 on b0, b1, b2: entries 0-4 confirmed, LAC 3 carried by entry 4, entry 5 on b1 only. The fence answers
say 3, 3, 2; floor 3, its length is read; 4 and 5 are read, and written to all three; b0 and b2 deny entry 6: closed at 5.

Ref: the BookKeeper protocol, "Closing a ledger as a reader"; BP-46, "A note on Quorums"; docs/rules.md, protocol rules 1-15,
61 and 63.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.asking import Asking
from bk_spark.client.protocol.limits import RecoverLimits
from bk_spark.client.protocol.pending_adds import KnownGaps
from bk_spark.client.protocol.recovery_fencing import RecoveryFencing
from bk_spark.client.protocol.recovery_reads import ReadTask, RecoveryReads
from bk_spark.client.protocol.recovery_writes import RecoveryWrites
from bk_spark.client.protocol.update_metadata import UpdateMetadata
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import (
    BookieUnavailableError,
    BookKeeperError,
    CorruptionError,
    MetadataConflictError,
    NoSuchLedgerError,
)
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState

MAX_STARTS = 4
"""How often one recovery begins: each further time a bookie that had just joined was started again or broke off. After that
it fails, the ledger stays IN_RECOVERY, and whoever wants it recovers it again."""

MAX_LOOKS = 3
"""Looks at the metadata for the entry at the floor. After each the recovery goes on only if it found another ensemble."""


class RecoverLedger(sm.StateMachine):
    """The state machine of one recovery; its result is the CLOSED metadata with its version.

    ``version`` is the metadata's in the store. Errors: BookieUnavailableError if too few bookies answer, NotEnoughBookiesError
    if entries cannot be written back, MetadataConflictError, CorruptionError.
    """

    def __init__(self, metadata: LedgerMetadata, version: int, limits: RecoverLimits) -> None:
        super().__init__()
        self._limits = limits
        self._numbers = itertools.count(1)
        self._update = UpdateMetadata(metadata, version, _in_recovery)
        self._fencing: RecoveryFencing | None = None
        self._reads: RecoveryReads | None = None
        """Of the entry at the floor while there are no ``_writes``, then of the entries above it."""
        self._writes: RecoveryWrites | None = None
        self._floor = NO_ENTRY
        self._measured: Fragment | None = None
        """Where the entry at the floor was last read from."""
        self._unmeasured: BookKeeperError | None = None
        """While the metadata is read: the error, unless the entry at the floor is somewhere else by now."""
        self._looks = 0
        self._is_closing = False
        self._starts = 0
        self._gaps = KnownGaps()

    def handle(self, event: sm.Event, now_ms: int) -> None:
        if self._finished:
            return
        if isinstance(event, sm.Start):
            self._commands += self._update.start()
            self._updated(now_ms)
        elif isinstance(event, sm.MetadataLook) and self._unmeasured is not None:
            self._looked(event, self._unmeasured, now_ms)
        elif isinstance(event, sm.MetadataEvent):
            self._metadata_answered(event, now_ms)
        elif isinstance(event, sm.MarkAnswered):
            self._gaps.answered(event, now_ms)
        elif isinstance(event, sm.LastAddConfirmedAnswered) and self._fencing is not None:
            self._fencing.answered(event, now_ms)
        elif isinstance(event, sm.ReadArrived) and self._reads is not None:
            self._reads.arrived(event, now_ms)
        elif isinstance(event, sm.ReadEnded) and self._reads is not None:
            self._reads.ended(event, now_ms)
        elif self._writes is not None:
            self._writes.handle(event, now_ms)
        self._go_on(now_ms)
        self._end_if_reported(now_ms)

    def deadline_ms(self) -> int | None:
        if self._finished:
            return None
        if self._is_closing:
            return self._gaps.deadline_ms()
        parts = (self._fencing, self._reads, self._writes)
        times = [part.deadline_ms() for part in parts if part is not None]
        return min((time for time in times if time is not None), default=None)

    # --- the steps, in their order

    def _metadata_answered(self, event: sm.MetadataEvent, now_ms: int) -> None:
        if not self._update.is_done:
            self._commands += self._update.handle(event)
            self._updated(now_ms)

    def _updated(self, now_ms: int) -> None:
        """Act on the end of a metadata update, if it has ended."""
        update = self._update
        if not update.is_done:
            return
        if update.error is not None:
            self._end_recovery(update.error)
        elif update.metadata.is_closed:
            self._closed(update.metadata)
        else:
            self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        self._starts += 1
        assert self._starts <= MAX_STARTS
        metadata = self._update.metadata
        self._fencing = RecoveryFencing(metadata, self._asking(metadata.last_fragment, now_ms))

    def _start_anew(self, writes: RecoveryWrites, now_ms: int) -> None:
        """Acks that counted were lost. What was written back so far does no harm: another recoverer may have written it."""
        self._commands += writes.cancel()
        self._writes = None
        if self._starts < MAX_STARTS:
            self._begin(now_ms)
            self._go_on(now_ms)
        else:
            ledger_id = self._update.metadata.ledger_id
            self._end_recovery(BookieUnavailableError(ledger_id, writes.confirmed, (writes.lost,)))

    def _go_on(self, now_ms: int) -> None:
        """Do all steps that are possible with what is known."""
        if self._fencing is not None:
            self._fence(self._fencing, now_ms)
        if self._reads is not None and self._writes is None:
            self._measure(self._reads, now_ms)
        if self._reads is not None and self._writes is not None:
            self._read_on(self._reads, self._writes, now_ms)
        if self._writes is not None and not self._finished:
            self._end_writes(self._writes, now_ms)

    def _fence(self, fencing: RecoveryFencing, now_ms: int) -> None:
        self._commands += fencing.go_on(now_ms)
        if fencing.error is not None:
            self._end_recovery(fencing.error)
        elif fencing.is_done:
            assert fencing.floor >= self._update.metadata.last_fragment.first_entry_id - 1
            self._fencing = None
            if fencing.floor == NO_ENTRY:
                self._begin_writes(NO_ENTRY, 0, now_ms)
            else:
                self._floor = fencing.floor
                self._begin_measuring(self._update.metadata.fragment_of(fencing.floor), now_ms)

    def _begin_measuring(self, fragment: Fragment, now_ms: int) -> None:
        self._measured = fragment
        self._begin_reads(ReadTask(fragment, self._floor, self._floor, self._update.metadata.write_quorum), now_ms)

    def _measure(self, reads: RecoveryReads, now_ms: int) -> None:
        self._commands += reads.go_on(now_ms)
        found = reads.take_ready()
        if found:
            assert [int(found[0].entry_ids[0]), len(found[0])] == [self._floor, 1]
            self._commands += reads.cancel()
            self._begin_writes(int(found[0].entry_ids[0]), int(found[0].lengths[0]), now_ms)
        elif reads.error is not None:
            self._look_for_floor(reads, reads.error)
        elif reads.end is not None:
            what = f"ledger {self._update.metadata.ledger_id}"
            problem = f"its entry {reads.end} is confirmed, and every bookie that should have it says that it has not"
            self._look_for_floor(reads, CorruptionError(what, problem))

    def _look_for_floor(self, reads: RecoveryReads, error: BookKeeperError) -> None:
        """Fail with ``error``, unless the metadata says by now that other bookies have the entry at the floor."""
        if self._looks == MAX_LOOKS:
            self._end_recovery(error)
            return
        self._commands += [*reads.cancel(), sm.ReadMetadata(is_synced=True)]
        self._reads, self._unmeasured = None, error
        self._looks += 1

    def _looked(self, event: sm.MetadataLook, error: BookKeeperError, now_ms: int) -> None:
        self._unmeasured = None
        if isinstance(event, sm.MetadataGone):
            self._end_recovery(NoSuchLedgerError(self._update.metadata.ledger_id))
        elif isinstance(event, sm.MetadataUnknown):  # where the entry should be is unknown, so that these lack it says nothing
            self._end_recovery(event.error if isinstance(error, CorruptionError) else error)
        elif event.metadata.is_closed:
            self._finish((event.metadata, event.version))
        elif self._measured == event.metadata.fragment_of(self._floor):
            self._end_recovery(error)
        else:
            self._begin_measuring(event.metadata.fragment_of(self._floor), now_ms)

    def _read_on(self, reads: RecoveryReads, writes: RecoveryWrites, now_ms: int) -> None:
        writes.write(reads.take_ready(), now_ms)
        self._commands += reads.go_on(now_ms, may_ask=not writes.is_full)
        if reads.error is not None:
            self._end_recovery(reads.error)
        elif reads.is_done:
            self._commands += reads.cancel()
            self._reads = None

    def _end_writes(self, writes: RecoveryWrites, now_ms: int) -> None:
        self._commands += writes.take_commands()
        if writes.error is not None:
            self._end_recovery(writes.error)
        elif self._reads is None and writes.is_done and not self._is_closing:
            self._end_with_durable_copies(writes, now_ms)

    def _end_with_durable_copies(self, writes: RecoveryWrites, now_ms: int) -> None:
        writes.make_durable(now_ms)
        self._commands += writes.take_commands()
        if writes.lost:
            self._start_anew(writes, now_ms)
        elif writes.is_durable:
            self._close(writes, now_ms)

    def _close(self, writes: RecoveryWrites, now_ms: int) -> None:
        assert not self._is_closing
        assert self._reads is None
        assert writes.is_done
        assert writes.confirmed >= self._floor, "the end is never below what was confirmed"
        marked = self._update
        end = _End(marked.metadata.fragments, writes.metadata.fragments, writes.confirmed, writes.length)
        self._is_closing = True
        self._update = UpdateMetadata(marked.metadata, marked.version, end)
        self._commands += self._update.start()
        self._updated(now_ms)

    def _closed(self, metadata: LedgerMetadata) -> None:
        """By this recovery, or by somebody else: then a bookie that this one wrote to may be named, too."""
        for bookie_id in metadata.bookies & self._writes.lacking if self._writes is not None else ():
            self._gaps.note(bookie_id)
        self._gaps.ledger_closed()

    def _end_if_reported(self, now_ms: int) -> None:
        if not self._update.is_done or not self._update.metadata.is_closed:
            return
        self._commands += self._gaps.go_on(now_ms)
        if self._gaps.is_reported:
            self._end_recovery(self._update.error)

    def _begin_reads(self, task: ReadTask, now_ms: int) -> None:
        self._reads = RecoveryReads(self._update.metadata, task, self._limits, self._asking(task.fragment, now_ms))

    def _begin_writes(self, floor: int, length: int, now_ms: int) -> None:
        metadata = self._update.metadata
        assert self._writes is None
        self._writes = RecoveryWrites(metadata, self._limits, self._numbers, floor=floor, length=length)
        negatives = metadata.write_quorum - metadata.ack_quorum + 1
        self._begin_reads(ReadTask(metadata.last_fragment, floor + 1, None, negatives), now_ms)

    def _asking(self, fragment: Fragment, now_ms: int) -> Asking:
        return Asking(self._update.metadata.ledger_id, fragment.ensemble, self._limits, self._numbers, now_ms)

    def _end_recovery(self, error: BookKeeperError | None) -> None:
        if self._reads is not None:
            self._commands += self._reads.cancel()
        self._finish(None if error is not None else (self._update.metadata, self._update.version), error=error)


def _in_recovery(current: LedgerMetadata) -> LedgerMetadata:
    """A change for UpdateMetadata: the mark."""
    return replace(current, state=LedgerState.IN_RECOVERY) if current.state is LedgerState.OPEN else current


@dataclass(frozen=True, slots=True)
class _End:
    """A change for UpdateMetadata: the closing write."""

    before: tuple[Fragment, ...]
    """The fragments when recovery began."""
    after: tuple[Fragment, ...]
    """The same with recovery's own ensemble changes, which concern only the last one."""
    last_entry_id: int
    length: int

    def __call__(self, current: LedgerMetadata) -> LedgerMetadata:
        if current.is_closed:
            return current
        if current.state is not LedgerState.IN_RECOVERY or not self._has_same_tail(current):
            tail = f"it is {current.state.name} with the last fragment {current.last_fragment}"
            problem = f"{tail}, recovery began with {self.before[-1]}"
            raise MetadataConflictError(f"the metadata of ledger {current.ledger_id}", problem)
        assert self.after[: len(self.before) - 1] == self.before[:-1], "own changes concern the last fragment only"
        assert self.last_entry_id >= self.before[-1].first_entry_id - 1
        older, own = current.fragments[:-1], self.after[len(self.before) - 1 :]
        return replace(current, fragments=(*older, *own)).closed_at(self.last_entry_id, self.length)

    def _has_same_tail(self, current: LedgerMetadata) -> bool:
        """Others may replace bookies of older fragments; only recovery may change borders and the last fragment."""
        borders = [fragment.first_entry_id for fragment in current.fragments]
        return borders == [fragment.first_entry_id for fragment in self.before] and current.last_fragment == self.before[-1]
