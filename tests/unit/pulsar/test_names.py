"""Topics' names: the forms that Pulsar takes, partitions, and the nodes of the metadata store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import ConfigError
from bk_spark.pulsar.names import TRANSACTION_BUFFERS, TopicName, decode, encode, namespace_path

LOCAL_NAMES = st.text(min_size=1).filter(lambda name: "/" not in name and name.isprintable())


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("orders", "persistent://public/default/orders"),
        ("shop/eu/orders", "persistent://shop/eu/orders"),
        ("persistent://shop/eu/orders", "persistent://shop/eu/orders"),
        ("persistent://a-b=c:d.e_f/n/ü x", "persistent://a-b=c:d.e_f/n/ü x"),
    ],
)
def test_a_name_is_taken_in_each_form_that_pulsar_takes(text: str, whole: str) -> None:
    assert str(TopicName.parse(text)) == whole
    assert TopicName.parse(whole) == TopicName.parse(text)


@pytest.mark.parametrize(
    "text", ["", "a/b", "/a", "a/b/", "a//c", "kafka://a/b/c", "persistent://a/b", "t ü/ns/x", "t/n$/x", "persistent://t/c/n/x"]
)
def test_a_name_that_pulsar_would_not_take_is_refused_with_the_forms_that_it_takes(text: str) -> None:
    with pytest.raises(ConfigError, match="persistent://tenant/namespace/name") as caught:
        TopicName.parse(text)
    assert caught.value.what == "topic"


def test_a_non_persistent_topic_is_refused_because_nothing_of_it_is_stored() -> None:
    with pytest.raises(ConfigError, match="never stored"):
        TopicName.parse("non-persistent://public/default/orders")


@pytest.mark.parametrize(
    ("local_name", "partition", "base"),
    [
        ("t-partition-0", 0, "t"),
        ("t-partition-12", 12, "t"),
        ("t-partition-1-partition-2", 2, "t-partition-1"),
        ("t-partition-2147483647", 2147483647, "t"),
        ("t", None, "t"),
        ("t-partition-", None, "t-partition-"),
        ("t-partition-01", None, "t-partition-01"),
        ("t-partition--1", None, "t-partition--1"),
        ("t-partition-2147483648", None, "t-partition-2147483648"),
        ("t-partition-1x", None, "t-partition-1x"),
        ("-partition-1", None, "-partition-1"),
    ],
)
def test_a_partition_ends_with_its_number_as_java_writes_it(local_name: str, partition: int | None, base: str) -> None:
    topic = TopicName("t", "n", local_name)
    assert (topic.partition, topic.base.local_name) == (partition, base)


@given(name=LOCAL_NAMES, index=st.integers(0, 2**31 - 1))
def test_a_partition_of_a_topic_knows_its_topic_and_number(name: str, index: int) -> None:
    topic = TopicName("t", "n", name)
    assert (topic.of_partition(index).base, topic.of_partition(index).partition) == (topic, index)


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("a-b_c.d*e", "a-b_c.d*e"),
        ("a b", "a+b"),
        ("a+b", "a%2Bb"),
        ("~", "%7E"),
        ("%41", "%2541"),
        ("(x)!'", "%28x%29%21%27"),
        ("grün/日", "gr%C3%BCn%2F%E6%97%A5"),
    ],
)
def test_a_node_is_named_as_javas_url_encoder_writes_the_name(name: str, node: str) -> None:
    assert encode(name) == node
    assert decode(node) == name


@given(name=st.text())
def test_a_node_s_name_gives_the_name_back(name: str) -> None:
    assert decode(encode(name)) == name


def test_the_nodes_of_a_topic_lie_below_its_tenant_and_namespace() -> None:
    topic = TopicName.parse("shop/eu/my orders").of_partition(3)
    assert topic.managed_ledger_path == "managed-ledgers/shop/eu/persistent/my+orders-partition-3"
    assert topic.cursor_path("a/b") == "managed-ledgers/shop/eu/persistent/my+orders-partition-3/a%2Fb"
    assert topic.base.partitions_path == "admin/partitioned-topics/shop/eu/persistent/my+orders"
    assert topic.schema_path == "schemas/shop/eu/my+orders"


@given(name=LOCAL_NAMES)
def test_the_child_of_a_namespace_s_node_gives_the_topic_back(name: str) -> None:
    topic = TopicName("shop", "eu", name)
    parent, _, child = topic.managed_ledger_path.rpartition("/")
    assert parent == namespace_path("shop", "eu")
    assert TopicName.of_child("shop", "eu", child) == topic


@pytest.mark.parametrize("name", [*TRANSACTION_BUFFERS, "__change_events-partition-1", "t-sub__transaction_pending_ack"])
def test_topics_that_brokers_write_for_themselves_are_told_apart(name: str) -> None:
    assert TopicName("public", "default", name).is_system
    assert not TopicName("public", "default", f"x{name}y").is_system
