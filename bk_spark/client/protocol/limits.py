"""The limits of each state machine, from ClientConfig: how long it waits, how much it asks for and how much it holds.

Times are in milliseconds. Where a field only repeats one of ClientConfig, its reason stands there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bk_spark.client.protocol.copy_batches import COPY_BYTES
from bk_spark.config import MIB, ClientConfig

RECOVERY_WINDOW_ENTRIES = 4096
"""Ids that a recovery asks for at a time: a look-up each on the bookies where they are absent, for ledgers of tiny entries."""

COPY_REQUEST_BYTES = 2 * MIB
"""What one read of a re-replication asks for. With the read-ahead and the window of adds a ledger holds some 10 MiB, and more
only for single entries that are larger; 16 ledgers at once stay below 200 MiB."""


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


@dataclass(frozen=True, slots=True)
class AddLimits:
    """A writer's timeouts and retry limits."""

    add_timeout_ms: int
    add_quorum_timeout_ms: int
    delay_ensemble_change: bool
    max_ensemble_changes: int
    replacement_retry_ms: int
    explicit_lac_ms: int

    @staticmethod
    def of(config: ClientConfig) -> AddLimits:
        return AddLimits(
            milliseconds(config.add_timeout_s),
            milliseconds(config.add_quorum_timeout_s),
            config.delay_ensemble_change,
            config.max_ensemble_changes,
            milliseconds(config.replacement_retry_s),
            milliseconds(config.explicit_lac_s),
        )


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much a reader asks for and holds, and how long it waits for a bookie that sends nothing."""

    timeout_ms: int
    """After it the bookie's slot counts as failed."""
    speculative_ms: int
    """After it another slot is asked as well; never, if this is not below ``timeout_ms``."""
    request_bytes: int
    """Of the first request; later ones grow from it (``stripe_reads.py``)."""
    ahead_bytes: int

    @staticmethod
    def of(config: ClientConfig) -> ReadLimits:
        return ReadLimits(
            milliseconds(config.read_timeout_s),
            milliseconds(config.speculative_read_s),
            config.read_batch_bytes,
            config.read_ahead_requests * config.read_batch_bytes,
        )


@dataclass(frozen=True, slots=True)
class RecoverLimits:
    """How long a recovery waits, and how much it asks for and holds."""

    request_timeout_ms: int
    """A bookie that has sent nothing for this long is asked again."""
    patience_ms: int
    """The recovery fails after this long without learning anything new."""
    window_entries: int
    """How many ids, from the first undecided one on, bookies are asked for at a time."""
    request_bytes: int
    """What one read asks for, and the payload of one write-back."""
    adds: AddLimits

    @staticmethod
    def of(config: ClientConfig) -> RecoverLimits:
        return RecoverLimits(
            milliseconds(config.read_timeout_s),
            milliseconds(config.recovery_timeout_s),
            RECOVERY_WINDOW_ENTRIES,
            config.read_batch_bytes,
            AddLimits.of(config),
        )


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """How much the copying of one fragment holds, and how long it waits."""

    reads: ReadLimits
    add_timeout_ms: int
    """A new bookie that has not answered an add for this long is given up."""
    window_bytes: int
    """Bytes of unanswered adds. A single batch may exceed it."""
    batch_bytes: int = COPY_BYTES
    """Up to how many bytes a copied batch is filled."""

    @staticmethod
    def of(config: ClientConfig) -> CopyLimits:
        reads = replace(ReadLimits.of(config), request_bytes=COPY_REQUEST_BYTES, ahead_bytes=2 * COPY_REQUEST_BYTES)
        return CopyLimits(reads, milliseconds(config.add_timeout_s), 2 * COPY_REQUEST_BYTES)


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """How much a check of replicas asks for at once, and how long a bookie may stay silent."""

    timeout_ms: int
    request_bytes: int

    @staticmethod
    def of(config: ClientConfig) -> CheckLimits:
        return CheckLimits(milliseconds(config.read_timeout_s), config.read_batch_bytes)
