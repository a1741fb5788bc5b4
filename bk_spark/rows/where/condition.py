"""Parses option ``where``, in the grammar and the precedence of Spark SQL: NOT before AND before OR.

::

    condition   = part { AND part | OR part }
    part        = { NOT } ( comparison | "(" condition ")" )
    comparison  = column operator literal                 operator: = == != <> < <= > >= <=>
                | literal operator column
                | column <=> NULL                         either side may be the column
                | column [NOT] IN ( literal { , literal } )
                | column [NOT] BETWEEN literal AND literal            both bounds included
                | column [NOT] LIKE literal [ ESCAPE literal ]
                | column IS [NOT] NULL
    column      = name { . name }                         the fields of a struct stand behind its name
    name        = a word, or `any text` in backquotes
    literal     = 5, -1.5, 2e9, 'text', "text", true, false, X'00FF'
                | DATE '2026-01-31', TIMESTAMP '…', TIMESTAMP_LTZ '…', TIMESTAMP_NTZ '…', TIME '…'

Parentheses may stand around columns and literals too. Other text is refused: a condition is applied exactly, or not at all.
filter.py checks the types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias, TypeVar

from bk_spark.errors import ConfigError
from bk_spark.rows.where.tokens import END, ConditionToken, tokens
from bk_spark.rows.where.tree import And, Comparison, Literal, Operator, Or, Path, Tree, leaves, negated

MAX_COMPARISONS = 100
"""Each comparison is evaluated for every row. BETWEEN and <=> are two."""

MAX_LIST = 1000
"""The most literals of one IN: each is compared with the statistics of every entry."""

MAX_DEPTH = 100
"""The deepest nesting of parentheses: each level costs three levels of calls, and Python allows a thousand."""

_SHOWN_CHARACTERS = 100
"""How much of the word that it points at an error shows."""

_ALLOWED = (
    "it takes comparisons of a column with a literal (=, !=, <, <=, >, >=, <=>, IN (…), BETWEEN … AND …, LIKE '…', IS NULL, "
    "IS NOT NULL), joined by AND, OR and NOT; put anything else into DataFrame.where()"
)

_NO_EQUAL_OF_NULL = "nothing is equal to NULL, ask IS NULL or IS NOT NULL"
_NULL_SAFE = "<=>"
_OPERATORS = {operator.value: operator for operator in Operator} | {
    "==": Operator.EQUAL,
    "<>": Operator.NOT_EQUAL,
    _NULL_SAFE: Operator.EQUAL,
}


@dataclass(frozen=True, slots=True, repr=False)
class Condition:
    """The option's text, and its comparisons."""

    text: str
    tree: Tree[Comparison]

    def __repr__(self) -> str:
        return repr(self.text)


def parse_where(name: str, text: str) -> Condition:
    """Parse the text of option ``name``. Raises ConfigError if it is not understood."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError(f"option '{name}'", text, "it is no Unicode text: it holds one half of a surrogate pair")
    tree = _Parser(name, text).condition()
    if sum(1 for _ in leaves(tree)) > MAX_COMPARISONS:
        raise ConfigError(f"option '{name}'", text, f"it takes {MAX_COMPARISONS} comparisons at most")
    return Condition(text, tree)


@dataclass(frozen=True, slots=True)
class _Column:
    path: Path


_Side: TypeAlias = _Column | Literal | None
"""One side of a comparison; None is NULL."""

_Condition: TypeAlias = Tree[Comparison]
_T = TypeVar("_T")


class _Parser:
    """A recursive-descent parser; every method advances the position past what it read."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._tokens = list(tokens(text))
        self._at = 0
        self._depth = 0

    def condition(self) -> _Condition:
        found = self._truth(self._alternatives())
        if self._next is not END:
            self._refuse()
        return found

    @property
    def _next(self) -> ConditionToken:
        return self._tokens[self._at]

    def _alternatives(self) -> _Condition | _Side:
        """A condition, or one side of a comparison where nothing else stands in the parentheses."""
        first = self._part()
        if self._next.keyword not in ("AND", "OR"):
            return first
        choices = [[self._truth(first)]]
        while self._next.keyword in ("AND", "OR"):
            if self._take("OR"):
                choices.append([])
            else:
                self._expect("AND")
            choices[-1].append(self._truth(self._part()))
        alternatives = [parts[0] if len(parts) == 1 else And(tuple(parts)) for parts in choices]
        return alternatives[0] if len(alternatives) == 1 else Or(tuple(alternatives))

    def _part(self) -> _Condition | _Side:
        negations = 0
        while self._take("NOT"):
            negations += 1
        found = self._parenthesised() if self._take("(") else self._side()
        if not isinstance(found, Comparison | And | Or):
            if not negations and self._depth and self._is_mark(")"):
                return found
            found = self._comparison(found)
        return negated(found) if negations % 2 else found

    def _parenthesised(self) -> _Condition | _Side:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ConfigError(f"option '{self._name}'", self._text[:200], f"it nests more than {MAX_DEPTH} parentheses")
        inside = self._alternatives()
        self._expect(")")
        self._depth -= 1
        return inside

    def _truth(self, found: _Condition | _Side) -> _Condition:
        """``found``, which must be a condition."""
        if not isinstance(found, Comparison | And | Or):
            self._refuse()
        return found

    def _comparison(self, left: _Side) -> _Condition:
        if not isinstance(left, _Column) or self._next.kind == "operator":
            return self._compared(left)
        if self._take("IS"):
            operator = Operator.IS_NOT_NULL if self._take("NOT") else Operator.IS_NULL
            self._expect("NULL")
            return Comparison(left.path, operator)
        if self._take("NOT"):
            return negated(self._test(left.path, "after NOT, IN, BETWEEN or LIKE is expected"))
        return self._test(left.path)

    def _test(self, path: Path, otherwise: str = "") -> _Condition:
        if self._take("IN"):
            return Comparison(path, Operator.IN, self._list())
        if self._take("LIKE"):
            pattern = self._enclosed(self._literal)
            return Comparison(path, Operator.LIKE, (pattern, self._literal()) if self._take("ESCAPE") else (pattern,))
        if not self._take("BETWEEN"):
            self._refuse(otherwise)
        low = self._enclosed(self._literal)
        self._expect("AND")
        high = self._enclosed(self._literal)
        return And((Comparison(path, Operator.AT_LEAST, (low,)), Comparison(path, Operator.AT_MOST, (high,))))

    def _compared(self, left: _Side) -> _Condition:
        sign = self._next.text
        if self._next.kind != "operator":
            self._refuse()
        null_safe = sign == _NULL_SAFE
        if left is None and not null_safe:
            self._refuse(_NO_EQUAL_OF_NULL)
        self._at += 1
        if isinstance(left, _Column):
            literal = self._enclosed(self._literal_or_null if null_safe else self._literal)
            return _joined(left.path, _OPERATORS[sign], literal, null_safe)
        return _joined(self._enclosed(self._column).path, _OPERATORS[sign].mirrored, left, null_safe)

    def _side(self) -> _Side:
        token = self._next
        if token.is_literal or token.keyword == "NULL":
            return self._literal_or_null()
        if token.kind not in ("word", "quoted"):
            self._refuse("a comparison is expected")
        return self._column()

    def _enclosed(self, parse: Callable[[], _T]) -> _T:
        """What ``parse`` reads, in any number of parentheses."""
        opened = 0
        while self._take("("):
            opened += 1
        found = parse()
        for _ in range(opened):
            self._expect(")")
        return found

    def _column(self) -> _Column:
        names = [self._column_name()]
        while self._take("."):
            names.append(self._column_name())
        return _Column(tuple(names))

    def _column_name(self) -> str:
        token = self._next
        if token.kind not in ("word", "quoted") or token.keyword in ("NOT", "TRUE", "FALSE", "NULL"):
            self._refuse("a column is expected")
        self._at += 1
        return token.name()

    def _list(self) -> tuple[Literal, ...]:
        self._expect("(")
        found = [self._enclosed(self._literal)]
        while self._take(","):
            found.append(self._enclosed(self._literal))
        self._expect(")")
        if len(found) > MAX_LIST:
            raise ConfigError(f"option '{self._name}'", self._text, f"IN takes {MAX_LIST} literals at most")
        return tuple(found)

    def _literal_or_null(self) -> Literal | None:
        return None if self._take("NULL") else self._literal()

    def _literal(self) -> Literal:
        token = self._next
        if token.keyword == "NULL":
            self._refuse(_NO_EQUAL_OF_NULL)
        if not token.is_literal:
            self._refuse("a literal is expected")
        literal = token.literal()
        if isinstance(literal, float) and math.isinf(literal):
            self._refuse("a number with an exponent must be in the range of DOUBLE")
        self._at += 1
        return literal

    def _is_mark(self, text: str) -> bool:
        return self._next.kind == "mark" and self._next.text == text

    def _take(self, text: str) -> bool:
        if self._next.keyword == text or self._is_mark(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self._refuse(f"{text} is expected")

    def _refuse(self, why: str = "") -> NoReturn:
        there = self._next.text[:_SHOWN_CHARACTERS]
        reason = f"at {there} {why}; " if why else f"{there} is not understood there; "
        raise ConfigError(f"option '{self._name}'", self._text, reason + _ALLOWED)


def _joined(path: Path, operator: Operator, literal: Literal | None, null_safe: bool) -> _Condition:
    """A comparison, or what ``<=>`` stands for: false, not null, for a null beside a literal."""
    if literal is None:
        return Comparison(path, Operator.IS_NULL)
    compared = Comparison(path, operator, (literal,))
    return And((Comparison(path, Operator.IS_NOT_NULL), compared)) if null_safe else compared
