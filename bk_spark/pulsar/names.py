"""The names of Pulsar's topics and subscriptions, and where its metadata store keeps what is known of them.

::

    persistent://public/default/orders-partition-3
                 tenant namespace local name        → partition 3 of the topic orders

    managed-ledgers/public/default/persistent/orders-partition-3        ManagedLedgerInfo
    managed-ledgers/public/default/persistent/orders-partition-3/sub    ManagedCursorInfo of subscription sub
    admin/partitioned-topics/public/default/persistent/orders           how many partitions there are
    schemas/public/default/orders                                       SchemaLocator, one for all partitions

All are below Pulsar's root. A local name may have any characters: as a node's name it is encoded as a form's field of a web
page is (``encode``).

Ref: TopicName and Codec of pulsar-common, BookkeeperSchemaStorage of pulsar-broker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Never
from urllib.parse import quote_plus, unquote_plus

from bk_spark.errors import ConfigError

TRANSACTION_BUFFERS: Final = (
    "__transaction_buffer_snapshot",
    "__transaction_buffer_snapshot_segments",
    "__transaction_buffer_snapshot_indexes",
)
"""Local names of the topics of a namespace into which brokers write snapshots of its transactions. The first is that of small
snapshots; the two others share a large one."""

_PENDING_ACKS: Final = "__transaction_pending_ack"
_PARTITION = re.compile(r"(?P<base>.+)-partition-(?P<index>0|[1-9][0-9]{0,9})", re.DOTALL)
_MAX_PARTITION: Final = 2**31 - 1
_PLAIN_NAME = re.compile(r"[-=:.a-zA-Z0-9_]+")
_FORMS: Final = "give it as persistent://tenant/namespace/name, tenant/namespace/name, or name (in public/default)"


@dataclass(frozen=True, slots=True)
class TopicName:
    """A persistent topic, or one partition of it. Raises ConfigError for a part that Pulsar does not allow."""

    tenant: str
    namespace: str
    local_name: str
    """With the partition's suffix, if it is a partition; not encoded."""

    def __post_init__(self) -> None:
        for part in (self.tenant, self.namespace):
            if not _PLAIN_NAME.fullmatch(part):
                _refuse(str(self), f"a tenant and a namespace have letters, digits and -=:._ only; {_FORMS}")
        if not self.local_name:
            _refuse(str(self), f"it has no name behind its namespace; {_FORMS}")
        if "/" in self.local_name:
            _refuse(str(self), f"there is a '/' too many, names with a cluster are those of Pulsar 1; {_FORMS}")

    @staticmethod
    def parse(text: str) -> TopicName:
        """A name as Pulsar's clients take it. Raises ConfigError."""
        domain, separator, rest = text.partition("://")
        if not separator:
            domain, rest = "persistent", text if "/" in text else f"public/default/{text}"
        if domain == "non-persistent":
            _refuse(text, "messages of a non-persistent topic are never stored: read a persistent one")
        parts = rest.split("/", 2)
        if domain != "persistent" or len(parts) != 3:
            _refuse(text, _FORMS)
        return TopicName(*parts)

    @staticmethod
    def of_child(tenant: str, namespace: str, child: str) -> TopicName:
        """The topic that a child of ``namespace_path`` belongs to."""
        return TopicName(tenant, namespace, decode(child))

    def __str__(self) -> str:
        return f"persistent://{self.tenant}/{self.namespace}/{self.local_name}"

    @property
    def partition(self) -> int | None:
        """The index of the partition that this is; None for a topic that is none."""
        found = _PARTITION.fullmatch(self.local_name)
        index = int(found["index"]) if found else -1
        return index if 0 <= index <= _MAX_PARTITION else None

    @property
    def base(self) -> TopicName:
        """The topic that this is a partition of; itself if it is none."""
        if self.partition is None:
            return self
        return TopicName(self.tenant, self.namespace, self.local_name[: self.local_name.rindex("-partition-")])

    def of_partition(self, index: int) -> TopicName:
        """Partition ``index`` of this topic."""
        return TopicName(self.tenant, self.namespace, f"{self.local_name}-partition-{index}")

    @property
    def is_system(self) -> bool:
        """Whether brokers write it for themselves: events, snapshots of transactions, logs, acknowledgements to come."""
        local_name = self.base.local_name
        return local_name.startswith("__") or local_name.endswith(_PENDING_ACKS)

    @property
    def managed_ledger_path(self) -> str:
        """Below Pulsar's root: which ledgers the topic has. Its children are durable subscriptions."""
        return f"{namespace_path(self.tenant, self.namespace)}/{encode(self.local_name)}"

    def cursor_path(self, subscription: str) -> str:
        """Below Pulsar's root: how far a durable subscription has read."""
        return f"{self.managed_ledger_path}/{encode(subscription)}"

    @property
    def partitions_path(self) -> str:
        """Below Pulsar's root: how many partitions the topic has. Only a partitioned topic has this node."""
        return f"admin/partitioned-topics/{self.tenant}/{self.namespace}/persistent/{encode(self.local_name)}"

    @property
    def schema_path(self) -> str:
        """Below Pulsar's root: where the versions of its schema are. Partitions share their topic's."""
        return f"schemas/{self.tenant}/{self.namespace}/{encode(self.base.local_name)}"


def namespace_path(tenant: str, namespace: str) -> str:
    """Below Pulsar's root: the node whose children are the topics of a namespace, partitions counted, in encoded names."""
    return f"managed-ledgers/{tenant}/{namespace}/persistent"


def encode(name: str) -> str:
    """A topic's or subscription's name as the name of a node: UTF-8, as Java's URLEncoder writes it."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode(node: str) -> str:
    """The name that ``encode`` made a node's name of."""
    return unquote_plus(node)


def _refuse(topic: str, remedy: str) -> Never:
    raise ConfigError("topic", topic, remedy)
