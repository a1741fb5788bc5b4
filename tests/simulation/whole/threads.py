"""Threads of applications in a simulated run. Only one of them, or the run itself, runs at any time.

They are real threads, whose gates are those of this module while a run lasts. Where a thread would wait it hands back to the
run; it goes on when the run wakes its process, at a moment that the run chooses. A thread of a process that was killed never
goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from bk_spark.calls import call_future
from bk_spark.calls.gate import Gate
from bk_spark.client.ledger import write_queue
from tests.simulation.world.client_process import ClientProcess

DELAYS_MS = (0, 0, 1, 30)
"""Until a thread that may go on does: the system has others to run."""

STUCK_S = 60.0
"""Of real time: far more than a thread takes from one wait to the next."""

PREEMPTED_PERCENT = 10
"""Of the times that a thread is about to wait, or goes on."""


class SimulatedThread:
    """Runs ``work`` in a simulated process, from the process's next turn on."""

    def __init__(self, process: ClientProcess, work: Callable[[], None]) -> None:
        self._process = process
        self._work = work
        self._goes = threading.Semaphore(0)
        self._rests = threading.Semaphore(0)
        self._is_over = False
        self._problem: BaseException | None = None
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
        if not self._is_over and self._process.world.choices.chance(PREEMPTED_PERCENT, "preempted"):
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


class SimulatedGate(Gate):
    """As the shipped one. A thread may be preempted before it waits, and again before it goes on."""

    __slots__ = ("_is_open", "_waiting")

    def __init__(self) -> None:
        self._is_open = False
        self._waiting: list[SimulatedThread] = []
        thread = _own_thread()
        if thread is not None:
            thread.be_preempted()

    def open(self) -> None:
        self._is_open = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            thread.wake()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until it is open."""
        assert timeout_s is None, "nothing that runs here waits for so long alone"
        while not self._is_open:
            self._waiting.append(_current())
            _current().wait()
        _current().be_preempted()
        return True


@contextmanager
def installed() -> Iterator[None]:
    """While it lasts, what applications' threads wait for is of this module."""
    with patch.object(call_future, "Gate", SimulatedGate), patch.object(write_queue, "Gate", SimulatedGate):
        yield
