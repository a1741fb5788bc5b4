"""How long tasks report progress to their callers."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the current step, how much of it is done, and how much there is."""


def no_progress(what: str, done: int, total: int) -> None:
    """For callers that need no reports."""
