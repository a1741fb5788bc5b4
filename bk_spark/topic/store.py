"""What Pulsar keeps in its metadata store about topics, looked at.

::

    <root>/managed-ledgers/<tenant>/<namespace>/persistent/<topic>                the topic's ledgers, in order
    <root>/managed-ledgers/<tenant>/<namespace>/persistent/<topic>/<subscription> how far a durable subscription has read
    <root>/admin/partitioned-topics/<tenant>/<namespace>/persistent/<topic>       how many partitions it has
    <root>/schemas/<tenant>/<namespace>/<topic>                                   where its schemas are

A server of ZooKeeper that lags proves no absence, so it is synced before something is said to be missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from bk_spark.errors import ConfigError, NoSuchTopicError, State
from bk_spark.metadata.store import NoNodeError
from bk_spark.pulsar import names, stored
from bk_spark.pulsar.names import TopicName
from bk_spark.topic.access import TopicAccess

MAX_TOPICS_READ = 1_000
"""Topics of one read, partitions counted: each costs a look at ZooKeeper and at the bookies of its open ledger."""


class TopicStore:
    """Looks at topics. Threads may share it."""

    def __init__(self, access: TopicAccess) -> None:
        self._store = access.store
        self._root = access.root
        self.where: Final = access.where
        """What errors call the place."""

    def sync(self) -> None:
        """Let later looks see all that was there before: a server that lags lists fewer ledgers."""
        self._store.sync(self._root or "/")

    def partitions(self, topic: TopicName) -> list[TopicName]:
        """The topics that hold the messages of ``topic``: its partitions, or itself. Raises NoSuchTopicError."""
        partitioned, own = self._found([topic.partitions_path, topic.managed_ledger_path])
        count = 0 if partitioned is None else stored.partitions(partitioned)
        if count:
            _check_count(str(topic), count)
            return [topic.of_partition(index) for index in range(count)]
        if own is None and not self._is_partition(topic):
            raise NoSuchTopicError(str(topic), self.where)
        return [topic]

    def matching(self, tenant: str, namespace: str, pattern: str) -> list[TopicName]:
        """The topics of a namespace whose name without partition matches as a whole, each partition by itself.

        Topics of the broker's own are left out. Raises ConfigError for too many.
        """
        parent = f"{self._root}/{names.namespace_path(tenant, namespace)}"
        found = [TopicName.of_child(tenant, namespace, child) for child in self._children(parent)]
        chosen = [one for one in found if not one.is_system and re.fullmatch(pattern, one.base.local_name)]
        _check_count(pattern, len(chosen))
        return sorted(chosen, key=lambda one: (one.base.local_name, -1 if one.partition is None else one.partition))

    def managed_ledgers(self, topics: Sequence[TopicName]) -> list[stored.ManagedLedger | None]:
        """The ledgers of each topic; None for a topic that has none: no broker has loaded it yet, or it was deleted."""
        values = self._found([topic.managed_ledger_path for topic in topics])
        return [
            None if value is None else stored.managed_ledger(str(topic), value)
            for topic, value in zip(topics, values, strict=True)
        ]

    def cursor(self, topic: TopicName, subscription: str) -> stored.StoredCursor | None:
        """How far a durable subscription has read; None if the topic does not have it."""
        [value] = self._found([topic.cursor_path(subscription)])
        return None if value is None else stored.cursor(value)

    def subscriptions(self, topic: TopicName) -> list[str]:
        """The durable subscriptions of a topic."""
        return sorted(names.decode(child) for child in self._children(f"{self._root}/{topic.managed_ledger_path}"))

    def schema_locator(self, topic: TopicName) -> stored.SchemaLocator | None:
        """Where the versions of a topic's schema are; None if it has no schema."""
        [value] = self._found([topic.schema_path])
        return None if value is None else stored.schema_locator(value)

    def may_have_transactions(self, topics: Sequence[TopicName]) -> list[bool]:
        """Whether transactions were ever used in the namespace of each topic.

        A broker writes the first snapshot of its transaction buffer into a topic of the namespace before it takes the first
        message of a transaction.
        """
        namespaces = dict.fromkeys((topic.tenant, topic.namespace) for topic in topics)
        buffers = [TopicName(*one, name).managed_ledger_path for one in namespaces for name in names.TRANSACTION_BUFFERS]
        partitioned = [TopicName(*one, name).partitions_path for one in namespaces for name in names.TRANSACTION_BUFFERS]
        found = [value is not None for value in self._found(buffers + partitioned)]
        each = len(names.TRANSACTION_BUFFERS)
        is_used = {
            one: any(found[index * each : (index + 1) * each]) or any(found[len(buffers) + index * each :][:each])
            for index, one in enumerate(namespaces)
        }
        return [is_used[topic.tenant, topic.namespace] for topic in topics]

    def _is_partition(self, topic: TopicName) -> bool:
        """Whether a partitioned topic says that it has this partition. One that no broker has loaded has no ledgers yet."""
        if topic.partition is None:
            return False
        [value] = self._found([topic.base.partitions_path])
        return value is not None and topic.partition < stored.partitions(value)

    def _found(self, below_root: Sequence[str]) -> list[bytes | None]:
        paths = [f"{self._root}/{path}" for path in below_root]
        found = self._store.get_many(paths)
        if None in found:
            self.sync()
            found = self._store.get_many(paths)
        return [None if one is None else one.value for one in found]

    def _children(self, path: str) -> list[str]:
        self._store.sync(path)
        try:
            return self._store.children(path)
        except NoNodeError:
            return []


def _check_count(what: str, count: int) -> None:
    if count > MAX_TOPICS_READ:
        remedy = f"one read takes {MAX_TOPICS_READ} at most, partitions counted: read fewer, and join them with union()"
        raise ConfigError(f"'{what}'", State(f"the name of {count} topics"), remedy)
