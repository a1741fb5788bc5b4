"""What the log's schema allows to be merged, and what a payload is read as, are one rule for Spark's types and Arrow's."""

from __future__ import annotations

from itertools import product

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from bk_spark.datasource.spark_schema import to_arrow
from bk_spark.log.stored.merging import ApartTypes, merged
from bk_spark.rows.widening import is_readable


def struct(*kinds: DataType) -> StructType:
    return StructType([StructField(f"f{place}", kind) for place, kind in enumerate(kinds)])


TYPES: list[DataType] = [
    *(BooleanType(), ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType(), BinaryType()),
    *(DateType(), TimestampType(), TimestampNTZType(), NullType(), VariantType(), DayTimeIntervalType()),
    *(
        DecimalType(precision, scale)
        for precision in (1, 3, 5, 10, 12, 19, 20, 38)
        for scale in (0, 2, 18)
        if scale <= precision
    ),
    *(ArrayType(ByteType()), ArrayType(DoubleType()), ArrayType(StringType())),
    *(MapType(IntegerType(), ByteType()), MapType(IntegerType(), ShortType()), MapType(LongType(), ShortType())),
    *(struct(IntegerType()), struct(LongType()), struct(LongType(), DateType()), struct(StringType())),
    *(ArrayType(struct(IntegerType())), ArrayType(struct(LongType(), DateType()))),
]


def both(one: DataType, other: DataType) -> DataType | None:
    try:
        fields = merged(struct(one).jsonValue(), struct(other).jsonValue())
    except ApartTypes:
        return None
    return StructType.fromJson(fields)["f0"].dataType


def test_a_payload_of_either_type_is_read_as_the_type_that_the_log_gets() -> None:
    for one, other in product(TYPES, repeat=2):
        log = both(one, other)
        stored, given = (to_arrow(struct(kind)).field(0).type for kind in (one, other))
        if log is not None:
            wanted = to_arrow(struct(log)).field(0).type
            assert is_readable(stored, wanted), (one, log)
            assert is_readable(given, wanted), (other, log)
        else:
            assert not is_readable(stored, given), (one, other)
