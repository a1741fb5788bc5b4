"""Faults at their times: a thread for each, so that they overlap as planned."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

END_S = 120.0
"""How long the undoing of faults may take: what is left of their times, and the start of a process on a busy machine."""


class Timed(Protocol):
    @property
    def after_s(self) -> float:
        """When it begins, from the start of the timetable on."""


_Fault = TypeVar("_Fault", bound=Timed)


class Timetable(Generic[_Fault]):
    """``start`` begins to count the faults' times; ``finish`` returns once all are undone and everything serves again."""

    def __init__(self, faults: Sequence[_Fault]) -> None:
        self.done: list[str] = []
        """The kinds of the faults that took place."""
        self._problems: list[Exception] = []
        self._threads = [threading.Thread(target=self._await_and_play, args=(fault,), daemon=True) for fault in faults]
        self._start_s = 0.0

    def start(self) -> None:
        self._start_s = time.monotonic()
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Raises what hindered a process from being started again."""
        deadline = time.monotonic() + END_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                raise TimeoutError(f"a fault was not undone within {END_S:g} s")
        if self._problems:
            raise self._problems[0]

    def _play(self, fault: _Fault) -> None:
        """Do the fault, tell ``done`` of it, wait, and undo it."""
        raise NotImplementedError

    def _await_and_play(self, fault: _Fault) -> None:
        try:
            time.sleep(max(0.0, self._start_s + fault.after_s - time.monotonic()))
            self._play(fault)
        except Exception as problem:  # given to the round's thread, which raises it
            self._problems.append(problem)
