"""What logs hold, as lists: every version of each, what a change is refused for, and what a commit of several makes of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from bk_spark.rows.lane_limits import DEFAULT_LANES
from tests.soak.several.shapes import Columns, clashes, together

_lives = itertools.count()


class RefusedError(Exception):
    """The change must be refused. The text says why, for the reader of a difference."""


@dataclass(frozen=True)
class Version:
    """A log at one version."""

    time_ms: int
    content: str | None = None
    """``rows`` or ``entries``; None: it never had any."""
    columns: Columns = field(default_factory=dict)
    key: str | None = None
    """The type of the key; None without."""
    lanes: int = 1
    rows: tuple[Any, ...] = ()
    """Rows or payloads, in the log's order."""
    ledgers: tuple[tuple[int, int, int], ...] = ()
    """Id, rows or entries, and last entry of each that the log lists: learnt from the log once its rows were found right."""


@dataclass(frozen=True)
class LogModel:
    """One log, from its creation to its deletion."""

    versions: tuple[Version, ...]
    life: int = field(default_factory=lambda: next(_lives))
    """A log that is made anew has another one."""

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    def at(self, time_ms: int) -> int:
        """The number of the version at that time."""
        return max((number for number, one in enumerate(self.versions) if one.time_ms <= time_ms), default=0)


@dataclass(frozen=True)
class Asked:
    """What a writer asks for."""

    merge: bool = False
    key: bool = False
    lanes: int | None = None


@dataclass(frozen=True)
class Change:
    """What a transaction is going to do to one log."""

    kind: str
    """``append``, ``overwrite`` or ``truncate``."""
    life: int | None
    """Of the log that the writer found; None: there was none, and the commit makes it."""
    content: str = "rows"
    columns: Columns = field(default_factory=dict)
    """Those of the log after the rows."""
    given: Columns = field(default_factory=dict)
    """Those that the commit brings: of the rows of one append, or of the log after several."""
    key: str | None = None
    lanes: int = 1
    merge: bool = False
    rows: tuple[Any, ...] = ()
    first: int | None = None
    """Of a truncation: the id of the ledger that becomes the first."""

    def with_rows(self, rows: Sequence[Any]) -> Change:
        return replace(self, rows=tuple(rows))

    def after(self, before: Change | None) -> Change:
        """Two appends of one transaction."""
        if before is None:
            return self
        rows, merge = before.rows + self.rows, self.merge or before.merge
        return replace(self, life=before.life, rows=rows, merge=merge, given=self.columns)


def lane_key(columns: Columns, name: str = "k") -> str:
    """The kind of the key column of rows, by which they get lanes."""
    if name not in columns:
        raise RefusedError("the rows have no key column")
    kind = columns[name]
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise RefusedError("the key is of a type that is no key")
    return "integer" if pa.types.is_integer(kind) else str(kind)


def _asked_lanes(asked: Asked, columns: Columns) -> tuple[str | None, int]:
    """Those of a log that gets its first rows."""
    if not asked.key:
        if asked.lanes not in (None, 1):
            raise RefusedError("several lanes without a key")
        return None, 1
    key, count = lane_key(columns), DEFAULT_LANES if asked.lanes is None else asked.lanes
    return (key, count) if count > 1 else (None, 1)


def _kept_lanes(asked: Asked, columns: Columns, log: Version) -> tuple[str | None, int]:
    """Those of a log that has rows."""
    if asked.key and asked.lanes != 1:
        lane_key(columns)
        if log.key is None:
            raise RefusedError("a key for a log without one")
    if asked.lanes not in (None, log.lanes):
        raise RefusedError("another number of lanes than the log has")
    if log.key is not None:
        if "k" not in columns:
            raise RefusedError("rows without the log's key")
        if not pa.types.is_null(columns["k"]) and (pa.types.is_nested(columns["k"]) or lane_key(columns) != log.key):
            raise RefusedError("a key of another type")
    return log.key, log.lanes


def appended(stored: Columns | None, given: Columns, *, merge: bool) -> Columns:
    """The columns of a log after an append."""
    if clashes(given):
        raise RefusedError("two names that differ in case alone")
    if stored is None:
        return given
    merged = together(stored, given)
    if merged is None:
        raise RefusedError("columns that do not go together")
    if not merge and (given.keys() - stored.keys() or any(not _is(stored[name], kind) for name, kind in given.items())):
        raise RefusedError("columns that the log gets by merging alone")
    return merged if merge else stored


def _is(stored: pa.DataType, given: pa.DataType) -> bool:
    return stored == given or pa.types.is_null(given)


def row_change(kind: str, log: LogModel | None, before: Change | None, given: Columns, asked: Asked) -> Change:
    """Rows for a log that stands so, behind an append of the same transaction. Raises RefusedError."""
    now = Version(0) if log is None else log.newest
    life = None if log is None else log.life
    if kind == "overwrite":
        appended(None, given, merge=False)
        if asked.key or now.key is None:
            key, lanes = _asked_lanes(asked, given)
        else:
            key, lanes = _asked_lanes(replace(asked, key=True, lanes=asked.lanes or now.lanes), given)
        return Change(kind, life, columns=given, given=given, key=key, lanes=lanes)
    if now.content == "entries":
        raise RefusedError("rows for a log of entries")
    stored = before.columns if before is not None else now.columns if now.content == "rows" else None
    columns = appended(stored, given, merge=asked.merge)
    if before is not None:
        now = Version(0, "rows", key=before.key, lanes=before.lanes)
    key, lanes = _asked_lanes(asked, given) if now.content is None else _kept_lanes(asked, given, now)
    return Change(kind, life, columns=columns, given=given, key=key, lanes=lanes, merge=asked.merge)


@dataclass(frozen=True)
class Outcome:
    """What a commit made."""

    versions: Mapping[str, int]
    is_duplicate: bool = False


class World:
    """All logs, and the last transaction of each application."""

    def __init__(self) -> None:
        self.logs: dict[str, LogModel] = {}
        self.applications: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {}
        """The version, and life and version of each log that the transaction changed."""

    @property
    def numbers(self) -> dict[str, int]:
        """The newest version of each log."""
        return {name: len(log.versions) - 1 for name, log in self.logs.items()}

    def commit(self, changes: Mapping[str, Change], application: tuple[str, int] | None, now_ms: int) -> Outcome:
        """All changes in one step. Raises RefusedError, and changes nothing."""
        logs = {name: self._target(name, change) for name, change in changes.items()}
        last = None if application is None else self.applications.get(application[0])
        if changes and application is not None and last is not None and application[1] <= last[0]:
            made = {name: last[1].get(name) for name in changes}
            same = {name: found[1] for name, found in made.items() if found and self._life(name) == found[0]}
            return Outcome(same, is_duplicate=True)
        time_ms = max([now_ms, *(log.newest.time_ms for log in logs.values() if log is not None)])
        planned = {name: _after(logs[name], change, time_ms) for name, change in changes.items()}
        planned = {name: version for name, version in planned.items() if version is not None}
        for name, version in planned.items():
            self._add(name, version)
        if application is not None and planned:
            made_now = {name: (self.logs[name].life, self.numbers[name]) for name in planned}
            self.applications[application[0]] = (application[1], made_now)
        return Outcome({name: self.numbers[name] for name in planned})

    def learn(self, name: str, rows: Sequence[Any], ledgers: Sequence[tuple[int, int, int]]) -> None:
        """How the log has put the newest version, which is right."""
        *older, newest = self.logs[name].versions
        known = replace(newest, rows=tuple(rows), ledgers=tuple(ledgers))
        self.logs[name] = replace(self.logs[name], versions=(*older, known))

    def _target(self, name: str, change: Change) -> LogModel | None:
        log = self.logs.get(name)
        if change.life is not None and (log is None or log.life != change.life):
            raise RefusedError(f"log '{name}' was deleted meanwhile")
        return log

    def _life(self, name: str) -> int | None:
        return self.logs[name].life if name in self.logs else None

    def _add(self, name: str, version: Version) -> None:
        log = self.logs.get(name) or LogModel((Version(version.time_ms),))
        self.logs[name] = replace(log, versions=(*log.versions, version))


def _after(log: LogModel | None, change: Change, time_ms: int) -> Version | None:
    """The next version; None where there is nothing to change. Raises RefusedError for what does not fit any more."""
    now = Version(0) if log is None else log.newest
    if change.kind == "truncate":
        return _truncated(now, change, time_ms)
    if change.kind == "overwrite":
        return Version(time_ms, "rows", change.given, change.key, change.lanes, change.rows)
    if now.content not in (None, change.content):
        raise RefusedError("the log holds the other kind of content")
    if now.content == "rows" and change.rows and (now.key, now.lanes) != (change.key, change.lanes):
        raise RefusedError("the log has other lanes by now")
    key, lanes = (change.key, change.lanes) if now.content is None else (now.key, now.lanes)
    stored = now.columns if now.content == "rows" else None
    columns = {} if change.content == "entries" else appended(stored, change.given, merge=change.merge)
    return Version(time_ms, change.content, columns, key, lanes, now.rows + change.rows)


def _truncated(now: Version, change: Change, time_ms: int) -> Version | None:
    ids = [ledger for ledger, *_ in now.ledgers]
    if change.first not in ids:
        raise RefusedError("the log does not list the ledger any more")
    gone = ids.index(change.first)
    dropped = sum(rows for _, rows, _ in now.ledgers[:gone])
    return replace(now, time_ms=time_ms, rows=now.rows[dropped:], ledgers=()) if gone else None


def read_together(versions: Sequence[Version]) -> Columns:
    """The columns of several logs. Raises RefusedError."""
    if any(one.content == "entries" for one in versions):
        raise RefusedError("entries among them")
    filled = [one.columns for one in versions if one.content == "rows"]
    if not filled:
        raise RefusedError("nothing in any of them")
    found = filled[0]
    for columns in filled[1:]:
        merged = together(found, columns)
        if merged is None:
            raise RefusedError("columns that do not go together")
        found = merged
    return found
