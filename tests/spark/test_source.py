"""DataFrames into logs on real bookies, and back."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

import bk_spark
from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.config import ClientConfig
from bk_spark.datasource.jobs.compact_log import compact_log
from bk_spark.datasource.source import BookKeeperDataSource, register
from bk_spark.datasource.spark_schema import nullable
from bk_spark.errors import LedgerClosedError, LedgerFencedError
from tests.checkout import ROOT
from tests.spark.conftest import Logs

TALKING = ClientConfig(explicit_lac_s=3600.0)
"""A writer that tells its readers only by its next entry."""

TYPES = """
    SELECT id,
      id % 2 = 0 AS bool, cast(id AS byte) AS b, cast(-id AS short) AS s, cast(id AS int) AS i,
      cast(element_at(array('NaN', 'Infinity', '-0.0', '-Infinity', '1e-45'), cast(id % 5 + 1 AS int)) AS float) AS f,
      cast(element_at(array('NaN', 'Infinity', '-0.0', '-Infinity', '4.9e-324'), cast(id % 5 + 1 AS int)) AS double) AS d,
      cast('12345678901234567890.123456789012345678' AS decimal(38, 18)) - id AS big, cast(id AS decimal(5, 2)) AS small,
      if(id = 1, '', concat('žluť 😀 ', id)) AS string, cast('abc' AS varchar(5)) AS vc, cast('abc' AS char(5)) AS c,
      if(id = 1, X'', X'00FF') AS bin, date '1582-10-04' + cast(id AS int) AS date, date '9999-12-31' AS last_date,
      timestamp '2024-03-31 02:30:00.123456' + make_dt_interval(cast(id AS int)) AS ts,
      timestamp '0100-01-01 00:00:00' AS old_ts,
      timestamp_ntz '2024-03-31 02:30:00.123456' AS ntz,
      interval '-1 02:03:04.567891' day to second AS dts, cast(id AS interval day) AS day_interval, interval '5' hour AS hours,
      time '23:59:59.999999' AS time, null AS void,
      array(id, null) AS a, cast(array() AS array<string>) AS a0, array(array(), array('x', null, '')) AS aa,
      map('k', id, '', null) AS m, cast(map() AS map<int, date>) AS m0, map(id, map('x', array(id))) AS mm,
      named_struct('x.y', id, 'Ž z', named_struct('n', null, 'l', array(named_struct('q', cast(1 AS decimal(4, 1)))))) AS st,
      parse_json('{"a": [1, null, "x"]}') AS v, array(parse_json('1')) AS av,
      id AS `dot.ted`, id AS `sp ace`, id AS `ünïcode😀`, id AS `quo``te"`
    FROM range(10)
"""


def with_nulls(frame: DataFrame) -> DataFrame:
    """Every value null in every third row."""
    columns = [f"if(id % 3 = 0, null, `{name.replace('`', '``')}`) AS `{name.replace('`', '``')}`" for name in frame.columns]
    return frame.selectExpr(*columns)


def rows(frame: DataFrame) -> list[str]:
    """In order; by repr, so that NaN equals itself and -0.0 is not 0.0."""
    return [repr(row) for row in frame.collect()]


def same(mine: DataType, other: DataType) -> bool:
    return mine.jsonValue() == other.jsonValue()


@pytest.fixture(params=["UTC", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.unset("spark.sql.session.timeZone")


def test_every_type_is_read_back_equal_values_and_schema(logs, log, zone) -> None:
    frame = with_nulls(logs.spark.sql(TYPES)).unionAll(logs.spark.sql(TYPES)).coalesce(1)
    logs.write(frame, log)
    back = logs.read(log)
    assert same(back.schema, nullable(log, frame.schema))
    assert rows(back) == rows(frame)


def test_large_variable_types_of_arrow_are_read_back_equal(logs, log) -> None:
    frame = logs.spark.sql(TYPES).coalesce(1)
    logs.spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        logs.write(frame, log)
    finally:
        logs.spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert rows(logs.read(log)) == rows(frame)


def test_vectors_of_spark_ml_are_read_back_equal(logs, log) -> None:
    from pyspark.ml.linalg import Vectors

    vectors = [(Vectors.dense([1.0, 2.0]),), (Vectors.sparse(3, [1], [5.0]),)]
    frame = logs.spark.createDataFrame(vectors, ["v"]).coalesce(1)
    logs.write(frame, log)
    assert rows(logs.read(log)) == rows(frame)


def test_text_that_is_no_utf8_is_read_back_and_shown(logs, log, capsys) -> None:
    """As ``spark.read.text`` gives it for a file in Latin-1."""
    text = "cast(X'636166E9' AS string)"
    logs.write(logs.spark.sql(f"SELECT {text} AS s, array(named_struct('t', {text})) AS nested, 'plain' AS plain"), log)
    back = logs.read(log).selectExpr("hex(s)", "hex(nested[0].t)", "plain")
    assert [tuple(row) for row in back.collect()] == [("636166E9", "636166E9", "plain")]
    assert main(["log", "read", log, "--metadata", logs.uri]) == 0
    assert json.loads(capsys.readouterr().out)["s"].encode("utf-8", "surrogateescape") == b"caf\xe9"


def test_an_empty_dataframe_keeps_its_schema(logs, log) -> None:
    frame = logs.spark.sql(TYPES).where("id < 0")
    logs.write(frame, log)
    back = logs.read(log)
    assert same(back.schema, nullable(log, frame.schema))
    assert back.collect() == []


def test_a_hundred_partitions_of_one_row_are_read_back(logs, log, bookkeeper: BookKeeper) -> None:
    logs.write(logs.spark.range(0, 100, 1, 100), log)
    back = logs.read(log, minPartitions=2)
    assert len(bookkeeper.logs.reader.snapshot(log).ledgers) == 100
    assert back.rdd.getNumPartitions() == 2
    assert [row.id for row in back.collect()] == list(range(100))


def test_appends_add_and_an_overwrite_replaces_rows_and_schema(logs, log) -> None:
    logs.write(logs.spark.range(3), log)
    logs.write(logs.spark.range(3, 5), log)
    assert sorted(row.id for row in logs.read(log).collect()) == [0, 1, 2, 3, 4]
    logs.write(logs.spark.sql("SELECT 'x' AS name"), log, "overwrite")
    assert rows(logs.read(log)) == ["Row(name='x')"]
    assert logs.read(log, versionAsOf=1).count() == 3
    assert logs.read(log, versionAsOf=2).count() == 5


def test_a_load_stays_on_its_snapshot(logs, log) -> None:
    logs.write(logs.spark.range(3), log)
    loaded = logs.read(log)
    logs.write(logs.spark.range(3), log)
    logs.write(logs.spark.sql("SELECT 'x' AS name"), log, "overwrite")
    assert loaded.count() == 3


def test_a_schema_of_some_columns_reads_only_those_in_its_order(logs, log) -> None:
    logs.write(logs.spark.sql("SELECT 1L AS a, 'x' AS b, array(1) AS c"), log)
    assert rows(logs.read(log, "b string, a bigint")) == ["Row(b='x', a=1)"]


def test_metadata_columns_say_where_a_row_lies(logs, log, bookkeeper: BookKeeper) -> None:
    logs.write(logs.spark.range(2).coalesce(1), log, maxRowsPerEntry=1)
    (ledger,) = bookkeeper.logs.reader.snapshot(log).ledgers
    found = logs.read(log, includeMetadata=True).select("id", "_ledger_id", "_entry_id", "_log").collect()
    assert [tuple(row) for row in found] == [(0, ledger.ledger_id, 0, log), (1, ledger.ledger_id, 1, log)]
    some = logs.read(log, "_entry_id bigint, id bigint", includeMetadata=True)
    assert [tuple(row) for row in some.collect()] == [(0, 0), (1, 1)]


def test_new_columns_are_merged_and_null_in_old_rows(logs, log) -> None:
    logs.write(logs.spark.sql("SELECT 1 AS a"), log)
    logs.write(logs.spark.sql("SELECT 2 AS a, map('k', 'v') AS b"), log, mergeSchema=True)
    logs.write(logs.spark.sql("SELECT map('l', 'w') AS b"), log)
    assert rows(logs.read(log)) == ["Row(a=1, b=None)", "Row(a=2, b={'k': 'v'})", "Row(a=None, b={'l': 'w'})"]


NARROW = """
    SELECT cast(id AS byte) AS b, cast(-id AS short) AS s, cast(id AS int) AS i, cast(id AS int) AS i2, id AS l,
      cast(id / 4 AS float) AS f, cast(id AS decimal(5, 2)) AS d, date '2026-01-01' + cast(id AS int) AS day,
      named_struct('x', cast(id AS int)) AS st, array(named_struct('x', cast(id AS short)), null) AS a,
      map('k', cast(id AS byte)) AS m
    FROM range({0}, {1})
"""
WIDE = """
    SELECT cast(id AS int) AS b, cast(-id AS bigint) AS s, id AS i, cast(id AS double) AS i2, cast(id AS decimal(20, 1)) AS l,
      cast(id / 4 AS double) AS f, cast(id AS decimal(9, 4)) AS d,
      cast(date '2026-01-01' + cast(id AS int) AS timestamp_ntz) AS day, named_struct('x', id, 'new', 'y') AS st,
      array(named_struct('x', id, 'new', array(id)), null) AS a, map('k', id) AS m
    FROM range({0}, {1})
"""
CONDITIONS = [
    "i = 150",
    "b < 3",
    "s >= -2",
    "i2 > 148.5",
    "l = 99.0",
    "f <= 0.25",
    "d = 77.0000",
    "day = '2026-01-31'",
    "st IS NOT NULL",
]


def widened(rows: list[Row]) -> list[Row]:
    """The rows of NARROW as those of WIDE."""
    return [Row(**row.asDict() | {"st": Row(x=row.st.x, new=None), "a": [Row(x=row.a[0].x, new=None), None]}) for row in rows]


@pytest.mark.parametrize("narrow_first", [True, False])
def test_types_are_widened_and_structs_gain_fields_whichever_came_first(logs, direct, log, narrow_first) -> None:
    """Also by ``where``, whose statistics are those of the narrower types, and after a compaction."""
    narrow, wide = logs.spark.sql(NARROW.format(0, 100)), logs.spark.sql(WIDE.format(100, 200))
    first, second = (narrow, wide) if narrow_first else (wide, narrow)
    logs.write(first.coalesce(1), log)
    with pytest.raises(Exception, match=r"column 'b' is (int|tinyint) in the log and (int|tinyint) in the data.*'mergeSchema'"):
        logs.write(second, log)
    logs.write(second.coalesce(1), log, mergeSchema=True)
    everything = sorted(widened(logs.spark.sql(WIDE.format(0, 100)).collect()) + wide.collect())
    back = logs.read(log)
    assert same(back.schema, nullable(log, wide.schema))
    assert sorted(back.collect()) == everything
    answers = back.select("i", *(F.expr(condition).alias(condition) for condition in CONDITIONS)).collect()
    all_rows = direct.read(log)
    for condition in CONDITIONS:
        true_for = {row.i for row in answers if row[condition]}
        assert direct.read(log, where=condition) == [row for row in all_rows if row["i"] in true_for] != [], condition
    compact_log(logs.spark, logs.uri, log)
    assert sorted(logs.read(log).collect()) == everything
    assert logs.read(log, versionAsOf=1).schema == nullable(log, first.schema)
    assert sorted(logs.read(log, versionAsOf=1).collect()) == sorted(first.collect())
    logs.write(narrow, log, "overwrite")
    assert same(logs.read(log).schema, nullable(log, narrow.schema))


def test_rows_above_the_maximum_entry_are_read_back_and_compacted(logs, log) -> None:
    """Their bytes do not shrink, so they lie in parts, between which partitions are cut."""
    data = [random.Random(place).randbytes(size) for place, size in enumerate([5, 18 << 20, 6])]
    for at in (0, 1):
        logs.write(logs.spark.createDataFrame([(at + n, bytearray(one)) for n, one in enumerate(data[at:])]).coalesce(1), log)
    expected = [(at + n, hashlib.sha256(one).hexdigest()) for at in (0, 1) for n, one in enumerate(data[at:])]

    def found(**options: Any) -> list[tuple[Any, ...]]:
        frame = logs.read(log, maxBytesPerPartition="4m", **options).selectExpr("_1", "sha2(_2, 256) AS digest")
        return [tuple(row) for row in frame.collect()]

    assert found() == expected
    assert found(where="_1 = 1") == [row for row in expected if row[0] == 1]
    assert compact_log(logs.spark, logs.uri, log, target_bytes=1 << 30).added.ledgers == 1
    assert found() == expected


def test_types_that_no_type_of_the_two_holds_are_refused_in_one_sentence(logs, log) -> None:
    logs.write(logs.spark.sql("SELECT named_struct('x', 1L) AS st"), log)
    with pytest.raises(Exception, match=r"column 'st\.x' is bigint in the log and double in the data: cast it"):
        logs.write(logs.spark.sql("SELECT named_struct('x', 1.5D) AS st"), log, mergeSchema=True)


@pytest.mark.parametrize("options", [{}, {"compression": "none"}, {"compression": "lz4", "maxBytesPerEntry": "2k"}])
def test_partitions_give_log_order_whatever_their_size(logs, log, options) -> None:
    frame = logs.spark.range(0, 20_000, 1, 3).selectExpr("id", "cast(id AS string) AS text")
    logs.write(frame, log, **options)
    expected = rows(frame)
    assert rows(logs.read(log)) == expected
    split = logs.read(log, maxBytesPerPartition="16k", minPartitions=5)
    assert split.rdd.getNumPartitions() >= 3
    assert rows(split) == expected


@pytest.mark.parametrize("kind", ["binary", "string"])
def test_entries_are_written_one_a_row_and_read_back(logs, log, kind) -> None:
    frame = logs.spark.range(0, 3000, 1, 2).selectExpr(f"cast(if(id = 7, '', concat('entry ', id)) AS {kind}) AS payload")
    logs.write(frame, log, content="entries")
    back = logs.read(log, content="entries")
    assert back.schema.simpleString() == "struct<ledger_id:bigint,entry_id:bigint,payload:binary>"
    found = back.collect()
    assert [bytes(row.payload).decode() for row in found] == ["" if i == 7 else f"entry {i}" for i in range(3000)]
    assert [row.entry_id for row in found] == [*range(1500), *range(1500)]


def test_ledgers_are_read_as_entries_by_their_ids(logs) -> None:
    with BookKeeper(logs.uri, TALKING) as client, client.create_ledger() as closed, client.create_ledger() as still_open:
        closed.append_batch([b"a", b"b"])
        closed.close()
        still_open.append_batch([b"c"])
        still_open.append(b"d")
        ids = f"{closed.ledger_id},{still_open.ledger_id}"
        assert [bytes(row.payload) for row in logs.read(None, ledger=ids).collect()] == [b"a", b"b", b"c"]


def test_open_ledgers_are_left_alone_unless_recover_is_asked_for(logs, bookkeeper: BookKeeper) -> None:
    """With it they are fenced and closed first, and read to their last entry."""
    writers = [bookkeeper.create_ledger(password=b"secret") for _ in range(2)]
    for writer in writers:
        writer.append_batch([b"a", b"b"])
    ids = ",".join(str(writer.ledger_id) for writer in writers)
    logs.read(None, ledger=ids, password="secret").collect()
    assert [writer.append(b"c") for writer in writers] == [2, 2]
    rows = logs.read(None, ledger=ids, password="secret", recover="true").collect()
    assert [(row.ledger_id, row.entry_id) for row in rows] == [(w.ledger_id, i) for w in writers for i in range(3)]
    for writer in writers:
        assert bookkeeper.ledger_metadata(writer.ledger_id).is_closed
        with pytest.raises((LedgerFencedError, LedgerClosedError)):
            writer.append(b"d")


def test_a_password_protects_a_log_and_is_never_shown(logs, log, capfd) -> None:
    logs.write(logs.spark.range(3), log, password="s3cret", digestType="HMAC")
    back = logs.read(log, password="s3cret")
    assert back.count() == 3
    back.explain(True)
    assert "s3cret" not in capfd.readouterr().out
    assert "s3cret" not in back._jdf.queryExecution().toString()


def test_a_repeated_write_of_an_application_version_is_dropped(logs, log, bookkeeper: BookKeeper) -> None:
    for _ in range(2):
        logs.write(logs.spark.range(3), log, applicationId="nightly", applicationVersion=7)
    assert logs.read(log).count() == 3
    assert len(bookkeeper.logs.reader.all_versions(log)) == 1


def test_the_manual_names_every_option(spark) -> None:
    from bk_spark.datasource.option_table import OPTIONS

    manual = BookKeeperDataSource.__doc__ or ""
    for option in OPTIONS:
        assert f"{option.name} " in manual, option.name
        assert option.meaning in manual, option.name


def test_the_example_of_the_manual_runs(spark, cluster, log, capsys, monkeypatch) -> None:
    """On the cluster that there is."""
    monkeypatch.setattr(bk_spark, "LocalCluster", lambda bookies: nullcontext(cluster))
    manual = BookKeeperDataSource.__doc__ or ""
    example = manual.split("``with`` block::")[1].split("Ref:")[0].replace('"orders"', f'"{log}"')
    exec(textwrap.dedent(example), {})
    assert "|  2|3.0|[2, 3]|" in capsys.readouterr().out.replace(" ", "").replace("|2|3.0|[2,3]|", "|  2|3.0|[2, 3]|")


def test_sparks_look_up_of_formats_imports_none_of_the_heavy_libraries() -> None:
    heavy = "{'grpc', 'kazoo', 'pyarrow', 'pandas', 'bk_spark.client'} & set(sys.modules)"
    command = [sys.executable, "-c", f"import sys, pyspark_bookkeeper; sys.exit(str({heavy}) if {heavy} else 0)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_format_can_be_registered_by_hand(logs, log) -> None:
    register(logs.spark)
    logs.write(logs.spark.range(3), log)
    assert logs.read(log).count() == 3


def test_the_command_line_reads_rows_as_json_lines(logs, log, capsys) -> None:
    logs.write(logs.spark.sql("SELECT 1 AS id, array('a', null) AS tags, X'00FF' AS bin"), log)
    assert main(["log", "read", log, "--metadata", logs.uri]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": 1, "tags": ["a", None], "bin": "AP8="}
    assert main(["log", "show", log, "--metadata", logs.uri]) == 0
    assert "tags: array" in capsys.readouterr().out


def test_another_thread_writes_once_it_has_registered_the_format(logs: Logs, log: str) -> None:
    """Spark 4.3 finds no Python format for a write there before; a read needs nothing."""

    def refused() -> str:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND") as refused:
            logs.write(logs.spark.range(3), log)
        return str(refused.value)

    def written() -> int:
        register(logs.spark)
        logs.write(logs.spark.range(3), log)
        return logs.read(log).count()

    for work in (refused, written):  # a thread for each, because a thread keeps its session
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(work).result()
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: logs.read(log).count()).result() == 3
