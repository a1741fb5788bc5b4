"""One DataFrame or stream into the logs that a column names: one commit of all of them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from bk_spark.bookkeeper import BookKeeper
from tests.spark.conftest import Logs
from tests.spark.test_streaming_sink import Numbers, source
from tests.spark.test_user_errors import check

__all__ = ["source"]


def frame_of(logs: Logs, log: str, rows: int = 12, parts: int = 2) -> DataFrame:
    """Rows n with a log by n % 3."""
    return logs.spark.range(0, rows, 1, parts).selectExpr("id", f"concat('{log}-', id % 3) AS into")


def write(logs: Logs, frame: DataFrame, mode: str = "append", **options: Any) -> None:
    writer = frame.write.format("bookkeeper").option("metadata", logs.uri).options(logColumn="into", **options)
    writer.mode(mode).save()


def ids(logs: Logs, name: str) -> list[int]:
    return [row[0] for row in logs.read(name).collect()]


def test_each_row_goes_to_the_log_that_it_names_in_one_transaction(logs: Logs, log, bookkeeper: BookKeeper) -> None:
    write(logs, frame_of(logs, log), createLogs=True)
    assert {place: ids(logs, f"{log}-{place}") for place in range(3)} == {place: [*range(place, 12, 3)] for place in range(3)}
    assert logs.read(f"{log}-0").columns == ["id"]
    made = {bookkeeper.logs.reader.all_versions(f"{log}-{place}")[-1].transaction for place in range(3)}
    assert len(made) == 1
    assert len(made.pop().changes) == 3  # type: ignore[union-attr]


def test_a_log_with_keys_gets_its_rows_in_its_lanes(logs: Logs, log, bookkeeper: BookKeeper) -> None:
    logs.write(logs.spark.range(100, 101), f"{log}-1", partitionKey="id", lanes=4)
    write(logs, frame_of(logs, log, 300), createLogs=True)
    assert sorted(ids(logs, f"{log}-1")) == sorted([100, *range(1, 300, 3)])
    snapshot = bookkeeper.logs.reader.snapshot(f"{log}-1")
    assert {ledger.lane for ledger in snapshot.ledgers} == {0, 1, 2, 3}
    some = logs.read(f"{log}-1", where="id = 151").collect()
    assert [row.id for row in some] == [151]


def test_a_repeated_batch_of_an_application_changes_no_log(logs: Logs, log) -> None:
    for version, twice in ((1, 1), (1, 1), (2, 2)):
        write(logs, frame_of(logs, log), createLogs=True, applicationId=log, applicationVersion=version)
        assert len(ids(logs, f"{log}-2")) == 4 * twice


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ("id; 'LOG-9' AS into", {}, "the log that column 'into' names is 'LOG-9': there is no such log: make it before"),
        ("id; 'a/b' AS into", {"createLogs": True}, "log name is 'a/b': it must not be"),
        ("id; cast(NULL AS string) AS into", {"createLogs": True}, "column 'into' in row 1 of a Spark partition is null"),
        ("id", {}, "option 'logColumn' is 'into': the rows have no such column, they have id"),
        ("id; 3 AS into", {}, "column 'into' (option 'logColumn') is 'int32': it must be a text"),
        ("'x' AS into", {}, "it has no columns, there is nothing to write"),
        ("id; concat('LOG-', id) AS into", {"createLogs": True}, "a batch goes to 100 logs at most"),
        ("id; 'x' AS into", {"path": "LOG"}, "option 'logColumn' is 'into': option 'path' names what to read or write too"),
        ("id; 'x' AS into", {"mode": "overwrite"}, "the mode of a write with option 'logColumn' is overwrite"),
        ("id; 'x' AS into", {"content": "entries"}, "option 'logColumn' is 'into': it does not apply to entries"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(logs: Logs, log, columns, options, sentence) -> None:
    frame = logs.spark.range(0, 101, 1, 1).selectExpr(*columns.replace("LOG", log).split("; "))
    options = {key: value.replace("LOG", log) if isinstance(value, str) else value for key, value in options.items()}
    mode = options.pop("mode", "append")
    check(lambda: write(logs, frame, mode, **options), sentence.replace("LOG", log))


def test_a_log_that_does_not_fit_leaves_all_logs_alone(logs: Logs, log) -> None:
    logs.write(logs.spark.sql("SELECT 'text' AS id"), f"{log}-1")
    check(lambda: write(logs, frame_of(logs, log), createLogs=True), f"log '{log}-1'")
    assert logs.read(f"{log}-1").count() == 1
    check(lambda: logs.read(f"{log}-0"), f"there is no log '{log}-0'")


def start(source: Numbers, log: str) -> StreamingQuery:
    frame = source.stream().selectExpr("id", f"concat('{log}-', id % 3) AS into")
    sink = frame.writeStream.format("bookkeeper").option("metadata", source.uri)
    sink = sink.options(logColumn="into", createLogs=True).option("checkpointLocation", str(source.checkpoint()))
    return sink.trigger(availableNow=True).start()


def test_each_batch_of_a_stream_is_one_transaction_also_if_it_is_repeated(source, logs: Logs, log, bookkeeper) -> None:
    source.give(range(6), range(6, 7), range(7, 12))
    query = start(source, log)
    query.awaitTermination(60)
    for commit in (source.checkpoint() / "commits").glob("*2*"):
        commit.unlink()
    query = start(source, log)
    query.awaitTermination(60)
    assert query.exception() is None
    assert sorted(n for place in range(3) for n in ids(logs, f"{log}-{place}")) == [*range(12)]
    versions = {place: bookkeeper.logs.reader.all_versions(f"{log}-{place}") for place in range(3)}
    batches = [[one.transaction.application[1] for one in found] for found in versions.values()]
    assert all(found == sorted(set(found)) for found in batches)
    assert sorted(map(len, batches)) == [2, 2, 3]  # Spark may take the files in another order
