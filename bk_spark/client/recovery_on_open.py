"""Opening a ledger with recovery: run recoveries until the ledger is closed, by this client or by another one."""

from __future__ import annotations

from bk_spark.client.ledger_store import LedgerStore
from bk_spark.client.read_queue import run_to_result
from bk_spark.client.recover_ledger import RecoverLedger, RecoverLimits
from bk_spark.client.transport import Transport
from bk_spark.client.write_handle import add_limits
from bk_spark.config import ClientConfig
from bk_spark.digest import master_key
from bk_spark.errors import MetadataConflictError
from bk_spark.ledger_metadata import LedgerMetadata

MAX_RECOVERIES = 8
"""Recoveries of one open. Each lost one means that another recoverer wrote the ledger's metadata, and so got ahead."""

WINDOW_ENTRIES = 4096
"""Ids that a recovery asks for at a time: a look-up each on the bookies where they are absent, for ledgers of tiny entries."""


def recovered(transport: Transport, ledgers: LedgerStore, metadata: LedgerMetadata, version: int) -> LedgerMetadata:
    """The ledger CLOSED; ``version`` is the metadata's. The caller has checked the password: from here on it is fenced.

    A recovery that finds another one's ensemble in the metadata knows nothing of that one's write-backs: it starts anew
    from what the metadata says now (docs/rules.md, protocol rule 13). Raises what RecoverLedger does.
    """
    key = master_key(metadata.password)
    for remaining in reversed(range(MAX_RECOVERIES)):
        if metadata.is_closed:
            break
        operation = RecoverLedger(metadata, version, recover_limits(transport.config))
        try:
            metadata, version = run_to_result(transport, metadata, key, operation)
        except MetadataConflictError:
            if remaining == 0:
                raise
            metadata, version = ledgers.versioned(metadata.ledger_id)
    return metadata


def recover_limits(config: ClientConfig) -> RecoverLimits:
    """A recovery's patience, as the state machine takes it."""
    return RecoverLimits(
        request_timeout_ms=int(config.read_timeout_s * 1000),
        patience_ms=int(config.recovery_timeout_s * 1000),
        window_entries=WINDOW_ENTRIES,
        request_bytes=config.read_batch_bytes,
        adds=add_limits(config),
    )
