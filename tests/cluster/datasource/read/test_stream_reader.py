"""A stream's source asked as Spark asks it: offsets, the background thread, the cursor. Without Spark, on real bookies.

Ref: docs/rules.md, "Logs".
"""

from __future__ import annotations

import json
import pickle
import threading
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.protocol import last_add_confirmed
from bk_spark.datasource.background import heard
from bk_spark.datasource.read import ledger_poll, tail
from bk_spark.errors import (
    BookieUnavailableError,
    ConfigError,
    MetadataUnavailableError,
    NoSuchLogError,
)
from bk_spark.log.stored.values import Retention
from bk_spark.log.stream.positions import Offset
from bk_spark.metadata.zookeeper import ZooKeeperStore
from tests.cluster.datasource.direct import Direct, micro_batch, micro_batches
from tests.cluster.datasource.streams import ALL, OpenStream, bare, payloads, wait_for
from tests.unit.datasource.batches import numbers, wait_until

# --- offsets


def test_offsets_have_sorted_keys_whole_numbers_and_the_log_s_id(direct: Direct, log: str) -> None:
    """Log rule 6: Spark compares them as strings."""
    direct.write(log, numbers(1, 2), numbers(3))
    [(start, end, rows)] = micro_batches(direct.stream(log, startingOffsets="earliest"))
    assert (list(start), list(end)) == (["entry", "index", "ledger", "log", "start", "version"],) * 2
    beginning = {"entry": 0, "index": 0, "ledger": -1, "version": 0}
    assert start == {**beginning, "log": start["log"], "start": beginning}
    assert end["start"] == beginning
    assert (end["entry"], end["index"], end["version"], rows) == (1, 1, 1, [1, 2, 3])
    assert json.dumps(end) == json.dumps(json.loads(json.dumps(end, sort_keys=True)))


def test_a_stream_starts_at_the_latest_offset_unless_told_otherwise(direct: Direct, stream: OpenStream, log: str) -> None:
    direct.write(log, numbers(1))
    reader = stream(log)
    start = reader.initialOffset()
    direct.write(log, numbers(2))
    assert reader.initialOffset() == start
    end = wait_for(reader, start)
    assert micro_batch(reader, start, end) == [2]
    given = direct.stream(log, startingOffsets=json.dumps(start))
    assert [rows for _, _, rows in micro_batches(given)] == [[2]]


def test_the_repeated_first_batch_has_its_rows_although_the_start_is_asked_for_again(
    direct: Direct, stream: OpenStream, log: str
) -> None:
    """Log rule 6: Spark's checkpoint has the end of the batch only; a commit came before it, a crash and a commit behind."""
    direct.write(log, numbers(1))
    reader = stream(log)
    start = reader.initialOffset()
    direct.write(log, numbers(2, 3))
    kept = json.loads(json.dumps(wait_for(reader, start)))
    direct.write(log, numbers(4))
    again = stream(log)
    asked = again.initialOffset()
    assert asked["version"] > kept["version"]
    assert micro_batch(again, asked, kept) == [2, 3]
    assert micro_batch(again, kept, wait_for(again, kept)) == [4]


def test_the_repeated_first_batch_of_an_idle_log_is_empty_and_the_next_one_has_all_rows(
    direct: Direct, stream: OpenStream, log: str
) -> None:
    direct.write(log, numbers(1))
    reader = stream(log)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    direct.write(log, numbers(2))
    again = stream(log)
    assert micro_batch(again, again.initialOffset(), start) == []
    end = wait_for(again, start)
    assert micro_batch(again, start, end) == [2]
    third = stream(log)
    assert micro_batch(third, start, end) == micro_batch(third, third.initialOffset(), end) == [2]
    assert micro_batch(third, end, end) == []


def test_a_batch_whose_start_lies_behind_its_end_is_an_error_that_says_how_to_go_on(
    direct: Direct, stream: OpenStream, log: str
) -> None:
    direct.write(log, numbers(1))
    end = bare(stream(log).initialOffset())
    direct.write(log, numbers(2))
    reader = stream(log)
    with pytest.raises(ConfigError, match="does not say which rows the batch has: go on with a new checkpoint and the end as"):
        reader.partitions(reader.initialOffset(), end)


def test_a_stream_may_start_at_a_time(direct: Direct, bookkeeper: BookKeeper, log: str) -> None:
    for number in range(3):
        direct.write(log, numbers(number))
    times = [one.time_ms for one in bookkeeper.logs.reader.all_versions(log)]
    assert times[0] < times[1] < times[2]
    assert [rows for _, _, rows in micro_batches(direct.stream(log, startingTimestamp=times[1]))] == [[1, 2]]


def test_an_offset_that_is_none_or_not_of_this_log_is_refused_with_one_sentence(
    direct: Direct, bookkeeper: BookKeeper, log: str
) -> None:
    """Log rule 6."""
    direct.write(log, numbers(1))
    reader = direct.stream(log)
    good = bare(reader.initialOffset())
    for bad, problem in (
        ({**good, "entry": "1"}, "'entry' must be a whole number from 0 on"),
        ({"version": 1}, 'an offset looks like {"entry":12,"index":3,"ledger":7,'),
        (None, 'an offset looks like {"entry":12'),
        ({**good, "log": "another"}, "was deleted and made anew, start with a new checkpoint"),
    ):
        with pytest.raises(ConfigError, match=problem):
            reader.latestOffset(bad, ALL)  # type: ignore[arg-type]
    for text, problem in (
        ("{broken", "an offset of a stream such as"),
        (json.dumps({**good, "version": 99}), "can be read from version 0 to 1"),
        (json.dumps({**good, "ledger": 12345, "index": 3}), "nothing stands there in version 1"),
    ):
        with pytest.raises(ConfigError, match=problem):
            direct.stream(log, startingOffsets=text).initialOffset()


def test_a_log_that_was_deleted_and_made_anew_is_noticed_by_its_id(direct: Direct, bookkeeper: BookKeeper, log: str) -> None:
    """Log rule 6."""
    direct.write(log, numbers(1))
    old = direct.stream(log)
    start = old.initialOffset()
    bookkeeper.open_log(log).delete()
    direct.write(log, numbers(1))
    with pytest.raises(ConfigError, match=f"log '{log}' has the id .* now: it was deleted and made anew"):
        direct.stream(log).latestOffset(start, ALL)
    with pytest.raises(NoSuchLogError, match=log):
        old.partitions(start, start)


# --- the background thread


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every question to the metadata store."""
    asked: list[str] = []
    real = ZooKeeperStore._once

    def once(self: ZooKeeperStore, path: str, start: Any) -> Any:
        asked.append(path)
        return real(self, path, start)

    monkeypatch.setattr(ZooKeeperStore, "_once", once)
    monkeypatch.setattr(tail, "HEARTBEAT_S", 3600.0)
    return asked


def test_an_idle_stream_asks_nobody(direct: Direct, stream: OpenStream, log: str, calls: list[str]) -> None:
    """Log rule 7: Spark asks every 12 ms."""
    direct.write(log, numbers(1))
    reader = stream(log)
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    wait_until(lambda: reader._stream.cursor.wait_s() is None)

    def asks_nobody() -> bool:
        calls.clear()
        for _ in range(100):
            assert reader.latestOffset(start, ReadMaxRows(1)) == start
            assert reader.reportLatestOffset() == bare(start)
        return calls == []

    wait_until(asks_nobody)  # the look that published the cursor may still be under way


def test_a_commit_is_seen_through_a_watch(direct: Direct, stream: OpenStream, log: str, calls: list[str]) -> None:
    """Log rule 7: the heart beats once an hour here."""
    direct.write(log, numbers(1))
    reader = stream(log)
    start = reader.initialOffset()
    for number in range(3):
        assert reader.latestOffset(start, ALL) == start
        direct.write(log, numbers(number))
        end = wait_for(reader, start)
        assert micro_batch(reader, start, end) == [number]
        start = end


def test_a_live_leader_is_tailed_and_never_fenced(
    stream: OpenStream, leading: BookKeeper, log: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log rules 2 and 7: by long polls and watches alone, also over a roll; nobody looks again by the clock here."""
    monkeypatch.setattr(ledger_poll, "POLL_S", 3600.0)
    monkeypatch.setattr(last_add_confirmed, "ROUTINE_LOOK_MS", 3_600_000)
    with leading.open_log(log, create=True).open_writer() as writer:
        reader = stream(log, content="entries")
        start = reader.initialOffset()
        for number in range(3):
            writer.append(b"%d" % number)
            end = wait_for(reader, start)
            assert payloads(reader, start, end) == [b"%d" % number]
            start = end
        writer.roll()
        writer.append(b"rolled")
        end = wait_for(reader, start, lambda found: found["version"] > start["version"])
        assert payloads(reader, start, end) == [b"rolled"]
    assert payloads(reader, start, end) == [b"rolled"]


def test_the_end_of_a_ledger_that_was_recovered_is_seen(stream: OpenStream, leading: BookKeeper, log: str) -> None:
    """Log rule 2: an append of another writer displaces the leader, and is read behind its entries."""
    led = leading.open_log(log, create=True)
    writer = led.open_writer()
    reader = stream(log, content="entries", startingOffsets="earliest")
    start = reader.initialOffset()
    writer.append(b"led")
    wait_for(reader, start)
    ledger = leading.create_ledger()
    ledger.append(b"appended")
    ledger.close()
    led.append_ledgers([ledger.ledger_id])
    end = wait_for(reader, start, lambda found: found["ledger"] == ledger.ledger_id)
    assert payloads(reader, start, end) == [b"led", b"appended"]


def test_a_log_that_is_deleted_stops_the_stream_with_the_reason(
    direct: Direct, stream: OpenStream, bookkeeper: BookKeeper, log: str
) -> None:
    """Log rules 7 and 10."""
    direct.write(log, numbers(1))
    reader = stream(log)
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    bookkeeper.open_log(log).delete()
    with pytest.raises(NoSuchLogError, match=f"there is no log '{log}'"):
        wait_until(lambda: reader.latestOffset(start, ALL) != start)


def test_a_thread_that_died_or_hangs_is_not_taken_for_an_idle_log(
    direct: Direct, stream: OpenStream, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log rule 7."""
    direct.write(log, numbers(1))
    dying, hanging = stream(log), stream(log)
    start = dying.initialOffset()
    released = threading.Event()

    def dies() -> None:
        raise ZeroDivisionError("a bug in the thread")

    assert dying.latestOffset(start, ALL) == hanging.latestOffset(start, ALL) == start
    monkeypatch.setattr(dying._stream._tail, "_plan", dies)
    monkeypatch.setattr(hanging._stream._tail, "_plan", lambda: released.wait(60))
    direct.write(log, numbers(2))
    with pytest.raises(ZeroDivisionError, match="a bug in the thread"):
        wait_until(lambda: dying.latestOffset(start, ALL) != start)
    monkeypatch.setattr(heard, "STALE_S", 0.2)
    monkeypatch.setattr(heard, "GRACE_S", 0.2)
    with pytest.raises(MetadataUnavailableError, match=f"nothing was heard of log '{log}' for 0.2 s"):
        wait_until(lambda: hanging.latestOffset(start, ALL) != start)
    released.set()


def test_bookies_that_do_not_answer_are_waited_for_and_in_the_end_an_error(
    stream: OpenStream, leading: BookKeeper, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log rule 7."""
    with leading.open_log(log, create=True).open_writer() as writer:
        reader = stream(log, content="entries", startingOffsets="earliest")
        start = reader.initialOffset()
        answers, real = threading.Event(), reader._stream.log.open_ledger

        def open_ledger(ledger_id: int) -> ReadHandle:
            if not answers.is_set():
                raise BookieUnavailableError(ledger_id, 0, ("b1: no answer",))
            return real(ledger_id)

        opener = replace(reader._stream.log.opener, on_bookies=open_ledger)
        reader._stream.log = replace(reader._stream.log, opener=opener)
        writer.append(b"x")
        assert reader.latestOffset(start, ALL) == start
        answers.set()
        wait_for(reader, start)
        late = stream(log, content="entries", startingOffsets="earliest")
        answers.clear()
        late._stream.log = replace(late._stream.log, opener=opener)
        late.latestOffset(start, ALL)
        monkeypatch.setattr(tail, "STALE_S", 0.5)
        monkeypatch.setattr(tail, "HEARTBEAT_S", 0.1)
        late._stream._tail.wake()
        with pytest.raises(BookieUnavailableError, match="b1: no answer"):
            wait_until(lambda: late.latestOffset(start, ALL) != start)


def test_stop_ends_the_threads(stream: OpenStream, leading: BookKeeper, log: str) -> None:
    with leading.open_log(log, create=True).open_writer() as writer:
        reader = stream(log, content="entries", startingOffsets="earliest")
        start = reader.initialOffset()
        writer.append(b"x")
        wait_for(reader, start)
        assert f"bk-spark-tail-{log}" in [one.name for one in threading.enumerate()]
        assert all(one.daemon for one in threading.enumerate() if one.name.startswith("bk-spark-"))
        reader.stop()
        wait_until(lambda: f"bk-spark-tail-{log}" not in [one.name for one in threading.enumerate()])


def test_the_instance_that_goes_to_the_tasks_holds_no_thread(direct: Direct, log: str) -> None:
    direct.write(log, numbers(1, 2))
    reader = direct.stream(log, startingOffsets="earliest")
    [(start, end, _)] = micro_batches(reader)
    [part] = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    fresh = pickle.loads(pickle.dumps(direct.stream(log)))
    assert [row["id"] for batch in fresh.read(part) for row in batch.to_pylist()] == [1, 2]


# --- the cursor


def cursors(bookkeeper: BookKeeper, log: str) -> dict[str, tuple[Offset, int]]:
    uid = bookkeeper.logs.names.uid(log)
    found = bookkeeper.logs.cursors.all(log, uid)
    return {one.name: (one.position.to_offset(uid), one.lag(bookkeeper.logs.names.head(log, uid))) for one in found}


def test_a_running_stream_shows_how_far_it_is_and_how_many_rows_it_is_behind(
    direct: Direct, stream: OpenStream, bookkeeper: BookKeeper, log: str, calls: list[str]
) -> None:
    direct.write(log, numbers(1, 2, 3))
    reader = stream(log, cursorName="copy", startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    wait_until(lambda: cursors(bookkeeper, log) == {"copy": (bare(start), 3)})
    reader.commit(end)
    wait_until(lambda: cursors(bookkeeper, log) == {"copy": (bare(end), 0)})
    direct.write(log, numbers(4, 5))
    assert cursors(bookkeeper, log) == {"copy": (bare(end), 2)}
    later = wait_for(reader, end)
    for _ in range(20):
        reader.commit(later)
    reader.latestOffset(later, ALL)
    wait_until(lambda: cursors(bookkeeper, log) == {"copy": (later, 0)})


def test_available_now_shows_its_cursor_without_a_thread(direct: Direct, bookkeeper: BookKeeper, log: str) -> None:
    direct.write(log, numbers(1), numbers(2))
    reader = direct.stream(log, cursorName="nightly", startingOffsets="earliest", maxRowsPerTrigger=1)
    ends = [end for _, end, _ in micro_batches(reader)]
    assert cursors(bookkeeper, log) == {"nightly": (ends[-1], 0)}
    assert reader._stream._tail is None


def test_a_cursor_that_cannot_be_published_stops_no_stream(
    direct: Direct, bookkeeper: BookKeeper, log: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    direct.write(log, numbers(1))
    monkeypatch.setattr("bk_spark.log.stream.cursors.MAX_CURSORS", 0)
    assert [rows for _, _, rows in micro_batches(direct.stream(log, cursorName="x", startingOffsets="earliest"))] == [[1]]
    assert "the cursor 'x' of a stream on log" in caplog.text
    assert cursors(bookkeeper, log) == {}


def test_retention_alone_never_moves_a_stream(direct: Direct, bookkeeper: BookKeeper, log: str) -> None:
    """Other changes of the head are no news for a stream."""
    direct.write(log, numbers(1))
    reader = direct.stream(log)
    start = reader.initialOffset()
    bookkeeper.logs.set_retention(log, bookkeeper.logs.names.uid(log), Retention(version_retention_s=5))
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(start, ALL) == start
