"""Option ``where``: which conditions are understood, and that all others are refused."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pytest

from bk_spark.errors import ConfigError
from bk_spark.rows.where.condition import MAX_COMPARISONS, MAX_DEPTH, MAX_LIST, parse_where
from bk_spark.rows.where.tree import And, Comparison, Operator, Or, Tree, TypedText


def tree(text: str) -> Tree[Comparison]:
    return parse_where("where", text).tree


def a(operator: Operator, *literals: object, column: str = "a") -> Comparison:
    return Comparison((column,), operator, tuple(Decimal(one) if isinstance(one, int) else one for one in literals))  # type: ignore[misc]


A, B, C = (a(Operator.EQUAL, 1, column=name) for name in "abc")


def test_comparisons_are_joined_by_and_and_or() -> None:
    assert tree("day = '2026-01-01' AND amount > 5") == And(
        (a(Operator.EQUAL, "2026-01-01", column="day"), a(Operator.MORE, 5, column="amount"))
    )
    assert tree("a = 1 or b = 1 OR c = 1") == Or((A, B, C))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1 OR b = 1 AND c = 1", Or((A, And((B, C))))),
        ("a = 1 AND b = 1 OR c = 1", Or((And((A, B)), C))),
        ("(a = 1 OR b = 1) AND c = 1", And((Or((A, B)), C))),
        ("a = 1 AND (b = 1 OR c = 1)", And((A, Or((B, C))))),
        ("a = 1 AND (b = 1 AND c = 1)", And((A, And((B, C))))),
        ("NOT a != 1 AND b = 1", And((A, B))),
        ("NOT a != 1 OR b = 1", Or((A, B))),
        ("NOT (a != 1 AND b != 1)", Or((A, B))),
        ("NOT (a != 1 OR b != 1) OR c = 1", Or((And((A, B)), C))),
        ("NOT (NOT a = 1)", A),
        ("not NOT NOT a != 1", A),
        ("NOT a IS NULL", a(Operator.IS_NOT_NULL)),
    ],
)
def test_not_binds_closer_than_and_and_and_closer_than_or(text: str, expected: Tree[Comparison]) -> None:
    assert tree(text) == expected


def value(condition: Tree[Comparison], row: dict[str, bool | None]) -> bool | None:
    """Of a tree of ``x = true`` and ``x != true``, in three-valued logic."""
    if isinstance(condition, Comparison):
        found = row[condition.path[0]]
        return None if found is None else found is (condition.operator is Operator.EQUAL)
    values = [value(part, row) for part in condition.parts]
    decisive = isinstance(condition, Or)
    return decisive if decisive in values else None if None in values else not decisive


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("x = true AND y = true", lambda x, y: False if False in (x, y) else None if None in (x, y) else True),
        ("x = true OR y = true", lambda x, y: True if True in (x, y) else None if None in (x, y) else False),
        ("NOT (x = true AND y = true)", lambda x, y: True if False in (x, y) else None if None in (x, y) else False),
        ("NOT (x = true OR y = true)", lambda x, y: False if True in (x, y) else None if None in (x, y) else True),
        ("NOT x = true AND NOT NOT y = true", lambda x, y: False if x or y is False else None if None in (x, y) else True),
    ],
)
def test_a_condition_has_the_truth_table_of_three_valued_logic(text, truth) -> None:
    for x, y in itertools.product((True, False, None), repeat=2):
        assert value(tree(text), {"x": x, "y": y}) is truth(x, y), (x, y)


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
        ("a not in (1)", Operator.NOT_IN),
        ("1 = a", Operator.EQUAL),
        ("1 <> a", Operator.NOT_EQUAL),
        ("1 < a", Operator.MORE),
        ("1 <= a", Operator.AT_LEAST),
        ("1 > a", Operator.LESS),
        ("1 >= a", Operator.AT_MOST),
    ],
)
def test_every_operator_is_known_in_each_spelling_and_with_the_literal_on_either_side(text: str, operator: Operator) -> None:
    assert tree(text) == a(operator, 1)


@pytest.mark.parametrize("operator", Operator)
def test_the_opposite_of_an_operator_s_opposite_is_itself(operator: Operator) -> None:
    assert operator.opposite is not operator
    assert operator.opposite.opposite is operator
    assert operator.mirrored.mirrored is operator


def test_nulls_are_asked_for_by_name_and_between_includes_both_bounds() -> None:
    assert tree("a IS NULL and a is not null") == And((a(Operator.IS_NULL), a(Operator.IS_NOT_NULL)))
    between = And((a(Operator.AT_LEAST, 1), a(Operator.AT_MOST, 2)))
    assert tree("a BETWEEN 1 AND 2") == between
    assert tree("a BETWEEN 1 AND 2 AND b = 1") == And((between, B))
    assert tree("a NOT BETWEEN 1 AND 2") == tree("NOT a BETWEEN 1 AND 2") == Or((a(Operator.LESS, 1), a(Operator.MORE, 2)))


def test_null_safe_equality_is_false_for_a_null_beside_a_literal() -> None:
    safe = And((a(Operator.IS_NOT_NULL), A))
    assert tree("a <=> 1") == tree("1 <=> a") == safe
    assert tree("NOT a <=> 1") == Or((a(Operator.IS_NULL), a(Operator.NOT_EQUAL, 1)))
    assert tree("a <=> NULL") == tree("null <=> a") == a(Operator.IS_NULL)
    assert tree("NOT a <=> NULL") == a(Operator.IS_NOT_NULL)


def test_like_has_a_pattern_and_perhaps_an_escape_character() -> None:
    assert tree(r"a LIKE 'x\_\%\\%'") == a(Operator.LIKE, r"x\_\%\%")
    assert tree("a NOT LIKE '5!%' ESCAPE '!'") == a(Operator.NOT_LIKE, "5!%", "!")


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
    assert tree(f"a = {text}") == tree(f"{text} = a") == a(Operator.EQUAL, literal)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("ünï = 1", ("ünï",)),
        ("`a.b ``c` = 1", ("a.b `c",)),
        ("date = 1", ("date",)),
        ("or = 1", ("or",)),
        ("a.b.c = 1", ("a", "b", "c")),
        ("a . `b.c`.`d``` = 1", ("a", "b.c", "d`")),
        ("1 = a.b", ("a", "b")),
    ],
)
def test_names_are_plain_or_in_backquotes_and_fields_stand_behind_a_point(text: str, path: tuple[str, ...]) -> None:
    assert tree(text) == Comparison(path, Operator.EQUAL, (Decimal(1),))


@pytest.mark.parametrize(
    "text",
    [
        "((a = 1) AND (b = 1))",
        "((a)) = 1 AND (b) = (1)",
        "(1) = (a) AND ((1 = ((b))))",
        "((a) = ((1)) AND ((b)=1))",
    ],
)
def test_parentheses_may_stand_around_conditions_columns_and_literals(text: str) -> None:
    assert tree(text) == And((A, B))
    assert tree("(a) IN ((1), 2)") == a(Operator.IN, 1, 2)
    assert tree("(a) BETWEEN (1) AND ((2))") == tree("a BETWEEN 1 AND 2")
    assert tree("(a) LIKE ('x%')") == tree("a LIKE 'x%'")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("NOT", "at its end a comparison is expected"),
        ("NOT a", "its end is not understood there"),
        ("a = 1 NOT b = 2", "NOT is not understood there"),
        ("a NOT = 1", "at = after NOT, IN, BETWEEN or LIKE is expected"),
        ("a OR b = 1", "OR is not understood there"),
        ("(a) OR b = 1", "OR is not understood there"),
        ("(a = 1 OR b)", ") is not understood there"),
        ("(NOT a)", ") is not understood there"),
        ("a = 1 OR (5)", "its end is not understood there"),
        ("(a = 1) = true", "= is not understood there"),
        ("a = 1 OR OR b = 2", "b is not understood there"),
        ("upper(a) = 'X'", "( is not understood there"),
        ("a. = 1", "at = a column is expected"),
        ("a.b.5 = 1", ".5 is not understood there"),
        (".a = 1", "at . a comparison is expected"),
        ("a = b", "at b a literal is expected"),
        ("a = b.c", "at b a literal is expected"),
        ("5 < 6", "at 6 a column is expected"),
        ("5 IN (1)", "IN is not understood there"),
        ("5 BETWEEN a AND 6", "BETWEEN is not understood there"),
        ("'x' LIKE a", "LIKE is not understood there"),
        ("5 < NULL", "at NULL a column is expected"),
        ("a = NULL", "at NULL nothing is equal to NULL, ask IS NULL or IS NOT NULL"),
        ("NULL < a", "at < nothing is equal to NULL"),
        ("a IN (1, NULL)", "at NULL nothing is equal to NULL"),
        ("a LIKE NULL", "at NULL nothing is equal to NULL"),
        ("a LIKE b", "at b a literal is expected"),
        ("a LIKE 'x' ESCAPE", "at its end a literal is expected"),
        ("a ILIKE 'x'", "ILIKE is not understood there"),
        ("a IS TRUE", "at TRUE NULL is expected"),
        ("a", "its end is not understood there"),
        ("a = 1 AND", "at its end a comparison is expected"),
        ("(a = 1", "at its end ) is expected"),
        ("(a) = (1", "at its end ) is expected"),
        ("a = 1)", ") is not understood there"),
        ("a = 1 b = 2", "b is not understood there"),
        ("a = 1; DROP TABLE x", "; is not understood there"),
        ("a = 'x", "a literal is expected"),
        (r"a = 'x\n'", "a literal is expected"),
        ("a = 5L", "a literal is expected"),
        ("a = 1e400", "at 1e400 a number with an exponent must be in the range of DOUBLE"),
        ("a > -1e999999999", "must be in the range of DOUBLE"),
        ("1e400 > a", "must be in the range of DOUBLE"),
        ("a IN ()", "a literal is expected"),
        ("a = 1 + 1", "+ is not understood there"),
        ("a BETWEEN 1 OR 2", "at OR AND is expected"),
        (" ", "its end a comparison is expected"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_where("where", text)
    assert problem in str(refused.value)
    assert f"option 'where' is {text!r}" in str(refused.value)
    assert "joined by AND, OR and NOT; put anything else into DataFrame.where()" in str(refused.value)


def test_conditions_are_bounded() -> None:
    with pytest.raises(ConfigError, match="100 comparisons at most"):
        tree(" OR ".join(["a = 1"] * (MAX_COMPARISONS + 1)))
    with pytest.raises(ConfigError, match="100 comparisons at most"):
        tree(" AND ".join(["a BETWEEN 1 AND 2"] * (MAX_COMPARISONS // 2 + 1)))
    with pytest.raises(ConfigError, match="1000 literals at most"):
        tree(f"a IN ({', '.join(['1'] * (MAX_LIST + 1))})")
    with pytest.raises(ConfigError, match="nests more than 100 parentheses"):
        tree("(" * (MAX_DEPTH + 1) + "a = 1" + ")" * (MAX_DEPTH + 1))


def test_half_of_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(ConfigError, match="no Unicode text"):
        tree("a = '\ud83d'")
