"""The published specification of BookKeeper's protocol, as a judge of traces: which step may follow what has happened.

It has the variables of the specification (``variables.py``) and, for each of its actions, the guard (``…_steps.py``). What a
client does is judged by what it has heard, which is all that it can know. What it heard is judged by what was said. A trace
whose every step passes is one that the specification allows, but for the steps that we take and it does not have. Each of
them is marked DIFFERENCE at its place, and DESIGN.md, "Traces and the specification", gives the reasons.

Ref: BookKeeperProtocol.tla and BookKeeperProtocolWithLimbo.tla of Vanlightly/bookkeeper-tlaplus; BP-46.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tests.specification import actions
from tests.specification.actions import Action
from tests.specification.bookie_steps import BookieSteps
from tests.specification.judge import Judge
from tests.specification.metadata_steps import MetadataSteps
from tests.specification.recovery_steps import RecoverySteps
from tests.specification.variables import Variables
from tests.specification.writing_steps import WritingSteps

CLIENT_STEPS = (
    "ClientCreatesLedger",
    "ClientSendsAddEntryRequests",
    "ClientReceivesAddConfirmedResponse",
    "ClientReceivesAddFencedResponse",
    "ClientChangesEnsemble",
    "ClientResendsPendingAddOp",
    "ClientClosesLedgerSuccess",
    "ClientStartsRecovery",
    "ClientReceivesFencingReadLacResponse",
    "ClientSendsRecoveryReadRequests",
    "ClientReceivesRecoveryReadResponse (positive)",
    "ClientReceivesRecoveryReadResponse (negative)",
    "ClientWritesBackEntry",
    "RecoveryClientReceivesAddConfirmedResponse",
    "RecoveryClientChangesEnsemble",
    "RecoveryClientSendsPendingAddOp",
    "RecoveryClientClosesLedger",
)
BOOKIE_STEPS = (
    "BookieSendsAddConfirmedResponse",
    "BookieSendsAddFencedResponse",
    "BookieSendsFencingReadLacResponse",
    "BookieSendsReadResponse",
    "BookieCrash (with limbo)",
)
"""The actions of the specification. ClientClosesLedgerFail changes nothing but the client, which then writes no more."""


class Specification:
    """Of one ledger. ``take`` raises NotAllowedError."""

    def __init__(self) -> None:
        judge, variables = Judge(), Variables()
        self.variables = variables
        writing, recovery = WritingSteps(variables, judge), RecoverySteps(variables, judge)
        bookies, metadata = BookieSteps(variables, judge), MetadataSteps(variables, judge, writing)
        self._judge = judge
        self._steps: dict[type[Action], Callable[[Any], None]] = {
            actions.Begins: writing.begins,
            actions.SendsAdd: writing.sends_add,
            actions.HearsAdd: writing.hears_add,
            actions.GivesUp: writing.gives_up,
            actions.Confirms: writing.confirms,
            actions.WorksWith: writing.works_with,
            actions.AsksToFence: recovery.asks_to_fence,
            actions.HearsFenced: recovery.hears_fenced,
            actions.EndsFencing: recovery.ends_fencing,
            actions.AsksToRead: recovery.asks_to_read,
            actions.HearsEntries: recovery.hears_entries,
            actions.HearsEnd: recovery.hears_end,
            actions.Writes: metadata.writes,
            actions.Learns: metadata.learns,
            actions.Stores: metadata.stores,
            actions.AnswersAdd: bookies.answers_add,
            actions.AnswersFence: bookies.answers_fence,
            actions.AnswersRead: bookies.answers_read,
            actions.Starts: bookies.starts,
            actions.LosesData: bookies.loses_data,
            actions.DeletesLedger: bookies.deletes_ledger,
            actions.LeavesLimbo: bookies.leaves_limbo,
        }

    @property
    def counts(self) -> Counter[str]:
        """How often each step was seen."""
        return self._judge.counts

    def take(self, action: Action) -> None:
        self._judge.looks_at(action)
        self._steps[type(action)](action)


def judge(trace: Iterable[Action]) -> Specification:
    """Raises NotAllowedError at the first step that the specification does not have."""
    specification = Specification()
    for action in trace:
        specification.take(action)
    return specification
