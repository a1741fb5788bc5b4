"""Asking the bookies of an ensemble until enough is known: timeouts, pauses, and when to give up.

Each slot has at most one request under way. A bookie that refuses, breaks off or stays silent for the timeout is asked
again after a pause, which doubles while its answers are of no use. Asking is *hopeless* once no slot has brought anything new
for ``RecoverLimits.patience_ms``. Then the recovery gives up, and what is not known stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bk_spark.client.protocol.limits import RecoverLimits
from bk_spark.errors import BookieUnavailableError

FIRST_PAUSE_MS = 100
"""Before a bookie is asked again: a little longer than it takes to rebuild a lost connection."""

LONGEST_PAUSE_MS = 1000
"""So a bookie that comes back is noticed within a second, and until then it costs one request a second."""


@dataclass(slots=True)
class _Slot:
    request_id: int | None = None
    heard_ms: int = 0
    pause_ms: int = 0
    """The current or the last pause; 0: the last request was of use."""
    not_before_ms: int = 0
    """When the pause ends."""
    reason: str = "not asked yet"
    """Why the last request was of no use."""


class Asking:
    """The requests to the slots of one ensemble of a ledger. ``numbers`` gives their ids."""

    def __init__(
        self, ledger_id: int, ensemble: tuple[str, ...], limits: RecoverLimits, numbers: Iterator[int], now_ms: int
    ) -> None:
        self._ledger_id = ledger_id
        self._ensemble = ensemble
        self._slots = [_Slot() for _ in ensemble]
        self._timeout_ms = limits.request_timeout_ms
        self._patience_ms = limits.patience_ms
        self._numbers = numbers
        self._learnt_ms = now_ms
        self._now_ms = now_ms

    def slot_of(self, request_id: int) -> int | None:
        """The slot that was asked; None if the request is over."""
        return next((slot for slot, state in enumerate(self._slots) if state.request_id == request_id), None)

    def may_ask(self, slot: int, now_ms: int) -> bool:
        return self._slots[slot].request_id is None and now_ms >= self._slots[slot].not_before_ms

    def ask(self, slot: int, now_ms: int) -> int:
        """Note a new request, and return its id."""
        state = self._slots[slot]
        assert state.request_id is None, "a slot has one request at most"
        assert now_ms >= state.not_before_ms, "its pause is over"
        state.request_id, state.heard_ms = next(self._numbers), now_ms
        state.reason = f"no answer for {self._timeout_ms / 1000:g} s"
        return state.request_id

    def heard(self, slot: int, now_ms: int) -> None:
        """A part of an answer arrived."""
        self._slots[slot].heard_ms = now_ms

    def learnt(self, now_ms: int) -> None:
        """Something new is known, or the bookies are not to blame for the wait: patience starts anew."""
        self._learnt_ms = now_ms

    def answered(self, slot: int) -> None:
        """The request is over and was of use."""
        assert self._slots[slot].request_id is not None
        self._slots[slot].request_id, self._slots[slot].pause_ms = None, 0

    def failed(self, slot: int, reason: str, now_ms: int) -> None:
        """The request is over and was of no use."""
        state = self._slots[slot]
        assert state.request_id is not None
        state.request_id, state.reason = None, reason
        state.pause_ms = min(max(FIRST_PAUSE_MS, 2 * state.pause_ms), LONGEST_PAUSE_MS)
        state.not_before_ms = now_ms + state.pause_ms

    def time_out(self, now_ms: int) -> list[int]:
        """End the requests that were silent for too long; returns their ids."""
        self._now_ms = now_ms
        silent: list[int] = []
        for slot, state in enumerate(self._slots):
            if state.request_id is not None and now_ms >= state.heard_ms + self._timeout_ms:
                silent.append(state.request_id)
                self.failed(slot, state.reason, now_ms)
        return silent

    def outstanding(self) -> list[int]:
        return [state.request_id for state in self._slots if state.request_id is not None]

    def unavailable(self, entry_id: int, slots: Iterable[int]) -> BookieUnavailableError:
        """The error for an entry about which these slots left too much unknown."""
        reasons = tuple(f"{self._ensemble[slot]}: {self._slots[slot].reason}" for slot in slots)
        return BookieUnavailableError(self._ledger_id, entry_id, reasons)

    def is_hopeless(self, now_ms: int) -> bool:
        return now_ms >= self._learnt_ms + self._patience_ms

    def deadline_ms(self) -> int:
        silences = [state.heard_ms + self._timeout_ms for state in self._slots if state.request_id is not None]
        pauses = [state.not_before_ms for state in self._slots if state.request_id is None]
        # A pause that has ended needs no call: its slot was asked again at once, or there is nothing to ask it for.
        return min([self._learnt_ms + self._patience_ms, *silences, *(end for end in pauses if end > self._now_ms)])
