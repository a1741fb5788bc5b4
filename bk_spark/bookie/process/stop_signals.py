"""The signals that end a bookie: honoured at every moment of its life, whatever it does.

They are caught from before the directories are locked until all is closed. While a bookie starts, or opens its storage anew, a
stop takes effect at the next ``check``; while it serves, through ``on_stop``.

Ref: docs/rules.md, storage rule 18.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGHUP comes when the terminal of a bookie that runs in the foreground closes."""

LOOK_S = 0.1
"""Between two looks during a pause. An Event that a signal handler sets could block the thread that it interrupts."""

logger = logging.getLogger(__name__)


class StopAskedError(Exception):
    """The work under way ends, because the bookie is to stop."""


class StopSignals:
    """To be used in a ``with`` statement, on the main thread."""

    def __init__(self) -> None:
        self.is_asked = False
        self._on_stop: Callable[[], object] = lambda: None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as 'nohup' leaves it
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise StopAskedError if the bookie is to stop."""
        if self.is_asked:
            raise StopAskedError

    def pause(self, seconds: float) -> None:
        """Wait so long. Raises StopAskedError as soon as the bookie is to stop."""
        deadline = time.monotonic() + seconds
        while True:
            self.check()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(LOOK_S, left_s))

    @contextmanager
    def on_stop(self, call: Callable[[], object]) -> Iterator[None]:
        """Call ``call``, on the main thread between any two of its steps, when the bookie is to stop; now if it already is."""
        self._on_stop = call
        try:
            if self.is_asked:
                call()
            yield
        finally:
            self._on_stop = lambda: None

    def _ask(self, number: int, _: FrameType | None) -> None:
        self.is_asked = True
        self._on_stop()
