"""The applications that open a ledger: recoverers and readers. Each is a client process with what it wants to do."""

from __future__ import annotations

from collections.abc import Callable

from bk_spark.client.protocol.last_add_confirmed import AwaitLastAddConfirmed, ReadLastAddConfirmed
from bk_spark.client.protocol.limits import ReadLimits, RecoverLimits
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.recover_ledger import RecoverLedger
from bk_spark.client.protocol.state_machine import (
    Command,
    Consumed,
    Deliver,
    Finish,
    MetadataGone,
    MetadataRead,
    Start,
    StateMachine,
)
from bk_spark.config import ClientConfig
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.digest import master_key
from bk_spark.errors import BookKeeperError, CorruptionError, NoSuchEntryError
from bk_spark.metadata.ledger_metadata import LedgerMetadata, LedgerState
from tests.simulation.engines.schedule import ReaderPlan, RecovererPlan, Schedule
from tests.simulation.world.client_process import ClientProcess
from tests.simulation.world.runner import OperationRunner, SimulatedDriver, read_metadata
from tests.simulation.world.world import World

METADATA_RETRY_MS = 200
TAIL_MS = 60_000
"""How long a tailing reader waits: several of a writer's longest pauses."""

OnFinish = Callable[[Finish], None]


class Client(ClientProcess):
    """What all of them do: look at the metadata, run one operation after the other."""

    def __init__(self, name: str, world: World, schedule: Schedule) -> None:
        super().__init__(name, world, ClientConfig())
        self.is_done = False
        """It wants nothing any more."""
        self._schedule = schedule
        self._driver = world.driver or SimulatedDriver()
        self._key = world.master_key

    def _run(self, metadata: LedgerMetadata, machine: StateMachine, on_command: Callable[[Command], None]) -> OperationRunner:
        return self._driver.operation(self, metadata, self._key, machine, on_command)

    def _start(self, metadata: LedgerMetadata, machine: StateMachine, on_finish: OnFinish) -> None:
        """Run an operation to its end; what it delivers was asked for as confirmed."""

        def on_command(command: Command) -> None:
            if isinstance(command, Deliver):
                self.world.invariants.delivered(self.name, command.batch)
                nbytes = command.batch.nbytes
                self.later(0, lambda: runner.post(Consumed(nbytes)))
            elif isinstance(command, Finish):
                on_finish(command)

        runner = self._run(metadata, machine, on_command)
        runner.post(Start())

    def _with_metadata(self, then: Callable[[LedgerMetadata, int], None]) -> None:
        """Read the metadata, again and again until the store answers."""

        def answered(event: object) -> None:
            if isinstance(event, MetadataRead):
                then(event.metadata, event.version)
            elif isinstance(event, MetadataGone):
                self.is_done = True
            else:
                self.later(METADATA_RETRY_MS, lambda: self._with_metadata(then))

        read_metadata(self, self.world.ledger_id, answered)

    def _read(self, metadata: LedgerMetadata, first: int, last: int, on_finish: OnFinish) -> None:
        timeout_ms = self._schedule.request_timeout_ms
        limits = ReadLimits(timeout_ms=timeout_ms, speculative_ms=timeout_ms // 2, request_bytes=600, ahead_bytes=2_000)

        def has_read(finish: Finish) -> None:
            problem = f"{self.name} reads confirmed entries from {first} to {last}: {finish.error}"
            self.world.invariants.require(not isinstance(finish.error, NoSuchEntryError), "I13", problem)
            on_finish(finish)

        self._start(metadata, ReadEntries(metadata, first, last, limits), has_read)

    def note_finish(self, what: str, finish: Finish) -> None:
        self.world.note(self.name, f"{what} ends" + (f": {finish.error}" if finish.error is not None else ""))


class Recoverer(Client):
    """Recovers the ledger, in a few tries, and reads all of it. ``closed`` is what it found it closed as."""

    def __init__(self, name: str, world: World, schedule: Schedule, plan: RecovererPlan) -> None:
        super().__init__(name, world, schedule)
        self.closed: LedgerMetadata | None = None
        self.has_read = False
        self.error: BookKeeperError | None = None
        self._plan = plan
        self._tries = 0

    def begin(self) -> None:
        self.later(self._plan.start_ms, lambda: self._with_metadata(self._recover))

    def _recover(self, metadata: LedgerMetadata, version: int) -> None:
        self._tries += 1
        self.world.note(self.name, "recovers")
        self._start(metadata, RecoverLedger(metadata, version, recover_limits(self._schedule)), self._recovered)

    def _recovered(self, finish: Finish) -> None:
        self.note_finish("recovery", finish)
        if finish.error is not None:
            is_false = isinstance(finish.error, CorruptionError)
            self.world.invariants.require(not is_false, "I11", f"{self.name} calls a confirmed entry lost: {finish.error}")
            self.error = finish.error
            if self._tries < self._plan.tries:
                self.later(METADATA_RETRY_MS, lambda: self._with_metadata(self._recover))
            else:
                self.is_done = True
            return
        assert isinstance(finish.result, tuple)
        closed, version = finish.result
        stored = self.world.invariants.history.metadata
        is_stored = closed.is_closed and version < len(stored) and stored[version] == closed
        self.world.invariants.require(is_stored, "I4", f"{self.name} says that it closed as {closed}, version {version}")
        self.closed = closed
        self._read(closed, 0, closed.last_entry_id, self._has_read) if closed.last_entry_id >= 0 else self._has_read(Finish())

    def _has_read(self, finish: Finish) -> None:
        self.note_finish("reading it all", finish)
        self.is_done, self.has_read, self.error = True, finish.error is None, finish.error


class Reader(Client):
    """Asks how far the ledger is confirmed and reads up to there, some rounds long."""

    def __init__(self, name: str, world: World, schedule: Schedule, plan: ReaderPlan, *, is_intruder: bool = False) -> None:
        """An intruder has a wrong password: nothing may come of what it does."""
        super().__init__(name, world, schedule)
        self._plan = plan
        self._is_intruder = is_intruder
        if is_intruder:
            self._key = master_key(b"a guess")
        self._rounds = 0
        self._read_up_to = NO_ENTRY

    def begin(self) -> None:
        self.later(self._plan.start_ms, self._next_round)

    def _next_round(self) -> None:
        self._rounds += 1
        if self._rounds > self._plan.rounds:
            self.is_done = True
        else:
            self._with_metadata(self._ask)

    def _ask(self, metadata: LedgerMetadata, version: int) -> None:
        if metadata.last_entry_id is not None:
            self._learned(metadata, metadata.last_entry_id)
            return
        if self._is_intruder and self._rounds == 1 and self._may_intrude(metadata, version):
            return
        timeout_ms = self._schedule.request_timeout_ms
        if self._plan.waits:
            question: StateMachine = AwaitLastAddConfirmed(metadata, self._read_up_to, wait_ms=1_000, timeout_ms=timeout_ms)
        else:
            question = ReadLastAddConfirmed(metadata, timeout_ms=timeout_ms, quorum=self._plan.quorum)
        self._start(metadata, question, lambda finish: self._answered(metadata, finish))

    def _may_intrude(self, metadata: LedgerMetadata, version: int) -> bool:
        """Try to recover the ledger, if all bookies that will be asked know its password: the first who comes sets it there."""
        history = self.world.invariants.history
        is_fixed = metadata.state is LedgerState.IN_RECOVERY
        if not is_fixed or history.lossy or not all(history.acknowledged.get(one) for one in metadata.last_fragment.ensemble):
            return False
        limits = recover_limits(self._schedule)
        self._start(metadata, RecoverLedger(metadata, version, limits), lambda finish: self._next_round())
        return True

    def _answered(self, metadata: LedgerMetadata, finish: Finish) -> None:
        self.note_finish(f"asking, with the answer {_lac_of(finish)},", finish)
        if finish.error is not None:
            self.later(METADATA_RETRY_MS, self._next_round)
            return
        found = finish.result[0] if isinstance(finish.result, tuple) else metadata
        self._learned(found, _lac_of(finish))

    def _learned(self, metadata: LedgerMetadata, confirmed: int) -> None:
        self.world.invariants.lac_learned(self.name, confirmed)
        if confirmed <= self._read_up_to:
            self.later(METADATA_RETRY_MS, self._next_round)
            return
        self._read(metadata, self._read_up_to + 1, confirmed, lambda finish: self._has_read(confirmed, finish))

    def _has_read(self, confirmed: int, finish: Finish) -> None:
        self.note_finish(f"reading up to {confirmed}", finish)
        if finish.error is None:
            self._read_up_to = confirmed
        self.later(METADATA_RETRY_MS, self._next_round)


class Tailer(Client):
    """Waits for an entry that its writer was told is confirmed, then asks a quorum. ``seen`` and ``asked`` are the answers."""

    def __init__(self, name: str, world: World, schedule: Schedule, entry_id: int) -> None:
        super().__init__(name, world, schedule)
        self.seen = NO_ENTRY
        self.asked: int | None = None
        """None if no quorum could be had."""
        self._entry_id = entry_id

    def begin(self) -> None:
        self.later(0, lambda: self._with_metadata(self._wait))

    def _wait(self, metadata: LedgerMetadata, version: int) -> None:
        timeout_ms = self._schedule.request_timeout_ms
        waiting = AwaitLastAddConfirmed(metadata, self._entry_id - 1, wait_ms=TAIL_MS, timeout_ms=timeout_ms)
        self._start(metadata, waiting, lambda finish: self._has_waited(metadata, finish))

    def _has_waited(self, metadata: LedgerMetadata, finish: Finish) -> None:
        self.note_finish(f"waiting, with the answer {_lac_of(finish)},", finish)
        self.seen = _lac_of(finish)
        question = ReadLastAddConfirmed(metadata, timeout_ms=self._schedule.request_timeout_ms)
        self._start(metadata, question, self._has_asked)

    def _has_asked(self, finish: Finish) -> None:
        self.note_finish(f"asking, with the answer {_lac_of(finish)},", finish)
        self.asked = _lac_of(finish) if finish.error is None else None
        self.is_done = True


def recover_limits(schedule: Schedule) -> RecoverLimits:
    return RecoverLimits(
        request_timeout_ms=schedule.request_timeout_ms,
        patience_ms=5 * schedule.request_timeout_ms,
        window_entries=4,
        request_bytes=600,
        adds=schedule.limits,
    )


def _lac_of(finish: Finish) -> int:
    result = finish.result
    if finish.error is not None:
        return NO_ENTRY
    confirmed = result[1] if isinstance(result, tuple) else result
    assert isinstance(confirmed, int)
    return confirmed
