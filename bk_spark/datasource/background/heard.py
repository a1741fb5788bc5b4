"""What a background thread heard last, for those who must be answered from memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.log.stream.waits import PATIENCE_S

STALE_S = PATIENCE_S
"""A stream fails after this long without a look that succeeded."""

GRACE_S = 10.0
"""How long a question waits for a fresh look after STALE_S without one, as after the machine's sleep."""

Known = TypeVar("Known")


class Heard(Generic[Known]):
    """The thread calls ``hear``, ``miss`` and ``fail``; others call ``ask``. ``known`` is what is answered.

    A question fails with the reason if the thread failed, or heard nothing for STALE_S: an old answer from memory would look
    as if nothing came.
    """

    def __init__(self, what: str, where: str) -> None:
        self.known: Known | None = None
        self.failure: BaseException | None = None
        """Why nothing more will be heard."""
        self.trouble: BookKeeperError | None = None
        """Why the last look missed; the next one may succeed."""
        self._what = what
        self._where = where
        self._looked = threading.Event()
        self._looked_s = time.monotonic()

    def ask(self, wake: Callable[[], None]) -> Known:
        """Only the first question waits, and one after STALE_S without a look. ``wake`` has the thread look now."""
        if self.known is None:
            self._looked.wait(STALE_S)
        elif self._is_stale:
            self._looked.clear()
            wake()
            self._looked.wait(GRACE_S)
        if self.failure is not None:
            raise self.failure
        if self.known is None or self._is_stale:
            problem = f"nothing was heard of {self._what} for {STALE_S:g} s"
            raise self.trouble or MetadataUnavailableError(self._where, problem)
        return self.known

    def hear(self) -> None:
        """A look has succeeded; ``known`` is what it found."""
        self.trouble, self._looked_s = None, time.monotonic()
        self._looked.set()

    def miss(self, problem: BookKeeperError) -> None:
        """A look has met what may pass. Raises ``problem`` if it cannot."""
        if not problem.retryable:
            raise problem
        self.trouble = problem

    def fail(self, problem: BaseException) -> None:
        self.failure = problem
        self._looked.set()

    def end(self) -> None:
        """Nothing more will be heard: whoever waits goes on."""
        self._looked.set()

    @property
    def _is_stale(self) -> bool:
        return time.monotonic() - self._looked_s > STALE_S
