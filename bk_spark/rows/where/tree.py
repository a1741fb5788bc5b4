"""The tree of a condition: comparisons of one column with literals, joined by AND and OR.

There is no NOT in it: ``negated`` moves it down to the comparisons, each of which has an opposite. For a null both a comparison
and its opposite are null, as NOT of null is. AND and OR of such comparisons are true in the same rows whether null is read as
null or as false, and a row passes only where the condition is true. So behind the parser nothing tells null from false.

::

    NOT (a < 5 AND b IS NULL)     is     a >= 5 OR b IS NOT NULL
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Generic, TypeAlias, TypeVar


class Operator(Enum):
    """The operator of a comparison.

    IN takes any number of literals, LIKE a pattern and perhaps its escape character, the null tests none, all others one.
    """

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    IN = "IN"
    NOT_IN = "NOT IN"
    LIKE = "LIKE"
    NOT_LIKE = "NOT LIKE"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"

    @property
    def opposite(self) -> Operator:
        """True where this one is false, false where it is true, null where it is null."""
        return _OPPOSITE[self]

    @property
    def mirrored(self) -> Operator:
        """The same comparison with its sides exchanged: ``5 < a`` is ``a > 5``."""
        return _MIRRORED.get(self, self)


_PAIRS = (
    (Operator.EQUAL, Operator.NOT_EQUAL),
    (Operator.LESS, Operator.AT_LEAST),
    (Operator.MORE, Operator.AT_MOST),
    (Operator.IN, Operator.NOT_IN),
    (Operator.LIKE, Operator.NOT_LIKE),
    (Operator.IS_NULL, Operator.IS_NOT_NULL),
)
_OPPOSITE = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
_MIRRORED = {
    Operator.LESS: Operator.MORE,
    Operator.MORE: Operator.LESS,
    Operator.AT_MOST: Operator.AT_LEAST,
    Operator.AT_LEAST: Operator.AT_MOST,
}


@dataclass(frozen=True, slots=True)
class TypedText:
    """A literal such as ``DATE '2026-01-31'``; ``kind`` is DATE, TIMESTAMP, TIMESTAMP_LTZ, TIMESTAMP_NTZ, TIME or X."""

    kind: str
    text: str


Literal: TypeAlias = Decimal | float | str | bool | TypedText
"""A number is a Decimal with the digits that are written; with an exponent it is a float, as in Spark."""


class UnfitLiteral(Exception):
    """The literal is not of the column's type. The text says what would be."""


Path: TypeAlias = tuple[str, ...]
"""The name of a column, and behind it those of the fields inside of it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One column, or a field inside of one, against literals."""

    path: Path
    operator: Operator
    literals: tuple[Literal, ...] = ()


Leaf = TypeVar("Leaf")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class And(Generic[Leaf]):
    """All parts, at least two, must be true."""

    parts: tuple[Tree[Leaf], ...]


@dataclass(frozen=True, slots=True)
class Or(Generic[Leaf]):
    """One of the parts, at least two, must be true."""

    parts: tuple[Tree[Leaf], ...]


Tree: TypeAlias = Leaf | And[Leaf] | Or[Leaf]


def negated(tree: Tree[Comparison]) -> Tree[Comparison]:
    """NOT ``tree``: false where it is true, true where it is false, null where it is null (De Morgan)."""
    if isinstance(tree, Comparison):
        return Comparison(tree.path, tree.operator.opposite, tree.literals)
    parts = tuple(negated(part) for part in tree.parts)
    return Or(parts) if isinstance(tree, And) else And(parts)


def leaves(tree: Tree[Leaf]) -> Iterator[Leaf]:
    """The comparisons, from left to right."""
    if isinstance(tree, And | Or):
        for part in tree.parts:
            yield from leaves(part)
    else:
        yield tree


def mapped(tree: Tree[Leaf], change: Callable[[Leaf], Found]) -> Tree[Found]:
    """The same tree with each comparison changed."""
    if isinstance(tree, And):
        return And(tuple(mapped(part, change) for part in tree.parts))
    if isinstance(tree, Or):
        return Or(tuple(mapped(part, change) for part in tree.parts))
    return change(tree)
