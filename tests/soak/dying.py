"""A process that kills itself at one of its calls."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Sequence
from typing import Any

Calls = Sequence[tuple[type, Sequence[str]]]
"""Classes, and the names of their methods that count."""


def die_at(calls: Calls, last: int) -> None:
    """Die as by SIGKILL before or behind call number ``last`` of these methods; 0: never."""
    count = 0
    dies_behind = random.Random(last).random() < 0.5

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            is_last = count == last
            if is_last and not dies_behind:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return call(*arguments, **named)
            finally:
                if is_last:
                    os.kill(os.getpid(), signal.SIGKILL)

        return wrapper

    for owner, names in calls:
        for name in names:
            setattr(owner, name, counted(getattr(owner, name)))
