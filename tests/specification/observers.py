"""Turns what a client's state machine is told, and what it wants done, into the protocol's actions.

The same for a simulated client and for a real one: both drive the shipped state machines by events and commands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.recover_ledger import RecoverLedger
from bk_spark.client.protocol.rereplicate_fragment import RereplicateFragment
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.wire.messages import Status
from tests.specification.actions import (
    COPY,
    DEFERRED,
    RECOVERY,
    WRITER,
    Action,
    AsksToFence,
    AsksToRead,
    Begins,
    Confirms,
    EndsFencing,
    Fragments,
    GivesUp,
    HearsAdd,
    HearsEnd,
    HearsEntries,
    HearsFenced,
    Ids,
    Learns,
    Ledger,
    SendsAdd,
    WorksWith,
    Writes,
    fragments_of,
)

Tell = Callable[[Action], object]


def observer_of(who: str, machine: sm.StateMachine, tell: Tell) -> OperationObserver | None:
    """None for operations that the specification has not: reads, and questions for the last add confirmed."""
    match machine:
        case AddEntries():
            return WriterObserver(who, machine, tell)
        case RecoverLedger():
            return RecoveryObserver(who, machine, tell)
        case RereplicateFragment():
            return OperationObserver(who, machine, tell)
    return None


def watched(who: str, machine: sm.StateMachine, tell: Tell) -> sm.StateMachine:
    """The machine, in a form that tells of what it is told and wants, if the specification has such an operation."""
    observer = observer_of(who, machine, tell)
    return machine if observer is None else Traced(machine, observer)


class OperationObserver:
    """Is told of each event before the machine handles it, and of the commands that follow. ``who`` names the operation.

    By itself it tells of adds and compare-and-sets alone, which is all that a re-replication has in common with the protocol.
    """

    kind = COPY

    def __init__(self, who: str, machine: sm.StateMachine, tell: Tell) -> None:
        self._who = who
        self._machine = machine
        self._tell = tell
        self._has_begun = False
        self._fragments: Fragments | None = None
        self._written: LedgerMetadata | None = None

    def handles(self, event: sm.Event) -> None:
        self._begin()
        if isinstance(event, sm.AddAnswered):
            self._tell(HearsAdd(self._who, event.request_id, event.status.name))
        elif isinstance(event, sm.MetadataRead):
            self._tell(Learns(self._who, event.version, Ledger.of(event.metadata)))
        elif isinstance(event, sm.MetadataWritten) and self._written is not None:
            self._tell(Learns(self._who, event.version, Ledger.of(self._written)))
        else:
            self._hears(event)

    def wants(self, commands: Sequence[sm.Command]) -> None:
        self._note_fragments(commands)
        for command in commands:
            if isinstance(command, sm.SendAdd):
                ids, lac = ids_of(command.batch), command.batch.header.last_add_confirmed
                self._tell(SendsAdd(self._who, command.request_id, command.bookie_id, ids, lac, command.recovery))
            elif isinstance(command, sm.CancelAdd):
                self._tell(GivesUp(self._who, command.request_id))
            elif isinstance(command, sm.WriteMetadata):
                self._written = command.metadata
                self._tell(Writes(self._who, Ledger.of(command.metadata), command.expected_version))
            else:
                self._does(command)

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            metadata, version = self._known()
            ledger = Ledger.of(metadata)
            self._tell(Begins(self._who, self.kind, metadata.write_quorum, metadata.ack_quorum, ledger, version))
            self._fragments = ledger.fragments

    def _note_fragments(self, commands: Sequence[sm.Command]) -> None:
        """Of another ensemble the machine says nothing; it is told of before what is sent to it."""

    def _works_with(self, fragments: Fragments) -> None:
        if fragments != self._fragments:
            self._fragments = fragments
            self._tell(WorksWith(self._who, fragments))

    def _known(self) -> tuple[LedgerMetadata, int]:
        machine = self._machine
        assert isinstance(machine, RereplicateFragment)
        return machine._task.metadata, -1

    def _hears(self, event: sm.Event) -> None:
        """Other events than answers to adds."""

    def _does(self, command: sm.Command) -> None:
        """Other commands than adds and compare-and-sets."""


class WriterObserver(OperationObserver):
    def __init__(self, who: str, machine: AddEntries, tell: Tell) -> None:
        super().__init__(who, machine, tell)
        self._adder = machine
        self._counts: dict[int, tuple[object, int]] = {}
        """How many entries were appended under a token, which is kept by its identity."""
        self.kind = WRITER if machine._forces is None else DEFERRED

    def _known(self) -> tuple[LedgerMetadata, int]:
        return self._adder.metadata, self._adder._ensemble.version

    def _note_fragments(self, commands: Sequence[sm.Command]) -> None:
        self._works_with(fragments_of(self._adder.metadata))

    def _hears(self, event: sm.Event) -> None:
        if isinstance(event, sm.Append):
            self._counts[id(event.token)] = event.token, len(event.payloads)

    def _does(self, command: sm.Command) -> None:
        if isinstance(command, sm.Confirm):
            self._confirmed(command)
        elif isinstance(command, sm.Reject):
            self._counts.pop(id(command.token), None)

    def _confirmed(self, command: sm.Confirm) -> None:
        """Where syncs are deferred, a force confirms and an ack does not."""
        _, count = self._counts.pop(id(command.token), (None, 0))
        is_force = not count
        if is_force == (self.kind == DEFERRED):
            self._tell(Confirms(self._who, command.first_entry_id + (0 if is_force else count - 1)))


class RecoveryObserver(OperationObserver):
    kind = RECOVERY

    def __init__(self, who: str, machine: RecoverLedger, tell: Tell) -> None:
        super().__init__(who, machine, tell)
        self._recovery = machine
        self._starts = 0
        self._is_fencing = False

    def _known(self) -> tuple[LedgerMetadata, int]:
        return self._recovery._update.metadata, self._recovery._update.version

    def _note_fragments(self, commands: Sequence[sm.Command]) -> None:
        writes, starts = self._recovery._writes, self._recovery._starts
        if starts > max(1, self._starts):
            self._has_begun = False
            self._begin()
        if starts != self._starts:
            self._starts, self._is_fencing = starts, True
        if self._is_fencing and any(isinstance(one, sm.SendRead) for one in commands):
            self._is_fencing = False
            self._tell(EndsFencing(self._who, NO_ENTRY if writes is not None else self._recovery._floor))
        if writes is not None:
            self._works_with(fragments_of(writes.metadata))
        elif any(isinstance(one, sm.SendReadLastAddConfirmed) for one in commands):
            self._works_with(fragments_of(self._recovery._update.metadata))

    def _hears(self, event: sm.Event) -> None:
        match event:
            case sm.LastAddConfirmedAnswered():
                status, lac = event.status.name, event.last_add_confirmed
                self._tell(HearsFenced(self._who, event.request_id, status, lac, event.is_fenced))
            case sm.ReadArrived():
                self._tell(HearsEntries(self._who, event.request_id, ids_of(event.batch)))
            case sm.ReadEnded():
                about = None if event.status is Status.NO_SUCH_LEDGER else event.entry_id
                self._tell(HearsEnd(self._who, event.request_id, event.status.name, about))

    def _does(self, command: sm.Command) -> None:
        match command:
            case sm.SendReadLastAddConfirmed():
                self._tell(AsksToFence(self._who, command.request_id, command.bookie_id))
            case sm.SendRead():
                ids = Ids.of(command.first, command.last, command.pattern)
                self._tell(AsksToRead(self._who, command.request_id, command.bookie_id, ids, command.fence))


def ids_of(batch: EncodedBatch) -> Ids:
    header = batch.header
    return Ids.of(header.first_entry_id, header.last_entry_id, header.pattern)


class Traced(sm.StateMachine):
    """A state machine whose events and commands are told of."""

    def __init__(self, machine: sm.StateMachine, observer: OperationObserver) -> None:
        super().__init__()
        self._machine = machine
        self._observer = observer

    def handle(self, event: sm.Event, now_ms: int) -> None:
        self._observer.handles(event)
        self._machine.handle(event, now_ms)

    def take_commands(self) -> list[sm.Command]:
        commands = self._machine.take_commands()
        self._observer.wants(commands)
        return commands

    def deadline_ms(self) -> int | None:
        return self._machine.deadline_ms()
