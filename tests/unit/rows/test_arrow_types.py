"""Types of Spark and of Arrow. What Spark itself makes of each type is the measure: pyspark.sql.pandas.types."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from bk_spark.errors import ConfigError
from bk_spark.log.stored.schema import parse_schema
from bk_spark.rows.arrow_types import arrow_schema, has_collation, spark_schema

SIMPLE = [
    spark.BooleanType(),
    spark.ByteType(),
    spark.ShortType(),
    spark.IntegerType(),
    spark.LongType(),
    spark.FloatType(),
    spark.DoubleType(),
    spark.DecimalType(38, 10),
    spark.DecimalType(1, 0),
    spark.StringType(),
    spark.BinaryType(),
    spark.DateType(),
    spark.TimestampType(),
    spark.TimestampNTZType(),
    spark.TimeType(6),
    spark.DayTimeIntervalType(),
    spark.NullType(),
    spark.VariantType(),
]
NESTED = [
    spark.ArrayType(spark.MapType(spark.StringType(), spark.DecimalType(5, 2))),
    spark.StructType([spark.StructField("a", spark.StructType([spark.StructField("b", spark.ArrayType(spark.DateType()))]))]),
    spark.MapType(spark.LongType(), spark.StructType([spark.StructField("v", spark.VariantType())])),
]


def stored(kind, **metadata):
    """The log's form of a schema with one column, which is Spark's JSON."""
    return parse_schema("log", spark.StructType([spark.StructField("c", kind, False, metadata)]).json())


@pytest.mark.parametrize("kind", [*SIMPLE, *NESTED], ids=lambda kind: kind.simpleString())
def test_a_stored_schema_has_the_arrow_form_in_which_spark_exchanges_it(kind):
    schema = stored(kind)
    wanted = to_arrow_schema(spark.StructType.fromJson(schema), timezone="UTC")
    assert arrow_schema(schema).equals(wanted, check_metadata=True)


@pytest.mark.parametrize("kind", [*SIMPLE, *NESTED], ids=lambda kind: kind.simpleString())
def test_the_arrow_form_of_a_type_gives_the_type_back(kind):
    schema = stored(kind)
    assert spark_schema(arrow_schema(schema)) == schema
    assert from_arrow_schema(arrow_schema(schema)) == spark.StructType.fromJson(schema)


def test_comments_of_columns_stay():
    schema = stored(spark.LongType(), comment="in cents")
    assert spark_schema(arrow_schema(schema)) == schema


def test_other_intervals_of_days_have_the_same_form_and_a_place_on_earth_has_its_bytes():
    assert arrow_schema(stored(spark.DayTimeIntervalType(0, 1))).field("c").type == pa.duration("us")
    place = pa.struct([pa.field("srid", pa.int32(), nullable=False), pa.field("wkb", pa.binary(), nullable=False)])
    assert arrow_schema(stored(spark.GeometryType(4326))).field("c").type == place


@pytest.mark.parametrize("kind", ["interval year to month", "char(3)", "a type of tomorrow"])
def test_a_type_without_an_arrow_form_is_named_with_the_way_out(kind):
    schema = {"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]}
    with pytest.raises(ConfigError, match=rf"the type of column 'c' is '{kind.replace('(', '.').replace(')', '.')}'.*columns="):
        arrow_schema(schema)


def test_a_collation_of_a_text_is_known_wherever_it_stands():
    text, other = spark.StringType("UNICODE_CI"), spark.StringType()
    inner = spark.StructType([spark.StructField("a", text), spark.StructField("b", other)])
    schema = spark.StructType([spark.StructField("t", text), spark.StructField("u", other), spark.StructField("s", inner)])
    found = arrow_schema(parse_schema("log", schema.json()))
    known = {path: has_collation(found, path) for path in (("t",), ("u",), ("s", "a"), ("s", "b"))}
    assert known == {("t",): True, ("u",): False, ("s", "a"): True, ("s", "b"): False}


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal256(40, 2),
        pa.decimal128(5, -2),
        pa.month_day_nano_interval(),
        pa.dense_union([pa.field("a", pa.int8())]),
    ],
    ids=str,
)
def test_a_type_that_spark_does_not_have_is_named(kind):
    with pytest.raises(ConfigError, match=r"the type of column 'c' is .*cast the column before"):
        spark_schema(pa.schema([("c", kind)]))


def test_a_type_with_more_levels_than_arrow_writes_is_refused_by_the_name_of_the_column():
    kind = pa.int64()
    for _ in range(63):
        kind = pa.list_(kind)
    batch = pa.record_batch([pa.nulls(1, kind)], names=["deep"])
    batch.serialize()
    spark_schema(batch.schema)
    deeper = pa.record_batch([pa.nulls(1, pa.struct([("x", kind)]))], names=["deep"])
    with pytest.raises(pa.ArrowInvalid, match="recursion"):
        deeper.serialize()
    with pytest.raises(ConfigError, match=r"'deep'.*at most 64 levels"):
        spark_schema(deeper.schema)
