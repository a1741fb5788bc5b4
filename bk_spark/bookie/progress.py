"""How far a start, or long work in the background, has come: lines in the program's log, figures and a text for operators, and
the places where a start may be ended.

Ref: process/run_bookie.py; docs/guide/operate.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bk_spark.bookie.pace import SYSTEM_CLOCKS

PROGRESS_S = 5.0
"""Between two lines about the same step: a start of a minute then fills no screen."""

WORK_S = 60.0
"""Between two lines about work in the background, which may take days."""

logger = logging.getLogger(__name__)

_MIB = 1 << 20


class Progress:
    """One thread reports; any thread may read ``text``."""

    def __init__(self, clock_s: Callable[[], float] = SYSTEM_CLOCKS.steady_s, check: Callable[[], None] = lambda: None) -> None:
        """``check`` is called with every report, and may raise to end the work there, as a crash could."""
        self.text = ""
        """The step under way, and how far it has come."""
        self.done_bytes = 0
        self.total_bytes = 0
        """Of the step under way; 0 if that is not counted."""
        self._clock_s = clock_s
        self._check = check
        self._what = ""
        self._told_s = 0.0

    def begin(self, what: str, total_bytes: int = 0) -> None:
        """Begin a step; ``total_bytes`` is how much there is to do, 0 if that is not counted."""
        self._check()
        self._what, self.done_bytes, self.total_bytes = what, 0, total_bytes
        self.text = f"{what}, {mib(total_bytes)}" if total_bytes else what
        self._tell()

    def advance(self, done_bytes: int) -> None:
        """So much of the step is done."""
        self._check()
        self.done_bytes = done_bytes
        if self._clock_s() - self._told_s >= PROGRESS_S:
            self.text = f"{self._what}: {mib(done_bytes)} of {mib(self.total_bytes)}{share(done_bytes, self.total_bytes)}"
            self._tell()

    def _tell(self) -> None:
        self._told_s = self._clock_s()
        logger.info("%s", self.text)


class Interval:
    """When the next line about work in the background is due: WORK_S after the last one, or after the work began."""

    def __init__(self, clock_s: Callable[[], float] = SYSTEM_CLOCKS.steady_s) -> None:
        self._clock_s = clock_s
        self.begin()

    def begin(self) -> None:
        self._due_s = self._clock_s() + WORK_S

    def is_due(self) -> bool:
        """True at most once in WORK_S: the caller tells its line then."""
        if self._clock_s() < self._due_s:
            return False
        self.begin()
        return True


def mib(nbytes: int) -> str:
    return f"{nbytes / _MIB:.1f} MiB"


def share(done: int, total: int) -> str:
    """Such as `` (19 %)``; "" if the total is not known. What grows meanwhile may exceed it."""
    return f" ({min(100 * done // total, 100)} %)" if total else ""
