"""The queue between an application and the state machine that adds its entries.

    calls ─► arrivals ─► line ─► queue ─► batches under way ─► confirmed

Calls arrive by one step (arrivals.py); all the rest happens on the client's event loop, without a lock. The window bounds the
bytes that are queued or unsettled. A call without room stands in line, first in, first out: a thread waits until it has left,
a coroutine until its entry is confirmed. What is withdrawn from the line was never made; of a thread's call of several batches,
those that had left are appended, and a coroutine's goes on whole. The wait ends, too, because a batch that is not confirmed in
time fails the writer and with it everything that waits; and after ``ClientConfig.append_wait_s``, whatever the reason.

Appends are cut and merged into batches. A batch is handed to the state machine while fewer than ``MAX_REQUESTS`` are under
way, a small batch only while none is. Appends that come meanwhile go together into the next batch, so batches grow with the
load. While bookies take long to confirm, fewer batches are under way (allowance.py).

If the application chooses the ids, an append beyond a gap is stuck until the gap is filled, and must not keep out the append
that fills it. So stuck bytes count as free for an append that fills the first gap; memory is bounded by two windows. An append
beyond a gap without room waits while anything is moving, and is refused when nothing is: then only the missing entry can make
room, and perhaps the waiting thread is the one that should append it.

    window 4, all of size 1: entries 1 2 3 4 are held, 0 is missing → 5 is refused, 0 is admitted and takes 1–4 along.

Ref: docs/rules.md, protocol rule 29.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from bk_spark.calls.call_future import CallFuture, Guard
from bk_spark.calls.exit_notice import Unconfirmed, tell_at_exit
from bk_spark.calls.forks import check_process, refusal
from bk_spark.calls.gate import Gate
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.runner import Runner
from bk_spark.client.driver.user_loop import LoopFuture, UserLoop, wake
from bk_spark.client.ledger.allowance import Allowance
from bk_spark.client.ledger.append_future import AppendFuture
from bk_spark.client.ledger.arrivals import Arrival, ArrivingCalls, Key
from bk_spark.client.ledger.payloads import CheckedPayloads
from bk_spark.client.ledger.write_items import Call, CallPart, Force, Item, Singles, Token
from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.config import KIB, MAX_BATCH_ENTRIES
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.entries.digest import DIGEST_BYTES
from bk_spark.errors import AppendTimeoutError, AppendWindowFullError, BookKeeperError, ConfigError, InternalError, State

COLUMNS_SHARE = 32
"""With its digests and offsets a batch may exceed ``add_batch_bytes`` by one part in this many: a megabyte of small entries
stays in one piece, and below the size that bookies always accept (open_calls.py, USUAL_ADD_BYTES)."""

OFFSET_BYTES = 4
"""The offset of one payload in the column of payloads."""

SMALL_BYTES = 64 * KIB
"""Less than this waits while anything is under way, and then goes out as one batch. A request costs its bookies a hundred
times as much as an entry in it, and while one is synced the next has to wait for that sync anyway. At 1,000 adds a second on
two cores an add takes a fifth of the time that it takes if many small batches are under way."""


@dataclass(slots=True)
class Standing:
    """A call in the line: what of it is still there."""

    items: deque[Item]
    since_ms: int
    """When it came, or when a part of it last found room."""
    entered: Callable[[], None] | None
    has_begun: bool = False

    @property
    def nbytes(self) -> int:
        return sum(item.nbytes for item in self.items)

    @property
    def is_taken(self) -> bool:
        """Whether all of it is in memory of our own."""
        return all(not isinstance(item, CallPart) or item.source is None for item in self.items)


class WriteQueue:
    """The queue of one writer. Where ``context.appends_stand_in_line``, no call waits for room."""

    def __init__(self, context: ClientContext, machine: AddEntries) -> None:
        self._context = context
        self._machine = machine
        self.written_for = f"ledger {machine.metadata.ledger_id}"
        """What the exit of the program names for what is not confirmed."""
        self._runner = Runner(context, machine.metadata, machine, self._on_command)
        self._batch_bytes = context.config.add_batch_bytes
        self._window_bytes = context.config.add_window_bytes
        self._may_wait = not context.appends_stand_in_line
        self._longest_wait_s = context.config.append_wait_s
        self._arrivals = ArrivingCalls(self._window_bytes, lambda: context.loop.call_soon_threadsafe(self.look), SMALL_BYTES)
        self._withdrawn: deque[Key] = deque()
        """Calls that whoever made them gave up."""
        self._done = Guard()
        """Of the futures of all single appends."""
        self._closings: dict[str, CallFuture] = {}
        """The result of the close, once it was requested."""
        self._line: OrderedDict[Key, Standing] = OrderedDict()
        """From here on, of the event loop: others only read it."""
        self._items: deque[Item] = deque()
        self._held_bytes = 0
        """Queued, or handed over and not settled."""
        self._gapped: list[tuple[int, int]] = []
        """A heap of the batches that are stuck beyond a gap: first entry id and bytes of each."""
        self._gapped_bytes = 0
        self._next_entry_id = 0
        """All lower ids have been handed over without a gap."""
        self._is_pump_due = False
        self._allowance = Allowance()
        self._in_flight: dict[Token, int] = {}
        """With the time when each was handed over."""
        self._forcing = 0
        """How many of ``_in_flight`` are forces; entries need not wait for them."""
        self._broken: BookKeeperError | None = None
        """The bug that ended the state machine, or the end of the client."""
        self._is_close_posted = False
        context.end_with_client(self)
        tell_at_exit(self)

    def write_for(self, log: str) -> None:
        """Serve the leader of a log, which appends on the event loop, and bounds by itself how long its callers wait."""
        self.written_for = f"log '{log}'"
        self._may_wait, self._longest_wait_s = False, math.inf

    # --- for threads of the application

    def append_one(self, payload: bytes, entry_id: int | None = None) -> Future[int]:
        future, nbytes = AppendFuture(self._done), len(payload) + ENTRY_OVERHEAD_BYTES
        self._context.check_open()
        if not self._arrivals.put(Arrival(nbytes, future, payload, entry_id), only_with_room=self._may_wait):
            self._put_and_wait(future, nbytes, payload, entry_id)
        return future

    def append_many(self, payloads: CheckedPayloads, first_entry_id: int | None = None) -> Future[tuple[int, int]]:
        """The entries of one call get consecutive ids: no append of another thread comes between its parts.

        If the application chooses the ids a call enters the window as a whole or not at all.
        """
        self._context.check_open()
        call = Call(CallFuture())
        parts = self._parts(payloads, call, first_entry_id)
        nbytes = sum(part.nbytes for part in parts)
        has_room = self._arrivals.has_room(nbytes)
        if not self._may_wait or has_room or first_entry_id is not None:
            for part in parts:
                part.take()
        if not self._may_wait or has_room:
            self._arrivals.put(Arrival(nbytes, call.future, parts, first_entry_id))
        else:
            self._put_and_wait(call.future, nbytes, parts, first_entry_id)
        return call.future

    def force(self) -> int:
        """Wait until all earlier appends are forced; returns the last add confirmed."""
        self._context.check_may_wait()
        return self.force_async().result()

    def force_async(self) -> Future[int]:
        """As ``force``, without a wait."""
        self._context.check_open()
        future = CallFuture()
        self._arrivals.put(Arrival(0, future, Force(future)))
        return future

    def close(self) -> None:
        self._context.check_may_wait()
        self.close_async().result()

    def close_async(self) -> Future[None]:
        """As ``close``, without a wait. Each call returns the future of the first."""
        check_process()
        if self._broken is not None:
            raise self._broken
        closed = self._closings.setdefault("close", CallFuture())
        self._arrivals.wake()
        return closed

    def _put_and_wait(self, future: Future[Any], nbytes: int, what: bytes | list[CallPart], first: int | None) -> None:
        """Make a call, and wait until it has left the line. Raises what refuses it there. An interrupt withdraws it."""
        self._context.check_may_wait()
        gate = Gate()
        try:
            self._arrivals.put(Arrival(nbytes, future, what, first, gate.open))
            self._arrivals.wake()
            gate.wait()
        except BaseException:
            self.withdraw(future)
            raise
        refused = future.exception() if future.done() else None
        if isinstance(refused, (AppendWindowFullError, AppendTimeoutError)):
            raise refused

    def _parts(self, payloads: CheckedPayloads, call: Call, first_entry_id: int | None) -> list[CallPart]:
        """Cut into batches of about ``add_batch_bytes``, none of more than MAX_BATCH_ENTRIES."""
        digest_type = self._machine.metadata.digest_type
        column_bytes = DIGEST_BYTES[digest_type] + OFFSET_BYTES
        ends = np.cumsum(payloads.sizes + column_bytes)
        parts: list[CallPart] = []
        start, before = 0, 0
        while start < len(payloads):
            end = int(np.searchsorted(ends, before + self._batch_bytes + self._batch_bytes // COLUMNS_SHARE, side="right"))
            end = min(max(end, start + 1), start + MAX_BATCH_ENTRIES)
            first = None if first_entry_id is None else first_entry_id + start
            nbytes = int(ends[end - 1]) - before + (end - start) * (ENTRY_OVERHEAD_BYTES - column_bytes)
            drafted_for = digest_type if 2 * nbytes > self._batch_bytes else None  # few of these leave room for others
            parts.append(CallPart(nbytes, payloads, start, end, call, end == len(payloads), drafted_for, first))
            start, before = end, int(ends[end - 1])
        return parts

    # --- for coroutines of the application

    def append_one_of(self, loop: UserLoop, payload: bytes, entry_id: int | None = None) -> LoopFuture[int]:
        """As ``append_one``, for a coroutine on ``loop``: many times cheaper than to wait there for a thread's future."""
        self._context.check_open()
        future = loop.new_future()
        self._arrivals.put(Arrival(len(payload) + ENTRY_OVERHEAD_BYTES, future, payload, entry_id, None, loop))
        return future

    @property
    def has_line(self) -> bool:
        """Whether calls stand in line. False: those of this thread do not."""
        return self._arrivals.is_over_full

    def entrance(self, loop: UserLoop, call: Key) -> LoopFuture[None]:
        """A future of ``loop`` that is done once a call has left the line."""
        entered: LoopFuture[None] = loop.new_future()
        self._context.loop.call_soon_threadsafe(self._tell_entrance, call, lambda: loop.tell(wake, entered))
        return entered

    def withdraw(self, call: Key) -> None:
        """Take a call out of the line, as if it had not been made. Does nothing once it has left the line."""
        self._withdrawn.append(call)
        self._arrivals.wake()

    # --- on the event loop: the line

    def look(self) -> None:
        """Take in what arrived, and hand over what may be."""
        self._arrivals.begin_to_look()
        self._pump()

    def _take_arrivals(self) -> None:
        while (arrival := self._arrivals.take()) is not None:
            if type(arrival.what) is bytes and not self._line and self._has_free_room(arrival.nbytes):
                self._queue_up_one(arrival, arrival.what)
            else:
                self._line[arrival.future] = Standing(arrival.items(), self._context.now_ms(), arrival.entered)
        while self._withdrawn:
            self._take_back(self._withdrawn.popleft())
        self._let_in()

    def _take_back(self, call: Key) -> None:
        standing = self._line.get(call)
        if standing is not None and not (standing.has_begun and standing.is_taken):
            self._arrivals.settled(standing.nbytes)
            self._leave(call, standing)

    def _let_in(self) -> None:
        """Move what has room from the line into the queue. Entries with chosen ids enter as a whole call."""
        while self._line:
            call, standing = next(iter(self._line.items()))
            items, first = standing.items, standing.items[0].first_entry_id
            together = list(items) if first is not None else [items[0]]
            nbytes = sum(item.nbytes for item in together)
            try:
                if not self._has_room(nbytes, first):
                    self._end_long_wait(call, standing)
                    return
            except AppendWindowFullError as refused:
                self._refuse(call, standing, refused)
                continue
            self._count_in(nbytes)
            for _ in together:
                self._queue_up(items.popleft())
            standing.has_begun, standing.since_ms = True, self._context.now_ms()
            if not items:
                self._leave(call, standing)

    def _end_long_wait(self, call: Key, standing: Standing) -> None:
        """Of the first in line, which came before all others. The beat of the client looks, too."""
        wait_s = self._longest_wait_s
        if self._context.now_ms() - standing.since_ms >= wait_s * 1000:
            self._refuse(call, standing, AppendTimeoutError(self._machine.metadata.ledger_id, wait_s, self._window_bytes))

    def _refuse(self, call: Key, standing: Standing, refused: BookKeeperError) -> None:
        standing.items[0].reject(refused)
        self._arrivals.settled(standing.nbytes)
        self._leave(call, standing)

    def _leave(self, call: Key, standing: Standing) -> None:
        del self._line[call]
        if standing.entered is not None:
            standing.entered()

    def _tell_entrance(self, call: Key, tell: Callable[[], None]) -> None:
        self.look()
        standing = self._line.get(call)
        if standing is None:
            tell()
        else:
            standing.entered = tell

    def _has_free_room(self, nbytes: int) -> bool:
        return self._broken is not None or self._held_bytes == 0 or self._held_bytes + nbytes <= self._window_bytes

    def _has_room(self, nbytes: int, first: int | None) -> bool:
        """Whether an append may enter now; False: something under way will make room. See the module's docstring."""
        if self._has_free_room(nbytes):
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

    # --- on the event loop: the queue

    @property
    def _queued_bytes(self) -> int:
        return self._arrivals.queued_bytes

    def _count_in(self, nbytes: int) -> None:
        self._held_bytes += nbytes
        self._arrivals.queued_bytes += nbytes

    def _queue_up_one(self, arrival: Arrival, payload: bytes) -> None:
        """What most calls are, at a third of the price of the line."""
        nbytes, first = arrival.nbytes, arrival.first_entry_id
        self._held_bytes += nbytes
        self._arrivals.queued_bytes += nbytes
        last = self._items[-1] if self._items and first is None else None
        if (
            type(last) is Singles
            and last.loop is arrival.loop
            and last.first_entry_id is None
            and last.nbytes + nbytes <= self._batch_bytes
            and len(last.payloads) < MAX_BATCH_ENTRIES
        ):
            last.nbytes += nbytes
            last.payloads.append(payload)
            last.futures.append(arrival.future)
        else:
            self._items.append(Singles(nbytes, [payload], [arrival.future], first, arrival.loop))
        if arrival.entered is not None:
            arrival.entered()

    def _queue_up(self, item: Item) -> None:
        """What one wake-up answers is one item: thousands of single appends may have stood in line."""
        last = self._last_singles(item.first_entry_id, item.loop) if isinstance(item, Singles) else None
        if isinstance(item, CallPart):
            item.take()
        if last is not None and isinstance(item, Singles) and self._fit_together(last, item.nbytes, item.count):
            last.join(item)
        else:
            self._items.append(item)

    def _last_singles(self, entry_id: int | None, loop: UserLoop | None) -> Singles | None:
        """The item that one more single append may join."""
        last = self._items[-1] if self._items and entry_id is None else None
        return last if isinstance(last, Singles) and last.loop is loop and last.first_entry_id is None else None

    def _pump(self) -> None:
        """Hand over batches while there is something to send and few batches are under way."""
        self._is_pump_due = False
        self._arrivals.is_attended = False  # first: whoever makes a call from here on wakes the event loop
        self._take_arrivals()
        while self._may_send() and (token := self._next_batch()) is not None:
            error = self._broken or self._machine.error
            if error is not None:
                token.reject(error)
                self._release(token.nbytes)
            else:
                self._hand_over(token)
            self._take_arrivals()
        self._arrivals.is_attended = len(self._in_flight) > len(self._gapped) + self._forcing
        if self._closings and not self._is_close_posted:
            self._is_close_posted = True
            self._runner.post(sm.CloseRequested())

    def _may_send(self) -> bool:
        moving = len(self._in_flight) - len(self._gapped) - self._forcing
        return moving < self._allowance.requests if self._arrivals.queued_bytes >= SMALL_BYTES else moving == 0

    def _hand_over(self, token: Token) -> None:
        self._in_flight[token] = self._context.now_ms()
        first = token.first_entry_id
        if token.is_force:
            self._forcing += 1
            self._runner.post(sm.ForceRequested(token))
        else:
            self._runner.post(token.append())
        if first is not None:
            self._note_gaps(token, first)

    def _note_gaps(self, token: Token, first: int) -> None:
        """Note whether a batch is stuck beyond a gap, and which stuck batches it has freed."""
        pushed = self._machine.last_add_pushed
        if token in self._in_flight and first > pushed:
            heapq.heappush(self._gapped, (first, token.nbytes))
            self._gapped_bytes += token.nbytes
        while self._gapped and self._gapped[0][0] <= pushed:
            self._gapped_bytes -= heapq.heappop(self._gapped)[1]
        self._next_entry_id = pushed + 1
        self._let_in()

    def _next_batch(self) -> Token | None:
        token = Token([])
        while self._items and (not token.items or self._may_join(token, self._items[0])):
            token.add(self._items.popleft())
        self._arrivals.queued_bytes -= token.nbytes
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
            self._gapped.clear()
            self._gapped_bytes = 0
            self._let_in()

    def _schedule_pump(self) -> None:
        if not self._is_pump_due:
            self._is_pump_due = True
            self._context.loop.call_soon(self._pump)

    def _release(self, nbytes: int) -> None:
        self._held_bytes -= nbytes
        self._arrivals.settled(nbytes)
        self._let_in()
        if self._items and not self._is_pump_due:
            self._schedule_pump()

    def _finish(self, error: BookKeeperError | None) -> None:
        """The writer is closed; or a bug ended the state machine, and nothing that waits will ever be confirmed."""
        if isinstance(error, InternalError):
            self._break(error)
        self._tell_closed(error)

    def _tell_closed(self, error: BookKeeperError | None) -> None:
        """Answer whoever closes. A close that comes once the writer is broken is refused at once."""
        closed = self._closings.get("close")
        if closed is not None and error is None:
            closed.set_result(None)
        elif closed is not None:
            closed.set_exception(error)

    def client_closed(self) -> None:
        """What waits, for room or for the entry before it too, would wait for ever. A writer that was closed stays so."""
        closed = self._closings.get("close")
        if self._broken is not None or (closed is not None and closed.done()):
            return
        self._runner.stop()
        remedy = "what was not confirmed may be in the ledger, or not: open it with a new BookKeeper"
        error = ConfigError("this client", State("closed"), remedy)
        self._break(error)
        self._tell_closed(error)

    def forked(self) -> None:
        """In a forked process, which has no event loop: nothing here is ever answered, unless it is now."""
        for item in [*self._items, *(item for standing in self._line.values() for item in standing.items)]:
            item.reject(refusal())
        for token in self._in_flight:
            token.reject(refusal())
        for arrival in self._arrivals:
            for item in arrival.items():
                item.reject(refusal())
        for closed in self._closings.values():
            if not closed.done():
                closed.set_exception(refusal())

    def _unconfirmed(self) -> Unconfirmed:
        """Entries without an answer; none once the client was closed. Looks in the order in which they move on."""
        if self._context.is_closed:
            return Unconfirmed(0, "entry", self.written_for)
        found = [item for arrival in self._arrivals for item in arrival.items()]
        found += [item for standing in list(self._line.values()) for item in list(standing.items)]
        found += list(self._items)
        found += [item for token in list(self._in_flight) for item in token.items]
        return Unconfirmed(sum(item.count for item in found), "entry", self.written_for)

    def _break(self, error: BookKeeperError) -> None:
        """Fail all that waits, and all that comes."""
        self._broken = error
        for token in self._in_flight:
            token.reject(error)
        self._in_flight.clear()
        self._forcing = 0
        self._forget_gaps_of_failed()
        self._schedule_pump()


def _token(token: object) -> Token:
    assert isinstance(token, Token)
    return token
