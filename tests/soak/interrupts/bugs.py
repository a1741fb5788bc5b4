"""Deliberate bugs of what holds under interrupts and forks: the net is to find each of them.

The steps of this file are interrupted as those of the shipped code are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from bk_spark import bookkeeper
from bk_spark.aio.append_line import AppendLine
from bk_spark.bookkeeper import BookKeeper
from bk_spark.calls.call_future import CallFuture
from bk_spark.calls.off_main_thread import in_thread
from bk_spark.calls.resumed_iterator import ResumedIterator
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.event_loop import BEAT_MS
from bk_spark.client.ledger.arrivals import Arrival, ArrivingCalls
from bk_spark.client.ledger.write_queue import WriteQueue
from bk_spark.log.leader.log_append import LogAppend
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from bk_spark.log.leader.roll_log import RollLog
from bk_spark.log.rows.row_writer import RowWriteHandle
from bk_spark.log.rows.side_by_side import SideBySide

Patch = Callable[[Any, str, Any], object]
"""``setattr``, or that of a test that takes it back."""


@dataclass(frozen=True, slots=True)
class Bug:
    what: str
    plant: Callable[[Patch], None]


def _counted_before_it_is_made(patch: Patch) -> None:
    known = ArrivingCalls.put

    def put(self: ArrivingCalls, arrival: Arrival, *, only_with_room: bool = False) -> bool:
        self._settled_bytes -= arrival.nbytes
        made = known(self, arrival, only_with_room=only_with_room)
        self._settled_bytes += arrival.nbytes
        return made

    patch(ArrivingCalls, "put", put)


def _room_is_kept(patch: Patch) -> None:
    def take_back(self: WriteQueue, call: Any) -> None:
        standing = self._line.get(call)
        if standing is not None:
            self._leave(call, standing)

    patch(WriteQueue, "_take_back", take_back)


def _room_is_given_back_twice(patch: Patch) -> None:
    patch(RollLog, "withdraw", lambda self, append, nbytes: True)
    known = LogWriteHandle._refuse

    def refuse(self: LogWriteHandle, arrival: Arrival, error: Any) -> None:
        if arrival.future.done():
            self._calls.settled(arrival.nbytes)
        else:
            known(self, arrival, error)

    patch(LogWriteHandle, "_refuse", refuse)


def _lock_is_left_held(patch: Patch) -> None:
    lock, known = threading.Lock(), LogWriteHandle._append

    def append(self: LogWriteHandle, append: LogAppend) -> Future[Any]:
        assert lock.acquire(timeout=2), "the lock is held"
        future = known(self, append)
        lock.release()
        return future

    patch(LogWriteHandle, "_append", append)


def _told_to_a_later_call(patch: Patch) -> None:
    known = RowWriteHandle.append

    def append(self: RowWriteHandle, rows: Any) -> Any:
        try:
            return known(self, rows)
        except BaseException as problem:
            self._untold = problem
            raise

    patch(RowWriteHandle, "append", append)


def _close_keeps_the_interrupt(patch: Patch) -> None:
    def close(self: WriteQueue) -> None:
        closed = self._closings.setdefault("close", CallFuture())
        try:
            self._arrivals.wake()
            closed.result()
        except BaseException as problem:
            closed.set_exception(problem)
            raise

    patch(WriteQueue, "close", close)


def _close_in_the_caller_s_thread(patch: Patch) -> None:
    def close(self: LogWriteHandle) -> None:
        is_first = "close" not in self._closings
        closed = self._closings.setdefault("close", CallFuture())
        if is_first:
            self._is_ending = True
            self._end(closed)
        closed.result()

    patch(LogWriteHandle, "close", close)


def _no_beat(patch: Patch) -> None:
    def beat(self: ClientContext) -> None:
        if not self._closed:
            self.now_ms()
            self.loop.call_later(BEAT_MS / 1000, self._beat)

    patch(ClientContext, "_beat", beat)


def _construction_is_not_dropped(patch: Patch) -> None:
    patch(bookkeeper, "owned_result", lambda call, release: in_thread(call).result())
    _unreachable_client_stays_open(patch)


def _unreachable_client_stays_open(patch: Patch) -> None:
    patch(bookkeeper._Opened, "__del__", lambda self: None)


def _close_in_the_main_thread(patch: Patch) -> None:
    def close(self: BookKeeper) -> None:
        if not self.context.is_closed:
            self.context.close()
            self.metadata_store.close()

    patch(BookKeeper, "close", close)


def _entry_is_dropped(patch: Patch) -> None:
    """What had no room when it came is forgotten with the call that is given up."""

    def take_back(self: WriteQueue, call: Any) -> None:
        if self._line.pop(call, None) is None and self._items:
            dropped = self._items.pop()
            self._held_bytes -= dropped.nbytes
            self._arrivals.queued_bytes -= dropped.nbytes
            self._arrivals.settled(dropped.nbytes)
            dropped.confirm(self._machine.last_add_pushed + 1)

    patch(WriteQueue, "_take_back", take_back)


def _reader_has_ended(patch: Patch) -> None:
    """As a generator does."""
    known = ResumedIterator.__next__

    def step(self: ResumedIterator[Any, Any]) -> Any:
        self._has_left = False
        return known(self)

    patch(ResumedIterator, "__next__", step)


def _reader_moves_before_it_gives(patch: Patch) -> None:
    def step(self: ResumedIterator[Any, Any]) -> Any:
        if self._has_left:
            self._running = self._begin(self.place)
        self._has_left = True
        given = next(self._running, None)
        if given is None:
            self._has_left = False
            raise StopIteration
        item, self.place = given
        time.sleep(0)
        self._has_left = False
        return item

    patch(ResumedIterator, "__next__", step)


def _reader_s_threads_stay(patch: Patch) -> None:
    patch(SideBySide, "_end", lambda self: None)


def _forked_futures_wait(patch: Patch) -> None:
    patch(CallFuture, "_see_fork", lambda self: None)
    patch(WriteQueue, "forked", lambda self: None)


def _forked_calls_go_on(patch: Patch) -> None:
    def check_open(self: ClientContext) -> None:
        time.sleep(0)

    patch(ClientContext, "check_open", check_open)
    patch(ClientContext, "forked", lambda self: None)


def _cancelled_append_keeps_its_room(patch: Patch) -> None:
    known = AppendLine._done

    def done(self: AppendLine, append: Any, nbytes: int, outcome: Any) -> None:
        known(self, append, 0 if append.cancelled() else nbytes, outcome)

    patch(AppendLine, "_done", done)


BUGS = {
    "counted-before": Bug("room is taken before the call is made", _counted_before_it_is_made),
    "room-kept": Bug("an append that is withdrawn keeps its room", _room_is_kept),
    "room-twice": Bug("an append that is withdrawn too late gives its room back twice", _room_is_given_back_twice),
    "lock-held": Bug("an append to a log takes a lock", _lock_is_left_held),
    "told-later": Bug("the interrupt of a row writer's append is told to a later call", _told_to_a_later_call),
    "close-keeps": Bug("the interrupt of a close is told to every later close", _close_keeps_the_interrupt),
    "close-in-caller": Bug("a log is closed in the thread of the caller", _close_in_the_caller_s_thread),
    "no-beat": Bug("a wake-up that an interrupt swallowed is not made good", _no_beat),
    "construction": Bug("what an interrupted construction opens stays open", _construction_is_not_dropped),
    "unreachable": Bug("a client that nobody got stays open", _unreachable_client_stays_open),
    "close-in-main": Bug("a client is closed in the main thread", _close_in_the_main_thread),
    "entry-dropped": Bug("a withdrawn append takes another entry along", _entry_is_dropped),
    "reader-ended": Bug("a reader that was interrupted has ended", _reader_has_ended),
    "reader-moves": Bug("a reader's place moves before the entry is given", _reader_moves_before_it_gives),
    "reader-threads": Bug("the threads of a reader that is left stay", _reader_s_threads_stay),
    "fork-waits": Bug("futures wait in a forked process", _forked_futures_wait),
    "fork-goes-on": Bug("calls go on in a forked process", _forked_calls_go_on),
    "cancelled-room": Bug("a cancelled append of a coroutine keeps its room", _cancelled_append_keeps_its_room),
}
