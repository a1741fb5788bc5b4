"""Random commits, folded by a plain list and by readers that start at checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace

import pytest

from bk_spark.errors import CorruptionError, MetadataConflictError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.listing import Listing, ListingFold, position_of
from bk_spark.log.stored.values import CommitKind, CommittedLedger, LogVersion, OpenLedger, Page
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.log.log_world import LogWorld

OPENED_ROWS = 10
"""What ``LogWorld.recover`` finds in a ledger that its writer left open."""


@dataclass
class NaiveLog:
    """A list of ledgers, each a list of row numbers; None for one whose end is not recorded."""

    ledgers: list[tuple[int, list[int] | None]] = field(default_factory=list)
    next_row: int = 0
    replaced: int = 0
    base: int = 0
    history: list[tuple[list[int], list[int], int, int]] = field(default_factory=list)
    """Of each version: closed ledgers, open ones, row number of the first row, and behind the last one."""

    def new_rows(self, count: int) -> list[int]:
        self.next_row += count
        return list(range(self.next_row - count, self.next_row))

    def open(self) -> list[int]:
        return [one for one, rows in self.ledgers if rows is None]

    def closed(self) -> list[tuple[int, list[int]]]:
        return [(one, rows) for one, rows in self.ledgers if rows is not None]

    def close(self, count: int | None = None) -> None:
        """The first ``count`` open ledgers end; all, if it is None."""
        for one in self.open()[:count]:
            place = [name for name, _ in self.ledgers].index(one)
            self.ledgers[place] = (one, self.new_rows(OPENED_ROWS))

    def add(self, ledgers: list[CommittedLedger]) -> None:
        self.ledgers += [(one.ledger_id, self.new_rows(one.rows)) for one in ledgers]

    def record(self) -> None:
        numbers = [row for _, rows in self.closed() for row in rows]
        assert numbers == list(range(self.next_row - len(numbers), self.next_row)), "row numbers have no gaps"
        first = self.next_row - len(numbers)
        self.history.append(([one for one, _ in self.closed()], self.open(), first, self.next_row))


class Commits:
    """Makes the same commit in a log and in the naive one."""

    def __init__(self, world: LogWorld) -> None:
        self.world = world
        self.naive = NaiveLog()
        self.epoch = 0
        self.found_closed: list[int] = []
        world.logs.open("orders", create=True)

    def commit(self, kind: CommitKind, ledgers: list[CommittedLedger], **more: object) -> LogVersion:
        job = self.world.logs.jobs.begin("orders")
        return self.world.logs.commit(job, CommitRequest(kind, tuple(ledgers), **more))  # type: ignore[arg-type]

    def ledgers(self, sizes: list[int]) -> list[CommittedLedger]:
        return [self.world.plain_ledger(size) for size in sizes]

    def recover(self, sizes: list[int], start: int) -> None:
        """A reader recovers the leader's ledgers: the next commit of any kind finds them closed."""
        self.found_closed = [self.world.close_ledger(one).ledger_id for one in self.naive.open()]

    def close_found(self) -> None:
        """What a commit does that displaces nobody."""
        self.naive.close(len([one for one in self.naive.open() if one in self.found_closed]))

    def append(self, sizes: list[int], start: int) -> None:
        added = self.ledgers(sizes)
        self.commit(CommitKind.APPEND, added)
        self.naive.close()
        self.naive.add(added)

    def overwrite(self, sizes: list[int], start: int) -> None:
        added = self.ledgers(sizes)
        self.commit(CommitKind.OVERWRITE, added)
        self.naive.close()
        self.naive.ledgers = []
        self.naive.add(added)

    def replace(self, sizes: list[int], start: int) -> None:
        removed = self._stretch(sizes, start)
        if removed:
            added = self.ledgers(sizes)
            self.commit(CommitKind.REPLACE, added, remove=tuple(removed))
            self._put(removed, [(one.ledger_id, [0] * one.rows) for one in added])
            self.renumber()

    def compact(self, sizes: list[int], start: int) -> None:
        removed = self._stretch(sizes, start)
        if removed:
            rows = [row for one, rows in self.naive.closed() if one in removed for row in rows]
            (added,) = self.ledgers([len(rows)])
            self.commit(CommitKind.COMPACT, [added], remove=tuple(removed))
            self.close_found()
            self._put(removed, [(added.ledger_id, rows)])

    def truncate(self, sizes: list[int], start: int) -> None:
        names = [one for one, _ in self.naive.closed()] + self.naive.open()[:1]
        place = start % len(names) if names else 0
        if place:
            self.world.logs.truncate("orders", self.world.logs.names.uid("orders"), names[place])
            self.close_found()
            self.naive.ledgers = self.naive.ledgers[place:]

    def open(self, sizes: list[int], start: int) -> None:
        job = self.world.logs.jobs.begin("orders")
        opened = self.world.open_ledger(job)
        self.epoch = self.world.logs.commit(job, CommitRequest(CommitKind.APPEND, opened=opened)).epoch
        self.naive.close()
        self.naive.ledgers.append((opened, None))

    def roll(self, sizes: list[int], start: int) -> None:
        if not self.naive.open():
            return
        ends = [self.world.close_ledger(one) for one in self.naive.open()[:-1]]
        job = self.world.logs.jobs.begin("orders")
        opened = self.world.open_ledger(job)
        self.world.logs.commit(
            job, CommitRequest(CommitKind.APPEND, opened=opened, closed=tuple(ends), leader_epoch=self.epoch)
        )
        self.naive.close(len(ends))
        self.naive.ledgers.append((opened, None))

    def close(self, sizes: list[int], start: int) -> None:
        ends = [self.world.close_ledger(one) for one in self.naive.open()]
        if ends:
            self.commit(CommitKind.APPEND, [], closed=tuple(ends), leader_epoch=self.epoch)
            self.naive.close()

    def renumber(self) -> None:
        """A stream reads the whole content anew, that of the ledgers that ended with it too."""
        first = self.naive.next_row
        self.close_found()
        self.naive.next_row = first
        found = self.naive.ledgers
        self.naive.ledgers = [(one, None if rows is None else self.naive.new_rows(len(rows))) for one, rows in found]

    def _stretch(self, sizes: list[int], start: int) -> list[int]:
        names = [one for one, _ in self.naive.closed()]
        first = start % len(names) if names else 0
        return names[first : first + len(sizes) + 1]

    def _put(self, removed: list[int], added: list[tuple[int, list[int] | None]]) -> None:
        place = [one for one, _ in self.naive.ledgers].index(removed[0])
        self.naive.ledgers[place : place + len(removed)] = added

    def record(self) -> None:
        """What the naive log is at each version that the last step made: one, or none."""
        while len(self.naive.history) < self.world.logs.names.head("orders", self.world.logs.names.uid("orders")).version:
            self.naive.record()


def memory_world() -> LogWorld:
    tree = MemoryTree(lambda: 5)
    MemoryStore(tree).ensure_path("/ledgers")
    return LogWorld(lambda: MemoryStore(tree), Znodes("/ledgers"))


def damaged(kind: CommitKind, pages: list[Page], start: Listing, **more: object) -> None:
    version = memory_world_version()
    fold = ListingFold("orders", start)
    with pytest.raises(CorruptionError, match="version 1 of log 'orders' is damaged"):
        fold.apply(dataclass_replace(version, kind=kind, **more), pages)  # type: ignore[arg-type]


def memory_world_version() -> LogVersion:
    commits = Commits(memory_world())
    return commits.commit(CommitKind.APPEND, [])


def test_a_commit_that_does_not_fit_the_version_below_it_is_damage():
    a, b = CommittedLedger(1, 0, 1, 1), CommittedLedger(2, 0, 1, 1)
    damaged(CommitKind.APPEND, [], Listing((a,), (OpenLedger(3, 1), OpenLedger(2, 1))), closed=(b,))
    damaged(CommitKind.COMPACT, [Page((b,), (7,))], Listing((a,)))


def test_what_is_removed_must_be_one_stretch_in_its_order():
    listed = [CommittedLedger(one, 0, 1, 1) for one in (5, 3, 9, 4)]
    assert position_of("orders", listed, [3, 9]) == 1
    for removed, problem in (([3, 4], "not one stretch"), ([9, 3], "not one stretch"), ([4, 7], "does not list ledger 7")):
        with pytest.raises(MetadataConflictError, match=problem):
            position_of("orders", listed, removed)
