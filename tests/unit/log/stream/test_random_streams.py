"""Streams over random histories of a log: each reads all that can be read, once and in order, whatever comes between.

Ref: docs/rules.md, log rule 6.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from bk_spark.log.stored.values import CommitKind
from bk_spark.log.stream.positions import behind
from tests.unit.log.stream.stream_world import NAME, Stream, StreamWorld, entries

HISTORIES = range(60, 140)
"""Seeds, so chosen that the fault of the last test is found, too."""
CHANGES = ("open", "roll", "append", "recover", "confirm", "confirm", "confirm", *("compact", "vacuum", "follow", "poll") * 2)


@dataclass
class Follower:
    """A stream, and the number of the first entry that it shall read."""

    stream: Stream
    first: int


@dataclass
class History:
    """A random program over one log. Entries have numbers in the log's order; compaction keeps them."""

    chance: random.Random
    world: StreamWorld = field(default_factory=StreamWorld)
    followers: list[Follower] = field(default_factory=list)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    """Ledger and entry → the number of the entry."""
    leader: int | None = None
    trace: list[str] = field(default_factory=list)

    def run(self) -> None:
        self.follow()
        for _ in range(self.chance.randint(5, 40)):
            self.trace.append(self.chance.choice(CHANGES))
            getattr(self, self.trace[-1])()
        self.recover()
        self.poll(of=1.0)

    def open(self) -> None:
        self.leader = self.world.open()

    def roll(self) -> None:
        if self.leader is not None:
            self.leader = self.world.roll()

    def append(self) -> None:
        self.world.append(*[self.chance.randint(1, 3) for _ in range(self.chance.randint(1, 2))])
        self.leader = None

    def confirm(self) -> None:
        """A leader sends to its last ledger once the one before it is complete, which then is closed."""
        if self.leader is not None:
            for one in self.world.head.writer.open_ledgers[:-1]:
                self.world.close_at(one.ledger_id)
            self.world.confirm(self.leader, self.chance.randint(1, 3))

    def compact(self) -> None:
        listed = [one.ledger_id for one in self.world.logs.reader.snapshot(NAME).ledgers]
        if len(listed) > 1:
            first = self.chance.randrange(len(listed) - 1)
            removed = listed[first : first + self.chance.randint(2, 3)]
            number = self.number_all()[removed[0], 0]
            merged = self.world.compact(*removed)
            self.numbers |= {one: number + index for index, one in enumerate(entries(merged, self.world.size(merged)))}

    def vacuum(self) -> None:
        """It deletes the old listings. Whoever stands in one, in a ledger that a compaction replaced, is told of data loss."""
        listed = {ledger_id for ledger_id, _ in self.number_all()}
        places = [one.stream.position for one in self.followers]
        self.followers = [
            one for one, at in zip(self.followers, places, strict=True) if at.index >= 0 or at.ledger_id in listed
        ]
        self.world.vacuum()

    def recover(self) -> None:
        if self.world.head.writer.open_ledgers:
            self.world.commit(CommitKind.APPEND)
        self.leader = None

    def follow(self) -> None:
        """A stream that begins at the first entry, or behind the last one."""
        follower, head = self.world.follower(), self.world.head
        if self.chance.random() < 0.5:
            self.followers.append(Follower(Stream(self.world, follower.earliest(head)), 0))
        else:
            latest = follower.latest(head, self.world.ends())
            self.followers.append(Follower(Stream(self.world, latest), len(self.number_all())))

    def poll(self, of: float = 0.5) -> None:
        """Some streams read until nothing comes, and then have read all there is."""
        numbers = self.number_all()
        for one in self.followers:
            if self.chance.random() < of:
                while one.stream.poll():
                    pass
                assert [self.numbers[entry] for entry in one.stream.read] == list(range(one.first, len(numbers))), self.trace

    def number_all(self) -> dict[tuple[int, int], int]:
        """The entries that the log lists now, each with its number."""
        snapshot = self.world.logs.reader.snapshot(NAME)
        listed = [one.ledger_id for one in (*snapshot.ledgers, *snapshot.open_ledgers)]
        found = [entry for ledger_id in listed for entry in entries(ledger_id, self.world.size(ledger_id))]
        now = {entry: number for number, entry in enumerate(found)}
        self.numbers |= now
        return now


@pytest.mark.parametrize("first", HISTORIES[::20])
def test_a_stream_reads_all_that_can_be_read_once_and_in_order_in_every_history(first):
    """Log rule 6."""
    for seed in range(first, first + 20):
        History(random.Random(seed)).run()


def test_a_stream_reads_a_leaders_entries_although_its_ledger_is_older_than_all_that_a_vacuum_kept():
    """The ledger stands in the listing of the oldest version, behind what a compaction made meanwhile."""
    world = StreamWorld()
    ids = [world.append(5)[0] for _ in range(2)]
    opened = world.open()
    world.confirm(opened, 2)
    stood = Stream(world, behind(0))
    stood.position = stood.newest().position
    compacted = world.compact(*ids)
    world.vacuum()
    fresh = Stream(world, world.follower().earliest(world.head))
    assert fresh.poll() == [*entries(compacted, 10), *entries(opened, 2)]
    world.confirm(opened, 1)
    assert (fresh.poll(), stood.poll()) == (entries(opened, 1, 2), entries(opened, 1, 2))
    then = world.roll()
    world.close_at(opened)
    world.confirm(then, 1)
    assert (fresh.poll(), stood.poll()) == (entries(then, 1), entries(then, 1))
