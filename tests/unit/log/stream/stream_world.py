"""A log with a leader and all kinds of commits, in memory, and a stream that follows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup.vacuum import LogVacuum
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Content, Head, LogVersion, Retention
from bk_spark.log.stream.follow import LedgerEnd, LogFollower, Newest, PlacedStretch
from bk_spark.log.stream.positions import StreamPosition
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.unit.log.aged_world import AgedWorld

NAME = "orders"


class StreamWorld(AgedWorld):
    """One log of entries. A leader's entries are confirmed by ``confirm``."""

    def __init__(self) -> None:
        self.confirmed: dict[int, int] = {}
        """Open ledger → how many of its entries are confirmed."""
        self.sizes: dict[int, int] = {}
        super().__init__()
        self.uid = self.logs.open(NAME, create=True)
        self.epoch = 0

    @property
    def head(self) -> Head:
        return self.logs.names.head(NAME, self.uid)

    def recover(self, ledger_id: int) -> LedgerMetadata:
        return self.close_at(ledger_id)

    def close_at(self, ledger_id: int) -> LedgerMetadata:
        """The ledger is closed behind its confirmed entries."""
        path = self.znodes.ledger(ledger_id)
        stored = self.store.get(path)
        metadata = LedgerMetadata.decode(ledger_id, stored.value)
        if not metadata.is_closed:
            count = self.confirmed[ledger_id]
            metadata = metadata.closed_at(count - 1, count * 100)
            self.store.set(path, metadata.encode(), stored.version)
        return metadata

    def commit(self, kind: CommitKind, ledgers: Sequence[CommittedLedger] = (), **more: Any) -> LogVersion:
        job = self.logs.jobs.begin(NAME)
        return self.logs.commit(job, CommitRequest(kind, tuple(ledgers), **more))

    def append(self, *sizes: int) -> list[int]:
        """A commit of ledgers of so many entries."""
        return self.add(CommitKind.APPEND, sizes)

    def add(self, kind: CommitKind, sizes: Sequence[int], remove: Sequence[int] = ()) -> list[int]:
        added = [self.plain_ledger(size) for size in sizes]
        self.commit(kind, added, remove=tuple(remove))
        return [one.ledger_id for one in added]

    def compact(self, *remove: int) -> int:
        """Put one ledger in the place of these."""
        rows = sum(one.rows for one in self.logs.reader.snapshot(NAME).ledgers if one.ledger_id in remove)
        return self.add(CommitKind.COMPACT, [rows], remove)[0]

    def truncate(self, before: int) -> None:
        self.logs.truncate(NAME, self.uid, before)

    def vacuum(self) -> None:
        """Delete everything that is not of the newest version."""
        self.logs.set_retention(NAME, self.uid, Retention(version_retention_s=0))
        self.pass_s(1)
        LogVacuum(self.logs).run(NAME)

    def open(self) -> int:
        """A leader opens the log."""
        job = self.logs.jobs.begin(NAME)
        opened = self.open_ledger(job)
        self.confirmed[opened] = 0
        self.epoch = self.logs.commit(job, CommitRequest(CommitKind.APPEND, opened=opened)).epoch
        return opened

    def roll(self) -> int:
        """The leader goes on in another ledger; the one before the last is closed, and recorded."""
        open_ids = [one.ledger_id for one in self.head.writer.open_ledgers]
        job = self.logs.jobs.begin(NAME)
        opened = self.open_ledger(job)
        self.confirmed[opened] = 0
        ends = tuple(self.end_of(one) for one in open_ids[:-1])
        self.logs.commit(job, CommitRequest(CommitKind.APPEND, opened=opened, leader_epoch=self.epoch, closed=ends))
        return opened

    def confirm(self, ledger_id: int, count: int) -> None:
        self.confirmed[ledger_id] += count

    def end_of(self, ledger_id: int) -> CommittedLedger:
        metadata = self.close_at(ledger_id)
        last = metadata.last_entry_id
        assert last is not None
        return CommittedLedger(ledger_id, last, metadata.length, last + 1)

    def recover_all(self) -> None:
        for one in self.head.writer.open_ledgers:
            self.close_at(one.ledger_id)

    def size(self, ledger_id: int) -> int:
        """How many entries a ledger has that is closed or a leader's."""
        return self.confirmed[ledger_id] if ledger_id in self.confirmed else self.sizes[ledger_id]

    def plain_ledger(self, entries: int = 10, **more: Any) -> CommittedLedger:
        ledger = super().plain_ledger(entries, **more)
        self.sizes[ledger.ledger_id] = entries
        return ledger

    def ends(self) -> dict[int, LedgerEnd]:
        """What bookies and metadata say of the head's open ledgers."""
        ends = {}
        for one in self.head.writer.open_ledgers:
            value = self.store.get(self.znodes.ledger(one.ledger_id)).value
            is_closed = LedgerMetadata.decode(one.ledger_id, value).is_closed
            ends[one.ledger_id] = LedgerEnd(self.confirmed[one.ledger_id] - 1, is_closed)
        return ends

    def follower(self, overwrites: str = "fail", logs: LogStore | None = None) -> LogFollower:
        return LogFollower((logs or self.logs).reader, NAME, self.uid, overwrites, self.existing)

    def existing(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata]:
        found = self.store.get_many([self.znodes.ledger(one) for one in ledger_ids])
        pairs = zip(ledger_ids, found, strict=True)
        return [LedgerMetadata.decode(one, value.value) for one, value in pairs if value is not None]


@dataclass
class Stream:
    """Follows the log as Spark does: from one newest position to the next."""

    world: StreamWorld
    position: StreamPosition
    overwrites: str = "fail"
    fail_on_data_loss: bool = True
    read: list[tuple[int, int]] = field(default_factory=list)
    """Ledger and entry of all that was read."""
    batches: list[tuple[StreamPosition, StreamPosition, list[PlacedStretch]]] = field(default_factory=list)

    def newest(self) -> Newest:
        return self.world.follower(self.overwrites).newest(self.world.head, self.world.ends(), self.position)

    def stretches(self, start: StreamPosition, end: StreamPosition) -> list[PlacedStretch]:
        follower, head = self.world.follower(self.overwrites), self.world.head
        return list(follower.stretches(start, end, head, fail_on_data_loss=self.fail_on_data_loss))

    def poll(self) -> list[tuple[int, int]]:
        """One micro-batch, if there is something new; what it read."""
        end = self.newest().position
        assert end >= self.position
        if end == self.position:
            return []
        stretches = self.stretches(self.position, end)
        self.batches.append((self.position, end, stretches))
        self.position = end
        entries = list(entries_of(stretches))
        self.read += entries
        return entries


def entries_of(stretches: Sequence[PlacedStretch]) -> Iterator[tuple[int, int]]:
    for stretch in stretches:
        assert stretch.content is Content.ENTRIES
        for entry_id in range(stretch.first_entry_id, stretch.last_entry_id + 1):
            yield stretch.ledger_id, entry_id


def entries(ledger_id: int, count: int, first: int = 0) -> list[tuple[int, int]]:
    return [(ledger_id, entry_id) for entry_id in range(first, first + count)]
