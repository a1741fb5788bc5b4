"""Waits for conditions, each with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.1


def wait_until(condition: Callable[[], bool], what: str, limit_s: float, poll_s: float = POLL_S) -> None:
    """Raises TimeoutError that names ``what`` was waited for."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {limit_s:g} s: {what}")
        time.sleep(poll_s)
