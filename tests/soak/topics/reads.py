"""Reads of topics while they are written, at random moments, from random starts: what one read saw, every later one sees.

Of each partition the messages are kept that reads saw so far. They have no gap, for a read begins at its first message or at
one that was seen: so what it finds must begin with what was seen from there on, and goes on behind it. Transactions alone fill
in what was left out while they were open. When all is written, what was seen must be how the topic begins.
"""

from __future__ import annotations

import itertools
import random
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark import BookKeeper
from tests.soak.topics.compare import ID, SHOWN, ids_of, out_of_order, topics_of

SEEN = np.dtype(
    [*((name, ID[name]) for name in ID.names or ()), ("value", np.int64), ("key", np.int64), ("sequence", np.int64)]
)
"""A message: its id, what its value and its key add up to (-1 for null), and its sequence id."""

ENCRYPTED = "persistent://topics/proof/encrypted"
"""The topic whose messages are not all readable."""

TRANSACTIONS = "/transactions"

Seen = npt.NDArray[np.void]

WHOLE = 0.1
"""The share of reads that go to the end; others stop after some messages."""

FEW, MANY = 1, 30_000

AT_EARLIEST, WITH_END, AT_ENTRY = 0.25, 0.2, 0.2
"""Shares of reads: from the first message; to a message that was seen; from an entry instead of a message."""


@dataclass(slots=True)
class ReadsDone:
    """What reads found so far."""

    reads: int = 0
    while_written: int = 0
    messages: int = 0
    new: int = 0
    """Of these, no read had seen before."""
    starts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Read:
    """One read, as it was drawn."""

    topic: str
    start: str
    end: str
    most: int | None
    """Messages after which it is broken off."""
    first: int
    """Where it begins among the messages seen of the partition."""
    last: int | None
    """Where it ends among these; None for as far as there is something."""

    @property
    def kind(self) -> str:
        return ("at the first message", "at an entry", "in a batch")[self.start.count(":")]

    @property
    def is_whole(self) -> bool:
        return self.most is None and self.last is None

    def __str__(self) -> str:
        return f"read of {self.topic} from {self.start} to {self.end}, at most {self.most}"


class RandomReads(threading.Thread):
    """``reads`` reads, one after the other. ``topics`` are names with their numbers of partitions."""

    def __init__(self, uris: tuple[str, str], topics: Mapping[str, int], reads: int, is_writing: Callable[[], bool]) -> None:
        """``uris``: of BookKeeper's metadata and of Pulsar's."""
        super().__init__(name="random reads")
        self.done = ReadsDone()
        self.seen: dict[str, Seen] = {}
        """Of each partition."""
        self.problem: BaseException | None = None
        self._uris = uris
        self._topics = topics
        self._reads = reads
        self._is_writing = is_writing
        self._random = random.Random(reads)

    def run(self) -> None:
        try:
            with BookKeeper(self._uris[0]) as bookkeeper:
                for _ in range(self._reads):
                    self.done.while_written += self._is_writing()
                    self._try(bookkeeper, self._draw())
                    self.done.reads += 1
        except BaseException as problem:  # the main thread raises it
            self.problem = problem

    def _draw(self) -> Read:
        topic = self._random.choice(sorted(self._topics))
        if partitions := self._topics[topic]:
            return self._draw_of_partitions(topic, partitions)
        return self._draw_of(topic)

    def _draw_of_partitions(self, topic: str, partitions: int) -> Read:
        """Of all its partitions from the first message on, or of one of them."""
        if self._random.random() < AT_EARLIEST:
            return self._read(topic, "earliest")
        return self._draw_of(f"{topic}-partition-{self._random.randrange(partitions)}")

    def _draw_of(self, topic: str) -> Read:
        seen = self.seen.get(topic)
        if seen is None or not len(seen) or self._random.random() < AT_EARLIEST:
            return self._read(topic, "earliest")
        first = self._random.randrange(len(seen))
        if self._random.random() < AT_ENTRY:
            first = _first_of_entry(seen, first)
            return self._read(topic, _place(seen, first), first)
        if self._random.random() < WITH_END:
            last = _first_of_entry(seen, self._random.randrange(first, len(seen)))
            if last >= first:
                return Read(topic, _message(seen, first), _place(seen, last), None, first, last)
        return self._read(topic, _message(seen, first), first)

    def _read(self, topic: str, start: str, first: int = 0) -> Read:
        most = None if self._random.random() < WHOLE else int(self._random.uniform(FEW, MANY ** self._random.random()))
        return Read(topic, start, "latest", most, first, None)

    def _try(self, bookkeeper: BookKeeper, read: Read) -> None:
        self.done.starts[read.kind] += 1
        try:
            found = self._found(bookkeeper, read)
        except Exception as problem:  # whatever it is, a read that fails is what a run looks for
            traceback.print_exc()
            self.done.violations.append(f"{read}: {type(problem).__name__}: {problem}")
            return
        whole = [one for one in self.seen if read.is_whole and read.topic in (one, one.split("-partition-")[0])]
        for partition in {*found, *whole}:
            told = self._judge(partition, read, found.get(partition, np.zeros(0, SEEN)))
            self.done.violations += [f"{read}: {partition}: {one}" for one in told]
        count = sum(map(len, found.values()))
        self.done.messages += count
        if read.last is not None and count != read.last - read.first and TRANSACTIONS not in read.topic:
            self.done.violations.append(f"{read}: {count} messages of {read.last - read.first}")

    def _found(self, bookkeeper: BookKeeper, read: Read) -> dict[str, Seen]:
        """The messages of each partition."""
        topic = bookkeeper.open_topic(read.topic, pulsar_metadata=self._uris[1])
        found: dict[str, list[Seen]] = {}
        count = 0
        for batch in _closing(topic.read(read.start, read.end, unreadable="skip" if read.topic == ENCRYPTED else "fail")):
            for partition in topics_of(pa.table(batch)):
                rows = batch.filter(pa.compute.equal(batch.column("_topic"), partition))
                found.setdefault(partition, []).append(seen_of(rows))
            count += batch.num_rows
            if read.most is not None and count >= read.most:
                break
        return {partition: np.concatenate(parts) for partition, parts in found.items()}

    def _judge(self, partition: str, read: Read, found: Seen) -> Iterator[str]:
        if unordered := out_of_order(found):
            yield f"{unordered} messages do not come behind the one before them"
            return
        known = self.seen.get(partition, found[:0])
        before, behind = np.split(known, [read.first])
        missing = missing_of(behind, found, is_cut=not read.is_whole, may_fill=TRANSACTIONS in partition)
        if len(missing):
            yield f"{len(missing)} messages are not what an earlier read saw, such as {missing[:SHOWN].tolist()}"
            return
        now = np.union1d(behind, found) if TRANSACTIONS in partition else max(behind, found, key=len)
        self.done.new += len(now) - len(behind)
        self.seen[partition] = np.concatenate([before, now])


def missing_of(known: Seen, found: Seen, *, is_cut: bool, may_fill: bool) -> Seen:
    """Which of the known messages, all from where a read began, it should have seen and did not, or saw otherwise.

    A read that is cut may end before them. What it found between them is as wrong, unless messages may fill in.
    """
    if may_fill:
        last = found[-1:] if is_cut else known[-1:]
        due = known[: np.searchsorted(known, last[0], "right")] if len(last) else known[:0]
        return due[~np.isin(due, found)]
    due = known[: len(found)] if is_cut else known
    shared = min(len(due), len(found))
    is_same = np.zeros(len(due), bool)
    is_same[:shared] = due[:shared] == found[:shared]
    return due[~is_same]


def seen_of(rows: pa.RecordBatch | pa.Table) -> Seen:
    """Of messages in MESSAGE_SCHEMA."""
    made = np.empty(rows.num_rows, SEEN)
    ids = ids_of(rows)
    for name in ID.names or ():
        made[name] = ids[name]
    made["value"] = sums(_whole(rows.column("value")))
    made["key"] = sums(_whole(rows.column("key")))
    made["sequence"] = _whole(rows.column("_sequence_id"))
    return made


def sums(values: pa.Array) -> npt.NDArray[np.int64]:
    """What the bytes of each value add up to, each times its place, so that another order is another sum; -1 for null."""
    if not len(values):
        return np.zeros(0, np.int64)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = values.buffers()[2]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    part = raw[offsets[0] : offsets[-1]].astype(np.int64)
    places = np.arange(len(part)) - np.repeat(offsets[:-1] - offsets[0], np.diff(offsets)) + 1
    ends = np.concatenate(([0], np.cumsum(part * places)))[offsets - offsets[0]]
    return np.where(np.asarray(values.is_null()), -1, np.diff(ends))


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _closing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A read that is broken off gives back what it holds."""
    try:
        yield from batches
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def _first_of_entry(seen: Seen, place: int) -> int:
    """The first message of the same entry."""
    same = itertools.takewhile(lambda one: _place(seen, one) == _place(seen, place), range(place, -1, -1))
    return min(same)


def _place(seen: Seen, place: int) -> str:
    return f"{seen['ledger_id'][place]}:{seen['entry_id'][place]}"


def _message(seen: Seen, place: int) -> str:
    index = seen["batch_index"][place]
    return _place(seen, place) if index < 0 else f"{_place(seen, place)}:{index}"
