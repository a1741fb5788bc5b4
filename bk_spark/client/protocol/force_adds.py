"""Force: acked entries become durable, before something relies on that.

An acked entry may be in the memory of its bookies only. A bookie that has crashed since then has lost it, although it answers a
later force. So an answer counts only if it comes from the same run of the bookie's process, its *boot*, as the bookie's acks.

``ForceAdds`` is for writers with deferred sync: the LAC moves once the whole ensemble has answered. Once a slot failed or came
back in another boot every force fails, because the ensemble of such a ledger cannot change.

``ForcedCopies`` is for those who copy: re-replications, and recoveries that took new bookies into the ensemble. Without the
journal a bookie acks all adds out of its memory. What it loses in a crash it gets back while it is in limbo, but only what the
metadata says belongs there. So limbo protects a bookie that the metadata names, and nothing protects one that is only about to
be named: its limbo may be over by then. Before the metadata names it, it must hold its copies durably.

Ref: BP-46, "Protection Mechanism"; docs/rules.md, protocol rules 30 and 61.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bk_spark.client.protocol import state_machine as sm
from bk_spark.errors import BookKeeperError, NotForcedError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.wire.messages import Status

RESTARTED = "it was started again since it acked entries, which it may have lost"


@dataclass(slots=True)
class _Force:
    token: object
    last: int
    """The last acked entry at the time of the request."""
    length: int
    waiting: dict[int, int]
    """Request → slot."""
    sent_ms: int


class ForceAdds:
    """The forces of one writer, oldest first."""

    def __init__(self, metadata: LedgerMetadata, last_forced: int) -> None:
        self.last_forced = last_forced
        """Entries up to it are durable on all bookies."""
        self.length = 0
        """The ledger's payload bytes up to ``last_forced``."""
        self._metadata = metadata
        self._forces: deque[_Force] = deque()
        self._boots: dict[int, int] = {}
        self._lost: dict[int, str] = {}

    def acked(self, slot: int, boot: int) -> None:
        """The bookie of a slot acked an add while it ran as ``boot``."""
        if self._boots.setdefault(slot, boot) != boot:
            self.lose(slot, RESTARTED)

    def lose(self, slot: int, reason: str) -> None:
        """What this slot acked can never again count as durable."""
        self._lost.setdefault(slot, reason)

    def force(self, token: object, last: int, length: int, requests: list[int], now_ms: int) -> list[sm.Command]:
        """Make the entries up to ``last`` durable; ``requests`` are the numbers to use, one a slot."""
        if self._lost:
            return [sm.Reject(token, self._problem())]
        before = self._forces[-1].last if self._forces else self.last_forced
        assert last >= before, "what was acked stays acked"
        force = _Force(token, last, length, dict(zip(requests, range(self._metadata.ensemble_size), strict=True)), now_ms)
        self._forces.append(force)
        ensemble = self._metadata.last_fragment.ensemble
        return [sm.SendForce(request_id, ensemble[slot]) for request_id, slot in force.waiting.items()]

    def answered(self, event: sm.ForceAnswered) -> list[sm.Command]:
        force = next((force for force in self._forces if event.request_id in force.waiting), None)
        if force is None:
            return []
        slot = force.waiting.pop(event.request_id)
        if event.status is not Status.OK:
            self.lose(slot, event.problem)
        else:
            self.acked(slot, event.boot)
        return self._settle()

    def check_timeout(self, timeout_ms: int, now_ms: int) -> list[sm.Command]:
        """Give up the slots that did not answer the oldest force in time."""
        if self._forces and now_ms >= self._forces[0].sent_ms + timeout_ms:
            for slot in self._forces[0].waiting.values():
                self.lose(slot, f"no answer for {timeout_ms / 1000:g} s")
        return self._settle()

    def deadline_ms(self, timeout_ms: int) -> int | None:
        return self._forces[0].sent_ms + timeout_ms if self._forces else None

    def fail(self, error: BookKeeperError) -> list[sm.Command]:
        forces, self._forces = self._forces, deque()
        return [sm.Reject(force.token, error) for force in forces]

    def _settle(self) -> list[sm.Command]:
        if self._lost:
            return self.fail(self._problem())
        done: list[sm.Command] = []
        while self._forces and not self._forces[0].waiting:
            force = self._forces.popleft()
            assert force.length >= self.length
            self.last_forced, self.length = max(self.last_forced, force.last), max(self.length, force.length)
            done.append(sm.Confirm(force.token, self.last_forced))
        return done

    def _problem(self) -> BookKeeperError:
        ensemble = self._metadata.last_fragment.ensemble
        reasons = tuple(f"{ensemble[slot]}: {reason}" for slot, reason in sorted(self._lost.items()))
        return NotForcedError(self._metadata.ledger_id, self.last_forced + 1, reasons)


class ForcedCopies:
    """What one copier knows of the bookies that it writes to."""

    def __init__(self, numbers: Iterator[int], timeout_ms: int) -> None:
        """``numbers`` gives the ids of requests. A force that is not answered within ``timeout_ms`` has failed."""
        self.lost: dict[str, str] = {}
        """Bookies whose acks can never count as durable, with the reason."""
        self._numbers = numbers
        self._timeout_ms = timeout_ms
        self._boots: dict[str, int] = {}
        self._durable: set[str] = set()
        self._waiting: dict[int, tuple[str, int]] = {}
        """Request → bookie, and when it was sent."""

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def acked(self, bookie_id: str, boot: int) -> None:
        """The bookie acked an add while it ran as ``boot``."""
        self._durable.discard(bookie_id)
        if self._boots.setdefault(bookie_id, boot) != boot:
            self.lost.setdefault(bookie_id, RESTARTED)

    def forget(self, bookie_id: str) -> None:
        """Copies to this bookie begin anew, or never come back."""
        self.lost.pop(bookie_id, None)
        self._boots.pop(bookie_id, None)
        self._durable.discard(bookie_id)
        self._waiting = {number: one for number, one in self._waiting.items() if one[0] != bookie_id}

    def force(self, bookie_ids: Collection[str], now_ms: int) -> list[sm.Command]:
        """Force those that acked something and have not answered a force since. Every add to them must be answered."""
        asked = {bookie_id for bookie_id, _ in self._waiting.values()}
        assert self._durable.isdisjoint(asked), "what is durable is not asked for"
        assert self._durable.isdisjoint(self.lost), "what is lost is not durable"
        due = self._boots.keys() & set(bookie_ids) - self.lost.keys() - self._durable - asked
        commands: list[sm.Command] = []
        for bookie_id in sorted(due):
            request_id = next(self._numbers)
            self._waiting[request_id] = (bookie_id, now_ms)
            commands.append(sm.SendForce(request_id, bookie_id))
        return commands

    def answered(self, event: sm.ForceAnswered) -> None:
        bookie_id, _ = self._waiting.pop(event.request_id, ("", 0))
        if not bookie_id:
            return
        if event.status is not Status.OK:
            self.lost.setdefault(bookie_id, event.problem)
            return
        self.acked(bookie_id, event.boot)
        if bookie_id not in self.lost:
            self._durable.add(bookie_id)

    def check_timeout(self, now_ms: int) -> None:
        for request_id, (bookie_id, sent_ms) in list(self._waiting.items()):
            if now_ms >= sent_ms + self._timeout_ms:
                del self._waiting[request_id]
                self.lost.setdefault(bookie_id, f"no answer to a force for {self._timeout_ms / 1000:g} s")

    def deadline_ms(self) -> int | None:
        return min((sent_ms + self._timeout_ms for _, sent_ms in self._waiting.values()), default=None)
