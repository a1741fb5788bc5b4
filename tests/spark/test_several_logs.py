"""Several logs in one DataFrame, and the columns that tell where a row comes from, as Spark's users read them."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from tests.cluster.datasource.direct import Direct
from tests.spark.conftest import Logs
from tests.spark.test_user_errors import check
from tests.unit.datasource.batches import numbers


def committed_us(bookkeeper: BookKeeper, log: str) -> list[int]:
    return [one.time_ms * 1000 for one in bookkeeper.logs.reader.all_versions(log)]


def test_logs_of_different_columns_become_one_frame_in_the_order_given(logs: Logs, log) -> None:
    logs.write(logs.spark.sql("SELECT cast(id AS int) AS id, 'a' AS only FROM range(3)").coalesce(1), f"{log}-1")
    logs.write(logs.spark.sql("SELECT id + 5000000000 AS id, date'2026-01-01' AS day FROM range(2)").coalesce(1), f"{log}-2")
    frame = logs.read(None, logs=f"{log}-2,{log}-1")
    assert frame.schema.simpleString() == "struct<id:bigint,day:date,only:string>"
    assert [(row.id, row.only) for row in frame.collect()] == [
        (5000000000, None),
        (5000000001, None),
        *((n, "a") for n in range(3)),
    ]
    assert frame.where("day IS NULL").count() == logs.read(None, logsPattern=f"{log}-.", where="day IS NULL").count() == 3
    assert logs.read(None, "only string", logsPattern=f"{log}-.").count() == 5


def test_metadata_columns_name_log_version_and_commit_of_each_row(logs: Logs, log, bookkeeper: BookKeeper) -> None:
    for name, start in ((f"{log}-1", 1), (f"{log}-2", 2), (f"{log}-1", 3)):
        logs.write(logs.spark.range(start, start + 1), name)
    frame = logs.read(None, logsPattern=f"{log}-.", includeMetadata=True)
    added = "_ledger_id:bigint,_entry_id:bigint,_log:string,_version:bigint,_commit_timestamp:timestamp"
    assert frame.schema.simpleString() == f"struct<id:bigint,{added}>"
    first, second = (committed_us(bookkeeper, f"{log}-{place}") for place in (1, 2))
    shown = frame.selectExpr("id", "_log", "_version", "unix_micros(_commit_timestamp)").collect()
    expected = [(1, f"{log}-1", 1, first[0]), (3, f"{log}-1", 2, first[1]), (2, f"{log}-2", 1, second[0])]
    assert [tuple(row) for row in shown] == expected
    assert logs.read(None, "_log string", logsPattern=f"{log}-.", includeMetadata=True).distinct().count() == 2
    assert frame.where(frame["_commit_timestamp"] > datetime.now(UTC)).count() == 0


def test_a_stream_names_log_version_and_commit_of_each_row(logs: Logs, log, bookkeeper: BookKeeper, tmp_path) -> None:
    for start in (1, 2):
        logs.write(logs.spark.range(start, start + 1), log)
    stream = logs.spark.readStream.format("bookkeeper").option("metadata", logs.uri).option("includeMetadata", "true")
    frame = stream.option("startingOffsets", "earliest").load(log)
    query = frame.selectExpr("_log", "_version", "unix_micros(_commit_timestamp) AS at").writeStream.format("memory")
    running = query.queryName("told").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert running.awaitTermination(60)
    rows = [tuple(row) for row in logs.spark.sql("SELECT * FROM told ORDER BY _version").collect()]
    first, second = committed_us(bookkeeper, log)
    assert rows == [(log, 1, first), (log, 2, second)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"logs": "{log}-1,{log}-3"}, "column 'id' is double, in log '{log}-1' it is bigint, and neither type holds every"),
        ({"logs": "{log}-1,{log}-2"}, "log '{log}-1' holds rows, log '{log}-2' holds entries: read them apart"),
        ({"logs": "{log}-1,{log}-4"}, "there is no log '{log}-4'"),
        ({"logsPattern": "{log}-[a-z]"}, "it matches the whole name of none of the"),
        ({"path": "{log}-1,{log}-2"}, "there is no log of this name, commas included: load(['a', 'b']) or option 'logs'"),
        ({"logs": "{log}-1,{log}-2", "versionAsOf": 1}, "it does not apply to several logs: each has versions and offsets"),
    ],
)
def test_what_does_not_go_together_ends_in_one_clear_sentence(logs: Logs, direct: Direct, log, options, sentence) -> None:
    log = log[:40]
    direct.write(f"{log}-1", numbers(0), overwrite=True)
    direct.write(f"{log}-2", pa.record_batch({"payload": ["x"]}), overwrite=True, content="entries")
    direct.write(f"{log}-3", pa.record_batch({"id": [1.0]}), overwrite=True)
    given = {name: value.format(log=log) if isinstance(value, str) else value for name, value in options.items()}
    check(lambda: logs.read(None, **given), sentence.format(log=log))
