"""How much a reader's next request asks a bookie for.

Between two requests nothing travels, so they ask for more while answers come quickly. Where bookies have many readers answers
are slow, and requests stay small, so that no reader waits for long ones.
"""

from __future__ import annotations

QUICK_MS = 250
"""An answer that takes longer loses next to nothing by the milliseconds that pass between two of them."""

MOST_GROWTH = 4
"""Times the first one's bytes that a request asks for at most. With three messages of a MiB a third of the time passes between
two requests, with fifteen a tenth; the more it is, the longer a bookie's readers wait for each other."""


class RequestSize:
    """Of one reader."""

    def __init__(self, first_bytes: int) -> None:
        self._first_bytes = first_bytes
        self.nbytes = first_bytes

    def answered(self, taken_ms: int) -> None:
        """A request was answered well, in so much time."""
        if taken_ms <= QUICK_MS:
            self.nbytes = min(2 * self.nbytes, MOST_GROWTH * self._first_bytes)
        else:
            self.nbytes = max(self.nbytes // 2, self._first_bytes)
