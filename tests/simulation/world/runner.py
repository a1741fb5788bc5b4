"""Runs one state machine in a simulated client: the counterpart of ``bk_spark/client/driver/runner.py``, command by command.

What that driver does with gRPC, an event loop and ZooKeeper is done with envelopes here; like it, this one has no opinion on
the protocol. An exception out of a state machine, which the driver turns into an InternalError, ends the run here.
"""

from __future__ import annotations

from collections.abc import Callable

from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.rereplicate_fragment import RereplicateFragment
from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    Append,
    CancelAdd,
    CancelRead,
    ChooseReplacements,
    CloseRequested,
    Command,
    Event,
    Finish,
    ForceAnswered,
    ForceRequested,
    LastAddConfirmedAnswered,
    MarkAnswered,
    MarkUnderReplicated,
    MetadataGone,
    MetadataRead,
    MetadataUnknown,
    MetadataWritten,
    ReadArrived,
    ReadEnded,
    ReadMetadata,
    ReportFailure,
    SendAdd,
    SendForce,
    SendRead,
    SendReadLastAddConfirmed,
    SendStoreLastAddConfirmed,
    StateMachine,
    StoreLastAddConfirmedAnswered,
    Tick,
    WriteMetadata,
)
from bk_spark.entries.apache_entries import own_batches
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.digest import Digester
from bk_spark.errors import CorruptionError, MetadataConflictError, MetadataUnavailableError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.wire.apache.version_3 import covered_by_proof
from bk_spark.wire.messages import (
    AddReply,
    AddRequest,
    ForceRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    PlainReply,
    ReadEnd,
    ReadRequest,
    Status,
    StoreLastAddConfirmedRequest,
)
from tests.simulation.engines.schedule import DEFERRED_SYNC, Schedule
from tests.simulation.world.client_process import ClientProcess
from tests.simulation.world.messages import (
    METADATA,
    Broken,
    GetMetadata,
    GuardMissing,
    LedgerMarked,
    MarkLedger,
    MetadataMissing,
    MetadataSet,
    MetadataValue,
    ReadAnswer,
    SetMetadata,
)

UNAVAILABLE = MetadataUnavailableError("simulated", "the connection broke")


class OperationRunner:
    """``on_command`` is given Confirm, Reject, Release, Deliver and Finish."""

    def __init__(
        self,
        process: ClientProcess,
        metadata: LedgerMetadata,
        master_key: bytes,
        machine: StateMachine,
        on_command: Callable[[Command], None],
    ) -> None:
        self.machine = machine
        self.is_over = False
        self._process = process
        self._world = process.world
        self._metadata = metadata
        self._key = master_key
        self._digester = Digester(metadata.digest_type, metadata.password)
        self._on_command = on_command
        self._timer_ms: int | None = None
        self._watched = process.world.observed.operation(process.name, machine)
        self._reads: dict[int, int] = {}
        self.sent: dict[str, set[int]] = {}
        """Bookie → the entries that it was sent."""
        self.has_failed_marks = False
        self.is_told_late = False
        self.is_broken = False

    def post(self, event: Event) -> None:
        if self.is_over:
            self._check_that_it_stays_over(event)
            return
        self._watched.handle(event, self._process.now_ms)
        for command in self._watched.take_commands():
            self._carry_out(command)
        if not self.is_over:
            self._keep_deadline()

    def _check_that_it_stays_over(self, event: Event) -> None:
        """The driver tells an operation nothing after its end; if answers that were under way came, it would not matter."""
        if isinstance(event, (Append, ForceRequested, CloseRequested)):
            return  # the application's; queues refuse them for a writer that ended
        self.machine.handle(event, self._process.now_ms)
        late, deadline = self.machine.take_commands(), self.machine.deadline_ms()
        self._world.invariants.require(not late, "I14", f"an operation that had ended wants {late}")
        self._world.invariants.require(deadline is None, "I14", f"an operation that had ended has the deadline {deadline}")

    def _carry_out(self, command: Command) -> None:
        match command:
            case SendAdd():
                self._send_add(command)
            case CancelAdd():
                pass  # it is on its way
            case SendRead():
                self._send_read(command)
            case CancelRead():
                self._process.cancel(self._reads.pop(command.request_id, -1))
            case SendReadLastAddConfirmed():
                self._send_read_last_add_confirmed(command)
            case SendStoreLastAddConfirmed():
                self._store_last_add_confirmed(command)
            case SendForce():
                self._send_force(command)
            case ChooseReplacements():
                self._choose_replacements(command)
            case ReportFailure():
                self._process.placement.report_failure(command.bookie_id, self._process.now_ms)
            case MarkUnderReplicated():
                self._mark(command)
            case WriteMetadata():
                self._write_metadata(command)
            case ReadMetadata():
                self._read_metadata(is_synced=command.is_synced)
            case _:
                self._on_command(command)
                self.is_over = self.is_over or isinstance(command, Finish)

    def _keep_deadline(self) -> None:
        deadline = self.machine.deadline_ms()
        if deadline is not None and deadline != self._timer_ms:
            self._process.later(max(0, deadline - self._process.now_ms), lambda: self._tick(deadline))
        self._timer_ms = deadline

    def _tick(self, deadline: int) -> None:
        """The process may have stood still meanwhile: the timer of a loop runs on, its clock for deadlines does not."""
        if self._timer_ms == deadline:
            self._timer_ms = None
            self.post(Tick())

    # --- requests to bookies

    def _send_add(self, command: SendAdd) -> None:
        number = command.request_id
        flags = {"recovery": command.recovery, "deferred_sync": command.deferred_sync}
        request = AddRequest(number, command.bookie_id, self._key, command.batch, **flags)
        header = command.batch.header
        sent = header.pattern.ids(header.first_entry_id, header.last_entry_id)
        self.sent.setdefault(command.bookie_id, set()).update(sent.tolist())

        def answered(answer: object) -> None:
            reply = answer if isinstance(answer, AddReply) else AddReply(number, Status.UNKNOWN, _why(answer))
            self.post(AddAnswered(number, reply.status, reply.detail, reply.boot))

        self._process.call(command.bookie_id, request, answered)

    def _send_force(self, command: SendForce) -> None:
        def answered(answer: object) -> None:
            reply = answer if isinstance(answer, PlainReply) else PlainReply(Status.UNKNOWN, _why(answer))
            self.post(ForceAnswered(command.request_id, reply.status, reply.detail, reply.boot))

        request = ForceRequest(command.bookie_id, self._metadata.ledger_id, self._key)
        self._process.call(command.bookie_id, request, answered)

    def _send_read(self, command: SendRead) -> None:
        what = (command.first, command.last, command.pattern, command.maximum_bytes, command.fence)
        request = ReadRequest(command.bookie_id, self._metadata.ledger_id, self._key, *what, self._metadata.digest_type)
        self._reads[command.request_id] = self._process.call(
            command.bookie_id, request, lambda answer: self._read_answered(command.request_id, answer)
        )

    def _read_answered(self, request_id: int, answer: object) -> None:
        end = ReadEnded(request_id, Status.UNKNOWN, "the answer broke off")
        for reply in answer.replies if isinstance(answer, ReadAnswer) else ():
            if isinstance(reply, ReadEnd):
                end = ReadEnded(request_id, reply.status, reply.detail, reply.next_entry_id)
                continue
            try:
                batches = list(own_batches(reply.batch, self._metadata.digest_type))
            except CorruptionError as problem:  # it was garbled on its way
                end = ReadEnded(request_id, Status.DAMAGED, str(problem))
                break
            for batch in batches:
                self.post(ReadArrived(request_id, batch))
                if request_id not in self._reads:
                    return  # it was cancelled meanwhile
        self._reads.pop(request_id, None)
        self.post(end)

    def _send_read_last_add_confirmed(self, command: SendReadLastAddConfirmed) -> None:
        what = (command.fence, command.beyond, command.wait_ms, self._digester)
        request = LastAddConfirmedRequest(command.bookie_id, self._metadata.ledger_id, self._key, *what)

        def answered(answer: object) -> None:
            unknown = LastAddConfirmedReply(Status.UNKNOWN, NO_ENTRY, _why(answer))
            reply = answer if isinstance(answer, LastAddConfirmedReply) else unknown
            confirmed, fenced = reply.last_add_confirmed, reply.is_fenced
            self.post(LastAddConfirmedAnswered(command.request_id, reply.status, confirmed, reply.detail, fenced))

        self._process.call(command.bookie_id, request, answered)

    def _store_last_add_confirmed(self, command: SendStoreLastAddConfirmed) -> None:
        def answered(answer: object) -> None:
            reply = answer if isinstance(answer, PlainReply) else PlainReply(Status.UNKNOWN, _why(answer))
            self.post(StoreLastAddConfirmedAnswered(command.request_id, reply.status, reply.detail))

        ids, confirmed = (command.bookie_id, self._metadata.ledger_id), command.last_add_confirmed
        proof = self._digester.of_bytes(covered_by_proof(self._metadata.ledger_id, confirmed))
        request = StoreLastAddConfirmedRequest(*ids, self._key, confirmed, proof)
        self._process.call(command.bookie_id, request, answered)

    # --- the metadata store

    def _choose_replacements(self, command: ChooseReplacements) -> None:
        process = self._process
        registered = self._world.registered_bookies()
        quorum = self._metadata.write_quorum
        chosen = process.placement.replacements(registered, command, quorum, process.now_ms)
        process.later(0, lambda: self.post(chosen))

    def _write_metadata(self, command: WriteMetadata) -> None:
        value, version = command.metadata.encode(), command.expected_version

        def answered(answer: object) -> None:
            if isinstance(answer, MetadataMissing):
                self.post(MetadataGone())
            elif isinstance(answer, GuardMissing):
                self.post(MetadataUnknown(MetadataConflictError("the session", "its guard is gone")))
            elif not isinstance(answer, MetadataSet):
                self.post(MetadataUnknown(UNAVAILABLE))
            elif answer.version is None:
                self._process.seen_version = max(self._process.seen_version, version + 1)
                self._read_metadata()
            else:
                self._process.seen_version = max(self._process.seen_version, answer.version)
                self.post(MetadataWritten(answer.version))

        task = self.machine._task if isinstance(self.machine, RereplicateFragment) else None
        leaving, must_widen = (None, False) if task is None else (task.leaving, task.must_widen)
        text = describe_metadata(command.metadata)
        request = SetMetadata(self._metadata.ledger_id, value, version, text, command.guard, leaving, must_widen)
        self._process.call(METADATA, request, answered)

    def _mark(self, command: MarkUnderReplicated) -> None:
        def answered(answer: object) -> None:
            is_marked = isinstance(answer, LedgerMarked)
            self.has_failed_marks |= not is_marked
            self.post(MarkAnswered(None if is_marked else UNAVAILABLE))

        self._process.call(METADATA, MarkLedger(command.bookies), answered)

    def _read_metadata(self, *, is_synced: bool = False) -> None:
        read_metadata(self._process, self._metadata.ledger_id, self.post, is_synced=is_synced)


class SimulatedDriver:
    """Runs operations with runners of the simulator's own."""

    def operation(
        self,
        process: ClientProcess,
        metadata: LedgerMetadata,
        key: bytes,
        machine: StateMachine,
        on_command: Callable[[Command], None],
    ) -> OperationRunner:
        return OperationRunner(process, metadata, key, machine, on_command)

    def writer(
        self, process: ClientProcess, schedule: Schedule, metadata: LedgerMetadata, on_command: Callable[[Command], None]
    ) -> tuple[AddEntries, OperationRunner]:
        """The writer's state machine, and what takes the application's events."""
        deferred = schedule.writer.kind == DEFERRED_SYNC
        machine = AddEntries(metadata, 0, schedule.limits, deferred_sync=deferred)
        return machine, self.operation(process, metadata, process.world.master_key, machine, on_command)


def read_metadata(
    process: ClientProcess,
    ledger_id: int,
    post: Callable[[MetadataRead | MetadataGone | MetadataUnknown], None],
    *,
    is_synced: bool = False,
) -> None:
    """Read a ledger's metadata, and post what was found."""

    def answered(answer: object) -> None:
        if isinstance(answer, MetadataValue):
            process.seen_version = max(process.seen_version, answer.version)
            post(MetadataRead(LedgerMetadata.decode(ledger_id, answer.value), answer.version))
        elif isinstance(answer, MetadataMissing):
            post(MetadataGone())
        else:
            post(MetadataUnknown(UNAVAILABLE))

    process.call(METADATA, GetMetadata(ledger_id, process.seen_version, is_synced), answered)


def describe_metadata(metadata: LedgerMetadata) -> str:
    fragments = ", ".join(f"{one.first_entry_id}: {'/'.join(one.ensemble)}" for one in metadata.fragments)
    end = f" at {metadata.last_entry_id}, {metadata.length} bytes" if metadata.is_closed else ""
    return f"{metadata.state.name}{end}, fragments {fragments}"


def _why(answer: object) -> str:
    return answer.detail if isinstance(answer, Broken) else "no answer"
