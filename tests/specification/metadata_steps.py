"""The steps that change the ledger's metadata: who may ask for what, and what the store may take."""

from __future__ import annotations

from tests.specification.actions import COPY, DEFERRED, Learns, Ledger, Stores, Writes
from tests.specification.judge import Judge
from tests.specification.variables import CLOSED, IN_RECOVERY, OPEN, Operation, Variables, Write, ensemble_of
from tests.specification.writing_steps import WritingSteps

STEPS = {
    (OPEN, OPEN): "ClientChangesEnsemble (stored)",
    (OPEN, IN_RECOVERY): "ClientStartsRecovery (stored)",
    (OPEN, CLOSED): "ClientClosesLedgerSuccess",
    (IN_RECOVERY, CLOSED): "RecoveryClientClosesLedger",
}


class MetadataSteps:
    def __init__(self, variables: Variables, judge: Judge, writing: WritingSteps) -> None:
        self._variables = variables
        self._judge = judge
        self._writing = writing

    def writes(self, action: Writes) -> None:
        """DIFFERENCE: what lost against an edit that is not the protocol's is asked for again, at the version that was read."""
        operation, ledger = self._variables.operation(action.who, self._judge), action.ledger
        if operation.kind == COPY:
            self._judge.step("(re-replication is sent)")
        elif operation.is_recovery:
            self._recovery_writes(operation, ledger)
        elif ledger.state == CLOSED:
            # DIFFERENCE: one that was fenced may ask for it, too, and once more for a change that it had asked for before. That
            # cannot succeed: the mark came before the fence.
            self._judge.step("(close of a writer is sent)")
            operation.is_closing = True
            self._judge.require(ledger.last_entry_id == operation.lac, f"its last add confirmed is {operation.lac}")
        else:
            self._changes_ensemble(operation, ledger)
        operation.writes.append(Write(ledger, action.expected_version, operation.is_withdrawn))

    def _changes_ensemble(self, operation: Operation, ledger: Ledger) -> None:
        self._judge.step("(change of the ensemble is sent)")
        self._judge.require(not operation.is_closing, "the client closes")
        self._judge.require(ledger.state == OPEN, "a writer marks nothing")
        if all(ledger != one.ledger for one in operation.writes):
            self._judge.require(not operation.is_withdrawn, "the client has withdrawn")
            self._writing.check_change(operation, ledger.fragments)
        operation.next_ensemble = ledger.fragments[-1][1]

    def _recovery_writes(self, operation: Operation, ledger: Ledger) -> None:
        if ledger.state == IN_RECOVERY:
            self._judge.step("(mark of recovery is sent)")
            return
        self._judge.step("(close of a recovery is sent)")
        if operation.is_closing:
            ends = {
                (one.ledger.last_entry_id, one.ledger.fragments[-1]) for one in operation.writes if one.ledger.state == CLOSED
            }
            self._judge.require(ends == {(ledger.last_entry_id, ledger.fragments[-1])}, f"it asked for {ends} before")
        else:
            operation.is_closing = True
            self._check_recovered(operation, ledger)

    def _check_recovered(self, operation: Operation, ledger: Ledger) -> None:
        require, view, last = self._judge.require, operation.recovery, ledger.last_entry_id
        require(last is not None and last >= operation.lac, f"entries up to {operation.lac} are confirmed")
        assert last is not None
        for entry_id in range(operation.lac + 1, last + 1):
            acks = operation.acks.get(entry_id, set()) & operation.write_set(entry_id, ensemble_of(ledger, entry_id))
            require(len(acks) >= operation.ack_quorum, f"entry {entry_id} was written back to {sorted(acks)} only")
        denials = view.denied.get(last + 1, set()) & operation.write_set(last + 1, view.ensemble)
        needed = operation.write_quorum - operation.ack_quorum + 1
        require(len(denials) >= needed, f"entry {last + 1} was denied by {sorted(denials)} only")
        require(ledger.fragments[-1] == operation.fragments[-1], f"its last fragment is {operation.fragments[-1]}")

    # --- the store

    def learns(self, action: Learns) -> None:
        self._judge.step("(metadata is read)")
        self._judge.require(self._variables.versions.get(action.version) == action.ledger, "the store never held this")

    def stores(self, action: Stores) -> None:
        variables, before, after = self._variables, self._variables.ledger, action.ledger
        self._judge.step("(metadata is stored)")
        self._judge.require(before is None or action.version == variables.version + 1, f"the version was {variables.version}")
        if before is not None:
            self._takes(action, before, after)
        variables.ledger, variables.version, variables.versions[action.version] = after, action.version, after
        if after.state == CLOSED:
            self._check_end(after)

    def _takes(self, action: Stores, before: Ledger, after: Ledger) -> None:
        change, require = (before.state, after.state), self._judge.require
        wanted = Write(after, action.version - 1, has_withdrawn=False)
        asked = [one for one in self._variables.operations.values() if wanted in one.writes]
        if action.is_edit or any(one.kind == COPY for one in asked):
            self._is_outside(before, after)
            return
        self._judge.step(STEPS.get(change, "(no step)"))
        require(change in STEPS, f"{before.state} became {after.state}")
        by_recovery = IN_RECOVERY in change
        require(
            any(one.is_recovery == by_recovery for one in asked),
            "nobody who may asked for this, for the version that was there",
        )
        require(after.state != IN_RECOVERY or before.fragments == after.fragments, "a mark that changes fragments")

    def _is_outside(self, before: Ledger, after: Ledger) -> None:
        """DIFFERENCE: re-replication, and edits of what the protocol is not about."""
        require = self._judge.require
        self._judge.step("(re-replication, or an edit)")
        require((before.state, before.last_entry_id) == (after.state, after.last_entry_id), "the state changed")
        firsts = [[first for first, _ in one.fragments] for one in (before, after)]
        require(firsts[0] == firsts[1], "the borders of fragments changed")
        is_last_kept = before.fragments[-1] == after.fragments[-1] or after.state == CLOSED
        require(is_last_kept, "the last fragment of a ledger that is not closed changed")

    # --- the invariants of the specification, at the end

    def _check_end(self, ledger: Ledger) -> None:
        last, operations = ledger.last_entry_id, self._variables.operations.values()
        assert last is not None
        writer = next((one for one in operations if one.is_writer), None)
        if writer is None:
            return
        self._judge.step("NoDivergenceBetweenClientAndMetaData")
        self._judge.require(writer.lac <= last, f"the writer confirmed {writer.lac}, the ledger ends at {last}")
        has_lost = any(bookie.is_lossy or bookie.in_limbo for bookie in self._variables.bookies.values())
        if has_lost or writer.kind == DEFERRED:
            return  # DIFFERENCE: what is acked and not synced yet is on no bookie durably
        self._judge.step("AllCommittedEntriesReachAckQuorum")
        for entry_id in range(last + 1):
            members = writer.write_set(entry_id, ensemble_of(ledger, entry_id))
            holders = {one for one in members if entry_id in self._variables.bookie(one).entries}
            self._judge.require(len(holders) >= writer.ack_quorum, f"entry {entry_id} is on {sorted(holders)} alone")
