"""Parses option ``where`` into comparisons of columns with literals, all of which must hold.

::

    condition   = comparison { AND comparison }           parentheses may stand around either
    comparison  = column operator literal                 operator: = == != <> < <= > >=
                | column IN ( literal { , literal } )
                | column BETWEEN literal AND literal      both bounds included
                | column IS [NOT] NULL
    column      = a name, or `any name` in backquotes
    literal     = 5, -1.5, 2e9, 'text', "text", true, false, X'00FF'
                | DATE '2026-01-31', TIMESTAMP '…', TIMESTAMP_LTZ '…', TIMESTAMP_NTZ '…', TIME '…'

Other text is refused: a condition is applied exactly, or not at all. filter.py checks the types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

from bk_spark.errors import ConfigError

MAX_COMPARISONS = 100
"""Each comparison is evaluated for every row."""

MAX_LIST = 1000
"""The most literals of one IN: each is compared with the statistics of every entry."""

MAX_DEPTH = 100
"""The deepest nesting of parentheses: each level costs a level of calls."""

_SHOWN_CHARACTERS = 100
"""How much of the word that it points at an error shows."""

_ALLOWED = (
    "it takes comparisons of a column with a literal (=, !=, <, <=, >, >=, IN (…), BETWEEN … AND …, IS NULL, IS NOT NULL), "
    "joined by AND; put anything else into DataFrame.where()"
)

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d{1,9}+)?(?![\w.]))
    | (?P<prefixed>(?:DATE|TIMESTAMP(?:_LTZ|_NTZ)?|TIME|X)\s*'[^'\\]*')
    | (?P<string>'(?:[^'\\]|''|\\['"\\])*'|"(?:[^"\\]|""|\\['"\\])*")
    | (?P<word>[^\W\d]\w*)
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<operator><=>|<=|>=|<>|!=|==|=|<|>)
    | (?P<mark>[(),])
    | (?P<other>\S)
    )""",
    re.VERBOSE | re.IGNORECASE,
)


class Operator(Enum):
    """The operator of a comparison. IN takes any number of literals, the null tests none, all others one."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    IN = "IN"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"


_OPERATORS = {operator.value: operator for operator in Operator} | {"==": Operator.EQUAL, "<>": Operator.NOT_EQUAL}


@dataclass(frozen=True, slots=True)
class TypedText:
    """A literal such as ``DATE '2026-01-31'``; ``kind`` is DATE, TIMESTAMP, TIMESTAMP_LTZ, TIMESTAMP_NTZ, TIME or X."""

    kind: str
    text: str


Literal: TypeAlias = Decimal | float | str | bool | TypedText
"""A number is a Decimal with the digits that are written; with an exponent it is a float, as in Spark."""


class UnfitLiteral(Exception):
    """The literal is not of the column's type. The text says what would be."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One column against literals."""

    column: str
    operator: Operator
    literals: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Condition:
    """The option's text, and its comparisons, all of which must hold."""

    text: str
    comparisons: tuple[Comparison, ...]

    def __repr__(self) -> str:
        return repr(self.text)


def parse_where(name: str, text: str) -> Condition:
    """Parse the text of option ``name``. Raises ConfigError if it is not understood."""
    comparisons = _Parser(name, text).condition()
    if len(comparisons) > MAX_COMPARISONS:
        raise ConfigError(f"option '{name}'", text, f"it takes {MAX_COMPARISONS} comparisons at most")
    return Condition(text, tuple(comparisons))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.kind == "word" else ""


_END = _Token("end", "its end")


class _Parser:
    """A recursive-descent parser; every method advances the position past what it read."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._tokens = [*_tokens(text.rstrip()), _END]
        self._at = 0
        self._depth = 0

    def condition(self) -> list[Comparison]:
        found = self._all()
        if self._next.kind != "end":
            self._refuse()
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _all(self) -> list[Comparison]:
        found = self._part()
        while self._take("AND"):
            found += self._part()
        return found

    def _part(self) -> list[Comparison]:
        if not self._take("("):
            return self._comparison()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ConfigError(f"option '{self._name}'", self._text[:200], f"it nests more than {MAX_DEPTH} parentheses")
        inside = self._all()
        self._expect(")")
        self._depth -= 1
        return inside

    def _comparison(self) -> list[Comparison]:
        column = self._column()
        if self._take("IS"):
            operator = Operator.IS_NOT_NULL if self._take("NOT") else Operator.IS_NULL
            self._expect("NULL")
            return [Comparison(column, operator)]
        if self._take("IN"):
            return [Comparison(column, Operator.IN, self._list())]
        if self._take("BETWEEN"):
            low = self._literal()
            self._expect("AND")
            return [Comparison(column, Operator.AT_LEAST, (low,)), Comparison(column, Operator.AT_MOST, (self._literal(),))]
        if self._next.text not in _OPERATORS or self._next.kind != "operator":
            self._refuse()
        operator = _OPERATORS[self._next.text]
        self._at += 1
        return [Comparison(column, operator, (self._literal(),))]

    def _column(self) -> str:
        token = self._next
        if token.kind not in ("word", "quoted") or token.keyword in ("NOT", "TRUE", "FALSE", "NULL"):
            self._refuse("a column comes first")
        self._at += 1
        if self._next.text == ".":
            self._refuse("fields inside of columns are not looked at, and a name with a dot stands in `backquotes`")
        return token.text if token.kind == "word" else token.text[1:-1].replace("``", "`")

    def _list(self) -> tuple[Literal, ...]:
        self._expect("(")
        found = [self._literal()]
        while self._take(","):
            found.append(self._literal())
        self._expect(")")
        if len(found) > MAX_LIST:
            raise ConfigError(f"option '{self._name}'", self._text, f"IN takes {MAX_LIST} literals at most")
        return tuple(found)

    def _literal(self) -> Literal:
        token = self._next
        if token.keyword == "NULL":
            self._refuse("nothing is equal to NULL, ask IS NULL or IS NOT NULL")
        if token.kind not in _LITERALS and token.keyword not in ("TRUE", "FALSE"):
            self._refuse("a literal is expected")
        literal = _LITERALS[token.kind](token.text) if token.kind in _LITERALS else token.keyword == "TRUE"
        if isinstance(literal, float) and math.isinf(literal):
            self._refuse("a number with an exponent must be in the range of DOUBLE")
        self._at += 1
        return literal

    def _take(self, text: str) -> bool:
        if self._next.keyword == text or (self._next.kind == "mark" and self._next.text == text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self._refuse(f"{text} is expected")

    def _refuse(self, why: str = "") -> None:
        there = self._next.text[:_SHOWN_CHARACTERS]
        reason = f"at {there} {why}; " if why else f"{there} is not understood there; "
        raise ConfigError(f"option '{self._name}'", self._text, reason + _ALLOWED)


def _tokens(text: str) -> Iterator[_Token]:
    """The tokens up to the first invalid one, which ends parsing: matching behind it could take too long."""
    for match in _TOKEN.finditer(text):
        yield _Token(str(match.lastgroup), match[0].strip())
        if match.lastgroup == "other":
            return


def _number(text: str) -> Literal:
    return float(text) if "e" in text.lower() else Decimal(text)


def _string(text: str) -> str:
    quote = text[0]
    return re.sub(rf"{quote}{quote}|\\(.)", lambda match: match[1] or quote, text[1:-1])


def _typed(text: str) -> TypedText:
    kind, _, rest = text.partition("'")
    return TypedText(kind.strip().upper(), rest[:-1])


_LITERALS: dict[str, Callable[[str], Literal]] = {"number": _number, "string": _string, "prefixed": _typed}
