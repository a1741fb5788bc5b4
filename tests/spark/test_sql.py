"""SQL and the catalog: what works, and what Spark loses or refuses, with the nearest way.

Tests named ``…_today`` pin a limit of Spark 4.3: when one fails, a later Spark has mended it, and the docs may say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from tests.cluster.datasource.direct import Direct
from tests.spark.conftest import Logs


@pytest.fixture
def view(logs: Logs, direct: Direct, log: str) -> Iterator[str]:
    """A temporary view of a log with the rows (1, 'a') and (2, 'b')."""
    direct.write(log, pa.record_batch({"id": [1, 2], "name": ["a", "b"]}))
    logs.spark.sql(f"CREATE TEMPORARY VIEW v USING bookkeeper OPTIONS (metadata '{logs.uri}', path '{log}')")
    yield "v"
    logs.spark.catalog.dropTempView("v")


@pytest.fixture
def table(logs: Logs, direct: Direct, log: str) -> Iterator[str]:
    """A catalog table over such a log."""
    direct.write(log, pa.record_batch({"id": [1, 2], "name": ["a", "b"]}))
    logs.spark.sql(f"CREATE TABLE t (id BIGINT, name STRING) USING bookkeeper OPTIONS (metadata '{logs.uri}', path '{log}')")
    yield "t"
    logs.spark.sql("DROP TABLE t")


def ids(logs: Logs, query: str) -> list[int]:
    return [row.id for row in logs.spark.sql(query).collect()]


def refused(action: Callable[[], object]) -> str:
    """The last line of what the user sees, but for Spark's own SQLSTATE."""
    with pytest.raises(Exception) as problem:  # noqa: PT011
        action()
    return [line for line in str(problem.value).splitlines() if line.strip() and "SQLSTATE" not in line.split(":")[0]][-1]


def test_a_view_is_selected_from_joined_and_aggregated(logs, view) -> None:
    assert ids(logs, "SELECT id FROM v WHERE name = 'b'") == [2]
    assert logs.spark.sql("SELECT count(*), max(a.id) FROM v a JOIN v b ON a.id = b.id").first()[:] == (2, 2)


def test_a_view_is_inserted_into_and_stays_on_its_first_snapshot(logs, log, view) -> None:
    assert ids(logs, "SELECT id FROM v") == [1, 2]
    logs.spark.sql("INSERT INTO v VALUES (3L, 'c')")
    assert ids(logs, "SELECT id FROM v") == [1, 2]
    logs.spark.sql("REFRESH TABLE v")
    assert ids(logs, "SELECT id FROM v") == [1, 2]
    assert [row.id for row in logs.read(log).collect()] == [1, 2, 3]
    options = f"OPTIONS (metadata '{logs.uri}', path '{log}')"
    logs.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING bookkeeper {options}")
    assert ids(logs, "SELECT id FROM v") == [1, 2, 3]


def test_insert_overwrite_replaces_the_log_and_the_view_still_reads_what_it_saw(logs, log, view) -> None:
    logs.spark.sql("INSERT OVERWRITE v SELECT id + 10, name FROM v")
    assert [row.id for row in logs.read(log).collect()] == [11, 12]
    assert ids(logs, "SELECT id FROM v") == [1, 2]


def test_a_view_takes_every_option_of_a_read(logs, log, view) -> None:
    options = f"metadata '{logs.uri}', path '{log}', where 'id > 1', includeMetadata 'true'"
    logs.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING bookkeeper OPTIONS ({options})")
    assert logs.spark.sql("SELECT id, _entry_id FROM v").first()[:] == (2, 0)


def test_rows_from_a_query_are_inserted_by_position_as_spark_does(logs, log, view) -> None:
    logs.spark.sql("INSERT INTO v SELECT 3L AS anything, 'c' AS other")
    assert sorted(row.id for row in logs.read(log).collect()) == [1, 2, 3]


def test_a_table_loses_its_options_in_a_select_and_in_an_insert_today(logs, table) -> None:
    """The error says so, and which forms of SQL keep them; those are tested below and above."""
    for statement in ("SELECT * FROM t", "INSERT INTO t VALUES (3L, 'c')"):
        said = refused(lambda text=statement: logs.spark.sql(text).collect())
        assert "option 'metadata' is missing" in said
        assert "as for a catalog table (CREATE TABLE), whose options it drops" in said
        assert "FROM t WITH ('metadata' = '…', 'path' = '…')" in said
        assert "CREATE TEMPORARY VIEW v USING bookkeeper OPTIONS (metadata '…', path '…')" in said
    assert "whose options it drops" in refused(lambda: logs.spark.table("t").collect())


def test_a_table_is_used_with_its_options_given_again(logs, log, table) -> None:
    """The nearest ways: in SQL by WITH, in Python by a reader or writer with options."""
    given = f"WITH ('metadata' = '{logs.uri}', 'path' = '{log}')"
    assert ids(logs, f"SELECT id FROM t {given}") == [1, 2]
    logs.spark.sql(f"INSERT INTO t {given} VALUES (3L, 'c')")
    reader = logs.spark.read.option("metadata", logs.uri).option("path", log)
    assert [row.id for row in reader.table("t").collect()] == [1, 2, 3]
    logs.spark.sql("SELECT 4L AS id, 'd' AS name").writeTo("t").option("metadata", logs.uri).option("path", log).append()
    assert [row.id for row in reader.table("t").collect()] == [1, 2, 3, 4]


def test_options_given_to_insert_into_are_lost_today(logs, log, table) -> None:
    frame = logs.spark.sql("SELECT 4L AS id, 'd' AS name")
    writer = frame.write.option("metadata", logs.uri).option("path", log)
    assert "option 'metadata' is missing" in refused(lambda: writer.insertInto("t"))


@pytest.fixture
def strict(logs: Logs) -> Iterator[str]:
    """A catalog table whose columns, and what is inside of them, are NOT NULL."""
    columns = (
        "id INT NOT NULL, s STRUCT<a: INT NOT NULL, b: ARRAY<STRUCT<c: INT NOT NULL>>>, m MAP<STRING, STRUCT<d: INT NOT NULL>>"
    )
    logs.spark.sql(f"CREATE TABLE strict ({columns}) USING bookkeeper")
    yield "strict"
    logs.spark.sql("DROP TABLE strict")


def test_a_table_with_not_null_columns_is_inserted_into_and_selected_from(logs, log, strict) -> None:
    given = f"WITH ('metadata' = '{logs.uri}', 'path' = '{log}')"
    full = "named_struct('a', 2, 'b', array(named_struct('c', 3))), map('k', named_struct('d', 4))"
    logs.spark.sql(f"INSERT INTO strict {given} VALUES (1, {full})")
    logs.spark.sql(f"INSERT INTO strict {given} SELECT 2, null, null")
    with pytest.raises(PySparkException, match="NOT_NULL_ASSERT_VIOLATION"):
        logs.spark.sql(f"INSERT INTO strict {given} VALUES (CAST(NULL AS INT), {full})")
    found = logs.spark.sql(f"SELECT id, s.a, s.b[0].c AS c, m['k'].d AS d FROM strict {given} ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(1, 2, 3, 4), (2, None, None, None)]
    logs.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v AS SELECT * FROM strict {given}")
    assert logs.spark.sql("SELECT id FROM v WHERE id IS NULL").collect() == []
    logs.spark.catalog.dropTempView("v")


def test_a_null_in_a_column_declared_not_null_ends_the_read_by_its_name(logs, log) -> None:
    """In a view, in ``.schema()`` and in a stream; ``where`` leaves such rows out."""
    logs.write(logs.spark.sql("SELECT * FROM VALUES (1, 'a'), (NULL, 'b') AS t(id, name)").coalesce(1), log)
    said = f"log '{log}': 'id' is declared NOT NULL, and a row of ledger"
    options = f"metadata '{logs.uri}', path '{log}'"
    logs.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v (id INT NOT NULL, name STRING) USING bookkeeper OPTIONS ({options})")
    assert said in refused(lambda: logs.spark.sql("SELECT name, id FROM v").collect())
    asked = "id INT NOT NULL"
    assert said in refused(lambda: logs.read(log, asked).collect())
    assert logs.read(log, asked, where="id IS NOT NULL").collect() == [(1,)]
    stream = logs.spark.readStream.format("bookkeeper").options(metadata=logs.uri, startingOffsets="earliest").schema(asked)
    query = stream.load(log).writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match="declared NOT NULL"):
        query.awaitTermination()
    logs.spark.catalog.dropTempView("v")


def test_a_direct_query_of_the_format_is_refused_today(logs, log) -> None:
    assert "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY" in refused(lambda: logs.spark.sql(f"SELECT * FROM bookkeeper.`{log}`"))


def test_partition_by_is_refused_today(logs, log) -> None:
    frame = logs.spark.sql("SELECT 1L AS id, 'a' AS name")
    writer = frame.write.format("bookkeeper").option("metadata", logs.uri).partitionBy("name").mode("append")
    with pytest.raises(PySparkException, match="partitioning or clustering columns do not match"):
        writer.save(log)


@pytest.mark.parametrize("mode", ["error", "errorifexists", "ignore", None])
def test_save_modes_other_than_append_and_overwrite_are_refused_today(logs, log, mode) -> None:
    writer = logs.spark.range(1).write.format("bookkeeper").option("metadata", logs.uri)
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        (writer if mode is None else writer.mode(mode)).save(log)


def test_several_logs_are_read_by_a_list_of_load_and_in_sql(logs, log) -> None:
    for place in (1, 2):
        logs.write(logs.spark.range(place, place + 1), f"{log}-{place}")
    both = [f"{log}-2", f"{log}-1"]
    assert [row.id for row in logs.read(both).collect()] == [2, 1]
    assert [row.id for row in logs.read(both[:1]).collect()] == [2]
    options = f"metadata '{logs.uri}', logs '{both[0]},{both[1]}', includeMetadata 'true'"
    logs.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING bookkeeper OPTIONS ({options})")
    assert [tuple(row) for row in logs.spark.sql("SELECT _log, id FROM v").collect()] == [(both[0], 2), (both[1], 1)]


def test_filters_of_spark_are_not_pushed_down_and_where_the_option_is(logs, log) -> None:
    """Spark 4.3 shares one plan between scans of a load, so pushed filters would give wrong rows."""
    logs.write(logs.spark.range(5), log)
    loaded = logs.read(log)
    both = loaded.where("id = 1").union(loaded.where("id = 2"))
    assert [row.id for row in both.collect()] == [1, 2]
    assert [row.id for row in logs.read(log, where="id = 3").collect()] == [3]


CONDITIONS = [
    "f = 'NaN'",
    "f > 1",
    "f <= 0",
    "f != 0",
    "f IN (0, 'NaN')",
    "n >= 2.5",
    "n BETWEEN -1 AND 3",
    "d = 1.10 AND n IS NOT NULL",
    "d < 1.105",
    "s > 'b'",
    "s IN ('', 'ž')",
    "day >= '2026-01-02'",
    "at < '2026-01-01T00:00:02Z'",
    "b != true",
    "s IS NULL",
]


def test_the_option_where_gives_the_rows_that_spark_would(logs, direct, log) -> None:
    rows = """
        (0, 'NaN', 1, 1.10, 'a', date'2026-01-01', 0, true), (1, '-0.0', 2, 1.11, 'b', date'2026-01-02', 1, false),
        (2, 'Infinity', 3, 1.00, '', date'2026-01-03', 2, null), (3, '1.5', -1, null, 'ž', null, 3, true),
        (4, null, null, 1.10, null, date'2026-01-02', null, false), (5, '-Infinity', 2, 9.99, 'Z', date'1969-12-31', -1, true)
    """
    columns = "id, cast(f AS double) f, n, cast(d AS decimal(5, 2)) d, s, day, timestamp_seconds(1767225600 + at) at, b"
    frame = logs.spark.sql(f"SELECT {columns} FROM VALUES {rows} AS t(id, f, n, d, s, day, at, b)")
    logs.write(frame.coalesce(1), log)
    answers = logs.read(log).select("id", *(F.expr(condition).alias(condition) for condition in CONDITIONS)).collect()
    for condition in CONDITIONS:
        assert direct.column(log, where=condition) == [row.id for row in answers if row[condition]], condition
