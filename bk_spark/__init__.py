"""A replicated log store for Spark users.

Spark reads, writes and streams logs with ``format("bookkeeper")``. Programs without Spark use the client:

    import pyarrow
    from bk_spark import BookKeeper

    with BookKeeper("zk://host:2181/ledgers") as bookkeeper:   # or "embedded:DIR": bookies of this machine
        log = bookkeeper.open_log("orders", create=True)
        log.append_rows(pyarrow.table({"id": [1], "item": ["apples"]}))
        print(log.read_rows().read_all())

========================== ===============================================================
BookKeeper                 a client: creates, opens, lists and deletes ledgers and logs
ClientConfig               its settings
LocalCluster               ZooKeeper and bookies on this machine, for as long as a block
register(spark)            makes the format known where Spark does not find it by itself
compact_log(spark, …)      joins the small ledgers of a log
tier_log(spark, …)         moves the rows of a log's closed ledgers into its Iceberg table
LogPosition, LogVersion,   values that calls take and give
CommittedLedger,
Retention, DigestType,
KeyCompaction, Tier
BookieConfig               the settings of a bookie
aio                        the same client for asyncio
errors                     what calls raise: BookKeeperError and its subclasses
__version__
========================== ===============================================================

``help(bk_spark.BookKeeper)`` says more on a name, ``bk_spark.errors`` has the errors, which are names of this package, too.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from bk_spark import errors
from bk_spark.errors import (
    AccessRefusedError,
    AddQuorumTimeoutError,
    AppendTimeoutError,
    AppendWindowFullError,
    BookieUnavailableError,
    BookKeeperError,
    ConfigError,
    CorruptionError,
    DataLossError,
    DigestMismatchError,
    DuplicateEntryError,
    EnsembleChangesExceededError,
    EntryTooLargeError,
    FormatVersionError,
    InternalError,
    JobEndedError,
    JobFailedError,
    LedgerClosedError,
    LedgerExistsError,
    LedgerFencedError,
    LedgerNotClosedError,
    LogGoneError,
    LogReplacedError,
    MessagesGoneError,
    MetadataAccessError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NoSuchLogError,
    NoSuchTopicError,
    NotEnoughBookiesError,
    NotForcedError,
    ProcessFailedError,
    SchemaMismatchError,
    StorageError,
    UnauthenticatedError,
    UnauthorizedAccessError,
    UnreadableMessagesError,
    WrongValueError,
)
from bk_spark.version import VERSION as __version__

if TYPE_CHECKING:
    from bk_spark.bookkeeper import BookKeeper
    from bk_spark.config import BookieConfig, ClientConfig, DigestType
    from bk_spark.datasource.jobs.compact_log import compact_log
    from bk_spark.datasource.jobs.tier_log import tier_log
    from bk_spark.datasource.source import register
    from bk_spark.local.cluster import LocalCluster
    from bk_spark.log.entry_range import LogPosition
    from bk_spark.log.stored.by_key.settings import KeyCompaction
    from bk_spark.log.stored.tier_settings import Tier
    from bk_spark.log.stored.values import CommittedLedger, LogVersion, Retention

_LAZY = {
    "compact_log": "bk_spark.datasource.jobs.compact_log",
    "BookKeeper": "bk_spark.bookkeeper",
    "BookieConfig": "bk_spark.config",
    "ClientConfig": "bk_spark.config",
    "CommittedLedger": "bk_spark.log.stored.values",
    "DigestType": "bk_spark.config",
    "LocalCluster": "bk_spark.local.cluster",
    "LogPosition": "bk_spark.log.entry_range",
    "LogVersion": "bk_spark.log.stored.values",
    "KeyCompaction": "bk_spark.log.stored.by_key.settings",
    "Retention": "bk_spark.log.stored.values",
    "Tier": "bk_spark.log.stored.tier_settings",
    "register": "bk_spark.datasource.source",
    "tier_log": "bk_spark.datasource.jobs.tier_log",
}

__all__ = [
    "AccessRefusedError",
    "AddQuorumTimeoutError",
    "AppendTimeoutError",
    "AppendWindowFullError",
    "BookKeeper",
    "BookKeeperError",
    "BookieConfig",
    "BookieUnavailableError",
    "ClientConfig",
    "CommittedLedger",
    "ConfigError",
    "CorruptionError",
    "DataLossError",
    "DigestMismatchError",
    "DigestType",
    "DuplicateEntryError",
    "EnsembleChangesExceededError",
    "EntryTooLargeError",
    "FormatVersionError",
    "InternalError",
    "JobEndedError",
    "JobFailedError",
    "KeyCompaction",
    "LedgerClosedError",
    "LedgerExistsError",
    "LedgerFencedError",
    "LedgerNotClosedError",
    "LocalCluster",
    "LogGoneError",
    "LogPosition",
    "LogReplacedError",
    "LogVersion",
    "MessagesGoneError",
    "MetadataAccessError",
    "MetadataConflictError",
    "MetadataUnavailableError",
    "NoSuchEntryError",
    "NoSuchLedgerError",
    "NoSuchLogError",
    "NoSuchTopicError",
    "NotEnoughBookiesError",
    "NotForcedError",
    "ProcessFailedError",
    "Retention",
    "SchemaMismatchError",
    "StorageError",
    "Tier",
    "UnauthenticatedError",
    "UnauthorizedAccessError",
    "UnreadableMessagesError",
    "WrongValueError",
    "__version__",
    "compact_log",
    "register",
    "tier_log",
]


# With gRPC's fork handlers every fourth child that Python forks beside a busy client dies before it runs its program, as when
# PySpark starts its JVM. Without them nothing is lost: gRPC works in no forked child. It reads this at its first call.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")


# All but the errors are loaded at their first use: every Spark worker imports this package, and few need all of it.


def __getattr__(name: str) -> Any:
    if name == "aio":
        return importlib.import_module("bk_spark.aio")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'bk_spark' has no attribute '{name}'")


def __dir__() -> list[str]:
    """The public names, for completion and ``help``, also those that are not loaded yet.

    Of the errors only the module, ``bk_spark.errors``: ``help`` shows each class with all that exceptions inherit, 100 KB.
    """
    return sorted({"aio", "errors", *(name for name in __all__ if getattr(errors, name, None) is None)})
