"""A server of ZooKeeper that lags shows fewer topics than there are: it is synced before one is said to be missing."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from bk_spark.errors import NoSuchTopicError
from bk_spark.metadata.store import NoNodeError, Versioned
from bk_spark.pulsar.names import TopicName
from bk_spark.topic.access import ReadLedger, TopicAccess
from bk_spark.topic.store import TopicStore

TOPIC = TopicName.parse("persistent://public/default/visits")


class LaggingStore:
    """It shows ``values``, znodes by path, after it was synced."""

    uri = "zk://lagging"

    def __init__(self, values: dict[str, bytes]) -> None:
        self._values = values
        self._shown: dict[str, bytes] = {}

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        return [Versioned(self._shown[path], 0, 0, 0, 0) if path in self._shown else None for path in paths]

    def children(self, path: str) -> list[str]:
        found = {one.removeprefix(f"{path}/").split("/")[0] for one in self._shown if one.startswith(f"{path}/")}
        if not found:
            raise NoNodeError(path)
        return sorted(found)

    def sync(self, path: str) -> None:
        self._shown = self._values


def store_of(values: dict[str, bytes]) -> TopicStore:
    def open_ledger(ledger_id: int) -> ReadLedger:
        raise AssertionError("no ledger is opened")

    return TopicStore(TopicAccess(LaggingStore(values), "", open_ledger))


def test_a_partitioned_topic_that_a_lagging_server_does_not_show_is_found() -> None:
    store = store_of({f"/{TOPIC.partitions_path}": json.dumps({"partitions": 2}).encode()})
    assert store.partitions(TOPIC) == [TOPIC.of_partition(0), TOPIC.of_partition(1)]


def test_a_topic_that_a_lagging_server_does_not_show_matches_a_pattern() -> None:
    store = store_of({f"/{TOPIC.managed_ledger_path}": b""})
    assert store.matching("public", "default", "vis.*") == [TOPIC]


def test_a_topic_that_no_server_has_is_missing() -> None:
    with pytest.raises(NoSuchTopicError, match="visits"):
        store_of({}).partitions(TOPIC)
