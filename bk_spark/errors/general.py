"""The root of all errors, and those that any part may raise. The tree: ``errors/__init__.py``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

MAX_SHOWN = 1000
"""Characters of a wrong value that its error shows."""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text)} characters)"


@dataclass(eq=False)
class BookKeeperError(Exception):
    """The root: ``except BookKeeperError`` catches all that this package raises on purpose."""

    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[type[BookKeeperError], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


@dataclass(eq=False)
class ConfigError(BookKeeperError):
    """An argument, option or setting is wrong. ``what`` names it, ``value`` is what was given, ``remedy`` the way out."""

    what: str
    value: object
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} is {'missing' if self.value is None else _cut(repr(self.value))}: {self.remedy}"


@dataclass(eq=False)
class MetadataAccessError(ConfigError):
    """ZooKeeper's access control refuses this client: it gave no credential, or not the one that the cluster was made with."""


@dataclass(eq=False)
class FormatVersionError(BookKeeperError):
    """Something was written in a format version that this program does not know."""

    what: str
    found: int
    known: int

    def __str__(self) -> str:
        return (
            f"{self.what} has format version {self.found}, this bk_spark reads up to version {self.known}: "
            "upgrade bk_spark here, it was written by a newer one"
        )


@dataclass(eq=False)
class MetadataUnavailableError(BookKeeperError):
    """The metadata store does not answer. If a change was under way, whether it took effect is unknown."""

    retryable: ClassVar[bool] = True

    uri: str
    problem: str

    def __str__(self) -> str:
        return f"the metadata store {self.uri} does not answer ({self.problem}): check that ZooKeeper runs there"


@dataclass(eq=False)
class MetadataConflictError(BookKeeperError):
    """A compare-and-set lost against somebody else's change, and repeating it blindly would be wrong."""

    retryable: ClassVar[bool] = True

    what: str
    problem: str

    def __str__(self) -> str:
        return f"{self.what} was changed by somebody else meanwhile: {self.problem}"


@dataclass(eq=False)
class NotEnoughBookiesError(BookKeeperError):
    """Too few bookies are there."""

    retryable: ClassVar[bool] = True

    needed: int
    available: int
    purpose: str
    read_only: int = 0
    """Bookies that are there and take no adds."""

    def __str__(self) -> str:
        refusing = f", {self.read_only} more are read-only because their disks are full" if self.read_only else ""
        return (
            f"{self.purpose} needs {self.needed} bookies and {self.available} can be used{refusing}: "
            "start more bookies ('bk-spark bookie list' shows them), give read-only ones space, or ask for fewer replicas"
        )


@dataclass(eq=False)
class CorruptionError(BookKeeperError):
    """Stored bytes are damaged. Damage is never "no such entry"."""

    what: str
    problem: str

    def __str__(self) -> str:
        return f"{self.what} is damaged: {_cut(self.problem)}"


@dataclass(eq=False)
class StorageError(BookKeeperError):
    """A disk refused an operation. What it concerned is unknown, never negative."""

    what: str
    problem: str

    def __str__(self) -> str:
        return f"{self.what} failed: {self.problem}"


@dataclass(eq=False)
class MissingLogError(StorageError):
    """The file of an entry log is gone: compacted away, so that another look-up finds the new place, or lost."""


@dataclass(eq=False)
class ProcessFailedError(BookKeeperError):
    """A process of a local cluster did not start or stop as asked. ``log_tail`` is the end of its log file ``log``."""

    process: str
    problem: str
    log: str
    log_tail: str

    def __str__(self) -> str:
        return f"{self.process} {self.problem}; its log {self.log} ends with:\n{self.log_tail or '(nothing)'}"


@dataclass(eq=False)
class InternalError(BookKeeperError):
    """bk_spark itself failed while it worked on a ledger. What was under way has an unknown outcome."""

    ledger_id: int
    problem: str

    def __str__(self) -> str:
        return f"bk_spark failed at work on ledger {self.ledger_id}, please report this bug: {self.problem}"
