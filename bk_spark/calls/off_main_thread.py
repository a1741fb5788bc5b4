"""Makes calls in threads that interrupts never reach.

Python raises KeyboardInterrupt, and whatever handlers of signals raise, in the main thread alone, also in the middle of code
that is not made for it: kazoo's, which then leaves a lock behind that its own thread needs, or a constructor's that has
opened half of what it opens. So the main thread has such calls made, and waits for them with a ``CallFuture``. Interrupted,
it goes on at once; the call goes on to its end.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from bk_spark.calls.call_future import CallFuture
from bk_spark.calls.forks import check_process

_Result = TypeVar("_Result")


def off_main_thread(call: Callable[[], _Result]) -> _Result:
    """The result of a call, which the main thread does not make itself. Other threads do."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: _Result = in_thread(call).result()
    return result


def in_thread(call: Callable[[], object]) -> CallFuture:
    """The future of a call that a thread of its own makes. A thread costs some 30 µs, ZooKeeper's answer a millisecond.

    Raises ConfigError in a forked process.
    """
    check_process()
    future = CallFuture()
    _thread.start_new_thread(_run, (call, future))  # one step; ``Thread.start`` waits with a lock
    return future


def _run(call: Callable[[], object], future: CallFuture) -> None:
    try:
        result = call()
    except BaseException as problem:
        future.set_exception(problem)
    else:
        future.set_result(result)


def owned_result(call: Callable[[], _Result], release: Callable[[_Result], object]) -> _Result:
    """As ``off_main_thread``, of a call that opens something: if nobody gets it, it is released."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    opened = _Opened(call, release)
    try:
        opened.begin()
        result: _Result = opened.future.result()
    except BaseException:
        opened.drop()
        raise
    return result


class _Opened(Generic[_Result]):
    def __init__(self, call: Callable[[], _Result], release: Callable[[_Result], object]) -> None:
        self.future = CallFuture()
        self._call = call
        self._release = release

    def begin(self) -> None:
        check_process()
        _thread.start_new_thread(_run, (self._call, self.future))

    def drop(self) -> None:
        """Release what was opened, or will be."""
        self.future.add_done_callback(self._dropped)

    def _dropped(self, done: CallFuture) -> None:
        if done.exception() is None:
            _thread.start_new_thread(self._release, (done.result(),))
