"""How much of adds is in hand, complete but without a place in the sync queue, at both ports of a bookie together.

Ref: docs/guide/limits.md; docs/rules.md, protocol rule 41.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bk_spark.config import KIB, MIB

USUAL_ADD_BYTES = MIB + 64 * KIB
"""Adds up to this size, the size of a client's batches, are never refused for lack of memory: they wait."""

BUSY = "this bookie is busy: too many large adds wait for its disk"


class WaitingAdds:
    """Lives on the event loop."""

    def __init__(self, maximum_bytes: int) -> None:
        self._maximum_bytes = maximum_bytes
        self._bytes = 0

    def change(self, nbytes: int) -> None:
        """Note that so much more is in hand; with a negative number, less."""
        self._bytes += nbytes

    @contextmanager
    def hold(self, nbytes: int) -> Iterator[None]:
        """An add of this size is in hand meanwhile."""
        self._bytes += nbytes
        try:
            yield
        finally:
            self._bytes -= nbytes

    def is_crowded(self, nbytes: int) -> bool:
        """Whether to refuse an add of this size."""
        return nbytes > USUAL_ADD_BYTES and self._bytes > self._maximum_bytes
