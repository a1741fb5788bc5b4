"""Blocking code in a simulated run: each process is a thread, and exactly one of them runs at a time, the one with the baton.

Shipped code that waits for its answers (the log's) cannot be driven call by call as state machines are. Here every call that
it makes to the outside is a *turn*: the process gives the baton away, and a choice says who goes on: a process that can, or
something that is under way and arrives now. So a run is a sequence of choices, as in the other engines, and has no races.

A killed process ends at its next turn with ``Killed``, which no shipped code catches; nothing that it calls after that has
an effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tests.simulation.engines.choices import Choices
from tests.simulation.engines.invariants import Violation

Arrival = Callable[[], None]
"""Something under way. It is carried out by whoever has the baton, and makes no calls of its own."""

MAX_TURNS = 20_000
"""Of one run; the longest take a fifth."""


class Killed(BaseException):
    """The process is no more."""


class Process:
    """One thread; those of one ``group`` die together. ``until`` is what it waits for, if it waits."""

    def __init__(self, name: str, baton: Baton, body: Callable[[], object]) -> None:
        self.name = name
        self.is_alive = True
        self.is_over = False
        self.until: Callable[[], bool] | None = None
        self.waits_for = ""
        self.group = [self]
        self._baton = baton
        self._body = body
        self._go = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def can_go(self) -> bool:
        return not self.is_over and (not self.is_alive or self.until is None or self.until())

    def turn(self) -> None:
        """Let others come first. Raises Killed."""
        if self.is_alive:
            self._baton.turn(self)
        if not self.is_alive:
            raise Killed

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Stand still until it holds. Raises Killed."""
        self.until, self.waits_for = until, what
        try:
            self.turn()
        finally:
            self.until = None

    def join_group(self, other: Process) -> None:
        self.group = other.group
        self.group.append(self)

    def kill(self) -> None:
        for one in self.group:
            one.is_alive = False

    def take_baton(self) -> None:
        """Wake the thread; the caller stops by itself."""
        self._go.release()

    def await_baton(self) -> None:
        self._go.acquire()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        self.await_baton()
        try:
            if self.is_alive:
                self._body()
        except Killed:
            pass
        except BaseException as problem:
            self._baton.fail(problem)
        self.is_over = True
        self._baton.pass_on()


class Baton:
    """Who runs. ``arrivals`` gives what is under way and may arrive now; told True, because no process can go on, all of it.

    An arrival takes itself out of there.
    """

    def __init__(
        self, choices: Choices, arrivals: Callable[[bool], Sequence[Arrival]], on_turn: Callable[[Process], None]
    ) -> None:
        self.processes: list[Process] = []
        self.current: Process
        """Who has the baton."""
        self.turns = 0
        self._choices = choices
        self._arrivals = arrivals
        self._on_turn = on_turn
        self._problem: BaseException | None = None
        self._ended = threading.Semaphore(0)

    def spawn(self, name: str, body: Callable[[], object]) -> Process:
        process = Process(name, self, body)
        self.processes.append(process)
        return process

    def run(self) -> None:
        """Until every process is over. Raises what one of them failed with; Violation where all wait for ever."""
        self.pass_on()
        self._ended.acquire()
        self._end_all()
        if self._problem is not None:
            raise self._problem

    def turn(self, process: Process) -> None:
        """The caller has the baton; it has it again when this returns."""
        try:
            self._on_turn(process)
            following = self._next()
        except BaseException as problem:  # arrivals and invariants: the run is over, and so is the caller
            self.fail(problem)
            following = None
        if following is process:
            return
        self._hand_to(following)
        process.await_baton()

    def pass_on(self) -> None:
        """As ``turn``, for one that is over."""
        try:
            following = self._next()
        except BaseException as problem:
            self.fail(problem)
            following = None
        self._hand_to(following)

    def fail(self, problem: BaseException) -> None:
        """The run ends; the first problem is the one that it is reported with."""
        if self._problem is None:
            self._problem = problem

    def _hand_to(self, process: Process | None) -> None:
        if process is None:
            self._ended.release()
        else:
            process.take_baton()

    def _next(self) -> Process | None:
        """The process that goes on, after what arrives before it. None: the run is over."""
        while self._problem is None:
            self.turns += 1
            if self.turns > MAX_TURNS:
                raise Violation("L0", f"it goes on after {MAX_TURNS} turns")
            ready = [one for one in self.processes if one.can_go]
            arrivals = self._arrivals(not ready)
            if not ready and not arrivals:
                self._check_that_all_are_over()
                return None
            chosen = self._choices.choose(len(ready) + len(arrivals), "turn")
            if chosen < len(ready):
                self.current = ready[chosen]
                return self.current
            arrivals[chosen - len(ready)]()
        return None

    def _check_that_all_are_over(self) -> None:
        waiting = [f"{one.name} for {one.waits_for}" for one in self.processes if not one.is_over]
        if waiting:
            raise Violation("L0", "all wait for ever: " + ", ".join(waiting))

    def _end_all(self) -> None:
        """The threads that are left unwind, one after the other."""
        for process in self.processes:
            if not process.is_over:
                process.kill()
                self.current = process
                process.take_baton()
                self._ended.acquire()
            process.join()
