"""The steps that only a recovery takes: fencing, and reading until an entry is absent."""

from __future__ import annotations

from bk_spark.quorum import is_covered
from tests.specification.actions import AsksToFence, AsksToRead, EndsFencing, HearsEnd, HearsEntries, HearsFenced
from tests.specification.judge import Judge
from tests.specification.variables import NEGATIVE, NO_ENTRY, OK, OPEN, Operation, Variables


class RecoverySteps:
    def __init__(self, variables: Variables, judge: Judge) -> None:
        self._variables = variables
        self._judge = judge

    def asks_to_fence(self, action: AsksToFence) -> None:
        operation = self._variables.operation(action.who, self._judge)
        if not operation.recovery.ensemble:
            self._begin(operation)
        self._judge.step("(fence request)")
        self._judge.require(action.bookie in operation.recovery.ensemble, "it is not in the last fragment's ensemble")
        operation.recovery.fence_requests[action.request] = action.bookie
        self._variables.bookie(action.bookie).may_be_fenced = True

    def _begin(self, operation: Operation) -> None:
        """DIFFERENCE: a recovery that finds the mark joins, and does not mark again."""
        self._judge.step("ClientStartsRecovery")
        ledger = self._variables.ledger
        self._judge.require(ledger is not None and ledger.state != OPEN, "the ledger is not marked as being in recovery")
        operation.recovery.ensemble = operation.ensemble
        operation.lac = operation.lap = operation.fragments[-1][0] - 1

    def hears_fenced(self, action: HearsFenced) -> None:
        operation = self._variables.operation(action.who, self._judge)
        bookie = operation.recovery.fence_requests.get(action.request)
        if bookie is None or operation.recovery.has_read:
            return
        if (action.status == OK and action.is_fenced) or action.status in NEGATIVE:
            self._judge.step("ClientReceivesFencingReadLacResponse")
            self._require_fence(bookie)
            said = action.last_add_confirmed if action.status == OK else NO_ENTRY
            operation.recovery.fenced.setdefault(bookie, []).append(said)

    def ends_fencing(self, action: EndsFencing) -> None:
        """An answer that comes when the client waits no longer for it is, for the specification, still under way."""
        operation, require = self._variables.operation(action.who, self._judge), self._judge.require
        view, floor, lowest = operation.recovery, action.floor, operation.lac
        self._judge.step("(fencing ends)")
        counting = {bookie for bookie, said in view.fenced.items() if min(said) <= floor}
        require(
            _covers(operation, counting), f"only {sorted(counting)} of {view.ensemble} are fenced and confirm up to {floor}"
        )
        said = {one for answers in view.fenced.values() for one in answers}
        require(floor >= lowest and floor in {lowest, *said}, f"{floor} is the answer of nobody")
        operation.lac = operation.lap = floor
        view.has_read = True

    def asks_to_read(self, action: AsksToRead) -> None:
        """DIFFERENCE: a window of entries is asked for at once, each in its write set. A read of the last confirmed entry comes
        first: it proves that there is one, and gives the ledger's length up to there."""
        operation, require = self._variables.operation(action.who, self._judge), self._judge.require
        view, is_proof = operation.recovery, action.ids.last <= operation.lac
        self._judge.step("(read of the last confirmed entry)" if is_proof else "ClientSendsRecoveryReadRequests")
        require(view.has_read, "it is still fencing")
        if is_proof:
            return
        require(action.is_fencing, "a recovery read that does not fence")
        require(action.ids.first > operation.lac, f"entries up to {operation.lac} are confirmed")
        for entry_id in action.ids.expand():
            is_there = action.bookie in operation.write_set(entry_id, view.ensemble)
            require(is_there, f"entry {entry_id} was not to be there when recovery began")
        view.reads[action.request] = action.bookie, action.ids
        self._variables.bookie(action.bookie).may_be_fenced = True

    def hears_entries(self, action: HearsEntries) -> None:
        """DIFFERENCE: a copy counts wherever it is, also outside of the entry's write set."""
        operation = self._variables.operation(action.who, self._judge)
        if action.request not in operation.recovery.reads:
            return
        bookie, asked = operation.recovery.reads[action.request]
        given = set(action.ids.expand()).intersection(range(asked.first, asked.last + 1))
        self._judge.step("ClientReceivesRecoveryReadResponse (positive)")
        self._judge.require(self._variables.bookie(bookie).sent.issuperset(given), f"{bookie} was never sent all of them")
        self._require_fence(bookie)
        operation.recovery.there |= given

    def hears_end(self, action: HearsEnd) -> None:
        operation = self._variables.operation(action.who, self._judge)
        if action.request not in operation.recovery.reads or action.status not in NEGATIVE:
            return
        bookie, asked = operation.recovery.reads[action.request]
        said = self._variables.bookie(bookie).denied
        self._judge.step("ClientReceivesRecoveryReadResponse (negative)")
        denied = asked.expand() if action.entry_id is None else [action.entry_id]
        for entry_id in set(denied).intersection(asked.expand()):
            self._require_fence(bookie)
            self._judge.require(entry_id in said or None in said, f"{bookie} never denied entry {entry_id}")
            operation.recovery.denied.setdefault(entry_id, set()).add(bookie)

    def _require_fence(self, bookie: str) -> None:
        self._judge.require(self._variables.bookie(bookie).is_fenced, f"{bookie} never said that it fenced the ledger")


def _covers(operation: Operation, fenced: set[str]) -> bool:
    """Whether no ack quorum is left that could take an add of the writer.

    DIFFERENCE: with striping it is looked at for each write set. Without, it is the specification's (E - Qa) + 1.
    """
    view = operation.recovery
    known = frozenset(slot for slot, bookie in enumerate(view.ensemble) if bookie in fenced)
    return bool(known) and is_covered(known, len(view.ensemble), operation.write_quorum, operation.ack_quorum)
