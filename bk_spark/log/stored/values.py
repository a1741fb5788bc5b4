"""The values of a log in the metadata store.

Where each is stored: ``paths.py``. How it is written: ``json_values.py``. No value is larger than ``MAX_VALUE_BYTES``.
Names and schemas have modules of their own, ``names.py`` and ``schema.py``.
Layout: docs/formats.md, "Logs in the metadata store".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from enum import Enum
from typing import Any, Self, TypeAlias

from bk_spark.errors import ConfigError
from bk_spark.log.stored.by_key.entry_rows import EntryRows, in_pages
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.log.stored.json_values import (
    FORMAT,
    FORMAT_OF_KEYS,
    FORMAT_OF_LANES,
    FORMAT_OF_READERS,
    FORMAT_OF_SECRETS,
    FORMAT_OF_TIERS,
    MAX_INTEGER,
    check_integer,
    decode,
    encode,
    flag,
    integer,
    integers,
    items,
    text,
)
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.tier_mark import TierMark
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.rows.lane_limits import MAX_LANES

LEDGERS_PER_PAGE = 5000
"""A ledger takes at most 82 bytes of a page and a removed id 20, so a full page stays below 512 KiB."""
LEDGERS_PER_PAGE_OF_LANES = 4900
"""With a lane a ledger takes 86 bytes."""
LEDGERS_PER_PAGE_OF_SPANS = 4700
"""In a span it takes 88 bytes, and the first one 20 more."""
MAX_PAGES = 100_000
"""Pages of one commit or checkpoint: 500 million ledgers. A value that claims more is damaged."""
JOB_TAG = "bk_spark.job"
"""Custom metadata of a ledger: the only write job that may commit it."""

PageCount: TypeAlias = int
"""At most MAX_PAGES."""


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
    """Puts ledgers with other content in the place of the named ones."""
    COMPACT = "compact"
    """Puts ledgers with the same rows in the place of the named ones: streams step over it."""
    COMPACT_KEYS = "compact-keys"
    """Puts one span, with the newest row of each key, in the place of the named ledgers: streams step over it."""
    TRUNCATE = "truncate"
    """Removes the first ledgers."""


@dataclass(frozen=True, slots=True)
class CommittedLedger:
    """A CLOSED ledger as a commit lists it: what a reader needs to plan. ``length`` is payload bytes."""

    ledger_id: int
    last_entry_id: int
    length: int
    rows: int
    lane: int = 0
    """Its rows are of this lane alone; 0 in a log without keys."""
    span: int | None = None
    """None: its rows have as many numbers. Otherwise it is in a *span* of ledgers, which a compaction by key made: the first
    one says how many row numbers the whole span covers, each further one 0."""

    def __post_init__(self) -> None:
        if self.lane and (type(self.lane) is not int or not 0 < self.lane < MAX_LANES):
            raise ConfigError(
                f"lane of ledger {self.ledger_id!r}", self.lane, f"it must be an integer from 0 to {MAX_LANES - 1}"
            )
        for name, least in (("ledger_id", 0), ("last_entry_id", -1), ("length", 0), ("rows", 0)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= MAX_INTEGER:  # the text is made for errors only: pages are large
                check_integer(f"{name} of ledger {self.ledger_id!r}", value, least)
        if self.span is not None:
            check_integer(f"span of ledger {self.ledger_id!r}", self.span, 0)

    @property
    def is_empty(self) -> bool:
        """Whether it has no entry."""
        return self.last_entry_id < 0

    @staticmethod
    def of_entries(metadata: LedgerMetadata) -> CommittedLedger:
        """A CLOSED ledger as a log of entries lists it: one row an entry."""
        assert metadata.last_entry_id is not None, "a CLOSED ledger has a last entry id"
        last = metadata.last_entry_id
        return CommittedLedger(metadata.ledger_id, last, metadata.length, last + 1)


@dataclass(frozen=True, slots=True)
class OpenLedger:
    """A ledger that a leader opened and whose end no version has recorded."""

    ledger_id: int
    version: int
    """The version that opened it."""


@dataclass(frozen=True, slots=True)
class WriterState:
    """Who may append entries through open ledgers."""

    epoch: int = 0
    """The leader's epoch: it identifies a leadership. Raised whenever a writer opens the log, and by every commit that ends a
    leadership."""
    open_ledgers: tuple[OpenLedger, ...] = ()
    """In log order, behind all other ledgers. Every other listed ledger is CLOSED, and its end is recorded."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What ``vacuum`` removes."""

    version_retention_s: int = 604_800
    """How long old versions, and the ledgers that only they list, stay readable: 7 days, from when a newer version came."""
    retention_s: int | None = None
    """Ledgers whose rows are older are truncated; None for never."""
    retention_bytes: int | None = None
    """The oldest ledgers beyond so many payload bytes are truncated; None for no limit."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None or name == "version_retention_s":
                check_integer(name, value, 0)


@dataclass(frozen=True, slots=True)
class Totals:
    """How much some closed ledgers hold. ``length`` is payload bytes."""

    ledgers: int = 0
    rows: int = 0
    length: int = 0
    gaps: int = 0
    """Row numbers among those of the rows that no row has any more: a compaction by key left it out."""

    @property
    def span(self) -> int:
        """How many row numbers there are from the first one to the last one."""
        return self.rows + self.gaps

    @staticmethod
    def of(ledgers: Sequence[CommittedLedger]) -> Totals:
        """Of ledgers that begin with a whole span, or have none."""
        is_span = bool(ledgers) and ledgers[0].span is not None
        gaps = sum(one.span - one.rows for one in ledgers if one.span is not None) if is_span else 0
        return Totals(len(ledgers), sum(one.rows for one in ledgers), sum(one.length for one in ledgers), gaps)

    def __add__(self, other: Totals) -> Totals:
        return Totals(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, other: Totals) -> Totals:
        return Totals(*map(operator.sub, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class LogChange:
    """What a transaction made in one log."""

    uid: str
    version: int


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """One commit of several logs: all its changes came into being at one moment, and have one time."""

    transaction_id: str
    application: tuple[str, int] | None
    """The application id and version that it carried. Ids of transactions are apart from those of commits to one log."""
    changes: tuple[LogChange, ...]

    def stored(self) -> dict[str, object]:
        changes = [[one.uid, one.version] for one in self.changes]
        return {"id": self.transaction_id, "application": self.application, "logs": changes}

    @staticmethod
    def read(value: dict[str, Any]) -> TransactionRecord:
        changes = (LogChange(text(uid), integer(version, 1)) for uid, version in map(items, value["logs"]))
        return TransactionRecord(text(value["id"]), _read_application(value["application"]), tuple(changes))


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A value that is stored as one JSON object, with a key for each field. ``_CODECS`` has a row for each type of field."""

    @property
    def _format(self) -> int:
        """The lowest format that tells older programs what they would overlook."""
        return FORMAT

    def encode(self) -> bytes:
        values = [(name, key, write, getattr(self, name)) for name, key, write, _ in _stored_fields(type(self))]
        stored = {key: write(value) for name, key, write, value in values if name not in _LEFT_OUT or value != _LEFT_OUT[name]}
        return encode(self._format, **stored)

    @classmethod
    def decode(cls, what: str, value: bytes) -> Self:
        """``what`` names the value in an error. Raises CorruptionError, FormatVersionError."""
        build: Callable[..., Self] = cls
        stored = _stored_fields(cls)

        def values(record: dict[str, Any]) -> dict[str, Any]:
            return {name: read(record[key]) for name, key, _, read in stored if name not in _LEFT_OUT or key in record}

        return decode(what, value, lambda record: build(**values(record)))


@dataclass(frozen=True, slots=True)
class Head(StoredRecord):
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
    """Set by the first step of a deletion, for good: no commit succeeds from then on."""
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
    lanes: Lanes = PLAIN
    tier: TierMark | None = None
    """How far the log's rows are in its tier; None without one."""
    transaction_version: int = 0
    """The last version that a transaction made, 0 for none: up to there a reader of several logs has something to compare."""
    compaction: KeyCompaction | None = None
    """How the log is compacted by key; None for a log that keeps every row."""
    span_ledger: int | None = None
    """The first ledger of the span that the log lists before all other ledgers; None without one."""
    is_secured: bool = False
    """Set for good: commits add keyed ledgers alone, whose keys come from the log's secret."""

    readers: tuple[str, ...] = ()
    """Identities of ZooKeeper that read the secured log directly and are no members of the cluster: what commits and jobs make,
    and readers need, has them in its access control. The log's secret names the same ones."""

    @property
    def _format(self) -> int:
        if self.readers:
            return FORMAT_OF_READERS
        if self.is_secured:
            return FORMAT_OF_SECRETS
        if self.compaction is not None or self.span_ledger is not None:
            return FORMAT_OF_KEYS
        return FORMAT_OF_TIERS if self.tier is not None else _format_of(self.lanes)

    @property
    def first_row(self) -> int:
        """The row number of the first listed row. Rows below it were truncated, or are other content."""
        return self.end_row - self.total.span


@dataclass(frozen=True, slots=True)
class LogVersion(StoredRecord):
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
    """The write job that made the commit. No other commit has this token, and the job's pages hold the ledgers."""
    pages: PageCount
    added: Totals
    """What its pages add."""
    removed: Totals
    total: Totals
    """The log's closed ledgers at this version. Those that ``closed`` ends without an entry are not among them."""
    replaced_version: int
    """The last OVERWRITE or REPLACE up to this version, itself included; 0 for none."""
    end_row: int
    """The row number behind the last row of this version's closed ledgers. See ``plan.end_row_after``."""
    epoch: int
    """The leader's epoch from this version on."""
    opened: int | None = None
    """The ledger that it opens at the end of the log."""
    closed: tuple[CommittedLedger, ...] = ()
    """The recorded ends of ledgers that earlier versions opened, in log order."""
    lanes: Lanes = PLAIN
    """Those of all ledgers that this version lists."""
    transaction: TransactionRecord | None = None
    """The commit of several logs that made this version, if one did."""
    span_ledger: int | None = None
    """The first ledger of the span that this version lists before all other ledgers; None without one."""
    duplicate_of: int | None = None
    """Set if a commit was dropped because the log already holds its application version: the number of the version that
    holds it. That is this version; or, if its record is gone, this is the newest version instead. Never stored."""

    @property
    def _format(self) -> int:
        is_of_keys = self.span_ledger is not None or self.removed.gaps
        return FORMAT_OF_KEYS if is_of_keys else _format_of(self.lanes)

    @property
    def first_row(self) -> int:
        """The row number of the first row that it lists."""
        return self.end_row - self.total.span


@dataclass(frozen=True, slots=True)
class Page(StoredRecord):
    """A part of what a commit adds, in log order, and removes."""

    ledgers: tuple[CommittedLedger, ...]
    removed: tuple[int, ...]
    entries: tuple[EntryRows, ...] = ()
    """Of ledgers that a compaction by key removed, and that had several entries."""

    @property
    def _format(self) -> int:
        if self.entries or any(one.span is not None for one in self.ledgers):
            return FORMAT_OF_KEYS
        return FORMAT_OF_LANES if any(one.lane for one in self.ledgers) else FORMAT


@dataclass(frozen=True, slots=True)
class JobState(StoredRecord):
    """The value of a job's directory. A job without ``running`` that has not committed never will."""

    home: str | None = None
    """Set in a log that adopted the job's ledgers: the uid under which the job's ``running`` stands."""
    log_uid: str | None = None
    version: int | None = None
    """Where it committed: the commit's transaction sets both."""


@dataclass(frozen=True, slots=True)
class ApplicationState(StoredRecord):
    """The last version of one application id, and the log's version that holds it."""

    application_id: str
    application_version: int
    version: int
    dropped: int = 0
    """How many commits were dropped as duplicates of what the id had committed before."""


@dataclass(frozen=True, slots=True)
class TransactionState(StoredRecord):
    """The last transaction of one application id."""

    application_id: str
    application_version: int
    transaction: TransactionRecord
    dropped: int = 0
    """How many transactions were dropped as duplicates of what the id had committed before."""


def page_count(ledgers: Sequence[CommittedLedger], removed: Sequence[int], entries: Sequence[EntryRows] = ()) -> int:
    """How many pages hold all of it."""
    return -(-max(len(ledgers), len(removed)) // _ledgers_per_page(ledgers)) + len(in_pages(entries))


def pages_of(ledgers: Sequence[CommittedLedger], removed: Sequence[int], entries: Sequence[EntryRows] = ()) -> list[Page]:
    """The pages that hold all of it, in order."""
    most = _ledgers_per_page(ledgers)
    starts = range(0, max(len(ledgers), len(removed)), most)
    pages = [Page(tuple(ledgers[s : s + most]), tuple(removed[s : s + most])) for s in starts]
    return pages + [Page((), (), some) for some in in_pages(entries)]


def _format_of(lanes: Lanes) -> int:
    return FORMAT if lanes == PLAIN else FORMAT_OF_LANES


def _ledgers_per_page(ledgers: Sequence[CommittedLedger]) -> int:
    if any(one.span is not None for one in ledgers):
        return LEDGERS_PER_PAGE_OF_SPANS
    return LEDGERS_PER_PAGE_OF_LANES if any(one.lane for one in ledgers) else LEDGERS_PER_PAGE


_Codec: TypeAlias = Callable[[Any], object]


def _as_is(value: object) -> object:
    return value


def _optional(read: _Codec) -> _Codec:
    return lambda value: None if value is None else read(value)


def _write_open(ledgers: Iterable[OpenLedger]) -> list[list[int]]:
    return [[one.ledger_id, one.version] for one in ledgers]


def _write_ledger(one: CommittedLedger) -> list[int]:
    numbers = [one.ledger_id, one.last_entry_id, one.length, one.rows]
    if one.span is not None:
        return [*numbers, one.lane, one.span]
    return [*numbers, one.lane] if one.lane else numbers


def _write_total(total: Totals) -> list[int]:
    numbers = [total.ledgers, total.rows, total.length]
    return [*numbers, total.gaps] if total.gaps else numbers


def _read_application(value: Any) -> tuple[str, int] | None:
    return None if value is None else (text(value[0]), integer(value[1]))


def _read_lanes(value: dict[str, Any]) -> Lanes:
    columns, kinds = (tuple(text(one) for one in items(value[key])) for key in ("columns", "kinds"))
    return Lanes(columns, kinds, integer(value["count"]))


def _read_open(values: object) -> tuple[OpenLedger, ...]:
    return tuple(OpenLedger(*integers(one)) for one in items(values))


_CODECS: dict[str, tuple[_Codec, _Codec]] = {
    "bool": (_as_is, flag),
    "int": (_as_is, integer),
    "int | None": (_as_is, _optional(integer)),
    "PageCount": (_as_is, lambda value: integer(value, 0, MAX_PAGES)),
    "str": (_as_is, text),
    "str | None": (_as_is, _optional(text)),
    "tuple[str, ...]": (_as_is, lambda value: tuple(map(text, items(value)))),
    "tuple[int, ...]": (_as_is, lambda value: tuple(integers(value))),
    "tuple[str, int] | None": (_as_is, _read_application),
    "CommitKind": (lambda kind: kind.value, CommitKind),
    "Content": (lambda content: content.value, Content),
    "Content | None": (lambda content: content and content.value, _optional(Content)),
    "Totals": (_write_total, lambda value: Totals(*integers(value))),
    "tuple[CommittedLedger, ...]": (
        lambda ledgers: [_write_ledger(one) for one in ledgers],
        lambda value: tuple(CommittedLedger(*integers(one)) for one in items(value)),
    ),
    "tuple[OpenLedger, ...]": (_write_open, _read_open),
    "tuple[EntryRows, ...]": (
        lambda entries: [one.stored() for one in entries],
        lambda value: tuple(map(EntryRows.read, items(value))),
    ),
    "WriterState": (
        lambda writer: {"epoch": writer.epoch, "open": _write_open(writer.open_ledgers)},
        lambda value: WriterState(integer(value["epoch"]), _read_open(value["open"])),
    ),
    "TransactionRecord": (lambda made: made.stored(), TransactionRecord.read),
    "TransactionRecord | None": (lambda made: made and made.stored(), _optional(TransactionRecord.read)),
    "TierMark | None": (lambda mark: mark and mark.stored(), _optional(TierMark.read)),
    "KeyCompaction | None": (lambda setting: setting and asdict(setting), _optional(lambda value: KeyCompaction(**value))),
    "Retention": (asdict, lambda value: Retention(**value)),
    "Lanes": (asdict, _read_lanes),
}
"""Annotation of a field → how its value is written, and how it is read and checked."""

_KEYS = {"application_id": "id", "job_id": "job", "log_uid": "log", "open_ledgers": "open", "is_secured": "secured"}
"""Fields that are stored under another key."""

_NOT_STORED = "duplicate_of"

_LEFT_OUT: dict[str, object] = {
    "lanes": PLAIN,
    "tier": None,
    "transaction": None,
    "transaction_version": 0,
    "compaction": None,
    "span_ledger": None,
    "is_secured": False,
    "readers": (),
    "entries": (),
}
"""Fields that are not written where they are a plain log's, so that the records of plain logs stay what they were."""


_STORED_FIELDS: dict[type, list[tuple[str, str, _Codec, _Codec]]] = {}


def _stored_fields(kind: type[StoredRecord]) -> list[tuple[str, str, _Codec, _Codec]]:
    """Name, key, writer and reader of each stored field."""
    found = _STORED_FIELDS.get(kind)
    if found is None:
        stored = [(one.name, str(one.type)) for one in fields(kind) if one.name != _NOT_STORED]
        found = _STORED_FIELDS[kind] = [(name, _KEYS.get(name, name), *_CODECS[annotation]) for name, annotation in stored]
    return found
