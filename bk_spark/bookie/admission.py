"""Who may do what at this bookie, and the words of a refusal.

Beside the ledger's master key and its fence there are two states of the bookie as a whole:

*Limbo.* After a possible loss of data the bookie cannot know what it once promised for the ledgers up to the **fence
watermark**, the highest ledger id that had been issued. Until such a ledger is settled (recovered and copied) nothing is
denied: what is here is served, fences and the adds of recoveries are taken and durable; "no such ledger", "no such entry", the
last add confirmed and "not fenced" are unknown, and so is every normal add, which a forgotten fence would have refused. Limbo
is stored in the index, so that it outlasts a restart; a ledger that was settled since the stored state is out of it in this
process only, and is settled once more after a restart.

*Read-only.* A bookie whose disks are full takes fences and the adds of recoveries only; an *exhausted* one fences alone, so
that what it took already, deletions and garbage collection find space.

Ref: docs/rules.md, protocol rules 4, 47 and 50, storage rules 10 to 12.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace

from bk_spark.bookie.index.rows import MAX_UNSETTLED, Limbo
from bk_spark.bookie.storage.stored_ledgers import LedgerFacts
from bk_spark.entries.digest import master_key_hash
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.wire.messages import (
    AddRequest,
    DeleteLedgerRequest,
    FenceRequest,
    ForceRequest,
    LastAddConfirmedRequest,
    ReadRequest,
    StagedRequest,
    Status,
    StoreLastAddConfirmedRequest,
)

_Keyed = AddRequest | FenceRequest | ForceRequest | StoreLastAddConfirmedRequest | ReadRequest | LastAddConfirmedRequest


class Admission:
    """The state of one bookie as a whole. Any thread may ask; one thread at a time, the one that repairs, settles."""

    def __init__(self, bookie_id: str, limbo: Limbo | None, store: Callable[[Limbo | None], None]) -> None:
        """``limbo`` as the index has it; ``store`` puts another one there, durably."""
        self.is_read_only = False
        self.is_exhausted = False
        self.limbo = limbo
        self._bookie_id = bookie_id
        self._store = store
        self._settled: frozenset[int] = frozenset()
        """Settled ledgers that the stored limbo still names."""

    def settle(self, ledger_id: int) -> None:
        """Nothing is missing of this ledger any more, and it is fenced if it has to be: its limbo is over.

        Until ``settle_through`` passes it, in this process only: these are bounded by how far a caller runs ahead of that.
        """
        limbo = self.limbo
        if limbo is not None and ledger_id in limbo.unsettled:
            self._change(replace(limbo, unsettled=limbo.unsettled - {ledger_id}))
        elif self.is_limbo(ledger_id):
            self._settled |= {ledger_id}

    def settle_through(self, ledger_id: int, unsettled: frozenset[int]) -> None:
        """All ledgers up to ``ledger_id``, inclusive, are settled, durably, save ``unsettled`` and those known as such.

        Where these are too many to be kept, it goes only as far as they can be.
        """
        limbo = self.limbo
        if limbo is None:
            return
        through = max(limbo.settled_through, min(ledger_id, limbo.fence_watermark))
        left = sorted(limbo.unsettled | {one for one in unsettled if limbo.settled_through < one <= through})
        if len(left) > MAX_UNSETTLED:
            through = left[MAX_UNSETTLED] - 1
            left = left[:MAX_UNSETTLED]
        self._change(replace(limbo, settled_through=through, unsettled=frozenset(left)))
        self._settled = frozenset(one for one in self._settled if one > through)

    def end_limbo(self) -> None:
        """Every ledger is settled, durably."""
        if self.limbo is not None:
            self._change(None)
            self._settled = frozenset()

    def is_limbo(self, ledger_id: int) -> bool:
        """To be asked before what it is about is looked up: a ledger may be settled meanwhile."""
        limbo = self.limbo
        return limbo is not None and limbo.holds(ledger_id) and ledger_id not in self._settled

    def of_staged(self, request: StagedRequest, facts: LedgerFacts | None) -> Status:
        """OK if the request may be staged. ``facts`` of its ledger must not change until it is."""
        if isinstance(request, DeleteLedgerRequest):
            return Status.OK
        status = self._of_key(request, facts)
        if status is not Status.OK or isinstance(request, FenceRequest):
            return status
        is_add = isinstance(request, AddRequest)
        if isinstance(request, AddRequest) and request.recovery:
            return Status.READ_ONLY if self.is_exhausted else Status.OK
        if facts is not None and (facts.is_fenced if is_add else facts.is_deleted):
            return Status.FENCED
        if self.is_limbo(request.batch.header.ledger_id if isinstance(request, AddRequest) else request.ledger_id):
            return Status.UNKNOWN
        return Status.READ_ONLY if self.is_read_only and not isinstance(request, ForceRequest) else Status.OK

    def of_read(self, request: ReadRequest | LastAddConfirmedRequest, facts: LedgerFacts | None) -> Status:
        """OK if the request may be answered from ``facts``; NO_SUCH_LEDGER only if nothing speaks against that.

        A ledger that was deleted is one that is not there, though its fence holds.
        """
        status = self._of_key(request, facts)
        if status is not Status.OK:
            return status
        if request.fence and not (facts is not None and facts.is_durably_fenced):
            return Status.UNKNOWN
        return Status.NO_SUCH_LEDGER if facts is None or facts.is_deleted else Status.OK

    def explain(self, status: Status, ledger_id: int) -> str:
        """What a refusal tells the one who asked."""
        match status:
            case Status.OK:
                return ""
            case Status.WRONG_BOOKIE:
                return f"this is bookie {self._bookie_id}"
            case Status.UNAUTHORIZED:
                return f"the password of ledger {ledger_id} is another one"
            case Status.FENCED:
                return f"ledger {ledger_id} is fenced: only its recovery may add to it"
            case Status.READ_ONLY:
                return f"bookie {self._bookie_id} is read-only"
            case Status.NO_SUCH_LEDGER:
                return f"bookie {self._bookie_id} has nothing of ledger {ledger_id}"
            case _:
                return f"bookie {self._bookie_id}: ledger {ledger_id} is in limbo, or the fence asked for is not durable"

    def _change(self, limbo: Limbo | None) -> None:
        self._store(limbo)
        self.limbo = limbo

    def _of_key(self, request: _Keyed, facts: LedgerFacts | None) -> Status:
        if request.bookie_id != self._bookie_id:
            return Status.WRONG_BOOKIE
        if facts is None or hmac.compare_digest(facts.master_key_hash, master_key_hash(request.master_key)):
            return Status.OK
        return Status.UNAUTHORIZED


def status_of(problem: BookKeeperError) -> Status:
    """The status for an error of the storage. Damage is never "no such entry"."""
    return Status.DAMAGED if isinstance(problem, CorruptionError | FormatVersionError) else Status.IO_ERROR
