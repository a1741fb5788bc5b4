"""Errors that nobody expected, in the gateway's own log: each kind has one traceback a minute, and is counted in between.

A caller may cause such an error as often as it calls, and each traceback has some KiB.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from typing import Final

TELL_S: Final = 60.0
"""Between two tracebacks of a kind. In between they are counted."""

MOST_KINDS: Final = 100
"""That are told apart. With one more all are forgotten."""

_Kind = tuple[str, str, int | None]
"""The error's type, and the file and line that raised it."""

logger = logging.getLogger(__name__)


class UnexpectedErrors:
    """Of one gateway. ``clock``: seconds that only rise. From any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[_Kind, tuple[float, int]] = {}
        """When each kind had its last traceback, and how many came since."""

    def tell(self, what: str, problem: BaseException) -> None:
        """``what`` names the call that ``problem`` ended."""
        kind = _kind(problem)
        with self._lock:
            told_s, since = self._told.get(kind, (-TELL_S, 0))
            is_due = self._clock() - told_s >= TELL_S
            if len(self._told) >= MOST_KINDS and kind not in self._told:
                self._told.clear()
            self._told[kind] = (self._clock(), 0) if is_due else (told_s, since + 1)
        if is_due:
            more = f"; {since} more like it since the last traceback" if since else ""
            logger.error("%s failed by an error that nobody expected%s", what, more, exc_info=problem)


def _kind(problem: BaseException) -> _Kind:
    last = next(iter(traceback.extract_tb(problem.__traceback__, limit=-1)), None)
    return type(problem).__qualname__, last.filename if last else "", last.lineno if last else None
