"""What a tierer needs of the table and of its files."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bk_spark.log.stored.tier_mark import StepName
from bk_spark.log.stored.tier_records import DataFile, LedgerContent, TierStep


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of the table's newest snapshot."""

    path: str
    size: int
    """Bytes."""
    has_log_rows: bool
    """Whether it may have rows that name a ledger."""
    has_other_rows: bool
    """Whether it may have rows that do not."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as its catalog knew it at one moment."""

    uuid: str
    log_uid: str | None
    """The log whose tier the table is."""
    step: StepName
    """The last step that the table had; NO_STEP for none."""
    snapshot: int | None
    files: tuple[TableFile, ...]

    def paths(self) -> frozenset[str]:
        return frozenset(one.path for one in self.files)


@dataclass(frozen=True, slots=True)
class TableChange:
    """One snapshot, also where it changes no file."""

    step: StepName
    add: tuple[DataFile, ...]
    remove: frozenset[str]
    version: int = 0
    """The log's. What is removed may be needed by versions below: a tag keeps the snapshot before from others' expiry."""
    ledgers: tuple[int, ...] = ()
    """Whose rows come into the table."""


class TierTable(Protocol):
    """A table through its catalog."""

    def look(self) -> TableState:
        """The newest state. Raises BookKeeperError where the catalog does not answer."""

    def unfit(self, paths: Iterable[str]) -> list[str]:
        """Those of the files whose columns are not the table's: somebody dropped or renamed one since they were written."""

    def commit(self, base: TableState, change: TableChange) -> None:
        """Make the change if ``base`` is the newest state still, as one compare-and-set of the catalog.

        Whatever it raises, the change may have been made: look.
        """

    def is_expired(self, before_ms: int, version: int) -> bool:
        """Whether ``expire`` drops anything."""

    def expire(self, before_ms: int, version: int) -> None:
        """Drop our tags of versions up to ``version``, and snapshots that no ref names and that were replaced before
        ``before_ms``. Nothing else of the table changes."""

    def paths(self) -> frozenset[str]:
        """The data files of all snapshots."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A file in which the rows of some ledgers leave the table, and those of ``stay`` do not."""

    file: DataFile
    stay: tuple[int, ...]


class TierFiles(Protocol):
    """The files of one tier. All methods raise BookKeeperError where the store of files does not answer."""

    def write(
        self, folder: str, step: TierStep, rewrites: Sequence[Rewrite]
    ) -> tuple[dict[int, LedgerContent], tuple[DataFile, ...]]:
        """Write files under ``folder``, durably: the rows that a step adds, as bookies have them, and what stays of others.

        Returns what the ledgers to add held, and the files. A file names each of the ledgers, also one without rows. The table
        has the columns for the rows, or gets them.
        """

    def read_back(self, files: Iterable[DataFile]) -> dict[int, LedgerContent]:
        """The content, by entry and row, of each ledger that the files name, also without rows. Raises CorruptionError."""

    def missing(self, files: Iterable[DataFile]) -> list[str]:
        """The paths of those files that are not there with their size."""

    def folders(self, step: int) -> list[str]:
        """The folders of a step's attempts."""

    def delete_folder(self, folder: str) -> None:
        """Delete it with its files. May be called again."""

    def sweep(self, last: int, named: Container[str]) -> None:
        """Delete all files in folders of steps up to ``last`` but for the named ones. May be called again."""


def folder_of(step: int, attempt: str) -> str:
    """Where the files of an attempt lie, among those of the log."""
    return f"{step}-{attempt}"


def step_of(folder: str) -> int | None:
    """The step of a folder that ``folder_of`` named; None for one of somebody else."""
    number, found, _ = folder.partition("-")
    return int(number) if found and number.isascii() and number.isdecimal() else None
