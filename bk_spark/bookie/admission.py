"""Decides whether the bookie takes or answers a request, and words the refusal.

A decision depends on the ledger's master key and fence, and on three states of the bookie as a whole:

*Limbo.* After a possible loss of data the bookie cannot know what it once promised for the ledgers up to the **fence
watermark**, the highest ledger id that had been issued. Until such a ledger is settled (recovered and copied), the bookie
denies nothing. It serves what it has, and takes fences, explicit LACs and the adds of recoveries durably, because these are
right whatever was lost. It takes forces: they make durable what this boot acked, and their answers name the boot. "No such
ledger", "no such entry", the last add confirmed and "not fenced" become UNKNOWN, and so does every normal add, because a
forgotten fence might have refused it. Limbo is stored in the index, so it outlasts a restart. A ledger settled after the last
stored state is out of limbo in this process only, and is settled once more after a restart.

*Ids above the counter.* If the bookie holds ids that the metadata store has not issued, the store went back to an older copy,
and gives them out again (space/issued_ids.py). Creators' tokens tell such ledgers apart, but not every client's wire has room
for one. So normal adds to ledgers of which the bookie has nothing are refused until the store's counter is raised.

*Lapsed.* A bookie that could not move its boot epoch for long (process/boot_epoch_keeper.py) takes nothing that it would have
to promise: no add, fence or other change. A deletion promises nothing: it may come back.

*Keyed ledgers.* Whoever may read one cannot write to it: it has a key for each. What is stored is the hash of the one for
reads, which follows from the one for writes (entries/digest.py). A request without a key, from Apache's wire, is refused.

*Read-only.* A bookie whose disks are full, or whose operator ordered it, takes only fences, explicit LACs and the adds of
recoveries. An *exhausted* bookie takes only fences, so that space remains for what it took already, for deletions and for
garbage collection.

Ref: docs/rules.md, protocol rules 4, 47, 50 and 62, storage rules 10 to 12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bk_spark.bookie.index.values import MAX_UNSETTLED, Limbo
from bk_spark.bookie.storage.stored_ledgers import LedgerFacts
from bk_spark.entries.digest import is_other_ledger, is_same_key, is_same_password, master_key_hash, writable_hash
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.wire.messages import (
    NO_KEY,
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

MAX_REFUSED = 1_000
"""So many ledgers are remembered whose key requests did not have. The others are asked for again."""

ORDERED = "an operator ordered it ('bk-spark bookie read-only off BOOKIE_ID' ends it)"

_REFUSALS = {
    Status.WRONG_BOOKIE: "this is bookie {bookie}",
    Status.UNAUTHORIZED: "the password of ledger {ledger} is another one, or it has a key that was not given",
    Status.FENCED: "ledger {ledger} is fenced: only its recovery may add to it",
    Status.READ_ONLY: "bookie {bookie} is read-only{problem}",
    Status.OTHER_LEDGER: "bookie {bookie} has another ledger {ledger}, of another creator: this id was given out twice",
    Status.NO_SUCH_LEDGER: "bookie {bookie} has nothing of ledger {ledger}",
}

_Keyed = AddRequest | FenceRequest | ForceRequest | StoreLastAddConfirmedRequest | ReadRequest | LastAddConfirmedRequest


class Admission:
    """The state of one bookie as a whole. Any thread may ask; only one thread at a time, a repairing one, settles ledgers."""

    def __init__(self, bookie_id: str, limbo: Limbo | None, store: Callable[[Limbo | None], None]) -> None:
        """``limbo`` is what the index holds; ``store`` replaces it there, durably."""
        self.are_disks_full = False
        self.is_ordered_read_only = False
        self.is_exhausted = False
        self.ids_above = ""
        """Why adds to new ledgers are refused; "" if they are not."""
        self.lapse: Callable[[], str] = lambda: ""
        """Why the bookie is lapsed at this moment; "" if it is not. Any thread."""
        self.limbo = limbo
        self._bookie_id = bookie_id
        self._store = store
        self._settled: frozenset[int] = frozenset()
        """Ledgers that are settled and that the stored limbo still contains."""
        self._refused: set[int] = set()

    @property
    def is_read_only(self) -> bool:
        return self.are_disks_full or self.is_ordered_read_only

    def settle(self, ledger_id: int) -> None:
        """End the limbo of a ledger that is fenced if it has to be, and whose entries that belong here are here, durably.

        Until ``settle_through`` passes the ledger this is kept in memory alone, and a restart forgets it. The caller bounds the
        memory by how far it runs ahead of ``settle_through``.
        """
        limbo = self.limbo
        if limbo is not None and ledger_id in limbo.unsettled:
            self._change(replace(limbo, unsettled=limbo.unsettled - {ledger_id}))
        elif self.is_limbo(ledger_id):
            self._settled |= {ledger_id}

    def settle_through(self, ledger_id: int, unsettled: frozenset[int]) -> None:
        """End the limbo of the ledgers up to ``ledger_id``, inclusive, durably, except ``unsettled`` and those stored as such.

        If more than MAX_UNSETTLED would have to be stored, it goes only as far as that many allow.
        """
        limbo = self.limbo
        if limbo is None:
            return
        through = max(limbo.settled_through, min(ledger_id, limbo.fence_watermark))
        left = sorted(limbo.unsettled | {other for other in unsettled if limbo.settled_through < other <= through})
        if len(left) > MAX_UNSETTLED:
            through = left[MAX_UNSETTLED] - 1
            left = left[:MAX_UNSETTLED]
        self._change(replace(limbo, settled_through=through, unsettled=frozenset(left)))
        self._settled = frozenset(other for other in self._settled if other > through)

    def end_limbo(self) -> None:
        """End the limbo of every ledger, durably."""
        if self.limbo is not None:
            self._change(None)
            self._settled = frozenset()

    def is_limbo(self, ledger_id: int) -> bool:
        """Ask this before you look the ledger up: it may be settled in between."""
        limbo = self.limbo
        return limbo is not None and limbo.holds(ledger_id) and ledger_id not in self._settled

    def take_refused(self) -> set[int]:
        """The ledgers of which requests were UNAUTHORIZED since the last call, MAX_REFUSED at most."""
        refused, self._refused = self._refused, set()
        return refused

    def of_staged(self, request: StagedRequest, facts: LedgerFacts | None) -> Status:
        """OK if the request may be staged. The ledger's ``facts`` must not change until it is."""
        if isinstance(request, DeleteLedgerRequest):
            return Status.OK
        status = self._of_key(request, facts)
        if status is not Status.OK:
            return status
        if self.lapse():
            return Status.READ_ONLY if isinstance(request, AddRequest) else Status.UNKNOWN
        if isinstance(request, FenceRequest):
            return status
        if isinstance(request, AddRequest) and request.recovery:
            return Status.READ_ONLY if self.is_exhausted else Status.OK
        if facts is not None and (facts.is_fenced if isinstance(request, AddRequest) else facts.is_deleted):
            return Status.FENCED
        if isinstance(request, StoreLastAddConfirmedRequest):
            return Status.READ_ONLY if self.is_exhausted else Status.OK
        if isinstance(request, ForceRequest):
            return Status.OK
        if self.is_limbo(request.ledger_id):
            return Status.UNKNOWN
        if self.ids_above and facts is None:
            return Status.READ_ONLY
        return Status.READ_ONLY if self.is_read_only else Status.OK

    def of_read(self, request: ReadRequest | LastAddConfirmedRequest, facts: LedgerFacts | None) -> Status:
        """OK if the request may be answered from ``facts``; NO_SUCH_LEDGER only if no other refusal applies.

        A deleted ledger counts as absent, although its fence holds.
        """
        status = self._of_key(request, facts)
        if status is not Status.OK:
            return status
        if request.fence and not (facts is not None and facts.is_durably_fenced):
            return Status.UNKNOWN
        return Status.NO_SUCH_LEDGER if facts is None or facts.is_deleted else Status.OK

    def explain(self, status: Status, ledger_id: int) -> str:
        """The text of a refusal; "" for OK."""
        if status is Status.OK:
            return ""
        unknown = "bookie {bookie}: ledger {ledger} is in limbo, or the fence asked for is not durable"
        problem = f" for new ledgers: {self.ids_above}" if self.ids_above else ""
        problem = f": {ORDERED}" if self.is_ordered_read_only and not self.is_exhausted else problem
        text = _REFUSALS.get(status, unknown).format(bookie=self._bookie_id, ledger=ledger_id, problem=problem)
        lapse = self.lapse() if status in (Status.READ_ONLY, Status.UNKNOWN) else ""
        return f"{text}: {lapse}" if lapse else text

    def _change(self, limbo: Limbo | None) -> None:
        before = self.limbo
        assert before is not None, "limbo begins with a start, never while the bookie serves"
        if limbo is not None:
            assert limbo.fence_watermark == before.fence_watermark
            assert limbo.settled_through >= before.settled_through, "what is settled stays settled"
        self._store(limbo)
        self.limbo = limbo

    def _of_key(self, request: _Keyed, facts: LedgerFacts | None) -> Status:
        if request.bookie_id != self._bookie_id:
            return Status.WRONG_BOOKIE
        if facts is None:
            return Status.OK
        if request.master_key == NO_KEY and isinstance(request, ForceRequest | LastAddConfirmedRequest):
            return Status.UNAUTHORIZED if facts.is_keyed else Status.OK
        # A read key is no write key, whatever is stored: otherwise who came first with one could give readers his entries.
        is_read = isinstance(request, ReadRequest | LastAddConfirmedRequest) and not request.fence
        asked = master_key_hash(request.master_key) if is_read else writable_hash(request.master_key)
        if is_same_key(facts.master_key_hash, asked):
            return Status.OK
        if is_other_ledger(facts.master_key_hash, asked):
            return Status.OTHER_LEDGER
        if is_same_password(facts.master_key_hash, asked):
            return Status.OK
        if len(self._refused) < MAX_REFUSED:
            self._refused.add(request.ledger_id)
        return Status.UNAUTHORIZED


def status_of(problem: BookKeeperError) -> Status:
    """The status of a reply after a storage error. Damage is never "no such entry"."""
    return Status.DAMAGED if isinstance(problem, CorruptionError | FormatVersionError) else Status.IO_ERROR
