"""Says which step of the specification is looked at, counts it, and refuses what it does not allow."""

from __future__ import annotations

from collections import Counter

from tests.specification.actions import Action


class NotAllowedError(Exception):
    """A step that the specification does not have."""

    def __init__(self, action: Action, step: str, problem: str) -> None:
        super().__init__(f"{step}: {problem}, at {action}")
        self.step = step


class Judge:
    """``counts``: how often each step came. A name in brackets is of a part of a step, or of no step of the specification."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._action = Action("nobody")
        self._step = ""

    def looks_at(self, action: Action) -> None:
        self._action = action

    def step(self, name: str) -> None:
        """What is required from here on is the guard of this step."""
        self._step = name
        self.counts[name] += 1

    def require(self, holds: bool, problem: str) -> None:
        if not holds:
            raise NotAllowedError(self._action, self._step, problem)
