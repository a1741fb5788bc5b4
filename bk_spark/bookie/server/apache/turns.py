"""Shares the event loop among the connections of a bookie's second port that have frames to take.

Without it each of a thousand connections takes its frames in each turn of the loop, and a turn takes seconds. Whatever needs
several turns, as a fence does, then waits for that many seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

ROUND_S = 0.01
"""Connections take their frames for so long in a turn of the loop: a request that needs ten turns is answered in 0.1 s."""

Take: TypeAlias = Callable[[], None]
"""Takes frames of one connection for a short time. Must not raise."""


class Turns:
    """Lives on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Take] = deque()
        self._is_due = False

    @property
    def is_crowded(self) -> bool:
        """Whether connections wait for their turn: a further one asks for its own."""
        return bool(self._waiting)

    def ask(self, take: Take) -> None:
        """Have ``take`` called once, behind those that wait already."""
        if not self._waiting and not self._is_due:
            self._due()
        self._waiting.append(take)

    def _due(self) -> None:
        self._is_due = True
        self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Serve those that wait now. Who asks again meanwhile has the next turn of the loop."""
        self._is_due = False
        until_s = self._loop.time() + ROUND_S
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
            if self._loop.time() >= until_s:
                break
        if self._waiting and not self._is_due:
            self._due()
