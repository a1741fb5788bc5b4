"""bk_spark: a replicated log store for Spark users.

What users import stands here; each name is loaded when it is first used, because every Spark worker imports this package
and few need all of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bk_spark.errors import (
    AddQuorumTimeoutError,
    AppendWindowFullError,
    BookieUnavailableError,
    BookKeeperError,
    ConfigError,
    CorruptionError,
    DigestMismatchError,
    DuplicateEntryError,
    EnsembleChangesExceededError,
    EntryTooLargeError,
    FormatVersionError,
    InternalError,
    JobEndedError,
    LedgerClosedError,
    LedgerExistsError,
    LedgerFencedError,
    LedgerNotClosedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NoSuchLogError,
    NotEnoughBookiesError,
    ProcessFailedError,
    SchemaMismatchError,
    StorageError,
    UnauthorizedAccessError,
)
from bk_spark.version import VERSION as __version__

if TYPE_CHECKING:
    from bk_spark.client.bookkeeper import BookKeeper
    from bk_spark.config import BookieConfig, ClientConfig, DigestType
    from bk_spark.datasource.source import register
    from bk_spark.local_cluster import LocalCluster

_LAZY = {
    "BookKeeper": "bk_spark.client.bookkeeper",
    "BookieConfig": "bk_spark.config",
    "ClientConfig": "bk_spark.config",
    "DigestType": "bk_spark.config",
    "LocalCluster": "bk_spark.local_cluster",
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
    "ConfigError",
    "CorruptionError",
    "DigestMismatchError",
    "DigestType",
    "DuplicateEntryError",
    "EnsembleChangesExceededError",
    "EntryTooLargeError",
    "FormatVersionError",
    "InternalError",
    "JobEndedError",
    "LedgerClosedError",
    "LedgerExistsError",
    "LedgerFencedError",
    "LedgerNotClosedError",
    "LocalCluster",
    "MetadataConflictError",
    "MetadataUnavailableError",
    "NoSuchEntryError",
    "NoSuchLedgerError",
    "NoSuchLogError",
    "NotEnoughBookiesError",
    "ProcessFailedError",
    "SchemaMismatchError",
    "StorageError",
    "UnauthorizedAccessError",
    "__version__",
    "register",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'bk_spark' has no attribute '{name}'")
