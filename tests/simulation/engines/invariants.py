"""What must hold, checked whenever something happens, under the numbers that a failure is reported with.

I1  an acked entry is at or below the closed end, for ever        I8  every entry up to the closed end is at Qa bookies
I2  acks come in the order of the entries, without gaps           I9  a bookie's LAC is at most what is confirmed, never falls
I3  an acked entry is durable at Qa bookies of its write set      I10 after an acknowledged fence no ordinary add succeeds
I4  metadata moves forward only; a closed ledger stays as it is   I11 a bookie never denies what it once acknowledged
I5  fragments begin in ascending order, old ones stay             I12 entry i is the i-th payload of its own ledger
I6  no ensemble change leaves an acked entry with less than Qa    I13 readers see confirmed entries only, a prefix of the log
I7  the closed end is not below an acked entry; its length fits   I14 once faults end, everything comes to an end
I15 a bookie deletes nothing that a closed ledger's metadata wants of it;
    what a re-replication gives a slot to has, durably, all entries of it; it replaces bookies that are leaving alone, in
    fragments that have an end and, if their ledger is not closed, are known to be confirmed (replacements.py)
I16 once faults end, readers see all that an idle, living writer was told is confirmed
I17 a writer that has closed its ledger has marked it for every bookie that it names for entries which it never sent there

I3, I6 and I8 count what a bookie acknowledged before its disk lost it: no protocol knows of such a loss. Such losses are
kept below Qa bookies (faults.py), and the final audit then reads every entry.
"""

from __future__ import annotations

from bk_spark.entries.batch import NO_ENTRY, EntryBatch
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState
from bk_spark.wire.messages import (
    AddRequest,
    LastAddConfirmedReply,
    ReadEnd,
    ReadRequest,
    Status,
    StoreLastAddConfirmedRequest,
    Verdict,
)
from tests.simulation.engines.history import History
from tests.simulation.world.replacements import as_before_replacement, wanted_of, wrong_replacement

FORWARD = {
    LedgerState.OPEN: {LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED},
    LedgerState.IN_RECOVERY: {LedgerState.IN_RECOVERY, LedgerState.CLOSED},
    LedgerState.CLOSED: {LedgerState.CLOSED},
}


class Violation(AssertionError):
    """An invariant does not hold. ``invariant`` is its number, as in I1."""

    def __init__(self, invariant: str, problem: str) -> None:
        super().__init__(f"{invariant}: {problem}")
        self.invariant = invariant


class Invariants:
    """Told what happens, keeps the history, and raises Violation."""

    def __init__(self, first: LedgerMetadata) -> None:
        self.history = History(metadata=[first])
        self._lacs: dict[str, int] = {}

    # --- the writer's application

    def appended(self, payloads: list[bytes]) -> None:
        self.history.payloads += payloads

    def confirmed(self, first: int, count: int) -> None:
        """The application was told that entries are confirmed."""
        last = first + count - 1
        self._require(first == self.history.acked + 1, "I2", f"entry {first} is confirmed after entry {self.history.acked}")
        self._acked(first, last)

    def written(self, first: int, count: int) -> None:
        """As ``confirmed``, of a writer that defers syncs: it promises nothing but their order."""
        history = self.history
        self._require(first == history.written + 1, "I2", f"entry {first} is written after entry {history.written}")
        history.written = first + count - 1

    def forced(self, last: int) -> None:
        """The application was told that entries up to ``last`` are durable."""
        if last > self.history.acked:
            self._acked(self.history.acked + 1, last)

    def _acked(self, first: int, last: int) -> None:
        history = self.history
        history.acked = last
        end = history.last_entry_id
        self._require(end is None or last <= end, "I1", f"entry {last} is confirmed, the ledger was closed at {end}")
        for entry_id in range(first, last + 1):
            held = history.holders(entry_id, history.current)
            problem = f"entry {entry_id} is confirmed and durable at {held} bookies of its write set"
            self._require(held >= history.current.ack_quorum, "I3", problem)

    # --- the metadata store

    def metadata_written(self, new: LedgerMetadata, leaving: frozenset[str] | None = None) -> None:
        """The store took a value in place of the current one. ``leaving``: a re-replication wrote it, and may replace these."""
        history, old = self.history, self.history.current
        if leaving is not None:
            problem = wrong_replacement(history, new, leaving)
            self._require(not problem, "I15", problem)
            history.replaced += new.fragments != old.fragments
            old = as_before_replacement(old, new)
        self._require(new.state in FORWARD[old.state], "I4", f"{old.state.name} became {new.state.name}")
        if old.is_closed:
            self._require(new == old, "I4", f"a closed ledger changed from {old} to {new}")
        lost = set(old.custom_metadata) - set(new.custom_metadata)
        self._require(not lost, "I4", f"edits of others were lost: {lost}")
        history.metadata.append(new)
        self._check_fragments(old, new)
        for entry_id in range(history.acked + 1):
            held = history.holders(entry_id, new)
            problem = f"the metadata leaves the acked entry {entry_id} at {held} bookies of its write set"
            self._require(held >= new.ack_quorum, "I6", problem)
        if new.is_closed and (leaving is not None or not old.is_closed):
            self._check_end(new)

    def _check_fragments(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """All but the last fragment stay; the last may be replaced, others follow only when recovery closes."""
        kept = len(old.fragments) - 1
        self._require(
            new.fragments[:kept] == old.fragments[:kept], "I5", f"fragments changed: {old.fragments}, {new.fragments}"
        )
        firsts = [one.first_entry_id for one in new.fragments]
        begins = old.last_fragment.first_entry_id
        self._require(begins in firsts, "I5", f"the fragment that begins at {begins} is gone: {firsts}")
        if new.state is LedgerState.IN_RECOVERY:
            self._require(new.fragments == old.fragments, "I5", "a recovery published fragments before it closed")

    def _check_end(self, new: LedgerMetadata) -> None:
        history, end = self.history, new.last_entry_id
        assert end is not None
        self._require(end >= history.acked, "I7", f"closed at {end}, though entry {history.acked} was acked")
        self._require(end < len(history.payloads), "I7", f"closed at {end}, beyond all that was appended")
        self._require(end >= history.shown_lac, "I9", f"closed at {end}, though a bookie showed LAC {history.shown_lac}")
        self._require(end >= history.read_up_to, "I13", f"closed at {end}, though entry {history.read_up_to} was read")
        length = history.length(end)
        self._require(new.length == length, "I7", f"closed at {end} with length {new.length}, which is {length}")
        for entry_id in range(end + 1):
            held = history.holders(entry_id, new)
            self._require(held >= new.ack_quorum, "I8", f"closed at {end} with entry {entry_id} at {held} bookies")

    # --- bookies

    def bookie_started(self, bookie: str) -> None:
        """A new process: what it shows as LAC may have been lost with what was not acknowledged."""
        self._lacs.pop(bookie, None)

    def add_answered(self, bookie: str, request: AddRequest, status: Status, *, was_fenced: bool) -> None:
        """An answer leaves. ``was_fenced``: an acknowledged fence came before the add was staged."""
        if status is not Status.OK:
            return
        if was_fenced and not request.recovery:
            raise Violation("I10", f"{bookie} took {request.describe()} after it had acknowledged a fence")
        if not request.deferred_sync:
            self.durable(bookie, request)
        confirmed = request.batch.header.last_add_confirmed
        self._check_lac(bookie, confirmed)
        self.history.told_lac = max(self.history.told_lac, confirmed)

    def durable(self, bookie: str, request: AddRequest) -> None:
        """What an add brought is durable, and the bookie says so."""
        header = request.batch.header
        ids = header.pattern.ids(header.first_entry_id, header.last_entry_id)
        self.history.acknowledged.setdefault(bookie, set()).update(ids.tolist())

    def lac_stored(self, bookie: str, request: StoreLastAddConfirmedRequest) -> None:
        self._check_lac(bookie, request.last_add_confirmed)
        self.history.told_lac = max(self.history.told_lac, request.last_add_confirmed)

    def deletion_begins(self, bookie: str) -> set[int]:
        """Garbage collection: from now on what the bookie had of the ledger may be gone; its fence stays. Gives that back."""
        self.history.forgotten.add(bookie)
        self._lacs.pop(bookie, None)
        return self.history.acknowledged.pop(bookie, set())

    def ledger_deleted(self, bookie: str, held: set[int]) -> None:
        """``held`` is gone, durably."""
        needed = held & wanted_of(bookie, self.history.current)
        self._require(not needed, "I15", f"{bookie} deleted entries {sorted(needed)}, which it is to have")

    def deletion_refused(self, bookie: str, held: set[int]) -> None:
        """``held`` is still there."""
        self.history.acknowledged.setdefault(bookie, set()).update(held)

    def fence_answered(self, bookie: str) -> None:
        self.history.fenced.add(bookie)

    def lac_answered(self, bookie: str, reply: LastAddConfirmedReply) -> None:
        if reply.status is Status.OK:
            before = self._lacs.get(bookie, NO_ENTRY)
            problem = f"the LAC of {bookie} fell from {before} to {reply.last_add_confirmed}"
            self._require(reply.last_add_confirmed >= before, "I9", problem)
            self._lacs[bookie] = reply.last_add_confirmed
            self.history.shown_lac = max(self.history.shown_lac, reply.last_add_confirmed)
            self._check_lac(bookie, reply.last_add_confirmed)
        self._check_denial(bookie, reply.status, 0, None)

    def read_answered(self, bookie: str, request: ReadRequest, end: ReadEnd) -> None:
        """A read ended; all asked entries below ``end.next_entry_id`` were sent."""
        self._check_denial(bookie, end.status, end.next_entry_id, request)

    def _check_lac(self, bookie: str, confirmed: int) -> None:
        end = self.history.last_entry_id
        highest = self.history.acked if end is None else end
        problem = f"{bookie} has LAC {confirmed}, entries are confirmed up to {highest}"
        self._require(confirmed <= highest, "I9", problem)

    def _check_denial(self, bookie: str, status: Status, entry_id: int, request: ReadRequest | None) -> None:
        if status.verdict is not Verdict.NEGATIVE:
            return
        known = self.history.acknowledged.get(bookie, set())
        denied = bool(known) if status is Status.NO_SUCH_LEDGER else request is not None and entry_id in known
        self._require(not denied, "I11", f"{bookie} answered {status.name} for entry {entry_id}, which it had acknowledged")
        fenced = self.history.fenced - self.history.forgotten
        was_fenced = status is Status.NO_SUCH_LEDGER and bookie in fenced
        self._require(not was_fenced, "I11", f"{bookie} answered {status.name}, though it had fenced the ledger")

    def repaired(self, bookie: str, held: set[int] | None) -> None:
        """The bookie's limbo is over; ``held`` is what it has. What it lost of what nothing wants of it, it owes no more.

        None: it has another creator's ledger of this id, so it denies nothing of this one, and never acknowledged any of it.
        """
        known = self.history.acknowledged.get(bookie, set())
        if held is None:
            self._require(not known, "I15", f"{bookie} has another ledger, and had acknowledged entries {sorted(known)}")
            return
        if self.history.current.is_closed:
            lost = sorted(wanted_of(bookie, self.history.current) - held)
            self._require(not lost, "I15", f"{bookie} is out of limbo and named, without entries {lost}")
        self.history.acknowledged[bookie] = held if self.history.current.is_closed else known & held

    # --- gaps

    def writer_closed(self, sent: dict[str, set[int]]) -> None:
        """The application was told that its ledger is closed; ``sent`` is what the writer sent to each bookie."""
        metadata = self.history.current
        is_its_own = all(one.state is not LedgerState.IN_RECOVERY for one in self.history.metadata)
        if self.history.replaced or not is_its_own:
            return  # others have named bookies, too
        for bookie in sorted(metadata.bookies - self.history.marked):
            never = sorted(wanted_of(bookie, metadata) - sent.get(bookie, set()))
            self._require(
                not never, "I17", f"{bookie} is named for entries {never}, which it was never sent, and is not marked"
            )

    # --- readers

    def delivered(self, reader: str, batch: EntryBatch, *, unconfirmed: bool = False) -> None:
        """A reader was given entries that it asked for as confirmed ones."""
        for entry_id, payload in zip(batch.entry_ids.tolist(), batch.payloads.to_pylist(), strict=True):
            known = entry_id < len(self.history.payloads) and self.history.payloads[entry_id] == payload
            self._require(known, "I12", f"{reader} read {payload!r} as entry {entry_id}")
            if not unconfirmed:
                self.history.read_up_to = max(self.history.read_up_to, entry_id)
                self._check_readable(reader, entry_id)

    def lac_learned(self, reader: str, confirmed: int) -> None:
        """A reader was told that entries up to ``confirmed`` may be read."""
        self._check_readable(reader, confirmed)

    def _check_readable(self, reader: str, entry_id: int) -> None:
        end = self.history.last_entry_id
        highest = self.history.acked if end is None else end
        self._require(entry_id <= highest, "I13", f"{reader} was shown entry {entry_id}, confirmed is {highest}")

    # --- the end

    def require(self, holds: bool, invariant: str, problem: str) -> None:
        """For checks that others make."""
        self._require(holds, invariant, problem)

    def _require(self, holds: bool, invariant: str, problem: str) -> None:
        if not holds:
            raise Violation(invariant, problem)
