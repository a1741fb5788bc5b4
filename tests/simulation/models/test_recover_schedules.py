"""Random schedules of a recovery: an old writer whose adds are still on their way, bookies that come and go, damaged copies,
lost, late and reordered messages, one or two recoverers, of which some die. A seed names a schedule.

What must hold whatever happened is in ``Run.check``; that recovery mostly gets through all this by itself is in the test.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from bk_spark.client.protocol.state_machine import (
    ChooseReplacements,
    Event,
    LastAddConfirmedAnswered,
    MarkUnderReplicated,
    ReadEnded,
    ReadMetadata,
    SendAdd,
    SendForce,
    SendRead,
    SendReadLastAddConfirmed,
    Start,
    Tick,
    WriteMetadata,
)
from bk_spark.entries.batch import NO_ENTRY, EntryBatch
from bk_spark.metadata.ledger_metadata import LedgerState
from bk_spark.quorum import write_set
from bk_spark.wire.messages import Status
from tests.budget import IS_SOAK
from tests.unit.client.protocol.recovery_model import Cluster, Recovery, Request, entry, length_up_to, limits

SHAPES = [(3, 3, 2), (4, 3, 2), (5, 3, 2), (2, 2, 1), (3, 2, 2), (2, 2, 2), (3, 3, 1), (3, 3, 3), (5, 5, 3)]
SCHEDULES = 1500 if IS_SOAK else 120
MAX_STEPS = 6000


@dataclass
class Flying:
    """A request on its way to a bookie, or the rest of its answer on the way back."""

    recovery: Recovery
    request: Request | None
    answers: list[Event]


class OldWriter:
    """Sends entries to write sets, and counts what their bookies acked. Some copies stay on their way, some are lost."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.acks: list[set[str]] = []
        self.lac = NO_ENTRY
        self.flying: list[tuple[str, EntryBatch]] = []
        for entry_id in range(chance.randint(0, 14)):
            self._send(entry_id)

    def _send(self, entry_id: int) -> None:
        metadata = self.cluster.store.metadata
        batch = entry(entry_id, self.lac)
        self.acks.append(set())
        for slot in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum):
            luck = self.chance.random()
            if luck < 0.75:
                self.deliver(f"b{slot}", batch)
            elif luck < 0.95:
                self.flying.append((f"b{slot}", batch))

    def deliver(self, name: str, batch: EntryBatch) -> None:
        if self.cluster.bookies[name].put(batch, recovery=False) is Status.OK:
            self.acks[int(batch.entry_ids[0])].add(name)
        quorum = self.cluster.store.metadata.ack_quorum
        while self.lac + 1 < len(self.acks) and len(self.acks[self.lac + 1]) >= quorum:
            self.lac += 1


class Run:
    """Plays one schedule."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        shape = self.chance.choice(SHAPES)
        self.cluster = Cluster(*shape)
        self.cluster.spares = [f"b{shape[0] + i}" for i in range(self.chance.randint(0, 3))]
        self.members = [f"b{i}" for i in range(shape[0])]
        self.writer = OldWriter(self.cluster, self.chance)
        for name in self.members:
            held = sorted(self.cluster.bookies[name].entries)
            self.cluster.bookies[name].damaged = {i for i in held if self.chance.random() < 0.05}
        used = limits(window_entries=self.chance.choice([1, 3, 100]), request_bytes=self.chance.choice([1, 400, 100_000]))
        self.recoveries = [Recovery(self.cluster, used) for _ in range(self.chance.choice([1, 1, 2]))]
        self.running = list(self.recoveries)
        self.flying: list[Flying] = []
        self.down: set[str] = set()
        self.now_ms = 0

    def play(self) -> None:
        for recovery in self.recoveries:
            recovery.do(Start())
        for step in range(MAX_STEPS):
            self.running = [one for one in self.running if one.finish is None]
            if not self.running:
                break
            if step == MAX_STEPS // 2:
                self.down.clear()
            self._step()
        assert not self.running, "a recovery does not end"

    def heal(self) -> None:
        """All bookies work again, damage is repaired: now a recovery must close the ledger. The last old adds come after it."""
        for bookie in self.cluster.bookies.values():
            bookie.damaged.clear()
        self.recoveries.append(Recovery(self.cluster))
        self.recoveries[-1].ends_at()
        for name, batch in self.writer.flying:
            self.writer.deliver(name, batch)

    def check(self) -> None:
        metadata = self.cluster.store.metadata
        assert [one.state for one in self.cluster.store.history] == [LedgerState.IN_RECOVERY, LedgerState.CLOSED]
        end = metadata.last_entry_id
        assert end is not None
        assert self.writer.lac <= end < len(self.writer.acks)
        assert metadata.length == length_up_to(end)
        assert max(bookie.lac for bookie in self.cluster.bookies.values()) <= end
        for entry_id in range(end + 1):
            slots = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
            holders = {metadata.fragment_of(entry_id).ensemble[slot] for slot in slots} & self.cluster.holders(entry_id)
            assert len(holders) >= metadata.ack_quorum, f"entry {entry_id} is on {holders}"
        for one in self.recoveries:
            assert one.finish is None or one.finish.error or one.finish.result == (metadata, self.cluster.store.version)

    # --- one step

    def _step(self) -> None:
        for recovery in self.running:
            self._collect(recovery)
        luck = self.chance.random()
        if luck < 0.03:
            self.down ^= {self.chance.choice(self.members)}
        elif luck < 0.031 and len(self.recoveries) > 1:
            self.running.remove(self.chance.choice(self.running))
        elif luck < 0.1 and self.writer.flying:
            self.writer.deliver(*self.writer.flying.pop(self.chance.randrange(len(self.writer.flying))))
        elif luck < 0.95 and self.flying:
            self._fly(self.flying[self.chance.randrange(len(self.flying))])
        elif luck >= 0.99 or not self.flying:
            self._pass_time()

    def _collect(self, recovery: Recovery) -> None:
        """What it wants of bookies flies; the store and the choice of bookies answer at once, or, the store, a little later."""
        while recovery.inbox:
            command = recovery.inbox[0]
            is_metadata = isinstance(command, (WriteMetadata, ReadMetadata))
            if is_metadata and self.chance.random() < 0.7:
                return
            recovery.inbox.popleft()
            if isinstance(command, SendReadLastAddConfirmed | SendRead | SendAdd | SendForce):
                self.flying.append(Flying(recovery, command, []))
            elif is_metadata or isinstance(command, ChooseReplacements | MarkUnderReplicated):
                recovery.deliver(command)

    def _fly(self, message: Flying) -> None:
        if message.request is not None:
            self._reach(message, message.request)
        elif self.chance.random() < 0.03:
            self.flying.remove(message)
        else:
            message.recovery.do(message.answers.pop(0))
        if not message.answers and message in self.flying:
            self.flying.remove(message)

    def _reach(self, message: Flying, request: Request) -> None:
        """A request reaches its bookie, or is lost; so may be its answer, after it was carried out."""
        message.request = None
        if request.bookie_id not in self.down and self.chance.random() < 0.95:
            message.answers = message.recovery.answers(request)
        elif isinstance(request, SendReadLastAddConfirmed) and self.chance.random() < 0.5:
            message.answers = [LastAddConfirmedAnswered(request.request_id, Status.UNKNOWN, NO_ENTRY)]
        elif isinstance(request, SendRead) and self.chance.random() < 0.5:
            message.answers = [ReadEnded(request.request_id, self.chance.choice([Status.UNKNOWN, Status.IO_ERROR]))]

    def _pass_time(self) -> None:
        waiting = [one for one in self.running if one.finish is None]
        deadlines = [deadline for one in waiting if (deadline := one.machine.deadline_ms()) is not None]
        if not deadlines:
            assert not waiting or self.flying or any(one.inbox for one in waiting), "nobody is waiting for anything"
            return
        self.now_ms = max(self.now_ms, min(deadlines))
        for one in waiting:
            one.now_ms = self.now_ms
            one.do(Tick())


@pytest.mark.parametrize("block", range(6))
def test_no_schedule_cuts_off_a_confirmed_entry_or_closes_behind_one_that_too_few_bookies_hold(block: int) -> None:
    """Rules 1 to 15; situations 24, 25, 28, 30, 35 and 37."""
    closed = 0
    for seed in range(block * SCHEDULES // 6, (block + 1) * SCHEDULES // 6):
        run = Run(seed)
        try:
            run.play()
            closed += run.cluster.store.metadata.is_closed
            run.heal()
            run.check()
        except AssertionError as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem
    assert closed >= SCHEDULES // 6 // 2
