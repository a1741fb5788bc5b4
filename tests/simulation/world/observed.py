"""Tells of a simulated run as of the protocol's actions (tests/specification), in the order in which they happen."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from bk_spark.client.protocol.state_machine import StateMachine
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.wire.messages import AddRequest, ReadBatch, ReadEnd, Status
from tests.simulation.engines.history import History
from tests.specification.actions import (
    Action,
    AnswersAdd,
    AnswersFence,
    AnswersRead,
    DeletesLedger,
    LeavesLimbo,
    Ledger,
    LosesData,
    Starts,
    Stores,
)
from tests.specification.observers import Tell, ids_of, watched


class Observed:
    """What actors call when something happens that the protocol is about."""

    def __init__(self, tell: Tell, history: History | None = None) -> None:
        self._history = history
        self._tell = tell
        self._numbers = itertools.count(1)
        self._lost: set[str] = set()
        self._forgotten: set[str] = set()

    def operation(self, client: str, machine: StateMachine) -> StateMachine:
        """The machine, to be driven in this form."""
        return watched(f"{client}/{next(self._numbers)}", machine, self._note)

    def stores(self, source: str, version: int, metadata: LedgerMetadata, *, is_edit: bool) -> None:
        self._note(Stores(source, version, Ledger.of(metadata), is_edit))

    def answers_add(self, bookie: str, request: AddRequest, status: Status) -> None:
        self._note(AnswersAdd(bookie, ids_of(request.batch), request.recovery, status.name, not request.deferred_sync))

    def answers_fence(self, bookie: str) -> None:
        self._note(AnswersFence(bookie, Status.OK.name))

    def answers_read(self, bookie: str, replies: Iterable[ReadBatch | ReadEnd]) -> None:
        given = tuple(ids_of(one.batch) for one in replies if isinstance(one, ReadBatch))
        for end in replies:
            if isinstance(end, ReadEnd):
                self._note(AnswersRead(bookie, given, end.status.name, end.next_entry_id))

    def denies_ledger(self, bookie: str) -> None:
        """As the answer to a question for the last add confirmed."""
        self._note(AnswersRead(bookie, (), Status.NO_SUCH_LEDGER.name, 0))

    def starts(self, bookie: str, *, in_limbo: bool) -> None:
        self._note(Starts(bookie, in_limbo))

    def leaves_limbo(self, bookie: str) -> None:
        self._note(LeavesLimbo(bookie))

    def _note(self, action: Action) -> None:
        """First what the run's faults took, which no actor knows of."""
        history = self._history
        if history is not None:
            for bookie in sorted(history.forgotten - self._forgotten):
                self._tell(DeletesLedger(bookie))
            self._forgotten |= history.forgotten
            lost = history.lossy | history.foreign
            for bookie in sorted(lost - self._lost):
                self._tell(LosesData(bookie))
            self._lost |= lost
        self._tell(action)
