"""Topics of Pulsar in Spark: columns as Spark shows them, SQL, typed values, and a stream that restarts from its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from bk_spark.local.cluster import LocalCluster
from tests.cluster.topic.conftest import bookkeeper, namespace, topic
from tests.cluster.topic.written_topics import WrittenTopic
from tests.unit.pulsar.entries import ZSTD, Message, batch, chunks, single

__all__ = ["bookkeeper", "namespace", "topic"]

Load = Callable[..., DataFrame]


@pytest.fixture
def load(spark: SparkSession, cluster: LocalCluster) -> Load:
    return lambda **options: spark.read.format("bookkeeper").option("metadata", cluster.metadata_uri).options(**options).load()


def test_messages_are_rows_in_the_topics_order(load: Load, topic: WrittenTopic, spark: SparkSession) -> None:
    large = b"large" * 1000
    some = [Message(b"%d" % number, {"shop": "eu"}, {"partition_key": f"k{number}"}) for number in range(3)]
    topic.write([[batch(some, compression=ZSTD)], [*chunks(large, 2000, "u"), single(b"", null_value=True)]])
    frame = load(topic=topic, maxBytesPerPartition="1k")
    assert frame.rdd.getNumPartitions() > 1
    rows = frame.collect()
    assert [row.value and bytes(row.value) for row in rows] == [b"0", b"1", b"2", large, None]
    assert rows[1]._message_id.asDict() == {"ledger_id": topic.ledger_ids[0], "entry_id": 0, "batch_index": 1}
    assert (rows[1].key, rows[1]._properties, rows[1]._event_time) == ("k1", {"shop": "eu"}, None)
    frame.createOrReplaceTempView("messages")
    asked = "SELECT key FROM messages WHERE _properties['shop'] = 'eu' AND _message_id.batch_index > 0 ORDER BY key"
    assert [row.key for row in spark.sql(asked).collect()] == ["k1", "k2"]
    assert load(topic=topic).select("_publish_time").distinct().count() == 1
    assert load(topic=topic).count() == 5


def test_values_typed_by_the_topics_schema_are_columns(load: Load, topic: WrittenTopic) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": "string"}}]
    version = topic.register("JSON", json.dumps({"type": "record", "name": "Order", "fields": fields}).encode())
    documents = [{"id": 1, "tags": ["a", "b"]}, {"id": 2, "tags": []}]
    topic.write([[single(json.dumps(one).encode(), schema_version=version) for one in documents]])
    frame = load(topic=topic, schema="topic")
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,tags:array<string>>"
    assert [(row.id, row.tags) for row in frame.select("value.*").collect()] == [(1, ["a", "b"]), (2, [])]


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, cluster: LocalCluster, topic: WrittenTopic, tmp_path: Path
) -> None:
    def run() -> None:
        reader = spark.readStream.format("bookkeeper").option("metadata", cluster.metadata_uri).option("topic", str(topic))
        frame = reader.option("startingOffsets", "earliest").option("maxRowsPerTrigger", "2").load()
        writer = frame.select(col("value").cast("string")).writeStream.format("json").option("path", str(tmp_path / "out"))
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()

    topic.write([[single(b"%d" % number) for number in range(5)]])
    run()
    topic.write([[single(b"%d" % number) for number in range(5, 8)]])
    run()
    run()
    found = [row.value for row in spark.read.schema("value STRING").json(str(tmp_path / "out")).collect()]
    assert sorted(found) == [str(number) for number in range(8)]


def test_a_topic_that_is_not_there_is_one_clear_sentence(load: Load, namespace: str) -> None:
    with pytest.raises(PySparkException, match=f"there is no topic '{namespace}/nothing' at zk://"):
        load(topic=f"{namespace}/nothing")
