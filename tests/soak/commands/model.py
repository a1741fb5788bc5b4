"""What the commands' net knows of a cluster: logs with their rows and ledgers, ledgers of its own, and files. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Row = tuple[tuple[str, Any], ...]
"""The columns of a row with their values, by name."""


@dataclass(frozen=True, slots=True)
class LogState:
    version: int = 0
    columns: tuple[tuple[str, str], ...] = ()
    """Names and types; none in an empty log and in one of entries."""
    ledgers: tuple[tuple[Any, ...], ...] = ()
    """The rows, or the payloads, of each ledger, in log order."""
    is_entries: bool = False
    open_ledgers: int = 0
    retention: tuple[Any, ...] = (604_800, None, None)

    @property
    def rows(self) -> tuple[Any, ...]:
        return tuple(row for ledger in self.ledgers for row in ledger)

    def appended(self, columns: tuple[tuple[str, str], ...], rows: tuple[Row, ...]) -> LogState:
        """One commit more. Rows that are there already have null in the columns that are new."""
        names = [name for name, _ in columns]
        ledgers = tuple(tuple(filled(row, names) for row in ledger) for ledger in self.ledgers)
        added = (tuple(filled(row, names) for row in rows),) if rows else ()
        return replace(self, version=self.version + 1, columns=columns, ledgers=ledgers + added)


def filled(row: Row, names: list[str]) -> Row:
    known = dict(row)
    return tuple((name, known.get(name)) for name in names)


@dataclass(frozen=True, slots=True)
class State:
    logs: Mapping[str, LogState] = field(default_factory=dict)
    ledgers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """Ledgers of no log: their state and last entry."""
    autorecovery: bool = True

    def with_log(self, name: str, log: LogState | None) -> State:
        logs = {**self.logs, name: log} if log is not None else {one: it for one, it in self.logs.items() if one != name}
        return replace(self, logs=logs)

    def with_ledger(self, ledger_id: int, ledger: tuple[str, int] | None) -> State:
        rest = {one: it for one, it in self.ledgers.items() if one != ledger_id}
        return replace(self, ledgers=rest if ledger is None else {**rest, ledger_id: ledger})


def difference(one: State, other: State) -> str:
    """The first thing in which two states differ, for a person; empty if they are equal."""
    for name in sorted(one.logs.keys() | other.logs.keys()):
        here, there = one.logs.get(name), other.logs.get(name)
        if here != there:
            return f"log {name}: {here} and {there}"
    for ledger_id in sorted(one.ledgers.keys() | other.ledgers.keys()):
        if one.ledgers.get(ledger_id) != other.ledgers.get(ledger_id):
            return f"ledger {ledger_id}: {one.ledgers.get(ledger_id)} and {other.ledgers.get(ledger_id)}"
    return "" if one.autorecovery == other.autorecovery else f"autorecovery: {one.autorecovery} and {other.autorecovery}"
