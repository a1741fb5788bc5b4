"""A writer's batches, until the last answer of a bookie.

``PendingAdds`` keeps two lists in the order of entry ids: batches that are not *confirmed*, and batches that are not *settled*,
because a bookie still owes an answer for them. A slow bookie keeps batches unsettled long after they are confirmed. They hold
their bytes, so they stay in the writer's window.

``KnownGaps`` keeps the bookies that are named for confirmed entries that they did not take, until the ledger is marked.

Ref: docs/rules.md, protocol rule 63.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from bk_spark.client.protocol import state_machine as sm
from bk_spark.entries.batch import EncodedBatch
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import write_set

OWED_PATIENCE_MS = 1_000
"""So long a writer or a recovery that ends waits for answers about confirmed entries. A bookie that is well takes milliseconds.
One that does not answer may lack the entries, so the ledger is marked for it."""

MARK_PATIENCE_MS = 60_000
"""A bookie that was replaced gets this long before its gap is marked, as long as an auditor waits for a bookie by default: who
re-replicates while it is away copies whole fragments for a few entries."""

MARK_TRIES = 5
"""Tries of one mark. With the pauses between them they take some ten seconds, which is how long a close may wait for them."""

MARK_RETRY_MS = 500
"""The pause after the first try; it doubles."""


@dataclass(slots=True, eq=False)
class PendingBatch:
    """A batch under way. ``acked`` and ``waiting`` hold slots of the last ensemble."""

    first: int
    last: int
    length: int
    """The ledger's payload bytes up to and including ``last``."""
    appends: tuple[tuple[object, int], ...]
    """The appends in it, in order: token and first entry id."""
    appended_ms: int
    encoded: tuple[EncodedBatch | None, ...] = field(repr=False)
    """What each slot is sent; None if the slot holds none of the entries."""
    acked: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class SentAdd:
    batch: PendingBatch
    slot: int
    sent_ms: int


class PendingAdds:
    """All batches of one writer, and the requests that carry them."""

    def __init__(self) -> None:
        self.unconfirmed: deque[PendingBatch] = deque()
        self.unsettled: deque[PendingBatch] = deque()
        self._requests: OrderedDict[int, SentAdd] = OrderedDict()
        """Ordered, because the oldest is needed all the time: a plain dict would step over all the removed ones before it."""

    def add(self, batch: PendingBatch) -> None:
        assert batch.first <= batch.last
        if self.unsettled:
            before = self.unsettled[-1]
            assert batch.first == before.last + 1
            assert batch.length >= before.length, "the ledger's length never shrinks"
        self.unconfirmed.append(batch)
        self.unsettled.append(batch)

    def sent(self, request_id: int, batch: PendingBatch, slot: int, now_ms: int) -> None:
        assert batch.encoded[slot] is not None, "the slot is in a write set of the batch"
        assert slot not in batch.waiting
        assert slot not in batch.acked, "an ack is taken back before the batch is sent again"
        assert request_id not in self._requests
        batch.waiting.add(slot)
        self._requests[request_id] = SentAdd(batch, slot, now_ms)

    def answered(self, request_id: int) -> SentAdd | None:
        """The request that an answer belongs to; None if it was cancelled."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            assert request.slot in request.batch.waiting
            request.batch.waiting.discard(request.slot)
        return request

    def cancel(self, slots: Collection[int]) -> list[int]:
        """Stop waiting for answers from ``slots``; returns the ids of the cancelled requests."""
        void = [request_id for request_id, request in self._requests.items() if request.slot in slots]
        for request_id in void:
            self.answered(request_id)
        return void

    def owes(self, slot: int, last_add_confirmed: int) -> bool:
        """Whether ``slot`` owes an answer for an entry that is confirmed without it."""
        return any(batch.first <= last_add_confirmed and slot in batch.waiting for batch in self.unsettled)

    def owed(self, last_add_confirmed: int) -> dict[int, int]:
        """The unanswered requests with an entry that is confirmed, and the slot of each."""
        return {one: sent.slot for one, sent in self._requests.items() if sent.batch.first <= last_add_confirmed}

    def oldest_request(self) -> SentAdd | None:
        """Requests are numbered in the order in which they are sent."""
        return next(iter(self._requests.values()), None)

    def overdue(self, before_ms: int) -> list[int]:
        """The slots with an unanswered request sent at or before ``before_ms``, ascending."""
        slots = set()
        for request in self._requests.values():
            if request.sent_ms > before_ms:
                break
            slots.add(request.slot)
        return sorted(slots)

    def forget_acks(self, slots: Collection[int]) -> None:
        """Other bookies take these slots, and they do not hold what the former bookies acked."""
        for batch in self.unconfirmed:
            batch.acked.difference_update(slots)

    def settled(self, *, is_over: bool) -> Iterator[PendingBatch]:
        """Take out, oldest first, the batches that no bookie owes an answer for; with ``is_over`` even unconfirmed ones."""
        while self.unsettled and not self.unsettled[0].waiting and (self.unsettled[0].confirmed or is_over):
            batch = self.unsettled.popleft()
            assert batch.confirmed or not self.unconfirmed, "what waits for its confirmation is never released"
            yield batch


def has_ack_quorum(batch: PendingBatch, metadata: LedgerMetadata) -> bool:
    """Whether Qa bookies of **each** entry's own write set acked the batch."""
    return all(
        len(batch.acked.intersection(slots)) >= metadata.ack_quorum
        for slots in write_sets_of(metadata, batch.first, batch.last)
    )


def write_sets_of(metadata: LedgerMetadata, first: int, last: int) -> list[tuple[int, ...]]:
    """The distinct write sets of the entries from ``first`` to ``last``, inclusive."""
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    if size == quorum:
        return [tuple(range(size))]
    return [write_set(entry_id, size, quorum) for entry_id in range(first, min(last, first + size - 1) + 1)]


def fewest_left(metadata: LedgerMetadata, failed: Collection[int]) -> int:
    """The number of slots that have not failed, in the write set that has fewest of them."""
    every = write_sets_of(metadata, 0, metadata.ensemble_size - 1)
    return min(sum(slot not in failed for slot in slots) for slots in every)


class KnownGaps:
    """The bookies of one writer that lack confirmed entries, and the marks that report them.

    A gap is marked once its fragment has an end: nobody looks for what is missing in an open tail. It is not marked either
    while the open tail names its bookie and that may be away, because the tail of a marked ledger is fenced if it names a
    bookie that is gone. So a bookie that is in the ensemble again is marked once it acks an add; one that was replaced, after
    MARK_PATIENCE_MS; all at the latest when the writer ends. A mark that fails is tried again, in a bounded way; it never fails
    the writer.

    Worked example: b2 fails, 40 to 139 are confirmed without it. From 140 on there is a new fragment with b2, which acks 140:
    the ledger is marked for b2, a worker finds that it lacks 40 to 139, and copies them.
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        """Bookies that lack entries of the last fragment."""
        self._silent: set[str] = set()
        """Bookies that lack entries of earlier fragments, are in the last one, and have acked nothing of it."""
        self._due_ms: dict[str, int] = {}
        """Other bookies that lack entries of earlier fragments, and when to mark the ledger for them."""
        self._under_way: tuple[str, ...] = ()
        self._tries = 0
        self._retry_ms = 0

    @property
    def bookies(self) -> frozenset[str]:
        """All that are not marked yet."""
        return frozenset(self._open | self._silent | self._due_ms.keys())

    @property
    def is_reported(self) -> bool:
        """Of a writer that has ended: whether no mark is left to try. One that is under way is left until it is answered."""
        return not self._due_ms

    def note(self, bookie_id: str) -> None:
        """A bookie of the last fragment did not take a confirmed entry, or may not have taken it."""
        self._open.add(bookie_id)

    def fragment_ended(self, ensemble: Collection[str], now_ms: int) -> None:
        """The last fragment has an end; ``ensemble`` is the next one's."""
        lacking = self.bookies
        self._open.clear()
        self._silent = {bookie_id for bookie_id in lacking if bookie_id in ensemble}
        due_ms = now_ms + MARK_PATIENCE_MS
        self._due_ms = {bookie_id: self._due_ms.get(bookie_id, due_ms) for bookie_id in lacking - self._silent}

    def acked(self, bookie_id: str, now_ms: int) -> None:
        """A bookie of the last fragment has acked an add."""
        if bookie_id in self._silent:
            self._silent.remove(bookie_id)
            self._due_ms[bookie_id] = now_ms

    def writer_failed(self) -> None:
        """No bookie returns to the ensemble any more. Gaps of the last fragment wait for the close, which gives it an end."""
        self._due_ms = dict.fromkeys(self._silent | self._due_ms.keys(), 0)
        self._silent.clear()

    def ledger_closed(self) -> None:
        """Every fragment has an end, and nobody else will report what is left."""
        self._due_ms = dict.fromkeys(self.bookies, 0)
        self._open.clear()
        self._silent.clear()

    def go_on(self, now_ms: int) -> list[sm.Command]:
        """Mark what is due."""
        if not self._due_ms:  # after every event of a writer
            return []
        due = tuple(sorted(bookie_id for bookie_id, due_ms in self._due_ms.items() if due_ms <= now_ms))
        if self._under_way or not due or now_ms < self._retry_ms:
            return []
        assert self._tries < MARK_TRIES
        self._under_way = due
        return [sm.MarkUnderReplicated(due)]

    def answered(self, event: sm.MarkAnswered, now_ms: int) -> None:
        tried, self._under_way = self._under_way, ()
        assert tried, "only a mark that is under way is answered"
        self._tries = 0 if event.error is None else self._tries + 1
        self._retry_ms = now_ms + (MARK_RETRY_MS << (self._tries - 1)) if self._tries else 0
        if event.error is None:
            for bookie_id in tried:
                self._due_ms.pop(bookie_id, None)
        elif self._tries >= MARK_TRIES:  # report them with the next gap, or at the end of the writer
            self._open.update(self._due_ms)
            self._due_ms.clear()
            self._tries = self._retry_ms = 0

    def deadline_ms(self) -> int | None:
        if self._under_way or not self._due_ms:
            return None
        return max(self._retry_ms, min(self._due_ms.values()))
