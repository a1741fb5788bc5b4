"""Opening a ledger with recovery: run recoveries until the ledger is closed, by this client or by another one."""

from __future__ import annotations

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_state_machine_and_wait
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.protocol.limits import RecoverLimits
from bk_spark.client.protocol.recover_ledger import RecoverLedger
from bk_spark.errors import MetadataConflictError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

MAX_RECOVERIES = 8
"""Recoveries of one open. Each lost one means that another recoverer wrote the ledger's metadata, and so got ahead."""


def recovered(context: ClientContext, ledgers: LedgerStore, metadata: LedgerMetadata, version: int) -> LedgerMetadata:
    """The ledger CLOSED; ``version`` is the metadata's. The caller has checked the password: from here on it is fenced.

    A recovery that finds another one's ensemble in the metadata knows nothing of that one's write-backs: it starts anew
    from what the metadata says now (docs/rules.md, protocol rule 13). Raises what RecoverLedger does.
    """
    for remaining in reversed(range(MAX_RECOVERIES)):
        if metadata.is_closed:
            break
        machine = RecoverLedger(metadata, version, RecoverLimits.of(context.config))
        try:
            metadata, version = run_state_machine_and_wait(context, metadata, machine)
        except MetadataConflictError:
            if remaining == 0:
                raise
            metadata, version = ledgers.versioned(metadata.ledger_id)
    return metadata
