"""Resources that serve one after the other: disks, networks, cores, ZooKeeper. Pure.

A resource is never idle while work waits, so the work that it did is exact. What is asked for at one moment is served in the
order in which it was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Resource:
    """``rate``: what it does in a second, in bytes or in seconds of work."""

    rate: float = 1.0
    busy_until_s: float = 0.0
    done: float = 0.0
    """All work so far."""

    def take(self, amount: float, now_s: float) -> float:
        """Queue ``amount``. Returns when it is done."""
        self.busy_until_s = max(self.busy_until_s, now_s) + amount / self.rate
        self.done += amount
        return self.busy_until_s


@dataclass(slots=True)
class SharedCores(Resource):
    """One thread of execution on a machine whose cores it shares with others. ``free_s``: when each core is free."""

    free_s: list[float] = field(default_factory=list)

    def take(self, amount: float, now_s: float) -> float:
        """As of ``Resource``: begins once the thread and a core are free, on the core that is free first."""
        core = self.free_s.index(min(self.free_s))
        self.busy_until_s = self.free_s[core] = max(self.busy_until_s, self.free_s[core], now_s) + amount
        self.done += amount
        return self.busy_until_s


@dataclass(slots=True)
class Machine:
    """Of one bookie, and of the worker beside it."""

    disk: Resource
    received: Resource
    sent: Resource
    core: Resource
    """Of the bookie's process."""
