"""One case: a command as somebody types it, what it may do to the cluster, and how it is disturbed. Pure values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.soak.commands.model import State

Effect = Callable[[State], State | None]
"""The state after the command took effect once; None where it must be refused."""


def nothing(state: State) -> State:
    return state


def refused(state: State) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Case:
    words: tuple[str, ...]
    """Without ``--metadata``."""
    effect: Effect | None = nothing
    """None: it may be refused or not, and changes nothing."""
    copies: int = 1
    """The same command so many times at once."""
    signal: int | None = None
    """Sent to the first copy, after ``after_s``."""
    after_s: float = 0.0
    runs_until_told: bool = False
    """A server: it has to be told to stop."""
    is_executable: bool = False
    """As the installed ``bk-spark``, with its start, not as a fork of a process that has imported everything."""
    output: str | None = None
    """A file that holds all rows of a log in CSV, JSON, Parquet or Arrow afterwards, or what it held before."""
    held: bytes | None = None
    """What the file held before; None if there was none."""
    about: str = ""
    """The log that is written to ``output``."""
    is_wrong_usage: bool = False
    """The arguments alone show it."""
    stdout: str = ""
    """``closed``, ``ascii`` (its encoding), or as a file."""
    may_conflict: bool = False
    """Two at once may be refused, one by the other."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How one copy ended."""

    code: int
    """As ``subprocess`` has it: minus the signal that ended it."""
    out: str
    err: str
    seconds: float
    was_told: bool = False
    """The signal was sent before it had ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    case: Case
    before: State
    ended: tuple[Ended, ...]
    after: State
    problems: tuple[str, ...] = field(default=())
