"""bk_spark: a replicated log store for Spark users.

These are the public names; ``bk_spark.aio`` has those for asyncio. All but the errors are loaded at their first use, because
every Spark worker imports this package and few need all of it.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from bk_spark.errors import (
    AddQuorumTimeoutError,
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
    ProcessFailedError,
    SchemaMismatchError,
    StorageError,
    UnauthorizedAccessError,
    UnreadableMessagesError,
    WrongValueError,
)
from bk_spark.version import VERSION as __version__

if TYPE_CHECKING:
    from bk_spark.client.bookkeeper import BookKeeper
    from bk_spark.client.log.entry_range import LogPosition
    from bk_spark.client.log.stored.values import CommittedLedger, LogVersion, Retention
    from bk_spark.config import BookieConfig, ClientConfig, DigestType
    from bk_spark.datasource.jobs.compact_log import compact_log
    from bk_spark.datasource.source import register
    from bk_spark.local.cluster import LocalCluster

_LAZY = {
    "compact_log": "bk_spark.datasource.jobs.compact_log",
    "BookKeeper": "bk_spark.client.bookkeeper",
    "BookieConfig": "bk_spark.config",
    "ClientConfig": "bk_spark.config",
    "CommittedLedger": "bk_spark.client.log.stored.values",
    "DigestType": "bk_spark.config",
    "LocalCluster": "bk_spark.local.cluster",
    "LogPosition": "bk_spark.client.log.entry_range",
    "LogVersion": "bk_spark.client.log.stored.values",
    "Retention": "bk_spark.client.log.stored.values",
    "register": "bk_spark.datasource.source",
}

__all__ = [
    "AddQuorumTimeoutError",
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
    "ProcessFailedError",
    "Retention",
    "SchemaMismatchError",
    "StorageError",
    "UnauthorizedAccessError",
    "UnreadableMessagesError",
    "WrongValueError",
    "__version__",
    "compact_log",
    "register",
]


# With gRPC's fork handlers every fourth child that Python forks beside a busy client dies before it runs its program, as when
# PySpark starts its JVM. Without them nothing is lost: gRPC works in no forked child. It reads this at its first call.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'bk_spark' has no attribute '{name}'")


def __dir__() -> list[str]:
    """The public names alone, for completion and ``help``, also those that are not loaded yet."""
    return list(__all__)
