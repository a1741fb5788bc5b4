"""Bugs of bookies.

Each takes one guard out of the shipped code for as long as its context lasts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from bk_spark.bookie import admission, batch_read
from bk_spark.bookie.admission import Admission
from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.log_files.witness import NOTHING, FoundWitness
from bk_spark.bookie.storage import open_storage
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.bookie.storage.stored_ledgers import LedgerFacts
from bk_spark.bookie.storage.write_cache import CachedLedger
from bk_spark.wire.messages import AddRequest, FenceRequest, Status
from tests.simulation.mutants.mutant import all_of
from tests.simulation.world.bookie_actor import BookieActor


def lac_is_overwritten() -> Any:
    def confirm(self: Any, last_add_confirmed: int) -> None:
        self.last_add_confirmed = last_add_confirmed

    return patch.object(CachedLedger, "confirm", confirm)


def acks_before_the_sync() -> Any:
    """The reply to an add leaves once it is staged."""
    original = Bookie.stage

    def stage(self: Any, request: Any, reply_to: object) -> None:
        original(self, request, reply_to)
        if isinstance(request, AddRequest) and self._staged:
            self._early.append(self._staged.pop())

    return patch.object(Bookie, "stage", stage)


def fences_are_answered_before_the_sync() -> Any:
    stage, take, facts = Bookie.stage, Bookie.take_early, LedgerStorage.facts

    def stage_fence(self: Any, request: Any, reply_to: object) -> None:
        stage(self, request, reply_to)
        if isinstance(request, FenceRequest):
            self._early.append(self._staged.pop())

    def durable(self: Any, ledger_id: int) -> LedgerFacts | None:
        one = facts(self, ledger_id)
        return None if one is None else replace(one, is_durably_fenced=one.is_fenced)

    def early(self: Any) -> Any:
        return take(self)

    return all_of(
        patch.object(Bookie, "stage", stage_fence),
        patch.object(Bookie, "take_early", early),
        patch.object(LedgerStorage, "facts", durable),
    )


def limbo_is_for_open_ledgers_only() -> Any:
    original = BookieActor.start

    def start(self: Any) -> None:
        original(self)
        if self._process is not None and self._world.invariants.history.current.is_closed:
            self._process.bookie.admission.settle(self._world.ledger_id)

    return patch.object(BookieActor, "start", start)


def nothing_tells_of_the_logs() -> Any:
    return patch.object(open_storage, "find_witness", lambda *_, **__: FoundWitness(NOTHING, ""))


def an_id_names_one_ledger() -> Any:
    """A bookie does not look at the tokens of creators."""
    return patch.object(admission, "is_other_ledger", lambda stored, asked: False)


def no_limbo() -> Any:
    return patch.object(Admission, "is_limbo", lambda self, ledger_id: False)


def damage_is_absence() -> Any:
    def status_of(problem: Any) -> Status:
        status = admission.status_of(problem)
        return Status.NO_SUCH_ENTRY if status is Status.DAMAGED else status

    return patch.object(batch_read, "status_of", status_of)


def fences_refuse_recovery_adds() -> Any:
    original = Admission.of_staged

    def of_staged(self: Any, request: Any, facts: Any) -> Status:
        is_add = isinstance(request, AddRequest)
        return original(self, replace(request, recovery=False) if is_add else request, facts)

    return patch.object(Admission, "of_staged", of_staged)


def adds_for_another_bookie_are_taken() -> Any:
    original = Admission._of_key

    def of_key(self: Any, request: Any, facts: Any) -> Status:
        return original(self, replace(request, bookie_id=self._bookie_id), facts)

    return patch.object(Admission, "_of_key", of_key)
