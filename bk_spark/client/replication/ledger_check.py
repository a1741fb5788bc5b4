"""The check of ledgers that reads what it claims to check: ``CheckReplicas``, run against the cluster.

What is found is judged along metadata that is still true afterwards: where a ledger's ensembles changed while its replicas were
read, a bookie that was relieved meanwhile may rightly hold nothing any more, and the check is made anew.

Ref: docs/rules.md, situations 81 and 82.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_state_machine
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.protocol.check_replicas import CheckReplicas, CheckTask, ReplicasChecked, checkable
from bk_spark.client.protocol.last_add_confirmed import ReadLastAddConfirmed
from bk_spark.client.protocol.limits import CheckLimits
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookieUnavailableError, MetadataConflictError, NoSuchLedgerError, UnauthorizedAccessError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

_ATTEMPTS = 5
"""How often a ledger is checked anew because its metadata changed meanwhile; a writer does not change ensembles that fast."""


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """What is known of one ledger's replicas."""

    ledger_id: int
    lacking: Mapping[str, int]
    """Bookies that lack entries, and how many at least: those that a mark should name."""
    unknown: Mapping[str, str]
    """Bookies of which not everything could be learnt, and why."""
    entries: int
    """That were read and verified, each counted once for each replica."""
    nbytes: int
    without_replica: int
    """Entries that no bookie has."""
    below_ack_quorum: int
    """Entries that some bookies have, fewer than the ack quorum."""
    below_write_quorum: int
    """Entries that at least the ack quorum of bookies have, fewer than the write quorum."""


@dataclass(frozen=True, slots=True)
class CheckScope:
    """What of a ledger is checked."""

    is_full: bool = True
    """False: of each bookie and fragment the first and the last entry alone."""
    bookies: frozenset[str] | None = None
    """Whose replicas are read; None: those of all."""
    lost: frozenset[str] = field(default=frozenset())
    """Bookies that count as lacking everything, without being asked."""


class LedgerCheck:
    """Checks ledgers of one cluster, all of them together within ``ledger_check_bytes_per_s``. Changes nothing."""

    def __init__(self, context: ClientContext, config: AutoRecoveryConfig) -> None:
        self._context = context
        self._ledgers = LedgerStore(context.store, context.znodes)
        self._pace = ByteRate(config.ledger_check_bytes_per_s)
        self._limits = CheckLimits.of(context.config)

    def check(self, ledger_id: int, scope: CheckScope = CheckScope()) -> LedgerReport:
        """Read a ledger's replicas; waits, and not on the event loop. See ``checked``."""
        self._context.check_open()
        self._context.check_may_wait()
        return self._context.submit(self.checked(ledger_id, scope)).result()

    async def checked(self, ledger_id: int, scope: CheckScope = CheckScope()) -> LedgerReport:
        """``check``, on the event loop. Of a ledger that is not closed only what cannot grow any more is checked.

        Raises NoSuchLedgerError, what the metadata store raises, and MetadataConflictError if the ledger's metadata changes all
        the time.
        """
        for _ in range(_ATTEMPTS):
            metadata, version = await self._context.blocking(lambda: self._ledgers.versioned(ledger_id))
            checked = await self._checked(metadata, scope)
            if not checked.lacking or await self._is_still(ledger_id, version):
                return _report(ledger_id, checked)
        raise MetadataConflictError(f"the metadata of ledger {ledger_id}", f"{_ATTEMPTS} checks of it were overtaken")

    async def lacking(self, ledger_id: int, bookies: Collection[str]) -> Mapping[str, int]:
        """Those of ``bookies`` that lack entries of the ledger, and how many at least; every entry of them is read."""
        return (await self.checked(ledger_id, CheckScope(bookies=frozenset(bookies)))).lacking

    async def _checked(self, metadata: LedgerMetadata, scope: CheckScope) -> ReplicasChecked:
        ranges = checkable(metadata, NO_ENTRY if metadata.is_closed else await self._confirmed(metadata))
        task = CheckTask(metadata, ranges, scope.is_full, scope.bookies, scope.lost)
        result = await run_state_machine(self._context, metadata, CheckReplicas(task, self._limits, self._pace))
        assert isinstance(result, ReplicasChecked)
        return result

    async def _confirmed(self, metadata: LedgerMetadata) -> int:
        """How far the bookies of the last fragment know an open ledger to be confirmed; nothing while too few answer."""
        timeout_ms = self._limits.timeout_ms
        try:
            return int(await run_state_machine(self._context, metadata, ReadLastAddConfirmed(metadata, timeout_ms=timeout_ms)))
        except (BookieUnavailableError, UnauthorizedAccessError):
            return NO_ENTRY

    async def _is_still(self, ledger_id: int, version: int) -> bool:
        """Raises NoSuchLedgerError where it was deleted: then nothing is lacking."""
        path = self._context.znodes.ledger(ledger_id)
        await self._context.blocking(lambda: self._context.store.sync(path))
        found = await self._context.blocking(lambda: self._context.store.get_many([path])[0])
        if found is None:
            raise NoSuchLedgerError(ledger_id)
        return found.version == version


def _report(ledger_id: int, checked: ReplicasChecked) -> LedgerReport:
    return LedgerReport(
        ledger_id,
        dict(Counter(checked.lacking)),
        dict(checked.unknown),
        checked.entries,
        checked.nbytes,
        checked.without_replica,
        checked.below_ack_quorum,
        checked.below_write_quorum,
    )
