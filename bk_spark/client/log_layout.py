"""The values of a log in the metadata store.

JSON objects with sorted keys and a ``format``; a newer format is refused by name. No value is above
``MAX_VALUE_BYTES``. Where each stands: ``log_paths.py``. Layout: docs/formats.md, "Logs in the metadata store".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.metadata_store import MAX_VALUE_BYTES

FORMAT = 1
LEDGERS_PER_PAGE = 5000
"""A ledger takes at most 73 bytes of a page and a removed id 11, so a full page stays below 512 KiB."""
LOG_TAG = "bk_spark.log"
"""Custom metadata of a ledger: the uid of the one log that may list it."""
JOB_TAG = "bk_spark.job"
"""Custom metadata of a ledger: the one write job that may commit it."""

_MAX_INT = 2**63 - 1
_Record = TypeVar("_Record")


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
    """Puts ledgers in the place of the named ones."""


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
class Totals:
    """How much some ledgers hold. ``length`` is payload bytes."""

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

    def encode(self) -> bytes:
        return _encode(
            name=self.name,
            version=self.version,
            time_ms=self.time_ms,
            content=self.content.value if self.content else None,
            schema_id=self.schema_id,
            schema_count=self.schema_count,
            base_version=self.base_version,
            total=_totals_out(self.total),
            deleting=self.deleting,
        )

    @staticmethod
    def decode(what: str, value: bytes) -> Head:
        return _decode(what, value, _head_in)


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
    removed_ledgers: int
    total: Totals
    """The log's totals at this version."""
    duplicate_of: int | None = None
    """Set where a commit was dropped because its application version was there already: the version that holds it,
    which is this one. Never stored."""

    def encode(self) -> bytes:
        return _encode(
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
            removed_ledgers=self.removed_ledgers,
            total=_totals_out(self.total),
        )

    @staticmethod
    def decode(what: str, value: bytes) -> LogVersion:
        return _decode(what, value, _version_in)

    def as_duplicate(self) -> LogVersion:
        return replace(self, duplicate_of=self.version)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of what a commit adds, in log order, and removes."""

    ledgers: tuple[CommittedLedger, ...]
    removed: tuple[int, ...]

    def encode(self) -> bytes:
        ledgers = [[one.ledger_id, one.last_entry_id, one.length, one.rows] for one in self.ledgers]
        return _encode(ledgers=ledgers, removed=list(self.removed))

    @staticmethod
    def decode(what: str, value: bytes) -> Page:
        return _decode(what, value, lambda r: Page(tuple(CommittedLedger(*one) for one in r["ledgers"]), tuple(r["removed"])))


@dataclass(frozen=True, slots=True)
class JobState:
    """The value of a job's directory. A job that is not committed and has no ``running`` never will be."""

    home: str | None = None
    """Set in the log that a job adopted its ledgers to: the uid under which its ``running`` stands."""
    log_uid: str | None = None
    version: int | None = None
    """Where it committed: both set by the commit's transaction, or neither."""

    def encode(self) -> bytes:
        return _encode(home=self.home, log=self.log_uid, version=self.version)

    @staticmethod
    def decode(what: str, value: bytes) -> JobState:
        return _decode(what, value, lambda r: JobState(r["home"], r["log"], r["version"]))


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """The last version of one application id, and the log's version that holds it."""

    application_id: str
    application_version: int
    version: int

    def encode(self) -> bytes:
        return _encode(id=self.application_id, application_version=self.application_version, version=self.version)

    @staticmethod
    def decode(what: str, value: bytes) -> ApplicationState:
        return _decode(what, value, lambda r: ApplicationState(r["id"], int(r["application_version"]), int(r["version"])))


def encode_name(uid: str) -> bytes:
    return _encode(uid=uid)


def decode_name(what: str, value: bytes) -> str:
    return _decode(what, value, lambda record: str(record["uid"]))


def encode_schema(what: str, schema: dict[str, Any]) -> bytes:
    """Raises ConfigError where the schema does not fit into one znode."""
    encoded = _encode(schema=schema)
    if len(encoded) > MAX_VALUE_BYTES:
        raise ConfigError(
            what, f"{len(encoded)} bytes long", f"the maximum is {MAX_VALUE_BYTES}: write fewer or shorter columns"
        )
    return encoded


def decode_schema(what: str, value: bytes) -> dict[str, Any]:
    return _decode(what, value, lambda record: dict(record["schema"]))


def page_count(ledgers: Sequence[CommittedLedger], removed: Sequence[int]) -> int:
    """How many pages hold both lists."""
    return -(-max(len(ledgers), len(removed)) // LEDGERS_PER_PAGE)


def pages_of(ledgers: Sequence[CommittedLedger], removed: Sequence[int]) -> list[Page]:
    """The pages that hold both lists, in order."""
    starts = range(0, page_count(ledgers, removed) * LEDGERS_PER_PAGE, LEDGERS_PER_PAGE)
    return [Page(tuple(ledgers[s : s + LEDGERS_PER_PAGE]), tuple(removed[s : s + LEDGERS_PER_PAGE])) for s in starts]


def _head_in(record: dict[str, Any]) -> Head:
    return Head(
        record["name"],
        int(record["version"]),
        int(record["time_ms"]),
        Content(record["content"]) if record["content"] else None,
        record["schema_id"],
        int(record["schema_count"]),
        int(record["base_version"]),
        Totals(*record["total"]),
        bool(record["deleting"]),
    )


def _version_in(record: dict[str, Any]) -> LogVersion:
    application = record["application"]
    return LogVersion(
        int(record["version"]),
        int(record["time_ms"]),
        CommitKind(record["kind"]),
        Content(record["content"]),
        record["schema_id"],
        int(record["base_version"]),
        (str(application[0]), int(application[1])) if application else None,
        str(record["job"]),
        int(record["pages"]),
        Totals(*record["added"]),
        int(record["removed_ledgers"]),
        Totals(*record["total"]),
    )


def _totals_out(total: Totals) -> list[int]:
    return [total.ledgers, total.rows, total.length]


def _encode(**record: object) -> bytes:
    return json.dumps({"format": FORMAT, **record}, sort_keys=True, separators=(",", ":")).encode()


def _decode(what: str, value: bytes, build: Callable[[dict[str, Any]], _Record]) -> _Record:
    try:
        record = json.loads(value)
        found = record["format"]
        if type(found) is not int or found < FORMAT:
            raise CorruptionError(what, f"its format version is {found!r}")
        if found > FORMAT:
            raise FormatVersionError(what, found, FORMAT)
        return build(record)
    except (ValueError, KeyError, TypeError, IndexError, ConfigError) as problem:
        raise CorruptionError(what, f"{type(problem).__name__}: {problem}") from None
