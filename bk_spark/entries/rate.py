"""A limit in bytes per second, for copies and for background work. Pure: the time is handed in, and nobody is paused.

Each amount is paid for after it was taken: the next one is due once the time that the former ones take at this rate is over.
Unused time is not saved up, so no burst is larger than one amount and what ``SLACK_MS`` allows.

Worked example, 100 bytes a millisecond: 1,000 bytes are taken at 0 ms and paid for at 10 ms; the next amount is due at 6 ms,
as ``SLACK_MS`` grants 4 of these 10 ahead.
"""

from __future__ import annotations

SLACK_MS = 4
"""Timers come about a millisecond late; without some credit each batch would lose that."""


class ByteRate:
    """For one thread, or one event loop: all its users together keep to the rate. All times are of one clock."""

    def __init__(self, bytes_per_s: int) -> None:
        self.paid_ms = 0.0
        """When everything that was taken is paid for."""
        self._bytes_per_ms = bytes_per_s / 1000

    def due_ms(self, now_ms: int) -> int:
        """When the next amount may be taken by a user whose timers are late; ``now_ms`` if that is now."""
        return max(now_ms, int(self.paid_ms) - SLACK_MS)

    def take(self, nbytes: int, now_ms: float) -> None:
        self.paid_ms = max(self.paid_ms, now_ms) + nbytes / self._bytes_per_ms
