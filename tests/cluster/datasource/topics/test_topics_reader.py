"""Batch reads of topics as Spark asks for them: columns, partitions, several topics. Without Spark, on real bookies."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, MessagesGoneError, NoSuchTopicError, SchemaMismatchError
from tests.cluster.datasource.direct import Direct
from tests.cluster.topic.written_topics import WrittenTopic, partitioned
from tests.unit.pulsar.entries import Message, batch, chunks, marker, single


def numbered(*range_of: int) -> list[bytes]:
    return [single(b"%d" % number) for number in range(*range_of)]


def test_a_topic_has_the_columns_of_messages_as_spark_types(direct: Direct, topic: WrittenTopic) -> None:
    topic.write([numbered(1)])
    schema = direct.source(None, topic=topic).schema()
    assert schema.simpleString() == (
        "struct<key:string,value:binary,_topic:string,_message_id:struct<ledger_id:bigint,entry_id:bigint,batch_index:int>,"
        "_publish_time:timestamp,_event_time:timestamp,_producer:string,_sequence_id:bigint,"
        "_properties:map<string,string>,_ordering_key:binary>"
    )


def test_only_the_columns_asked_for_are_given(direct: Direct, topic: WrittenTopic) -> None:
    topic.write([[single(b"v", partition_key="k", properties={"a": "1"})]])
    asked = StructType([StructField("_properties", MapType(StringType(), StringType())), StructField("key", StringType())])
    assert direct.read(None, asked, topic=topic) == [{"_properties": [("a", "1")], "key": "k"}]
    with pytest.raises(SchemaMismatchError, match="column 'id' is asked for, the columns are key, value, _topic"):
        direct.read(None, StructType([StructField("id", LongType())]), topic=topic)


@pytest.mark.parametrize("size", ["1k", "3k", "64m"])
def test_whatever_the_partitions_each_message_is_read_once_in_order(direct: Direct, topic: WrittenTopic, size: str) -> None:
    large = bytes(range(256)) * 30

    def of(transaction: int, value: bytes) -> bytes:
        return single(value, txnid_most_bits=0, txnid_least_bits=transaction)

    parts = chunks(large, 1000, "u")
    some = batch([Message(b"b%d" % number) for number in range(5)])
    first = [some, parts[0], of(1, b"t1"), *parts[1:5], *numbered(20), of(2, b"t2")]
    topic.write([first, [*numbered(20, 60), parts[5], marker(21, 0, 1)], [*parts[6:], marker(22, 0, 2), *numbered(60, 64)]])
    found = direct.column(None, "value", topic=topic, maxBytesPerPartition=size)
    numbers = [b"%d" % number for number in range(64)]
    assert found == [b"b0", b"b1", b"b2", b"b3", b"b4", b"t1", *numbers[:60], large, *numbers[60:]]
    partitions = direct.reader(None, topic=topic, maxBytesPerPartition=size).partitions()
    assert (len(partitions) > 1) is (size != "64m")


def test_more_partitions_are_made_where_they_are_asked_for(direct: Direct, topic: WrittenTopic) -> None:
    topic.write([numbered(40)])
    assert len(direct.reader(None, topic=topic, minPartitions=4).partitions()) == 4
    assert direct.column(None, "value", topic=topic, minPartitions=4) == [b"%d" % number for number in range(40)]


def test_topics_share_the_partitions_that_are_asked_for(direct: Direct, bookkeeper: BookKeeper, namespace: str) -> None:
    for one in partitioned(bookkeeper, f"{namespace}/visits", 2):
        one.write([numbered(40)])
    assert len(direct.reader(None, topic=f"{namespace}/visits", minPartitions=6).partitions()) == 6


def test_a_list_and_a_pattern_name_several_topics(direct: Direct, bookkeeper: BookKeeper, namespace: str) -> None:
    for name in ("orders-eu", "orders-us", "visits", "__change_events"):
        WrittenTopic(bookkeeper, f"{namespace}/{name}").write([[single(name.encode())]])
    for index, one in enumerate(partitioned(bookkeeper, f"{namespace}/orders-asia", 2)):
        one.write([[single(b"asia%d" % index)]])
    listed = direct.column(None, "value", topics=f"{namespace}/visits,{namespace}/orders-asia")
    assert listed == [b"visits", b"asia0", b"asia1"]
    matched = direct.column(None, "value", topicsPattern=f"{namespace}/orders-.*")
    assert matched == [b"asia0", b"asia1", b"orders-eu", b"orders-us"]
    assert b"__change_events" not in direct.column(None, "value", topicsPattern=f"{namespace}/.*")
    with pytest.raises(NoSuchTopicError, match="there is no topic"):
        direct.read(None, topicsPattern=f"{namespace}/orders")  # the whole name must match


def test_offsets_name_a_place_in_each_partition(direct: Direct, bookkeeper: BookKeeper, namespace: str) -> None:
    first, second = partitioned(bookkeeper, f"{namespace}/visits", 2)
    places = first.write([numbered(4)])
    second.write([numbered(10, 12)])
    options: dict[str, Any] = {"topic": f"{namespace}/visits"}
    start = f'{{"{first}": "{places[1]}", "{second}": "latest"}}'
    assert direct.column(None, "value", **options, startingOffsets=start) == [b"1", b"2", b"3"]
    end = f'{{"{first}": "{places[2]}"}}'
    assert direct.column(None, "value", **options, endingOffsets=end) == [b"0", b"1", b"10", b"11"]
    with pytest.raises(ConfigError, match="2 are read, partitions counted: give one by topic"):
        direct.read(None, **options, startingOffsets=places[0])
    with pytest.raises(ConfigError, match="it names a topic that is not read"):
        direct.read(None, **options, startingOffsets='{"other": "5:1"}')


def test_a_start_within_a_batch_leaves_out_the_messages_before_it_and_nothing_of_later_partitions(
    direct: Direct, topic: WrittenTopic
) -> None:
    three = batch([Message(b"a"), Message(b"b"), Message(b"c")])
    [place, _, _] = topic.write([[three, three, three]])
    options: dict[str, Any] = {"topic": topic, "startingOffsets": f"{place}:2", "minPartitions": 3}
    assert len(direct.reader(None, **options).partitions()) == 3
    assert direct.column(None, "value", **options) == [b"c", b"a", b"b", b"c", b"a", b"b", b"c"]


def test_times_and_subscriptions_begin_each_partition(direct: Direct, bookkeeper: BookKeeper, namespace: str) -> None:
    for index, one in enumerate(partitioned(bookkeeper, f"{namespace}/visits", 2)):
        entries = [single(b"%d" % (10 * index + number), publish_time=1_700_000_000_000 + number) for number in range(4)]
        one.write([entries])
        one.subscribe("s", (one.ledger_ids[0], index))
    topic = f"{namespace}/visits"
    found = direct.column(None, "value", topic=topic, startingTimestamp="2023-11-14T22:13:20.002Z")
    assert found == [b"2", b"3", b"12", b"13"]
    assert direct.column(None, "value", topic=topic, startingSubscription="s") == [b"1", b"2", b"3", b"12", b"13"]


def test_a_task_says_that_its_ledger_was_trimmed(direct: Direct, topic: WrittenTopic) -> None:
    topic.write([numbered(2), numbered(2, 4)])
    reader = direct.reader(None, topic=topic)
    partitions = reader.partitions()
    lenient = direct.reader(None, topic=topic, failOnDataLoss=False)
    topic.trim()
    with pytest.raises(MessagesGoneError, match="trimmed ledger"):
        [one for part in partitions for one in reader.read(part)]
    found = [row for part in partitions for one in lenient.read(part) for row in one.to_pylist()]
    assert [row["value"] for row in found] == [b"2", b"3"]
