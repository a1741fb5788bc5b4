"""Opening a ledger with recovery: run recoveries until this client or another one has closed the ledger."""

from __future__ import annotations

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_writing
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.protocol.limits import RecoverLimits
from bk_spark.client.protocol.recover_ledger import RecoverLedger
from bk_spark.errors import MetadataConflictError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

MAX_RECOVERIES = 8
"""Recoveries of one open. Each lost one means that another recoverer wrote the ledger's metadata, and so made progress. The
last one's MetadataConflictError fails the open, which may be tried again."""


def recovered(
    context: ClientContext, ledgers: LedgerStore, metadata: LedgerMetadata, version: int, of_application: str = ""
) -> LedgerMetadata:
    """As ``recover``, for an application's thread. Raises ConfigError on the event loop's own thread."""
    if metadata.is_closed:
        return metadata
    context.check_may_wait()
    return context.run(recover(context, ledgers, metadata, version, of_application))


async def recover(
    context: ClientContext, ledgers: LedgerStore, metadata: LedgerMetadata, version: int, of_application: str = ""
) -> LedgerMetadata:
    """Recover the ledger; returns its CLOSED metadata. ``version`` is the version of ``metadata``. On the client's event loop.

    Raises ConfigError for one that is not closed and belongs to another application than ``of_application``.

    The caller has checked the password, because this fences the ledger. A recovery that finds another one's ensemble in the
    metadata knows nothing of that one's write-backs: it starts anew from the current metadata (docs/rules.md, protocol rule
    13). Raises the errors of RecoverLedger.
    """
    ledger_id = metadata.ledger_id
    for remaining in reversed(range(MAX_RECOVERIES)):
        if metadata.is_closed:
            break
        metadata.check_may_change(of_application)
        machine = RecoverLedger(metadata, version, RecoverLimits.of(context.config))
        try:
            metadata, version = await run_writing(context, metadata, machine)
        except MetadataConflictError:
            if remaining == 0:
                raise
            metadata, version = await context.blocking(lambda: ledgers.versioned(ledger_id))
    return metadata
