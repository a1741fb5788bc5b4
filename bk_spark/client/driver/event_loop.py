"""The event loop that runs the state machines of all clients of this process, and its clock for deadlines.

One background thread runs one loop for all clients, so the events of a state machine come one after the other. Application
threads hand work over and wait; of their code only the callbacks of futures run on the loop. The loop is never closed: to
close it with calls under way would disturb other clients.
"""

from __future__ import annotations

import asyncio
import threading

from bk_spark.calls.forks import check_process, used_here
from bk_spark.calls.off_main_thread import off_main_thread
from bk_spark.errors import ConfigError, State


class EventLoop:
    """The process's event loop, started when first needed."""

    _lock = threading.Lock()
    _loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def get(cls) -> asyncio.AbstractEventLoop:
        """Raises ConfigError in a process that was forked from one with a client: gRPC ends such a process, or hangs in it."""
        check_process()
        return cls._loop or off_main_thread(cls._started)

    @classmethod
    def _started(cls) -> asyncio.AbstractEventLoop:
        with cls._lock:
            if cls._loop is None:
                used_here()
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="bk_spark", daemon=True).start()
                cls._loop = loop
            return cls._loop


def check_may_wait(loop: asyncio.AbstractEventLoop) -> None:
    """Raise ConfigError on the thread of ``loop``, where waiting for ``loop`` would never end."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if running is loop:
        what = "a call that waits, made in a future's callback,"
        raise ConfigError(
            what, State("not possible"), "callbacks run on the client's event loop: hand the call to a thread of yours"
        )


BEAT_MS = 250
"""The time between two looks at the clock: four wake-ups a second cost nothing, and deadlines are seconds."""

STALL_MS = 1000
"""A gap of this length is a stall: a loop that is merely busy looks again sooner."""


class PatientClock:
    """A clock for deadlines that does not count the time in which its own process stood still. It never goes back.

    When a process continues after it was suspended, swapped out or held up, all its deadlines have passed, while the answers
    that came in time still wait in its sockets: it would blame its peers for its own stall. So this clock must be looked at
    once in every *beat*, from one thread. A gap between two looks that is far longer than a beat counts as one beat.

    Worked example, beats every 250 ms, stalls from 1,000 ms on: looks at 0, 250, 500, then at 8,500 after a stall, give 0, 250,
    500, 750.
    """

    def __init__(self, now_ms: int) -> None:
        self._seen_ms = now_ms
        self._skipped_ms = 0

    def look(self, now_ms: int) -> int:
        """The time by this clock; ``now_ms`` is the time by a clock that counts stalls, too."""
        gap = now_ms - self._seen_ms
        if gap >= STALL_MS:
            self._skipped_ms += gap - BEAT_MS
        self._seen_ms = now_ms
        return now_ms - self._skipped_ms
