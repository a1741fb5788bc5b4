"""Random schedules of a read: damage by entry and by replica, bookies down or silent, tight budgets, slow consumers.

Every entry keeps at least one good replica, so every schedule must end with all entries in order; a seed names a schedule.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from bk_spark.client.operation import (
    CancelRead,
    Command,
    Consumed,
    Deliver,
    Event,
    Finish,
    ReadArrived,
    ReadEnded,
    SendRead,
    Start,
    Tick,
)
from bk_spark.client.read_entries import ReadEntries, ReadLimits
from bk_spark.config import DigestType, LedgerOptions
from bk_spark.digest import Digester
from bk_spark.entry import EncodedBatch, encode, seal
from bk_spark.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.quorum import write_set
from bk_spark.wire import Status

SCHEDULES = 400
MAX_STEPS = 5000
DIGESTER = Digester(DigestType.CRC32C, b"")


class Schedule:
    """What a seed draws: the shape, the entries' sizes, and what is wrong with whom."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.e = self.random.randint(1, 5)
        self.w = self.random.randint(1, self.e)
        self.sizes = [self.random.choice([0, 10, 10, 500, 5000]) for _ in range(self.random.randint(1, 40))]
        self.down = {s for s in range(self.e) if self.random.random() < 0.2}
        self.silent = {s for s in range(self.e) if self.random.random() < 0.15}
        wrong = (Status.DAMAGED, Status.NO_SUCH_ENTRY)
        places = [(s, i) for s in range(self.e) for i in range(len(self.sizes)) if self.random.random() < 0.15]
        self.bad = {place: self.random.choice(wrong) for place in places}
        for entry_id in range(len(self.sizes)):
            self._keep_one(entry_id)
        self.limits = ReadLimits(1000, self.random.choice([600, 6000]), self.random.choice([500, 5000, 50000]))

    def _keep_one(self, entry_id: int) -> None:
        holders = write_set(entry_id, self.e, self.w)
        if any(s not in self.down and s not in self.silent and (s, entry_id) not in self.bad for s in holders):
            return
        kept = self.random.choice(holders)
        self.down.discard(kept)
        self.silent.discard(kept)
        self.bad.pop((kept, entry_id), None)

    def metadata(self) -> LedgerMetadata:
        options = LedgerOptions(ensemble_size=self.e, write_quorum=self.w, ack_quorum=1)
        return new_ledger(7, options, tuple(f"b{s}" for s in range(self.e)), created_ms=0, creator_token=0)


@dataclass
class _Request:
    command: SendRead
    position: int
    sent: int = 0


@dataclass
class Run:
    """Plays one schedule against the state machine, one random event at a time."""

    schedule: Schedule
    now_ms: int = 0
    requests: dict[int, _Request] = field(default_factory=dict)
    delivered: list[int] = field(default_factory=list)
    unconsumed: list[int] = field(default_factory=list)
    finish: Finish | None = None

    def play(self) -> Finish:
        last = len(self.schedule.sizes) - 1
        self.machine = ReadEntries(self.schedule.metadata(), 0, last, self.schedule.limits)
        self._post(Start())
        for _ in range(MAX_STEPS):
            if self.finish is not None:
                return self.finish
            self._step()
        raise AssertionError("the read does not end")

    def _step(self) -> None:
        active = [r for r in self.requests.values() if int(r.command.bookie_id[1:]) not in self.schedule.silent]
        choices: list[_Request | None] = [*active, *([None] if self.unconsumed else [])]
        if not choices:
            deadline = self.machine.deadline_ms()
            assert deadline is not None, "nothing is under way and no deadline is set: the reader would wait for ever"
            self.now_ms = deadline
            self._post(Tick())
            return
        chosen = self.schedule.random.choice(choices)
        if chosen is None:
            self._post(Consumed(self.unconsumed.pop(0)))
        else:
            self._answer(chosen)

    def _answer(self, request: _Request) -> None:
        """The next thing that the bookie of a request says."""
        command, slot = request.command, int(request.command.bookie_id[1:])
        position = next((i for i in range(request.position, command.last + 1) if command.pattern.holds(i)), command.last + 1)
        if slot in self.schedule.down:
            self._end(command, Status.UNKNOWN, None)
        elif position > command.last:
            self._end(command, Status.OK, command.last + 1)
        elif (slot, position) in self.schedule.bad:
            self._end(command, self.schedule.bad[slot, position], position)
        else:
            self._send(request, position)

    def _send(self, request: _Request, position: int) -> None:
        batch = self._entry(position, request.command)
        if request.sent and request.sent + len(batch.body) > request.command.maximum_bytes:
            self._end(request.command, Status.OK, position)
            return
        request.position, request.sent = position + 1, request.sent + len(batch.body)
        self._post(ReadArrived(request.command.request_id, batch))

    def _entry(self, entry_id: int, command: SendRead) -> EncodedBatch:
        payload = pa.array([b"x" * self.schedule.sizes[entry_id]], pa.binary())
        before = sum(self.schedule.sizes[:entry_id])
        sealed = seal(DIGESTER, 7, entry_id, payload, length_before=before, last_add_confirmed=entry_id - 1)
        encoded = encode(sealed, DigestType.CRC32C, command.pattern)
        assert encoded is not None
        return encoded

    def _end(self, command: SendRead, status: Status, entry_id: int | None) -> None:
        del self.requests[command.request_id]
        self._post(ReadEnded(command.request_id, status, "", entry_id))

    def _post(self, event: Event) -> None:
        self.machine.handle(event, self.now_ms)
        for command in self.machine.take_commands():
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, SendRead):
            self.requests[command.request_id] = _Request(command, command.first)
        elif isinstance(command, CancelRead):
            self.requests.pop(command.request_id, None)
        elif isinstance(command, Deliver):
            self.delivered += command.batch.entry_ids.tolist()
            self.unconsumed.append(command.batch.nbytes)
        elif isinstance(command, Finish):
            self.finish = command


@pytest.mark.parametrize("block", range(4))
def test_with_a_good_replica_of_every_entry_every_schedule_reads_everything_in_order(block: int) -> None:
    for seed in range(block * SCHEDULES // 4, (block + 1) * SCHEDULES // 4):
        run = Run(Schedule(seed))
        finish = run.play()
        assert finish.error is None, f"seed {seed}: {finish.error}"
        assert run.delivered == list(range(len(run.schedule.sizes))), f"seed {seed}"
