"""Threads of applications in a simulated run. Only one of them, or the run itself, runs at any time.

They are real threads, whose locks, conditions and events are those of this module while a run lasts. Where a thread would
wait it hands back to the run; it goes on when the run wakes its process, at a moment that the run chooses. A thread of a
process that was killed never goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import _base as futures
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

from bk_spark.client.ledger import write_queue
from tests.simulation.world.client_process import ClientProcess

DELAYS_MS = (0, 0, 1, 30)
"""Until a thread that may go on does: the system has others to run."""

STUCK_S = 60.0
"""Of real time: far more than a thread takes from one wait to the next."""

PREEMPTED_PERCENT = 10
"""Of the times that a thread without a lock is about to take one, or has given one back."""


class SimulatedThread:
    """Runs ``work`` in a simulated process, from the process's next turn on."""

    def __init__(self, process: ClientProcess, work: Callable[[], None]) -> None:
        self._process = process
        self._work = work
        self._goes = threading.Semaphore(0)
        self._rests = threading.Semaphore(0)
        self._is_over = False
        self._problem: BaseException | None = None
        self.held = 0
        """How many locks it has."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.wake()

    def wake(self) -> None:
        """It may go on; perhaps it finds that it has to wait again."""
        if self._is_over:
            return
        choices = self._process.world.choices
        self._process.later(DELAYS_MS[choices.choose(len(DELAYS_MS), "thread")], self._step)

    def wait(self) -> None:
        """Called by the thread itself: others run until it is woken."""
        self._check()
        self._rests.release()
        self._goes.acquire()
        self._check()

    def be_preempted(self) -> None:
        """Perhaps others run now."""
        if not self._is_over and not self.held and self._process.world.choices.chance(PREEMPTED_PERCENT, "preempted"):
            self.wake()
            self.wait()

    @staticmethod
    def end(threads: Sequence[SimulatedThread]) -> None:
        """The run is over: let all its threads go. What comes of them is of no interest, and they choose nothing any more."""
        for thread in threads:
            thread._is_over = True
        for thread in threads:
            thread._goes.release()
            thread._thread.join()

    def _check(self) -> None:
        if self._is_over:
            raise _RunIsOverError

    def _step(self) -> None:
        if self._is_over:
            return
        self._goes.release()
        assert self._rests.acquire(timeout=STUCK_S), "a thread waits for what is not simulated"
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        _own.thread = self
        self._goes.acquire()
        try:
            if not self._is_over:
                self._work()
        except _RunIsOverError:
            return
        except BaseException as problem:
            self._problem = problem
        self._is_over = True
        self._rests.release()


class _RunIsOverError(BaseException):
    """Nothing shipped catches it."""


_own = threading.local()


def _own_thread() -> SimulatedThread | None:
    """None on the run's own."""
    return getattr(_own, "thread", None)


def is_simulated() -> bool:
    """Whether this is a thread of an application."""
    return _own_thread() is not None


def _current() -> SimulatedThread:
    thread = _own_thread()
    assert thread is not None, "the event loop would wait for a thread"
    return thread


class SimulatedLock:
    """Not reentrant; ``threading.Lock``."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: list[SimulatedThread] = []

    def acquire(self, blocking: bool = True) -> bool:
        thread = _own_thread()
        if thread is not None:
            thread.be_preempted()
        while self._is_held:
            if not blocking:
                return False
            self._waiting.append(_current())
            _current().wait()
        self._is_held = True
        if thread is not None:
            thread.held += 1
        return True

    def release(self) -> None:
        self._is_held = False
        thread = _own_thread()
        if thread is not None:
            thread.held -= 1
            thread.be_preempted()
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            thread.wake()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedCondition:
    """``threading.Condition``. Its lock is never taken twice by one thread here."""

    def __init__(self, lock: SimulatedLock | None = None) -> None:
        self._lock = lock or SimulatedLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: list[SimulatedThread] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is notified."""
        assert timeout is None, "nothing that runs here waits for so long alone"
        thread = _current()
        self._waiting.append(thread)
        self.release()
        while thread in self._waiting:
            thread.wait()
        self.acquire()
        return True

    def wait_for(self, predicate: Callable[[], bool]) -> bool:
        while not predicate():
            self.wait()
        return True

    def notify(self, count: int = 1) -> None:
        notified, self._waiting = self._waiting[:count], self._waiting[count:]
        for thread in notified:
            thread.wake()

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Event:
    """``threading.Event``."""

    def __init__(self) -> None:
        self._is_set = False
        self._condition = SimulatedCondition()

    def set(self) -> None:
        with self._condition:
            self._is_set = True
            self._condition.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        with self._condition:
            return self._is_set or self._condition.wait(timeout)


@contextmanager
def installed() -> Iterator[None]:
    """While it lasts, what applications' threads wait for is of this module."""
    simulated = SimpleNamespace(Lock=SimulatedLock, Condition=SimulatedCondition, Event=_Event)
    with patch.object(futures, "threading", simulated), patch.object(write_queue, "threading", simulated):
        yield
