"""Clients of which every step is told: a writer, a recoverer, a reader. Each is one process with one state machine.

The state machines are the shipped ones; what their applications were told goes to the invariants.
"""

from __future__ import annotations

import pyarrow as pa

from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.limits import AddLimits, ReadLimits, RecoverLimits
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.recover_ledger import RecoverLedger
from bk_spark.client.protocol.state_machine import (
    Append,
    CloseRequested,
    Command,
    Confirm,
    Deliver,
    Finish,
    Reject,
    Start,
    StateMachine,
)
from bk_spark.config import ClientConfig
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import BookKeeperError
from tests.simulation.world.client_process import ClientProcess
from tests.simulation.world.runner import OperationRunner
from tests.simulation.world.world import World

TIMEOUT_MS = 1_000
ADDS = AddLimits(TIMEOUT_MS, 60 * TIMEOUT_MS, False, 100, TIMEOUT_MS, 1_000_000_000)
"""Explicit LACs stay out of the way."""
RECOVERY = RecoverLimits(TIMEOUT_MS, 10 * TIMEOUT_MS, 100, 100_000, ADDS)
READS = ReadLimits(TIMEOUT_MS, TIMEOUT_MS, 100_000, 100_000)


class Client:
    """``error`` is what its operation failed with, ``finish`` how it ended, None as long as it runs."""

    def __init__(self, name: str, world: World) -> None:
        self.world = world
        self.process = ClientProcess(name, world, ClientConfig())
        self.finish: Finish | None = None

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def error(self) -> BookKeeperError | None:
        return self.finish.error if self.finish is not None else None

    def _run(self, operation: StateMachine) -> OperationRunner:
        history = self.world.invariants.history
        self.process.seen_version = len(history.metadata) - 1
        return OperationRunner(self.process, history.current, self.world.master_key, operation, self._take)

    def _take(self, command: Command) -> None:
        if isinstance(command, Finish):
            self.finish = command
            self.world.note(self.name, "finishes:", "done" if command.error is None else repr(command.error))


class Writer(Client):
    """Begins with the metadata as it is now."""

    def __init__(self, name: str, world: World, limits: AddLimits = ADDS) -> None:
        super().__init__(name, world)
        history = world.invariants.history
        self.machine = AddEntries(history.current, len(history.metadata) - 1, limits)
        self.rejected: list[BookKeeperError] = []
        self._runner = self._run(self.machine)

    @property
    def error(self) -> BookKeeperError | None:
        return self.machine.error if self.finish is None else self.finish.error

    def append(self, count: int) -> None:
        """One append of so many entries."""
        begin = len(self.world.invariants.history.payloads)
        payloads = [b"x" * (1 + entry_id % 3) + b"%d" % entry_id for entry_id in range(begin, begin + count)]
        if self.machine.error is None:
            self.world.invariants.appended(payloads)
        self._runner.post(Append(pa.array(payloads, pa.binary()), count))

    def close(self) -> None:
        self._runner.post(CloseRequested())

    def _take(self, command: Command) -> None:
        super()._take(command)
        if isinstance(command, Confirm):
            assert isinstance(command.token, int)
            self.world.note(self.name, f"is acked from entry {command.first_entry_id} on, {command.token} entries")
            self.world.invariants.confirmed(command.first_entry_id, command.token)
        elif isinstance(command, Reject):
            self.world.note(self.name, "is refused:", repr(command.error))
            self.rejected.append(command.error)


class Recoverer(Client):
    """Begins with the metadata as it is now."""

    def __init__(self, name: str, world: World, limits: RecoverLimits = RECOVERY) -> None:
        super().__init__(name, world)
        history = world.invariants.history
        self.machine = RecoverLedger(history.current, len(history.metadata) - 1, limits)
        self._run(self.machine).post(Start())


class Reader(Client):
    """Reads what the ledger has, to its end."""

    def __init__(self, name: str, world: World, limits: ReadLimits = READS) -> None:
        super().__init__(name, world)
        self.read_up_to = NO_ENTRY
        metadata = world.invariants.history.current
        assert metadata.last_entry_id is not None
        self._run(ReadEntries(metadata, 0, metadata.last_entry_id, limits)).post(Start())

    def _take(self, command: Command) -> None:
        super()._take(command)
        if isinstance(command, Deliver):
            self.read_up_to = int(command.batch.entry_ids[-1])
            self.world.invariants.delivered(self.name, command.batch)
