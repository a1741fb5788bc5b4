"""Re-replications of a fragment against bookies and a metadata store in memory: any schedule, without threads or sockets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from bk_spark.client.protocol.limits import CopyLimits, ReadLimits
from bk_spark.client.protocol.replace_bookies import last_entry_of
from bk_spark.client.protocol.rereplicate_fragment import FragmentCopied, FragmentTask, RereplicateFragment
from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    CancelRead,
    ChooseReplacements,
    Command,
    Event,
    Finish,
    ForceAnswered,
    MetadataGone,
    MetadataRead,
    MetadataUnknown,
    MetadataWritten,
    ReadArrived,
    ReadEnded,
    ReadMetadata,
    ReplacementsChosen,
    SendAdd,
    SendForce,
    SendRead,
    Start,
    Tick,
    WriteMetadata,
)
from bk_spark.config import DigestType, LedgerOptions
from bk_spark.entries.batch import EntryBatch, decode, encode, seal
from bk_spark.entries.digest import Digester
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookKeeperError, MetadataConflictError, MetadataUnavailableError
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.wire.messages import Status

LEDGER = 7
DIGESTER = Digester(DigestType.CRC32C, b"")
LIMITS = CopyLimits(ReadLimits(1000, 1000, 1 << 20, 1 << 20), add_timeout_ms=1000, window_bytes=1 << 20)


def ledger(entries: int, e: int = 3, w: int = 3, a: int = 2) -> LedgerMetadata:
    """CLOSED behind ``entries`` of ten bytes, on b0, b1, ..."""
    options = LedgerOptions(ensemble_size=e, write_quorum=w, ack_quorum=a)
    made = new_ledger(LEDGER, options, tuple(f"b{slot}" for slot in range(e)), created_ms=0, creator_token=1)
    return made.closed_at(entries - 1, 10 * entries)


def written(entries: int) -> EntryBatch:
    """As a writer makes them, one LAC for each batch of five."""
    payloads = pa.array([b"%010d" % one for one in range(entries)], pa.binary())
    sealed = seal(DIGESTER, LEDGER, 0, payloads, length_before=0, last_add_confirmed=-1)
    lacs = sealed.entry_ids // 5 * 5 - 1
    digests = DIGESTER.compute(LEDGER, sealed.entry_ids, lacs, sealed.lengths, sealed.payloads)
    return replace(sealed, last_add_confirmed=lacs, digests=digests)


@dataclass
class Bookie:
    """Without the journal: what it acked is in memory until it is forced."""

    holds: set[int] = field(default_factory=set)
    durable: set[int] = field(default_factory=set)
    boot: int = 1
    refuses_forces: bool = False
    damaged: set[int] = field(default_factory=set)
    is_fenced: bool = False
    is_dead: bool = False
    adds_until_death: int | None = None
    has_foreign_key: bool = False

    def restart(self) -> None:
        """It is killed and started again: what was not forced is lost."""
        self.holds, self.boot = set(self.durable), self.boot + 1


class World:
    """``stored`` is the metadata, ``bookies`` hold what the metadata says unless a test changes it."""

    def __init__(self, metadata: LedgerMetadata, spares: int = 2) -> None:
        self.stored: LedgerMetadata | None = metadata
        self.version = 0
        self.guards: set[str] = {""}
        self.adds: list[SendAdd] = []
        self.prefers_last = False
        """Of the spares, where bookies are chosen."""
        last = metadata.last_entry_id
        assert last is not None
        self.all = written(last + 1)
        names = {one for fragment in metadata.fragments for one in fragment.ensemble}
        self.bookies = {name: Bookie() for name in sorted(names)} | {f"s{one}": Bookie() for one in range(spares)}
        for fragment, first, end in metadata.fragment_ranges(last):
            for slot, name in enumerate(fragment.ensemble):
                self.bookies[name].holds |= set(metadata.slot_pattern(slot).ids(first, end).tolist())
                self.bookies[name].durable = set(self.bookies[name].holds)

    def lacking(self) -> list[tuple[int, str, int]]:
        """Fragment, bookie and entry, for what the metadata says and is not so on a bookie that lives."""
        assert self.stored is not None
        assert self.stored.last_entry_id is not None
        return [
            (fragment.first_entry_id, name, entry)
            for fragment, first, last in self.stored.fragment_ranges(self.stored.last_entry_id)
            for slot, name in enumerate(fragment.ensemble)
            for entry in self.stored.slot_pattern(slot).ids(first, last).tolist()
            if not self.bookies[name].is_dead and entry not in self.bookies[name].holds
        ]

    def task(self, *leaving: str, index: int = 0, guard: str = "", alive: frozenset[str] = frozenset()) -> FragmentTask:
        assert self.stored is not None
        last = last_entry_of(self.stored, index)
        assert last is not None
        whom = frozenset(leaving)
        return FragmentTask(self.stored, self.version, self.stored.fragments[index], last, whom, guard, alive=alive)

    # --- answers

    def read(self, command: SendRead) -> list[Event]:
        bookie = self.bookies[command.bookie_id]
        number = command.request_id
        if bookie.is_dead:
            return [ReadEnded(number, Status.UNKNOWN, "dead")]
        if bookie.has_foreign_key:
            return [ReadEnded(number, Status.UNAUTHORIZED)]
        due = command.pattern.ids(command.first, command.last).tolist()
        count = next((index for index, one in enumerate(due) if one not in bookie.holds), len(due))
        end = ReadEnded(number, Status.OK) if count == len(due) else ReadEnded(number, Status.NO_SUCH_ENTRY, "", due[count])
        if not count:
            return [end]
        batch = self.all.slice(due[0], due[count - 1] - due[0] + 1)
        texts = [b"X" * 10 if one in bookie.damaged else b"%010d" % one for one in batch.entry_ids.tolist()]
        encoded = encode(replace(batch, payloads=pa.array(texts, pa.binary())), DigestType.CRC32C, command.pattern)
        assert encoded is not None
        return [ReadArrived(number, encoded), end]

    def add(self, command: SendAdd) -> Event:
        self.adds.append(command)
        bookie = self.bookies[command.bookie_id]
        if bookie.adds_until_death is not None:
            bookie.adds_until_death -= 1
            bookie.is_dead = bookie.is_dead or bookie.adds_until_death < 0
        if bookie.is_dead:
            return AddAnswered(command.request_id, Status.UNKNOWN, "dead")
        if bookie.has_foreign_key:
            return AddAnswered(command.request_id, Status.UNAUTHORIZED)
        if bookie.is_fenced and not command.recovery:
            return AddAnswered(command.request_id, Status.FENCED)
        batch = decode(command.batch)
        assert batch.matching(DIGESTER).all()
        assert batch.last_add_confirmed.tolist() == [one // 5 * 5 - 1 for one in batch.entry_ids.tolist()]
        bookie.holds |= set(batch.entry_ids.tolist())
        return AddAnswered(command.request_id, Status.OK, boot=bookie.boot)

    def force(self, command: SendForce) -> Event:
        bookie = self.bookies[command.bookie_id]
        if bookie.is_dead or bookie.refuses_forces:
            return ForceAnswered(command.request_id, Status.UNKNOWN, "dead")
        bookie.durable = set(bookie.holds)
        return ForceAnswered(command.request_id, Status.OK, boot=bookie.boot)

    def choose(self, command: ChooseReplacements) -> Event:
        kept = {one for slot, one in enumerate(command.ensemble) if slot not in command.slots}
        free = [one for one in sorted(self.bookies) if one not in kept | command.excluded and one.startswith("s")]
        free = [one for one in free if command.only in ("", one)]
        chosen = tuple(zip(command.slots, free[::-1] if self.prefers_last else free, strict=False))
        return ReplacementsChosen(command.request_id, chosen, "" if len(chosen) == len(command.slots) else "too few bookies")

    def write(self, command: WriteMetadata) -> Event:
        if self.stored is None:
            return MetadataGone()
        if command.guard not in self.guards:
            return MetadataUnknown(MetadataConflictError("the session", "its guard is gone"))
        if command.expected_version != self.version:
            return MetadataRead(self.stored, self.version)
        self.store(command.metadata)
        return MetadataWritten(self.version)

    def store(self, metadata: LedgerMetadata) -> None:
        self.stored, self.version = metadata, self.version + 1


class Copying:
    """One state machine in a world. What it asked for is answered when ``step`` says so: then it takes effect, too."""

    def __init__(self, world: World, task: FragmentTask, limits: CopyLimits = LIMITS, pace: ByteRate | None = None) -> None:
        self.world = world
        self.machine = RereplicateFragment(task, limits, pace or ByteRate(1 << 40))
        self.now_ms = 0
        self.waiting: list[Command] = []
        self.log: list[Command] = []
        self.lose_replies = 0
        """So many answers to writes of metadata do not arrive."""
        self.end: Finish | None = None
        self.post(Start())

    def post(self, event: Event) -> None:
        self.machine.handle(event, self.now_ms)
        for command in self.machine.take_commands():
            self.log.append(command)
            if isinstance(command, Finish):
                assert self.end is None, "the end comes once"
                self.end = command
            elif isinstance(command, CancelRead):
                self.waiting = [one for one in self.waiting if not _is_read(one, command.request_id)]
            elif isinstance(command, (SendRead, SendAdd, SendForce, ChooseReplacements, WriteMetadata, ReadMetadata)):
                self.waiting.append(command)

    def step(self, index: int = 0) -> None:
        """Carry out one of the commands that wait, and report it; if none does, let time pass."""
        if not self.waiting:
            deadline = self.machine.deadline_ms()
            assert deadline is not None, "it waits for nothing and is not over"
            self.now_ms = max(self.now_ms, deadline)
            self.post(Tick())
            return
        command = self.waiting.pop(index % len(self.waiting))
        if isinstance(command, SendRead):
            for event in self.world.read(command):
                self.post(event)
        else:
            self.post(self._answer(command))

    def run(self, choose: Callable[[int], int] = lambda count: 0) -> Finish:
        for _ in range(10_000):
            if self.end is not None:
                return self.end
            self.step(choose(max(1, len(self.waiting))))
        raise AssertionError("it does not end")

    def copied(self, choose: Callable[[int], int] = lambda count: 0) -> FragmentCopied:
        end = self.run(choose)
        assert end.error is None, end.error
        assert isinstance(end.result, FragmentCopied)
        return end.result

    def failed(self) -> BookKeeperError:
        end = self.run()
        assert end.error is not None
        return end.error

    def _answer(self, command: Command) -> Event:
        world = self.world
        if isinstance(command, SendAdd):
            return world.add(command)
        if isinstance(command, SendForce):
            return world.force(command)
        if isinstance(command, ChooseReplacements):
            return world.choose(command)
        if isinstance(command, ReadMetadata):
            return MetadataGone() if world.stored is None else MetadataRead(world.stored, world.version)
        assert isinstance(command, WriteMetadata)
        answer = world.write(command)
        if self.lose_replies:
            self.lose_replies -= 1
            return MetadataUnknown(MetadataUnavailableError("memory://", "connection lost"))
        return answer


def by_chance(seed: int) -> Callable[[int], int]:
    return random.Random(seed).randrange


def _is_read(command: Command, request_id: int) -> bool:
    return isinstance(command, SendRead) and command.request_id == request_id
