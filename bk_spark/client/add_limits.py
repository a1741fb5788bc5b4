"""The patience of a writer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AddLimits:
    """Times in milliseconds. What each is for stands at the fields of ClientConfig."""

    add_timeout_ms: int
    add_quorum_timeout_ms: int
    delay_ensemble_change: bool
    max_ensemble_changes: int
    replacement_retry_ms: int
    explicit_lac_ms: int
