"""Errors about ledgers, their entries, and the bookies that hold them. The tree: ``errors/__init__.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bk_spark.errors.general import BookKeeperError


@dataclass(eq=False)
class UnauthorizedAccessError(BookKeeperError):
    """The ledger password is wrong."""

    ledger_id: int

    def __str__(self) -> str:
        return f"wrong password for ledger {self.ledger_id}: give the one it was created with (option 'password')"


@dataclass(eq=False)
class NoSuchLedgerError(BookKeeperError):
    """The metadata store holds no ledger of this id."""

    ledger_id: int

    def __str__(self) -> str:
        return f"there is no ledger {self.ledger_id}: 'bk-spark ledger list' shows what there is"


@dataclass(eq=False)
class NoSuchEntryError(BookKeeperError):
    """The ledger holds no entry of this id: every replica that could hold it says so."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"ledger {self.ledger_id} has no entry {self.entry_id}"


@dataclass(eq=False)
class LedgerExistsError(BookKeeperError):
    """A ledger of this id exists already."""

    ledger_id: int

    def __str__(self) -> str:
        return f"ledger {self.ledger_id} exists already"


@dataclass(eq=False)
class LedgerClosedError(BookKeeperError):
    """The ledger, or the handle that writes it, is closed: this append did not happen. ``log`` is set for a log's writer."""

    ledger_id: int
    log: str | None = None

    def __str__(self) -> str:
        if self.log is not None:
            return f"the writer of log '{self.log}' is closed: open another one with open_writer() to write more"
        return f"ledger {self.ledger_id} is closed: create a new ledger to write more"


@dataclass(eq=False)
class LedgerFencedError(BookKeeperError):
    """Somebody recovers the ledger: this writer is displaced, the outcome of unconfirmed entries is unknown.

    ``log`` is set for a log's leader: another one, a recovery or an append of whole ledgers displaced it.
    """

    ledger_id: int
    log: str | None = None

    def __str__(self) -> str:
        if self.log is not None:
            remedy = "read the log to see what it holds, open_writer() takes it over again"
            return f"this writer of log '{self.log}' was displaced by another client (ledger {self.ledger_id}): {remedy}"
        return f"ledger {self.ledger_id} was fenced by another client: open it again to see where it ends"


@dataclass(eq=False)
class LedgerNotClosedError(BookKeeperError):
    """The operation wants a closed ledger."""

    ledger_id: int
    state: str

    def __str__(self) -> str:
        return f"ledger {self.ledger_id} is {self.state}, not CLOSED: close its writer, or open it with recover=True"


@dataclass(eq=False)
class BookieUnavailableError(BookKeeperError):
    """No replica could answer for an entry. Whether the entry exists is unknown."""

    retryable: ClassVar[bool] = True

    ledger_id: int
    entry_id: int
    replicas: tuple[str, ...]

    def __str__(self) -> str:
        asked = "; ".join(self.replicas)
        return f"entry {self.entry_id} of ledger {self.ledger_id} cannot be read now, no replica answered for it ({asked})"


@dataclass(eq=False)
class AddQuorumTimeoutError(BookKeeperError):
    """An entry did not reach its ack quorum in time. Its outcome is unknown: a later recovery may keep it."""

    ledger_id: int
    entry_id: int
    timeout_s: float

    def __str__(self) -> str:
        return (
            f"entry {self.entry_id} of ledger {self.ledger_id} did not reach its ack quorum within {self.timeout_s:g} s: "
            "whether it is kept is unknown until the ledger is recovered"
        )


@dataclass(eq=False)
class EnsembleChangesExceededError(BookKeeperError):
    """A writer replaced bookies more often than it may. The outcome of its unconfirmed entries is unknown."""

    ledger_id: int
    maximum: int

    def __str__(self) -> str:
        return (
            f"the writer of ledger {self.ledger_id} changed its ensemble {self.maximum} times, the most that "
            "max_ensemble_changes allows: its bookies keep failing, look after them and write on in a new ledger"
        )


@dataclass(eq=False)
class DuplicateEntryError(BookKeeperError):
    """The application chose an entry id that is taken: this append did not happen."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"entry {self.entry_id} of ledger {self.ledger_id} was appended before: choose an id that is not taken"


@dataclass(eq=False)
class AppendWindowFullError(BookKeeperError):
    """Entries that wait for a missing one fill the writer's window: this append did not happen."""

    retryable: ClassVar[bool] = True

    ledger_id: int
    entry_id: int
    missing_entry_id: int
    window_bytes: int

    def __str__(self) -> str:
        return (
            f"entry {self.entry_id} of ledger {self.ledger_id} cannot wait for entry {self.missing_entry_id}: the window of "
            f"{self.window_bytes} bytes is full of entries that do, append the missing one first"
        )


@dataclass(eq=False)
class EntryTooLargeError(BookKeeperError):
    """An entry is larger than the maximum."""

    size_bytes: int
    maximum_bytes: int

    def __str__(self) -> str:
        size = f"{self.size_bytes} bytes, the maximum is {self.maximum_bytes}"
        return f"an entry, or a row that is an entry of its own, has {size}: split it"


@dataclass(eq=False)
class DigestMismatchError(BookKeeperError):
    """An entry's digest does not match on any replica: damage, or another password."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return (
            f"the digest of entry {self.entry_id} of ledger {self.ledger_id} is wrong on every replica that answered: "
            "the data is damaged"
        )
