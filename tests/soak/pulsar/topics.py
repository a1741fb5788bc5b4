"""The topics of a run: what their messages are like, who subscribes, and what is kept of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TENANT = "soak"
PARTITIONS = 2

EXCLUSIVE, SHARED, KEY_SHARED, FAILOVER = "Exclusive", "Shared", "Key_Shared", "Failover"
UNORDERED = (SHARED,)
"""Subscriptions in which messages of one key may come in any order."""

_ALL = {EXCLUSIVE: 1, SHARED: 2, KEY_SHARED: 2, FAILOVER: 2}
"""Consumers of each subscription."""

_NOT_BY_KEY = {kind: consumers for kind, consumers in _ALL.items() if kind != KEY_SHARED}
"""A batch with several keys goes to one consumer."""


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    is_retained: bool
    """Everything that was ever sent stays; else a ledger goes once all subscriptions have acknowledged it."""
    deduplicates: bool
    """The broker stores a message once, however often a producer sends it."""

    @property
    def full(self) -> str:
        return f"{TENANT}/{self.name}"


KEPT = Namespace("kept", is_retained=True, deduplicates=False)
ONCE = Namespace("once", is_retained=True, deduplicates=True)
PASSING = Namespace("passing", is_retained=False, deduplicates=False)
NAMESPACES = (KEPT, ONCE, PASSING)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    namespace: Namespace
    batching: str
    """``off``: an entry is a message. ``keys``: an entry is a batch of one key. ``mixed``: a batch of any keys."""
    compression: str
    subscriptions: Mapping[str, int]

    @property
    def full(self) -> str:
        return f"persistent://{self.namespace.full}/{self.name}"

    @property
    def partitions(self) -> tuple[str, ...]:
        """As Pulsar names their managed ledgers in ZooKeeper, and in the custom metadata of their ledgers."""
        return tuple(f"{self.namespace.full}/persistent/{self.name}-partition-{number}" for number in range(PARTITIONS))


TOPICS = (
    Topic("plain", KEPT, "off", "NONE", _ALL),
    Topic("batched", KEPT, "keys", "NONE", _ALL),
    Topic("mixed-lz4", KEPT, "mixed", "LZ4", _NOT_BY_KEY),
    Topic("zstd", KEPT, "off", "ZSTD", _ALL),
    Topic("single", ONCE, "off", "NONE", {EXCLUSIVE: 1}),
    Topic("stream", PASSING, "keys", "LZ4", _ALL),
)
