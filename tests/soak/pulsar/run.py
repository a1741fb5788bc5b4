"""One run: brokers on bookies, clients that send and receive, faults as planned, and then the judgement.

::

    senders → topics → subscriptions      while bookies and brokers die
    all brokers killed and started again, so that nothing comes from their caches
    readers from the first message on, and bk_spark's client on the topics' ledgers
    topics deleted, space given back
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.ports import HOST, Ports
from bk_spark.local.process import Keeper, end_all
from bk_spark.metadata.uri import parse_uri
from tests.soak.pulsar.bookies import Bookies
from tests.soak.pulsar.broker import CLUSTER, Broker, Cluster
from tests.soak.pulsar.client import Load, Status, pulsar_java
from tests.soak.pulsar.ending import Ending
from tests.soak.pulsar.faults import BookieLane, BrokerLane
from tests.soak.pulsar.outcome import Outcome
from tests.soak.pulsar.plan import Plan
from tests.soak.pulsar.records import judge, read_file
from tests.soak.pulsar.topics import NAMESPACES, TENANT, TOPICS, UNORDERED
from tests.soak.pulsar.waiting import wait_until

BROKERS = 2
STALL_S = 600.0
"""Without a single acknowledgement for so long the run has failed."""

DRAIN_S = 600.0
LOOK_S = 0.5

Say = Callable[[str], None]


class Run:
    """``directory`` keeps the logs and records."""

    def __init__(self, directory: Path, plan: Plan, bookies: Bookies, brokers: Sequence[Broker], load: Load, say: Say) -> None:
        self.outcome = Outcome()
        self._directory = directory
        self._plan = plan
        self._bookies = bookies
        self._brokers = brokers
        self._load = load
        self._say = say
        self._acknowledged = 0.0
        self._bookie_lane = BookieLane(bookies, plan.bookie_faults, lambda: self._acknowledged, say)
        self._broker_lane = BrokerLane(brokers, plan.broker_faults, lambda: self._acknowledged, say)
        self._lanes = (self._bookie_lane, self._broker_lane)

    def play(self) -> Outcome:
        begun_s = time.monotonic()
        self._set_up()
        try:
            self._send()
            self._drain()
            self._broker_lane.stop()
            self._judge_received()
            with BookKeeper(self._bookies.metadata_uri) as client:
                Ending(self._load, self._bookies, self._brokers, client, self.outcome, self._say).play()
        finally:
            for lane in self._lanes:
                lane.stop()
        self._judge_processes()
        self.outcome.seconds = time.monotonic() - begun_s
        return self.outcome

    def _set_up(self) -> None:
        self._load.tenant(TENANT, CLUSTER)
        for namespace in NAMESPACES:
            self._load.namespace(namespace)
        for topic in TOPICS:
            self._load.topic(topic)
        self._say(f"{len(TOPICS)} topics, {BROKERS} brokers, {len(self._bookies.living)} bookies")

    def _send(self) -> None:
        """All messages, while faults are done and undone."""
        begun_s = time.monotonic()
        plan = self._plan
        for topic in TOPICS:
            self._load.send(topic, plan.messages, plan.per_second, plan.keys)
        for lane in self._lanes:
            lane.start()
        self._await_acknowledged()
        for lane in self._lanes:
            lane.end_faults()
            self.outcome.faults += lane.done
        self.outcome.sent = plan.messages * len(TOPICS)
        self.outcome.sending_s = time.monotonic() - begun_s

    def _await_acknowledged(self) -> None:
        last, changed_s = -1, time.monotonic()
        while self._acknowledged < 1.0:
            status = self._load.status()
            done = sum(status.acknowledged.values())
            self.outcome.longest_stall_s = max(self.outcome.longest_stall_s, time.monotonic() - changed_s)
            if done != last:
                last, changed_s = done, time.monotonic()
            self._acknowledged = min(status.acknowledged.values()) / self._plan.messages
            self._check(status, changed_s)
            time.sleep(LOOK_S)

    def _check(self, status: Status, changed_s: float) -> None:
        for lane in self._lanes:
            if lane.problem is not None:
                raise lane.problem
        if status.failed:
            raise RuntimeError(f"{status.failed} sends failed, though senders never give up: {status.problem}")
        if time.monotonic() > changed_s + STALL_S:
            raise TimeoutError(f"nothing was acknowledged for {STALL_S:g} s: {status}; all logs are in {self._directory}")

    def _drain(self) -> None:
        """Until subscriptions have everything."""
        self._say("all is acknowledged; subscriptions take in the rest")
        wait_until(lambda: self._load.backlog() == 0, "subscriptions have acknowledged everything", DRAIN_S, LOOK_S)
        status = self._load.status()
        if status.spoilt:
            self.outcome.violations.append(f"{status.spoilt} messages were received that are not what was sent")
        self._load.end()

    def _judge_processes(self) -> None:
        bookies, brokers = (lane.ended for lane in self._lanes)
        self.outcome.ended = len(bookies) + len(brokers)
        if not self._bookies.may_end:
            self.outcome.violations += [f"a bookie ended by itself: {log}" for log in bookies]

    def _judge_received(self) -> None:
        outcome = self.outcome
        for topic in TOPICS:
            acknowledged = read_file(self._load.records / f"acknowledged-{topic.name}")
            outcome.acknowledged += len(acknowledged)
            for kind in topic.subscriptions:
                found = read_file(self._load.records / f"received-{topic.name}-{kind}")
                judged = judge(f"received from {topic.name}, {kind}", acknowledged, found, is_ordered=kind not in UNORDERED)
                outcome.received += judged.messages
                outcome.received_again += judged.doubled
                outcome.violations += judged.violations


@contextlib.contextmanager
def run_on(directory: Path, plan: Plan, bookies: Bookies, own: Mapping[str, object], say: Say) -> Iterator[Run]:
    """Brokers and clients of one run, which end with it. ``own`` are settings of its brokers.

    Raises SkippedError where Pulsar is not to be had.
    """
    zookeeper = parse_uri(bookies.metadata_uri)[0]
    settings = {"managedLedgerMaxEntriesPerLedger": plan.entries_per_ledger, **own}
    cluster = Cluster(zookeeper, bookies.pulsar_uri, pulsar_java(), settings)
    home = directory / "brokers"
    home.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        keeper = stack.enter_context(Keeper(home, temporary=False))
        kept = stack.enter_context(Ports())
        ports = [(kept.reserve(None), kept.reserve(None)) for _ in range(BROKERS)]
        cluster.initialise(*ports[0], home / "initialise.log")
        brokers = [Broker(keeper, home / f"broker-{number}", cluster, *pair) for number, pair in enumerate(ports, 1)]
        stack.callback(end_all, brokers)
        for broker in brokers:
            broker.launch()
        for broker in brokers:
            broker.await_ready()
        clients = Load(ports, HOST, directory)
        stack.callback(clients.close)
        yield Run(directory, plan, bookies, brokers, clients, say)
