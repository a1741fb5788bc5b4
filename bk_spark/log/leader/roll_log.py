"""RollLog: decides which ledger each append of a log's leader goes to, while the log rolls from one ledger to the next.

A state machine without threads, time, input or output. The driver (log_write_handle.py) calls a method for each thing that
happens, and carries out what the method returns. All appends pass one queue, in order; those without room wait there. One roll:

    STEADY      appends go to the ledger; the one before it is closed
    OPENING     the next ledger is created and committed, while appends still go to the old one
    DRAINING    the next ledger is listed: appends are queued until every append to the old one is confirmed
    CLOSING     the queue goes to the next ledger, and the old one is closed, and its end committed
    STEADY      …

Why appends are queued (log rule 3): a0 and a1 are on their way to ledger 5, ledger 6 is listed, and b0 is appended. If b0
went to ledger 6 at once, it could be confirmed while a1 is not. The next leader might then recover ledger 5 as a0 alone, and
the log would be a0 b0: an entry without its predecessor.

Why the old ledger is closed before the next roll: otherwise a displaced leader could leave three ledgers that still take
entries, and the next leader looks at two. The first append that fails ends the leader, and everything queued fails with it:
nothing may be confirmed behind an entry in doubt.

Ref: the BookKeeper protocol, "Rolling ledgers"; docs/rules.md, log rule 3.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from bk_spark.errors import BookKeeperError, ConfigError

RETRY_PART = 16
"""If a ledger could not be created, the next try comes after another sixteenth of ``roll_bytes`` was appended. With the
default of a gibibyte that is 64 MiB: few tries and few warnings."""

_Ledger = TypeVar("_Ledger")
_Append = TypeVar("_Append")


class RollState(Enum):
    """The steps of a roll, as the module's docstring lists them."""

    STEADY = 1
    OPENING = 2
    DRAINING = 3
    CLOSING = 4


@dataclass(frozen=True, slots=True)
class RollLimits:
    """Raises ConfigError for a ``roll_bytes`` that is not positive."""

    roll_bytes: int
    """A roll is due once so many bytes were appended to a ledger."""
    window_bytes: int
    """So many bytes may be unconfirmed, in all ledgers together; an append of any size may be, alone."""
    append_wait_s: float = 120.0
    """An append that waits for room for so long is refused."""

    def __post_init__(self) -> None:
        if type(self.roll_bytes) is not int or self.roll_bytes <= 0:
            raise ConfigError("roll_bytes", self.roll_bytes, "it must be a whole number of bytes above 0")


class RollLog(Generic[_Ledger, _Append]):
    """Not thread-safe: its driver calls one method at a time."""

    def __init__(self, ledger: _Ledger, limits: RollLimits) -> None:
        self.state = RollState.STEADY
        self.ledger = ledger
        """The ledger that appends go to; or, while they are queued, will go to."""
        self.refusal: BookKeeperError | None = None
        """The error for further appends: the first failure of the leader, or that it was closed."""
        self.has_failed = False
        self.is_asked = False
        """Whether a roll is due before the ledger is full."""
        self.is_first = False
        """Whether what ``next`` returned is the first append to the ledger."""
        self._limits = limits
        self._due_bytes = limits.roll_bytes
        self.ledger_bytes = 0
        """Sent to the ledger."""
        self._window_bytes = limits.window_bytes
        self._unconfirmed = 0
        self._unconfirmed_bytes = 0
        self._queue: deque[tuple[_Append, int]] = deque()

    def append(self, append: _Append, nbytes: int) -> None:
        """Queue an append. Call it only while ``refusal`` is None."""
        assert self.refusal is None
        self._queue.append((append, nbytes))

    def next(self) -> _Append | None:
        """The append that is to be sent to ``ledger`` now, behind all that were returned before; None: none is."""
        if not self._queue or self.is_queueing:
            return None
        assert not self.has_failed, "a failed leader sends nothing more"
        append, nbytes = self._queue[0]
        if nbytes and self._unconfirmed_bytes and self._unconfirmed_bytes + nbytes > self._window_bytes:
            return None
        self._queue.popleft()
        self.is_first = self.is_empty
        self._unconfirmed += 1
        self._unconfirmed_bytes += nbytes
        self.ledger_bytes += nbytes
        return append

    def confirmed(self, nbytes: int) -> None:
        """An append that ``next`` returned is confirmed."""
        assert self._unconfirmed > 0
        assert self._unconfirmed_bytes >= nbytes
        self._unconfirmed -= 1
        self._unconfirmed_bytes -= nbytes
        assert self._unconfirmed or not self._unconfirmed_bytes, "without appends under way there are no bytes under way"

    def withdraw(self, append: _Append, nbytes: int) -> bool:
        """Take an append out of the queue, as if it had not been made. False: it is not there."""
        with suppress(ValueError):
            self._queue.remove((append, nbytes))
            return True
        return False

    @property
    def is_drained(self) -> bool:
        """Whether every append that was sent is confirmed."""
        return self._unconfirmed == 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been sent to the ledger."""
        return self.ledger_bytes == 0

    def fail(self, error: BookKeeperError) -> list[_Append]:
        """An append, or a step of a roll, failed. Returns the queued appends, which fail with ``refusal``."""
        if not self.has_failed:
            self.has_failed, self.refusal = True, error
        queued = self.queued
        self._queue.clear()
        return queued

    def refuse(self, error: BookKeeperError) -> None:
        """The leader is being closed: refuse further appends. What was appended before is still sent."""
        self.refusal = self.refusal or error

    @property
    def is_roll_due(self) -> bool:
        """Whether the ledger is full, and a roll may begin."""
        return (
            self.state is RollState.STEADY and self.refusal is None and (self.is_asked or self.ledger_bytes >= self._due_bytes)
        )

    def begin_roll(self) -> None:
        """STEADY → OPENING: create the next ledger, and commit it."""
        assert not self.has_failed, "a failed leader lists no further ledger"
        self._move(RollState.STEADY, RollState.OPENING)

    def call_off(self) -> None:
        """OPENING → STEADY: no ledger could be created; nothing was committed. Another roll is due a little later."""
        self._move(RollState.OPENING, RollState.STEADY)
        self.is_asked = False
        self._due_bytes = self.ledger_bytes + max(1, self._limits.roll_bytes // RETRY_PART)

    def opened(self, ledger: _Ledger) -> None:
        """OPENING → DRAINING: the log lists ``ledger``."""
        assert ledger is not self.ledger
        self._move(RollState.OPENING, RollState.DRAINING)
        self.ledger, self.is_asked = ledger, False
        self.ledger_bytes, self._due_bytes = 0, self._limits.roll_bytes

    @property
    def queued(self) -> list[_Append]:
        return [append for append, _ in list(self._queue)]

    def drained(self) -> None:
        """DRAINING → CLOSING: every append to the old ledger is confirmed."""
        assert self.is_drained
        self._move(RollState.DRAINING, RollState.CLOSING)

    def closed(self) -> None:
        """CLOSING → STEADY: the old ledger is closed."""
        self._move(RollState.CLOSING, RollState.STEADY)

    @property
    def is_queueing(self) -> bool:
        """Whether appends wait for the next ledger."""
        return self.state is RollState.DRAINING

    def _move(self, before: RollState, after: RollState) -> None:
        assert self.state is before, f"{self.state} is not {before}"
        self.state = after
