"""The values of a log in the metadata store.

How they are written: ``json_values.py``. No value is above ``MAX_VALUE_BYTES``. Where each stands: ``paths.py``.
Names and schemas: ``names.py``, ``schema.py``. Layout: docs/formats.md, "Logs in the metadata store".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from bk_spark.client.log.stored.json_values import (
    decode,
    encode,
    flag,
    integer,
    integers,
    items,
    optional_integer,
    optional_text,
    text,
)
from bk_spark.errors import ConfigError

LEDGERS_PER_PAGE = 5000
"""A ledger takes at most 82 bytes of a page and a removed id 20, so a full page stays below 512 KiB."""
MAX_PAGES = 100_000
"""Of one commit or checkpoint: 500 million ledgers. What claims more is damaged."""
LOG_TAG = "bk_spark.log"
"""Custom metadata of a ledger: the uid of the one log that may list it."""
JOB_TAG = "bk_spark.job"
"""Custom metadata of a ledger: the one write job that may commit it."""

_MAX_INT = 2**63 - 1


class Content(Enum):
    """What a log's entries are."""

    ROWS = "rows"
    ENTRIES = "entries"


class CommitKind(Enum):
    """What a commit does to the list of ledgers."""

    APPEND = "append"
    """Adds at the end."""
    OVERWRITE = "overwrite"
    """Removes all that is listed at the commit: a reader needs nothing that is older."""
    REPLACE = "replace"
    """Puts ledgers in the place of the named ones: other content."""
    COMPACT = "compact"
    """Puts ledgers with the same rows in the place of the named ones: readers of streams step over it."""
    TRUNCATE = "truncate"
    """Removes the first ledgers."""


@dataclass(frozen=True, slots=True)
class CommittedLedger:
    """A CLOSED ledger as a commit lists it: what a reader needs to plan. ``length`` is payload bytes."""

    ledger_id: int
    last_entry_id: int
    length: int
    rows: int

    def __post_init__(self) -> None:
        for name, least in (("ledger_id", 0), ("last_entry_id", -1), ("length", 0), ("rows", 0)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= _MAX_INT:
                raise ConfigError(
                    f"{name} of ledger {self.ledger_id!r}", value, f"it must be an integer from {least} to 2^63 - 1"
                )


@dataclass(frozen=True, slots=True)
class OpenLedger:
    """A ledger that a leader opened, and whose end no version has recorded."""

    ledger_id: int
    version: int
    """The version that opened it."""


@dataclass(frozen=True, slots=True)
class WriterState:
    """Who may append entries through open ledgers."""

    epoch: int = 0
    """Raised by every opening of a writer, and by every commit that ends a leadership: a leader is the one of its epoch."""
    open_ledgers: tuple[OpenLedger, ...] = ()
    """In log order, behind all other ledgers. Every listed ledger that is not here is CLOSED, and its end is recorded."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What ``vacuum`` removes. The first is counted from the moment a version stops being the newest."""

    version_retention_s: int = 604_800
    """Old versions, and the ledgers that only they list, stay readable so long: 7 days."""
    retention_s: int | None = None
    """Ledgers whose rows are older are truncated; None for never."""
    retention_bytes: int | None = None
    """Of payload: the oldest ledgers above it are truncated; None for no limit."""

    def __post_init__(self) -> None:
        for name in ("version_retention_s", "retention_s", "retention_bytes"):
            value = getattr(self, name)
            if value is None and name != "version_retention_s":
                continue
            if type(value) is not int or not 0 <= value <= _MAX_INT:
                raise ConfigError(name, value, "it must be an integer from 0 to 2^63 - 1")


@dataclass(frozen=True, slots=True)
class Totals:
    """How much some closed ledgers hold. ``length`` is payload bytes."""

    ledgers: int = 0
    rows: int = 0
    length: int = 0

    @staticmethod
    def of(ledgers: Sequence[CommittedLedger]) -> Totals:
        return Totals(len(ledgers), sum(one.rows for one in ledgers), sum(one.length for one in ledgers))

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.ledgers + other.ledgers, self.rows + other.rows, self.length + other.length)

    def __sub__(self, other: Totals) -> Totals:
        return Totals(self.ledgers - other.ledgers, self.rows - other.rows, self.length - other.length)


@dataclass(frozen=True, slots=True)
class Head:
    """Where a log stands. Version 0 is the empty log, which no commit made."""

    name: str
    version: int = 0
    time_ms: int = 0
    content: Content | None = None
    """None until the first commit fixes it."""
    schema_id: int | None = None
    schema_count: int = 0
    """Schemas ever stored: they are numbered 0 to ``schema_count - 1``."""
    base_version: int = 0
    """The last overwrite, or 0: a reader folds the commits from there."""
    total: Totals = Totals()
    deleting: bool = False
    """Set by the first step of a deletion, for ever: no commit succeeds from then on."""
    oldest_version: int = 0
    """Versions below cannot be read; 0: all can."""
    vacuumed_version: int = 0
    """Ledgers that the versions up to this one stopped listing are deleted."""
    oldest_record: int = 0
    """The records and pages of versions below are deleted."""
    replaced_version: int = 0
    """The last OVERWRITE or REPLACE, 0 for none: what a stream read before is other content."""
    end_row: int = 0
    """How many rows were ever put in the log: the row number behind the last row of a closed ledger."""
    writer: WriterState = WriterState()
    retention: Retention = Retention()

    @property
    def first_row(self) -> int:
        """The row number of the first listed row: what is below was truncated, or is other content."""
        return self.end_row - self.total.rows

    def encode(self) -> bytes:
        return encode(
            name=self.name,
            version=self.version,
            time_ms=self.time_ms,
            content=self.content.value if self.content else None,
            schema_id=self.schema_id,
            schema_count=self.schema_count,
            base_version=self.base_version,
            total=_totals_out(self.total),
            deleting=self.deleting,
            oldest_version=self.oldest_version,
            vacuumed_version=self.vacuumed_version,
            oldest_record=self.oldest_record,
            replaced_version=self.replaced_version,
            end_row=self.end_row,
            writer={"epoch": self.writer.epoch, "open": open_out(self.writer.open_ledgers)},
            retention=asdict(self.retention),
        )

    @staticmethod
    def decode(what: str, value: bytes) -> Head:
        return decode(what, value, _head_in)


@dataclass(frozen=True, slots=True)
class LogVersion:
    """One commit to a log. Immutable once written."""

    version: int
    time_ms: int
    """When it was committed; never before the version below it."""
    kind: CommitKind
    content: Content
    schema_id: int | None
    """The schema that readers of this version see; None for entries."""
    base_version: int
    """The last overwrite up to this version, itself included; 0 for none."""
    application: tuple[str, int] | None
    """The application id and version that the commit carried."""
    job_id: str
    """The write job that made it: nobody else writes this token, and the job's pages hold the ledgers."""
    pages: int
    added: Totals
    """What its pages add."""
    removed: Totals
    total: Totals
    """The log's closed ledgers at this version."""
    replaced_version: int
    """The last OVERWRITE or REPLACE up to this version, itself included; 0 for none."""
    end_row: int
    """The row number behind the last row of this version's closed ledgers. See ``log_plan.end_row_after``."""
    epoch: int
    """The writer's epoch from this version on."""
    opened: int | None = None
    """The ledger that it opens at the end of the log."""
    closed: tuple[CommittedLedger, ...] = ()
    """The recorded ends of ledgers that earlier versions opened, in log order."""
    duplicate_of: int | None = None
    """Set where a commit was dropped because its application version was there already: the version that holds it.
    It is this one, or, where its record is gone, this is the newest one. Never stored."""

    def encode(self) -> bytes:
        return encode(
            version=self.version,
            time_ms=self.time_ms,
            kind=self.kind.value,
            content=self.content.value,
            schema_id=self.schema_id,
            base_version=self.base_version,
            application=list(self.application) if self.application else None,
            job=self.job_id,
            pages=self.pages,
            added=_totals_out(self.added),
            removed=_totals_out(self.removed),
            total=_totals_out(self.total),
            replaced_version=self.replaced_version,
            end_row=self.end_row,
            epoch=self.epoch,
            opened=self.opened,
            closed=ledgers_out(self.closed),
        )

    @staticmethod
    def decode(what: str, value: bytes) -> LogVersion:
        return decode(what, value, _version_in)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of what a commit adds, in log order, and removes."""

    ledgers: tuple[CommittedLedger, ...]
    removed: tuple[int, ...]

    def encode(self) -> bytes:
        return encode(ledgers=ledgers_out(self.ledgers), removed=list(self.removed))

    @staticmethod
    def decode(what: str, value: bytes) -> Page:
        return decode(what, value, lambda r: Page(ledgers_in(r["ledgers"]), tuple(integers(r["removed"]))))


@dataclass(frozen=True, slots=True)
class JobState:
    """The value of a job's directory. A job that is not committed and has no ``running`` never will be."""

    home: str | None = None
    """Set in the log that a job adopted its ledgers to: the uid under which its ``running`` stands."""
    log_uid: str | None = None
    version: int | None = None
    """Where it committed: both set by the commit's transaction, or neither."""

    def encode(self) -> bytes:
        return encode(home=self.home, log=self.log_uid, version=self.version)

    @staticmethod
    def decode(what: str, value: bytes) -> JobState:
        return decode(what, value, _job_in)


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """The last version of one application id, and the log's version that holds it."""

    application_id: str
    application_version: int
    version: int
    dropped: int = 0
    """How many commits were dropped as duplicates of what the id had committed before."""

    def encode(self) -> bytes:
        versions = {"application_version": self.application_version, "version": self.version}
        return encode(id=self.application_id, dropped=self.dropped, **versions)

    @staticmethod
    def decode(what: str, value: bytes) -> ApplicationState:
        return decode(what, value, _application_in)


def page_count(ledgers: Sequence[CommittedLedger], removed: Sequence[int]) -> int:
    """How many pages hold both lists."""
    return -(-max(len(ledgers), len(removed)) // LEDGERS_PER_PAGE)


def pages_of(ledgers: Sequence[CommittedLedger], removed: Sequence[int]) -> list[Page]:
    """The pages that hold both lists, in order."""
    starts = range(0, page_count(ledgers, removed) * LEDGERS_PER_PAGE, LEDGERS_PER_PAGE)
    return [Page(tuple(ledgers[s : s + LEDGERS_PER_PAGE]), tuple(removed[s : s + LEDGERS_PER_PAGE])) for s in starts]


def ledgers_out(ledgers: Iterable[CommittedLedger]) -> list[list[int]]:
    """As a value holds them."""
    return [[one.ledger_id, one.last_entry_id, one.length, one.rows] for one in ledgers]


def ledgers_in(values: object) -> tuple[CommittedLedger, ...]:
    return tuple(CommittedLedger(*integers(one)) for one in items(values))


def open_out(ledgers: Iterable[OpenLedger]) -> list[list[int]]:
    return [[one.ledger_id, one.version] for one in ledgers]


def open_in(values: object) -> tuple[OpenLedger, ...]:
    return tuple(OpenLedger(*integers(one)) for one in items(values))


def _head_in(record: dict[str, Any]) -> Head:
    return Head(
        name=text(record["name"]),
        version=integer(record["version"]),
        time_ms=integer(record["time_ms"]),
        content=Content(record["content"]) if record["content"] is not None else None,
        schema_id=optional_integer(record["schema_id"]),
        schema_count=integer(record["schema_count"]),
        base_version=integer(record["base_version"]),
        total=Totals(*integers(record["total"])),
        deleting=flag(record["deleting"]),
        oldest_version=integer(record["oldest_version"]),
        vacuumed_version=integer(record["vacuumed_version"]),
        oldest_record=integer(record["oldest_record"]),
        replaced_version=integer(record["replaced_version"]),
        end_row=integer(record["end_row"]),
        writer=WriterState(integer(record["writer"]["epoch"]), open_in(record["writer"]["open"])),
        retention=Retention(**record["retention"]),
    )


def _version_in(record: dict[str, Any]) -> LogVersion:
    application = record["application"]
    return LogVersion(
        version=integer(record["version"]),
        time_ms=integer(record["time_ms"]),
        kind=CommitKind(record["kind"]),
        content=Content(record["content"]),
        schema_id=optional_integer(record["schema_id"]),
        base_version=integer(record["base_version"]),
        application=(text(application[0]), integer(application[1])) if application is not None else None,
        job_id=text(record["job"]),
        pages=integer(record["pages"], 0, MAX_PAGES),
        added=Totals(*integers(record["added"])),
        removed=Totals(*integers(record["removed"])),
        total=Totals(*integers(record["total"])),
        replaced_version=integer(record["replaced_version"]),
        end_row=integer(record["end_row"]),
        epoch=integer(record["epoch"]),
        opened=optional_integer(record["opened"]),
        closed=ledgers_in(record["closed"]),
    )


def _application_in(record: dict[str, Any]) -> ApplicationState:
    version, dropped = integer(record["version"]), integer(record["dropped"])
    return ApplicationState(text(record["id"]), integer(record["application_version"]), version, dropped)


def _job_in(record: dict[str, Any]) -> JobState:
    return JobState(optional_text(record["home"]), optional_text(record["log"]), optional_integer(record["version"]))


def _totals_out(total: Totals) -> list[int]:
    return [total.ledgers, total.rows, total.length]
