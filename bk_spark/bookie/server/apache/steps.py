"""How many steps the connections of a bookie's second port have under way: whatever runs beside their further frames.

The reads of a connection are one step, as is each long poll, fence, force or question. A step takes some KiB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

MOST_OF_CONNECTION = 256
"""As many as the open calls of a connection at the other port. Long polls are half of them at most, so that the polls of a
connection never shut out its adds (long_poll.py)."""

MOST_OF_ALL = 16_384
"""As the open calls of all connections at the other port."""

FEW = 4
"""So many a connection may always have, however many the others have."""

WOKEN = 8
"""Connections that go on when a step has ended. They take up at most some dozens of frames."""

GoOn: TypeAlias = Callable[[], None]


class Steps:
    """Lives on the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: dict[GoOn, None] = {}

    def may_begin(self, own: int) -> bool:
        """Whether a connection that has ``own`` steps may begin another."""
        return own < FEW or (own < MOST_OF_CONNECTION and self.count < MOST_OF_ALL)

    def wait(self, go_on: GoOn) -> None:
        """Have ``go_on`` called, once, when some step has ended."""
        self._waiting[go_on] = None

    def ended(self) -> None:
        self.count -= 1
        if self.count < MOST_OF_ALL:
            for go_on in list(self._waiting)[:WOKEN]:
                del self._waiting[go_on]
                go_on()
