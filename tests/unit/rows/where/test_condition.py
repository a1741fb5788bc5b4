"""Option ``where``: which conditions are understood, and that all others are refused."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bk_spark.errors import ConfigError
from bk_spark.rows.where.condition import MAX_COMPARISONS, MAX_LIST, Comparison, Operator, TypedText, parse_where


def comparisons(text: str) -> tuple[Comparison, ...]:
    return parse_where("where", text).comparisons


def test_comparisons_are_joined_by_and() -> None:
    assert comparisons("day = '2026-01-01' AND amount > 5") == (
        Comparison("day", Operator.EQUAL, ("2026-01-01",)),
        Comparison("amount", Operator.MORE, (Decimal(5),)),
    )


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("a = 1", Operator.EQUAL),
        ("a == 1", Operator.EQUAL),
        ("a != 1", Operator.NOT_EQUAL),
        ("a<>1", Operator.NOT_EQUAL),
        ("a < 1", Operator.LESS),
        ("a<=1", Operator.AT_MOST),
        ("a > 1", Operator.MORE),
        ("a >= 1", Operator.AT_LEAST),
        ("a in (1)", Operator.IN),
    ],
)
def test_every_operator_is_known_in_each_spelling(text: str, operator: Operator) -> None:
    assert comparisons(text) == (Comparison("a", operator, (Decimal(1),)),)


def test_nulls_are_asked_for_by_name_and_between_includes_both_bounds() -> None:
    assert comparisons("a IS NULL and b is not null") == (
        Comparison("a", Operator.IS_NULL),
        Comparison("b", Operator.IS_NOT_NULL),
    )
    assert comparisons("a BETWEEN 1 AND 2 AND b = 3") == (
        Comparison("a", Operator.AT_LEAST, (Decimal(1),)),
        Comparison("a", Operator.AT_MOST, (Decimal(2),)),
        Comparison("b", Operator.EQUAL, (Decimal(3),)),
    )


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("5", Decimal(5)),
        ("-1.50", Decimal("-1.5")),
        (".5", Decimal("0.5")),
        ("2e9", 2e9),
        ("1.50e0", 1.5),
        ("'it''s'", "it's"),
        (r"'a\'b\\'", "a'b\\"),
        ('"x"', "x"),
        ("''", ""),
        ("TRUE", True),
        ("false", False),
        ("DATE '2026-01-31'", TypedText("DATE", "2026-01-31")),
        ("timestamp'2026-01-31 12:00:00'", TypedText("TIMESTAMP", "2026-01-31 12:00:00")),
        ("X'00FF'", TypedText("X", "00FF")),
    ],
)
def test_literals(text: str, literal: object) -> None:
    assert comparisons(f"a = {text}") == (Comparison("a", Operator.EQUAL, (literal,)),)


def test_names_are_plain_or_in_backquotes_and_parentheses_may_stand_around_conditions() -> None:
    assert [one.column for one in comparisons("(ünï = 1) AND ((`a.b ``c` = 2) AND date = 3)")] == ["ünï", "a.b `c", "date"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = 1 OR b = 2", "OR is not understood there"),
        ("NOT a = 1", "at NOT a column comes first"),
        ("a NOT IN (1)", "NOT is not understood there"),
        ("upper(a) = 'X'", "( is not understood there"),
        ("a.b = 1", "fields inside of columns are not looked at, and a name with a dot stands in `backquotes`"),
        ("a = b", "at b a literal is expected"),
        ("5 < a", "at 5 a column comes first"),
        ("a = NULL", "ask IS NULL or IS NOT NULL"),
        ("a <=> 1", "<=> is not understood there"),
        ("a LIKE 'x%'", "LIKE is not understood there"),
        ("a", "its end is not understood there"),
        ("a = 1 AND", "at its end a column comes first"),
        ("(a = 1", "at its end ) is expected"),
        ("a = 1 b = 2", "b is not understood there"),
        ("a = 1; DROP TABLE x", "; is not understood there"),
        ("a = 'x", "a literal is expected"),
        ("a = 5L", "a literal is expected"),
        ("a = 1e400", "at 1e400 a number with an exponent must be in the range of DOUBLE"),
        ("a > -1e999999999", "must be in the range of DOUBLE"),
        ("a IN ()", "a literal is expected"),
        ("a = 1 + 1", "+ is not understood there"),
        (" ", "its end a column comes first"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_where("where", text)
    assert problem in str(refused.value)
    assert f"option 'where' is {text!r}" in str(refused.value)
    assert "joined by AND; put anything else into DataFrame.where()" in str(refused.value)


def test_conditions_are_bounded() -> None:
    with pytest.raises(ConfigError, match="100 comparisons at most"):
        comparisons(" AND ".join(["a = 1"] * (MAX_COMPARISONS + 1)))
    with pytest.raises(ConfigError, match="1000 literals at most"):
        comparisons(f"a IN ({', '.join(['1'] * (MAX_LIST + 1))})")
