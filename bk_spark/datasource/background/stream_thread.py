"""The one thread of a stream: it does what is due for each of its logs, one after the other.

One thread is enough for any number of logs, because each piece of work is short: what waits at bookies is in
``ledger_poll.py``. It is a daemon and holds nothing that must be released, because Spark usually kills the process of a
stream's source.
"""

from __future__ import annotations

import threading
from typing import Protocol

HEARTBEATS_PER_S = 30
"""Work by the clock alone, for all logs of a stream together: 1,000 logs are each looked at every 33 s while nothing happens,
which is well before their stream would call them silent."""

LONGEST_WAIT_S = 60.0
"""Of a thread without any work by the clock; it is woken for all else."""


class Work(Protocol):
    """What is done in the thread again and again."""

    def wait_s(self) -> float:
        """How long until it is due; 0 or less for now."""

    def step(self) -> None:
        """Do it. Never raises: what goes wrong is told to whoever asks for the result."""

    def end(self) -> None:
        """Release what it holds. Called in the thread, after its last step."""


class StreamThread:
    """Does each ``Work`` when it is due. The thread begins with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: list[Work] = []
        self._news = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def add(self, work: Work) -> None:
        self._work = [*self._work, work]  # replaced, never changed: the thread may be going through it
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self.wake()

    def remove(self, work: Work) -> None:
        """Have the thread end ``work`` after its current step."""
        self._work = [one for one in self._work if one is not work]
        self.wake()

    def wake(self) -> None:
        """Have the thread look what is due."""
        self._news.set()

    def stop(self) -> None:
        """End the thread, and all its work, after the current step."""
        self._stopped = True
        self.wake()

    def interval_s(self, least_s: float) -> float:
        """How often one of its works may do something by the clock: every ``least_s``, or more rarely if they are many."""
        return max(least_s, len(self._work) / HEARTBEATS_PER_S)

    def _run(self) -> None:
        begun: list[Work] = []
        while not self._stopped:
            self._news.clear()
            work = self._work
            if work is not begun:  # no comparison at each look: there may be 1,000 of them
                here = set(map(id, work))
                for ended in [one for one in begun if id(one) not in here]:
                    ended.end()
            begun = work
            for one in work:
                if one.wait_s() <= 0 and not self._stopped:
                    one.step()
            self._news.wait(max(0.0, min((one.wait_s() for one in work), default=LONGEST_WAIT_S)))
        for one in begun:
            one.end()
