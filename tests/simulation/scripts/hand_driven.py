"""Coroutines without an event loop: each wait is a step that is begun, and told what came of it.

So the shipped coroutines that decide what to do next run in a simulated process, and in no other order than on a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

OnDone = Callable[[object], None]


@dataclass(frozen=True, slots=True)
class Step:
    """``begin`` starts something, and calls what it is given, once, with its result; an exception as the result is raised."""

    begin: Callable[[OnDone], None]

    def __await__(self) -> Generator[Step, object, Any]:
        return (yield self)


def drive(work: Coroutine[Step, object, None], result: object = None) -> None:
    """Run ``work`` to its next step, and go on with it once that is done."""
    try:
        step = work.throw(result) if isinstance(result, Exception) else work.send(result)
    except StopIteration:
        return
    step.begin(lambda outcome: drive(work, outcome))
