"""Waits for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 600.0
_LOOK_S = 0.005


def until(condition: Callable[[], bool]) -> None:
    """Raises TimeoutError after DEADLINE_S."""
    ends_s = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > ends_s:
            raise TimeoutError(f"it did not come true within {DEADLINE_S:g} s")
        time.sleep(_LOOK_S)
