"""A stream over several logs asked as Spark asks it: which logs, offsets, limits. Without Spark, on real bookies.

Ref: docs/rules.md, "Logs".
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.read import named_logs, tail
from bk_spark.datasource.read.several_reader import SeveralReader
from bk_spark.errors import ConfigError, DataLossError, LogGoneError, LogReplacedError, NoSuchLogError, SchemaMismatchError
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.values import Head
from bk_spark.log.stream.positions import Offset
from bk_spark.metadata.zookeeper import ZooKeeperStore
from tests.cluster.datasource.direct import Direct
from tests.cluster.datasource.streams import ALL
from tests.unit.datasource.batches import numbers, wait_until

EARLIEST = {"startingOffsets": "earliest"}

Open = Callable[..., SeveralReader]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are looked at so often that a test need not wait for it."""
    monkeypatch.setattr(named_logs, "NAMES_S", 0.05)


@pytest.fixture
def follow(direct: Direct) -> Iterator[Open]:
    """Opens streams over several logs, whose threads end with the test."""
    opened: list[SeveralReader] = []

    def open_stream(schema: StructType | None = None, **options: Any) -> SeveralReader:
        source = direct.source(None, **options)
        reader = source.streamReader(schema or source.schema())
        assert isinstance(reader, SeveralReader)
        opened.append(reader)
        return reader

    yield open_stream
    for one in opened:
        one.stop()


def rows(reader: SeveralReader, start: Offset, end: Offset, name: str = "id") -> list[Any]:
    """A column of what a stream reads between two offsets, as they stand in the checkpoint."""
    found = []
    for partition in reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end))):
        copy = pickle.loads(pickle.dumps(partition))
        found += [row[name] for batch in reader.read(copy) for row in batch.to_pylist()]
    return found


def batches(reader: SeveralReader, name: str = "id") -> list[list[Any]]:
    """The micro-batches of what there is now."""
    found, start = [], reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        found.append(rows(reader, start, end, name))
        reader.commit(end)
        start = end
    return found


def wait_for(reader: SeveralReader, start: Offset, logs: int | None = None) -> Offset:
    """The next offset above ``start``; that has so many logs."""
    found: list[Offset] = []

    def is_there() -> bool:
        found.append(reader.latestOffset(start, ALL))
        return found[-1] != start and logs in (None, len(found[-1]["logs"]))

    wait_until(is_there)
    return found[-1]


def names(offset: Offset) -> list[str]:
    return sorted(one["name"] for one in offset["logs"].values())


# --- what a stream reads


def test_the_rows_of_each_log_come_once_and_in_order(direct: Direct, follow: Open, log: str) -> None:
    for number in range(3):
        direct.write(f"{log}-a", numbers(number))
        direct.write(f"{log}-b", numbers(10 + number))
    assert batches(follow(logs=f"{log}-a,{log}-b", **EARLIEST)) == [[0, 1, 2, 10, 11, 12]]
    assert batches(follow(logsPattern=f"{log}-.", **EARLIEST)) == [[0, 1, 2, 10, 11, 12]]
    assert batches(follow(paths=json.dumps([f"{log}-a"]), **EARLIEST)) == [[0, 1, 2]]
    assert batches(follow(logs=f"{log}-a,{log}-b")) == []


def test_news_of_each_log_is_seen_while_the_stream_runs(direct: Direct, follow: Open, log: str) -> None:
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(0))
    reader = follow(logs=f"{log}-a,{log}-b")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    for number, name in enumerate("abba"):
        direct.write(f"{log}-{name}", numbers(number))
        end = wait_for(reader, start)
        assert rows(reader, start, end) == [number]
        start = end


def test_a_leaders_log_of_entries_is_followed_beside_one_that_spark_writes(
    direct: Direct, follow: Open, leading: BookKeeper, log: str
) -> None:
    """Log rule 2."""
    direct.write(f"{log}-b", pa.record_batch({"payload": [b"spark"]}), content="entries")
    with leading.open_log(f"{log}-a", create=True).open_writer() as writer:
        writer.append(b"0")
        reader = follow(logs=f"{log}-a,{log}-b", content="entries", **EARLIEST)
        start = reader.initialOffset()
        end = wait_for(reader, start)
        wait_until(lambda: rows(reader, start, reader.latestOffset(start, ALL), "payload") == [b"0", b"spark"])
        end = reader.latestOffset(start, ALL)
        writer.append(b"1")
        later = wait_for(reader, end)
        assert rows(reader, end, later, "payload") == [b"1"]


def test_rows_tell_their_log_and_version(direct: Direct, follow: Open, log: str, bookkeeper: BookKeeper) -> None:
    for name in ("a", "b", "a"):
        direct.write(f"{log}-{name}", numbers(1))
    options = {"logs": f"{log}-a,{log}-b", "includeMetadata": True, **EARLIEST}
    assert batches(follow(**options), "_log") == [[f"{log}-a", f"{log}-a", f"{log}-b"]]
    assert batches(follow(**options), "_version") == [[1, 2, 1]]
    times = [[one.time_ms for one in bookkeeper.logs.reader.all_versions(f"{log}-{name}")] for name in "ab"]
    [found] = batches(follow(**options), "_commit_timestamp")
    assert [round(one.timestamp() * 1000) for one in found] == [*times[0], *times[1]]


def test_partitions_have_rows_of_one_log_and_share_min_partitions(direct: Direct, follow: Open, log: str) -> None:
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(*range(40)), maxRowsPerEntry=1)

    def parts(**options: Any) -> int:
        reader = follow(logs=f"{log}-a,{log}-b", **EARLIEST, **options)
        start = reader.initialOffset()
        return len(reader.partitions(start, wait_for(reader, start)))

    assert (parts(), parts(minPartitions=8), parts(minPartitions=3)) == (2, 8, 4)


def test_a_stream_may_start_at_a_time_in_each_log(direct: Direct, follow: Open, bookkeeper: BookKeeper, log: str) -> None:
    for name in ("a", "b", "a"):
        direct.write(f"{log}-{name}", numbers(len(name)))
    direct.write(f"{log}-b", numbers(7))
    time_ms = bookkeeper.logs.reader.all_versions(f"{log}-a")[1].time_ms
    found = batches(follow(logs=f"{log}-a,{log}-b", includeMetadata=True, startingTimestamp=time_ms), "_version")
    assert found == [[2, 2]]


# --- offsets


def test_offsets_are_sorted_and_name_each_log_by_its_id(direct: Direct, follow: Open, log: str) -> None:
    """Log rule 6: Spark compares them as strings."""
    for name in ("b", "a"):
        direct.write(f"{log}-{name}", numbers(1))
    reader = follow(logs=f"{log}-a,{log}-b", **EARLIEST)
    start = reader.initialOffset()
    end = wait_for(reader, start)
    for offset in (start, end, reader.reportLatestOffset()):
        assert json.dumps(offset) == json.dumps(offset, sort_keys=True)
        assert offset is not None
        assert (offset["format"], names(offset)) == (1, [f"{log}-a", f"{log}-b"])
    assert [one["start"]["version"] for one in end["logs"].values()] == [0, 0]
    later = follow(logs=f"{log}-a,{log}-b", startingOffsets=json.dumps(end))
    assert batches(later) == []


def test_a_batch_is_planned_again_from_its_offsets_alone(direct: Direct, follow: Open, log: str) -> None:
    """Log rule 6: after a restart, and the first one too, whose start is asked for again."""
    for number in range(4):
        direct.write(f"{log}-{'ab'[number % 2]}", numbers(number))
    reader = follow(logsPattern=f"{log}-.", maxRowsPerTrigger=1, **EARLIEST)
    start, found = reader.initialOffset(), []
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset(start, ReadMaxRows(1))) != start:
        found.append((start, end, rows(reader, start, end)))
        start = end
    assert sorted(row for _, _, [row] in found) == [0, 1, 2, 3]
    direct.write(f"{log}-a", numbers(8))
    direct.write(f"{log}-c", numbers(9))
    again = follow(logsPattern=f"{log}-.")
    assert [rows(again, *one[:2]) for one in found] == [one[2] for one in found]
    assert rows(again, again.initialOffset(), found[0][1]) == found[0][2]
    assert rows(again, start, wait_for(again, start, 3)) == [8, 9]


def test_a_log_without_an_offset_in_the_option_is_read_from_its_beginning(direct: Direct, follow: Open, log: str) -> None:
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(1))
    start = follow(logs=f"{log}-a").initialOffset()
    direct.write(f"{log}-a", numbers(2))
    assert batches(follow(logs=f"{log}-a,{log}-b", startingOffsets=json.dumps(start))) == [[2, 1]]


def test_offsets_that_are_not_of_these_logs_are_refused(direct: Direct, follow: Open, log: str) -> None:
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(1))
    several, one = follow(logs=f"{log}-a,{log}-b"), direct.stream(f"{log}-a")
    with pytest.raises(ConfigError, match="it is of a stream over one log: name that log alone by load"):
        several.latestOffset(one.initialOffset(), ALL)
    with pytest.raises(ConfigError, match="it is of a stream over several logs: name them by 'logs' or 'logsPattern'"):
        one.latestOffset(several.initialOffset(), ALL)
    text = json.dumps(several.initialOffset())
    with pytest.raises(ConfigError, match=f"log '{log}-a' with this id is none of the logs that the query reads"):
        follow(logs=f"{log}-b", startingOffsets=text).initialOffset()
    far = text.replace('"version": 1', '"version": 9')
    with pytest.raises(ConfigError, match=r"option 'startingOffsets' is .*can be read from version 0 to 1"):
        follow(logs=f"{log}-a,{log}-b", startingOffsets=far).initialOffset()


# --- logs that come


def test_a_log_that_comes_is_read_from_its_beginning_in_the_batch_that_enters_it(
    direct: Direct, follow: Open, log: str, bookkeeper: BookKeeper
) -> None:
    direct.write(f"{log}-a", numbers(1))
    reader = follow(logsPattern=f"{log}-.")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    bookkeeper.open_log(f"{log}-b", create=True)
    direct.write(f"{log}-c", numbers(2), numbers(3))
    end = wait_for(reader, start)
    assert names(end) == [f"{log}-a", f"{log}-c"], "log b is empty"
    assert rows(reader, start, end) == [2, 3]
    direct.write(f"{log}-b", numbers(4))
    later = wait_for(reader, end)
    assert names(later) == [f"{log}-a", f"{log}-b", f"{log}-c"]
    direct.write(f"{log}-b", numbers(5))
    again = follow(logsPattern=f"{log}-.")
    assert (rows(again, start, end), rows(again, end, later)) == ([2, 3], [4])
    assert rows(again, later, wait_for(again, later)) == [5]


def test_a_run_that_reads_what_there_is_takes_no_log_that_comes_meanwhile(direct: Direct, follow: Open, log: str) -> None:
    direct.write(f"{log}-a", numbers(1))
    reader = follow(logsPattern=f"{log}-.", **EARLIEST)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    direct.write(f"{log}-a", numbers(2))
    direct.write(f"{log}-b", numbers(3))
    end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == [1]
    assert reader.latestOffset(end, ALL) == end
    later = follow(logsPattern=f"{log}-.")
    later.prepareForTriggerAvailableNow()
    assert rows(later, end, later.latestOffset(end, ALL)) == [2, 3]


@pytest.mark.parametrize(
    ("batch", "content", "sentence"),
    [
        ({"id": ["x"]}, "rows", "its column 'id' is string, the stream reads bigint, and neither type holds every value"),
        ({"id": [1], "more": ["x"]}, "rows", "it has a column 'more', which the stream does not have: restart the query"),
        (
            {"small": pa.array([1], pa.int64())},
            "rows",
            "'small' is bigint, the stream reads int: restart the query, which then",
        ),
        ({"ID": [1]}, "rows", "its column 'ID' and 'id' of another log are one name to Spark: leave the log out"),
        ({"payload": [b"x"]}, "entries", "it holds entries, the other logs hold rows: leave the log out of this query"),
    ],
)
def test_a_log_that_comes_with_other_columns_stops_the_stream(
    direct: Direct, follow: Open, log: str, batch: Any, content: str, sentence: str
) -> None:
    log = log[-60:]
    direct.write(f"{log}-a", pa.record_batch({"id": [1], "small": pa.array([1], pa.int32())}))
    reader = follow(logsPattern=f"{log}-.")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    direct.write(f"{log}-b", pa.record_batch(batch), content=content)
    with pytest.raises(SchemaMismatchError, match=f"log '{log}-b': the log came while the stream runs, and .*{sentence}"):
        wait_for(reader, start)


def test_columns_of_a_log_that_comes_do_not_matter_where_others_are_selected(direct: Direct, follow: Open, log: str) -> None:
    direct.write(f"{log}-a", pa.record_batch({"id": [1], "word": ["x"]}))
    reader = follow(StructType([StructField("id", LongType())]), logsPattern=f"{log}-.")
    start = reader.initialOffset()
    direct.write(f"{log}-b", pa.record_batch({"id": [2], "more": [True]}))
    assert rows(reader, start, wait_for(reader, start)) == [2]
    fewer = follow(logsPattern=f"{log}-[ac]")
    start = fewer.initialOffset()
    direct.write(f"{log}-c", numbers(3))
    assert rows(fewer, start, wait_for(fewer, start), "word") == [None]


def test_a_restart_reads_the_new_columns_of_the_log_that_stopped_the_stream(direct: Direct, follow: Open, log: str) -> None:
    direct.write(f"{log}-a", numbers(1))
    reader = follow(logsPattern=f"{log}-.")
    start = reader.initialOffset()
    direct.write(f"{log}-b", pa.record_batch({"id": [2], "more": ["x"]}))
    with pytest.raises(SchemaMismatchError, match="restart the query"):
        wait_for(reader, start)
    again = follow(logsPattern=f"{log}-.")
    assert rows(again, start, wait_for(again, start), "more") == ["x"]


# --- logs that go


def test_a_deleted_log_stops_the_stream_or_is_left_out(
    direct: Direct, follow: Open, log: str, bookkeeper: BookKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(1))
    failing, going_on = (follow(logsPattern=f"{log}-.", failOnDataLoss=fail, **EARLIEST) for fail in (True, False))
    start = failing.initialOffset()
    assert going_on.initialOffset() == start
    middle = wait_for(failing, start)
    assert wait_for(going_on, start) == middle
    bookkeeper.open_log(f"{log}-b").delete()
    with pytest.raises(LogGoneError, match=f"log '{log}-b' is gone from the stream: it was deleted, .*set failOnDataLoss"):
        wait_for(failing, middle)
    end = wait_for(going_on, middle)
    assert names(end) == [f"{log}-a"]
    assert f"the stream goes on without log '{log}-b': it was deleted" in caplog.text
    assert rows(going_on, middle, end) == []
    assert rows(going_on, start, middle) == [1], "the repeated batch"
    with pytest.raises(LogGoneError, match=f"log '{log}-b'"):
        failing.partitions(start, middle)
    going_on.commit(middle)
    direct.write(f"{log}-a", numbers(2))
    assert rows(going_on, end, wait_for(going_on, end)) == [2]


def test_a_log_that_a_server_does_not_know_yet_is_not_taken_for_deleted(
    direct: Direct, follow: Open, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log rule 6: otherwise a restart would leave the log out, and then read all of it again."""
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(1))
    options = {"logsPattern": f"{log}-.", "failOnDataLoss": False}
    reader = follow(**options, **EARLIEST)
    start = reader.initialOffset()
    end = wait_for(reader, start)
    again, late = follow(**options), follow(**options)
    is_behind, head, fresh_head = [True], LogNames.head, LogNames.fresh_head

    def known(self: LogNames, name: str, uid: str) -> Head:
        if name == f"{log}-b" and is_behind[0]:
            raise NoSuchLogError(name)
        return head(self, name, uid)

    def caught_up(self: LogNames, name: str, uid: str) -> Head:
        is_behind[0] = False
        return fresh_head(self, name, uid)

    monkeypatch.setattr(LogNames, "head", known)
    monkeypatch.setattr(LogNames, "fresh_head", caught_up)
    assert rows(again, start, end) == [1, 1]
    is_behind[0] = True
    assert late.latestOffset(end, ALL) == end
    direct.write(f"{log}-b", numbers(2))
    assert rows(late, end, wait_for(late, end)) == [2]


def test_a_log_that_is_deleted_between_plan_and_read_stops_the_task_or_gives_no_rows(
    direct: Direct, follow: Open, log: str, bookkeeper: BookKeeper
) -> None:
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(1))
    readers = {fail: follow(logsPattern=f"{log}-.", failOnDataLoss=fail, **EARLIEST) for fail in (True, False)}
    start = readers[True].initialOffset()
    parts = {fail: reader.partitions(start, wait_for(reader, start)) for fail, reader in readers.items()}
    bookkeeper.open_log(f"{log}-b").delete()
    with pytest.raises(LogGoneError, match=f"log '{log}-b'"):
        list(readers[True].read(parts[True][1]))
    assert list(readers[False].read(parts[False][1])) == []


def test_a_log_that_is_made_anew_is_another_log(direct: Direct, follow: Open, log: str, bookkeeper: BookKeeper) -> None:
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(1))
    reader = follow(logs=f"{log}-a,{log}-b", failOnDataLoss=False)
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    bookkeeper.open_log(f"{log}-b").delete()
    direct.write(f"{log}-b", numbers(2))
    found, end = [], start
    while not found:
        end, before = wait_for(reader, end), end
        found += rows(reader, before, end)
    assert found == [2]
    assert names(end) == [f"{log}-a", f"{log}-b"]
    assert end["logs"].keys() != start["logs"].keys()
    with pytest.raises(LogGoneError, match="the log of this name that is there now is another one"):
        follow(logs=f"{log}-a,{log}-b").latestOffset(start, ALL)


def test_a_log_that_the_options_do_not_name_any_more_stops_the_stream_or_is_left_out(
    direct: Direct, follow: Open, log: str
) -> None:
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(1))
    start = follow(logs=f"{log}-a,{log}-b").initialOffset()
    with pytest.raises(LogGoneError, match=f"log '{log}-b' is gone from the stream: the query's options do not name it"):
        follow(logs=f"{log}-a").latestOffset(start, ALL)
    assert names(follow(logs=f"{log}-a", failOnDataLoss=False).latestOffset(start, ALL)) == [f"{log}-a"]


def test_a_query_starts_with_every_log_that_it_names(direct: Direct, follow: Open, log: str, bookkeeper: BookKeeper) -> None:
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(1))
    reader = follow(logs=f"{log}-a,{log}-b")
    bookkeeper.open_log(f"{log}-b").delete()
    with pytest.raises(NoSuchLogError, match=f"'{log}-b'"):
        reader.initialOffset()


def test_what_happens_to_one_log_is_as_in_a_stream_over_one(
    direct: Direct, follow: Open, log: str, bookkeeper: BookKeeper
) -> None:
    """Log rules 6 and 10: replaced content and truncation."""
    for name in ("a", "b"):
        direct.write(f"{log}-{name}", numbers(1), numbers(2))
    start = follow(logs=f"{log}-a,{log}-b", **EARLIEST).initialOffset()
    direct.write(f"{log}-a", numbers(3), overwrite=True)
    given = {"logs": f"{log}-a,{log}-b", "startingOffsets": json.dumps(start)}
    assert batches(follow(**given, overwrites="read")) == [[1, 2, 3, 1, 2]]
    assert batches(follow(**given, overwrites="skip")) == [[1, 2, 1, 2]]
    with pytest.raises(LogReplacedError, match=f"version 2 of log '{log}-a'"):
        batches(follow(**given))
    direct.write(f"{log}-b", numbers(5))
    last = bookkeeper.logs.reader.snapshot(f"{log}-b").ledgers[2].ledger_id
    bookkeeper.logs.truncate(f"{log}-b", bookkeeper.logs.names.uid(f"{log}-b"), last)
    with pytest.raises(DataLossError, match=f"rows of log '{log}-b' are gone"):
        batches(follow(**given, overwrites="skip"))
    assert batches(follow(**given, overwrites="skip", failOnDataLoss=False)) == [[1, 2, 5]]


# --- limits


def test_the_limit_is_one_for_all_logs_and_no_log_starves(direct: Direct, follow: Open, log: str) -> None:
    """Log rule 7."""
    for place, name in enumerate("abc"):
        direct.write(f"{log}-{name}", numbers(*range(100 * place, 100 * place + 40)), maxRowsPerEntry=2)
    found = batches(follow(logsPattern=f"{log}-.", maxRowsPerTrigger=30, **EARLIEST))
    assert [len(batch) for batch in found] == [30] * 4
    assert all(len({row // 100 for row in batch}) == 3 for batch in found[:3]), "each batch has rows of each log"
    for place in range(3):
        assert [row for batch in found for row in batch if row // 100 == place] == list(range(100 * place, 100 * place + 40))


def test_a_log_of_large_entries_gets_its_turn(direct: Direct, follow: Open, log: str) -> None:
    direct.write(f"{log}-a", numbers(*range(24)), maxRowsPerEntry=8)
    direct.write(f"{log}-b", numbers(*range(100, 200)), maxRowsPerEntry=1)
    for limit in ({"maxRowsPerTrigger": 10}, {"maxRowsPerTrigger": 2}):
        found = batches(follow(logsPattern=f"{log}-.", **limit, **EARLIEST))
        assert all(len(batch) <= max(10, 8) for batch in found)
        turns = [place for place, batch in enumerate(found) if batch[0] < 100]
        assert len(turns) == 3
        assert turns[-1] <= 5


def test_bytes_are_shared_too(direct: Direct, follow: Open, leading: BookKeeper, log: str) -> None:
    for name in "ab":
        with leading.open_log(f"{log}-{name}", create=True).open_writer() as writer:
            writer.append_batch([name.encode() * 10] * 9)
    found = batches(follow(logsPattern=f"{log}-.", content="entries", maxBytesPerTrigger=60, **EARLIEST), "payload")
    assert [len(batch) for batch in found] == [6, 6, 6]
    assert {payload[:1] for payload in found[0]} == {b"a", b"b"}


# --- the background


def test_an_idle_stream_asks_only_for_the_names(
    direct: Direct, follow: Open, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log rule 7: Spark asks every 12 ms."""
    for name in "ab":
        direct.write(f"{log}-{name}", numbers(1))
    asked: list[str] = []
    real = ZooKeeperStore._once
    monkeypatch.setattr(ZooKeeperStore, "_once", lambda self, path, start: asked.append(path) or real(self, path, start))
    monkeypatch.setattr(tail, "HEARTBEAT_S", 3600.0)
    reader = follow(logsPattern=f"{log}-.")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    assert reader._made is not None
    cursors = [one.cursor for one in reader._made._streams.values()]
    wait_until(lambda: [cursor.wait_s() for cursor in cursors] == [None, None])
    asked.clear()
    for _ in range(100):
        assert reader.latestOffset(start, ReadMaxRows(1)) is start
    assert {path.rsplit("/", 1)[1] for path in asked} <= {"names"}


def test_all_logs_share_one_thread_and_stop_ends_it(direct: Direct, follow: Open, log: str) -> None:
    for name in "abcd":
        direct.write(f"{log}-{name}", numbers(1))

    def threads() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name.startswith("bk-spark-tail")]

    reader = follow(logsPattern=f"{log}-.", **EARLIEST)
    wait_for(reader, reader.initialOffset())
    assert threads() == ["bk-spark-tail-several"]
    reader.stop()
    wait_until(lambda: threads() == [])


def test_each_log_has_the_cursor_of_the_stream(direct: Direct, follow: Open, bookkeeper: BookKeeper, log: str) -> None:
    for name in "ab":
        direct.write(f"{log}-{name}", numbers(1, 2))

    def lags() -> list[int]:
        found = []
        for name in (f"{log}-a", f"{log}-b"):
            uid = bookkeeper.logs.names.uid(name)
            [cursor] = bookkeeper.logs.cursors.all(name, uid)
            assert cursor.name == "copy"
            found.append(cursor.lag(bookkeeper.logs.names.head(name, uid)))
        return found

    batches(follow(logs=f"{log}-a,{log}-b", cursorName="copy", **EARLIEST))
    assert lags() == [0, 0]
    running = follow(logs=f"{log}-a,{log}-b", cursorName="copy")
    start = running.initialOffset()
    direct.write(f"{log}-a", numbers(3))
    end = wait_for(running, start)
    running.commit(end)
    wait_until(lambda: lags() == [0, 0])
