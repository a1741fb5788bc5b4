"""Settings of auditors and replication workers. A field's first sentence is also the help of its command-line option."""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.config import MIB, check_numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class AutoRecoveryConfig:
    """Settings of one AutoRecovery process. Times in seconds, sizes in bytes. An auditor's settings decide for the cluster."""

    lost_bookie_grace_s: float = 60.0
    """A bookie that was gone for this long is lost, and its ledgers are copied: longer than a restart takes.

    Whether its process ended cleanly or was cut off makes no difference. If another bookie goes meanwhile, none is waited for:
    a second loss may be the last copy."""

    audit_interval_s: float = 86_400.0
    """How often all ledgers' metadata is compared with the bookies that are there, beside the audits that a loss causes."""

    ledger_check_interval_s: float = 604_800.0
    """How often the replicas of all ledgers are read: damage that no reader met yet is found within this time."""

    ledger_check_bytes_per_s: int = 50 * MIB
    """What the check reads at most, over all bookies, so that users keep most of the disks and the network."""

    open_fragment_grace_s: float = 30.0
    """A ledger that is written to and lacks copies of its last fragment is given this long for its writer to replace the lost
    bookie; then it is fenced and closed: its writer is most likely dead, and nobody else would look after it."""

    parallel_ledgers: int = 16
    """Ledgers that one worker copies at once: a ledger of few entries costs round trips, not bytes."""

    replicate_bytes_per_s: int = 200 * MIB
    """What one worker copies at most, so that users keep part of the disks and the network."""

    retry_s: float = 30.0
    """A ledger that could not be made whole is tried again after this long; so is one that somebody else has locked."""

    max_rack_moves: int = 1_000
    """Ledgers in too few racks that one audit has moved to more, at most; the next audit goes on. 0: they are only counted."""

    min_racks_per_write_quorum: int = 1
    """Racks that hold copies of each entry, at least: a bookie that would leave fewer takes no lost one's place."""

    session_timeout_s: float = 10.0
    """ZooKeeper session: after this long without contact another process becomes the auditor and may take the locks."""

    connect_timeout_s: float = 10.0
    """How long to wait for the metadata store at the start."""

    http_port: int = 0
    """Where to serve /metrics and /health; 0: nowhere."""

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("max_rack_moves",))
