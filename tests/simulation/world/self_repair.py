"""The end of a bookie's limbo: the shipped ``LedgerRepair``, with peers that are reached over the simulated network.

What the repair may need of others is fetched first, by the shipped state machines: a recovery of the ledger, and reads of all
that belongs on the bookie. Then the repair decides and copies in one go. Between the look at the metadata and that moment
anything may happen, as in the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.repair.ledger_repair import LedgerRepair, missing
from bk_spark.client.protocol.copy_batches import copies
from bk_spark.client.protocol.limits import ReadLimits
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.recover_ledger import RecoverLedger
from bk_spark.client.protocol.state_machine import Command, Consumed, Deliver, Finish, Start
from bk_spark.entries.batch import EncodedBatch, EntryBatch
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import DENSE, IdPattern
from tests.simulation.engines.schedule import Schedule
from tests.simulation.world.bookie_actor import BookieActor
from tests.simulation.world.client_actors import Client, recover_limits
from tests.simulation.world.world import World

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 200, 60_000


class SelfRepair(Client):
    """Of one bookie. It tries until limbo is over, or the bookie ends; the next limbo begins another one."""

    def __init__(self, bookie: BookieActor, world: World, schedule: Schedule) -> None:
        super().__init__(f"repair-{bookie.name}", world, schedule)
        self._bookie = bookie
        self._pause_ms = FIRST_PAUSE_MS
        self._limbo = 0
        """Which limbo this is about."""

    def limbo_began(self) -> None:
        self._limbo, self._pause_ms = self._limbo + 1, FIRST_PAUSE_MS
        number = self._limbo
        self.later(self.world.choices.pick((20, 200, 2_000), "repair begins"), lambda: self._try(number))

    def _try(self, number: int) -> None:
        if number == self._limbo and self._bookie.is_in_limbo:
            self.seen_version = len(self.world.invariants.history.metadata) - 1  # after a sync
            self._with_metadata(lambda metadata, version: self._recover(number, metadata, version))

    def _again(self, number: int, problem: object) -> None:
        self.world.note(self.name, f"tries again: {problem}")
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        self.later(self._pause_ms, lambda: self._try(number))

    def _recover(self, number: int, metadata: LedgerMetadata, version: int) -> None:
        if metadata.is_closed or self._bookie.name not in metadata.bookies:
            self._fetch(number, metadata, [], self._shares(metadata))
            return

        def ended(finish: Finish) -> None:
            if isinstance(finish.result, tuple):
                closed: LedgerMetadata = finish.result[0]
                self._fetch(number, closed, [], self._shares(closed))
            else:
                self._again(number, finish.error)

        self._start(metadata, RecoverLedger(metadata, version, recover_limits(self._schedule)), ended)

    def _shares(self, metadata: LedgerMetadata) -> list[tuple[IdPattern, int, int]]:
        if metadata.last_entry_id is None:
            return []
        unused = LedgerRepair(self._bookie.name, None, None, None)  # type: ignore[arg-type]
        return unused.shares(metadata, 0, metadata.last_entry_id)

    def _fetch(
        self, number: int, metadata: LedgerMetadata, found: list[EntryBatch], shares: list[tuple[IdPattern, int, int]]
    ) -> None:
        """Read one share after the other, then settle."""
        if not shares:
            self._settle(number, metadata, found)
            return
        _, first, last = shares.pop(0)
        timeout_ms = self._schedule.request_timeout_ms
        limits = ReadLimits(timeout_ms=timeout_ms, speculative_ms=timeout_ms // 2, request_bytes=600, ahead_bytes=2_000)

        def on_command(command: Command) -> None:
            if isinstance(command, Deliver):
                found.append(command.batch)
                nbytes = command.batch.nbytes
                self.later(0, lambda: runner.post(Consumed(nbytes)))
            elif isinstance(command, Finish) and command.error is None:
                self._fetch(number, metadata, found, shares)
            elif isinstance(command, Finish):
                self._again(number, command.error)

        machine = ReadEntries(metadata, first, last, limits, avoid=frozenset({self._bookie.name}))
        runner = self._run(metadata, machine, on_command)
        runner.post(Start())

    def _settle(self, number: int, metadata: LedgerMetadata, found: list[EntryBatch]) -> None:
        if number != self._limbo or not self._bookie.is_in_limbo:
            return
        name, storage = self._bookie.name, self._bookie.bookie.storage
        is_settled, held = False, None
        try:
            with self._bookie.stopping() as process:
                LedgerRepair(name, storage, _Fetched(metadata, found), self._bookie.stage_now).settle(metadata)
                process.bookie.admission.end_limbo()
                facts = process.bookie.storage.facts(self.world.ledger_id)
                if facts is None or not facts.is_of_another_creator(metadata.master_key):
                    held = entries_of(process.bookie, self.world)
                is_settled = True
        except BookKeeperError as problem:
            self._again(number, problem)
        if not is_settled:
            return
        self.world.count("limbos that ended")
        self.world.note(name, "is out of limbo")
        self.world.invariants.repaired(name, held)
        self.world.observed.leaves_limbo(name)


def entries_of(bookie: Bookie, world: World) -> set[int]:
    """What a bookie has of the ledger."""
    every = set(range(len(world.invariants.history.payloads)))
    gone = missing(bookie.storage, world.ledger_id, DENSE, 0, max(every, default=-1))
    return every.difference(*(range(first, last + 1) for first, last in gone))


class _Fetched:
    """The peers of one repair, as they answered before it."""

    def __init__(self, metadata: LedgerMetadata, found: list[EntryBatch]) -> None:
        self._metadata = metadata
        self._found = found

    def read(self, metadata: LedgerMetadata, first: int, last: int, without: str) -> Iterator[EncodedBatch]:
        pattern = metadata.slot_pattern(metadata.fragment_of(first).ensemble.index(without))
        parts = []
        for batch in self._found:
            rows = [row for row, entry_id in enumerate(batch.entry_ids.tolist()) if first <= entry_id <= last]
            if rows:
                parts.append(batch.slice(rows[0], len(rows)))
        return copies(parts, metadata, pattern)

    def write_key(self, metadata: LedgerMetadata) -> bytes:
        return metadata.master_key

    def recover(self, ledger_id: int) -> LedgerMetadata:
        raise AssertionError("it was recovered before")

    def ledger_ids(self) -> Iterator[int]:
        return iter([self._metadata.ledger_id])

    def metadata(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata | BookKeeperError | None]:
        return [self._metadata]
