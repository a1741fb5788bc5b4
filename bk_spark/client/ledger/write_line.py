"""The queue of a writer whose appends come from coroutines: an append never waits for room, it stands in line.

The line is first in, first out. When something makes room, the client's event loop moves appends from the line into the queue.
So a coroutine suspends once for both: until its append has had room and is confirmed. What stands in line is what suspended
coroutines hold anyway, because a cancelled one takes its append out again: the window bounds what is kept beyond that. A call
of several batches of which one has left the line goes on whole; there is at most one, the first in line.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.user_loop import LoopFuture, UserLoop, wake
from bk_spark.client.ledger.append_future import AppendFuture
from bk_spark.client.ledger.payloads import CheckedPayloads
from bk_spark.client.ledger.write_items import Call, Force, Item, Singles, new_future
from bk_spark.client.ledger.write_queue import WriteQueue
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import AppendWindowFullError

Key = LoopFuture[Any] | Future[Any]
"""The future that a call is answered with names the call in the line."""


@dataclass(slots=True)
class _Standing:
    """A call in the line: what of it is still there."""

    items: deque[Item]
    tell_entered: Callable[[], None] | None = None
    """To be called once all of it is in the queue."""


class WriteLine(WriteQueue):
    """A WriteQueue whose methods never wait, except for a lock that is held for moments."""

    def __init__(self, context: ClientContext, machine: AddEntries) -> None:
        super().__init__(context, machine)
        self._line: OrderedDict[Key, _Standing] = OrderedDict()
        self._begun: Key | None = None
        """The call of which a part, and not yet all, has left the line."""

    def append_one(self, payload: bytes, entry_id: int | None = None) -> Future[int]:
        future = AppendFuture(self._done)
        self._stand(future, [Singles(len(payload) + ENTRY_OVERHEAD_BYTES, [payload], [future], entry_id)])
        return future

    def append_one_of(self, loop: UserLoop, payload: bytes, entry_id: int | None = None) -> LoopFuture[int]:
        """As ``append_one``, for a coroutine on ``loop``: many times cheaper than to wait there for a thread's future."""
        future, nbytes = loop.new_future(), len(payload) + ENTRY_OVERHEAD_BYTES
        with self._lock:
            self._context.check_open()
            if self._line or not self._has_room(nbytes, entry_id):
                self._line[future] = _Standing(deque([Singles(nbytes, [payload], [future], entry_id, loop)]))
                return future
            self._count_in(nbytes)
            last = self._last_singles(entry_id, loop)
            if last is not None and self._fit_together(last, nbytes, 1):
                last.add(nbytes, payload, future)
            else:
                self._items.append(Singles(nbytes, [payload], [future], entry_id, loop))
        return future

    def append_many(self, payloads: CheckedPayloads, first_entry_id: int | None = None) -> Future[tuple[int, int]]:
        call = Call(new_future())
        self._stand(call.future, list(self._pieces(payloads, call, first_entry_id)))
        return call.future

    @property
    def has_line(self) -> bool:
        """Whether calls stand in line. False: those of this thread do not."""
        return bool(self._line)

    def entrance(self, loop: UserLoop, call: Key) -> LoopFuture[None] | None:
        """A future of ``loop`` that is done once a call has left the line; None if it does not stand there."""
        with self._lock:
            standing = self._line.get(call)
            if standing is None:
                return None
            entered: LoopFuture[None] = loop.new_future()
            standing.tell_entered = lambda: loop.tell(wake, entered)
            return entered

    def withdraw(self, call: Key) -> None:
        """Take a call out of the line, as if it had not been made. Does nothing once any of it has left the line."""
        with self._lock:
            if call is not self._begun and self._line.pop(call, None) is not None:
                self._let_in()

    def _put(self, items: Sequence[Item]) -> None:
        for item in items:
            assert isinstance(item, Force)
            self._stand(item.future, [item])

    def _stand(self, call: Key, items: Iterable[Item]) -> None:
        with self._lock:
            self._context.check_open()
            self._line[call] = _Standing(deque(items))
            self._let_in()

    def _room_made(self) -> None:
        super()._room_made()
        self._let_in()

    def _let_in(self) -> None:
        """Move what has room from the line into the queue. Entries with chosen ids enter as a whole call."""
        while self._line:
            call, standing = next(iter(self._line.items()))
            items, first = standing.items, standing.items[0].first_entry_id
            together = list(items) if first is not None else [items[0]]
            nbytes = sum(item.nbytes for item in together)
            try:
                if not self._has_room(nbytes, first):
                    return
            except AppendWindowFullError as refusal:
                items[0].reject(refusal)
                self._leave(call, standing)
                continue
            self._count_in(nbytes)
            for _ in together:
                self._queue_up(items.popleft())
            self._begun = call
            if not items:
                self._leave(call, standing)

    def _leave(self, call: Key, standing: _Standing) -> None:
        del self._line[call]
        self._begun = None
        if standing.tell_entered is not None:
            standing.tell_entered()

    def _queue_up(self, item: Item) -> None:
        """What one wake-up answers is one item: thousands of single appends may have stood in line."""
        last = self._last_singles(item.first_entry_id, item.loop) if isinstance(item, Singles) else None
        if last is not None and isinstance(item, Singles) and self._fit_together(last, item.nbytes, item.count):
            last.join(item)
        else:
            self._items.append(item)

    def _last_singles(self, entry_id: int | None, loop: UserLoop | None) -> Singles | None:
        """The item that one more single append may join."""
        last = self._items[-1] if self._items and entry_id is None else None
        return last if isinstance(last, Singles) and last.loop is loop else None
