"""Rows with keys through Spark: every confirmed row once, in order for each key, and lanes read and streamed alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.jobs.compact_log import compact_log
from bk_spark.log.stored.lanes import Lanes
from tests.cluster.datasource.direct import Direct
from tests.spark.conftest import Logs
from tests.spark.test_user_errors import check

KEYS = 20


def visits(logs: Logs, first: int, count: int = 400, tasks: int = 2) -> DataFrame:
    """Rows in their order through Spark's partitions."""
    return logs.spark.range(first, first + count, 1, tasks).selectExpr(f"concat('c', id % {KEYS}) AS customer", "id AS n")


def by_customer(rows: Iterable[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["customer"], []).append(row["n"])
    return found


def in_order(count: int) -> dict[str, list[int]]:
    return {f"c{key}": list(range(key, count, KEYS)) for key in range(KEYS)}


def lanes_of(direct: Direct, log: str, count: int = 8) -> list[dict[str, list[int]]]:
    return [by_customer(direct.read(log, lane=lane)) for lane in range(count)]


def test_each_row_is_there_once_and_in_order_for_its_key_through_commits_tasks_and_a_compaction(
    logs: Logs, log, bookkeeper: BookKeeper, direct: Direct
) -> None:
    logs.write(visits(logs, 0), log, partitionKey="customer")
    for first in (400, 800):
        logs.write(visits(logs, first), log)
    assert by_customer(logs.read(log).collect()) == in_order(1200)
    parts = lanes_of(direct, log)
    assert sum(len(part) for part in parts) == KEYS
    assert {key: numbers for part in parts for key, numbers in part.items()} == in_order(1200)
    before = bookkeeper.logs.reader.snapshot(log)
    assert before.lanes == Lanes(("customer",), ("string",), 8)
    report = compact_log(logs.spark, logs.uri, log)
    after = bookkeeper.logs.reader.snapshot(log)
    assert report.commits == 1
    assert len(after.ledgers) == len(before.ledgers) / 2
    assert [one.lane for one in after.ledgers] == [one.lane for one in before.ledgers[::2]]
    assert by_customer(logs.read(log).collect()) == in_order(1200)
    assert lanes_of(direct, log) == parts
    assert by_customer(logs.read(log, where="customer = 'c3'").collect()) == {"c3": list(range(3, 1200, KEYS))}


def test_a_condition_on_the_key_plans_the_ledgers_of_its_lane_alone(logs: Logs, log, bookkeeper: BookKeeper, direct) -> None:
    logs.write(visits(logs, 0), log, partitionKey="customer", maxRowsPerEntry=10)
    frame = logs.read(log, where="customer = 'c3'", includeMetadata=True)
    rows = frame.collect()
    assert [row.n for row in rows] == list(range(3, 400, KEYS))
    [lane] = {
        one.lane for one in bookkeeper.logs.reader.snapshot(log).ledgers if one.ledger_id in {row._ledger_id for row in rows}
    }
    planned = {
        stretch.ledger_id
        for part in direct.reader(log, where="customer = 'c3'").partitions()
        for stretch in part.value.stretches
    }
    assert planned == {one.ledger_id for one in bookkeeper.logs.reader.snapshot(log).ledgers if one.lane == lane}


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/test_lanes.py"
    "::test_a_stream_of_one_lane_reads_its_rows_alone_and_all_lanes_together_read_each_row_once, "
    "tests/spark/test_streaming_sink.py, "
    "tests/spark/test_lanes.py::test_each_row_is_there_once_and_in_order_for_its_key_through_commits_tasks_and_a_compaction"
)
def test_streams_write_by_key_and_one_query_for_each_lane_reads_each_row_once(
    logs: Logs, log, direct: Direct, tmp_path: Path
) -> None:
    """The checkpoint is kept between runs, as after a restart of the driver."""
    streams = logs.spark.readStream.format("bookkeeper").option("metadata", logs.uri).option("startingOffsets", "earliest")
    for first in (0, 400):
        logs.write(visits(logs, first), f"{log}-source")
        run(streams.load(f"{log}-source"), logs, tmp_path / "sink", path=log, partitionKey="customer", lanes=2)
        for lane in range(2):
            run(lane_of(logs, log, lane), logs, tmp_path / f"copy-{lane}", path=f"{log}-copy-{lane}")
    assert by_customer(logs.read(log).collect()) == in_order(800)
    copies = [by_customer(logs.read(f"{log}-copy-{lane}").collect()) for lane in range(2)]
    assert copies == lanes_of(direct, log, 2)
    assert {key: numbers for copy in copies for key, numbers in copy.items()} == in_order(800)


def lane_of(logs: Logs, log: str, lane: int) -> DataFrame:
    stream = logs.spark.readStream.format("bookkeeper").option("metadata", logs.uri).option("startingOffsets", "earliest")
    return stream.option("lane", lane).option("maxRowsPerTrigger", 150).load(log)


def run(frame: DataFrame, logs: Logs, checkpoint: Path, **options: Any) -> None:
    writing = frame.writeStream.format("bookkeeper").option("metadata", logs.uri).options(**options)
    query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def test_an_overwrite_changes_the_lanes(logs: Logs, log, bookkeeper: BookKeeper) -> None:
    logs.write(visits(logs, 0), log, partitionKey="customer")
    logs.write(visits(logs, 0), log, mode="overwrite", partitionKey="n", lanes=2)
    assert bookkeeper.logs.reader.snapshot(log).lanes == Lanes(("n",), ("integer",), 2)
    assert by_customer(logs.read(log).collect()).keys() == in_order(400).keys()
    assert sum(logs.read(log, lane=lane).count() for lane in range(2)) == logs.read(log).count() == 400
    assert by_customer(logs.read(log, versionAsOf=1).collect()) == in_order(400)


def test_users_read_what_is_wrong_with_a_key_or_a_lane(logs: Logs, log) -> None:
    frame = visits(logs, 0, 10)
    check(
        lambda: logs.write(frame, log, partitionKey="shop"),
        "option 'partitionKey' is 'shop': the rows have no such column, they have customer, n",
    )
    check(
        lambda: logs.write(frame.selectExpr("array(n) AS prices"), log, partitionKey="prices"),
        "key column 'prices' (option 'partitionKey') is 'list<element: int64>': a key is a boolean, a number, a date, "
        "a timestamp, a string or a binary: cast it, or choose another column",
    )
    logs.write(frame, log, partitionKey="customer")
    check(
        lambda: logs.write(frame, log, partitionKey="n"),
        f"option 'partitionKey' is 'n': log '{log}' keeps what its first rows had, and it has 8 lanes by customer: "
        "leave it out, overwrite the log, or write a new one",
    )
    check(lambda: logs.read(log, lane=8).count(), f"option 'lane' is 8: version 1 of log '{log}' has the lanes 0 to 7")
    check(
        lambda: logs.read(log, lane="all"), "option 'lane' is 'all': it must be a number from 0 to 255, or a list such as 0,3"
    )


@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UNICODE_CI"])
def test_text_that_spark_compares_otherwise_than_by_its_bytes_is_no_key(logs: Logs, log, collation: str) -> None:
    frame = logs.spark.sql(f"SELECT 'a' COLLATE {collation} AS name")
    check(
        lambda: logs.write(frame, log, partitionKey="name"),
        "key column 'name' (option 'partitionKey') is 'string with a collation of its own': a key is a boolean",
    )


def test_spark_s_types_are_keys_as_the_condition_compares_them(logs: Logs, log) -> None:
    """Timestamps of a session in another zone, too."""
    logs.spark.conf.set("spark.sql.session.timeZone", "America/Caracas")
    try:
        frame = logs.spark.sql(
            "SELECT id, timestampadd(HOUR, int(id), timestamp'2026-01-01 00:00:00+00:00') AS at, "
            "timestampadd(HOUR, int(id), timestamp_ntz'2026-01-01 00:00:00') AS local, "
            "date_add(date'2026-01-01', int(id)) AS day FROM range(50)"
        )
        for column, where in (
            ("at", "at = '2026-01-01 07:00:00+00:00'"),
            ("local", "local = '2026-01-01 07:00:00'"),
            ("day", "day = '2026-01-08'"),
            ("at,local,day", "at = '2026-01-01T08:00+01:00' AND local = '2026-01-01 07:00:00' AND day = DATE '2026-01-08'"),
        ):
            logs.write(frame, log, mode="overwrite", partitionKey=column, lanes=16)
            assert [row.id for row in logs.read(log, where=where).collect()] == [7]
    finally:
        logs.spark.conf.unset("spark.sql.session.timeZone")
