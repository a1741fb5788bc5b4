"""A line a minute in the log of the program on how much recoveries and re-replications bring here, the own repair included."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bk_spark.bookie.progress import WORK_S, mib

logger = logging.getLogger(__name__)


class ReceivedCopies:
    """Lives on the event loop."""

    def __init__(self, later: Callable[[float, Callable[[], None]], object]) -> None:
        """``later`` calls something after so many seconds, on the event loop."""
        self._later = later
        self._entries = 0
        self._nbytes = 0

    def note(self, entries: int, nbytes: int) -> None:
        """So much came. The first of it is told WORK_S later, with all that came meanwhile."""
        if entries and not self._entries:
            self._later(WORK_S, self._tell)
        self._entries += entries
        self._nbytes += nbytes

    def _tell(self) -> None:
        counts = self._entries, mib(self._nbytes), WORK_S
        logger.info("recoveries and re-replications brought %d entries (%s) to this bookie in the last %g s", *counts)
        self._entries = self._nbytes = 0
