"""One stream over several logs, as Spark runs it: logs that come and go, restarts, limits, metadata columns, errors.

Ref: docs/rules.md, log rules 6, 7 and 10.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from bk_spark.bookkeeper import BookKeeper
from tests.cluster.datasource.direct import Direct
from tests.spark.conftest import Logs
from tests.spark.test_stream_source import payloads, uncommit
from tests.spark.test_user_errors import check
from tests.unit.datasource.batches import numbers, wait_until

pytestmark = pytest.mark.timeout(300)

EARLIEST = {"startingOffsets": "earliest"}


class Query:
    """A query whose batches are kept: the rows of some columns, a list for each batch."""

    def __init__(self, logs: Logs, checkpoint: Path) -> None:
        self._logs = logs
        self.checkpoint = checkpoint
        self.batches: list[list[Any]] = []
        self.running: StreamingQuery | None = None

    def start(self, columns: str = "id", *, available_now: bool = False, **options: Any) -> StreamingQuery:
        stream = self._logs.spark.readStream.format("bookkeeper").option("metadata", self._logs.uri).options(**options)

        def keep(batch: DataFrame, _: int) -> None:
            rows = [tuple(row) for row in batch.selectExpr(*columns.split(",")).collect()]
            if rows:
                self.batches.append([row[0] for row in rows] if "," not in columns else rows)

        trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        writing = stream.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
        self.running = writing.trigger(**trigger).start()
        return self.running

    def drain(self, columns: str = "id", **options: Any) -> list[list[Any]]:
        """Everything there is now, by Trigger.AvailableNow: its batches."""
        before = len(self.batches)
        self.start(columns, available_now=True, **options).awaitTermination()
        return self.batches[before:]

    def stop(self) -> None:
        if self.running is not None:
            self.running.stop()

    @property
    def values(self) -> list[Any]:
        return [value for batch in self.batches for value in batch]


@pytest.fixture
def query(logs: Logs, tmp_path: Path) -> Iterator[Callable[[], Query]]:
    made: list[Query] = []

    def make() -> Query:
        made.append(Query(logs, tmp_path / f"checkpoint{len(made)}"))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def ends(query: Query) -> list[dict[str, Any]]:
    """The offsets in the checkpoint, in order."""
    files = sorted(
        (path for path in (query.checkpoint / "offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    return [json.loads(path.read_text().splitlines()[-1]) for path in files]


def test_a_running_query_reads_two_logs_and_one_that_comes_each_row_once(query: Any, direct: Direct, log: str) -> None:
    direct.write(f"{log}-a", numbers(1))
    direct.write(f"{log}-b", numbers(10))
    one = query()
    running = one.start(logsPattern=f"{log}-.", **EARLIEST)
    wait_until(lambda: len(one.values) == 2 or running.exception() is not None, 60)
    direct.write(f"{log}-b", numbers(11), numbers(12))
    direct.write(f"{log}-a", numbers(2))
    wait_until(lambda: len(one.values) == 5)
    direct.write(f"{log}-c", numbers(20, 21))
    wait_until(lambda: len(one.values) == 7 or running.exception() is not None)
    direct.write(f"{log}-c", numbers(22))
    wait_until(lambda: len(one.values) == 8)
    for tens, expected in ((0, [1, 2]), (1, [10, 11, 12]), (2, [20, 21, 22])):
        assert [value for value in one.values if value // 10 == tens] == expected
    latest = json.loads(running.lastProgress["sources"][0]["latestOffset"])
    assert sorted(entry["name"] for entry in latest["logs"].values()) == [f"{log}-a", f"{log}-b", f"{log}-c"]


def transact(bookkeeper: BookKeeper, log: str, number: int) -> None:
    """The same number once into log a and three times into log b; from 6 on, once into log c, too."""
    with bookkeeper.transaction() as transaction:
        transaction.append_rows(f"{log}-a", pa.table({"id": [number]}), create=True)
        transaction.append_rows(f"{log}-b", pa.table({"id": [number] * 3}), create=True)
        if number >= 6:
            transaction.append_rows(f"{log}-c", pa.table({"id": [number]}), create=True)


def test_each_batch_has_a_transaction_in_all_logs_or_in_none(query: Any, bookkeeper: BookKeeper, log: str) -> None:
    """While transactions come, with limits that cut the logs anywhere, and with a log that a transaction makes."""
    transact(bookkeeper, log, 0)
    one = query()
    running = one.start(logsPattern=f"{log}-.", maxRowsPerTrigger=5, **EARLIEST)
    for number in range(1, 12):
        transact(bookkeeper, log, number)
        if number % 3 == 2:
            bookkeeper.append_rows(f"{log}-a", pa.table({"id": [100 + number]}))
    wait_until(lambda: len(one.values) == 6 * 4 + 6 * 5 + 4 or running.exception() is not None, 120)
    running.stop()
    for number in range(12):
        assert [batch.count(number) for batch in one.batches if number in batch] == [4 + (number >= 6)]
    rest = Query(one._logs, one.checkpoint)
    transact(bookkeeper, log, 50)
    assert rest.drain(logsPattern=f"{log}-.", maxRowsPerTrigger=1)[-1] == [50] * 5


def test_a_restart_repeats_the_last_batch_and_goes_on_also_with_a_log_that_came(query: Any, direct: Direct, log: str) -> None:
    """Log rule 6: a driver was killed after the batch's work and before its commit log."""
    for name, base in (("a", 0), ("b", 100)):
        direct.write(f"{log}-{name}", numbers(*range(base, base + 6)), maxRowsPerEntry=1)
    one = query()
    options = {"logs": f"{log}-a,{log}-b,{log}-c", "maxRowsPerTrigger": 4}
    direct.write(f"{log}-c", numbers(200), maxRowsPerEntry=1)
    first = one.drain(**options, **EARLIEST)
    assert [len(batch) for batch in first] == [4, 4, 4, 1]
    uncommit(one.checkpoint)
    direct.write(f"{log}-a", numbers(6))
    direct.write(f"{log}-d", numbers(300))
    again = one.drain(**{**options, "logs": f"{options['logs']},{log}-d"})
    assert again[0] == first[-1]
    assert sorted(again[1]) == [6, 300]
    assert sorted({*one.values}) == [*range(7), *range(100, 106), 200, 300]
    assert len(one.values) == 15 + len(first[-1])
    assert all(json.dumps(end) == json.dumps(end, sort_keys=True) for end in ends(one))


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/read/test_several_reader.py::test_a_batch_is_planned_again_from_its_offsets_alone,"
    "tests/spark/test_stream_source.py::test_the_first_batch_keeps_its_start_when_it_is_repeated"
)
def test_the_first_batch_keeps_its_starts_when_it_is_repeated(query: Any, direct: Direct, log: str) -> None:
    """Log rule 6: Spark asks for the start of the first batch again, and each log has grown."""
    for name in "ab":
        direct.write(f"{log}-{name}", numbers(0))
    one = query()
    running = one.start(logsPattern=f"{log}-.")
    wait_until(lambda: running.recentProgress or running.exception() is not None, 60)
    direct.write(f"{log}-a", numbers(1))
    wait_until(lambda: one.values == [1] or running.exception() is not None)
    running.stop()
    for last in ends(one)[1:]:
        assert last["format"] == 1
    uncommit(one.checkpoint)
    direct.write(f"{log}-b", numbers(2))
    assert one.drain(logsPattern=f"{log}-.") == [[1], [2]]


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/read/test_several_reader.py::test_rows_tell_their_log_and_version,"
    "tests/spark/test_several_logs.py"
)
def test_rows_tell_their_log_version_and_commit(query: Any, direct: Direct, log: str, bookkeeper: BookKeeper) -> None:
    for name in ("a", "b", "a"):
        direct.write(f"{log}-{name}", numbers(1))
    found = query().drain(
        "_log,_version,unix_millis(_commit_timestamp)", logsPattern=f"{log}-.", includeMetadata="true", **EARLIEST
    )
    first, second = ([one.time_ms for one in bookkeeper.logs.reader.all_versions(f"{log}-{name}")] for name in "ab")
    assert found == [[(f"{log}-a", 1, first[0]), (f"{log}-a", 2, first[1]), (f"{log}-b", 1, second[0])]]


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/read/test_several_reader.py::test_a_leaders_log_of_entries_is_followed_beside_one_that_spark_writes,"
    "tests/spark/test_stream_source.py::test_a_query_tails_a_live_leader_and_spark_s_appends"
)
def test_a_leaders_log_of_entries_is_tailed_beside_one_that_spark_writes(
    query: Any, direct: Direct, leading: BookKeeper, log: str
) -> None:
    """Log rule 2."""
    direct.write(f"{log}-b", payloads(b"spark"), content="entries")
    with leading.open_log(f"{log}-a", create=True).open_writer() as writer:
        one = query()
        running = one.start("payload", logs=f"{log}-a,{log}-b", content="entries", **EARLIEST)
        wait_until(lambda: len(one.values) == 1 or running.exception() is not None, 60)
        for number in range(3):
            writer.append(b"%d" % number)
            wait_until(lambda count=number + 2: len(one.values) == count)
        assert [bytes(value) for value in one.values] == [b"spark", b"0", b"1", b"2"]


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/read/test_several_reader.py::test_a_deleted_log_stops_the_stream_or_is_left_out"
)
def test_a_deleted_log_ends_the_query_in_one_sentence_or_is_left_out(
    query: Any, direct: Direct, log: str, bookkeeper: BookKeeper
) -> None:
    for name in "ab":
        direct.write(f"{log}-{name}", numbers(1))
    one = query()
    assert one.drain(logsPattern=f"{log}-.", **EARLIEST) == [[1, 1]]
    bookkeeper.open_log(f"{log}-b").delete()
    direct.write(f"{log}-a", numbers(2))
    sentence = f"log '{log}-b' is gone from the stream: it was deleted, and the stream may not have read all of it; to go on"
    check(lambda: one.drain(logsPattern=f"{log}-."), sentence)
    assert one.drain(logsPattern=f"{log}-.", failOnDataLoss="false") == [[2]]
    direct.write(f"{log}-b", numbers(3))
    assert one.drain(logsPattern=f"{log}-.") == [[3]]


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/read/test_several_reader.py::test_a_log_that_comes_with_other_columns_stops_the_stream,"
    "tests/cluster/datasource/read/test_several_reader.py::test_a_restart_reads_the_new_columns_of_the_log_that_stopped_the_stream,"
    "tests/spark/test_stream_source.py::test_a_query_stops_at_a_wider_type_and_its_restart_reads_on"
)
def test_a_log_that_comes_with_a_new_column_ends_the_query_and_its_restart_reads_it(
    query: Any, logs: Logs, direct: Direct, log: str
) -> None:
    direct.write(f"{log}-a", numbers(1))
    one = query()
    running = one.start(logsPattern=f"{log}-.", **EARLIEST)
    wait_until(lambda: one.values == [1] or running.exception() is not None, 60)
    logs.write(logs.spark.sql("SELECT 2L AS id, 'x' AS word"), f"{log}-b")
    wait_until(lambda: running.exception() is not None)
    sentence = f"log '{log}-b': the log came while the stream runs, and it has a column 'word', which the stream does not have"
    assert sentence in str(running.exception())
    assert one.drain("id,word", logsPattern=f"{log}-.") == [[(2, "x")]]


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/read/test_several_reader.py::test_offsets_that_are_not_of_these_logs_are_refused"
)
def test_checkpoints_of_one_log_and_of_several_are_not_exchanged(query: Any, direct: Direct, log: str) -> None:
    for name in "ab":
        direct.write(f"{log}-{name}", numbers(1))
    single, several = query(), query()
    assert single.drain(path=f"{log}-a", **EARLIEST) == [[1]]
    assert several.drain(logs=f"{log}-a,{log}-b", **EARLIEST) == [[1, 1]]
    check(lambda: single.drain(logs=f"{log}-a,{log}-b"), "it is of a stream over one log: name that log alone by load('name')")
    check(lambda: several.drain(path=f"{log}-a"), "it is of a stream over several logs: name them by 'logs' or 'logsPattern'")


OPTIONS = pytest.mark.nightly(
    held_by="tests/unit/datasource/read/test_loaded_logs.py::test_a_pattern_that_matches_nothing_is_refused,"
    "tests/unit/datasource/test_options.py,"
    "tests/unit/datasource/read/test_several_offset.py"
)
"""The first case, and tests/spark/test_user_errors.py, hold that a stream's user reads such a sentence."""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"logs": "{log}-a,{log}-none"}, "there is no log '{log}-none'"),
        pytest.param({"logsPattern": "{log}-none"}, "it matches the whole name of none of the", marks=OPTIONS),
        pytest.param(
            {"logs": "{log}-a", "endingOffsets": "latest"},
            "option 'endingOffsets' is 'latest': it does not apply to several",
            marks=OPTIONS,
        ),
        pytest.param({"logs": "{log}-a", "startingOffsets": '{{"log":1}}'}, "or an offset of a stream such as", marks=OPTIONS),
        pytest.param(
            {"logs": "{log}-a", "startingOffsets": '{{"format":2,"logs":{{}}}}'}, "this release reads format 1", marks=OPTIONS
        ),
    ],
)
def test_what_cannot_be_followed_ends_in_one_clear_sentence(query: Any, direct: Direct, log: str, options, sentence) -> None:
    log = log[:40]
    direct.write(f"{log}-a", numbers(1))
    given = {name: value.format(log=log) for name, value in options.items()}
    check(lambda: query().drain(**given), sentence.format(log=log))
