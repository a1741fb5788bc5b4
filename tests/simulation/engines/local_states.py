"""A state machine as a table, filled while it is asked for: local state × event → local state and commands.

The machine is the shipped one. A local state is known by what the machine holds, value by value; to get into one, a new
machine is given the events that first led there. So a local state that is a part of a million global ones costs its few
milliseconds once, and no machine is ever copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from bk_spark.client.protocol.state_machine import Command, Event, Finish, StateMachine

Machine = Callable[[], StateMachine]


@dataclass(frozen=True, slots=True)
class Step:
    """What an event makes of a local state."""

    state: int
    commands: tuple[Command, ...]
    is_ignored: bool
    """Nothing came of it, and never will: the machine waits for no such answer."""


@dataclass(frozen=True, slots=True)
class _Known:
    history: tuple[tuple[Event, int], ...]
    """Events, each with its time in milliseconds."""
    now_ms: int
    deadline_ms: int | None
    is_over: bool


class LocalStates:
    """The local states of one client. 0 is that of a new machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ids: dict[Hashable, int] = {}
        self._known: list[_Known] = []
        self._steps: dict[tuple[int, Hashable], Step] = {}
        self._enter(machine(), (), 0, is_over=False)

    def __len__(self) -> int:
        return len(self._known)

    def deadline_ms(self, state: int) -> int | None:
        return self._known[state].deadline_ms

    def is_over(self, state: int) -> bool:
        return self._known[state].is_over

    def step(self, state: int, key: Hashable, events: Callable[[], tuple[Event, ...]], *, at_deadline: bool = False) -> Step:
        """``events`` follow each other without anything in between; ``key`` stands for them."""
        if (state, key) not in self._steps:
            self._steps[state, key] = self._take(state, events(), at_deadline)
        return self._steps[state, key]

    def _take(self, state: int, events: tuple[Event, ...], at_deadline: bool) -> Step:
        known = self._known[state]
        if known.is_over:
            return Step(state, (), True)
        machine = self._machine()
        for event, event_ms in known.history:
            machine.handle(event, event_ms)
            machine.take_commands()
        now_ms = max(known.now_ms, known.deadline_ms or 0) if at_deadline else known.now_ms
        commands: list[Command] = []
        for event in events:
            machine.handle(event, now_ms)
            commands += machine.take_commands()
        is_over = any(isinstance(one, Finish) for one in commands)
        history = (*known.history, *((event, now_ms) for event in events))
        after = self._enter(machine, history, now_ms, is_over=is_over)
        return Step(after, tuple(commands), after == state and not commands)

    def _enter(self, machine: StateMachine, history: tuple[tuple[Event, int], ...], now_ms: int, *, is_over: bool) -> int:
        value = ("over",) if is_over else (now_ms, frozen(machine))
        if value not in self._ids:
            self._ids[value] = len(self._known)
            deadline_ms = None if is_over else machine.deadline_ms()
            self._known.append(_Known(history, now_ms, deadline_ms, is_over))
        return self._ids[value]


def frozen(value: Any) -> Hashable:
    """All that an object holds, as one hashable value."""
    if value is None or isinstance(value, (int, str, bytes, range, Enum)):
        return value
    if isinstance(value, (list, tuple, deque)):
        return tuple(frozen(one) for one in value)
    if isinstance(value, dict):
        return tuple((frozen(key), frozen(one)) for key, one in value.items())
    if isinstance(value, (set, frozenset)):
        return frozenset(frozen(one) for one in value)
    if is_dataclass(value) and isinstance(value, Hashable) and type(value).__hash__ is not object.__hash__:
        return value
    if is_dataclass(value):
        return (type(value).__name__, *(frozen(getattr(value, one.name)) for one in fields(value)))
    if hasattr(value, "__dict__"):
        return (type(value).__name__, *(frozen(one) for one in vars(value).values()))
    return repr(value)
