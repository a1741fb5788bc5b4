"""The batches of a writer from append to the last answer that a bookie owes for them.

Two lists, both in the order of entry ids: what is not confirmed, and what is not settled, which is all that a bookie
still owes an answer for. A slow bookie keeps batches unsettled long after they are confirmed; they hold their bytes, so
they stay in the writer's window.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from bk_spark.entry import EncodedBatch
from bk_spark.ledger_metadata import LedgerMetadata
from bk_spark.quorum import write_set


@dataclass(slots=True, eq=False)
class PendingBatch:
    """A batch on its way. ``acked`` and ``waiting`` hold slots of the last ensemble."""

    first: int
    last: int
    length: int
    """The ledger's payload bytes up to and including ``last``."""
    appends: tuple[tuple[object, int], ...]
    """What it is made of: each one's token and first entry id, in order."""
    appended_ms: int
    encoded: tuple[EncodedBatch | None, ...] = field(repr=False)
    """What each slot is sent, None where it holds none of the entries."""
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
        """Ordered, because the oldest one is asked for all the time: a plain dict would step over all that were answered."""

    def add(self, batch: PendingBatch) -> None:
        self.unconfirmed.append(batch)
        self.unsettled.append(batch)

    def sent(self, request_id: int, batch: PendingBatch, slot: int, now_ms: int) -> None:
        batch.waiting.add(slot)
        self._requests[request_id] = SentAdd(batch, slot, now_ms)

    def answered(self, request_id: int) -> SentAdd | None:
        """The request that an answer belongs to; None if nobody waits for it any more."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            request.batch.waiting.discard(request.slot)
        return request

    def cancel(self, slots: Collection[int]) -> list[int]:
        """Wait for nothing more from ``slots``; gives back the requests that are void now."""
        void = [request_id for request_id, request in self._requests.items() if request.slot in slots]
        for request_id in void:
            self.answered(request_id)
        return void

    def oldest_request(self) -> SentAdd | None:
        """Requests are numbered in the order in which they are sent."""
        return next(iter(self._requests.values()), None)

    def overdue(self, before_ms: int) -> list[int]:
        """The slots that were sent something at or before ``before_ms`` and have not answered, ascending."""
        slots = set()
        for request in self._requests.values():
            if request.sent_ms > before_ms:
                break
            slots.add(request.slot)
        return sorted(slots)

    def forget_acks(self, slots: Collection[int]) -> None:
        """Other bookies take these slots: what the former ones acked is not in the new ensemble."""
        for batch in self.unconfirmed:
            batch.acked.difference_update(slots)

    def settled(self, *, is_over: bool) -> Iterator[PendingBatch]:
        """Take out, oldest first, the batches that no bookie owes an answer for; ``is_over``: whether confirmed or not."""
        while self.unsettled and not self.unsettled[0].waiting and (self.unsettled[0].confirmed or is_over):
            yield self.unsettled.popleft()


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
    """Of all write sets, how many slots that have not failed the poorest has."""
    every = write_sets_of(metadata, 0, metadata.ensemble_size - 1)
    return min(sum(slot not in failed for slot in slots) for slots in every)
