"""What logs hold and who may do what, as lists: the answer that each call to a gateway must give."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

COLUMNS = ("id", "text")
MORE = "more"
"""A column that logs get by merging alone."""

Row = dict[str, Any]
_lives = itertools.count(1)


class Outcome(Enum):
    """How a call ends that does not succeed."""

    UNKNOWN_CALLER = "UNAUTHENTICATED"
    REFUSED = "PERMISSION_DENIED"
    NO_LOG = "NOT_FOUND"
    WRONG = "INVALID_ARGUMENT"
    REPLACED = "ABORTED"


class NoAnswerError(Exception):
    """The call must end so."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


@dataclass(frozen=True)
class Chunk:
    """The rows of one append, which stand in one ledger."""

    rows: tuple[Row, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Version:
    kind: str
    chunks: tuple[Chunk, ...]
    columns: tuple[str, ...]
    """None yet: empty."""
    application: tuple[str, int] | None = None
    added: int = 0
    removed: int = 0

    @property
    def rows(self) -> list[Row]:
        return [row for chunk in self.chunks for row in chunk.rows]


@dataclass
class LogModel:
    """One log, from its creation to its deletion."""

    versions: list[Version] = field(default_factory=lambda: [Version("", (), ())])
    """The first one has no rows, and nobody lists it."""
    applications: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Application → its last number, and the version of the log that holds it."""
    life: int = field(default_factory=lambda: next(_lives))

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    @property
    def number(self) -> int:
        return len(self.versions) - 1


@dataclass(frozen=True)
class AskedRows:
    """A read: which columns, which rows, of which version, from which chunk to which."""

    columns: tuple[str, ...] | None = None
    least: int | None = None
    """``where id >= least``."""
    text: str | None = None
    """``where text = 'text'``."""
    version: int | None = None
    first: int = 0
    last: int | None = None
    """Chunks of that version, the last one excluded."""

    @property
    def where(self) -> str | None:
        terms = [] if self.least is None else [f"id >= {self.least}"]
        terms += [] if self.text is None else [f"text = '{self.text}'"]
        return " AND ".join(terms) or None

    def takes(self, row: Row) -> bool:
        return (self.least is None or row["id"] >= self.least) and (self.text is None or row["text"] == self.text)


class World:
    """All logs, tokens and grants."""

    def __init__(self) -> None:
        self.logs: dict[str, LogModel] = {}
        self.callers: set[str] = set()
        """Names of tokens that live."""
        self.grants: set[tuple[str, str, str]] = set()
        """Name of a token, pattern, right."""

    # Who may do what

    def rights(self, caller: str, log: str) -> set[str]:
        def covers(pattern: str) -> bool:
            return log.startswith(pattern[:-1]) if pattern.endswith("*") else log == pattern

        return {right for name, pattern, right in self.grants if name == caller and covers(pattern)}

    def check(self, caller: str, log: str, *needed: str) -> None:
        self.check_known(caller)
        if not set(needed) <= self.rights(caller, log):
            raise NoAnswerError(Outcome.REFUSED)

    def check_known(self, caller: str) -> None:
        if caller not in self.callers:
            raise NoAnswerError(Outcome.UNKNOWN_CALLER)

    def seen(self, caller: str) -> dict[str, int]:
        """Which logs it sees, and how many rows each has: -1 where it has no columns yet."""
        self.check_known(caller)
        seen = {name: log.newest for name, log in sorted(self.logs.items()) if self.rights(caller, name)}
        return {name: len(one.rows) if one.columns else -1 for name, one in seen.items()}

    # Changes

    def log(self, name: str) -> LogModel:
        if name not in self.logs:
            raise NoAnswerError(Outcome.NO_LOG)
        return self.logs[name]

    def create(self, name: str) -> int:
        return self.logs.setdefault(name, LogModel()).number

    def delete(self, name: str) -> None:
        self.log(name)
        del self.logs[name]

    def append(
        self, name: str, chunk: Chunk, application: tuple[str, int] | None, *, create: bool, merge: bool
    ) -> tuple[int, bool]:
        """The version that holds it, and whether it was there already."""
        log = LogModel() if create and name not in self.logs else self.log(name)
        before = log.newest.columns
        if not merge and before and set(chunk.columns) - set(before):
            raise NoAnswerError(Outcome.WRONG)
        if application is not None and application[0] in log.applications:
            number, version = log.applications[application[0]]
            if application[1] <= number:
                return version, True
        self.logs[name] = log
        columns = (*before, *(one for one in chunk.columns if one not in before))
        chunks = (*log.newest.chunks, chunk) if chunk.rows else log.newest.chunks
        log.versions.append(Version("append", chunks, columns, application, len(chunk.rows)))
        if application is not None:
            log.applications[application[0]] = (application[1], log.number)
        return log.number, False

    def truncate(self, name: str, first: int) -> int:
        """The chunks before number ``first`` go, but never the last one."""
        log = self.log(name)
        gone, kept = log.newest.chunks[:first], log.newest.chunks[first:]
        if gone:
            removed = sum(len(one.rows) for one in gone)
            log.versions.append(Version("truncate", kept, log.newest.columns, removed=removed))
        return log.number

    # Reads

    def read(self, name: str, asked: AskedRows) -> list[Row]:
        log = self.log(name)
        if asked.version is not None and asked.version > log.number:
            raise NoAnswerError(Outcome.WRONG)
        return rows_of(log.newest if asked.version is None else log.versions[asked.version], asked)


def rows_of(version: Version, asked: AskedRows) -> list[Row]:
    """What a read of a version gives."""
    wanted = version.columns if asked.columns is None else asked.columns
    used = {*wanted, *(["id"] if asked.least is not None else []), *(["text"] if asked.text is not None else [])}
    if not version.columns or not used <= set(version.columns):
        raise NoAnswerError(Outcome.WRONG)
    rows = [row for chunk in version.chunks[asked.first : asked.last] for row in chunk.rows]
    return [{name: row.get(name) for name in wanted} for row in rows if asked.takes(row)]


Played = Callable[[], Any]


def expected(call: Played, *checks: Played) -> Any:
    """What the call answers by the model, or the Outcome that it ends with."""
    try:
        for check in checks:
            check()
        return call()
    except NoAnswerError as ended:
        return ended.outcome


def sizes(chunks: Sequence[Chunk]) -> list[int]:
    return [len(one.rows) for one in chunks]
