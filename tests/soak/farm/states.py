"""What a run reached: the state of the specification behind each step, so coarse that a farm can hope to see most of them.

Of the ledger its status, and whether it changed its ensemble; how far the writer, the furthest recovery and another one are;
whether copies are made; what befell bookies. Which bookie, which entry and how many of each are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from tests.specification.actions import COPY, Action
from tests.specification.specification import Specification
from tests.specification.variables import Operation, Variables

State: TypeAlias = tuple[object, ...]


def states_of(actions: Iterable[Action]) -> set[State]:
    """Of a run that the specification allows."""
    specification = Specification()
    found: set[State] = set()
    for action in actions:
        specification.take(action)
        found.add(state_of(specification.variables))
    return found


def state_of(variables: Variables) -> State:
    ledger = variables.ledger
    stored = None if ledger is None else (ledger.state, len(ledger.fragments) > 1)
    operations = variables.operations.values()
    writer = next((_writing(one) for one in operations if one.is_writer), "")
    first, second, *_ = (*sorted((_recovering(one) for one in operations if one.is_recovery), reverse=True), -1, -1)
    copies = any(one.kind == COPY and not one.is_withdrawn for one in operations)
    bookies = variables.bookies.values()
    befell = any(one.is_fenced for one in bookies), any(one.in_limbo for one in bookies), any(one.is_lossy for one in bookies)
    return stored, writer, first, second, copies, befell


def _writing(one: Operation) -> str:
    if one.is_withdrawn:
        return "over"
    if one.is_closing:
        return "closing"
    if one.next_ensemble is not None:
        return "changing"
    return "waiting" if one.lap > one.lac else "idle"


def _recovering(one: Operation) -> int:
    """The higher, the further."""
    if one.is_closing or one.writes:
        return 4
    if one.adds:
        return 3
    if one.recovery.has_read:
        return 2
    return 1 if one.recovery.fenced else 0
