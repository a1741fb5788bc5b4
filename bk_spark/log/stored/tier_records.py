"""What the metadata store holds of a log's tier: the step under way, and the sections.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bk_spark.log.stored.json_values import FORMAT_OF_TIERS, decode, encode, integer, integers, items, text
from bk_spark.log.stored.tier_mark import StepName
from bk_spark.log.stored.values import CommittedLedger

NOT_NAMED = -1
"""In the place of a ledger that a file has rows of: others wrote it while the table was set back, so it may have any rows
of the log. The next step takes the rows that are named out of it."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the table, and the ledgers that it has rows of."""

    path: str
    size: int
    """Bytes."""
    ledgers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LedgerContent:
    """What a ledger holds, as somebody read it."""

    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class TieredLedger:
    """A ledger of a section."""

    listed: CommittedLedger
    """As the log lists it."""
    digest: str
    """Of its rows, as they were read from bookies."""

    @property
    def ledger_id(self) -> int:
        return self.listed.ledger_id

    @property
    def content(self) -> LedgerContent:
        return LedgerContent(self.listed.rows, self.digest)


@dataclass(frozen=True, slots=True)
class TierSection:
    """Where the rows of some ledgers lie, in log order."""

    ledgers: tuple[TieredLedger, ...]
    files: tuple[DataFile, ...]
    version: int = 0
    """The log's newest one when they were listed."""

    def files_of(self, ledger_id: int) -> tuple[DataFile, ...]:
        return tuple(one for one in self.files if ledger_id in one.ledgers)

    def encode(self) -> bytes:
        return encode(FORMAT_OF_TIERS, ledgers=_ledgers(self.ledgers), files=_files(self.files), version=self.version)

    @staticmethod
    def decode(what: str, value: bytes) -> TierSection:
        """Raises CorruptionError, FormatVersionError."""

        def build(record: dict[str, Any]) -> TierSection:
            ledgers, files = _read_ledgers(record["ledgers"]), _read_files(record["files"])
            return TierSection(ledgers, files, integer(record["version"], 0))

        return decode(what, value, build)


@dataclass(frozen=True, slots=True)
class StepAttempt:
    """One try to write the files of a step: complete, and proved."""

    name: str
    ledgers: tuple[TieredLedger, ...]
    files: tuple[DataFile, ...]
    """Of the ledgers to add; then those that take the place of files in which ledgers are to be removed and others stay."""


@dataclass(frozen=True, slots=True)
class TierStep:
    """The step under way. ``name.attempt`` is empty."""

    name: StepName
    add: tuple[CommittedLedger, ...]
    """A stretch of the log in its order. They make a section, unless there are none."""
    first: int
    removed: int
    """What the fields of TierMark with these names become: rows of what lies before leave the table."""
    schema_id: int | None = None
    """That of the log's newest version: it holds the rows of ``add``. None for a log of entries."""
    attempts: tuple[StepAttempt, ...] = ()
    """The newest one last. Earlier ones stay, because a commit of one may still come."""
    version: int = 0
    """The log's newest one when the step was begun: it lists ``add``, and not what leaves the table."""

    def attempt(self, name: str) -> StepAttempt | None:
        return next((one for one in self.attempts if one.name == name), None)

    def encode(self) -> bytes:
        attempts = [[one.name, _ledgers(one.ledgers), _files(one.files)] for one in self.attempts]
        add = [_numbers(one) for one in self.add]
        place = {"first": self.first, "removed": self.removed, "version": self.version}
        return encode(FORMAT_OF_TIERS, name=str(self.name), add=add, schema_id=self.schema_id, attempts=attempts, **place)

    @staticmethod
    def decode(what: str, value: bytes) -> TierStep:
        """Raises CorruptionError, FormatVersionError."""

        def build(record: dict[str, Any]) -> TierStep:
            attempts = (
                StepAttempt(text(a[0]), _read_ledgers(a[1]), _read_files(a[2])) for a in map(items, items(record["attempts"]))
            )
            name = StepName.parse(text(record["name"]))
            first, removed = integer(record["first"], 0), integer(record["removed"], 0)
            add = tuple(map(_listed, items(record["add"])))
            schema_id = record["schema_id"]
            schema_id = None if schema_id is None else integer(schema_id, 0)
            return TierStep(name, add, first, removed, schema_id, tuple(attempts), integer(record["version"], 0))

        return decode(what, value, build)


def _ledgers(ledgers: Iterable[TieredLedger]) -> list[list[object]]:
    return [[_numbers(one.listed), one.digest] for one in ledgers]


def _read_ledgers(value: object) -> tuple[TieredLedger, ...]:
    return tuple(TieredLedger(_listed(one[0]), text(one[1])) for one in map(items, items(value)))


def _numbers(ledger: CommittedLedger) -> list[int]:
    return [ledger.ledger_id, ledger.last_entry_id, ledger.length, ledger.rows, ledger.lane]


def _listed(value: object) -> CommittedLedger:
    return CommittedLedger(*integers(value))


def _files(files: Iterable[DataFile]) -> list[list[object]]:
    return [[one.path, one.size, list(one.ledgers)] for one in files]


def _read_files(value: object) -> tuple[DataFile, ...]:
    return tuple(DataFile(text(one[0]), integer(one[1], 0), tuple(integers(one[2]))) for one in map(items, items(value)))
