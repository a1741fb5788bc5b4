"""Where the calls of a writer are handed over to the client's event loop.

A call puts what is complete into a deque, which is one step, and everything else happens on the event loop, which interrupts
never reach. So a call that is interrupted, between any two steps, was made or was not made, and holds nothing: there is no
count that it could leave wrong, and no lock. Room is what the window has left beside the bytes that arrived and were not
settled, and each arrival carries the sum of all before it. Two threads that arrive at the same moment may count one of the
two once too few; the event loop's own sums are exact.

An interrupt may swallow the wake-up of the event loop. Then the beat of the client (BEAT_MS) makes it look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias

from bk_spark.client.driver.user_loop import LoopFuture, UserLoop
from bk_spark.client.ledger.write_items import CallPart, Force, Singles

Key: TypeAlias = "LoopFuture[Any] | Future[Any]"
"""The future that a call is answered with names the call."""


@dataclass(slots=True, eq=False)
class Arrival:
    """One call. It does not change once it was put in (to be frozen would cost more than all else of it)."""

    nbytes: int
    future: Key
    what: Any
    """An entry, the list of CallParts of a batch, or a Force; or what another queue than that of a ledger's writer holds."""
    first_entry_id: int | None = None
    entered: Callable[[], None] | None = None
    """To be called once the whole call has found room, or was refused."""
    loop: UserLoop | None = None
    """As that of ``Singles``."""
    total: int = 0
    """The bytes of all calls up to this one, which ``ArrivingCalls`` gives it."""

    def items(self) -> deque[Singles | CallPart | Force]:
        if isinstance(self.what, bytes):
            return deque([Singles(self.nbytes, [self.what], [self.future], self.first_entry_id, self.loop)])
        return deque(self.what) if isinstance(self.what, list) else deque([self.what])


class ArrivingCalls:
    """Threads ``put``, the event loop takes. ``have_looked`` makes the event loop look soon."""

    def __init__(self, window_bytes: int, have_looked: Callable[[], object], urgent_bytes: int = 0) -> None:
        self._window_bytes = window_bytes
        self._urgent_bytes = urgent_bytes
        self._have_looked = have_looked
        self._arrived: deque[Arrival] = deque()
        self._taken_bytes = 0
        self._settled_bytes = 0
        self._is_woken = False
        """Whether somebody has woken the event loop, and it has not begun to look."""
        self.is_attended = False
        """Whether the event loop looks by itself soon, for less than ``urgent_bytes``. It alone sets this and the next one."""
        self.queued_bytes = 0
        """Taken, and not on their way yet."""

    # --- for any thread

    def has_room(self, nbytes: int) -> bool:
        """Whether the window has room for so many bytes beside all that arrived."""
        held = self.held_bytes
        return nbytes == 0 or held <= 0 or held + nbytes <= self._window_bytes

    @property
    def held_bytes(self) -> int:
        """Arrived, and not settled."""
        return self._sum() - self._settled_bytes

    @property
    def is_over_full(self) -> bool:
        """Whether some of what arrived may have to wait for room."""
        return self.held_bytes > self._window_bytes

    def put(self, arrival: Arrival, *, only_with_room: bool = False) -> bool:
        """Make a call, by one step, and wake the event loop if it does not look by itself. False: there was no room for it."""
        try:
            before = self._arrived[-1].total if self._arrived else self._taken_bytes
        except IndexError:  # as in _sum, which would cost a call
            before = self._taken_bytes
        nbytes = arrival.nbytes
        arrival.total = total = before + nbytes
        if only_with_room and total - self._settled_bytes > self._window_bytes and nbytes and before > self._settled_bytes:
            return False
        self._arrived.append(arrival)
        if self._is_woken:
            return True
        queued = self.queued_bytes + before - self._taken_bytes
        if not self.is_attended or queued < self._urgent_bytes <= queued + nbytes:
            self.wake()
        return True

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._have_looked()

    def __iter__(self) -> Iterator[Arrival]:
        return iter(list(self._arrived))

    def _sum(self) -> int:
        try:
            return self._arrived[-1].total if self._arrived else self._taken_bytes
        except IndexError:  # the event loop has just taken the last one
            return self._taken_bytes

    # --- for the event loop

    def begin_to_look(self) -> None:
        """From here on whoever puts something in wakes the event loop again."""
        self._is_woken = False

    def take(self) -> Arrival | None:
        """The next call; None: there is none."""
        if not self._arrived:
            return None
        arrival = self._arrived[0]
        self._taken_bytes += arrival.nbytes  # first: whoever finds nothing there reads the sum
        self._arrived.popleft()
        return arrival

    def settled(self, nbytes: int) -> None:
        """So many of the bytes that arrived have left again: confirmed, refused or withdrawn."""
        self._settled_bytes += nbytes
