"""A recovery's state machine with toy bookies, a toy metadata store and a list of spare bookies.

Requests wait in ``inbox`` until they are delivered. Requests to a bookie in ``silent`` are never answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from bk_spark.client.protocol.limits import AddLimits, RecoverLimits
from bk_spark.client.protocol.recover_ledger import RecoverLedger
from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    ChooseReplacements,
    Command,
    Event,
    Finish,
    ForceAnswered,
    LastAddConfirmedAnswered,
    MarkAnswered,
    MarkUnderReplicated,
    MetadataRead,
    MetadataWritten,
    ReadArrived,
    ReadEnded,
    ReadMetadata,
    ReplacementsChosen,
    SendAdd,
    SendForce,
    SendRead,
    SendReadLastAddConfirmed,
    Start,
    Tick,
    WriteMetadata,
)
from bk_spark.config import DigestType, LedgerOptions
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch, EntryBatch, decode, encode, seal
from bk_spark.entries.digest import Digester
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState, new_ledger
from bk_spark.wire.messages import Status

LEDGER = 7
DIGESTER = Digester(DigestType.CRC32C, b"")
TIMEOUT_MS, PATIENCE_MS = 1000, 5000
UNKNOWN = [Status.UNKNOWN, Status.IO_ERROR, Status.WRONG_BOOKIE, Status.DAMAGED, Status.BAD_REQUEST, Status.FENCED]
MAX_STEPS = 20_000
Request = SendReadLastAddConfirmed | SendRead | SendAdd | SendForce


def payload(entry_id: int) -> bytes:
    """Sizes 0, 1, 2 in turn, so that a wrong length shows."""
    return b"x" * (entry_id % 3)


def length_up_to(entry_id: int) -> int:
    return sum(len(payload(i)) for i in range(entry_id + 1))


def entry(entry_id: int, lac: int, *, length_before: int | None = None) -> EntryBatch:
    before = length_up_to(entry_id - 1) if length_before is None else length_before
    payloads = pa.array([payload(entry_id)], pa.binary())
    return seal(DIGESTER, LEDGER, entry_id, payloads, length_before=before, last_add_confirmed=lac)


@dataclass
class ToyBookie:
    """What one bookie stores of the ledger, and what is wrong with it."""

    entries: dict[int, EntryBatch] = field(default_factory=dict)
    lac: int = NO_ENTRY
    is_known: bool = False
    fenced: bool = False
    damaged: set[int] = field(default_factory=set)
    """Entries whose copies here have a wrong digest."""
    refuses_fences: Status | None = None
    refuses_reads: Status | None = None
    refuses_adds: Status | None = None
    refuses_forces: Status | None = None
    boot: int = 1

    def restart(self) -> None:
        """Killed and started again without the journal, and what it acked was in memory only: its limbo is over already,
        because no metadata named it."""
        self.entries, self.lac, self.is_known, self.boot = {}, NO_ENTRY, False, self.boot + 1

    def put(self, batch: EntryBatch, *, recovery: bool) -> Status:
        if self.refuses_adds is not None:
            return self.refuses_adds
        if self.fenced and not recovery:
            return Status.FENCED
        self.is_known = True
        for row, entry_id in enumerate(batch.entry_ids.tolist()):
            self.entries[entry_id] = batch.slice(row, 1)
            self.damaged.discard(entry_id)
            self.lac = max(self.lac, int(batch.last_add_confirmed[row]))
        return Status.OK

    def last_add_confirmed(self, request: SendReadLastAddConfirmed) -> LastAddConfirmedAnswered:
        if self.refuses_fences is not None:
            return LastAddConfirmedAnswered(request.request_id, self.refuses_fences, NO_ENTRY)
        self.fenced |= request.fence
        status = Status.OK if self.is_known else Status.NO_SUCH_LEDGER
        return LastAddConfirmedAnswered(request.request_id, status, self.lac, is_fenced=self.fenced)

    def read(self, request: SendRead) -> Iterator[Event]:
        """Up to the first asked id that is missing, or to the budget."""
        number, sent = request.request_id, 0
        if self.refuses_reads is not None:
            yield ReadEnded(number, self.refuses_reads, "", request.first)
            return
        self.fenced |= request.fence
        for entry_id in (i for i in range(request.first, request.last + 1) if request.pattern.holds(i)):
            if entry_id not in self.entries:
                yield ReadEnded(number, Status.NO_SUCH_ENTRY, "", entry_id)
                return
            batch = self.encoded(entry_id)
            if sent and sent + len(batch.body) > request.maximum_bytes:
                yield ReadEnded(number, Status.OK, "", entry_id)
                return
            sent += len(batch.body)
            yield ReadArrived(number, batch)
        yield ReadEnded(number, Status.OK, "", request.last + 1)

    def encoded(self, entry_id: int) -> EncodedBatch:
        one = self.entries[entry_id]
        if entry_id in self.damaged:
            one = replace(one, digests=pa.array([b"\0rot"], pa.binary(4)))
        batch = encode(one, DigestType.CRC32C)
        assert batch is not None
        return batch


@dataclass
class Store:
    """The ledger's metadata, changed by compare-and-set."""

    metadata: LedgerMetadata
    version: int = 0
    history: list[LedgerMetadata] = field(default_factory=list)
    before_write: Callable[[WriteMetadata], None] = lambda write: None
    """Lets somebody else be faster."""

    def write(self, write: WriteMetadata) -> Event:
        self.before_write(write)
        if write.expected_version != self.version:
            return MetadataRead(self.metadata, self.version)
        self.set(write.metadata)
        return MetadataWritten(self.version)

    def set(self, metadata: LedgerMetadata) -> None:
        self.metadata, self.version = metadata, self.version + 1
        self.history.append(metadata)


def limits(window_entries: int = 100, request_bytes: int = 100_000, patience_ms: int = PATIENCE_MS) -> RecoverLimits:
    adds = AddLimits(TIMEOUT_MS, 3 * TIMEOUT_MS, False, 100, 500, 200_000)
    return RecoverLimits(TIMEOUT_MS, patience_ms, window_entries, request_bytes, adds)


class Cluster:
    """Bookies b0, b1, … and the store, with a new ledger on the first E of them, or on the given fragments."""

    def __init__(self, e: int = 3, w: int = 3, a: int = 2, *fragments: tuple[int, str]) -> None:
        options = LedgerOptions(ensemble_size=e, write_quorum=w, ack_quorum=a)
        metadata = new_ledger(LEDGER, options, tuple(f"b{i}" for i in range(e)), created_ms=0, creator_token=1)
        if fragments:
            metadata = replace(metadata, fragments=tuple(Fragment(i, tuple(names.split())) for i, names in fragments))
        self.bookies = {f"b{i}": ToyBookie() for i in range(12)}
        self.store = Store(metadata)
        self.spares: list[str] = []
        self.marked: set[str] = set()
        """Bookies that the ledger's mark of under-replication names."""
        self.mark_error: BookKeeperError | None = None

    def mark(self, command: MarkUnderReplicated) -> MarkAnswered:
        if self.mark_error is None:
            self.marked.update(command.bookies)
        return MarkAnswered(self.mark_error)

    def hold(self, names: str, *entry_ids: int, lac: int = NO_ENTRY) -> None:
        """Bookies have entries of the old writer, the last of which carried ``lac``."""
        for name in names.split():
            for entry_id in entry_ids:
                self.bookies[name].put(entry(entry_id, min(lac, entry_id - 1)), recovery=True)

    def takes_add(self, name: str, entry_id: int) -> bool:
        """Whether the old writer, who does not know of any recovery, gets its add accepted."""
        return self.bookies[name].put(entry(entry_id, NO_ENTRY), recovery=False) is Status.OK

    def replacements(self, question: ChooseReplacements) -> ReplacementsChosen:
        free = [name for name in self.spares if name not in question.excluded and name not in question.ensemble]
        return ReplacementsChosen(question.request_id, tuple(zip(question.slots, free, strict=False)))

    def holders(self, entry_id: int) -> set[str]:
        return {name for name, bookie in self.bookies.items() if entry_id in bookie.entries}


class Recovery:
    """One recovery of the cluster's ledger."""

    def __init__(self, cluster: Cluster, used: RecoverLimits | None = None, metadata: LedgerMetadata | None = None) -> None:
        self.cluster = cluster
        self.machine = RecoverLedger(metadata or cluster.store.metadata, cluster.store.version, used or limits())
        self.now_ms = 0
        self.inbox: deque[Command] = deque()
        self.log: list[Command] = []
        self.silent: set[str] = set()
        self.finish: Finish | None = None

    def do(self, event: Event) -> list[Command]:
        self.machine.handle(event, self.now_ms)
        commands = self.machine.take_commands()
        assert self.finish is None or not commands, "nothing follows the end"
        self.log += commands
        self.finish = next((c for c in commands if isinstance(c, Finish)), self.finish)
        self.inbox += commands
        return commands

    def run(self, until: Callable[[Command], bool] = lambda command: False) -> Finish | None:
        """Deliver in order, let time pass where nothing is left; stops before a command for which ``until`` is true."""
        if not self.log:
            self.do(Start())
        for _ in range(MAX_STEPS):
            if self.finish is not None or (self.inbox and until(self.inbox[0])):
                return self.finish
            if self.inbox:
                self.deliver(self.inbox.popleft())
            else:
                self.pass_time()
        raise AssertionError("the recovery does not end")

    def pass_time(self) -> None:
        deadline = self.machine.deadline_ms()
        assert deadline is not None, "nothing is under way and no deadline is set: it would wait for ever"
        assert deadline > self.now_ms, "a deadline that has passed"
        self.now_ms = deadline
        self.do(Tick())

    def deliver(self, command: Command) -> None:
        if isinstance(command, WriteMetadata):
            self.do(self.cluster.store.write(command))
        elif isinstance(command, ReadMetadata):
            self.do(MetadataRead(self.cluster.store.metadata, self.cluster.store.version))
        elif isinstance(command, ChooseReplacements):
            self.do(self.cluster.replacements(command))
        elif isinstance(command, MarkUnderReplicated):
            self.do(self.cluster.mark(command))
        elif isinstance(command, Request) and command.bookie_id not in self.silent:
            for event in self.answers(command):
                self.do(event)

    def answers(self, request: Request) -> list[Event]:
        bookie = self.cluster.bookies[request.bookie_id]
        if isinstance(request, SendReadLastAddConfirmed):
            return [bookie.last_add_confirmed(request)]
        if isinstance(request, SendRead):
            return list(bookie.read(request))
        if isinstance(request, SendForce):
            return [ForceAnswered(request.request_id, bookie.refuses_forces or Status.OK, boot=bookie.boot)]
        status = bookie.put(decode(request.batch), recovery=request.recovery)
        return [AddAnswered(request.request_id, status, boot=bookie.boot)]

    def ends_at(self) -> tuple[int | None, int]:
        """Last entry and length of the result; it is what the store holds."""
        self.run()
        assert self.finish is not None
        assert self.finish.error is None, self.finish.error
        store = self.cluster.store
        assert self.finish.result == (store.metadata, store.version)
        assert store.metadata.is_closed
        return store.metadata.last_entry_id, store.metadata.length

    def fails(self) -> Exception:
        """The error; the ledger must be left as it was marked."""
        self.run()
        assert self.finish is not None
        assert self.finish.error is not None
        assert self.cluster.store.metadata.state is LedgerState.IN_RECOVERY
        return self.finish.error

    def sent(self, kind: type[Command]) -> list[Command]:
        return [command for command in self.log if isinstance(command, kind)]

    @property
    def reads(self) -> list[SendRead]:
        return [command for command in self.log if isinstance(command, SendRead)]

    @property
    def adds(self) -> list[SendAdd]:
        return [command for command in self.log if isinstance(command, SendAdd)]
