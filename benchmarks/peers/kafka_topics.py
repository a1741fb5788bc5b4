"""Topics of a Kafka cluster, made and asked about with the Kafka client that Spark's JVM has."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

CREATE_S = 60.0
"""Brokers may know each other only a while after they take connections."""

_RETRY_S = 0.5


class Topics:
    """Close it, or use it in a ``with`` statement."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str) -> None:
        assert spark._jvm is not None
        self._java: Any = spark._jvm.java.util
        self._kafka: Any = spark._jvm.org.apache.kafka
        self._admin: Any = self._kafka.clients.admin.Admin.create(self._map({"bootstrap.servers": bootstrap_servers}))

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """With the cluster's default number of replicas. Waits until its brokers are there."""
        optional = self._java.Optional
        topic = self._kafka.clients.admin.NewTopic(name, optional.of(partitions), optional.empty()).configs(self._map(config))
        deadline = time.monotonic() + CREATE_S
        while True:
            try:
                self._admin.createTopics(self._list(topic)).all().get()
                return
            except Py4JJavaError as problem:
                if "InvalidReplicationFactor" not in str(problem.java_exception) or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)

    def rows(self, name: str, partitions: int) -> int:
        """How many records all partitions hold, of a topic that nothing was deleted from."""
        latest = self._kafka.clients.admin.OffsetSpec.latest()
        wanted = self._java.HashMap()
        for number in range(partitions):
            wanted.put(self._kafka.common.TopicPartition(name, number), latest)
        ends = self._admin.listOffsets(wanted).all().get()
        return sum(int(end.offset()) for end in ends.values())

    def delete(self, name: str) -> None:
        self._admin.deleteTopics(self._list(name)).all().get()

    def close(self) -> None:
        self._admin.close()

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _map(self, entries: Mapping[str, str]) -> Any:
        found = self._java.HashMap()
        for name, value in entries.items():
            found.put(name, value)
        return found

    def _list(self, value: object) -> Any:
        found = self._java.ArrayList()
        found.add(value)
        return found
