"""How a coroutine of the application waits for a client that works on other threads.

Whoever waits is woken once by ``UserLoop.tell``. A wait that is cancelled cancels the work where that can be: a state machine
stops, a call that has no thread yet is dropped. A call that has one goes on to its end, and its result is dropped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

from bk_spark.calls.forks import check_process, end_in_child, refusal
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.user_loop import LoopFuture, UserLoop, give_outcome, wake
from bk_spark.client.ledger.write_items import new_future
from bk_spark.errors import ConfigError, State

CALL_THREADS = 8
"""Threads for calls that block, started when they are first needed: as many as a client's state machines have for the metadata
store, which syncs concurrent writes together. They are threads of their own, because a call may wait for a state machine, which
may need one of the others."""

LONG_CALL_THREADS = 4
"""Threads for calls that take as long as their data are long: beside the others, so that no short call waits for them. Two keep
two cores encoding while two wait for their bookies."""

MOST_WITHOUT_TURN = 256
"""Appends that find room and so do not suspend, one after the other; then others get a turn of the event loop. So many small
appends take about a millisecond, and the turn a few hundredths of that."""

CheckWanted: TypeAlias = Callable[[], None]
"""Raises an error in a call that nobody waits for any more."""

_Result = TypeVar("_Result")


class Calls:
    """The calls of one client. Only the event loop on which it was made may use it."""

    def __init__(self) -> None:
        self.loop = UserLoop()
        self._threads = ThreadPoolExecutor(CALL_THREADS, thread_name_prefix="bk_spark-call")
        self._long_threads = ThreadPoolExecutor(LONG_CALL_THREADS, thread_name_prefix="bk_spark-long-call")
        self._waiting: set[LoopFuture[Any]] = set()
        self._is_ended = False
        self._without_turn = 0
        """Appends since the last of those turns."""
        end_in_child(self)

    def check(self) -> None:
        """Raise ConfigError on another event loop, after ``end``, and in a forked process."""
        check_process()
        self.loop.check()
        if self._is_ended:
            raise _closed()

    async def in_thread(self, call: Callable[[], _Result]) -> _Result:
        """The result of a call that blocks. It waits for a thread while all are busy."""
        self.check()
        return await self.outcome(self._threads.submit(call))

    async def in_long_thread(self, call: Callable[[CheckWanted], _Result]) -> _Result:
        """The result of a call that takes long. It is to call what it is given now and then: that ends it once nobody waits."""
        self.check()
        dropped = threading.Event()

        def check_wanted() -> None:
            if dropped.is_set():
                raise CancelledError

        try:
            return await self.outcome(self._long_threads.submit(lambda: call(check_wanted)))
        finally:
            dropped.set()

    async def on_client(self, context: ClientContext, work: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of a coroutine that runs on the client's event loop."""
        try:
            self.check()
        except ConfigError:
            work.close()
            raise
        return await self.outcome(context.submit(work))

    async def outcome(self, work: Future[_Result]) -> _Result:
        """The result of work that has begun. If the wait ends before the work, the work is cancelled."""
        try:
            return await self.wait(self.future_of(work))
        finally:
            work.cancel()

    def future_of(self, work: Future[_Result]) -> LoopFuture[_Result]:
        """A future of this loop with the outcome of work that has begun."""
        future: LoopFuture[_Result] = self.loop.new_future()
        work.add_done_callback(lambda done: self.loop.tell(give_outcome, future, done))
        return future

    async def wait(self, waiter: LoopFuture[_Result]) -> _Result:
        """The result of a future of this loop; the client's end ends the wait with ConfigError."""
        self._waiting.add(waiter)
        try:
            return await waiter
        finally:
            self._waiting.discard(waiter)

    async def wait_up_to(self, waiter: LoopFuture[None], longest_s: float) -> None:
        """Wait for a future of this loop, which is made done after ``longest_s``."""
        timer = asyncio.get_running_loop().call_later(longest_s, wake, waiter)
        try:
            await self.wait(waiter)
        finally:
            timer.cancel()

    def is_turn_due(self) -> bool:
        """Count one more append that does not suspend. True: it should, for one turn of the event loop."""
        self._without_turn += 1
        if self._without_turn < MOST_WITHOUT_TURN:
            return False
        self._without_turn = 0
        return True

    def forked(self) -> None:
        """This is a forked process: fail whoever waits."""
        for waiter in list(self._waiting):
            if not waiter.done():
                waiter.set_exception(refusal())

    def end(self) -> None:
        """Fail whoever waits, and take no more calls."""
        self._is_ended = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(_closed())
        for threads in (self._threads, self._long_threads):
            threads.shutdown(wait=False)  # each wait that ends drops its call, if that has no thread yet


def in_own_thread(call: Callable[[], _Result]) -> Future[_Result]:
    """Make a call in a thread that ends with it, and that nobody can cancel: what opens or closes a client, not each call."""
    future: Future[_Result] = new_future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as problem:
            future.set_exception(problem)

    threading.Thread(target=run, name="bk_spark-client", daemon=True).start()
    return future


def _closed() -> ConfigError:
    return ConfigError(
        "this client", State("closed"), "its handles are of no use any more: open a new one with bk_spark.aio.connect"
    )
