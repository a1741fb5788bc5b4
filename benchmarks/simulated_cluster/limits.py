"""The least time in which lost copies can be made again: their bytes over the bandwidth of those that can help. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.simulated_cluster.resources import Machine


@dataclass(frozen=True, slots=True)
class Limit:
    """No order of work is faster. All in seconds."""

    disks_s: float
    """Each byte is read from one disk and written to another one."""
    network_s: float
    """Each byte comes to a worker and to a new bookie, and leaves an old one and the worker."""
    workers_s: float
    """What the workers may copy by their settings."""

    @property
    def seconds(self) -> float:
        return max(self.disks_s, self.network_s, self.workers_s)

    @property
    def of_hardware_s(self) -> float:
        """If there were workers enough."""
        return max(self.disks_s, self.network_s)


def limit_of(nbytes: int, machines: Sequence[Machine], workers_bytes_per_s: float) -> Limit:
    disks = sum(machine.disk.rate for machine in machines)
    network = sum(machine.received.rate for machine in machines)
    return Limit(2 * nbytes / disks, 2 * nbytes / network, nbytes / workers_bytes_per_s)
