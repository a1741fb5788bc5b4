"""What Spark writes is read without Spark, and the other way round: types, extreme values, and a leader that Spark follows."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

from bk_spark.bookkeeper import BookKeeper
from tests.spark.conftest import Logs

UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 3, 29, 1, 30, 0, 123456, UTC)

VALUES = {
    "boolean": [True, False],
    "tinyint": [-(2**7), 2**7 - 1],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "float": [1.5, -math.inf, math.inf],
    "double": [1e308, 5e-324, -0.0],
    "decimal(38,18)": [Decimal("99999999999999999999.999999999999999999"), Decimal("-0.000000000000000001")],
    "string": ["", "äöü 🦆", "a" * 100_000],
    "binary": [b"", bytes(range(256))],
    "date": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "timestamp": [MOMENT, datetime.datetime(1, 1, 2, tzinfo=UTC), datetime.datetime(9999, 12, 30, tzinfo=UTC)],
    "timestamp_ntz": [MOMENT.replace(tzinfo=None), datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)],
    "interval day to second": [datetime.timedelta(days=10_000, microseconds=1), datetime.timedelta(microseconds=-1)],
    "array<int>": [[], [1, None]],
    "map<string,bigint>": [{}, {"a": None, "b": 2**62}],
    "struct<a:int,b:struct<c:string>>": [{"a": 1, "b": {"c": "x"}}, {"a": None, "b": None}],
    "array<map<string,struct<d:decimal(5,2)>>>": [[{"k": {"d": Decimal("1.25")}}, None]],
}
"""Extreme values of every type that Python can hold; a null is added to each."""


def arrow_values(column: pa.ChunkedArray) -> list:
    """As Python values; maps as dicts at any depth."""
    return [_plain(column.type, value) for value in column.to_pylist()]


def _plain(kind: pa.DataType, value):
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(kind.item_type, one) for key, one in value}
    if pa.types.is_list(kind):
        return [_plain(kind.value_type, one) for one in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(field.type, value[field.name]) for field in kind}
    return value


def spark_value(value):
    """A value of Spark's Python API as Arrow's shows it."""
    if isinstance(value, spark_types.Row):
        return {name: spark_value(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return {key: spark_value(one) for key, one in value.items()}
    if isinstance(value, list):
        return [spark_value(one) for one in value]
    return bytes(value) if isinstance(value, bytearray) else value


def in_utc(values: list) -> list:
    """Spark gives moments as local times."""
    return [one.astimezone(UTC) if isinstance(one, datetime.datetime) else one for one in values]


def test_every_type_that_spark_writes_is_read_in_arrow_with_its_extreme_values(spark, logs: Logs, bookkeeper: BookKeeper, log):
    schema = ", ".join(f"`{kind}` {kind}" for kind in VALUES)
    most = max(map(len, VALUES.values()))
    rows = [tuple(values[n] if n < len(values) else None for values in VALUES.values()) for n in range(most + 1)]
    logs.write(spark.createDataFrame(rows, schema).coalesce(1), log)
    read = bookkeeper.open_log(log).read_rows().read_all()
    for place, kind in enumerate(VALUES):
        assert arrow_values(read.column(kind)) == [row[place] for row in rows], kind


def test_every_type_that_arrow_writes_is_read_by_spark_with_its_extreme_values(spark, logs: Logs, bookkeeper: BookKeeper, log):
    schema = ", ".join(f"`{kind}` {kind}" for kind in VALUES)
    most = max(map(len, VALUES.values()))
    rows = [tuple(values[n] if n < len(values) else None for values in VALUES.values()) for n in range(most + 1)]
    logs.write(spark.createDataFrame(rows, schema).coalesce(1), log)
    arrow = bookkeeper.open_log(log).read_rows().read_all()
    bookkeeper.open_log(f"{log}-2", create=True).append_rows(arrow)
    again = logs.read(f"{log}-2")
    assert again.schema == logs.read(log).schema
    found = again.collect()
    for place, kind in enumerate(VALUES):
        values = [spark_value(row[place]) for row in found]
        wanted = [row[place] for row in rows]
        assert (in_utc(values) if kind == "timestamp" else values) == wanted, kind


def test_times_nans_voids_and_variants_go_both_ways(spark, logs: Logs, bookkeeper: BookKeeper, log):
    made = spark.sql("SELECT TIME '23:59:59.999999' AS t, double('NaN') AS n, NULL AS v, parse_json('{\"a\": [1, null]}') AS j")
    logs.write(made, log)
    arrow = bookkeeper.open_log(log).read_rows().read_all()
    assert arrow.column("t").to_pylist() == [datetime.time(23, 59, 59, 999999)]
    assert math.isnan(arrow.column("n")[0].as_py())
    assert arrow.column("v").to_pylist() == [None]
    bookkeeper.open_log(f"{log}-2", create=True).append_rows(arrow)
    again = logs.read(f"{log}-2")
    assert again.schema == logs.read(log).schema
    assert again.selectExpr("string(t)", "isnan(n)", "v", "to_json(j)").collect()[0] == (
        "23:59:59.999999",
        True,
        None,
        '{"a":[1,null]}',
    )


def test_arrow_and_spark_append_to_one_log_and_each_reads_all(spark, logs: Logs, bookkeeper: BookKeeper, log):
    logs.write(spark.range(10), log)
    opened = bookkeeper.open_log(log)
    opened.append_rows(pa.table({"id": range(10, 20)}))
    logs.write(spark.range(20, 30), log)
    assert sorted(row.id for row in logs.read(log).collect()) == list(range(30))
    assert sorted(opened.read_rows().read_all().column("id").to_pylist()) == list(range(30))


def test_spark_reads_the_rows_of_a_leader_while_it_leads(logs: Logs, leading: BookKeeper, log):
    opened = leading.open_log(log, create=True)
    with opened.open_row_writer(pa.schema([("id", pa.int64())])) as writer:
        for first in range(0, 100, 10):
            writer.append(pa.table({"id": range(first, first + 10)}))
        writer.append({"id": 100})  # the entry behind the last one that matters says that it is confirmed
        assert [row.id for row in logs.read(log).where("id < 100").collect()] == list(range(100))
        assert logs.read(log, where="id IN (5, 95)").count() == 2


@pytest.mark.parametrize("most", [None, 25], ids=["all at once", "few rows a batch"])
def test_a_stream_follows_a_leader_of_rows_and_has_each_row_once(
    spark, logs: Logs, leading: BookKeeper, log, tmp_path: Path, most
):
    opened = leading.open_log(log, create=True)
    options = {"metadata": logs.uri, "startingOffsets": "earliest"} | ({} if most is None else {"maxRowsPerTrigger": most})

    def run() -> None:
        frame = spark.readStream.format("bookkeeper").options(**options).load(log)
        written = frame.writeStream.format("bookkeeper").options(metadata=logs.uri, path=f"{log}-copy")
        written = written.option("checkpointLocation", str(tmp_path / "checkpoint"))
        written.trigger(availableNow=True).start().awaitTermination()

    with opened.open_row_writer(pa.schema([("id", pa.int64())]), roll_bytes=3000) as writer:
        for first in range(0, 200, 10):
            writer.append(pa.table({"id": range(first, first + 10)}))
        run()
        for first in range(200, 300, 10):
            writer.append(pa.table({"id": range(first, first + 10)}))
    run()
    copied = leading.open_log(f"{log}-copy").read_rows().read_all().column("id").to_pylist()
    assert copied == list(range(300))
    if most is not None:
        assert max(version.added.rows for version in leading.open_log(f"{log}-copy").versions()) <= most
