"""Reads of Spark over topics whose ledgers Pulsar offloaded. Without Spark, on real bookies and an object store on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bk_spark.bookkeeper import BookKeeper
from tests.cluster.datasource.direct import Direct
from tests.cluster.datasource.topics.conftest import OpenTopics
from tests.cluster.datasource.topics.test_topics_stream import EARLIEST, drained, numbered
from tests.cluster.lake.object_store import ObjectStore
from tests.cluster.topic.offloader import Offloader
from tests.cluster.topic.written_topics import WrittenTopic
from tests.unit.pulsar.copies import WrittenCopy, written_copy
from tests.unit.pulsar.entries import marker, single

COMMIT = 21


@pytest.fixture
def offloader(bookkeeper: BookKeeper, monkeypatch: pytest.MonkeyPatch) -> Iterator[Offloader]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with ObjectStore().running() as store:
        yield Offloader(bookkeeper, store)


def test_partitions_cut_copies_anywhere_and_each_message_comes_once(
    direct: Direct, topic: WrittenTopic, offloader: Offloader
) -> None:
    topic.write([numbered(40), numbered(40, 45), numbered(45, 80)])
    offloader.offload(topic, 0)
    offloader.offload(topic, 2)
    reader = direct.reader(None, topic=topic, maxBytesPerPartition="512")
    assert len(reader.partitions()) > 6
    assert direct.column(None, "value", topic=topic, maxBytesPerPartition="512") == [b"%d" % number for number in range(80)]


@pytest.mark.parametrize("limits", [{}, {"maxRowsPerTrigger": 7}, {"maxBytesPerTrigger": 300}])
def test_a_stream_begins_in_copies_and_goes_on_while_more_are_made(
    stream: OpenTopics, topic: WrittenTopic, offloader: Offloader, limits: dict[str, object]
) -> None:
    topic.write([numbered(15), numbered(15, 30)])
    offloader.offload(topic, 0)
    offset, batches = drained(stream(topic=topic, **EARLIEST, **limits))
    topic.write([numbered(30, 40)])
    offloader.offload(topic, 1)
    offloader.offload(topic, 2)
    _, more = drained(stream(topic=topic, **EARLIEST, **limits), offset)
    assert [value for one in [*batches, *more] for value in one] == [b"%d" % number for number in range(40)]


def test_a_stream_learns_the_ends_of_transactions_from_copies(
    stream: OpenTopics, topic: WrittenTopic, offloader: Offloader
) -> None:
    WrittenTopic(offloader.bookkeeper, str(topic).rsplit("/", 1)[0] + "/__transaction_buffer_snapshot").publish()
    of_one = {"txnid_most_bits": 1, "txnid_least_bits": 1}
    topic.write([[single(b"a", **of_one)], [single(b"b"), marker(COMMIT, 1, 1)]])
    offloader.offload(topic, 0)
    offloader.offload(topic, 1)
    _, batches = drained(stream(topic=topic, **EARLIEST))
    assert [value for one in batches for value in one] == [b"a", b"b"]


def test_a_stream_that_skips_the_unreadable_passes_a_damaged_copy(
    stream: OpenTopics, topic: WrittenTopic, offloader: Offloader
) -> None:
    topic.write([numbered(5), numbered(5, 10)])
    path = offloader.offload(topic, 0)
    offloader.put(path, WrittenCopy(written_copy(numbered(5)).data, b"no index"))
    for limits in ({}, {"maxRowsPerTrigger": 3}):
        _, batches = drained(stream(topic=topic, unreadable="skip", **EARLIEST, **limits))
        assert [value for one in batches for value in one] == [b"%d" % number for number in range(5, 10)]
