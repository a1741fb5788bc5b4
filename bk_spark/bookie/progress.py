"""How far a start has come: lines in the log, a text for operators, and the places where a start may be ended.

Ref: process/run_bookie.py; docs/guide/operate.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bk_spark.bookie.pace import SYSTEM_CLOCKS

PROGRESS_S = 5.0
"""Between two lines about the same step: a start of a minute then fills no screen."""

logger = logging.getLogger(__name__)

_MIB = 1 << 20


class Progress:
    """One thread reports; any thread may read ``text``."""

    def __init__(self, clock_s: Callable[[], float] = SYSTEM_CLOCKS.steady_s, check: Callable[[], None] = lambda: None) -> None:
        """``check`` is called with every report, and may raise to end the work there, as a crash could."""
        self.text = ""
        """The step under way, and how far it has come."""
        self._clock_s = clock_s
        self._check = check
        self._what = ""
        self._total = 0
        self._told_s = 0.0

    def begin(self, what: str, total_bytes: int = 0) -> None:
        """Begin a step; ``total_bytes`` is how much there is to do, 0 if that is not counted."""
        self._check()
        self._what, self._total = what, total_bytes
        self.text = f"{what}, {_mib(total_bytes)}" if total_bytes else what
        self._tell()

    def advance(self, done_bytes: int) -> None:
        """So much of the step is done."""
        self._check()
        if self._clock_s() - self._told_s >= PROGRESS_S:
            share = f" ({100 * done_bytes // self._total} %)" if self._total else ""
            self.text = f"{self._what}: {_mib(done_bytes)} of {_mib(self._total)}{share}"
            self._tell()

    def _tell(self) -> None:
        self._told_s = self._clock_s()
        logger.info("%s", self.text)


def _mib(nbytes: int) -> str:
    return f"{nbytes / _MIB:.1f} MiB"
