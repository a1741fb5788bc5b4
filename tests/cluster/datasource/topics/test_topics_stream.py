"""Streams over topics asked as Spark asks them. Without Spark, on real bookies."""

from __future__ import annotations

import json
import logging
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.topics.stream import TopicsStream
from bk_spark.errors import ConfigError, InternalError, MessagesGoneError
from bk_spark.pulsar.transactions import OpenTransactions
from tests.cluster.datasource.topics.conftest import OpenTopics
from tests.cluster.topic.written_topics import WrittenTopic, partitioned
from tests.unit.datasource.batches import wait_until
from tests.unit.pulsar.entries import Message, batch, marker, single

ALL = ReadAllAvailable()
EARLIEST = {"startingOffsets": "earliest"}


def numbered(*range_of: int) -> list[bytes]:
    return [single(b"%d" % number) for number in range(*range_of)]


def values(reader: TopicsStream, start: Any, end: Any) -> list[Any]:
    return [row["value"] for part in reader.partitions(start, end) for one in reader.read(part) for row in one.to_pylist()]


def next_of(reader: TopicsStream, start: Any) -> Any:
    """The offset behind ``start``, once there is one. As Spark does, it goes through JSON."""
    found: list[Any] = []

    def is_there() -> bool:
        found.append(json.loads(json.dumps(reader.latestOffset(start, ALL))))
        return bool(found[-1] != start)

    wait_until(is_there)
    return found[-1]


def read_on(reader: TopicsStream, start: Any, count: int) -> tuple[Any, list[Any]]:
    """The values of micro-batches behind ``start`` until there are so many, and the offset behind them."""
    found: list[Any] = []
    while len(found) < count:
        end = next_of(reader, start)
        found += values(reader, start, end)
        start = end
    return start, found


def drained(reader: TopicsStream, start: Any = None) -> tuple[Any, list[Any]]:
    """All micro-batches up to now, and the offset behind them."""
    start, batches = start or reader.initialOffset(), []
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        batches.append(values(reader, start, end))
        start = end
    return start, batches


def test_a_stream_gives_each_message_once_while_ledgers_roll(stream: OpenTopics, topic: WrittenTopic) -> None:
    topic.append(*numbered(3))
    reader = stream(topic=topic, **EARLIEST)
    offset, found = reader.initialOffset(), []
    for number in range(3, 30):
        topic.append(single(b"%d" % number))
        if number % 5 == 0:
            topic.roll()
        end = next_of(reader, offset) if number % 5 else offset
        found += values(reader, offset, end)
        offset = end
    topic.roll()
    end, last = read_on(reader, offset, 30 - len(found))
    assert found + last == [b"%d" % number for number in range(30)]
    assert values(reader, end, reader.latestOffset(end, ALL)) == []


def test_a_stream_begins_at_the_end_by_default(stream: OpenTopics, topic: WrittenTopic) -> None:
    topic.write([numbered(3)])
    reader = stream(topic=topic)
    start = reader.initialOffset()
    topic.write([numbered(3, 5)])
    assert read_on(reader, start, 2)[1] == [b"3", b"4"]


def test_a_batch_read_again_after_a_restart_has_the_same_messages(stream: OpenTopics, topic: WrittenTopic) -> None:
    topic.append(*numbered(4))
    first = stream(topic=topic, **EARLIEST)
    start = first.initialOffset()
    end = next_of(first, start)
    assert values(first, start, end) == [b"0", b"1", b"2"]
    topic.append(*numbered(4, 9))
    topic.roll()
    assert values(stream(topic=topic, **EARLIEST), start, end) == [b"0", b"1", b"2"]


def test_a_batch_reaches_its_end_though_bookies_tell_less_of_the_open_ledger_now(
    stream: OpenTopics, topic: WrittenTopic
) -> None:
    *_, last = topic.append(*numbered(4))
    reader = stream(topic=topic, **EARLIEST)
    ledger, entry = last.split(":")
    start, end = reader.initialOffset(), {"format": 1, "topics": {str(topic): f"{ledger}:{int(entry) + 1}"}}
    assert next_of(reader, start)["topics"] == {str(topic): last}
    assert values(reader, start, end) == [b"0", b"1", b"2", b"3"]


def test_partitions_and_topics_that_come_later_are_read_from_their_beginning(
    stream: OpenTopics, bookkeeper: BookKeeper, namespace: str
) -> None:
    [first] = partitioned(bookkeeper, f"{namespace}/visits", 1)
    first.write([numbered(1)])
    reader = stream(topicsPattern=f"{namespace}/.*")
    start = reader.initialOffset()
    late = partitioned(bookkeeper, f"{namespace}/visits", 2)[1]
    late.write([numbered(10, 12)])
    end, found = read_on(reader, start, 2)
    assert found == [b"10", b"11"]
    WrittenTopic(bookkeeper, f"{namespace}/other").write([numbered(20, 21)])
    assert read_on(reader, end, 1)[1] == [b"20"]


def test_a_partition_that_no_broker_has_loaded_is_followed(stream: OpenTopics, bookkeeper: BookKeeper, namespace: str) -> None:
    [first] = partitioned(bookkeeper, f"{namespace}/visits", 1)
    reader = stream(topic=f"{namespace}/visits")
    start = reader.initialOffset()
    first.write([numbered(2)])
    assert read_on(reader, start, 2)[1] == [b"0", b"1"]


@pytest.mark.parametrize(
    ("options", "sizes"),
    [({"maxRowsPerTrigger": 4}, [4, 4, 4]), ({"maxRowsPerTrigger": 1}, [3, 1, 3, 1, 3, 1]), ({}, [12])],
)
def test_a_limit_of_rows_cuts_between_entries_and_takes_one_at_least(
    stream: OpenTopics, topic: WrittenTopic, options: dict[str, Any], sizes: list[int]
) -> None:
    three = batch([Message(b"a"), Message(b"b"), Message(b"c")])
    topic.write([[three, single(b"d")], [three], [single(b"d"), three, single(b"d")]])
    reader = stream(topic=topic, **EARLIEST, **options)
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxRows if options else ReadAllAvailable)
    assert [len(one) for one in drained(reader)[1]] == sizes


def test_markers_do_not_count_for_a_limit_of_rows(stream: OpenTopics, topic: WrittenTopic) -> None:
    topic.write([[single(b"a"), marker(21, 0, 1), marker(21, 0, 2), single(b"b"), single(b"c")]])
    assert drained(stream(topic=topic, maxRowsPerTrigger=2, **EARLIEST))[1] == [[b"a", b"b"], [b"c"]]


def test_topics_take_turns_under_a_limit_that_is_less_than_one_entry_of_each(
    stream: OpenTopics, bookkeeper: BookKeeper, namespace: str
) -> None:
    for index, one in enumerate(partitioned(bookkeeper, f"{namespace}/visits", 2)):
        one.write([[single(b"%d" % index) for _ in range(3)]])
    reader = stream(topic=f"{namespace}/visits", maxRowsPerTrigger=1, **EARLIEST)
    found = [one for [one] in drained(reader)[1]]
    assert found in ([b"0", b"1"] * 3, [b"1", b"0"] * 3)


def test_a_limit_of_bytes_holds_for_all_topics_together_and_none_starves(
    stream: OpenTopics, bookkeeper: BookKeeper, namespace: str
) -> None:
    size = len(single(b"x" * 100))
    for index, one in enumerate(partitioned(bookkeeper, f"{namespace}/visits", 2)):
        one.write([[single(b"%d" % index * 100) for _ in range(6)]])
    reader = stream(topic=f"{namespace}/visits", maxBytesPerTrigger=4 * size, **EARLIEST)
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxBytes)
    found = [[one[:1] for one in messages] for messages in drained(reader)[1]]
    assert found == [[b"0", b"0", b"1", b"1"]] * 3


def test_a_stream_waits_before_the_first_message_of_an_open_transaction(
    stream: OpenTopics, bookkeeper: BookKeeper, namespace: str, topic: WrittenTopic
) -> None:
    WrittenTopic(bookkeeper, f"{namespace}/__transaction_buffer_snapshot").publish()

    def of(transaction: int, value: bytes) -> bytes:
        return single(value, txnid_most_bits=0, txnid_least_bits=transaction)

    topic.write([[single(b"a"), of(1, b"1a"), single(b"b"), of(2, b"2a")]])
    reader = stream(topic=topic, **EARLIEST)
    start = reader.initialOffset()
    end = next_of(reader, start)
    assert values(reader, start, end) == [b"a"]
    topic.write([[single(b"c"), marker(21, 0, 2)]])
    assert drained(stream(topic=topic, **EARLIEST), end) == (end, [])
    topic.write([[marker(21, 0, 1), single(b"d")]])
    assert read_on(reader, end, 5)[1] == [b"1a", b"b", b"2a", b"c", b"d"]


def test_a_message_that_comes_behind_the_abort_of_its_transaction_holds_no_stream_up(
    stream: OpenTopics, bookkeeper: BookKeeper, namespace: str, topic: WrittenTopic
) -> None:
    WrittenTopic(bookkeeper, f"{namespace}/__transaction_buffer_snapshot").publish()
    late = single(b"late", txnid_most_bits=0, txnid_least_bits=1)
    topic.write([[late, marker(22, 0, 1), late, single(b"a")]])
    assert drained(stream(topic=topic, **EARLIEST))[1] == [[b"a"]]


def test_a_topic_that_comes_without_messages_makes_no_micro_batch(
    stream: OpenTopics, bookkeeper: BookKeeper, namespace: str, topic: WrittenTopic
) -> None:
    topic.write([numbered(1)])
    reader = stream(topicsPattern=f"{namespace}/.*", **EARLIEST)
    end, _ = read_on(reader, reader.initialOffset(), 1)
    late = WrittenTopic(bookkeeper, f"{namespace}/zlate")
    late.publish()

    def is_known() -> bool:
        assert reader.latestOffset(end, ALL) == end
        return str(late) in reader.reportLatestOffset()["topics"]

    wait_until(is_known)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_message_that_comes_behind_the_abort_of_its_transaction_holds_no_stream_up_in_a_later_batch(
    stream: OpenTopics, bookkeeper: BookKeeper, namespace: str, topic: WrittenTopic, restarts: bool
) -> None:
    WrittenTopic(bookkeeper, f"{namespace}/__transaction_buffer_snapshot").publish()
    late = single(b"late", txnid_most_bits=0, txnid_least_bits=1)
    topic.write([[late, single(b"a"), marker(22, 0, 1)]])
    reader = stream(topic=topic, **EARLIEST)
    end, found = read_on(reader, reader.initialOffset(), 1)
    assert found == [b"a"]
    topic.write([[late, single(b"b")]])
    assert read_on(stream(topic=topic, **EARLIEST) if restarts else reader, end, 1)[1] == [b"b"]


def test_a_batch_whose_transaction_has_no_end_is_an_error_and_not_cut(stream: OpenTopics, topic: WrittenTopic) -> None:
    [first, _, last] = topic.write([[single(b"open", txnid_most_bits=0, txnid_least_bits=1), *numbered(2)]])
    reader = stream(topic=topic, **EARLIEST)
    start, end = ({"format": 1, "topics": {str(topic): place}} for place in (first, last))
    with pytest.raises(InternalError, match=f"the end of a transaction of topic '{topic}' is not found again"):
        values(reader, start, end)


def test_a_batch_that_ends_in_a_ledger_that_is_not_listed_is_not_cut(stream: OpenTopics, topic: WrittenTopic) -> None:
    [first, _] = topic.write([numbered(2)])
    reader = stream(topic=topic, **EARLIEST)
    start, end = ({"format": 1, "topics": {str(topic): place}} for place in (first, f"{2**40}:1"))
    with pytest.raises(MessagesGoneError, match=f"Pulsar does not list ledger {2**40}, where the batch ends"):
        reader.partitions(start, end)


def test_a_run_of_what_there_is_now_reads_for_transactions_only_from_where_it_stands(
    stream: OpenTopics, bookkeeper: BookKeeper, namespace: str, topic: WrittenTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    WrittenTopic(bookkeeper, f"{namespace}/__transaction_buffer_snapshot").publish()
    places = topic.write([numbered(5), numbered(5, 9)])
    scanned: list[int] = []
    feed = OpenTransactions.feed

    def record(self: OpenTransactions, ledger_id: int, rows: pa.RecordBatch) -> None:
        scanned.extend(rows.column("entry_id").to_pylist())
        feed(self, ledger_id, rows)

    monkeypatch.setattr(OpenTransactions, "feed", record)
    reader = stream(topic=topic, startingOffsets=places[7])
    assert drained(reader)[1] == [[b"7", b"8"]]
    assert scanned == [2, 3]


def test_what_retention_trimmed_before_it_was_read_ends_a_stream_or_is_skipped(
    stream: OpenTopics, topic: WrittenTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.write([numbered(3), numbered(3, 5)])
    reader = stream(topic=topic, **EARLIEST)
    start = reader.initialOffset()
    topic.trim()
    end = next_of(reader, start)
    with pytest.raises(MessagesGoneError, match=f"messages of topic '{topic}' are gone .*trimmed ledger"):
        values(reader, start, end)
    lenient = stream(topic=topic, failOnDataLoss=False, **EARLIEST)
    with caplog.at_level(logging.WARNING, "bk_spark"):
        assert values(lenient, start, end) == [b"3", b"4"]
    assert f"messages of topic '{topic}' were gone before they were read" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_deleted_ends_a_stream_or_is_left_out(
    stream: OpenTopics, bookkeeper: BookKeeper, namespace: str, fails: bool
) -> None:
    topics = [WrittenTopic(bookkeeper, f"{namespace}/{name}") for name in ("a", "b")]
    for one in topics:
        one.write([numbered(2)])
    reader = stream(topicsPattern=f"{namespace}/.*", failOnDataLoss=fails, **EARLIEST)
    start = reader.initialOffset()
    end = next_of(reader, start)
    topics[0].delete()
    if fails:
        with pytest.raises(MessagesGoneError, match=f"'{namespace}/a'.*it was deleted"):
            next_of(reader, end)
    else:
        topics[1].write([numbered(2, 3)])
        assert read_on(reader, end, 1)[1] == [b"2"]


def test_a_checkpoint_of_another_stream_is_refused(stream: OpenTopics, topic: WrittenTopic) -> None:
    topic.write([numbered(1)])
    reader = stream(topic=topic)
    for wrong in ({"entry": 12, "index": 3, "ledger": 7, "log": "u", "version": 41}, {"format": 2, "topics": {}}):
        with pytest.raises(ConfigError, match="the offset of a stream over topics"):
            reader.latestOffset(wrong, ALL)
