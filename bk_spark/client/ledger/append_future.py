"""The future of a single append, cheap enough for one of each entry.

A future of the standard library has a lock and a condition of its own, and making them takes longer than all else that an
append does. It also wakes its waiter at once: who waits for the first entry of a batch would then take turns with the event
loop for each entry that follows. The futures of one writer share a condition, and those of a batch are all done before their
waiters wake.

This takes the place of ``Future.__init__``, and of ``set_result`` where nobody waits. So it depends on the fields of a Future,
which a test compares.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError, wait
from concurrent.futures import _base as states
from contextlib import suppress
from typing import Any


class Uncancellable(Future[Any]):
    """An append cannot be taken back."""

    def cancel(self) -> bool:
        return False


class AppendFuture(Uncancellable):
    """A thread waits for it with a waiter of its own, never for ``shared``, which would wake it for each other future too."""

    def __init__(self, shared: threading.Condition) -> None:
        self._condition = shared
        self._state = states.PENDING
        self._result = None
        self._exception = None
        self._waiters = []
        self._done_callbacks: list[Any] = []

    def result(self, timeout: float | None = None) -> Any:
        if self._state == states.FINISHED and self._exception is None:
            return self._result  # it was set before the state
        self._await(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._await(timeout)
        return super().exception(0)

    def _await(self, timeout: float | None) -> None:
        if self._state == states.PENDING:
            wait([self], timeout)


def confirm_all(futures: Sequence[AppendFuture], first_entry_id: int) -> None:
    """Give consecutive ids to futures of one writer. One that has failed stays so."""
    awaited = []
    with futures[0]._condition:
        for entry_id, future in enumerate(futures, first_entry_id):
            if future._waiters or future._done_callbacks:
                awaited.append((future, entry_id))
            elif future._state == states.PENDING:
                future._result = entry_id
                future._state = states.FINISHED
    for future, entry_id in awaited:
        with suppress(InvalidStateError):
            future.set_result(entry_id)
