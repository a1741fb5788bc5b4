"""What callers ask for: descriptors, tickets and actions of Flight, which are JSON, as frozen values. Pure.

Tickets are written here, too. They are no secrets and carry no signature: a ticket is input like any other, and rights are
checked anew when it comes back.

Ref: docs/guide/gateway.md, "Read".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from bk_spark.errors import ConfigError
from bk_spark.gateway.flight.given_fields import GivenFields
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.rows.latest.asked import ALL, VIEWS, AskedView
from bk_spark.log.rows.tail_plan import LATEST
from bk_spark.log.stored.names import check_log_name
from bk_spark.log.stream.order import FAIL, READ, SKIP

_VIEW, _DELETED_BY = "'view'", "'deleted_by'"
_EVERY_ROW: Final = AskedView(ALL, None, _VIEW, _DELETED_BY)

MAX_ENDPOINTS: Final = 1_000
"""Into which one read is split: more readers at once than a gateway takes calls."""


@dataclass(frozen=True, slots=True)
class AskedColumns:
    """Which columns and rows of a log."""

    columns: tuple[str, ...] | None = None
    where: str | None = None
    time_zone: str | None = None
    lane: tuple[int, ...] | None = None

    def fields(self) -> dict[str, object]:
        return {"columns": self.columns, "where": self.where, "time_zone": self.time_zone, "lane": self.lane}


@dataclass(frozen=True, slots=True)
class AskedRead:
    """Rows of a log, as it stands at one version."""

    log: str
    rows: AskedColumns = AskedColumns()
    start: LogPosition | None = None
    end: LogPosition | None = None
    version: int | None = None
    timestamp: datetime | None = None
    view: AskedView = _EVERY_ROW
    endpoints: int = 1
    """How many tickets the reader wants: each is read by itself."""
    uid: str | None = None
    """The log's own, if it must be that one: another log of the same name has versions of the same numbers."""

    @property
    def ticket(self) -> bytes:
        """Asks for the same again. Its version and its log must be known."""
        assert self.version is not None, "a ticket names the version, so that all tickets of one read see the same log"
        return _packed(
            log=self.log,
            uid=self.uid,
            **self.rows.fields(),
            start=_placed(self.start),
            end=_placed(self.end),
            version=self.version,
            view=self.view.view if self.view.is_latest else None,
            deleted_by=self.view.deleted_by,
        )

    def between(self, start: LogPosition | None, end: LogPosition | None) -> AskedRead:
        return replace(self, start=start, end=end)

    def of_lanes(self, lanes: tuple[int, ...]) -> AskedRead:
        return replace(self, rows=replace(self.rows, lane=lanes))


@dataclass(frozen=True, slots=True)
class AskedTail:
    """Rows of a log from a place on, without an end."""

    log: str
    rows: AskedColumns = AskedColumns()
    start: str = LATEST
    """``latest``, ``earliest``, or a position as JSON."""
    overwrites: str = FAIL

    @property
    def ticket(self) -> bytes:
        return _packed(log=self.log, tail=True, **self.rows.fields(), start=self.start, overwrites=self.overwrites)


@dataclass(frozen=True, slots=True)
class AskedAppend:
    """Rows that become one commit."""

    log: str
    application: tuple[str, int] | None = None
    create: bool = False
    merge_schema: bool = False
    partition_key: tuple[str, ...] | None = None
    lanes: int | None = None
    rows: int | None = None
    """How many come. Without it the stream must say itself that it is whole."""


@dataclass(frozen=True, slots=True)
class AskedWriter:
    """Rows that are appended batch by batch, each acknowledged."""

    log: str
    merge_schema: bool = False


@dataclass(frozen=True, slots=True)
class AskedLookups:
    """The newest rows of keys, which come as batches."""

    log: str
    columns: tuple[str, ...] | None = None
    deleted_by: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class AskedList:
    """Which logs to list, in the order of their names."""

    prefix: str = ""
    after: str = ""
    limit: int | None = None
    """A page of so many. Without it all, or a refusal where they are too many."""


@dataclass(frozen=True, slots=True)
class AskedAction:
    """Something to do with one log."""

    name: str
    log: str
    before: LogPosition | None = None


@dataclass(frozen=True, slots=True)
class GivenDescriptor:
    """A descriptor of Flight: the path of a log, or a command."""

    path: tuple[str, ...] = ()
    command: bytes | None = None

    def fields(self, what: str) -> GivenFields | str:
        """The fields of a command, or the name of a log. Raises ConfigError."""
        if self.command is not None:
            return GivenFields(what, self.command)
        if len(self.path) != 1:
            raise ConfigError(f"the path of {what}", list(self.path[:5]), "it must be the name of one log, or give a command")
        check_log_name(self.path[0])
        return self.path[0]


def parse_descriptor(descriptor: GivenDescriptor) -> AskedRead | AskedTail:
    """Rows that a descriptor asks for. Raises ConfigError."""
    fields = descriptor.fields("the descriptor")
    return AskedRead(fields) if isinstance(fields, str) else _read(fields)


def parse_ticket(ticket: bytes) -> AskedRead | AskedTail:
    """Raises ConfigError."""
    return _read(GivenFields("the ticket", ticket))


def parse_put(descriptor: GivenDescriptor) -> AskedAppend | AskedWriter:
    """Raises ConfigError."""
    fields = descriptor.fields("the descriptor")
    if isinstance(fields, str):
        return AskedAppend(fields)
    log, merge = fields.log(), fields.flag("merge_schema")
    if fields.flag("continuous"):
        writer = AskedWriter(log, merge)
        fields.end()
        return writer
    append = AskedAppend(
        log,
        fields.application("application"),
        fields.flag("create"),
        merge,
        fields.texts("partition_key"),
        fields.number("lanes", 1),
        fields.number("rows"),
    )
    fields.end()
    return append


def parse_exchange(descriptor: GivenDescriptor) -> AskedLookups:
    """Raises ConfigError."""
    fields = descriptor.fields("the descriptor")
    if isinstance(fields, str):
        return AskedLookups(fields)
    lookups = AskedLookups(fields.log(), fields.texts("columns"), fields.text("deleted_by"), fields.number("version"))
    fields.end()
    return lookups


def parse_criteria(criteria: bytes) -> AskedList:
    """Empty: all logs. Raises ConfigError."""
    if not criteria:
        return AskedList()
    fields = GivenFields("the criteria", criteria)
    asked = AskedList(fields.text("prefix") or "", fields.text("after") or "", fields.number("limit", 1))
    fields.end()
    return asked


def parse_action(name: str, body: bytes) -> AskedAction:
    """Raises ConfigError."""
    fields = GivenFields(f"the body of action '{name}'", body)
    before = fields.position("before") if name == "truncate" else None
    if name == "truncate" and before is None:
        raise ConfigError("'before' in the body of action 'truncate'", None, "give the first place that stays, [ledger, entry]")
    action = AskedAction(name, fields.log(), before)
    fields.end()
    return action


def _read(fields: GivenFields) -> AskedRead | AskedTail:
    log = fields.log()
    rows = AskedColumns(fields.texts("columns"), fields.text("where"), fields.text("time_zone"), fields.numbers("lane"))
    asked = _tail(fields, log, rows) if fields.flag("tail") else _rows(fields, log, rows)
    fields.end()
    return asked


def _tail(fields: GivenFields, log: str, rows: AskedColumns) -> AskedTail:
    return AskedTail(log, rows, fields.json("start") or LATEST, fields.choice("overwrites", (FAIL, READ, SKIP)))


def _rows(fields: GivenFields, log: str, rows: AskedColumns) -> AskedRead:
    version, timestamp = fields.number("version"), fields.time("timestamp")
    if version is not None and timestamp is not None:
        raise ConfigError("'timestamp'", timestamp.isoformat(), f"version {version} is given, too: leave one of them out")
    return AskedRead(
        log,
        rows,
        fields.position("start"),
        fields.position("end"),
        version,
        timestamp,
        AskedView(fields.choice("view", VIEWS), fields.text("deleted_by"), _VIEW, _DELETED_BY),
        fields.number("endpoints", 1, MAX_ENDPOINTS) or 1,
        fields.text("uid"),
    )


def _placed(position: LogPosition | None) -> list[int] | None:
    return None if position is None else [position.ledger_id, position.entry_id]


def _packed(**fields: object) -> bytes:
    given = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(given, separators=(",", ":")).encode()
