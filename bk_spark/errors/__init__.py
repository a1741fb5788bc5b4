"""The tree of errors. All of them are imported from here.

::

    BookKeeperError
    ├── ConfigError                    an argument, option or setting is wrong: nothing was done
    │   └── MetadataAccessError        ZooKeeper's access control refuses this client's credential, or the lack of one
    ├── FormatVersionError             a file, message or znode was written by a newer version
    ├── SchemaMismatchError            a DataFrame does not fit the log it is written to
    ├── UnauthorizedAccessError        the ledger password is wrong
    ├── MetadataUnavailableError       the metadata store does not answer: the outcome is unknown
    ├── MetadataConflictError          a compare-and-set lost against somebody else's change
    ├── NoSuchLedgerError, NoSuchLogError, NoSuchEntryError
    ├── DataLossError                  truncation or retention removed what a reader was to read next
    ├── LogReplacedError               a commit replaced the content of a log that a stream reads
    ├── LedgerExistsError              the id of a new ledger is taken
    ├── JobFailedError                 a Spark job that bk_spark started failed: nothing of it is visible
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

from bk_spark.errors.general import (
    BookKeeperError,
    ConfigError,
    CorruptionError,
    FormatVersionError,
    InternalError,
    MetadataAccessError,
    MetadataConflictError,
    MetadataUnavailableError,
    MissingLogError,
    NotEnoughBookiesError,
    ProcessFailedError,
    StorageError,
)
from bk_spark.errors.ledger import (
    AddQuorumTimeoutError,
    AppendWindowFullError,
    BookieUnavailableError,
    DigestMismatchError,
    DuplicateEntryError,
    EnsembleChangesExceededError,
    EntryTooLargeError,
    LedgerClosedError,
    LedgerExistsError,
    LedgerFencedError,
    LedgerNotClosedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    UnauthorizedAccessError,
)
from bk_spark.errors.log import (
    DataLossError,
    JobEndedError,
    JobFailedError,
    LogReplacedError,
    NoSuchLogError,
    SchemaMismatchError,
)

__all__ = [
    "AddQuorumTimeoutError",
    "AppendWindowFullError",
    "BookKeeperError",
    "BookieUnavailableError",
    "ConfigError",
    "CorruptionError",
    "DataLossError",
    "DigestMismatchError",
    "DuplicateEntryError",
    "EnsembleChangesExceededError",
    "EntryTooLargeError",
    "FormatVersionError",
    "InternalError",
    "JobEndedError",
    "JobFailedError",
    "LedgerClosedError",
    "LedgerExistsError",
    "LedgerFencedError",
    "LedgerNotClosedError",
    "LogReplacedError",
    "MetadataAccessError",
    "MetadataConflictError",
    "MetadataUnavailableError",
    "MissingLogError",
    "NoSuchEntryError",
    "NoSuchLedgerError",
    "NoSuchLogError",
    "NotEnoughBookiesError",
    "ProcessFailedError",
    "SchemaMismatchError",
    "StorageError",
    "UnauthorizedAccessError",
]

for _name in __all__:
    # Spark shows an error under its module's name: that is where its users are to import it from.
    globals()[_name].__module__ = __name__
