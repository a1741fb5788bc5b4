"""What things cost in the simulated cluster: every number of the models, with its source.

*Measured* numbers are of virtual machines with two cores, by ``measure.py`` beside this or by what is named.
*Assumed* ones nobody has measured: they describe the machines of the simulated cluster, or are estimates. Change them to those
that you have; ``measure.py`` measures those of ZooKeeper, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.config import MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Times in seconds, amounts in bytes."""

    # ZooKeeper: what a request takes of its one ordering thread, and how long the way is.
    zookeeper_round_trip_s: float = 0.0007
    """Of a request to an idle server. Assumed: some 1,400 requests a second of one thread."""
    zookeeper_read_s: float = 0.00011
    """Of the server's CPU for a read. Measured together with the next three: ``cross_check.py``. Their ratios are assumed."""
    zookeeper_write_s: float = 0.00033
    """Of the server for a change, or for a transaction before its changes are counted."""
    zookeeper_part_s: float = 0.000022
    """For each further value of a read of many, and each further change of a transaction."""
    zookeeper_name_s: float = 0.00000065
    """For each name of a listing."""
    session_s: float = 10.0
    """After so long a bookie that was killed is not registered any more: ``session_timeout_s``."""
    watch_s: float = 0.005
    """From a change to the call of a watch. Assumed: a message and a turn of the event loop."""

    # A client process: Python, one core.
    request_cpu_s: float = 0.0003
    """For each request to ZooKeeper. Measured: commit 07189f83."""
    value_cpu_s: float = 0.000033
    """For each value of a read of many. Measured: commit 07189f83, 0.33 s for 10,000."""
    name_cpu_s: float = 0.000001
    """For each name of a listing. Assumed."""
    decode_cpu_s: float = 0.000024
    """To decode one ledger's metadata and to look who is missing. Measured: 24 µs."""
    choice_cpu_s: float = 0.0001
    """To choose a new bookie, apart from ``choice_bookie_cpu_s``. Measured: 0.16 ms among 10."""
    choice_bookie_cpu_s: float = 0.0000075
    """To choose a new bookie, for each bookie that is registered. Measured: 0.63 ms among 100, 8 ms among 1,000."""
    copy_cpu_s: float = 0.0041
    """Of a worker for each ledger that it copies, beside requests and bytes. Measured: ``cross_check.py``."""
    copied_mib_cpu_s: float = 0.0041
    """Of a worker for each MiB that it reads, verifies and sends, in entries of 16 KiB. Measured: ``cross_check.py``."""
    metadata_threads: int = 8
    """Requests to ZooKeeper of one client at a time: ``client_context.METADATA_THREADS``."""

    # The machine of a bookie.
    disk_bytes_per_s: float = 400e6
    """What the disks of a bookie read and write together. Assumed: some spinning disks, or one SSD."""
    network_bytes_per_s: float = 1.25e9
    """In each direction. Assumed: 10 Gb/s."""
    used_by_clients: float = 0.3
    """The share of disks and network that goes to clients meanwhile. Assumed."""
    bookie_copy_cpu_s: float = 0.0019
    """Of a bookie's core for each ledger that it gives or takes, beside its bytes. Measured: ``cross_check.py``."""
    bookie_mib_cpu_s: float = 0.0029
    """Of a bookie's core for each MiB that it gives or takes. Measured: ``cross_check.py``."""
    force_s: float = 0.005
    """Until a new bookie has made a copy durable. Assumed: one or two syncs."""
    piece_bytes: int = 128 * MIB
    """A ledger's bytes go through the resources in pieces of this: so large ledgers do not hold up small ones."""

    @property
    def disk(self) -> float:
        """What is left of a bookie's disks for copies."""
        return self.disk_bytes_per_s * (1 - self.used_by_clients)

    @property
    def network(self) -> float:
        """What is left of a machine's network, in each direction."""
        return self.network_bytes_per_s * (1 - self.used_by_clients)
