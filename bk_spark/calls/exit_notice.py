"""Says, when the interpreter exits, what was appended and is not confirmed: nobody else would.

The client's threads are daemons, which end with the interpreter, in the middle of what they do. They still run while this
looks: ``atexit`` comes after the last thread of the application, and before the daemons end.
"""

from __future__ import annotations

import atexit
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias
from weakref import WeakSet

from bk_spark.calls.forks import is_forked

_Unit: TypeAlias = Literal["entry", "row"]

MOST_NAMES = 5
"""Ledgers and logs that one sentence names."""


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """Appends without an answer."""

    count: int
    unit: _Unit
    where: str
    """The ledger or the log."""


class Appending(Protocol):
    def _unconfirmed(self) -> Unconfirmed:
        """What it holds now, beside what it has handed to another writer. From any thread, without a wait."""


_in_use: WeakSet[Appending] = WeakSet()
_dropped: Counter[tuple[_Unit, str]] = Counter()


def tell_at_exit(writer: Appending) -> None:
    """Have a writer asked at the exit, if it is in use then."""
    _in_use.add(writer)


def dropped(appends: Unconfirmed) -> None:
    """These will never be confirmed, and whoever made them is gone."""
    _dropped[appends.unit, appends.where] += appends.count


def sentence(found: Iterable[Unconfirmed]) -> str:
    """What the exit says of them; empty: nothing."""
    counts: Counter[tuple[_Unit, str]] = Counter()
    for appends in found:
        counts[appends.unit, appends.where] += appends.count
    named = [f"{where} ({_counted(count, unit)})" for (unit, where), count in sorted(counts.items()) if count]
    if not named:
        return ""
    more = f" and {len(named) - MOST_NAMES:,} more" if len(named) > MOST_NAMES else ""
    return (
        f"bk_spark: the program ends before appends to {', '.join(named[:MOST_NAMES])}{more} are confirmed: they may be "
        "stored, or not. Wait for their futures, or close the writer of rows or of a log, before it ends."
    )


def _counted(count: int, unit: _Unit) -> str:
    return f"{count:,} {unit}" if count == 1 else f"{count:,} {'entries' if unit == 'entry' else 'rows'}"


def _tell() -> None:
    if is_forked() or sys.stderr is None:
        return
    with suppress(Exception):  # such as that of a closed stderr: an exit has nobody to tell
        counted = (Unconfirmed(count, *of) for of, count in _dropped.items())
        if said := sentence([*counted, *(writer._unconfirmed() for writer in list(_in_use))]):
            print(said, file=sys.stderr)


atexit.register(_tell)
