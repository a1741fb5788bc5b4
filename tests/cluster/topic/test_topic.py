"""Topics read from real bookies: which messages, in which order, and that their writer is left alone."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, MessagesGoneError, NoSuchTopicError, UnreadableMessagesError
from bk_spark.metadata.ledger_metadata import LedgerState
from bk_spark.pulsar.columns import MESSAGE_SCHEMA
from bk_spark.pulsar.stored import StoredCursor
from bk_spark.topic import reading
from bk_spark.topic.store import TopicStore
from tests.cluster.topic.written_topics import WrittenTopic, partitioned
from tests.unit.pulsar.entries import LZ4, SNAPPY, ZLIB, ZSTD, Message, batch, chunks, framed, marker, metadata, single

COMMIT, ABORT = 21, 22


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    found = pa.Table.from_batches(list(batches), MESSAGE_SCHEMA)
    return found.to_pylist()


def values(bookkeeper: BookKeeper, topic: object, *args: str, **options: Any) -> list[bytes | None]:
    return [row["value"] for row in rows_of(bookkeeper.open_topic(str(topic)).read(*args, **options))]


def numbered(*range_of: int) -> list[bytes]:
    return [single(b"%d" % number) for number in range(*range_of)]


def test_a_message_has_all_its_columns(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    entry = single(b"v", properties={"a": "1"}, partition_key="k", event_time=1_600_000_000_001, ordering_key=b"o")
    topic.write([[entry]])
    [row] = rows_of(bookkeeper.open_topic(str(topic)).read())
    times = [row.pop(name).timestamp() for name in ("_publish_time", "_event_time")]
    assert times == [1_700_000_000.0, 1_600_000_000.001]
    assert row == {
        "key": "k",
        "value": b"v",
        "_topic": str(topic),
        "_message_id": {"ledger_id": topic.ledger_ids[0], "entry_id": 0, "batch_index": -1},
        "_producer": "producer",
        "_sequence_id": 7,
        "_properties": [("a", "1")],
        "_ordering_key": b"o",
    }


def test_messages_come_in_the_order_of_ledgers_entries_and_batches(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    some = [Message(b"b%d" % number) for number in range(3)]
    topic.write([[single(b"a"), batch(some, compression=LZ4)], numbered(2), [batch(some[:1], compression=ZSTD)]])
    topic.append(single(b"last", compression=SNAPPY), single(b"unconfirmed", compression=ZLIB))
    assert values(bookkeeper, topic) == [b"a", b"b0", b"b1", b"b2", b"0", b"1", b"b0", b"last"]


def test_an_open_ledger_is_read_as_far_as_it_is_confirmed_and_its_writer_goes_on(
    bookkeeper: BookKeeper, topic: WrittenTopic
) -> None:
    topic.append(*numbered(5))
    for count in range(5, 12):
        assert values(bookkeeper, topic) == [b"%d" % number for number in range(count - 1)]
        topic.append(single(b"%d" % count))
    assert bookkeeper.ledger_metadata(topic.ledger_ids[0]).state is LedgerState.OPEN
    topic.roll()
    assert values(bookkeeper, topic) == [b"%d" % number for number in range(12)]


def test_a_ledger_that_its_broker_left_open_hides_what_comes_behind_it(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    topic.append(*numbered(3))
    topic.writer = None  # the broker is gone: its ledger stays open
    topic.append(single(b"next"), single(b"unconfirmed"))
    assert values(bookkeeper, topic) == [b"0", b"1"]
    bookkeeper.open_ledger(topic.ledger_ids[0], recover=True, of_application="pulsar")
    assert values(bookkeeper, topic) == [b"0", b"1", b"2", b"next"]


def test_a_partitioned_topic_is_read_partition_after_partition(bookkeeper: BookKeeper, namespace: str) -> None:
    first, _, third = partitioned(bookkeeper, f"{namespace}/visits", 3)
    third.write([numbered(2)])
    first.write([numbered(10, 12)])
    topic = bookkeeper.open_topic(f"{namespace}/visits")
    assert topic.partitions() == [f"{namespace}/visits-partition-{index}" for index in range(3)]
    assert [(row["_topic"][-1], row["value"]) for row in rows_of(topic.read())] == [
        ("0", b"10"),
        ("0", b"11"),
        ("2", b"0"),
        ("2", b"1"),
    ]
    assert values(bookkeeper, f"{namespace}/visits-partition-2") == [b"0", b"1"]
    assert values(bookkeeper, f"{namespace}/visits-partition-1") == []


def test_a_topic_that_is_not_there_is_named(bookkeeper: BookKeeper, namespace: str) -> None:
    partitioned(bookkeeper, f"{namespace}/visits", 1)
    for name in ("nothing", "visits-partition-1"):
        with pytest.raises(NoSuchTopicError, match=f"there is no topic '{namespace}/{name}' at zk://.*'pulsarMetadata' names"):
            bookkeeper.open_topic(f"{namespace}/{name}")


def test_positions_say_which_message_is_first_and_which_is_not_read(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    places = topic.write([numbered(3), [batch([Message(b"a"), Message(b"b"), Message(b"c")]), *numbered(3, 5)]])
    assert values(bookkeeper, topic, places[1]) == [b"1", b"2", b"a", b"b", b"c", b"3", b"4"]
    assert values(bookkeeper, topic, f"{places[3]}:1") == [b"b", b"c", b"3", b"4"]
    assert values(bookkeeper, topic, places[2], places[4]) == [b"2", b"a", b"b", b"c"]
    assert values(bookkeeper, topic, "latest") == []
    assert values(bookkeeper, topic, f"{topic.ledger_ids[0]}:3", places[4]) == [b"a", b"b", b"c"]


def test_a_position_in_a_ledger_of_another_topic_is_refused(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    topic.write([numbered(3)])
    other = topic.ledger_ids[0] + 1_000_000
    with pytest.raises(ConfigError, match=f"topic '{topic}' has no ledger {other}: its ledgers are {topic.ledger_ids[0]}"):
        values(bookkeeper, topic, f"{other}:0")


def test_a_publish_time_is_found_without_reading_the_topic(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    entries = [single(b"%d" % number, publish_time=1000 * number) for number in range(40)]
    topic.write([entries[:7], entries[7:30], entries[30:]])
    for number in (0, 1, 6, 7, 29, 30, 39):
        assert values(bookkeeper, topic, start_time_ms=1000 * number)[0] == b"%d" % number
        assert values(bookkeeper, topic, start_time_ms=1000 * number - 999)[0] == b"%d" % number
    assert values(bookkeeper, topic, start_time_ms=39_001) == []


@pytest.mark.parametrize("in_ledger", [False, True])
def test_a_durable_subscription_says_where_to_begin(bookkeeper: BookKeeper, topic: WrittenTopic, in_ledger: bool) -> None:
    topic.write([numbered(3), numbered(3, 6)])
    topic.subscribe("billing/eu", (topic.ledger_ids[0], 1), in_ledger=in_ledger)
    topic.subscribe("done", (topic.ledger_ids[1], 2))
    assert values(bookkeeper, topic, subscription="billing/eu") == [b"2", b"3", b"4", b"5"]
    assert values(bookkeeper, topic, subscription="done") == []
    with pytest.raises(ConfigError, match="has no durable subscription of this name, there are: 'billing/eu', 'done'"):
        values(bookkeeper, topic, subscription="other")


def test_a_subscription_whose_broker_begins_another_ledger_is_looked_at_again(
    bookkeeper: BookKeeper, topic: WrittenTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.write([numbered(3)])
    topic.subscribe("billing", (topic.ledger_ids[0], 1), in_ledger=True)
    with bookkeeper.create_ledger(3, 2, 2) as gone:
        gone.append(b"")
    bookkeeper.delete_ledger(gone.ledger_id)
    before = [StoredCursor(gone.ledger_id, None)]
    now = TopicStore.cursor
    monkeypatch.setattr(TopicStore, "cursor", lambda *args: before.pop() if before else now(*args))
    assert values(bookkeeper, topic, subscription="billing") == [b"2"]


def test_chunks_are_put_together_also_over_ledgers_and_from_the_middle(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    large = bytes(range(256)) * 40
    first, second = chunks(large, 3000, "u1", compression=ZLIB), chunks(large[::-1], 1000, "u2")
    lost = chunks(large, 5000, "u3")[1:]
    topic.write([[first[0][:], *numbered(1)] if len(first) > 1 else numbered(1), numbered(1, 2)])
    places = topic.write([second[:4], [single(b"between"), *second[4:], *lost]])
    assert values(bookkeeper, topic, places[0]) == [b"between", large[::-1]]
    assert values(bookkeeper, topic, places[5]) == [large[::-1]]
    assert values(bookkeeper, topic, places[0], places[len(second)]) == [b"between"]


def test_first_chunks_are_looked_for_as_far_back_as_need_be(
    bookkeeper: BookKeeper, topic: WrittenTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOOK_BACK_FIRST", 1)
    first, second, *rest = chunks(b"large" * 100, 200, "u")
    places = topic.write([[single(b"0"), first], [*numbered(1, 9), second, *numbered(9, 12)], [single(b"12"), *rest]])
    assert values(bookkeeper, topic, places[-2]) == [b"12", b"large" * 100]
    monkeypatch.setattr(reading, "LOOK_BACK_MOST", 5)
    assert values(bookkeeper, topic, places[-2]) == [b"12"]


def test_only_messages_of_committed_transactions_are_read(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    def of(transaction: int, value: bytes) -> bytes:
        return single(value, txnid_most_bits=1, txnid_least_bits=transaction)

    places = topic.write(
        [
            [of(1, b"1a"), of(2, b"2a"), single(b"x"), of(3, b"3a")],
            [of(1, b"1b"), marker(COMMIT, 1, 1), marker(ABORT, 1, 2), of(4, b"4a"), single(b"y"), marker(COMMIT, 1, 4)],
        ]
    )
    assert values(bookkeeper, topic) == [b"1a", b"x", b"1b", b"4a", b"y"]
    assert values(bookkeeper, topic, "earliest", places[2]) == [b"1a"]


def test_markers_of_brokers_are_no_messages(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    topic.write([[single(b"a"), marker(10), single(b"b")]])
    assert values(bookkeeper, topic) == [b"a", b"b"]


def test_tombstones_are_rows_without_a_value_or_left_out(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    topic.write([[single(b"a"), single(b"", null_value=True, partition_key="k")]])
    assert values(bookkeeper, topic) == [b"a", None]
    assert values(bookkeeper, topic, tombstones=False) == [b"a"]


def test_encrypted_messages_are_named_or_left_out_and_counted(
    bookkeeper: BookKeeper, topic: WrittenTopic, caplog: pytest.LogCaptureFixture
) -> None:
    locked = framed(metadata(encryption_keys=[{"key": "shop-key", "value": b"?"}]), b"secret")
    places = topic.write([[single(b"a"), locked, single(b"b")]])
    with pytest.raises(
        UnreadableMessagesError, match=f"message {places[1]} of topic '{topic}' .* encrypted with key 'shop-key'"
    ):
        values(bookkeeper, topic)
    with caplog.at_level(logging.WARNING, "bk_spark"):
        assert values(bookkeeper, topic, unreadable="skip") == [b"a", b"b"]
    assert f"1 unreadable messages or entries and 0 messages with missing chunks of topic '{topic}'" in caplog.text


def test_a_damaged_entry_is_named_or_left_out(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    places = topic.write([[single(b"a"), b"\x00\x00\x00\x09no", single(b"b")]])
    with pytest.raises(UnreadableMessagesError, match=f"message {places[1]} of topic"):
        values(bookkeeper, topic)
    assert values(bookkeeper, topic, unreadable="skip") == [b"a", b"b"]


def test_offloaded_ledgers_that_are_not_understood_are_named_or_left_out(
    bookkeeper: BookKeeper, topic: WrittenTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.write([numbered(2), numbered(2, 4), numbered(4, 6)])
    topic.note_copy(1, "filesystem", UUID(int=5), {})
    with pytest.raises(UnreadableMessagesError, match=f"ledger {topic.ledger_ids[1]} of topic .* offloaded it to 'filesystem'"):
        values(bookkeeper, topic)
    assert values(bookkeeper, topic, unreadable="skip") == [b"0", b"1", b"4", b"5"]
    assert f"2 entries of ledger {topic.ledger_ids[1]} of topic '{topic}' are left out: Pulsar offloaded it" in caplog.text
    assert values(bookkeeper, topic, f"{topic.ledger_ids[2]}:0") == [b"4", b"5"]


def test_what_retention_trimmed_before_a_start_is_an_error_or_a_warning(
    bookkeeper: BookKeeper, topic: WrittenTopic, caplog: pytest.LogCaptureFixture
) -> None:
    [place, *_] = topic.write([numbered(2), numbered(2, 4)])
    topic.trim()
    assert values(bookkeeper, topic) == [b"2", b"3"]
    with pytest.raises(MessagesGoneError, match=f"messages of topic '{topic}' are gone .*trimmed ledger {place.split(':')[0]}"):
        values(bookkeeper, topic, place)
    assert values(bookkeeper, topic, place, fail_on_data_loss=False) == [b"2", b"3"]
    assert f"messages of topic '{topic}' were gone before they were read, and are skipped" in caplog.text


@pytest.mark.parametrize("fail_on_data_loss", [False, True])
def test_what_retention_trims_under_a_running_read_is_an_error_or_a_warning(
    bookkeeper: BookKeeper, topic: WrittenTopic, fail_on_data_loss: bool
) -> None:
    topic.write([numbered(2), numbered(2, 4), numbered(4, 6)])
    read = bookkeeper.open_topic(str(topic)).read(fail_on_data_loss=fail_on_data_loss)
    found = [next(read)]
    topic.trim(2)
    if fail_on_data_loss:
        with pytest.raises(MessagesGoneError, match=f"trimmed ledger {topic.ledger_ids[0] - 1}|trimmed ledger"):
            list(read)
    else:
        found += read
        assert [row["value"] for row in rows_of(found)] == [b"0", b"1", b"4", b"5"]


def test_a_listed_ledger_that_bookkeeper_does_not_have_is_an_error(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    topic.write([numbered(2)])
    topic.append(*numbered(2, 4))
    bookkeeper.delete_ledger(topic.ledger_ids[-1], of_application="pulsar")
    with pytest.raises(MessagesGoneError, match=f"Pulsar lists ledger {topic.ledger_ids[-1]}, and BookKeeper does not have it"):
        values(bookkeeper, topic)


def test_pulsars_metadata_may_be_at_another_root(bookkeeper: BookKeeper, namespace: str, cluster: Any) -> None:
    root = f"/pulsar-{namespace[-8:]}"
    topic = WrittenTopic(bookkeeper, f"{namespace}/orders", root)
    topic.write([numbered(2)])
    host = cluster.metadata_uri.removeprefix("zk://").split("/")[0]
    found = bookkeeper.open_topic(str(topic), pulsar_metadata=f"zk://{host}{root}").read()
    assert [row["value"] for row in rows_of(found)] == [b"0", b"1"]
    with pytest.raises(NoSuchTopicError):
        bookkeeper.open_topic(str(topic))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"start": "soon"}, "it must be earliest, latest, a message id"),
        ({"start": "1:1", "start_time_ms": 5}, "give one of start, start_time_ms and subscription"),
        ({"schema": "avro"}, "it must be raw or topic"),
        ({"unreadable": "drop"}, "it must be fail or skip"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    bookkeeper: BookKeeper, topic: WrittenTopic, arguments: dict[str, Any], problem: str
) -> None:
    topic.write([numbered(1)])
    with pytest.raises(ConfigError, match=problem):
        bookkeeper.open_topic(str(topic)).read(**arguments)
