"""One public call that is interrupted, what must work after it, and what must be there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bk_spark.config import ClientConfig
from tests.soak.interrupts.bookies import MemoryClient

CONFIG = ClientConfig(add_window_bytes=8_000, add_batch_bytes=4_000, explicit_lac_s=3_600.0)
LARGE = bytes(3_000)
"""Two of these leave no room in the window for a third one."""


@dataclass(frozen=True, slots=True)
class Case:
    """One public call, of what ``make`` makes."""

    name: str
    make: Callable[[MemoryClient], Any]
    call: Callable[[Any], Any]
    after: Callable[[Any], Any]
    """What must work after it."""
    check: Callable[[MemoryClient, Any, Any, str], None] = lambda client, subject, result, name: None
    """Raises FoundError for what must be so in the end, given what ``after`` gave."""
    is_full: bool = False
    """Whether the window is full when the call is made, and gets room a moment later."""
