"""Traces that processes wrote down (traced.py), put together and judged, ledger by ledger.

Nobody records the moment at which the metadata store takes a compare-and-set. So a ``Stores`` is put before the first
action that knows its version; one that nobody learnt of is what somebody asked for, at the version before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.specification.actions import Action, Begins, Learns, Ledger, Stores, Writes, decode
from tests.specification.judge import NotAllowedError
from tests.specification.specification import Specification, judge
from tests.specification.traced import ALL_LEDGERS

STORE = "the metadata store"


def actions_of(files: Iterable[Path], ledger_id: int, until_ns: float = math.inf) -> list[Action]:
    """All that was done about a ledger by a moment of the monotonic clock, in the order of time."""
    wanted = {str(ledger_id), str(ALL_LEDGERS)}
    found: list[tuple[int, Action]] = []
    for file in files:
        for line in file.read_text().splitlines(keepends=True):
            time_ns, ledger, action = line.split(" ", 2)
            if ledger in wanted and line.endswith("\n") and int(time_ns) <= until_ns:
                found.append((int(time_ns), decode(action)))
    return [action for _, action in sorted(found, key=lambda one: one[0])]


def judge_recorded(actions: list[Action], end: tuple[int, Ledger] | None = None) -> Specification:
    """``end``: what the store holds now, with its version. Raises NotAllowedError."""
    return judge(with_stores(actions, end))


def with_stores(actions: list[Action], end: tuple[int, Ledger] | None) -> Iterator[Action]:
    versions = _versions(actions, end)
    stored = -1
    for action in actions:
        for version in range(stored + 1, max(stored, _knows(action)) + 1):
            yield _stores(action, version, versions)
        stored = max(stored, _knows(action))
        yield action
    for version in range(stored + 1, (end[0] if end is not None else stored) + 1):
        yield _stores(Action(STORE), version, versions)


def _knows(action: Action) -> int:
    return action.version if isinstance(action, Begins | Learns) else -1


def _versions(actions: list[Action], end: tuple[int, Ledger] | None) -> dict[int, Ledger]:
    """What the store held, as far as it can be known."""
    versions = {one.version: one.ledger for one in actions if isinstance(one, Begins | Learns)}
    if end is not None:
        versions[end[0]] = end[1]
    for one in actions:
        if isinstance(one, Writes):
            versions.setdefault(one.expected_version + 1, one.ledger)
    return versions


def _stores(action: Action, version: int, versions: dict[int, Ledger]) -> Stores:
    if version not in versions:
        raise NotAllowedError(action, "(metadata)", f"nobody asked for what was stored as version {version}")
    return Stores(STORE, version, versions[version])
