"""The tree of errors.

::

    BookKeeperError
    ├── ConfigError                    an argument, option or setting is wrong: nothing was done
    ├── FormatVersionError             a file, message or znode was written by a newer version
    ├── SchemaMismatchError            a DataFrame does not fit the log it is written to
    ├── UnauthorizedAccessError        the ledger password is wrong
    ├── MetadataUnavailableError       the metadata store does not answer: the outcome is unknown
    ├── MetadataConflictError          a compare-and-set lost against somebody else's change
    ├── NoSuchLedgerError, NoSuchLogError, NoSuchEntryError
    ├── LedgerExistsError              the id of a new ledger is taken
    ├── JobEndedError                  a write job was committed or aborted before: it takes no more ledgers
    ├── LedgerClosedError, LedgerFencedError, LedgerNotClosedError
    ├── NotEnoughBookiesError          too few bookies are there to form an ensemble or an ack quorum
    ├── BookieUnavailableError         no replica of an entry could be asked: whether it exists is unknown
    ├── AddQuorumTimeoutError          an entry was not confirmed in time: its outcome is unknown
    ├── EnsembleChangesExceededError   a writer replaced bookies more often than it may
    ├── DuplicateEntryError            the application chose an entry id that is taken
    ├── AppendWindowFullError          entries that wait for a missing one fill the window of their writer
    ├── EntryTooLargeError             an entry is above the maximum
    ├── DigestMismatchError            an entry's digest is wrong on every replica
    ├── CorruptionError                a file is damaged
    ├── StorageError                   a disk refused: the outcome is unknown
    │   └── MissingLogError            an entry log that was referred to is not there
    ├── ProcessFailedError             a process of a local cluster did not start, or did not stop
    └── InternalError                  bk_spark itself failed: a bug

Every error holds fields, builds its sentence from them, pickles (Spark carries errors between processes), and says with
``retryable`` whether the same call can succeed later without a change by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar


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
        return f"{self.what} is {self.value!r}: {self.remedy}"


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
class SchemaMismatchError(BookKeeperError):
    """A DataFrame does not fit the schema of the log that it is appended to."""

    log: str
    problem: str

    def __str__(self) -> str:
        return f"the data does not fit the schema of log '{self.log}': {self.problem}"


@dataclass(eq=False)
class UnauthorizedAccessError(BookKeeperError):
    """The ledger password is wrong."""

    ledger_id: int

    def __str__(self) -> str:
        return f"wrong password for ledger {self.ledger_id}: give the one it was created with (option 'password')"


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
class NoSuchLedgerError(BookKeeperError):
    """The metadata store holds no ledger of this id."""

    ledger_id: int

    def __str__(self) -> str:
        return f"there is no ledger {self.ledger_id}: 'bk-spark ledger list' shows what there is"


@dataclass(eq=False)
class NoSuchLogError(BookKeeperError):
    """There is no log of this name, or it was deleted since it was opened."""

    name: str

    def __str__(self) -> str:
        return f"there is no log '{self.name}': 'bk-spark log list' shows what there is"


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
class JobEndedError(BookKeeperError):
    """A write job has ended, by its commit, an abort or the sweep: what this attempt wrote is not kept."""

    log: str
    job_id: str

    def __str__(self) -> str:
        what = f"write job {self.job_id} on log '{self.log}' has ended"
        return f"{what}: this attempt's data is not kept, write it again as a new job"


@dataclass(eq=False)
class LedgerClosedError(BookKeeperError):
    """The ledger, or the handle that writes it, is closed: this append did not happen."""

    ledger_id: int

    def __str__(self) -> str:
        return f"ledger {self.ledger_id} is closed: create a new ledger to write more"


@dataclass(eq=False)
class LedgerFencedError(BookKeeperError):
    """Somebody recovers the ledger: this writer is displaced, the outcome of unconfirmed entries is unknown."""

    ledger_id: int

    def __str__(self) -> str:
        return f"ledger {self.ledger_id} was fenced by another client: open it again to see where it ends"


@dataclass(eq=False)
class LedgerNotClosedError(BookKeeperError):
    """The operation wants a closed ledger."""

    ledger_id: int
    state: str

    def __str__(self) -> str:
        return f"ledger {self.ledger_id} is {self.state}, not CLOSED: close its writer, or open it with recover=True"


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


@dataclass(eq=False)
class CorruptionError(BookKeeperError):
    """Stored bytes are damaged. Damage is never "no such entry"."""

    what: str
    problem: str

    def __str__(self) -> str:
        return f"{self.what} is damaged: {self.problem}"


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
