"""What is looked at when all was sent: by Pulsar's readers, by bk_spark's client, and on the bookies' disks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bk_spark.bookkeeper import BookKeeper
from tests.soak.pulsar.bookies import Bookies
from tests.soak.pulsar.broker import Broker
from tests.soak.pulsar.client import Load
from tests.soak.pulsar.managed_ledgers import Found, cursor_ledgers_of, ledgers_of, read_topic, remaining
from tests.soak.pulsar.outcome import Outcome
from tests.soak.pulsar.records import Records, judge, read_file, unlike
from tests.soak.pulsar.topics import TOPICS, Topic
from tests.soak.pulsar.waiting import wait_until

WHOLE_S = 300.0
TRIM_S = 120.0
DELETE_S = 180.0
SPACE_S = 180.0

TRIMMED_LEDGERS = 2
"""Of a partition that retains nothing, once all is consumed: the open one, and perhaps the last closed one."""

SHARE_LEFT = 0.5
"""Of the bytes in files of entries, at most, once the topics are deleted: files that are not full stay."""

_RETAINED = tuple(topic for topic in TOPICS if topic.namespace.is_retained)


class Ending:
    def __init__(
        self,
        load: Load,
        bookies: Bookies,
        brokers: Sequence[Broker],
        client: BookKeeper,
        outcome: Outcome,
        say: Callable[[str], None],
    ) -> None:
        self._load = load
        self._bookies = bookies
        self._brokers = brokers
        self._client = client
        self._store = client.metadata_store
        self._outcome = outcome
        self._say = say

    def play(self) -> None:
        self._await_whole()
        for topic in _RETAINED:
            self._judge_open(topic)
        self._restart_brokers()
        self._await_trimmed()
        for topic in _RETAINED:
            self._judge_topic(topic)
        self._delete()

    def _await_whole(self) -> None:
        """Until no closed ledger names a bookie that is lost: AutoRecovery has brought back every copy."""
        lost = set(self._bookies.lost)
        if not lost:
            return
        self._say("until every ledger has its copies again")
        wait_until(lambda: not self._naming(lost), f"no closed ledger names {sorted(lost)}", WHOLE_S)

    def _naming(self, lost: set[str]) -> list[int]:
        every = self._client.existing_ledgers(sorted(remaining(self._client)))
        return [one.ledger_id for one in every if one.is_closed and lost & one.bookies]

    def _restart_brokers(self) -> None:
        for broker in self._brokers:
            if broker.pid is not None:
                broker.kill()
        for broker in self._brokers:
            broker.launch()
        for broker in self._brokers:
            broker.await_ready()

    def _await_trimmed(self) -> None:
        """Until what nobody needs any more is gone."""
        partitions = [one for topic in TOPICS if not topic.namespace.is_retained for one in topic.partitions]

        def is_trimmed() -> bool:
            return all(len(ledgers_of(self._store, one)) <= TRIMMED_LEDGERS for one in partitions)

        wait_until(is_trimmed, f"{', '.join(partitions)} are trimmed", TRIM_S)

    # --- what topics hold

    def _judge_topic(self, topic: Topic) -> None:
        self._say(f"{topic.name} is read from its first message on")
        outcome = self._outcome
        spoilt = self._load.read(topic)
        acknowledged, read = (read_file(self._load.records / f"{kind}-{topic.name}") for kind in ("acknowledged", "read"))
        judged = judge(f"read from {topic.name}", acknowledged, read, may_double=not topic.namespace.deduplicates)
        outcome.violations += judged.violations
        if spoilt:
            outcome.violations.append(f"{spoilt} messages of {topic.name} are not what was sent")
        outcome.read += judged.messages
        outcome.missing += judged.missing
        outcome.out_of_order += judged.out_of_order
        outcome.doubled += judged.doubled
        found = read_topic(self._client, self._store, topic)
        outcome.ledgers_read += found.ledgers
        outcome.entries_read += found.entries
        outcome.violations += found.violations
        outcome.violations += unlike(f"Pulsar's reader and bk_spark's client, {topic.name}", _seen(read, found), found.records)
        self._judge_places(topic, acknowledged, found)

    def _judge_open(self, topic: Topic) -> None:
        """While brokers write to them: restarted brokers close them, and begin new ones."""
        found = read_topic(self._client, self._store, topic, is_open_only=True)
        acknowledged = read_file(self._load.records / f"acknowledged-{topic.name}")
        there = acknowledged[np.isin(acknowledged["ledger"], list(found.unseen_after))]
        self._outcome.unseen += len(there) - len(_seen(there, found))
        self._outcome.violations += found.violations
        self._judge_places(topic, there, found)

    def _judge_places(self, topic: Topic, acknowledged: Records, found: Found) -> None:
        """What was acknowledged is read where the acknowledgement said."""
        placed = acknowledged[acknowledged["ledger"] >= 0]
        lost = np.setdiff1d(_seen(placed, found), found.records)
        if len(lost):
            where = lost[:5].tolist()
            violation = f"{topic.name}: {len(lost)} messages are not where they were acknowledged: {where}"
            self._outcome.violations.append(violation)

    # --- space

    def _delete(self) -> None:
        outcome = self._outcome
        outcome.ledgers_made = max(self._client.list_ledgers(), default=-1) + 1
        outcome.bytes_before = self._bookies.stored_bytes()
        known = {ledger_id for topic in TOPICS for partition in topic.partitions for ledger_id in self._named(partition)}
        self._say(f"topics are deleted: {len(known)} ledgers, {outcome.bytes_before / 1e6:.1f} MB in files of entries")
        for topic in TOPICS:
            self._load.delete(topic)
        with _noted(outcome):
            wait_until(lambda: not known & set(remaining(self._client)), "ledgers of deleted topics are gone", DELETE_S)
        orphans = remaining(self._client)
        outcome.ledgers_orphaned = len(orphans)
        for ledger_id, partition in orphans.items():
            self._say(f"no broker knows ledger {ledger_id} of {partition}")
        self._bookies.collect()
        with _noted(outcome):
            wait_until(self._is_given_back, "space is given back", SPACE_S)
        outcome.bytes_after = self._bookies.stored_bytes()

    def _named(self, partition: str) -> list[int]:
        ledgers = [info.ledger_id for info in ledgers_of(self._store, partition)]
        return ledgers + cursor_ledgers_of(self._store, partition)

    def _is_given_back(self) -> bool:
        return self._bookies.stored_bytes() <= SHARE_LEFT * self._outcome.bytes_before


def _seen(records: Records, found: Found) -> Records:
    """Those that a reader which does not recover can see."""
    hidden = np.zeros(len(records), bool)
    for ledger_id, last in found.unseen_after.items():
        hidden |= (records["ledger"] == ledger_id) & (records["entry"] > last)
    return records[~hidden]


@contextlib.contextmanager
def _noted(outcome: Outcome) -> Iterator[None]:
    """What did not come to pass in time is told, and the run goes on."""
    try:
        yield
    except TimeoutError as problem:
        outcome.violations.append(str(problem))
