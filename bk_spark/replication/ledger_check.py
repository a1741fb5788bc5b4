"""Checks ledgers by reading their replicas: runs the state machine ``CheckReplicas`` against the cluster.

A result counts only if the ledger's metadata did not change during the check. Otherwise a bookie that was replaced in the
meantime may rightly hold nothing any more, so the check is repeated.

Ref: docs/rules.md, situations 81 and 82.
"""

from __future__ import annotations

from functools import partial

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_state_machine
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.protocol.check_replicas import CheckReplicas, CheckTask, ReplicasChecked, checkable
from bk_spark.client.protocol.last_add_confirmed import ReadLastAddConfirmed
from bk_spark.client.protocol.limits import CheckLimits
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookieUnavailableError, MetadataConflictError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.replication.ledger_rereplication import Perform
from bk_spark.replication.settings import AutoRecoveryConfig

_ATTEMPTS = 5
"""How often a check is repeated because the metadata changed in the meantime; no writer changes ensembles that fast."""


class LedgerCheck:
    """Checks ledgers of one cluster, all together within ``ledger_check_bytes_per_s``. Changes nothing."""

    def __init__(self, context: ClientContext, config: AutoRecoveryConfig, perform: Perform | None = None) -> None:
        """``perform``: what runs a ledger's state machines; by default the client's connections do."""
        self._context = context
        self._perform = perform or partial(run_state_machine, context)
        self._ledgers = LedgerStore(context.store, context.znodes)
        self._pace = ByteRate(config.ledger_check_bytes_per_s)
        self._limits = CheckLimits.of(context.config)

    async def check(
        self, ledger_id: int, *, bookies: frozenset[str] | None = None, lost: frozenset[str] = frozenset()
    ) -> ReplicasChecked:
        """Read a ledger's replicas, on the client's event loop. Of an open ledger, only what can no longer grow is checked.

        ``bookies`` and ``lost`` are those of CheckTask. Raises NoSuchLedgerError, MetadataConflictError if the
        ledger's metadata keeps changing, and the metadata store's errors.
        """
        for _ in range(_ATTEMPTS):
            metadata, version = await self._context.blocking(lambda: self._ledgers.versioned(ledger_id))
            confirmed = NO_ENTRY if metadata.is_closed else await self._last_add_confirmed(metadata)
            task = CheckTask(metadata, checkable(metadata, confirmed), bookies=bookies, lost=lost)
            checked = await self._perform(metadata, CheckReplicas(task, self._limits, self._pace))
            assert isinstance(checked, ReplicasChecked)
            if confirmed < metadata.last_fragment.first_entry_id - 1 and not metadata.is_closed:
                self._note_unchecked(checked, metadata, bookies)
            if not checked.lacking or await self._current_version(ledger_id) == version:
                return checked
        raise MetadataConflictError(f"the metadata of ledger {ledger_id}", f"{_ATTEMPTS} checks of it were overtaken")

    def _note_unchecked(self, checked: ReplicasChecked, metadata: LedgerMetadata, bookies: frozenset[str] | None) -> None:
        """Fragments with an end were left out: nobody may conclude that their bookies have everything."""
        for bookie_id in metadata.bookies if bookies is None else bookies:
            checked.unknown.setdefault(bookie_id, "how far the ledger is confirmed is not known")

    async def _last_add_confirmed(self, metadata: LedgerMetadata) -> int:
        """The LAC of an open ledger, as the bookies of its last fragment know it; NO_ENTRY while too few answer."""
        timeout_ms = self._limits.timeout_ms
        try:
            return int(await self._perform(metadata, ReadLastAddConfirmed(metadata, timeout_ms=timeout_ms)))
        except BookieUnavailableError:
            return NO_ENTRY

    async def _current_version(self, ledger_id: int) -> int:
        """Raises NoSuchLedgerError if the ledger was deleted."""

        def read() -> int:
            self._context.store.sync(self._context.znodes.ledger(ledger_id))
            return self._ledgers.versioned(ledger_id)[1]

        return await self._context.blocking(read)
