"""Numbers of a condition are compared as Spark does it with ANSI mode on; tests/spark/test_where.py asks Spark itself."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.numbers import compared_numbers
from bk_spark.rows.where.tree import Comparison, Operator, UnfitLiteral

INT, BIGINT = pa.int32(), pa.int64()
SMALL, WIDE = pa.decimal128(5, 2), pa.decimal128(38, 18)


def compared(of: pa.DataType, text: str) -> list[Decimal]:
    comparison = parse_where("where", f"c {text}").tree
    assert isinstance(comparison, Comparison)
    return compared_numbers(of, comparison.operator, comparison.literals)


@pytest.mark.parametrize(
    ("of", "text", "expected"),
    [
        (SMALL, "= 1.505", "1.505"),
        (SMALL, "= 1.0000000000000000000000000000000000000", "1"),
        (SMALL, "= 1.00000000000000000000000000000000005", "1.00000000000000000000000000000000005"),
        (SMALL, "= -1.0000000000000000000000000000000000005", "-1.00000000000000000000000000000000000"),
        (WIDE, "= 5.0000000000000000001", "5"),
        (WIDE, "< 5.0000000000000000005", "5.000000000000000001"),
        (WIDE, "< -5.0000000000000000005", "-5.000000000000000001"),
        (pa.decimal128(38, 0), "= 369.1", "369"),
        (pa.decimal128(38, 0), "!= 369.5", "370"),
        (pa.decimal128(38, 0), ">= 0.00000000000000000000000000000000000001", "0"),
        (BIGINT, "= 1.0000000000000000000000000000001", "1"),
        (BIGINT, "> 1.0000000000000000000000000000001", "1.0000000000000000000000000000001"),
        (BIGINT, "< 1e3", "1000"),
        (BIGINT, "= 5.00000000000000000001e0", "5"),
        (SMALL, "= 1.00000000000000001e0", "1"),
        (SMALL, "> 0.1e0", "0.1"),
        (INT, "= ' +7 '", "7"),
    ],
)
def test_a_number_is_rounded_where_spark_rounds_it_and_nowhere_else(of: pa.DataType, text: str, expected: str) -> None:
    [found] = compared(of, text)
    assert found == Decimal(expected)


def test_the_numbers_of_a_list_are_compared_exactly_while_38_digits_suffice() -> None:
    assert compared(SMALL, "IN (1.505, 3)") == compared(SMALL, "NOT IN (1.505, 3)") == [Decimal("1.505"), Decimal(3)]
    assert compared(INT, "IN (1e3, 0.5)") == [Decimal(1000), Decimal("0.5")]
    assert compared(INT, "IN ('1', '2')") == [Decimal(1), Decimal(2)]


@pytest.mark.parametrize(
    ("of", "text", "problem"),
    [
        (pa.decimal128(38, 38), "< 5", "so Spark would round: write fewer digits, or use DataFrame.where()"),
        (WIDE, "= 123456789012345678901", "so Spark would round"),
        (pa.decimal128(38, 0), "= 99999999999999999999999999999999999999.5", "a number has 38 digits at most"),
        (pa.decimal128(38, 30), "IN (5)", "so Spark would round"),
        (pa.decimal128(38, 30), "NOT IN (5)", "so Spark would round"),
        (SMALL, "IN (1, 0.0000000000000000000000000000000001)", "so Spark would round"),
        (SMALL, "IN (1, '2')", "some of the numbers are in quotes: write all without"),
        (SMALL, "= '1.5'", "without quotes, which would make it a DOUBLE"),
        (WIDE, "= 1e0", "which values of the column are rounded: write its digits"),
        (BIGINT, "= 9007199254740993e0", "which values of the column are rounded: write its digits"),
        (BIGINT, "= '1.5'", "in quotes it must be a BIGINT"),
        (INT, "= '9223372036854775808'", "in quotes it must be a BIGINT"),
        (BIGINT, "< 9223372036854775808", "it must lie in the range of BIGINT"),
        (INT, "= true", "it must be a number such as 5 or -1.5"),
    ],
)
def test_where_spark_would_round_the_column_s_values_the_comparison_is_refused(
    of: pa.DataType, text: str, problem: str
) -> None:
    with pytest.raises(UnfitLiteral) as refused:
        compared(of, text)
    assert problem in str(refused.value)


def test_each_operator_reads_its_number_in_the_same_way_but_for_whole_columns_and_their_order() -> None:
    number = Decimal("1.0000000000000000000000000000001")
    orders = (Operator.LESS, Operator.AT_MOST, Operator.MORE, Operator.AT_LEAST)
    for operator in (Operator.EQUAL, Operator.NOT_EQUAL, *orders):
        assert compared_numbers(pa.decimal128(20, 0), operator, (number,)) == [Decimal(1)]
        assert (compared_numbers(BIGINT, operator, (number,)) == [number]) is (operator in orders)
