"""The elected auditor: the shipped decisions about lost bookies and marks, and a loop around them as its thread's."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks.simulated_cluster.costs import Costs
from benchmarks.simulated_cluster.ledger_table import LedgerTable
from benchmarks.simulated_cluster.simulated_context import SimulatedContext
from bk_spark.metadata.ledger_ids import PAGE
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.auditor import POLL_S
from bk_spark.replication.auditor_znodes import observe_bookies
from bk_spark.replication.ledger_audit import Audited, LedgerAudit
from bk_spark.replication.lost_bookies import LostBookies
from bk_spark.replication.settings import AutoRecoveryConfig


class SimulatedAuditor:
    """``audits`` has how long each took."""

    def __init__(self, context: SimulatedContext, costs: Costs, config: AutoRecoveryConfig, table: LedgerTable) -> None:
        self.audits: list[float] = []
        self.marked = 0
        self.first_mark_s: float | None = None
        self.last_mark_s = 0.0
        self.wake = asyncio.Event()
        self.context = context
        self._costs = costs
        self._table = table
        self._marks = UnderReplication(context.store, context.znodes)
        self._audit = LedgerAudit(context.as_shipped, self._marks)
        self._bookies = LostBookies(int(config.lost_bookie_grace_s * 1000), table.bookies)

    @property
    def lost(self) -> frozenset[str]:
        return self._bookies.lost

    async def run(self) -> None:
        while True:
            self.wake.clear()
            await self._observe()
            if self._bookies.is_audit_due:
                await self._audit_all()
            due_ms = self._bookies.deadline_ms()
            pause_s = POLL_S if due_ms is None else min(POLL_S, max(0.0, due_ms / 1000 - self.context.loop.time()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), pause_s)

    async def _observe(self) -> None:
        context = self.context
        seen = await context.blocking(lambda: observe_bookies(context.store, context.znodes, self._marks.count()))
        self._bookies.observe(seen, context.loop.now_ms)

    async def _audit_all(self) -> None:
        lost, began_s, audited = set(self._bookies.lost), self.context.loop.time(), Audited()
        naming = self._table.naming(frozenset(lost))
        for first in range(0, len(naming), PAGE):  # those of the last audit
            await self._mark(naming[first : first + PAGE], lost, audited)
        self.last_mark_s = self.context.loop.time()
        for first in range(0, len(self._table), PAGE):
            await self._read_page(min(PAGE, len(self._table) - first))
            await self._observe()
        self._bookies.note_audit(lost, self._named())
        self.audits.append(self.context.loop.time() - began_s)
        self.marked += audited.marked

    async def _mark(self, naming: npt.NDArray[np.int64], lost: set[str], audited: Audited) -> None:
        """Read these ledgers, and mark those that still name a lost bookie."""
        await self._read_page(len(naming))
        await self._observe()
        lost &= self._bookies.lost
        page = [self._table.metadata(int(ledger_id)) for ledger_id in naming]
        if self.first_mark_s is None:
            self.first_mark_s = self.context.loop.time()
        await self.context.blocking(partial(self._audit.mark_page, page, frozenset(lost), audited))

    async def _read_page(self, ledgers: int) -> None:
        """Listing and values of a page, decoded: a cost without content."""
        costs, context = self._costs, self.context
        server_s = costs.zookeeper_read_s + ledgers * (costs.zookeeper_part_s + costs.zookeeper_name_s)
        cpu_s = costs.request_cpu_s + ledgers * (costs.value_cpu_s + costs.name_cpu_s + costs.decode_cpu_s)
        await context.blocking(lambda: context.store.charge("get_many", server_s, cpu_s))

    def _named(self) -> set[str]:
        held = self._table.held_bytes()
        return {name for name, nbytes in zip(self._table.bookies, held, strict=True) if nbytes}
