"""Runs the state machines of replication in the simulation: they decide, and the bytes that they want copied take time.

A copy has no entries here, so the shipped machine asks for bookies, and then names them. Between the two this takes the bytes
from resources: the disk and the network of the bookie that is read, the worker's network, core and pace, the network, core
and disk of each new bookie. Each piece of a ledger is at all of these at once, and done when the slowest is.
"""

from __future__ import annotations

from typing import Any

from benchmarks.simulated_cluster.costs import Costs
from benchmarks.simulated_cluster.resources import Machine
from benchmarks.simulated_cluster.simulated_context import SimulatedContext
from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.check_replicas import CheckReplicas
from bk_spark.config import MIB
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookieUnavailableError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import ANY_VERSION, BadVersionError, Check, SetValue, TransactionFailedError
from bk_spark.replication.settings import AutoRecoveryConfig


class Copier:
    """Of one worker, on ``machine``. ``machines``: of all bookies that run, by id."""

    def __init__(
        self,
        context: SimulatedContext,
        costs: Costs,
        config: AutoRecoveryConfig,
        machine: Machine,
        machines: dict[str, Machine],
    ) -> None:
        self.copied_ledgers = 0
        self.copied_bytes = 0
        self.checked_bytes = 0
        self._context = context
        self._costs = costs
        self._machine = machine
        self._machines = machines
        self._pace = ByteRate(config.replicate_bytes_per_s)
        self._check_pace = ByteRate(config.ledger_check_bytes_per_s)

    async def perform(self, metadata: LedgerMetadata, machine: sm.StateMachine) -> Any:
        """As ``run_state_machine``."""
        if isinstance(machine, CheckReplicas):
            await self._read_replica(metadata)
        machine.handle(sm.Start(), self._context.loop.now_ms)
        while True:
            for command in machine.take_commands():
                if isinstance(command, sm.Finish):
                    if command.error is not None:
                        raise command.error
                    return command.result
                machine.handle(await self._answer(metadata, command), self._context.loop.now_ms)

    async def _answer(self, metadata: LedgerMetadata, command: sm.Command) -> sm.Event:
        if isinstance(command, sm.ChooseReplacements):
            return await self._chosen_and_copied(metadata, command)
        if isinstance(command, sm.WriteMetadata):
            return await self._written(command)
        raise AssertionError(f"a copy without entries does not ask for {command}")

    async def _chosen_and_copied(self, metadata: LedgerMetadata, wanted: sm.ChooseReplacements) -> sm.ReplacementsChosen:
        registered = await self._context.registered()
        costs, now_ms = self._costs, self._context.loop.now_ms
        await self._context.compute(costs.choice_cpu_s + len(registered) * costs.choice_bookie_cpu_s)
        chosen = self._context.ensembles.replacements(registered, wanted, metadata.write_quorum, now_ms)
        targets = [bookie_id for _, bookie_id in chosen.bookies]
        if targets:
            sources = [one for slot, one in enumerate(wanted.ensemble) if slot not in wanted.slots]
            await self._copy(metadata, sources, targets)
            self.copied_ledgers += 1
        return chosen

    async def _copy(self, metadata: LedgerMetadata, sources: list[str], targets: list[str]) -> None:
        context, costs = self._context, self._costs
        await context.compute(costs.copy_cpu_s)
        left, bookie_cpu_s = metadata.length, costs.bookie_copy_cpu_s
        while left > 0:
            piece = min(left, costs.piece_bytes)
            left -= piece
            await self._paced(self._pace, piece * len(targets))
            source = self._running(sources)
            machines = [self._machines.get(one) for one in targets]
            if source is None or None in machines:
                raise BookieUnavailableError(metadata.ledger_id, 0, (*sources, *targets))
            targeted = [one for one in machines if one is not None]
            await context.until(self._moved(piece, source, targeted, bookie_cpu_s + piece / MIB * costs.bookie_mib_cpu_s))
            bookie_cpu_s = 0.0
        self.copied_bytes += metadata.length * len(targets)
        await context.until(context.loop.time() + costs.force_s)

    def _moved(self, nbytes: int, source: Machine, targets: list[Machine], bookie_cpu_s: float) -> float:
        """Take a piece's share of everything, ``bookie_cpu_s`` of each bookie. Returns when the last one is done with it."""
        now_s, mib, here = self._context.loop.time(), nbytes / MIB, self._machine
        ends = [
            source.disk.take(nbytes, now_s),
            source.sent.take(nbytes, now_s),
            source.core.take(bookie_cpu_s, now_s),
            here.received.take(nbytes, now_s),
            here.sent.take(nbytes * len(targets), now_s),
            self._context.core.take(mib * self._costs.copied_mib_cpu_s, now_s),
        ]
        for target in targets:
            ends.append(target.received.take(nbytes, now_s))
            ends.append(target.core.take(bookie_cpu_s, now_s))
            ends.append(target.disk.take(nbytes, now_s))
        return max(ends)

    async def _paced(self, pace: ByteRate, nbytes: int) -> None:
        while (due_ms := pace.due_ms(self._context.loop.now_ms)) > self._context.loop.now_ms:
            await self._context.until(due_ms / 1000)
        pace.take(nbytes, self._context.loop.now_ms)

    def _running(self, bookies: list[str]) -> Machine | None:
        running = [self._machines[one] for one in bookies if one in self._machines]
        return running[self._context.choose(len(running))] if running else None

    async def _read_replica(self, metadata: LedgerMetadata) -> None:
        """A check before a copy reads all that a bookie holds of the ledger, at the pace of checks."""
        await self._paced(self._check_pace, metadata.length)
        source = self._running(list(metadata.last_fragment.ensemble))
        if source is not None:
            now_s = self._context.loop.time()
            read_s = [source.disk.take(metadata.length, now_s), self._machine.received.take(metadata.length, now_s)]
            core_s = self._context.core.take(metadata.length / MIB * self._costs.copied_mib_cpu_s / 2, now_s)
            await self._context.until(max(*read_s, core_s))
        self.checked_bytes += metadata.length

    async def _written(self, command: sm.WriteMetadata) -> sm.Event:
        store, path = self._context.store, self._context.znodes.ledger(command.metadata.ledger_id)

        def write() -> int:
            store.get_many([path])  # as the runner does, to know the ledger again
            change = SetValue(path, command.metadata.encode(), command.expected_version)
            store.transaction([Check(command.guard, ANY_VERSION), change])
            return command.expected_version + 1

        try:
            return sm.MetadataWritten(await self._context.blocking(write))
        except TransactionFailedError as failure:
            if not isinstance(failure.reason, BadVersionError):
                raise
            found = await self._context.blocking(lambda: store.get(path))
            return sm.MetadataRead(LedgerMetadata.decode(command.metadata.ledger_id, found.value), found.version)
