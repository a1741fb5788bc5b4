"""The batches of a writer from append to the last answer that a bookie owes for them.

Two lists, both in the order of entry ids: what is not confirmed, and what is not settled, which is all that a bookie
still owes an answer for. A slow bookie keeps batches unsettled long after they are confirmed; they hold their bytes, so
they stay in the writer's window.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from bk_spark.client.protocol.state_machine import Append
from bk_spark.config import MAX_BATCH_ENTRIES, MIB
from bk_spark.entries.batch import EncodedBatch
from bk_spark.metadata.ledger_metadata import LedgerMetadata
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


# --- Appends whose entry ids the application chose, until those before them have come
#
# Worked example: entries up to 4 came; 6–7 is held, 5 goes through and takes 6–7 with it; then 7 is a duplicate.
#
# What a filled gap sets free goes out in few large batches: it may be a whole window of single entries, and one request each
# would keep healthy bookies busy beyond the add timeout.
#
# Ref: docs/rules.md, protocol rule 29.

RUN_BYTES = 1 * MIB
"""Payload bytes that go out as one batch: larger ones gain nothing measurable."""


class HeldAppends:
    """Bounded by the writer's window: what is held was let into it."""

    def __init__(self) -> None:
        self._held: dict[int, Append] = {}
        self._firsts: list[int] = []
        """The first ids of what is held, ascending."""

    def hold(self, append: Append) -> None:
        """Keep an append beyond a gap, which overlaps none that is held."""
        self._held[_first(append)] = append
        insort(self._firsts, _first(append))

    def overlap(self, append: Append) -> int | None:
        """The lowest id of ``append`` that is held already; None if there is none."""
        first = _first(append)
        after = bisect_right(self._firsts, first)
        if after > 0 and first <= _last(self._held[self._firsts[after - 1]]):
            return first
        return self._firsts[after] if after < len(self._firsts) and self._firsts[after] <= _last(append) else None

    def take(self, entry_id: int) -> list[Append]:
        """The appends from ``entry_id`` on, which is next, without a gap, as many as make a batch; none if it is missing."""
        run: list[Append] = []
        count = nbytes = 0
        while (append := self._held.get(entry_id + count)) is not None:
            count, nbytes = count + len(append.payloads), nbytes + append.payloads.nbytes
            if run and (count > MAX_BATCH_ENTRIES or nbytes > RUN_BYTES):
                break
            run.append(append)
        for append in run:
            del self._held[_first(append)]
        del self._firsts[: len(run)]
        return run

    def take_all(self) -> Iterator[Append]:
        """Those that will never go out, by their ids."""
        held, firsts = self._held, self._firsts
        self._held, self._firsts = {}, []
        return iter([held[first] for first in firsts])


def _first(append: Append) -> int:
    assert append.first_entry_id is not None
    return append.first_entry_id


def _last(append: Append) -> int:
    return _first(append) + len(append.payloads) - 1
