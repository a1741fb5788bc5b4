"""One run: every form of messages is written through a broker on our bookies while we read, then all is compared.

::

    writers of all forms → broker → bookies ← random reads, and a stream that is stopped and started, the whole time
    every topic whole: by Pulsar's own client through the broker, by ours from the bookies, and by Spark; every row and column
    starts at publish times and behind subscriptions, against where Pulsar's client goes on
    the broker's log and the ledgers' metadata: nobody fenced or closed a ledger but the broker
    a producer at full speed, with and without readers beside it
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark import BookKeeper
from bk_spark.errors import UnreadableMessagesError
from bk_spark.pulsar.columns import MESSAGE_SCHEMA
from tests.soak.pulsar.broker import CLUSTER
from tests.soak.topics.compare import rows_of, topics_of, unlike
from tests.soak.topics.fences import Hands, look, partition_names
from tests.soak.topics.follow import Follower
from tests.soak.topics.positions import CURSORS, POSITIONED, TIMES, unlike_positions
from tests.soak.topics.reads import ENCRYPTED, TRANSACTIONS, RandomReads, ReadsDone, Seen, missing_of, seen_of
from tests.soak.topics.received import read_columns
from tests.soak.topics.spark_reads import SparkReads, spark_reads
from tests.soak.topics.stage import EVERY_FORM, Stage, stage
from tests.soak.topics.values import MEANINGS, unlike_values
from tests.soak.topics.windows import Window, measure, table

READS_PER_S = 2.0
"""Writers take at least as long as the reads, at this rate."""

MESSAGES_PER_S = 10_000.0
"""And not less than this rate allows."""

ENTRIES_PER_LEDGER, LEAST_ENTRIES_PER_LEDGER = 1 / 2000, 20
"""A ledger is full after so many entries for each message of the run: topics have some twenty ledgers or more."""

STREAM_STARTS = 5
"""Of the stream, while all is written."""

BACK_S = 20.0
"""Of writing before and behind each death of the broker, at least: it is back by then, and serves."""

LOOK_S = 0.5

MAX_LINES = 30
"""Differences that are printed."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    messages: int
    reads: int
    window_s: float
    window_rounds: int
    """Windows of each kind, 0 for none."""
    kills: int = 0
    """Of the broker, while all is written; then without transactions, which our writers would have to begin again."""

    @property
    def writing_s(self) -> float:
        return max(self.reads / READS_PER_S, self.messages / MESSAGES_PER_S, (self.kills + 1) * BACK_S)

    @property
    def entries_per_ledger(self) -> int:
        return max(LEAST_ENTRIES_PER_LEDGER, int(self.messages * ENTRIES_PER_LEDGER))


@dataclass(slots=True)
class Outcome:
    """What a run found. ``differences`` is empty if it held."""

    acknowledged: int = 0
    unseen: int = 0
    received: int = 0
    """By Pulsar's own client."""
    compared: int = 0
    """Messages that both clients have."""
    writing_s: float = 0.0
    our_s: float = 0.0
    pulsars_s: float = 0.0
    sparks_s: float = 0.0
    streamed: int = 0
    micro_batches: int = 0
    stream_starts: int = 0
    positions: int = 0
    """Starts that were compared."""
    kills: int = 0
    reads: ReadsDone = field(default_factory=ReadsDone)
    hands: Hands = field(default_factory=Hands)
    windows: list[Window] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def describe(self) -> str:
        """One page."""
        reads, hands = self.reads, self.hands
        starts = ", ".join(f"{count} {kind}" for kind, count in sorted(reads.starts.items()))
        differences = [*self.differences, *reads.violations, *hands.violations]
        return "\n".join(
            (
                f"written: {self.acknowledged} messages in {self.writing_s:.0f} s; no reader gets {self.unseen} of these",
                f"read whole: {self.received} by Pulsar's client in {self.pulsars_s:.1f} s, by ours in {self.our_s:.1f} s, "
                f"in Spark in {self.sparks_s:.1f} s; "
                f"{self.compared} compared in {len(MESSAGE_SCHEMA.names)} columns",
                f"streamed: {self.streamed} messages in {self.micro_batches} micro-batches, started {self.stream_starts} times",
                f"starts at times and subscriptions: {self.positions}; the broker was killed {self.kills} times",
                f"random reads: {reads.reads}, of these {reads.while_written} while all was written; {starts}",
                f"they read {reads.messages} messages, {reads.new} for the first time",
                f"ledgers: {hands.closed_ledgers} closed, {hands.open_ledgers} open; lines of the log: {hands.log_lines}",
                *(table(self.windows) if self.windows else ()),
                f"seconds: {self.seconds:.0f}",
                *(f"DIFFERS {one}" for one in differences[:MAX_LINES]),
                f"differences: {len(differences)}",
            )
        )

    @property
    def holds(self) -> bool:
        return not (self.differences or self.reads.violations or self.hands.violations)


class Run:
    """``directory`` keeps logs and columns."""

    def __init__(self, on: Stage, directory: Path, size: Size, say: Say) -> None:
        self.outcome = Outcome()
        self._on = on
        self._directory = directory
        self._size = size
        self._say = say
        self._topics: dict[str, int] = {}

    def play(self) -> Outcome:
        begun_s = time.monotonic()
        self._on.client.set_up(CLUSTER)
        self._topics = self._on.client.create_forms("transactions" if self._size.kills else "")
        self._say(f"{len(self._topics)} topics")
        uris = self._on.metadata_uri, self._on.pulsar_uri
        with spark_reads(*uris) as reads, BookKeeper(self._on.metadata_uri) as bookkeeper:
            follower = Follower(reads.spark, *uris, self._directory)
            seen = self._write_and_read(follower)
            for topic in self._topics:
                self._compare(bookkeeper, topic, seen)
            self._judge_counts()
            if self.outcome.kills < self._size.kills:
                self.outcome.differences.append(f"the broker was to be killed {self._size.kills} times")
            self._compare_stream(follower)
            self._compare_spark(reads)
            partitions = [one for topic, count in self._topics.items() for one in partition_names(topic, count)]
            self.outcome.hands = look(bookkeeper, partitions, self._on.broker.log, was_killed=self.outcome.kills > 0)
            self._compare_positions(bookkeeper)
        if self._size.window_rounds:
            self._say("a producer at full speed")
            self.outcome.windows = measure(self._on, self._directory, self._size.window_s, self._size.window_rounds, self._say)
        self.outcome.seconds = time.monotonic() - begun_s
        return self.outcome

    def _write_and_read(self, follower: Follower) -> Mapping[str, Seen]:
        """Returns what random reads saw of each partition."""
        begun_s = time.monotonic()
        is_writing = True
        uris = self._on.metadata_uri, self._on.pulsar_uri
        reads = RandomReads(uris, self._topics, self._size.reads, lambda: is_writing)
        self._on.client.write(self._size.messages, self._size.writing_s)
        reads.start()
        follower.start()
        while self._on.client.status().writing:
            time.sleep(LOOK_S)
            self._disturb(follower, time.monotonic() - begun_s)
        is_writing = False
        self._on.client.mark()
        self.outcome.writing_s = time.monotonic() - begun_s
        self._say(f"all is written; {reads.done.reads} reads are done, {follower.batches} micro-batches")
        reads.join()
        if reads.problem is not None:
            raise reads.problem
        self.outcome.reads = reads.done
        return reads.seen

    def _disturb(self, follower: Follower, running_s: float) -> None:
        """Stop and start the stream, and kill the broker, when it is time."""
        next_start_s = follower.starts * self._size.writing_s / STREAM_STARTS
        if follower.starts < STREAM_STARTS and follower.is_at_work and running_s > next_start_s:
            follower.restart()
        between_s = self._size.writing_s / (self._size.kills + 1)
        if self.outcome.kills < self._size.kills and running_s > (self.outcome.kills + 1) * between_s:
            self._say(f"the broker is killed after {running_s:.0f} s")
            self._on.broker.kill()
            self._on.broker.start()
            self.outcome.kills += 1

    def _compare_stream(self, follower: Follower) -> None:
        follower.catch_up()
        follower.restart()
        follower.catch_up()
        follower.stop()
        found = follower.rows()
        self.outcome.streamed, self.outcome.micro_batches = found.num_rows, follower.batches
        self.outcome.stream_starts = follower.starts
        told = list(follower.differences)
        for topic in self._topics:
            names = [one for one in topics_of(found) if one == topic or one.startswith(f"{topic}-partition-")]
            told += unlike(read_columns(self._columns(topic)), found.filter(pc.is_in(found.column("_topic"), pa.array(names))))
        self.outcome.differences += [f"stream, {one}" for one in told]
        self._say(f"stream: {found.num_rows} messages, {len(told)} differences")

    def _compare_positions(self, bookkeeper: BookKeeper) -> None:
        for topic in self._topics:
            if topic.rsplit("/", 1)[1] in POSITIONED:
                whole = read_columns(self._columns(topic))
                told = unlike_positions(bookkeeper, self._on.pulsar_uri, self._on.client, topic, whole)
                self.outcome.positions += TIMES + CURSORS
                self.outcome.differences += told
                self._say(f"{topic}: {TIMES + CURSORS} starts, {len(told)} differences")

    def _compare(self, bookkeeper: BookKeeper, topic: str, seen: Mapping[str, Seen]) -> None:
        columns = self._columns(topic)
        begun_s = time.monotonic()
        self.outcome.received += self._on.client.receive(topic, columns)
        self.outcome.pulsars_s += time.monotonic() - begun_s
        ours_s = self.outcome.our_s
        wanted = read_columns(columns)
        try:
            told = self._differences(bookkeeper, topic, wanted, seen)
        except Exception as problem:  # whatever it is, the other topics are compared
            traceback.print_exc()
            told = [f"{topic}: {type(problem).__name__}: {problem}"]
        self.outcome.differences += told
        self._say(f"{topic}: {wanted.num_rows} messages, {len(told)} differences; {self.outcome.our_s - ours_s:.2f} s")

    def _differences(self, bookkeeper: BookKeeper, topic: str, wanted: pa.Table, seen: Mapping[str, Seen]) -> list[str]:
        begun_s = time.monotonic()
        found = self._read(bookkeeper, topic)
        self.outcome.our_s += time.monotonic() - begun_s
        self.outcome.compared += min(wanted.num_rows, found.num_rows)
        return [*unlike(wanted, found), *_unlike_seen(found, seen), *self._unlike_values(bookkeeper, topic, found)]

    def _compare_spark(self, reads: SparkReads) -> None:
        for topic in self._topics:
            wanted = read_columns(self._columns(topic))
            begun_s = time.monotonic()
            try:
                found = reads.read(topic)
            except Exception as problem:  # whatever it is, the other topics are compared
                traceback.print_exc()
                self.outcome.differences.append(f"Spark, {topic}: {type(problem).__name__}: {problem}")
                continue
            self.outcome.sparks_s += time.monotonic() - begun_s
            told = unlike(wanted, found)
            self.outcome.differences += [f"Spark, {one}" for one in told]
            self._say(f"Spark, {topic}: {found.num_rows} messages, {len(told)} differences")

    def _columns(self, topic: str) -> Path:
        return self._directory / "received" / topic.rsplit("/", 1)[1]

    def _read(self, bookkeeper: BookKeeper, topic: str, schema: str = "raw") -> pa.Table:
        unreadable = "skip" if topic == ENCRYPTED else "fail"
        opened = bookkeeper.open_topic(topic, pulsar_metadata=self._on.pulsar_uri)
        if topic == ENCRYPTED:
            self.outcome.differences += _unlike_locked(opened.read)
        batches = list(opened.read("earliest", schema=schema, unreadable=unreadable))
        return pa.Table.from_batches(batches) if batches else MESSAGE_SCHEMA.empty_table()

    def _unlike_values(self, bookkeeper: BookKeeper, topic: str, raw: pa.Table) -> list[str]:
        if topic.rsplit("/", 1)[1] not in MEANINGS:
            return []
        return unlike_values(topic, self._read(bookkeeper, topic, "topic"), raw)

    def _judge_counts(self) -> None:
        """Pulsar's own client received what was acknowledged and can be seen, and the last message of each partition."""
        status = self._on.client.status()
        self.outcome.acknowledged, self.outcome.unseen = status.acknowledged, status.unseen
        wanted = status.acknowledged - status.unseen + sum(count or 1 for count in self._topics.values())
        sent_again = self.outcome.kills > 0 and self.outcome.received > wanted  # what a broker stored and did not acknowledge
        if self.outcome.received != wanted and not sent_again:
            self.outcome.differences.append(f"Pulsar's own client received {self.outcome.received} messages of {wanted}")


def _unlike_seen(found: pa.Table, seen: Mapping[str, Seen]) -> list[str]:
    """What random reads saw is how a topic begins; where transactions filled in something later, without that."""
    told = []
    for partition, earlier in seen.items():
        if partition in set(topics_of(found)):
            whole, may_fill = seen_of(rows_of(found, partition)), TRANSACTIONS in partition
            if lost := len(missing_of(earlier, whole, is_cut=False, may_fill=may_fill)):
                told.append(f"{partition}: {lost} messages that random reads saw are not there")
    return told


def _unlike_locked(read: Callable[..., object]) -> Sequence[str]:
    """Encrypted messages are an error unless they are to be skipped."""
    try:
        list(read("earliest"))  # type: ignore[call-overload]
    except UnreadableMessagesError:
        return []
    return [f"{ENCRYPTED}: encrypted messages were read as others are"]


def play(directory: Path, size: Size, say: Say) -> Outcome:
    """One run on a cluster of its own, which ends with it. Raises SkippedError where Pulsar is not to be had."""
    with stage(directory, {**EVERY_FORM, "managedLedgerMaxEntriesPerLedger": size.entries_per_ledger}) as on:
        return Run(on, directory, size, say).play()
