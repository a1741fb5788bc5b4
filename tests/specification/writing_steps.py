"""The steps of whoever writes entries, a writer or a recovery: adds, their answers, confirmations, changes of the ensemble."""

from __future__ import annotations

from tests.specification.actions import (
    Begins,
    Confirms,
    Fragments,
    GivesUp,
    HearsAdd,
    SendsAdd,
    WorksWith,
)
from tests.specification.judge import Judge
from tests.specification.variables import FENCED, OK, OPEN, Add, Operation, Variables


class WritingSteps:
    def __init__(self, variables: Variables, judge: Judge) -> None:
        self._variables = variables
        self._judge = judge

    def begins(self, action: Begins) -> None:
        """DIFFERENCE: a recovery that lost copies on a bookie that had joined begins again, as another client would."""
        ledger, operations = action.ledger, self._variables.operations
        operation = Operation(action.kind, action.write_quorum, action.ack_quorum, ledger.fragments)
        operations[action.who] = operation
        if operation.is_writer:
            self._judge.step("ClientCreatesLedger")
            is_new = len(ledger.fragments) == 1 and ledger.fragments[0][0] == 0 and ledger.state == OPEN
            self._judge.require(is_new, f"a writer begins with {ledger}")
            self._judge.require(sum(one.is_writer for one in operations.values()) == 1, "the ledger has a writer already")

    # --- adds

    def sends_add(self, action: SendsAdd) -> None:
        operation, require = self._variables.operation(action.who, self._judge), self._judge.require
        ids = action.ids.expand()
        self._variables.bookie(action.bookie).sent.update(ids)
        if not operation.is_recovery and not operation.is_writer:
            self._judge.step("(re-replication copies)")
            require(action.is_recovery, "a copy is no recovery add")
            return
        self._judge.step(_add_step(operation, is_new=action.ids.last > operation.lap))
        require(action.is_recovery == operation.is_recovery, "the recovery flag is wrong")
        require(not operation.is_withdrawn and not operation.is_closing, "the client has withdrawn, or closes")
        for entry_id in ids:
            is_there = action.bookie in operation.write_set(entry_id, operation.ensemble)
            require(is_there, f"entry {entry_id} does not belong there")
        if operation.is_recovery:
            require(operation.recovery.there.issuperset(ids), "it did not read all of these")
        self._check_lac(action, operation)
        if action.bookie in operation.failed:
            # DIFFERENCE: a bookie that failed and is back may take its own place, and is sent everything again.
            operation.forget([action.bookie])
        is_first = action.ids not in operation.live.get(action.bookie, {})
        require(is_first, "that bookie was sent it already, and has not failed since")
        operation.sent(action.request, Add(action.bookie, action.ids))

    def _check_lac(self, action: SendsAdd, operation: Operation) -> None:
        """DIFFERENCE: an entry is encoded once, so what is resent carries the last add confirmed of its first sending. What a
        recovery writes back carries the one with which it began."""
        is_later = operation.is_writer and action.ids.last <= operation.lap
        is_right = action.last_add_confirmed <= operation.lac if is_later else action.last_add_confirmed == operation.lac
        self._judge.require(is_right, f"the client's last add confirmed is {operation.lac}")

    def hears_add(self, action: HearsAdd) -> None:
        operation = self._variables.operation(action.who, self._judge)
        add = operation.adds.get(action.request)
        if add is None:
            return
        add.is_answered = True
        self._judge.step(_heard_step(operation, action.status))
        bookie, ids = self._variables.bookie(add.bookie), add.ids.expand()
        if action.status == OK:
            self._judge.require(bookie.acked[operation.is_recovery].issuperset(ids), f"{add.bookie} never said so")
        elif action.status == FENCED:
            self._judge.require(bookie.has_refused, f"{add.bookie} never said so")
        if add.is_void or operation.is_withdrawn:
            return
        if action.status == OK:
            for entry_id in ids:
                operation.acks.setdefault(entry_id, set()).add(add.bookie)
        elif action.status == FENCED:
            operation.is_withdrawn = True
        else:
            operation.fail(add)

    def gives_up(self, action: GivesUp) -> None:
        operation = self._variables.operation(action.who, self._judge)
        add = operation.adds.get(action.request)
        if add is not None and not add.is_void:
            self._judge.step("(write timeout)")
            operation.fail(add)

    def confirms(self, action: Confirms) -> None:
        operation = self._variables.operation(action.who, self._judge)
        self._judge.step("(the last add confirmed moves)")
        self._judge.require(not operation.is_withdrawn, "the client has withdrawn")
        for entry_id in range(operation.lac + 1, action.last + 1):
            count = operation.counted(entry_id)
            self._judge.require(count >= operation.ack_quorum, f"entry {entry_id} has {count} acks")
            operation.acks.pop(entry_id, None)
        operation.lac = max(operation.lac, action.last)

    # --- changes of the ensemble

    def works_with(self, action: WorksWith) -> None:
        operation = self._variables.operation(action.who, self._judge)
        if operation.is_recovery and not operation.recovery.has_read:
            operation.fragments = action.fragments  # of the metadata that it marked, or found marked
        elif operation.is_closing:
            self._judge.step("(another's close is learnt)")
            operation.fragments = action.fragments
        else:
            self._changes(operation, action.fragments)

    def _changes(self, operation: Operation, after: Fragments) -> None:
        if operation.is_recovery:
            self._judge.step("RecoveryClientChangesEnsemble")
            self.check_change(operation, after)
        else:
            self._judge.step("ClientChangesEnsemble")
            is_stored = any(one.fragments == after for one in self._variables.versions.values())
            is_written = any(one.ledger.fragments[-1] == after[-1] for one in operation.writes)
            self._judge.require(is_written and is_stored, "the store does not have it, or not from this client")
        left = set(operation.ensemble).difference(after[-1][1])
        operation.fragments, operation.next_ensemble = after, None
        operation.forget(left)

    def check_change(self, operation: Operation, after: Fragments) -> None:
        """Whether the client may go on with these fragments."""
        require, before = self._judge.require, operation.fragments
        (old_first, old), (new_first, new) = before[-1], after[-1]
        require(self._may_begin(operation, new_first), f"the new fragment begins at {new_first}")
        kept = before[:-1] if new_first == old_first else before
        # DIFFERENCE: re-replication may have changed older fragments meanwhile.
        stored = (one.fragments[: len(after) - 1] for one in self._variables.versions.values())
        require(after[:-1] == kept or after[:-1] in stored, f"other fragments changed, from {before} to {after}")
        require(len(old) == len(new) == len(set(new)), "its size changed, or a bookie is in it twice")
        failing, left = operation.failing(), set(old).difference(new)
        require(bool(failing), "no bookie has failed")
        require(left <= failing, f"{sorted(left - failing)} have answered everything")

    @staticmethod
    def _may_begin(operation: Operation, first: int) -> bool:
        """DIFFERENCE: the entries of a batch are confirmed together, so a recovery may be behind what its acks say."""
        if operation.is_writer:
            return first == operation.lac + 1
        begin = operation.fragments[-1][0]
        reached = max(operation.lac, begin - 1)
        while operation.counted(reached + 1) >= operation.ack_quorum:
            reached += 1
        return begin <= first <= reached + 1


def _add_step(operation: Operation, *, is_new: bool) -> str:
    if operation.is_recovery:
        return "ClientWritesBackEntry" if is_new else "RecoveryClientSendsPendingAddOp"
    return "ClientSendsAddEntryRequests" if is_new else "ClientResendsPendingAddOp"


def _heard_step(operation: Operation, status: str) -> str:
    if status == OK:
        return "RecoveryClientReceivesAddConfirmedResponse" if operation.is_recovery else "ClientReceivesAddConfirmedResponse"
    return "ClientReceivesAddFencedResponse" if status == FENCED else "(an add fails)"
