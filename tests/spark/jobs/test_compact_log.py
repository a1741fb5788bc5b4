"""``log compact`` as a job of Spark: the same rows in fewer ledgers, swapped in at once. What it takes, commits and refuses is
in tests/cluster/datasource/test_compact_log.py. Ref: docs/rules.md, log rules 4 and 6."""

from __future__ import annotations

import os
import time
from decimal import Decimal

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.jobs.compact_log import compact_log
from bk_spark.errors import JobFailedError
from bk_spark.log.stored.values import Retention
from bk_spark.rows import conversion
from bk_spark.wire.messages import AdminOperation
from tests.cluster.small_commits import one_row_commits

COMMITS = int(os.environ.get("BK_SPARK_COMPACTION_COMMITS", "120"))
"""More than a vacuum deletes at once. 10,000 for the long form; a hundred take about a second."""


def rows_of(frame):
    return [tuple(row) for row in frame.collect()]


def expected(first, count):
    return [(number, f"row {number}") for number in range(first, first + count)]


def test_many_one_row_commits_become_few_ledgers_with_the_same_rows(spark, logs, bookkeeper, log):
    """Log rules 4 and 8. The old version stays readable until its retention ends; then a vacuum gives the space back."""
    one_row_commits(bookkeeper, log, 0, COMMITS)
    old = bookkeeper.logs.reader.snapshot(log).ledgers
    before = logs.read(log, versionAsOf=COMMITS)
    report = compact_log(spark, logs.uri, log)
    assert (report.commits, report.version) == (1, COMMITS + 1)
    assert (report.removed.ledgers, report.removed.rows, report.added.rows) == (COMMITS, COMMITS, COMMITS)
    snapshot = bookkeeper.logs.reader.snapshot(log)
    assert len(snapshot.ledgers) <= 10
    assert sum(one.last_entry_id + 1 for one in snapshot.ledgers) <= 10
    assert rows_of(logs.read(log)) == expected(0, COMMITS)
    assert rows_of(before) == expected(0, COMMITS)
    assert vacuum(bookkeeper, log).deleted_ledgers == 0
    uid = bookkeeper.logs.names.uid(log)
    bookkeeper.logs.set_retention(log, uid, Retention(version_retention_s=0))
    assert vacuum(bookkeeper, log).deleted_ledgers == COMMITS
    assert bookkeeper.existing_ledgers([one.ledger_id for one in old]) == []
    assert collected(bookkeeper) >= 3 * COMMITS  # each ledger was on three bookies
    assert rows_of(logs.read(log)) == expected(0, COMMITS)
    with pytest.raises(Exception, match=f"the oldest version of log '{log}' that can be read is {COMMITS + 1}"):
        logs.read(log, versionAsOf=COMMITS)


def vacuum(bookkeeper: BookKeeper, log: str):
    return bookkeeper.vacuum_log(log)


def collected(bookkeeper: BookKeeper) -> int:
    """How many ledgers the bookies have forgotten, after two rounds: a ledger must be missing in both."""
    for _ in range(2):
        for bookie in bookkeeper.list_bookies():
            runs = figures(bookkeeper, bookie.bookie_id, AdminOperation.GC_STATUS)["runs"]
            deadline = time.monotonic() + 60
            figures(bookkeeper, bookie.bookie_id, AdminOperation.GC_RUN)
            while figures(bookkeeper, bookie.bookie_id, AdminOperation.GC_STATUS)["runs"] == runs:
                assert time.monotonic() < deadline
    ids = [bookie.bookie_id for bookie in bookkeeper.list_bookies()]
    return sum(figures(bookkeeper, one, AdminOperation.GC_STATUS)["ledgers_deleted"] for one in ids)


def figures(bookkeeper: BookKeeper, bookie_id: str, operation: AdminOperation) -> dict[str, int]:
    return dict(bookkeeper.administer_bookie(bookie_id, operation).figures)


def test_rows_of_older_schemas_come_back_in_the_log_s_schema(spark, logs, log):
    logs.write(spark.sql("SELECT 1 AS id"), log)
    logs.write(spark.sql("SELECT 2 AS id, 'x' AS text"), log, mergeSchema=True)
    compact_log(spark, logs.uri, log)
    assert rows_of(logs.read(log)) == [(1, None), (2, "x")]


def test_rows_with_a_wrong_value_are_copied_as_they_are_and_all_else_is_read(spark, logs, bookkeeper, log, monkeypatch):
    """As a program wrote them that did not look at its values."""
    monkeypatch.setattr(conversion, "is_sound", lambda column: True)
    prices = (pa.array([Decimal(one)]).cast(pa.decimal128(4, 2), safe=False) for one in ("1.50", "123.45"))
    for number, price in enumerate(prices):
        bookkeeper.open_log(log, create=True).append_rows(pa.table({"id": [number], "price": price}))
    assert compact_log(spark, logs.uri, log).added.ledgers == 1
    assert rows_of(logs.read(log, "id bigint")) == [(0,), (1,)]
    assert rows_of(logs.read(log, where="price <= 99.99")) == [(0, Decimal("1.50"))]
    with pytest.raises(Exception, match=r"holds 123.45 in column 'price', which no decimal128\(4, 2\) can be"):
        logs.read(log).collect()


def test_a_failing_task_is_told_in_one_sentence_and_leaves_nothing(spark, logs, bookkeeper, log):
    one_row_commits(bookkeeper, log, 0, 4)
    one_row_commits(bookkeeper, log, 4, 1, password=b"other")
    one_row_commits(bookkeeper, log, 5, 1)
    ledgers = set(bookkeeper.list_ledgers())
    with pytest.raises(JobFailedError, match=f"the compaction of log '{log}' failed.*wrong password for ledger"):
        compact_log(spark, logs.uri, log, target_bytes=1000)  # three groups on two cores: one has done its work
    assert set(bookkeeper.list_ledgers()) == ledgers
    assert len(bookkeeper.logs.reader.snapshot(log).ledgers) == 6


def test_a_query_that_was_stopped_goes_on_with_what_a_compaction_by_key_left(spark, logs, bookkeeper, log, tmp_path):
    """Log rule 6; DESIGN.md, "Compaction by key"."""

    def write(first: int) -> None:
        logs.write(spark.range(first, first + 100).selectExpr("id % 20 AS key", "id AS n"), log, partitionKey="key")

    def read() -> list[int]:
        options = {"metadata": logs.uri, "path": log, "startingOffsets": "earliest", "maxRowsPerTrigger": "30"}
        stream = spark.readStream.format("bookkeeper").options(**options).load()
        sink = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.trigger(availableNow=True).start(str(tmp_path / "rows"))
        assert query.awaitTermination(120)
        return sorted(row.n for row in spark.read.parquet(str(tmp_path / "rows")).collect())

    write(0)
    assert read() == list(range(100))
    write(100)
    write(200)
    report = compact_log(spark, logs.uri, log, by_key=True)
    assert (report.commits, report.removed.rows, report.added.rows) == (1, 300, 20)
    bookkeeper.logs.set_retention(log, bookkeeper.logs.names.uid(log), Retention(version_retention_s=0))
    assert vacuum(bookkeeper, log).deleted_ledgers > 0
    write(300)
    assert read() == [*range(100), *range(280, 400)]
