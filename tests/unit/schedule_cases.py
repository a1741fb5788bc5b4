"""Schedules that break a naive implementation, each with the mutation that takes its rule's guard out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import pytest

Scene = TypeVar("Scene")
Mutation = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class ScheduleCase(Generic[Scene]):
    rule: int
    schedule: Callable[[Scene], None]
    without: Mutation
    guard: str
    """What ``without`` takes out, in one line."""

    def __str__(self) -> str:
        return f"{self.rule}-{self.schedule.__name__}"


class ScheduleCases(list[ScheduleCase[Scene]]):
    def add(self, rule: int, without: Mutation, guard: str) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
        def decorate(schedule: Callable[[Scene], None]) -> Callable[[Scene], None]:
            self.append(ScheduleCase(rule, schedule, without, guard))
            return schedule

        return decorate
