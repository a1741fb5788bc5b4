"""Keeps a write job alive while a task works for it.

The sweep takes a job whose ``running`` nobody has touched for 24 hours (log rule 1). A task may be blocked for longer than
that in what it reads its rows from, so a thread of its own touches ``running``: this module is why the data source uses
``threading``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from bk_spark.errors import BookKeeperError, MetadataUnavailableError

REFRESH_S = 300.0
"""Seconds between two touches: 288 of them must fail before the sweep's 24 hours are over, and a thousand tasks cost the
metadata store three small writes a second."""

logger = logging.getLogger(__name__)


class JobRefresh:
    """Calls ``refresh`` every ``interval_s`` seconds for as long as the ``with`` block lasts."""

    def __init__(self, refresh: Callable[[], None], interval_s: float = REFRESH_S) -> None:
        self._refresh = refresh
        self._interval_s = interval_s
        self._done = threading.Event()
        self._problem: BookKeeperError | None = None

    def check(self) -> None:
        """Raise what ended the job, such as JobEndedError: what the task writes from then on would be for nothing."""
        if self._problem is not None:
            raise self._problem

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="bk_spark job refresh", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Does not wait for a touch under way: after the job's end it changes nothing."""
        self._done.set()

    def _run(self) -> None:
        while not self._done.wait(self._interval_s):
            try:
                self._refresh()
            except MetadataUnavailableError as problem:
                logger.warning("a write job could not be kept alive, it is tried again in %g s: %s", self._interval_s, problem)
            except BookKeeperError as problem:
                self._problem = problem
                return
