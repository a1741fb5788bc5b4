"""When a leader's ledger is rolled for the tier of its log: only closed ledgers move into a table.

A leader looks at the settings of the tier now and then while its ledger has entries, so a tier that is set later is followed,
too. A log without a tier costs a leader one small read in ``LOOK_S``.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

LOOK_S = 60.0
"""A tier's settings are seen after so many seconds at the latest: most tiers wait for longer than that. Where bytes are
limited, a leader looks each ``LEAST_S``."""

LEAST_S = 10.0
"""A leader rolls no more often for a tier, whatever it says: each time costs a ledger and two commits."""


@dataclass(frozen=True, slots=True)
class TierWait:
    """How many rows may wait in a leader's ledger for the tier, and for how long."""

    seconds: float
    nbytes: int | None = None
    """Of entries; None: any number."""


class Later(Protocol):
    """An event loop."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> object: ...


class TierRolls:
    """Asks for a roll once the first entry of a ledger has waited for as long as the tier says. On the event loop alone."""

    def __init__(self, loop: Later, look: Callable[[int], None]) -> None:
        """``look`` finds out what the tier says, and calls ``told`` then, with the number that it was given."""
        self._loop = loop
        self._look = look
        self._wait: TierWait | None = TierWait(0)
        """As it was last told; at first a leader looks soon."""
        self._ledger = 0
        """Counts ledgers, so that what is told of one that was rolled does nothing."""
        self._timer = 0
        """Counts timers: the last one alone does anything, however often a roll fails."""
        self._began_s = 0.0

    def began(self) -> None:
        """A ledger got its first entry."""
        self._ledger += 1
        self._began_s = self._loop.time()
        self._look_in(self._left_s)

    def told(self, ledger: int, wait: TierWait | None, nbytes: int) -> bool:
        """What the tier says now, None without one, and the bytes of the ledger: whether a roll is due."""
        if ledger != self._ledger:
            return False  # it was rolled meanwhile
        self._wait = wait
        if self._left_s <= 0 or (wait is not None and wait.nbytes is not None and nbytes >= wait.nbytes):
            return True
        self._look_in(self._left_s)
        return False

    def failed(self) -> None:
        """There was no look, or no ledger could be created for the roll: ask again later."""
        self._look_in(LOOK_S)

    @property
    def _left_s(self) -> float:
        return LOOK_S if self._wait is None else self._began_s + max(LEAST_S, self._wait.seconds) - self._loop.time()

    def _look_in(self, seconds: float) -> None:
        self._timer += 1
        timer, most = self._timer, LEAST_S if self._wait is not None and self._wait.nbytes is not None else LOOK_S
        self._loop.call_later(min(most, seconds), lambda: self._look(self._ledger) if timer == self._timer else None)
