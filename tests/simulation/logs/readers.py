"""The processes of a duel that read: streams, which follow the log's commits, and batch reads of what it lists."""

from __future__ import annotations

from collections.abc import Callable

from bk_spark.errors import DataLossError, NoSuchLedgerError
from bk_spark.log.stored.values import Head
from bk_spark.log.stream.follow import LedgerEnd, LogFollower, PlacedStretch
from bk_spark.log.stream.order import READ
from bk_spark.log.stream.plan_again import planned
from bk_spark.log.stream.positions import StreamPosition, behind
from tests.simulation.logs.audit import require
from tests.simulation.logs.clients import EXPECTED, rest
from tests.simulation.logs.world import LOG, Machine


class Stream:
    """Micro-batch after micro-batch from the log's beginning on. Its checkpoint outlives the process that reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.position: StreamPosition = behind(0)
        self.is_lost = False
        """Truncation or vacuum overtook it."""

    def next_batch(self, machine: Machine) -> None:
        """Everything there is now. Raises what planning and reading do; then nothing of it counts."""
        world, names = machine.world, machine.logs.names
        follower = LogFollower(machine.logs.reader, LOG, world.uid, READ, machine.ledgers.existing)
        head = names.head(LOG, world.uid)
        ends = {one.ledger_id: _end(machine, one.ledger_id) for one in head.writer.open_ledgers}
        newest = planned(names, world.uid, head, lambda head: follower.newest(head, ends, self.position)).position
        payloads: list[bytes] = []
        for stretch in planned(names, world.uid, head, lambda head: self._stretches(follower, newest, head)):
            payloads += _read(machine, stretch)
        machine.note(f"reads {len(payloads)} rows from {self.position} to {newest}")
        world.history.read(self.name, payloads)
        world.marks["rows streamed"] += len(payloads)
        self.position = newest

    def _stretches(self, follower: LogFollower, end: StreamPosition, head: Head) -> list[PlacedStretch]:
        return list(follower.stretches(self.position, end, head, fail_on_data_loss=True))

    def _lose(self, machine: Machine, problem: DataLossError) -> None:
        """What it was to read next must indeed be gone: its row is listed no more."""
        first_row, row = machine.world.audit.head.first_row, len(machine.world.history.readings.get(self.name, []))
        require(row < first_row, "L5", f"{self.name} has read {row} rows, {first_row} are gone, and it is told: {problem}")
        machine.world.marks["streams lost"] += 1
        self.is_lost = True

    def body(self, rounds: int) -> Callable[[Machine], None]:
        def body(machine: Machine) -> None:
            for _ in range(rounds):
                rest(machine)
                try:
                    self.next_batch(machine)
                except DataLossError as problem:
                    machine.note(f"is lost: {problem}")
                    self._lose(machine, problem)
                    return
                except EXPECTED as problem:
                    machine.note(f"fails: {problem}")

        return body


def batch_reader(rounds: int) -> Callable[[Machine], None]:
    """Reads the whole log as it stands, with its open ledgers."""

    def body(machine: Machine) -> None:
        for _ in range(rounds):
            rest(machine)
            try:
                payloads = [one.as_py() for batch in machine.log.read() for one in batch.column("payload")]
            except EXPECTED as problem:
                machine.note(f"fails: {problem}")
                continue
            machine.world.history.stretches.append(payloads)
            machine.world.marks["rows read"] += len(payloads)

    return body


def _end(machine: Machine, ledger_id: int) -> LedgerEnd:
    ledger = machine.ledgers.open(ledger_id)
    return LedgerEnd(ledger.last_add_confirmed, ledger.is_closed)


def _read(machine: Machine, stretch: PlacedStretch) -> list[bytes]:
    try:
        machine.ledgers.versioned(stretch.ledger_id)  # raises where it is gone
        payloads = machine.world.bookies[stretch.ledger_id].pushed
    except NoSuchLedgerError:
        payloads = machine.open(stretch.ledger_id).bookies.pushed
    return payloads[stretch.first_entry_id : stretch.last_entry_id + 1]
