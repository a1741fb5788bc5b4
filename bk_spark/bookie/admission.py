"""Who may do what at this bookie, and the words of a refusal.

Beside the ledger's master key and its fence there are two states of the bookie as a whole:

*Limbo.* After a possible loss of data the bookie cannot know what it once promised for the ledgers up to the **fence
watermark**, the highest ledger id that had been issued. Until such a ledger is settled (recovered and copied) nothing is
denied: what is here is served, fences and the adds of recoveries are taken and durable; "no such ledger", "no such entry", the
last add confirmed and "not fenced" are unknown, and so is every normal add, which a forgotten fence would have refused.

*Read-only.* A bookie whose disks are full takes fences and the adds of recoveries only.

Ref: docs/rules.md, protocol rules 4, 47 and 50, storage rules 10 to 12.
"""

from __future__ import annotations

import hmac

from bk_spark.bookie.ledger_storage import LedgerFacts
from bk_spark.digest import master_key_hash
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.wire import (
    AddRequest,
    FenceRequest,
    ForceRequest,
    LastAddConfirmedRequest,
    ReadRequest,
    StagedRequest,
    Status,
)


class Admission:
    """The state of one bookie as a whole. Any thread may ask."""

    def __init__(self, bookie_id: str, fence_watermark: int | None) -> None:
        """Ledgers up to ``fence_watermark``, inclusive, are in limbo; None: there is no limbo."""
        self.is_read_only = False
        self._bookie_id = bookie_id
        self._fence_watermark = -1 if fence_watermark is None else fence_watermark
        self._settled: set[int] = set()

    def settle(self, ledger_id: int) -> None:
        """Nothing is missing of this ledger any more, and it is fenced if it has to be: its limbo is over."""
        self._settled.add(ledger_id)

    def is_limbo(self, ledger_id: int) -> bool:
        """To be asked before what it is about is looked up: a ledger may be settled meanwhile."""
        return ledger_id <= self._fence_watermark and ledger_id not in self._settled

    def of_staged(self, request: StagedRequest, facts: LedgerFacts | None) -> Status:
        """OK if the request may be staged. ``facts`` of its ledger must not change until it is."""
        status = self._of_key(request, facts)
        if status is not Status.OK or isinstance(request, FenceRequest):
            return status
        ledger_id = request.batch.header.ledger_id if isinstance(request, AddRequest) else request.ledger_id
        if isinstance(request, AddRequest):
            if request.recovery:
                return Status.OK
            if facts is not None and facts.is_fenced:
                return Status.FENCED
        if self.is_limbo(ledger_id):
            return Status.UNKNOWN
        return Status.READ_ONLY if self.is_read_only and not isinstance(request, ForceRequest) else Status.OK

    def of_read(self, request: ReadRequest | LastAddConfirmedRequest, facts: LedgerFacts | None) -> Status:
        """OK if the request may be answered from ``facts``; NO_SUCH_LEDGER only if nothing speaks against that."""
        status = self._of_key(request, facts)
        if status is not Status.OK:
            return status
        if request.fence and not (facts is not None and facts.is_durably_fenced):
            return Status.UNKNOWN
        return Status.NO_SUCH_LEDGER if facts is None else Status.OK

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
                return f"bookie {self._bookie_id} has never stored an entry of ledger {ledger_id}"
            case _:
                return f"bookie {self._bookie_id}: ledger {ledger_id} is in limbo, or the fence asked for is not durable"

    def _of_key(self, request: StagedRequest | ReadRequest | LastAddConfirmedRequest, facts: LedgerFacts | None) -> Status:
        if request.bookie_id != self._bookie_id:
            return Status.WRONG_BOOKIE
        if facts is None or hmac.compare_digest(facts.master_key_hash, master_key_hash(request.master_key)):
            return Status.OK
        return Status.UNAUTHORIZED


def status_of(problem: BookKeeperError) -> Status:
    """The status for an error of the storage. Damage is never "no such entry"."""
    return Status.DAMAGED if isinstance(problem, CorruptionError | FormatVersionError) else Status.IO_ERROR
