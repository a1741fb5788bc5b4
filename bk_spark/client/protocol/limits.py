"""How long each state machine waits, and how much it holds: made from ClientConfig."""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.client.protocol.copy_batches import COPY_BYTES
from bk_spark.config import ClientConfig


@dataclass(frozen=True, slots=True)
class RecoverLimits:
    """How long a recovery waits, and how much it asks for and holds."""

    request_timeout_ms: int
    """A bookie that has sent nothing for this long is asked again."""
    patience_ms: int
    """The recovery gives up once it has learnt nothing for this long."""
    window_entries: int
    """Ids, from the first undecided one on, that bookies are asked for at a time."""
    request_bytes: int
    """What one read asks for, and the payload of one write-back."""
    adds: AddLimits


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """How much is asked for at once, and how long a bookie may be silent."""

    timeout_ms: int
    request_bytes: int


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much a reader asks for and holds, and how long it waits for a bookie that sends nothing."""

    timeout_ms: int
    """Then its slot has failed."""
    speculative_ms: int
    """Then another slot is asked beside it; no less than ``timeout_ms`` means never."""
    request_bytes: int
    """Of the first request; later ones grow from it (``read_lanes.py``)."""
    ahead_bytes: int


def read_limits(config: ClientConfig) -> ReadLimits:
    """How much a reader asks for and holds, as the state machine takes it."""
    return ReadLimits(
        timeout_ms=_ms(config.read_timeout_s),
        request_bytes=config.read_batch_bytes,
        ahead_bytes=config.read_ahead_requests * config.read_batch_bytes,
        speculative_ms=_ms(config.speculative_read_s),
    )


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


WINDOW_ENTRIES = 4096
"""Ids that a recovery asks for at a time: a look-up each on the bookies where they are absent, for ledgers of tiny entries."""


def recover_limits(config: ClientConfig) -> RecoverLimits:
    """A recovery's patience, as the state machine takes it."""
    return RecoverLimits(
        request_timeout_ms=int(config.read_timeout_s * 1000),
        patience_ms=int(config.recovery_timeout_s * 1000),
        window_entries=WINDOW_ENTRIES,
        request_bytes=config.read_batch_bytes,
        adds=add_limits(config),
    )


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """How much one fragment's copying holds, and how long it waits."""

    reads: ReadLimits
    add_timeout_ms: int
    """A new bookie that has not answered an add for this long is given up."""
    window_bytes: int
    """Of adds that are not answered yet; one may exceed it."""
    batch_bytes: int = COPY_BYTES
    """What a copied batch is filled up to."""


def add_limits(config: ClientConfig) -> AddLimits:
    """A writer's patience, as the state machine takes it."""
    return AddLimits(
        add_timeout_ms=int(config.add_timeout_s * 1000),
        add_quorum_timeout_ms=int(config.add_quorum_timeout_s * 1000),
        delay_ensemble_change=config.delay_ensemble_change,
        max_ensemble_changes=config.max_ensemble_changes,
        replacement_retry_ms=int(config.replacement_retry_s * 1000),
        explicit_lac_ms=int(config.explicit_lac_s * 1000),
    )


@dataclass(frozen=True, slots=True)
class AddLimits:
    """Times in milliseconds. What each is for stands at the fields of ClientConfig."""

    add_timeout_ms: int
    add_quorum_timeout_ms: int
    delay_ensemble_change: bool
    max_ensemble_changes: int
    replacement_retry_ms: int
    explicit_lac_ms: int
