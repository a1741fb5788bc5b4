"""How fast copies may be sent: one rate for all fragments that are copied at once. Pure: the time is handed in.

Every batch is paid for after it was sent, and time that was not used is not saved up: no burst is larger than one batch and
what ``SLACK_MS`` allows. Worked example, 100 bytes a millisecond: 1,000 bytes at 0 ms; the next may go at 6 ms, for 4 of the 10
that those take are granted ahead.
"""

from __future__ import annotations

SLACK_MS = 4
"""Timers come about a millisecond late; without some credit each batch would lose that."""


class ReplicationPace:
    """Shared by operations of one event loop, and given their clock's time."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_ms = bytes_per_s / 1000
        self._paid_ms = 0.0

    def due_ms(self, now_ms: int) -> int:
        """When the next batch may be sent; ``now_ms`` if that is now."""
        return max(now_ms, int(self._paid_ms) - SLACK_MS)

    def take(self, nbytes: int, now_ms: int) -> None:
        """A batch was sent."""
        self._paid_ms = max(self._paid_ms, now_ms) + nbytes / self._bytes_per_ms
