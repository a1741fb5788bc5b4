"""A read against simulated replicas and a simulated metadata store, without threads, clocks or sockets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from bk_spark.client.protocol.limits import ReadLimits
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.state_machine import (
    CancelRead,
    Command,
    Deliver,
    Event,
    Finish,
    MetadataRead,
    ReadArrived,
    ReadEnded,
    ReadMetadata,
    ReadSent,
    ReadWaits,
    SendRead,
    Start,
    Tick,
)
from bk_spark.config import DigestType, LedgerOptions
from bk_spark.entries.batch import EncodedBatch, EntryBatch, encode, seal
from bk_spark.entries.digest import Digester
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.quorum import IdPattern
from bk_spark.wire.messages import Status

LEDGER = 7
LIMITS = ReadLimits(timeout_ms=1000, speculative_ms=400, request_bytes=1 << 20, ahead_bytes=1 << 30)
DIGESTER = Digester(DigestType.CRC32C, b"")

Answer = tuple[list[EncodedBatch], Status]
Replica = Callable[[SendRead], Answer]


def entries(first: int, last: int) -> EntryBatch:
    payloads = pa.array([b"%d" % i for i in range(first, last + 1)], pa.binary())
    return seal(DIGESTER, LEDGER, first, payloads, length_before=first, last_add_confirmed=first - 1)


def encoded_of(batch: EntryBatch, pattern: IdPattern) -> list[EncodedBatch]:
    encoded = encode(batch, DigestType.CRC32C, pattern)
    return [] if encoded is None else [encoded]


def healthy(request: SendRead) -> Answer:
    return encoded_of(entries(request.first, request.last), request.pattern), Status.OK


def small_answers(request: SendRead) -> Answer:
    """Ends early, as a bookie does whose byte budget is spent."""
    return encoded_of(entries(request.first, min(request.first + 4, request.last)), request.pattern), Status.OK


def joined(request: SendRead) -> Answer:
    """Sends what it joined of single entries, which have a LAC each."""
    batch = entries(request.first, request.last)
    lacs = batch.entry_ids - 1
    digests = DIGESTER.compute(LEDGER, batch.entry_ids, lacs, batch.lengths, batch.payloads)
    return encoded_of(dataclasses.replace(batch, last_add_confirmed=lacs, digests=digests), request.pattern), Status.OK


def failing(status: Status) -> Replica:
    return lambda request: ([], status)


def damaged_from(entry_id: int) -> Replica:
    """Its entries from ``entry_id`` on carry another payload than the one that was digested."""

    def answer(request: SendRead) -> Answer:
        batch = entries(request.first, request.last)
        texts = [b"X" * len(b"%d" % i) if i >= entry_id else b"%d" % i for i in batch.entry_ids.tolist()]
        return encoded_of(dataclasses.replace(batch, payloads=pa.array(texts, pa.binary())), request.pattern), Status.OK

    return answer


def without(entry_id: int) -> Replica:
    """Skips an entry as if it were nothing."""

    def answer(request: SendRead) -> Answer:
        batch = entries(request.first, request.last)
        before, after = batch.select(batch.entry_ids < entry_id), batch.select(batch.entry_ids > entry_id)
        return encoded_of(before, request.pattern) + encoded_of(after, request.pattern), Status.OK

    return answer


def ending_before(entry_id: int, status: Status) -> Replica:
    def answer(request: SendRead) -> Answer:
        if request.first >= entry_id:
            return [], status
        return encoded_of(entries(request.first, min(request.last, entry_id - 1)), request.pattern), status

    return answer


@dataclass(frozen=True)
class Late:
    """Answers as ``replica`` does, every part of it after ``delay_ms``; None: never."""

    delay_ms: int | None
    replica: Replica


SILENT = Late(None, healthy)


@dataclass(frozen=True)
class Waiting:
    """Whose reads wait so long before they are sent."""

    waits_ms: int
    replica: Replica | Late


@dataclass
class Reader:
    """Runs the state machine against replicas by bookie id. Answers of cancelled requests arrive all the same."""

    metadata: LedgerMetadata
    replicas: dict[str, Replica | Late | Waiting]
    store: list[Event] = field(default_factory=list)
    """The store's answers, one after the other; then what the reader knows already."""
    now_ms: int = 0
    log: list[Command] = field(default_factory=list)
    _posted: int = 0
    _queue: dict[tuple[int, int], Event] = field(default_factory=dict)
    """By time and order of posting."""

    def read(self, first: int, last: int, avoid: frozenset[str] = frozenset(), limits: ReadLimits = LIMITS) -> list[int]:
        """The ids that were delivered; raises what the read failed with."""
        self.machine = ReadEntries(self.metadata, first, last, limits, avoid=avoid)
        self._post(Start())
        for _ in range(1000):
            self.machine.handle(self._next(), self.now_ms)
            for command in self.machine.take_commands():
                self.log.append(command)
                self._carry_out(command)
                if isinstance(command, Finish):
                    return self._result(command)
        raise AssertionError("the read does not end")

    @property
    def asked(self) -> list[str]:
        return [c.bookie_id for c in self.log if isinstance(c, SendRead)]

    @property
    def looks(self) -> int:
        """How often the metadata was read."""
        return sum(isinstance(c, ReadMetadata) for c in self.log)

    @property
    def delivered(self) -> list[int]:
        return [i for c in self.log if isinstance(c, Deliver) for i in c.batch.entry_ids.tolist()]

    @property
    def cancelled(self) -> list[str]:
        """The bookies of cancelled requests."""
        bookies = {c.request_id: c.bookie_id for c in self.log if isinstance(c, SendRead)}
        return [bookies[c.request_id] for c in self.log if isinstance(c, CancelRead)]

    def _post(self, event: Event, delay_ms: int | None = 0) -> None:
        if delay_ms is None:
            return
        self._posted += 1
        self._queue[self.now_ms + delay_ms, self._posted] = event

    def _next(self) -> Event:
        deadline = self.machine.deadline_ms()
        earliest = min(self._queue, default=None)
        if deadline is not None and (earliest is None or deadline < earliest[0]):
            assert deadline >= self.now_ms, "a deadline that was met is set again"
            self.now_ms = deadline
            return Tick()
        assert earliest is not None, "nothing is under way and no deadline is set"
        self.now_ms = max(self.now_ms, earliest[0])
        return self._queue.pop(earliest)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, ReadMetadata):
            self._post(self.store.pop(0) if self.store else MetadataRead(self.machine.metadata, 1))
        elif isinstance(command, SendRead):
            self._read(command, self.replicas[command.bookie_id])

    def _read(self, command: SendRead, replica: Replica | Late | Waiting) -> None:
        sent_ms = 0
        if isinstance(replica, Waiting):
            sent_ms, replica = replica.waits_ms, replica.replica
            self._post(ReadWaits(command.request_id))
            self._post(ReadSent(command.request_id), sent_ms)
        late = replica if isinstance(replica, Late) else Late(0, replica)
        batches, status = late.replica(command)
        answer_ms = None if late.delay_ms is None else sent_ms + late.delay_ms
        for batch in batches:
            self._post(ReadArrived(command.request_id, batch), answer_ms)
        self._post(ReadEnded(command.request_id, status), answer_ms)

    def _result(self, finish: Finish) -> list[int]:
        if finish.error is not None:
            raise finish.error
        return self.delivered


def ledger(e: int = 3, w: int = 3, a: int = 2) -> LedgerMetadata:
    ensemble = tuple(f"b{slot}" for slot in range(e))
    options = LedgerOptions(ensemble_size=e, write_quorum=w, ack_quorum=a)
    return new_ledger(LEDGER, options, ensemble, created_ms=0, creator_token=0)


def reader_of(*replicas: Replica | Late | Waiting, e: int = 3, w: int = 3) -> Reader:
    return Reader(ledger(e, w, 1), {f"b{slot}": replica for slot, replica in enumerate(replicas)})
