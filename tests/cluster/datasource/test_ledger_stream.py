"""A stream over one ledger: every confirmed entry once, also across restarts, and no writer is disturbed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.datasource.read.stream_reader import StreamReader
from bk_spark.errors import BookKeeperError, ConfigError, NoSuchLedgerError, UnauthorizedAccessError
from tests.cluster.datasource.direct import Direct, micro_batches
from tests.cluster.datasource.streams import ALL, payloads, wait_for


@pytest.fixture
def writer(leading: BookKeeper) -> Iterator[WriteHandle]:
    """A ledger of three entries that its writer goes on with."""
    with leading.create_ledger() as writer:
        writer.append_batch([b"0", b"1", b"2"])
        yield writer


@pytest.fixture
def follow(direct: Direct, writer: WriteHandle) -> Iterator[Any]:
    started: list[StreamReader] = []

    def open_stream(**options: Any) -> StreamReader:
        started.append(direct.stream(None, **{"ledger": writer.ledger_id, "startingOffsets": "earliest", **options}))
        return started[-1]

    yield open_stream
    for one in started:
        one.stop()


def offset(writer: WriteHandle, entry: int, **start: int) -> dict[str, int]:
    return {"entry": entry, "ledger": writer.ledger_id, **start}


def test_it_follows_an_open_ledger_without_disturbing_its_writer_and_idles_after_its_end(follow, writer) -> None:
    stream = follow()
    start = stream.initialOffset()
    assert start == offset(writer, 0, start=0)
    end = wait_for(stream, start, lambda end: end["entry"] == 3)
    assert payloads(stream, start, end) == [b"0", b"1", b"2"]
    writer.append(b"3")
    after = wait_for(stream, end)
    assert (payloads(stream, end, after), after) == ([b"3"], offset(writer, 4))
    writer.append(b"4")
    writer.close()
    last = wait_for(stream, after)
    assert payloads(stream, after, last) == [b"4"]
    assert stream.latestOffset(last, ALL) == last
    assert stream.reportLatestOffset() == last


def test_a_run_until_now_ends_there_and_the_next_one_goes_on(follow, writer) -> None:
    first = follow()
    start = first.initialOffset()
    wait_for(follow(), start, lambda end: end["entry"] == 3)  # the writer tells soon that its entries are confirmed
    first.prepareForTriggerAvailableNow()
    writer.append(b"3")
    end = first.latestOffset(start, ALL)
    assert end["entry"] in (3, 4)
    writer.close()
    second = follow()
    second.prepareForTriggerAvailableNow()
    last = second.latestOffset(end, ALL)
    both = payloads(first, start, end) + (payloads(second, end, last) if last != end else [])
    assert both == [b"0", b"1", b"2", b"3"]


def test_limits_bound_a_batch_and_each_entry_comes_once(follow, writer) -> None:
    writer.append_batch([b"x" * 10] * 7)
    writer.close()
    for options in ({"maxRowsPerTrigger": 3}, {"maxBytesPerTrigger": 12}, {"minPartitions": 4}):
        batches = [rows for _, _, rows in micro_batches(follow(**options), "entry_id")]
        assert [entry for rows in batches for entry in rows] == list(range(10)), options
        most = {"maxRowsPerTrigger": 3, "maxBytesPerTrigger": 3}.get(next(iter(options)), 10)
        assert max(map(len, batches)) == most, options


def test_the_first_batch_keeps_its_start_when_spark_repeats_it_after_a_restart(follow, writer) -> None:
    """Spark has no offset before the first batch, and asks for one anew: by then ``latest`` is further on."""
    first = follow(startingOffsets="latest")
    start = first.initialOffset()
    writer.append_batch([b"3", b"4"])
    writer.append(b"5")
    end = wait_for(first, start, lambda end: end["entry"] == 6)
    expected = payloads(first, start, end)
    again = follow(startingOffsets="latest")
    assert again.initialOffset() != start
    assert payloads(again, again.initialOffset(), end) == expected
    assert payloads(again, end, end) == []


def test_it_starts_at_an_offset_that_a_stream_reported(follow, writer) -> None:
    writer.close()
    stream = follow(startingOffsets=json.dumps(offset(writer, 2)))
    assert [rows for _, _, rows in micro_batches(stream, "payload")] == [[b"2"]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": '{"entry":9,"ledger":%d}'}, "is confirmed up to entry 2: give an entry up to 3"),
        ({"startingOffsets": '{"entry":1,"ledger":424242}'}, "it is of another ledger"),
        ({"password": "wrong"}, "wrong password"),
        ({"digestType": "HMAC"}, "was created with CRC32C"),
        ({"ledger": 424242}, "there is no ledger 424242"),
        ({"ledger": "1,2"}, "a stream follows one ledger"),
        ({"cursorName": "me"}, "it does not apply to ledgers"),
        ({"failOnDataLoss": False}, "it does not apply to ledgers"),
    ],
)
def test_what_cannot_be_followed_is_said_in_one_sentence(follow, writer, options, sentence) -> None:
    writer.append(b"3")  # so that entry 2 is known to be confirmed
    writer.close()
    if "%d" in str(options):
        options = {"startingOffsets": options["startingOffsets"] % writer.ledger_id}
        sentence = sentence.replace("2: give an entry up to 3", "3: give an entry up to 4")
    with pytest.raises(BookKeeperError, match=sentence):
        follow(**options).initialOffset()


def test_a_batch_read_of_a_ledger_takes_no_offsets(direct: Direct, writer) -> None:
    with pytest.raises(ConfigError, match="it does not apply to a batch read of ledgers"):
        direct.reader(None, ledger=writer.ledger_id, startingOffsets="earliest")


@pytest.mark.parametrize(
    "bad", ['{"entry":1}', '{"entry":-1,"ledger":1}', '{"entry":true,"ledger":1}', "12", '{"entry":1,"ledger":2,"start":5}']
)
def test_a_malformed_offset_is_refused(direct: Direct, writer, bad: str) -> None:
    with pytest.raises(ConfigError, match="option 'startingOffsets'"):
        direct.stream(None, ledger=writer.ledger_id, startingOffsets=bad)


def test_a_ledger_that_is_deleted_stops_the_stream(follow, writer, leading: BookKeeper) -> None:
    stream = follow()
    start = stream.initialOffset()
    writer.close()
    end = wait_for(stream, start, lambda end: end["entry"] == 3)
    leading.delete_ledger(writer.ledger_id)
    with pytest.raises(NoSuchLedgerError):
        payloads(stream, start, end)


def test_a_ledger_with_a_password_is_followed_with_it(direct: Direct, leading: BookKeeper) -> None:
    with leading.create_ledger(password=b"\xff") as writer:
        writer.append(b"secret")
    stream = direct.stream(None, ledger=writer.ledger_id, password="0xff", startingOffsets="earliest")
    assert [rows for _, _, rows in micro_batches(stream, "payload")] == [[b"secret"]]
    with pytest.raises(UnauthorizedAccessError):
        direct.stream(None, ledger=writer.ledger_id, startingOffsets="earliest").initialOffset()
