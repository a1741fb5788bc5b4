"""A batch of a stream over several logs has each transaction as a whole, or none of it: drawn histories and a model."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from bk_spark.log.stored.values import LogChange, TransactionRecord
from bk_spark.log.stream.positions import StreamPosition, behind
from bk_spark.log.stream.whole_transactions import MadeVersion, whole_ends

LOGS = ("a", "b", "c")


@dataclass
class DrawnLogs:
    """Each version of a log gives one ledger of some entries, or nothing. ``entries`` has their numbers, from version 1 on."""

    entries: dict[str, list[int]] = field(default_factory=lambda: {uid: [] for uid in LOGS})
    transactions: list[TransactionRecord] = field(default_factory=list)
    of_version: dict[tuple[str, int], tuple[int, TransactionRecord]] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    """Logs that the stream has not found yet."""

    def commit(self, uid: str, entries: int) -> LogChange:
        self.entries[uid].append(entries)
        return LogChange(uid, len(self.entries[uid]))

    def transact(self, entries: Mapping[str, int]) -> None:
        changes = tuple(self.commit(uid, count) for uid, count in entries.items())
        made = TransactionRecord(str(len(self.transactions)), None, changes)
        self.transactions.append(made)
        for change in changes:
            self.of_version[change.uid, change.version] = len(self.transactions), made

    def place(self, uid: str, version: int, entry: int | None = None) -> StreamPosition:
        """In normal form: behind so many entries of a version (by default all), and all before it."""
        count = self.entries[uid][version - 1] if entry is None and version else entry
        if version == 0:
            return behind(0)
        return StreamPosition(version, 0, version, count) if count else self.place(uid, version - 1)

    def places(self, uid: str) -> list[StreamPosition]:
        """Every position that there is."""
        versions = enumerate(self.entries[uid], 1)
        return [behind(0), *(self.place(uid, version, n + 1) for version, count in versions for n in range(count))]

    # What a stream knows

    def made(self, uid: str, after: int, last: int) -> list[MadeVersion]:
        numbers = [n for n in range(after + 1, last + 1) if (uid, n) in self.of_version]
        return [MadeVersion(n, *self.of_version[uid, n]) for n in numbers]

    def behind(self, uid: str, version: int) -> StreamPosition | None:
        return self.place(uid, version) if self.entries[uid][version - 1] else None

    def before(self, uid: str, version: int, start: StreamPosition, end: StreamPosition) -> StreamPosition:
        return max(start, self.place(uid, version - 1))

    def awaits(self, uid: str) -> bool:
        return uid in self.unknown

    def is_whole(self, ends: Mapping[str, StreamPosition]) -> bool:
        """Whether of each transaction all entries are before the ends, or none."""
        for transaction in self.transactions:
            parts = [part for change in transaction.changes for part in self._parts(change, ends)]
            if len(set(parts)) > 1:
                return False
        return True

    def _parts(self, change: LogChange, ends: Mapping[str, StreamPosition]) -> Iterator[bool]:
        for n in range(self.entries[change.uid][change.version - 1]):
            yield change.uid in ends and ends[change.uid] > StreamPosition(change.version, 0, change.version, n)


def drawn(draw: random.Random) -> DrawnLogs:
    logs = DrawnLogs()
    for _ in range(draw.randint(1, 12)):
        if draw.random() < 0.5:
            logs.commit(draw.choice(LOGS), draw.randint(0, 3))
        else:
            logs.transact({uid: draw.choice((0, 1, 1, 3)) for uid in draw.sample(LOGS, draw.randint(1, 3))})
    return logs


def next_batch(
    draw: random.Random, logs: DrawnLogs, starts: Mapping[str, StreamPosition], stale: float
) -> dict[str, StreamPosition]:
    """Each log's newest position is as old as it happens to be; limits cut each log anywhere."""
    open_to = {uid: [place for place in logs.places(uid) if place >= starts[uid]] for uid in starts}
    newest = {uid: draw.choice(places) if draw.random() < stale else places[-1] for uid, places in open_to.items()}
    ends = {uid: draw.choice([place for place in open_to[uid] if place <= newest[uid]]) for uid in starts}
    found = dict(whole_ends(logs, starts, ends, newest))
    assert found.keys() == starts.keys()
    assert all(starts[uid] <= found[uid] <= newest[uid] for uid in found)
    return found


@pytest.mark.parametrize("seed", range(300))
def test_every_batch_is_whole_and_the_stream_gets_to_the_end(seed: int) -> None:
    draw = random.Random(seed)
    logs = drawn(draw)
    stands = {uid: behind(0) for uid in LOGS}
    last = {uid: logs.places(uid)[-1] for uid in LOGS}
    for stale in [0.5] * 5 + [0.0] * 400:
        stands = next_batch(draw, logs, stands, stale)
        assert logs.is_whole(stands)
        if stands == last:
            return
    raise AssertionError(f"the stream stands at {stands}")


def test_a_batch_without_transactions_is_left_as_it_is() -> None:
    logs = DrawnLogs()
    logs.commit("a", 3)
    starts, ends = {"a": behind(0), "b": behind(0)}, {"a": logs.place("a", 1, 2), "b": behind(0)}
    assert whole_ends(logs, starts, ends, ends) is ends


def test_the_batch_ends_before_the_first_transaction_that_it_has_a_part_of() -> None:
    logs = DrawnLogs()
    logs.commit("a", 2)
    logs.transact({"a": 1, "b": 100})
    starts = {"a": behind(0), "b": behind(0)}
    newest = {"a": logs.place("a", 2), "b": logs.place("b", 1)}
    found = whole_ends(logs, starts, {"a": newest["a"], "b": logs.place("b", 1, 5)}, newest)
    assert found == {"a": logs.place("a", 1), "b": behind(0)}


def test_a_transaction_above_the_limits_comes_as_a_whole_when_it_is_next() -> None:
    logs = DrawnLogs()
    logs.transact({"a": 1, "b": 100})
    logs.transact({"a": 1, "b": 100})
    starts = {"a": behind(0), "b": behind(0)}
    newest = {"a": logs.place("a", 2), "b": logs.place("b", 2)}
    found = whole_ends(logs, starts, {"a": newest["a"], "b": logs.place("b", 1, 5)}, newest)
    assert found == {"a": logs.place("a", 1), "b": logs.place("b", 1)}


def test_a_transaction_above_the_limits_comes_also_while_another_log_always_has_more() -> None:
    logs = DrawnLogs()
    logs.commit("c", 5)
    logs.transact({"a": 80, "b": 80})
    starts = dict.fromkeys(LOGS, behind(0))
    newest = {uid: logs.places(uid)[-1] for uid in LOGS}
    assert whole_ends(logs, starts, {**newest, "b": logs.place("b", 1, 9)}, newest) == newest


def test_what_is_before_a_transaction_in_another_log_is_read_first_within_the_limits() -> None:
    logs = DrawnLogs()
    for _ in range(100):
        logs.commit("b", 1000)
    logs.transact({"a": 1, "b": 1})
    starts = {"a": behind(0), "b": behind(0)}
    newest = {"a": logs.place("a", 1), "b": logs.place("b", 101)}
    assert whole_ends(logs, starts, {"a": newest["a"], "b": behind(0)}, newest) == starts
    ahead = {"a": newest["a"], "b": logs.place("b", 1, 7)}
    assert whole_ends(logs, starts, ahead, newest) == {"a": behind(0), "b": logs.place("b", 1, 7)}


def test_a_transaction_at_which_a_stream_begins_is_compared() -> None:
    """A stream begins before the last overwrite of a log, which has the version of a transaction."""
    logs = DrawnLogs()
    logs.transact({"a": 3, "b": 3})
    starts = {uid: StreamPosition(1, 0, 1, 0) for uid in ("a", "b")}
    newest = {uid: logs.place(uid, 1) for uid in ("a", "b")}
    torn = {"a": newest["a"], "b": starts["b"]}
    assert whole_ends(logs, starts, torn, newest) == newest
    assert whole_ends(logs, starts, torn, torn) == starts


def test_a_log_that_the_stream_is_going_to_find_is_waited_for() -> None:
    logs = DrawnLogs()
    logs.commit("a", 1)
    logs.transact({"a": 1, "c": 1})
    starts, newest = {"a": behind(0)}, {"a": logs.place("a", 2)}
    assert whole_ends(logs, starts, newest, newest) == newest  # c is none of the stream's logs
    logs.unknown = frozenset("c")
    assert whole_ends(logs, starts, newest, newest) == {"a": logs.place("a", 1)}
    assert whole_ends(logs, {"a": logs.place("a", 1)}, newest, newest) == {"a": logs.place("a", 1)}
