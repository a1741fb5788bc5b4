"""Topics whose ledgers Pulsar offloaded to an object store: the same messages, by every way to read them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import MessagesGoneError, StorageError, UnreadableMessagesError
from bk_spark.files import file_store
from tests.cluster.lake.object_store import ObjectStore, error
from tests.cluster.topic.offloader import Offloader
from tests.cluster.topic.test_topic import ABORT, COMMIT, numbered, values
from tests.cluster.topic.written_topics import WrittenTopic
from tests.unit.pulsar.copies import written_copy
from tests.unit.pulsar.entries import chunks, marker, single

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        patch.setattr(file_store, "_REQUEST_TIMEOUT_S", 1.0)
        patch.setattr(file_store, "_TRIES", 2)
        with ObjectStore().running() as running:
            yield running


@pytest.fixture
def offloader(bookkeeper: BookKeeper, store: ObjectStore) -> Offloader:
    return Offloader(bookkeeper, store)


def expected(*range_of: int) -> list[bytes]:
    return [b"%d" % number for number in range(*range_of)]


@pytest.mark.parametrize("keep", [False, True])
def test_messages_are_the_same_wherever_their_ledgers_are(
    bookkeeper: BookKeeper, topic: WrittenTopic, offloader: Offloader, keep: bool
) -> None:
    topic.write([numbered(20), numbered(20, 25), numbered(25, 60)])
    topic.append(*numbered(60, 64))
    before = values(bookkeeper, topic)
    assert before == expected(63)
    requests = len(offloader.store.requests)
    for index in (0, 2):
        offloader.offload(topic, index, keep=keep, driver=("aws-s3", "", "S3")[index])
    assert values(bookkeeper, topic) == before
    assert values(bookkeeper, topic, f"{topic.ledger_ids[0]}:15", f"{topic.ledger_ids[2]}:30") == expected(15, 55)
    gets = [one for one in offloader.store.requests[requests:] if one.startswith("GET")]
    assert bool(gets) is not keep, "bookies are read while they have a ledger"


def test_a_ledger_that_is_offloaded_and_deleted_under_a_reader_is_read_on(
    bookkeeper: BookKeeper, topic: WrittenTopic, offloader: Offloader
) -> None:
    topic.write([numbered(5), numbered(5, 10), numbered(10, 15)])
    read = bookkeeper.open_topic(str(topic)).read()
    found = next(read).column("value").to_pylist()
    offloader.offload(topic, 1)
    offloader.offload(topic, 2)
    found += [one for batch in read for one in batch.column("value").to_pylist()]
    assert found == expected(15)


def test_a_topic_all_of_whose_ledgers_are_offloaded_is_read(
    bookkeeper: BookKeeper, topic: WrittenTopic, offloader: Offloader
) -> None:
    topic.write([numbered(5), numbered(5, 7)])
    offloader.offload(topic, 0)
    offloader.offload(topic, 1)
    assert values(bookkeeper, topic) == expected(7)


def test_chunks_and_transactions_reach_over_copies_and_bookies(
    bookkeeper: BookKeeper, topic: WrittenTopic, offloader: Offloader
) -> None:
    first, second, third = chunks(b"0123456789" * 30, 100, "u")
    of_one = {"txnid_most_bits": 1, "txnid_least_bits": 1}
    of_two = {"txnid_most_bits": 1, "txnid_least_bits": 2}
    markers = [marker(ABORT, 1, 2), marker(COMMIT, 1, 1)]
    topic.write([[first, second, single(b"a", **of_one)], [third, single(b"b", **of_two)], markers])
    found = values(bookkeeper, topic)
    assert found == [b"a", b"0123456789" * 30]
    from_second = values(bookkeeper, topic, f"{topic.ledger_ids[1]}:0")
    for index in range(3):
        offloader.offload(topic, index)
        assert values(bookkeeper, topic) == found
        assert values(bookkeeper, topic, f"{topic.ledger_ids[1]}:0") == from_second


def test_a_publish_time_is_found_in_copies(bookkeeper: BookKeeper, topic: WrittenTopic, offloader: Offloader) -> None:
    def entries(*range_of: int) -> list[bytes]:
        return [single(b"%d" % number, publish_time=1_700_000_000_000 + number) for number in range(*range_of)]

    topic.write([entries(30), entries(30, 60)])
    offloader.offload(topic, 0)
    for start in (0, 7, 29, 30, 45):
        assert values(bookkeeper, topic, start_time_ms=1_700_000_000_000 + start) == expected(start, 60)


def test_a_damaged_copy_is_named_or_its_rest_left_out(
    bookkeeper: BookKeeper, topic: WrittenTopic, offloader: Offloader, caplog: pytest.LogCaptureFixture
) -> None:
    topic.write([numbered(3), numbered(3, 60), numbered(60, 62)])
    path = offloader.offload(topic, 1)
    copy = written_copy(numbered(3, 60), offloader.block_bytes)
    spoilt = bytearray(copy.data)
    spoilt[copy.begins[40] + 20] ^= 1
    offloader.put(path, type(copy)(bytes(spoilt), copy.index))
    with pytest.raises(
        UnreadableMessagesError, match=rf"ledger {topic.ledger_ids[1]} of topic .*s3://{path} .* its entry 40 is not"
    ):
        values(bookkeeper, topic)
    with caplog.at_level(logging.WARNING, "bk_spark"):
        found = values(bookkeeper, topic, unreadable="skip")
    assert found == expected(len(found) - 2) + expected(60, 62)
    left_out = 62 - len(found)
    assert left_out > 0
    assert f"{left_out} entries of ledger {topic.ledger_ids[1]} of topic '{topic}' are left out: its copy" in caplog.text
    assert f"{left_out} unreadable messages or entries" in caplog.text


def test_a_copy_that_is_gone_is_named_unless_its_ledger_was_trimmed(
    bookkeeper: BookKeeper, topic: WrittenTopic, offloader: Offloader
) -> None:
    topic.write([numbered(3), numbered(3, 6)])
    path = offloader.offload(topic, 0)
    for name in (path, f"{path}-index"):
        offloader.store.client().delete_file(name)
    with pytest.raises(UnreadableMessagesError, match=f"s3://{path} at {offloader.store.endpoint} is gone"):
        values(bookkeeper, topic)
    read = bookkeeper.open_topic(str(topic)).read()
    topic.info.ledgerInfo.pop(0)
    topic.publish()
    assert values(bookkeeper, topic) == expected(3, 6)
    del read


def test_what_retention_trims_of_copies_under_a_reader_is_an_error_or_a_warning(
    bookkeeper: BookKeeper, topic: WrittenTopic, offloader: Offloader
) -> None:
    topic.write([numbered(2), numbered(2, 4)])
    path = offloader.offload(topic, 1)
    reads = [bookkeeper.open_topic(str(topic)).read(fail_on_data_loss=fails) for fails in (True, False)]
    for read in reads:
        assert next(read).column("value").to_pylist() == expected(2)
    topic.info.ledgerInfo.pop(1)
    topic.publish()
    for name in (path, f"{path}-index"):
        offloader.store.client().delete_file(name)
    with pytest.raises(MessagesGoneError, match=f"trimmed ledger {path.rsplit('-', 1)[1]}"):
        list(reads[0])
    assert list(reads[1]) == []


def test_a_store_that_fails_for_long_is_one_sentence_and_for_a_moment_is_nothing(
    bookkeeper: BookKeeper, topic: WrittenTopic, offloader: Offloader
) -> None:
    topic.write([numbered(3)])
    offloader.offload(topic, 0)
    failures = iter([True])
    with offloader.store.failing(lambda _: error(503, "SlowDown") if next(failures, False) else None):
        assert values(bookkeeper, topic) == expected(3)
    with offloader.store.failing(lambda _: error(403, "AccessDenied")), pytest.raises(StorageError) as caught:
        values(bookkeeper, topic)
    for part in (f"ledger {topic.ledger_ids[0]} of topic '{topic}'", "s3://", "ACCESS_DENIED", "AWS_ACCESS_KEY_ID"):
        assert part in str(caught.value)


def test_a_reader_may_know_the_store_by_another_endpoint(
    bookkeeper: BookKeeper, topic: WrittenTopic, offloader: Offloader
) -> None:
    topic.write([numbered(3)])
    offloader.offload(topic, 0, endpoint="http://127.0.0.1:9")
    opened = bookkeeper.open_topic(str(topic), offload_endpoint=offloader.store.endpoint)
    assert [one for found in opened.read() for one in found.column("value").to_pylist()] == expected(3)
    with pytest.raises(StorageError, match=r"at http://127.0.0.1:9 failed: .*offloadEndpoint"):
        values(bookkeeper, topic)
