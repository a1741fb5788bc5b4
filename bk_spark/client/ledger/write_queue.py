"""The queue between an application's threads and the state machine that adds their entries.

Appends are cut and merged into batches. A batch is handed to the state machine while fewer than ``MAX_REQUESTS`` are under
way, a small batch only while none is. Appends that come meanwhile go together into the next batch, so batches grow with the
load. While bookies take long to confirm, fewer batches are under way (``Allowance``). The window bounds the bytes that are
queued or unsettled; an append waits for room. This wait ends, too, because a batch that is not confirmed in time fails the
writer and with it everything that waits. Appends of coroutines stand in line instead (write_line.py).

If the application chooses the ids, an append beyond a gap is stuck until the gap is filled, and must not keep out the append
that fills it. So stuck bytes count as free for an append that fills the first gap; memory is bounded by two windows. An append
beyond a gap without room waits while anything is moving, and is refused when nothing is: then only the missing entry can make
room, and perhaps the waiting thread is the one that should append it.

    window 4, all of size 1: entries 1 2 3 4 are held, 0 is missing → 5 is refused, 0 is admitted and takes 1–4 along.

Ref: docs/rules.md, protocol rule 29.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import numpy as np

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.runner import Runner
from bk_spark.client.ledger.append_future import AppendFuture
from bk_spark.client.ledger.payloads import CheckedPayloads
from bk_spark.client.ledger.write_items import Call, CallPart, Force, Item, Singles, Token, new_future
from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.config import KIB, MAX_BATCH_ENTRIES
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.entries.digest import DIGEST_BYTES
from bk_spark.errors import AppendWindowFullError, BookKeeperError, ConfigError, InternalError

MAX_REQUESTS = 16
"""Batches under way per writer: enough to cover the latency of group commit."""

FIRST_REQUESTS = 4
"""Batches under way before one was confirmed. As each that is confirmed in time adds one, a writer has MAX_REQUESTS after two
round trips; and 200 writers that begin at once on slow bookies have 800 MiB under way, not 3 GiB."""

SLOW_MS = 2_000
"""A batch that takes longer to be confirmed shows that bookies are overloaded: a fifteenth of the time after which it fails its
writer, and forty times what a batch takes at a bookie that is busy with large adds."""

COLUMNS_SHARE = 32
"""With its digests and offsets a batch may exceed ``add_batch_bytes`` by one part in this many: a megabyte of small entries
stays in one piece, and below the size that bookies always accept (open_calls.py, USUAL_ADD_BYTES)."""

OFFSET_BYTES = 4
"""The offset of one payload in the column of payloads."""

SMALL_BYTES = 64 * KIB
"""Less than this waits while anything is under way, and then goes out as one batch. A request costs its bookies a hundred
times as much as an entry in it, and while one is synced the next has to wait for that sync anyway. At 1,000 adds a second on
two cores an add takes a fifth of the time that it takes if many small batches are under way."""


class Allowance:
    """How many batches of one writer may be under way: FIRST_REQUESTS to begin with.

    Each batch that is confirmed slowly halves the number, down to one; each that is confirmed in time adds one, up to
    MAX_REQUESTS. Of 200 writers that each have 16 MiB under way the last adds would wait for gigabytes, and time out. Batches
    that were handed over before the last cut say nothing about it.
    """

    def __init__(self) -> None:
        self.requests = FIRST_REQUESTS
        self._cut_ms = 0

    def confirmed(self, handed_over_ms: int, now_ms: int) -> None:
        """Take in how long a batch took."""
        if now_ms - handed_over_ms <= SLOW_MS:
            self.requests = min(self.requests + 1, MAX_REQUESTS)
        elif handed_over_ms >= self._cut_ms:
            self.requests, self._cut_ms = max(self.requests // 2, 1), now_ms


class WriteQueue:
    """The queue of one writer."""

    def __init__(self, context: ClientContext, machine: AddEntries) -> None:
        self._context = context
        self._machine = machine
        self._runner = Runner(context, machine.metadata, machine, self._on_command)
        self._batch_bytes = context.config.add_batch_bytes
        self._window_bytes = context.config.add_window_bytes
        self._order = threading.Lock()
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._done = threading.Condition()
        """Of the futures of all single appends."""
        self._items: deque[Item] = deque()
        self._queued_bytes = 0
        self._held_bytes = 0
        self._gapped: list[tuple[int, int]] = []
        """A heap of the batches that are stuck beyond a gap: first entry id and bytes of each."""
        self._gapped_bytes = 0
        self._next_entry_id = 0
        """All lower ids have been handed over without a gap."""
        self._is_pumped = False
        """Whether the event loop will look at the queue by itself: at once, or when something under way is confirmed."""
        self._is_pump_due = False
        self._allowance = Allowance()
        self._in_flight: dict[Token, int] = {}
        """With the time when each was handed over."""
        self._forcing = 0
        """How many of ``_in_flight`` are forces; entries need not wait for them."""
        self._broken: BookKeeperError | None = None
        """The bug that ended the state machine, or the end of the client."""
        self._closed: Future[None] | None = None
        """The result of the close, once it was requested."""
        context.end_with_client(self)

    def append_one(self, payload: bytes, entry_id: int | None = None) -> Future[int]:
        future, nbytes = AppendFuture(self._done), len(payload) + ENTRY_OVERHEAD_BYTES
        self._enter_order()
        try:
            with self._lock:
                self._admit(nbytes, entry_id)
                last = self._items[-1] if self._items and entry_id is None else None
                if isinstance(last, Singles) and self._fit_together(last, nbytes, 1):
                    last.add(nbytes, payload, future)
                else:
                    self._items.append(Singles(nbytes, [payload], [future], entry_id))
        finally:
            self._order.release()
        return future

    def append_many(self, payloads: CheckedPayloads, first_entry_id: int | None = None) -> Future[tuple[int, int]]:
        """The entries of one call get consecutive ids: no append of another thread comes between its pieces.

        If the application chooses the ids a call enters the window as a whole or not at all.
        """
        call = Call(new_future())
        pieces = self._pieces(payloads, call, first_entry_id)
        self._enter_order()
        try:
            if first_entry_id is not None:
                self._put(list(pieces))
            else:
                for piece in pieces:  # copied one by one, each as it comes to wait for room
                    self._put([piece])
        finally:
            self._order.release()
        return call.future

    def force(self) -> int:
        """Wait until all earlier appends are forced; returns the last add confirmed."""
        self._context.check_may_wait()
        return self.force_async().result()

    def force_async(self) -> Future[int]:
        """As ``force``, without a wait."""
        future: Future[int] = new_future()
        self._put([Force(future)])
        return future

    def close(self) -> None:
        self._context.check_may_wait()
        self.close_async().result()

    def close_async(self) -> Future[None]:
        """As ``close``, without a wait. Each call returns the future of the first."""
        with self._room:
            if self._broken is not None:
                raise self._broken
            first = self._closed is None
            if self._closed is None:
                self._closed = new_future()
            closed = self._closed
        if first:
            self._context.loop.call_soon_threadsafe(self._runner.post, sm.CloseRequested())
        return closed

    def _pieces(self, payloads: CheckedPayloads, call: Call, first_entry_id: int | None) -> Iterator[CallPart]:
        """Cut into batches of about ``add_batch_bytes``, none of more than MAX_BATCH_ENTRIES, in memory of our own."""
        column_bytes = DIGEST_BYTES[self._machine.metadata.digest_type] + OFFSET_BYTES
        ends = np.cumsum(payloads.sizes + column_bytes)
        start, before = 0, 0
        while start < len(payloads):
            end = int(np.searchsorted(ends, before + self._batch_bytes + self._batch_bytes // COLUMNS_SHARE, side="right"))
            end = min(max(end, start + 1), start + MAX_BATCH_ENTRIES)
            first = None if first_entry_id is None else first_entry_id + start
            nbytes = int(ends[end - 1]) - before + (end - start) * (ENTRY_OVERHEAD_BYTES - column_bytes)
            yield CallPart(nbytes, payloads.part(start, end), call, end == len(payloads), first)
            start, before = end, int(ends[end - 1])

    def _enter_order(self) -> None:
        """Let one call at a time put its pieces; the others wait, in no particular order."""
        if not self._order.acquire(blocking=False):
            self._context.check_may_wait()
            self._order.acquire()

    def _put(self, items: Sequence[Item]) -> None:
        with self._lock:
            self._admit(sum(item.nbytes for item in items), items[0].first_entry_id)
            self._items.extend(items)

    def _admit(self, nbytes: int, first: int | None) -> None:
        """Wait for room, and count in what is queued before the lock is released, when the event loop will look for it."""
        self._context.check_open()
        if not self._has_room(nbytes, first):
            self._context.check_may_wait()
            self._room.wait_for(lambda: self._has_room(nbytes, first))
        self._count_in(nbytes)

    def _count_in(self, nbytes: int) -> None:
        """Whoever holds the lock puts these bytes into the queue before it is released."""
        must_pump = not self._is_pumped or self._queued_bytes < SMALL_BYTES <= self._queued_bytes + nbytes
        self._held_bytes += nbytes
        self._queued_bytes += nbytes
        self._is_pumped = True
        if must_pump:
            self._context.loop.call_soon_threadsafe(self._pump)

    def _has_room(self, nbytes: int, first: int | None) -> bool:
        """Whether an append may enter now; False: something under way will make room. See the module's docstring."""
        if self._broken is not None or self._held_bytes == 0 or self._held_bytes + nbytes <= self._window_bytes:
            return True
        if first is None or self._items:
            return nbytes == 0
        moving_bytes = self._held_bytes - self._gapped_bytes
        if first <= self._next_entry_id:
            return moving_bytes == 0 or moving_bytes + nbytes <= self._window_bytes
        if moving_bytes == 0 and self._machine.error is None:
            ledger_id = self._machine.metadata.ledger_id
            raise AppendWindowFullError(ledger_id, first, self._next_entry_id, self._window_bytes)
        return False

    def _room_made(self) -> None:
        """There may be room for appends that wait. Called with the lock held."""
        self._room.notify_all()

    # --- on the event loop

    def _pump(self) -> None:
        """Hand over batches while there is something to send and few batches are under way."""
        self._is_pump_due = False
        while self._may_send():
            token = self._next_batch()
            if token is None:
                return
            error = self._broken or self._machine.error
            if error is not None:
                token.reject(error)
                self._release(token.nbytes)
            else:
                self._hand_over(token)

    def _may_send(self) -> bool:
        moving = len(self._in_flight) - len(self._gapped) - self._forcing
        return moving < self._allowance.requests if self._queued_bytes >= SMALL_BYTES else moving == 0

    def _hand_over(self, token: Token) -> None:
        self._in_flight[token] = self._context.now_ms()
        first = token.first_entry_id
        if token.is_force:
            self._forcing += 1
            self._runner.post(sm.ForceRequested(token))
        else:
            self._runner.post(sm.Append(token.payloads(), token, first))
        if first is not None:
            self._note_gaps(token, first)

    def _note_gaps(self, token: Token, first: int) -> None:
        """Note whether a batch is stuck beyond a gap, and which stuck batches it has freed."""
        pushed = self._machine.last_add_pushed
        with self._room:
            if token in self._in_flight and first > pushed:
                heapq.heappush(self._gapped, (first, token.nbytes))
                self._gapped_bytes += token.nbytes
            while self._gapped and self._gapped[0][0] <= pushed:
                self._gapped_bytes -= heapq.heappop(self._gapped)[1]
            self._next_entry_id = pushed + 1
            self._room_made()

    def _next_batch(self) -> Token | None:
        token = Token([])
        with self._room:
            while self._items and (not token.items or self._may_join(token, self._items[0])):
                token.add(self._items.popleft())
            self._queued_bytes -= token.nbytes
            self._is_pumped = bool(token.items)
            if token.items and not self._items:
                self._room_made()
        return token if token.items else None

    def _fit_together(self, batch: Singles | Token, nbytes: int, count: int) -> bool:
        return batch.nbytes + nbytes <= self._batch_bytes and batch.count + count <= MAX_BATCH_ENTRIES

    def _may_join(self, token: Token, item: Item) -> bool:
        """Whether an item may join a batch. With chosen ids only if it is no duplicate: a batch is refused as a whole."""
        if token.is_force or isinstance(item, Force) or not self._fit_together(token, item.nbytes, item.count):
            return False
        first = token.first_entry_id
        if first is None:
            return True
        return not self._gapped and first == self._machine.last_add_pushed + 1 and item.first_entry_id == first + token.count

    def _on_command(self, command: sm.Command) -> None:
        if isinstance(command, (sm.Confirm, sm.Reject)):
            token = _token(command.token)
            handed_over_ms = self._in_flight.pop(token)
            self._forcing -= token.is_force
            if isinstance(command, sm.Confirm):
                now_ms = self._context.now_ms()  # an entry with a chosen id may have waited for the application to fill a gap
                self._allowance.confirmed(handed_over_ms if token.first_entry_id is None else now_ms, now_ms)
                token.confirm(command.first_entry_id)
            else:
                token.reject(command.error)
            self._forget_gaps_of_failed()
            self._schedule_pump()
        elif isinstance(command, sm.Release):
            self._release(_token(command.token).nbytes)
        elif isinstance(command, sm.Finish):
            self._finish(command.error)

    def _forget_gaps_of_failed(self) -> None:
        """After a failure nothing is stuck: the state machine rejects everything."""
        if self._machine.error is not None or self._broken is not None:
            with self._room:
                self._gapped.clear()
                self._gapped_bytes = 0
                self._room_made()

    def _schedule_pump(self) -> None:
        if not self._is_pump_due:
            self._is_pump_due = True
            self._context.loop.call_soon(self._pump)

    def _release(self, nbytes: int) -> None:
        with self._room:
            self._held_bytes -= nbytes
            self._room_made()

    def _finish(self, error: BookKeeperError | None) -> None:
        """The writer is closed; or a bug ended the state machine, and nothing that waits will ever be confirmed."""
        if isinstance(error, InternalError):
            self._break(error)
        self._tell_closed(error)

    def _tell_closed(self, error: BookKeeperError | None) -> None:
        """Answer whoever closes. A close that comes once the writer is broken is refused at once."""
        with self._room:
            closed = self._closed
        if closed is not None and error is None:
            closed.set_result(None)
        elif closed is not None:
            closed.set_exception(error)

    def client_closed(self) -> None:
        """What waits, for room or for the entry before it too, would wait for ever. A writer that was closed stays so."""
        with self._room:
            is_ended = self._broken is not None or (self._closed is not None and self._closed.done())
        if is_ended:
            return
        self._runner.stop()
        remedy = "what was not confirmed may be in the ledger, or not: open it with a new BookKeeper"
        error = ConfigError("this client", "closed", remedy)
        self._break(error)
        self._tell_closed(error)

    def _break(self, error: BookKeeperError) -> None:
        """Fail all that waits, and all that comes."""
        with self._room:
            self._broken = error
            self._room_made()
        for token in self._in_flight:
            token.reject(error)
        self._in_flight.clear()
        self._forcing = 0
        self._forget_gaps_of_failed()
        self._schedule_pump()


def _token(token: object) -> Token:
    assert isinstance(token, Token)
    return token
