"""The cases of options about topics of Pulsar."""

from __future__ import annotations

import uuid

import pytest

from bk_spark.errors import NoSuchTopicError, UnreadableMessagesError
from tests.cluster.datasource.option_cases import CASES, World, case
from tests.cluster.lake.object_store import ObjectStore
from tests.cluster.topic.offloader import Offloader
from tests.cluster.topic.written_topics import WrittenTopic
from tests.unit.pulsar.entries import single

__all__ = ["CASES"]


def written(world: World, name: str = "a", root: str = "") -> WrittenTopic:
    """A topic with the messages 0, 1 and a tombstone, in a namespace of its own."""
    topic = WrittenTopic(world.bookkeeper, f"persistent://t/n{uuid.uuid4().hex}/{name}", root)
    topic.write([[single(b"0"), single(b"1"), single(b"", null_value=True)]])
    return topic


def values(world: World, **options: object) -> list[bytes | None]:
    return world.direct.column(None, "value", **options)


@case("topic")
def _(world: World) -> None:
    assert values(world, topic=written(world)) == [b"0", b"1", None]


@case("topics")
def _(world: World) -> None:
    assert values(world, topics=f"{written(world)}, {written(world)}") == [b"0", b"1", None] * 2


@case("topicsPattern")
def _(world: World) -> None:
    topic = written(world, "orders-eu")
    assert values(world, topicsPattern=str(topic).replace("orders-eu", "orders-.*")) == [b"0", b"1", None]


@case("pulsarMetadata")
def _(world: World) -> None:
    root = f"/pulsar-{uuid.uuid4().hex}"
    topic = written(world, root=root)
    host = world.direct.uri.removeprefix("zk://").split("/")[0]
    assert values(world, topic=topic, pulsarMetadata=f"zk://{host}{root}") == [b"0", b"1", None]
    with pytest.raises(NoSuchTopicError):
        values(world, topic=topic)


@case("offloadEndpoint")
def _(world: World) -> None:
    topic = written(world)
    with pytest.MonkeyPatch.context() as patch, ObjectStore().running() as store:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        Offloader(world.bookkeeper, store).offload(topic, 0, endpoint="http://127.0.0.1:9")
        assert values(world, topic=topic, offloadEndpoint=store.endpoint) == [b"0", b"1", None]


@case("schema")
def _(world: World) -> None:
    topic = written(world)
    topic.register("STRING")
    assert values(world, topic=topic, Schema="topic") == ["0", "1", None]


@case("startingSubscription")
def _(world: World) -> None:
    topic = written(world)
    topic.subscribe("s", (topic.ledger_ids[0], 0))
    assert values(world, topic=topic, startingSubscription="s") == [b"1", None]


@case("tombstones")
def _(world: World) -> None:
    assert values(world, topic=written(world), tombstones=False) == [b"0", b"1"]


@case("unreadable")
def _(world: World) -> None:
    topic = written(world)
    topic.write([[b"no message"]])
    assert values(world, topic=topic, unreadable="skip") == [b"0", b"1", None]
    with pytest.raises(UnreadableMessagesError):
        values(world, topic=topic)
