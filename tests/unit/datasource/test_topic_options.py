"""Options that name topics of Pulsar, and what does not go together with them."""

from __future__ import annotations

import pytest

from bk_spark.datasource.option_values import pattern_of
from bk_spark.datasource.options import SourceOptions, parse_options
from bk_spark.errors import ConfigError

URI = "zk://127.0.0.1:2181/ledgers"
TOPIC = "persistent://shop/europe/orders"


def parse(**options: str) -> SourceOptions:
    return parse_options({"metadata": URI, **options}, {})


def test_topics_are_named_one_by_one_in_a_list_or_by_a_pattern() -> None:
    assert parse(topic=TOPIC).topic == TOPIC
    assert parse(topics=f"{TOPIC}, visits").topics == (TOPIC, "persistent://public/default/visits")
    assert pattern_of(str(parse(topicsPattern="persistent://shop/europe/o.*/x").topics_pattern)) == ("shop", "europe", "o.*/x")
    assert parse(topic=TOPIC).reads_topics
    assert not parse(path="orders").reads_topics


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"topic": TOPIC, "path": "orders"}, "option 'topic' .*option 'path' names what to read"),
        ({"topic": TOPIC, "topics": "a,b"}, "option 'topics' .*option 'topic' names what to read"),
        ({"topics": "a,,b"}, "topic"),
        ({"topics": "a,persistent://public/default/a"}, "it names topic 'persistent://public/default/a' twice"),
        ({"topicsPattern": "orders-.*"}, "it must be persistent://tenant/namespace/ and a regular expression"),
        ({"topicsPattern": "persistent://a/b/("}, "it must be a regular expression of Python"),
        ({"topic": "non-persistent://a/b/c"}, "non-persistent"),
        ({"topic": TOPIC, "where": "a = 1"}, "option 'where' .*does not apply to topics of Pulsar"),
        ({"topic": TOPIC, "content": "entries"}, "option 'content' .*does not apply to topics of Pulsar"),
        ({"topic": TOPIC, "recover": "true"}, "option 'recover' .*does not apply to topics of Pulsar"),
        ({"topic": TOPIC, "versionAsOf": "3"}, "option 'versionAsOf' .*does not apply to topics of Pulsar"),
        ({"path": "orders", "schema": "topic"}, "option 'schema' .*does not apply to logs"),
        ({"path": "orders", "pulsarMetadata": URI}, "option 'pulsarMetadata' .*does not apply to logs"),
        ({"topic": TOPIC, "schema": "avro"}, "it must be one of raw, topic"),
        ({"topic": TOPIC, "unreadable": "drop"}, "it must be one of fail, skip"),
        ({"topic": TOPIC, "startingOffsets": "soon"}, "startingOffsets"),
        ({"topic": TOPIC, "endingOffsets": "5:1:2"}, "a read ends between entries: leave out the index, 5:1"),
        ({"topic": TOPIC, "startingOffsets": "5:1", "startingTimestamp": "0"}, "give one of the two"),
        ({"topic": TOPIC, "startingSubscription": "s", "startingTimestamp": "0"}, "give one of the two"),
    ],
)
def test_what_a_read_of_topics_cannot_be_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse(**options)


@pytest.mark.parametrize("text", ["earliest", "17:3", "17:3:5", '{"persistent://shop/europe/orders-partition-0": "17:3"}'])
def test_a_start_in_topics_is_a_message_id_or_one_for_each_topic(text: str) -> None:
    assert parse(topic=TOPIC, startingOffsets=text).starting_offsets == text


def test_a_start_in_a_log_is_none_of_a_topic() -> None:
    with pytest.raises(ConfigError, match="it must be earliest or latest, or an offset of a stream"):
        parse(path="orders", startingOffsets="17:3")
    with pytest.raises(ConfigError):
        parse(topic=TOPIC, startingOffsets='{"entry":12,"index":3,"ledger":7,"log":"u","version":41}')


def test_topics_are_never_written() -> None:
    with pytest.raises(ConfigError, match="option 'topic'"):
        parse(topic=TOPIC).check_use("batch write")


def test_limits_of_a_trigger_belong_to_streams_of_topics() -> None:
    options = parse(topic=TOPIC, maxRowsPerTrigger="5")
    options.check_use("stream read")
    with pytest.raises(ConfigError, match="maxRowsPerTrigger"):
        options.check_use("batch read")
