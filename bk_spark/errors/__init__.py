"""The tree of errors.

::

    BookKeeperError
    ├── ConfigError ── MetadataAccessError
    ├── FormatVersionError, CorruptionError, WrongValueError, UnauthorizedAccessError
    ├── StorageError ── MissingLogError
    ├── NotOpenedError
    ├── MetadataUnavailableError, MetadataConflictError
    ├── NotEnoughBookiesError, AddQuorumTimeoutError, EnsembleChangesExceededError
    ├── BookieUnavailableError ── NotForcedError
    ├── NoSuchLedgerError, LedgerExistsError, LedgerClosedError, LedgerFencedError, LedgerNotClosedError
    ├── NoSuchEntryError, DuplicateEntryError, EntryTooLargeError, DigestMismatchError, AppendWindowFullError
    ├── AppendTimeoutError
    ├── NoSuchLogError, SchemaMismatchError, LogReplacedError, JobFailedError, JobEndedError
    ├── DataLossError ── LogGoneError
    ├── NoSuchTopicError, MessagesGoneError, UnreadableMessagesError
    ├── UnauthenticatedError, AccessRefusedError, GatewayBusyError
    ├── ProcessFailedError
    └── InternalError

Every error holds fields, builds its sentence from them, pickles (Spark carries errors between processes), and says with
``retryable`` whether the same call can succeed later without a change by the caller. Imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

MAX_SHOWN = 1000
"""Characters of a wrong value that its error shows."""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text)} characters)"


@dataclass(eq=False)
class BookKeeperError(Exception):
    """The root: ``except BookKeeperError`` catches every error that this package raises on purpose."""

    retryable: ClassVar[bool] = False
    sentence: ClassVar[str] = ""
    """The error's text, with its fields in braces. Classes whose text depends on more override ``_text``."""

    def __str__(self) -> str:
        """In characters that can be printed and sent: half of a surrogate pair, as a file's name may hold, is escaped."""
        return self._text().encode("utf-8", "backslashreplace").decode()

    def _text(self) -> str:
        return self.sentence.format_map(vars(self))

    def __reduce__(self) -> tuple[type[BookKeeperError], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


class State(str):
    """The ``value`` of a ConfigError where nobody gave one: how the thing is. The sentence shows it without quotes."""


@dataclass(eq=False)
class ConfigError(BookKeeperError):
    """An argument, option or setting is wrong: nothing was done. ``what`` names it, ``value`` was given, ``remedy`` helps."""

    what: str
    value: object
    remedy: str

    def _text(self) -> str:
        return f"{self.what} is {self._shown()}: {self.remedy}"

    def _shown(self) -> str:
        if self.value is None:
            return "missing"
        return _cut(self.value if isinstance(self.value, State) else repr(self.value))


@dataclass(eq=False)
class MetadataAccessError(ConfigError):
    """ZooKeeper's access control refuses this client: it gave no credential, or not the one the cluster was made with."""


@dataclass(eq=False)
class FormatVersionError(BookKeeperError):
    """A file, message or znode has a format version that this program does not know."""

    what: str
    found: int
    known: int
    sentence = (
        "{what} has format version {found}, this bk_spark reads up to version {known}: "
        "upgrade bk_spark here, it was written by a newer one"
    )


@dataclass(eq=False)
class MetadataUnavailableError(BookKeeperError):
    """The metadata store does not answer. If a change was under way, whether it took effect is unknown."""

    uri: str
    problem: str
    advice: str = "check the URI, and that ZooKeeper runs there"
    retryable = True
    sentence = "the metadata store {uri} does not answer ({problem}): {advice}"


@dataclass(eq=False)
class MetadataConflictError(BookKeeperError):
    """A compare-and-set lost against another client's change, and repeating it blindly would be wrong."""

    what: str
    problem: str
    retryable = True
    sentence = "{what} was changed by somebody else meanwhile: {problem}"


@dataclass(eq=False)
class NotEnoughBookiesError(BookKeeperError):
    """Too few bookies can be used."""

    retryable = True

    needed: int
    available: int
    purpose: str
    read_only: int = 0
    """Registered bookies that take no adds."""
    of_racks: bool = False
    """Whether ``needed`` and ``available`` count the racks of a write set."""
    absent: tuple[str, ...] = ()
    """Bookies of the cluster that ran once and are not registered, of which the error names ten."""

    def _text(self) -> str:
        if self.of_racks:
            return (
                f"{self.purpose} needs {self.needed} racks in each write set and finds {self.available}: start writable "
                "bookies in other racks ('bk-spark bookie list' shows them), or lower min_racks_per_write_quorum"
            )
        why = "'bk-spark bookie status BOOKIE_ID' says why, and how much space one needs"
        refusing = f", {self.read_only} more are read-only ({why})" if self.read_only else ""
        names = ", ".join(self.absent[:10]) + (f" and {len(self.absent) - 10} more" if len(self.absent) > 10 else "")
        missing = f", not running: {names}" if names else ""
        return (
            f"{self.purpose} needs {self.needed} bookies and {self.available} can be used{refusing}{missing}: "
            "start more bookies ('bk-spark bookie list' shows them), give read-only ones space, "
            "or ask for fewer replicas where Python and Spark create ledgers and logs"
        )


@dataclass(eq=False)
class CorruptionError(BookKeeperError):
    """Stored bytes are damaged. Damage is never "no such entry"."""

    what: str
    problem: str

    def _text(self) -> str:
        return f"{self.what} is damaged: {_cut(self.problem)}"


@dataclass(eq=False)
class WrongValueError(BookKeeperError):
    """A row holds a value that its type does not have, such as the time 24:00:00. Nothing else of the log is affected."""

    what: str
    """The payload that holds the row, with its entry and ledger."""
    place: str
    value: str
    kind: str
    sentence = (
        "{what} holds {value} in column '{place}', which no {kind} can be: whoever wrote it did not check its values. "
        "All else can be read: leave the column out, or leave the row out with where"
    )


@dataclass(eq=False)
class StorageError(BookKeeperError):
    """A disk refused an operation. Its outcome is unknown, never negative."""

    what: str
    problem: str
    sentence = "{what} failed: {problem}"


@dataclass(eq=False)
class MissingLogError(StorageError):
    """The file of an entry log is gone: compacted away (another look-up then finds the new place), or lost."""


@dataclass(eq=False)
class NotOpenedError(BookKeeperError):
    """A file could not be opened, because the process has no descriptor or memory left. Nothing was written.

    It says nothing about a disk, so whoever handles a StorageError as damage or as a possible loss does not handle this.
    """

    what: str
    problem: str
    sentence = "{what} failed: {problem}"
    retryable = True


@dataclass(eq=False)
class ProcessFailedError(BookKeeperError):
    """A process of a local cluster did not start or stop as asked. ``log_tail`` is the end of its log file ``log``."""

    process: str
    problem: str
    log: str
    log_tail: str

    def _text(self) -> str:
        return f"{self.process} {self.problem}; its log {self.log} ends with:\n{self.log_tail or '(nothing)'}"


@dataclass(eq=False)
class InternalError(BookKeeperError):
    """bk_spark itself failed while it worked on a ledger. The outcome of what was under way is unknown."""

    ledger_id: int
    problem: str
    sentence = "bk_spark failed at work on ledger {ledger_id}, please report this bug: {problem}"


# Ledgers, their entries, and the bookies that hold them


@dataclass(eq=False)
class UnauthorizedAccessError(BookKeeperError):
    """The ledger password is wrong."""

    ledger_id: int
    sentence = "wrong password for ledger {ledger_id}: give the one it was created with (option 'password')"


@dataclass(eq=False)
class NoSuchLedgerError(BookKeeperError):
    """The metadata store holds no ledger of this id."""

    ledger_id: int
    sentence = "there is no ledger {ledger_id}: 'bk-spark ledger list' shows what there is"


@dataclass(eq=False)
class NoSuchEntryError(BookKeeperError):
    """The ledger holds no entry of this id: every replica that could hold it says so."""

    ledger_id: int
    entry_id: int
    sentence = "ledger {ledger_id} has no entry {entry_id}"


@dataclass(eq=False)
class LedgerExistsError(BookKeeperError):
    """A ledger of this id exists already."""

    ledger_id: int
    sentence = "ledger {ledger_id} exists already"


@dataclass(eq=False)
class LedgerClosedError(BookKeeperError):
    """The ledger, or the handle that writes it, is closed: this append did not happen. ``log`` is set for a log's writer."""

    ledger_id: int
    log: str | None = None

    def _text(self) -> str:
        if self.log is not None:
            return f"the writer of log '{self.log}' is closed: open another one with open_writer() to write more"
        return f"ledger {self.ledger_id} is closed: create a new ledger to write more"


@dataclass(eq=False)
class LedgerFencedError(BookKeeperError):
    """Another client recovers the ledger: this writer is displaced, the outcome of its unconfirmed entries is unknown.

    ``log`` is set for a log's leader: another leader, a recovery or an append of whole ledgers displaced it.
    """

    ledger_id: int
    log: str | None = None

    def _text(self) -> str:
        if self.log is not None:
            remedy = "read the log to see what it holds, open_writer() takes it over again"
            return f"this writer of log '{self.log}' was displaced by another client (ledger {self.ledger_id}): {remedy}"
        return f"ledger {self.ledger_id} was fenced by another client: open it again to see where it ends"


@dataclass(eq=False)
class LedgerNotClosedError(BookKeeperError):
    """The operation needs a closed ledger."""

    ledger_id: int
    state: str
    sentence = "ledger {ledger_id} is {state}, not CLOSED: close its writer, or open it with recover=True"


@dataclass(eq=False)
class BookieUnavailableError(BookKeeperError):
    """No replica could answer for an entry. Whether the entry exists is unknown."""

    ledger_id: int
    entry_id: int
    replicas: tuple[str, ...]
    retryable = True

    def _text(self) -> str:
        asked = "; ".join(self.replicas)
        return f"entry {self.entry_id} of ledger {self.ledger_id} cannot be read now, no replica answered for it ({asked})"


@dataclass(eq=False)
class NotForcedError(BookieUnavailableError):
    """A bookie of the ensemble did not take part in a force: from ``entry_id`` on, entries may be on no disk."""

    retryable = False

    def _text(self) -> str:
        lost = "; ".join(self.replicas)
        return f"ledger {self.ledger_id} is not forced from entry {self.entry_id} on ({lost}): close it, append to a new one"


@dataclass(eq=False)
class AddQuorumTimeoutError(BookKeeperError):
    """An entry did not reach its ack quorum in time. Its outcome is unknown: a later recovery may keep it."""

    ledger_id: int
    entry_id: int
    timeout_s: float
    sentence = (
        "entry {entry_id} of ledger {ledger_id} did not reach its ack quorum within {timeout_s:g} s: "
        "whether it is kept is unknown until the ledger is recovered"
    )


@dataclass(eq=False)
class EnsembleChangesExceededError(BookKeeperError):
    """A writer replaced bookies more often than it may. The outcome of its unconfirmed entries is unknown."""

    ledger_id: int
    maximum: int
    sentence = (
        "the writer of ledger {ledger_id} changed its ensemble {maximum} times, the most that "
        "max_ensemble_changes allows: its bookies keep failing, look after them and write on in a new ledger"
    )


@dataclass(eq=False)
class DuplicateEntryError(BookKeeperError):
    """The application chose an entry id that is taken: this append did not happen."""

    ledger_id: int
    entry_id: int
    sentence = "entry {entry_id} of ledger {ledger_id} was appended before: choose an id that is not taken"


@dataclass(eq=False)
class AppendWindowFullError(BookKeeperError):
    """Entries that wait for a missing one fill the writer's window: this append did not happen."""

    ledger_id: int
    entry_id: int
    missing_entry_id: int
    window_bytes: int
    retryable = True
    sentence = (
        "entry {entry_id} of ledger {ledger_id} cannot wait for entry {missing_entry_id}: the window of "
        "{window_bytes} bytes is full of entries that do, append the missing one first"
    )


@dataclass(eq=False)
class AppendTimeoutError(BookKeeperError):
    """An append waited for room longer than ``ClientConfig.append_wait_s``: it did not happen, of several batches not whole."""

    ledger_id: int
    waited_s: float
    window_bytes: int
    window: str = "add_window_bytes"
    """What bounds it."""
    retryable = True
    sentence = (
        "ledger {ledger_id} had no room for an append for {waited_s} s (append_wait_s): {window_bytes} bytes "
        "({window}) that were appended before are not stored yet; append less at a time, or look at the bookies"
    )


@dataclass(eq=False)
class EntryTooLargeError(BookKeeperError):
    """An entry is larger than the maximum."""

    size_bytes: int
    maximum_bytes: int
    sentence = "an entry, or a row, has {size_bytes} bytes, the maximum is {maximum_bytes}: split it"


@dataclass(eq=False)
class DigestMismatchError(BookKeeperError):
    """An entry's digest does not match on any replica: damage, or another password."""

    ledger_id: int
    entry_id: int
    sentence = (
        "the digest of entry {entry_id} of ledger {ledger_id} is wrong on every replica that answered: the data is damaged"
    )


# Logs, and the jobs that write and read them


@dataclass(eq=False)
class SchemaMismatchError(BookKeeperError):
    """A DataFrame does not fit the schema of the log that it is appended to."""

    log: str
    problem: str
    sentence = "the data does not fit the schema of log '{log}': {problem}"


@dataclass(eq=False)
class NoSuchLogError(BookKeeperError):
    """There is no log of this name, or it was deleted since it was opened."""

    name: str
    sentence = "there is no log '{name}': 'bk-spark log list' shows what there is"


@dataclass(eq=False)
class DataLossError(BookKeeperError):
    """The rows that a reader of a log would read next are gone: truncated, or older than what the log retains."""

    log: str
    problem: str
    sentence = (
        "rows of log '{log}' are gone before they were read: {problem}; "
        "to go on from the first row there is, set failOnDataLoss to false"
    )

    @property
    def warning(self) -> str:
        """The sentence for the log where ``failOnDataLoss`` is false."""
        return f"rows of log '{self.log}' were gone before they were read, and are skipped: {self.problem}"


@dataclass(eq=False)
class LogGoneError(DataLossError):
    """A stream over several logs does not find one of them any more: it was deleted, or its options do not name it now."""

    sentence = "log '{log}' is gone from the stream: {problem}; to go on without it, set failOnDataLoss to false"

    @property
    def warning(self) -> str:
        """The sentence for the log where ``failOnDataLoss`` is false."""
        return f"the stream goes on without log '{self.log}': {self.problem}"


@dataclass(eq=False)
class NoSuchTopicError(BookKeeperError):
    """The metadata of Pulsar name no topic ``topic`` that has messages in BookKeeper."""

    topic: str
    metadata: str
    sentence = (
        "there is no topic '{topic}' at {metadata}: 'bin/pulsar-admin topics list' shows what there is, and option "
        "'pulsarMetadata' names the ZooKeeper of another Pulsar"
    )


@dataclass(eq=False)
class MessagesGoneError(BookKeeperError):
    """The messages that a reader of a topic would read next are gone: Pulsar's retention trimmed them, or the topic is gone."""

    topic: str
    problem: str
    sentence = (
        "messages of topic '{topic}' are gone before they were read: {problem}; "
        "to go on from the first message there is, set failOnDataLoss to false"
    )

    @property
    def warning(self) -> str:
        """The sentence for the log where ``failOnDataLoss`` is false."""
        return f"messages of topic '{self.topic}' were gone before they were read, and are skipped: {self.problem}"


@dataclass(eq=False)
class UnreadableMessagesError(BookKeeperError):
    """A topic holds messages that cannot be read here: encrypted, damaged, or offloaded from the bookies."""

    topic: str
    place: str
    """Which messages: a message id or a ledger."""
    problem: str
    sentence = "{place} of topic '{topic}' cannot be read: {problem}; to leave such messages out, set unreadable to skip"


@dataclass(eq=False)
class LogReplacedError(BookKeeperError):
    """A commit replaced content of the log that a stream reads, and the stream's option ``overwrites`` is ``fail``."""

    log: str
    version: int
    sentence = (
        "version {version} of log '{log}' replaced content that is being read as a stream: "
        "set option 'overwrites' to read (the new content) or skip (only what is appended to it)"
    )


@dataclass(eq=False)
class JobFailedError(BookKeeperError):
    """A Spark job that bk_spark started failed. ``problem`` is the text of the failed task's error."""

    what: str
    problem: str
    consequence: str = "nothing of it is visible"
    sentence = "{what} failed, {consequence}: {problem}"


@dataclass(eq=False)
class JobEndedError(BookKeeperError):
    """A write job has ended, by its commit, an abort or the sweep: it takes no more ledgers, and drops this attempt's data."""

    log: str
    job_id: str
    sentence = "write job {job_id} on log '{log}' has ended: this attempt's data is not kept, write it again as a new job"


# Whoever asks a gateway


@dataclass(eq=False)
class UnauthenticatedError(BookKeeperError):
    """A call to a gateway shows nothing that says whose it is, or a token that does not hold. Nothing was looked up for it."""

    problem: str
    sentence = "the gateway does not know whose call this is: {problem}"


@dataclass(eq=False)
class AccessRefusedError(BookKeeperError):
    """An identity lacks a right. The sentence is the same whether or not there is such a log."""

    identity: str
    right: str
    log: str
    sentence = (
        "{identity} has no right to {right} log '{log}': an operator may grant it, 'bk-spark grant list' shows who has it"
    )


@dataclass(eq=False)
class GatewayBusyError(BookKeeperError):
    """A gateway takes no more calls, or not this one, for now: nothing was done."""

    problem: str
    retryable = True
    sentence = "the gateway does not take this call now: {problem}"
