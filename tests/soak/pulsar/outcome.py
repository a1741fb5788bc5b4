"""What a run found, and how it is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MAX_LINES = 20
"""Violations that are printed."""


@dataclass(slots=True)
class Outcome:
    """What a run found. ``violations`` is empty if it held."""

    sent: int = 0
    acknowledged: int = 0
    received: int = 0
    received_again: int = 0
    read: int = 0
    missing: int = 0
    out_of_order: int = 0
    doubled: int = 0
    """Messages that are stored more than once: a producer whose broker died before its answer sends again."""
    ledgers_made: int = 0
    ledgers_read: int = 0
    entries_read: int = 0
    """By bk_spark's client."""
    unseen: int = 0
    """Acknowledged messages at the end of open ledgers, which a reader that does not recover them does not see."""
    ledgers_orphaned: int = 0
    """Made by a broker that died before it had noted them: nobody deletes them."""
    bytes_before: int = 0
    bytes_after: int = 0
    """In files of entries, before and after the topics were deleted."""
    faults: Counter[str] = field(default_factory=Counter)
    ended: int = 0
    """Processes that ended by themselves and were started again: Pulsar's brokers and Apache's bookies do that."""
    sending_s: float = 0.0
    longest_stall_s: float = 0.0
    """Without an acknowledgement of any topic."""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def describe(self) -> str:
        """What was sent, what was broken, and what is wrong."""
        rate = self.sent / self.sending_s if self.sending_s else 0.0
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items())) or "none"
        return "\n".join(
            (
                f"faults: {self.faults.total()}: {faults}; ended by themselves: {self.ended}",
                f"messages sent: {self.sent}, acknowledged: {self.acknowledged}",
                f"sent in {self.sending_s:.0f} s, {rate:.0f} a second; nothing for {self.longest_stall_s:.0f} s at most",
                f"received by subscriptions: {self.received}, of these again: {self.received_again}",
                f"read from the first on: {self.read}, missing: {self.missing}, out of order: {self.out_of_order}, "
                f"doubled (allowed): {self.doubled}",
                f"ledgers made: {self.ledgers_made}, orphaned: {self.ledgers_orphaned}",
                f"read by bk_spark's client: {self.ledgers_read} ledgers, {self.entries_read} entries; unseen: {self.unseen}",
                f"files of entries: {self.bytes_before / 1e6:.1f} MB, once topics were deleted {self.bytes_after / 1e6:.1f} MB",
                f"seconds: {self.seconds:.0f}",
                *(f"VIOLATED {violation}" for violation in self.violations[:MAX_LINES]),
                f"violations: {len(self.violations)}",
            )
        )
