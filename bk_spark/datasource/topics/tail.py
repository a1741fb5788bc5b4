"""Follows topics in the background, so that Spark's questions are answered from memory.

An idle query asks every 12 ms for the latest offset. So the stream's thread looks every LOOK_S seconds at the lists of ledgers
in ZooKeeper (one round trip for all topics) and asks the bookies of each open ledger how far it is confirmed.

In a namespace that uses transactions the thread also reads the messages as they come: no batch may end behind the first message
of a transaction that is still open, because the stream would never come back to it once it is committed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from bk_spark.datasource.background.heard import Heard
from bk_spark.datasource.background.stream_thread import StreamThread
from bk_spark.datasource.topics.reading import TopicsRead, topics_left
from bk_spark.errors import BookKeeperError
from bk_spark.log.stream.waits import PATIENCE_S, RETRY_S
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.positions import Position
from bk_spark.topic.ledgers import TopicLedgers
from bk_spark.topic.open_transactions import TransactionScan
from bk_spark.topic.plan import ReadStart, TopicStarts
from bk_spark.topic.view import TopicView

LOOK_S = 0.25
"""Between two looks: the delay that a message has at most on its way into a micro-batch, and a small load for the bookies."""

NAMES_S = 2.0
"""Between two looks at which topics there are."""


class TopicsTail:
    """How far each topic can be read, kept in the background. Nothing runs before the first question, nor once it is frozen."""

    def __init__(self, read: TopicsRead) -> None:
        self._read = read
        self._access = read.access
        self._ledgers = TopicLedgers(self._access, lengths=False)
        self._scans: dict[TopicName, TransactionScan] = {}
        self._given: Mapping[str, Position] = {}
        self._topics: list[TopicName] = []
        self._named_s = float("-inf")
        self._thread: StreamThread | None = None
        self._heard: Heard[dict[str, Position]] = Heard("the topics", "that holds Pulsar's metadata")
        self._due_s = 0.0
        self._frozen: tuple[list[TopicName], list[TopicView]] | None = None

    def starts(self, start: ReadStart) -> dict[str, Position]:
        """Where a stream begins in each topic that is there now. Raises ConfigError for a place that a topic does not have."""
        ledgers = TopicLedgers(self._access)
        starts, topics = TopicStarts(self._access, ledgers), topics_left(self._read.options, ledgers.store)
        start.check_names(topics)
        return {
            str(topic): starts.position(start, topic, view) for topic, view in zip(topics, ledgers.views(topics), strict=True)
        }

    def ends(self, given: Mapping[str, Position]) -> dict[str, Position]:
        """Behind the last entry that can be read of each topic that the options name, for a stream that stands at ``given``.

        From memory; only the first call waits. Raises why the topics cannot be followed.
        """
        self._given = given
        if self._frozen is not None:
            self._heard.known = self._heard.known or self._frozen_ends(*self._frozen)
            return self._heard.known
        if self._thread is None:
            self._thread = StreamThread("bk-spark-topics")
            self._thread.add(self)
        return self._heard.ask(self._thread.wake)

    def freeze(self) -> None:
        """From now on the ends are those of now. What transactions are open then is looked at once a position is given."""
        self.stop()
        topics = topics_left(self._read.options, self._ledgers.store)
        self._frozen, self._heard.known = (topics, self._ledgers.views(topics)), None

    def stop(self) -> None:
        """Follow the topics no more."""
        if self._thread is not None:
            self._thread.stop()

    # The thread calls the methods below.

    def wait_s(self) -> float:
        """See ``Work``."""
        return PATIENCE_S if self._heard.failure is not None else self._due_s - time.monotonic()

    def step(self) -> None:
        """See ``Work``."""
        try:
            self._look()
        except BaseException as problem:
            self._heard.fail(problem)
        self._due_s = time.monotonic() + (RETRY_S if self._heard.trouble is not None else LOOK_S)

    def end(self) -> None:
        """See ``Work``."""
        self._heard.end()

    def _look(self) -> None:
        try:
            self._plan()
        except BookKeeperError as problem:
            self._heard.miss(problem)
        else:
            self._heard.hear()

    def _plan(self) -> None:
        if time.monotonic() - self._named_s >= NAMES_S:
            topics = topics_left(self._read.options, self._ledgers.store)
            self._topics, self._named_s = topics, time.monotonic()
            self._ledgers.forget_others({str(topic) for topic in topics})
            self._scans = {topic: scan for topic, scan in self._scans.items() if topic in topics}
        self._heard.known = self._ends(self._topics, self._ledgers.views(self._topics))

    def _ends(self, topics: Sequence[TopicName], views: Sequence[TopicView]) -> dict[str, Position]:
        # Asked after the views: a message of a transaction that is in one was written after this became true.
        transactional = self._ledgers.store.may_have_transactions(topics)
        ends = {}
        for topic, view, is_transactional in zip(topics, views, transactional, strict=True):
            ends[str(topic)] = view.end
            if is_transactional:
                scan = self._scans.setdefault(
                    topic, TransactionScan(self._access, topic, self._given.get(str(topic), view.first))
                )
                ends[str(topic)] = scan.readable(view)
        return ends

    def _frozen_ends(self, topics: Sequence[TopicName], views: Sequence[TopicView]) -> dict[str, Position]:
        """The ends of these views, however long it takes to read them for transactions."""
        self._scans = {}
        ends = self._ends(topics, views)
        while not all(scan.is_done for scan in self._scans.values()):
            ends = self._ends(topics, views)
        return ends
