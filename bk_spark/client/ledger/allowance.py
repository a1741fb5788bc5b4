"""How many batches of one writer may be under way."""

from __future__ import annotations

MAX_REQUESTS = 16
"""Batches under way per writer: enough to cover the latency of group commit."""

FIRST_REQUESTS = 4
"""Batches under way before one was confirmed. As each that is confirmed in time adds one, a writer has MAX_REQUESTS after two
round trips; and 200 writers that begin at once on slow bookies have 800 MiB under way, not 3 GiB."""

SLOW_MS = 2_000
"""A batch that takes longer to be confirmed shows that bookies are overloaded: a fifteenth of the time after which it fails its
writer, and forty times what a batch takes at a bookie that is busy with large adds."""


class Allowance:
    """How many batches of one writer may be under way: FIRST_REQUESTS to begin with.

    Each batch that is confirmed slowly halves the number, down to one; each that is confirmed in time adds one, up to
    MAX_REQUESTS. Of 200 writers that each have 16 MiB under way the last adds would wait for gigabytes, and time out. Batches
    that were handed over before the last cut say nothing about it.
    """

    def __init__(self) -> None:
        self.requests = FIRST_REQUESTS
        self._cut_ms = 0

    def confirmed(self, handed_over_ms: int, now_ms: int) -> None:
        """Take in how long a batch took."""
        if now_ms - handed_over_ms <= SLOW_MS:
            self.requests = min(self.requests + 1, MAX_REQUESTS)
        elif handed_over_ms >= self._cut_ms:
            self.requests, self._cut_ms = max(self.requests // 2, 1), now_ms
