"""The event loop on which every client of this process runs its state machines.

One background thread runs one loop for all clients; every state machine of every client runs on it, so its events come
one after the other. Application threads hand work over and wait; nothing of theirs runs on the loop but the callbacks of
their futures. The loop is never closed: calls under way on it would disturb those of other clients.
"""

from __future__ import annotations

import asyncio
import os
import threading

from bk_spark.errors import ConfigError


class EventLoop:
    """The process's event loop, started when first needed. A forked child gets one of its own."""

    _lock = threading.Lock()
    _loop: asyncio.AbstractEventLoop | None = None
    _pid = 0

    @classmethod
    def get(cls) -> asyncio.AbstractEventLoop:
        with cls._lock:
            if cls._loop is None or cls._pid != os.getpid():
                cls._loop, cls._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=cls._loop.run_forever, name="bk_spark", daemon=True).start()
            return cls._loop


def check_may_wait(loop: asyncio.AbstractEventLoop) -> None:
    """Raise ConfigError on the thread of ``loop``, where waiting for ``loop`` would never end."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if running is loop:
        what = "a call that waits, made in a future's callback"
        raise ConfigError(what, "not possible", "callbacks run on the client's event loop: hand the call to a thread of yours")
