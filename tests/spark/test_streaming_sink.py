"""Streaming queries into a log: restarts, replays, output modes, foreachBatch. Each row of the source is there once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.write.writer import application_of


@dataclass
class Numbers:
    """A source that holds 0, 1, 2 and so on, one file a batch, and a query that sends it on."""

    spark: SparkSession
    uri: str
    directory: Path

    def give(self, *files: range) -> None:
        """More files for the source."""
        (self.directory / "in").mkdir(exist_ok=True)
        for values in files:
            number = len(list((self.directory / "in").iterdir()))
            text = "".join(f'{{"id": {n}}}\n' for n in values)
            (self.directory / "in" / f"{number:06}.json").write_text(text)

    def stream(self) -> DataFrame:
        files = str(self.directory / "in")
        return self.spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).json(files)

    def checkpoint(self, name: str = "checkpoint") -> Path:
        return self.directory / name

    def start(self, log: str, frame: DataFrame | None = None, mode: str = "append", name: str = "checkpoint", **options: Any):
        frame = self.stream() if frame is None else frame
        sink = frame.writeStream.format("bookkeeper").option("metadata", self.uri).options(**options).outputMode(mode)
        return sink.option("checkpointLocation", str(self.checkpoint(name))).trigger(availableNow=True).start(log)

    def run(self, log: str, *given: Any, **options: Any) -> StreamingQuery:
        """A query that goes on from the checkpoint and takes all files that are there."""
        query = self.start(log, *given, **options)
        query.awaitTermination(60)
        assert not query.isActive
        return query

    def for_each(self, send: Callable[[DataFrame, int], None]) -> None:
        sink = self.stream().writeStream.foreachBatch(send).option("checkpointLocation", str(self.checkpoint()))
        sink.trigger(availableNow=True).start().awaitTermination(60)


@pytest.fixture
def source(spark: SparkSession, cluster, tmp_path) -> Iterator[Numbers]:
    yield Numbers(spark, cluster.metadata_uri, tmp_path)
    for query in spark.streams.active:
        query.stop()


def held(logs, log: str) -> list[Any]:
    return [row[0] for row in logs.read(log).collect()]


def test_spark_names_query_and_batch_as_the_sink_reads_them(source, logs, bookkeeper: BookKeeper, log) -> None:
    """Where a version of Spark renames its local properties, this fails: the identity of all streams hangs on them.

    Log rule 5. ``StreamingQuery.id`` is that of the checkpoint.
    """
    source.give(range(3), range(3, 5))
    query = source.run(log)
    kept = json.loads((source.checkpoint() / "metadata").read_text())["id"]
    assert query.id == kept
    assert [version.application for version in bookkeeper.logs.reader.all_versions(log)] == [
        (application_of(kept), n) for n in (0, 1)
    ]


def test_a_query_goes_on_from_its_checkpoint_and_a_new_checkpoint_is_a_new_query(source, logs, bookkeeper, log) -> None:
    source.give(range(3), range(3, 5))
    source.run(log)
    source.give(range(5, 7))
    source.run(log)
    assert held(logs, log) == [*range(7)]
    source.run(log, name="another")
    assert sorted(held(logs, log)) == sorted([*range(7), *range(7)])
    assert len({version.application[0] for version in bookkeeper.logs.reader.all_versions(log)}) == 2


def test_a_batch_that_spark_did_not_see_committed_is_written_anew_and_dropped(source, logs, bookkeeper, log) -> None:
    """Log rule 5: the driver died after the sink's commit and before Spark's, which the checkpoint lacks then."""
    source.give(range(3), range(3, 5))
    source.run(log)
    before = set(bookkeeper.list_ledgers())
    commits = source.checkpoint() / "commits"
    (commits / "1").unlink()
    (commits / ".1.crc").unlink()
    source.give(range(5, 7))
    source.run(log)
    assert (commits / "2").exists()
    assert held(logs, log) == [*range(7)]
    assert [version.application[1] for version in bookkeeper.logs.reader.all_versions(log)] == [0, 1, 2]
    assert len(set(bookkeeper.list_ledgers()) - before) == 1


def test_two_queries_at_once_into_one_log_and_each_row_is_there_once(source, logs, bookkeeper, log) -> None:
    source.give(*(range(n, n + 5) for n in range(0, 20, 5)))
    frames = [source.stream(), source.stream().selectExpr("id + 100 AS id")]
    queries = [source.start(log, frame, name=f"checkpoint-{n}") for n, frame in enumerate(frames)]
    for query in queries:
        query.awaitTermination(60)
    assert sorted(held(logs, log)) == [*range(20), *range(100, 120)]
    applications = sorted(version.application for version in bookkeeper.logs.reader.all_versions(log))
    assert applications == sorted((application_of(query.id), n) for query in queries for n in range(4))


def test_complete_mode_replaces_the_content_with_each_batch(source, logs, bookkeeper, log) -> None:
    source.give(range(3), range(5))
    counts = source.stream().groupBy("id").count()
    source.run(log, counts, "complete")
    assert {row.id: row["count"] for row in logs.read(log).collect()} == {0: 2, 1: 2, 2: 2, 3: 1, 4: 1}
    assert [(v.kind.name, v.added.rows) for v in bookkeeper.logs.reader.all_versions(log)] == [
        ("OVERWRITE", 3),
        ("OVERWRITE", 5),
    ]


def test_update_mode_is_refused_by_spark(source, log) -> None:
    source.give(range(3))
    with pytest.raises(Exception, match="does not support Update mode"):
        source.run(log, source.stream().groupBy("id").count(), "update")


def test_both_writes_of_a_foreach_batch_land_and_with_an_application_s_version_each_once(source, logs, log) -> None:
    """Log rule 5."""
    source.give(range(3))

    def twice(batch: DataFrame, batch_id: int) -> None:
        logs.write(batch, log)
        logs.write(batch.selectExpr("id + 10 AS id"), log)
        for _ in range(2):
            logs.write(batch.selectExpr("id + 20 AS id"), log, applicationId="mine", applicationVersion=batch_id)

    source.for_each(twice)
    assert held(logs, log) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_columns_that_a_query_gained_are_refused_or_merged(source, logs, log) -> None:
    source.give(range(2))
    source.run(log)
    source.give(range(2, 4))
    wider = source.stream().selectExpr("id", "'x' AS name")
    with pytest.raises(StreamingQueryException) as refused:
        source.run(log, wider)
    assert "the log has no column 'name'" in last_line(str(refused.value))
    source.run(log, wider, mergeSchema=True)
    assert [tuple(row) for row in logs.read(log).collect()] == [(0, None), (1, None), (2, "x"), (3, "x")]


def test_a_query_whose_column_became_wider_widens_the_log_s(source, logs, log) -> None:
    source.give(range(2))
    source.run(log, source.stream().selectExpr("cast(id AS int) AS id"))
    source.give(range(2**40, 2**40 + 1))
    source.run(log, mergeSchema=True)
    assert logs.read(log).schema.simpleString() == "struct<id:bigint>"
    assert held(logs, log) == [0, 1, 2**40]


def last_line(problem: str) -> str:
    """Of the Python exception, which Spark follows by its SQLSTATE and the query's state."""
    text = problem.split("SQLSTATE")[0].split("=== Streaming Query ===")[0]
    return [line for line in text.splitlines() if line.strip()][-1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"applicationId": "mine", "applicationVersion": 1}, "option 'applicationId' is 'mine': it does not apply to a stream"),
        ({"ensembleSize": 7}, "needs 7 bookies and 3 can be used"),
        ({"metadata": "zk://127.0.0.1:1/ledgers", "client.connect_timeout_s": 1}, "does not answer"),
    ],
)
def test_a_query_that_cannot_write_ends_in_one_clear_sentence(source, log, options, sentence) -> None:
    source.give(range(2))
    with pytest.raises(Exception) as refused:  # noqa: PT011
        source.run(log, **options)
    assert sentence in last_line(str(refused.value)), str(refused.value)
