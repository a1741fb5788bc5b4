"""The steps of bookies: they take adds or refuse them, fence, answer reads, crash and come back."""

from __future__ import annotations

from tests.specification.actions import AnswersAdd, AnswersFence, AnswersRead, DeletesLedger, LeavesLimbo, LosesData, Starts
from tests.specification.judge import Judge
from tests.specification.variables import FENCED, NEGATIVE, NO_SUCH_LEDGER, OK, Variables


class BookieSteps:
    def __init__(self, variables: Variables, judge: Judge) -> None:
        self._variables = variables
        self._judge = judge

    def answers_add(self, action: AnswersAdd) -> None:
        bookie, require = self._variables.bookie(action.who), self._judge.require
        if action.status == OK:
            self._judge.step("BookieSendsAddConfirmedResponse")
            ids = action.ids.expand()
            require(not bookie.is_fenced or action.is_recovery, "it has fenced the ledger")
            require(not bookie.in_limbo or action.is_recovery, "it is in limbo")
            require(bookie.sent.issuperset(ids), "nobody sent it these entries")
            bookie.acked[action.is_recovery].update(ids)
            if action.is_durable:
                bookie.entries.update(ids)
        elif action.status == FENCED:
            self._judge.step("BookieSendsAddFencedResponse")
            require(bookie.is_fenced or bookie.may_be_fenced or bookie.in_limbo, "nobody asked it to fence the ledger")
            require(not action.is_recovery, "recovery's adds pass a fence")
            bookie.has_refused = True

    def answers_fence(self, action: AnswersFence) -> None:
        if action.status == OK:
            self._judge.step("BookieSendsFencingReadLacResponse")
            self._variables.bookie(action.who).is_fenced = True

    def answers_read(self, action: AnswersRead) -> None:
        """Reads that do not fence, which the specification has not, are answered like those that do."""
        bookie, require = self._variables.bookie(action.who), self._judge.require
        self._judge.step("BookieSendsReadResponse")
        given = {entry_id for ids in action.ids for entry_id in ids.expand()}
        require(bookie.sent.issuperset(given) or bookie.is_lossy, "it gives entries that nobody sent it")
        if action.status in NEGATIVE:
            is_whole = action.status == NO_SUCH_LEDGER
            has_it = bool(bookie.entries) if is_whole else action.entry_id in bookie.entries
            require(not has_it or bookie.is_lossy, "it has what it denies")
            require(not bookie.in_limbo, "in limbo a bookie denies nothing")
            bookie.denied.add(None if is_whole else action.entry_id)

    def starts(self, action: Starts) -> None:
        """DIFFERENCE: limbo refuses the adds of writers, and needs no fence for that. Its repair fences, and copies."""
        bookie = self._variables.bookie(action.who)
        self._judge.step("BookieCrash (with limbo)" if action.in_limbo else "(a bookie starts)")
        bookie.in_limbo = action.in_limbo
        if action.in_limbo:
            bookie.may_be_fenced = bookie.is_lossy = True
            bookie.entries.clear()

    def leaves_limbo(self, action: LeavesLimbo) -> None:
        """DIFFERENCE: the specification's limbo never ends. What the bookie has then is not known here."""
        self._judge.step("(limbo ends)")
        self._variables.bookie(action.who).in_limbo = False

    def loses_data(self, action: LosesData) -> None:
        self._judge.step("(data is lost)")
        self._forgets(action.who)

    def deletes_ledger(self, action: DeletesLedger) -> None:
        """DIFFERENCE: the specification deletes nothing. A bookie that does fences the ledger: its end is decided."""
        self._judge.step("(copies are deleted)")
        self._forgets(action.who)
        self._variables.bookie(action.who).may_be_fenced = True

    def _forgets(self, who: str) -> None:
        bookie = self._variables.bookie(who)
        bookie.entries.clear()
        bookie.is_lossy = True
