"""What lies between an application's threads and the state machine that adds their entries.

Appends are queued, cut and merged into batches, and handed over while fewer than ``MAX_REQUESTS`` are on their way: what
is appended meanwhile travels together in the next one, so batches grow with the load. Queued and unsettled bytes together
are bounded by the window; an append waits for room. The wait is bounded too, because a batch that is not confirmed in
time fails the writer and with it everything that waits.

Where the application chooses the ids, an append beyond a gap stands still until the gap is filled, and must not keep out
what fills it. So what stands still counts as room for an append that fills the first gap: memory is bounded by two
windows. An append beyond a gap for which there is no room waits while anything is on its way, and is refused when
nothing is any more: then only the missing entry can make room, and whoever shall append it may be the one who waits.

    window 4, all of size 1: entries 1 2 3 4 are held, 0 is missing → 5 is refused, 0 is admitted and takes 1–4 along.

Ref: docs/rules.md, protocol rule 29.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from bk_spark.client.add_entries import AddEntries
from bk_spark.client.operation import Append, CloseRequested, Command, Confirm, Finish, ForceRequested, Reject, Release
from bk_spark.client.runner import Runner
from bk_spark.client.transport import Transport
from bk_spark.client.write_items import Call, Item, Token, new_future
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.digest import master_key, payload_sizes
from bk_spark.entry import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import AppendWindowFullError, BookKeeperError, InternalError

MAX_REQUESTS = 16
"""Batches on their way per writer: enough to cover the latency of group commit, few enough that single appends gather."""


class WriteQueue:
    """The queue of one writer."""

    def __init__(self, transport: Transport, operation: AddEntries) -> None:
        self._transport = transport
        self._operation = operation
        key = master_key(operation.metadata.password)
        self._runner = Runner(transport, operation.metadata, key, operation, self._on_command)
        self._batch_bytes = transport.config.add_batch_bytes
        self._window_bytes = transport.config.add_window_bytes
        self._order = threading.Lock()
        self._room = threading.Condition()
        self._items: deque[Item] = deque()
        self._held_bytes = 0
        self._gapped: list[tuple[int, int]] = []
        """A heap of what stands still beyond a gap: first entry id and bytes of each batch."""
        self._gapped_bytes = 0
        self._next_entry_id = 0
        """Every lower id has been handed over without a gap."""
        self._pump_scheduled = False
        self._in_flight: dict[Token, None] = {}
        self._broken: BookKeeperError | None = None
        self._closed: Future[None] | None = None

    def append_one(self, payload: bytes, entry_id: int | None = None) -> Future[int]:
        future: Future[int] = new_future()
        with self._in_order():
            self._put([Item(len(payload) + ENTRY_OVERHEAD_BYTES, payload, single=future, first_entry_id=entry_id)])
        return future

    def append_many(self, payloads: pa.BinaryArray, first_entry_id: int | None = None) -> Future[tuple[int, int]]:
        """Nothing of other threads comes between the pieces of one call: its entries have consecutive ids.

        Where the application chooses the ids a call gets into the window as a whole or not at all.
        """
        call = Call(new_future())
        items = self._pieces(payloads, call, first_entry_id)
        with self._in_order():
            for together in [items] if first_entry_id is not None else [[item] for item in items]:
                self._put(together)
        return call.future

    def force(self) -> int:
        """Wait until the state machine has forced all that was handed over; gives back the last add confirmed."""
        self._transport.check_may_wait()
        future: Future[int] = new_future()
        self._put([Item(0, force=future)])
        return future.result()

    def close(self) -> None:
        self._transport.check_may_wait()
        with self._room:
            if self._broken is not None:
                raise self._broken
            first = self._closed is None
            if self._closed is None:
                self._closed = new_future()
            closed = self._closed
        if first:
            self._transport.loop.call_soon_threadsafe(self._runner.post, CloseRequested())
        closed.result()

    def _pieces(self, payloads: pa.BinaryArray, call: Call, first_entry_id: int | None) -> list[Item]:
        """Cut into batches of about ``add_batch_bytes``, none of more than MAX_BATCH_ENTRIES."""
        ends = np.cumsum(payload_sizes(payloads) + ENTRY_OVERHEAD_BYTES)
        items, start, before = [], 0, 0
        while start < len(payloads):
            end = int(np.searchsorted(ends, before + self._batch_bytes, side="right"))
            end = min(max(end, start + 1), start + MAX_BATCH_ENTRIES)
            first = None if first_entry_id is None else first_entry_id + start
            piece, nbytes = payloads.slice(start, end - start), int(ends[end - 1]) - before
            items.append(Item(nbytes, piece, call=call, is_last=end == len(payloads), first_entry_id=first))
            start, before = end, int(ends[end - 1])
        return items

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """One call at a time puts its pieces; the others wait, in no particular order."""
        if not self._order.acquire(blocking=False):
            self._transport.check_may_wait()
            self._order.acquire()
        try:
            yield
        finally:
            self._order.release()

    def _put(self, items: list[Item]) -> None:
        self._transport.check_open()
        nbytes, first = sum(item.nbytes for item in items), items[0].first_entry_id
        with self._room:
            if not self._has_room(nbytes, first):
                self._transport.check_may_wait()
                self._room.wait_for(lambda: self._has_room(nbytes, first))
            self._held_bytes += nbytes
            self._items.extend(items)
            scheduled, self._pump_scheduled = self._pump_scheduled, True
        if not scheduled:
            self._transport.loop.call_soon_threadsafe(self._pump)

    def _has_room(self, nbytes: int, first: int | None) -> bool:
        """Whether an append may come in now; False: something is on its way that will make room. See the module's text."""
        if self._broken is not None or self._held_bytes == 0 or self._held_bytes + nbytes <= self._window_bytes:
            return True
        if first is None or self._items:
            return nbytes == 0
        moving_bytes = self._held_bytes - self._gapped_bytes
        if first <= self._next_entry_id:
            return moving_bytes == 0 or moving_bytes + nbytes <= self._window_bytes
        if moving_bytes == 0 and self._operation.error is None:
            ledger_id = self._operation.metadata.ledger_id
            raise AppendWindowFullError(ledger_id, first, self._next_entry_id, self._window_bytes)
        return False

    # --- on the event loop

    def _pump(self) -> None:
        """Hand over batches while there is something to send and few are on their way."""
        self._pump_scheduled = False
        while len(self._in_flight) - len(self._gapped) < MAX_REQUESTS:
            token = self._next_batch()
            if token is None:
                return
            error = self._broken or self._operation.error
            if error is not None:
                token.reject(error)
                self._release(token.nbytes)
            else:
                self._hand_over(token)

    def _hand_over(self, token: Token) -> None:
        self._in_flight[token] = None
        first = token.first_entry_id
        if token.force is not None:
            self._runner.post(ForceRequested(token))
        else:
            self._runner.post(Append(token.payloads(), token, first))
        if first is not None:
            self._note_gaps(token, first)

    def _note_gaps(self, token: Token, first: int) -> None:
        """Whether a batch stands still beyond a gap, and which ones it has set moving."""
        pushed = self._operation.last_add_pushed
        with self._room:
            if token in self._in_flight and first > pushed:
                heapq.heappush(self._gapped, (first, token.nbytes))
                self._gapped_bytes += token.nbytes
            while self._gapped and self._gapped[0][0] <= pushed:
                self._gapped_bytes -= heapq.heappop(self._gapped)[1]
            self._next_entry_id = pushed + 1
            self._room.notify_all()

    def _next_batch(self) -> Token | None:
        token = Token([])
        count = 0
        with self._room:
            while self._items and (not token.items or self._may_join(token, count, self._items[0])):
                item = self._items.popleft()
                token.items.append(item)
                token.nbytes += item.nbytes
                count += item.count
            if token.items and not self._items:
                self._room.notify_all()
        return token if token.items else None

    def _may_join(self, token: Token, count: int, item: Item) -> bool:
        """Whether an item may travel in a batch.

        With chosen ids only if none can be a duplicate: a batch is refused as a whole.
        """
        if token.force is not None or item.force is not None:
            return False
        if token.nbytes + item.nbytes > self._batch_bytes or count + item.count > MAX_BATCH_ENTRIES:
            return False
        first = token.first_entry_id
        if first is None:
            return True
        return not self._gapped and first == self._operation.last_add_pushed + 1 and item.first_entry_id == first + count

    def _on_command(self, command: Command) -> None:
        if isinstance(command, (Confirm, Reject)):
            token = _token(command.token)
            del self._in_flight[token]
            if isinstance(command, Confirm):
                token.confirm(command.first_entry_id)
            else:
                token.reject(command.error)
            self._forget_gaps_of_failed()
            self._schedule_pump()
        elif isinstance(command, Release):
            self._release(_token(command.token).nbytes)
        elif isinstance(command, Finish):
            self._finish(command.error)

    def _forget_gaps_of_failed(self) -> None:
        """After a failure nothing stands still: the state machine rejects all of it."""
        if self._operation.error is not None or self._broken is not None:
            with self._room:
                self._gapped.clear()
                self._gapped_bytes = 0
                self._room.notify_all()

    def _schedule_pump(self) -> None:
        with self._room:
            scheduled, self._pump_scheduled = self._pump_scheduled, True
        if not scheduled:
            self._transport.loop.call_soon(self._pump)

    def _release(self, nbytes: int) -> None:
        with self._room:
            self._held_bytes -= nbytes
            self._room.notify_all()

    def _finish(self, error: BookKeeperError | None) -> None:
        """The writer is closed; or it failed itself, and nothing that waits will ever be confirmed."""
        if isinstance(error, InternalError):
            with self._room:
                self._broken = error
                self._room.notify_all()
            for token in self._in_flight:
                token.reject(error)
            self._in_flight.clear()
            self._forget_gaps_of_failed()
            self._schedule_pump()
        with self._room:
            closed = self._closed
        if closed is not None and error is None:
            closed.set_result(None)
        elif closed is not None:
            closed.set_exception(error)


def _token(token: object) -> Token:
    assert isinstance(token, Token)
    return token
