"""A clock for deadlines that does not count the time in which its own process stood still.

A process that is suspended, swapped out or held up finds, when it goes on, that all its deadlines have passed, while the
answers that came in time wait in its sockets: it would blame its peers for its own stall. This clock is looked at in
short intervals, the *beats*; a gap between two looks that is far longer than a beat counts as one beat.

Worked example, beats every 250 ms, stalls from 1,000 ms on: looks at 0, 250, 500, then at 8,500 after a stall, give 0, 250,
500, 750.
"""

from __future__ import annotations

BEAT_MS = 250
"""Between two looks: four wake-ups a second cost nothing, and deadlines are seconds."""

STALL_MS = 1000
"""A gap of this length is a stall: a loop that is merely busy comes back sooner."""


class PatientClock:
    """Never goes back. To be looked at at least once a beat, from one thread."""

    def __init__(self, now_ms: int) -> None:
        self._seen_ms = now_ms
        self._skipped_ms = 0

    def look(self, now_ms: int) -> int:
        """The time by this clock; ``now_ms`` is that of one that counts everything."""
        gap = now_ms - self._seen_ms
        if gap >= STALL_MS:
            self._skipped_ms += gap - BEAT_MS
        self._seen_ms = now_ms
        return now_ms - self._skipped_ms
