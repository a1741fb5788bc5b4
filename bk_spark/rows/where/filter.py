"""Binds the condition of option ``where`` to a log's columns: skips entries that cannot hold a match, and filters rows.

The tree has no NOT (tree.py). So an entry is skipped where those comparisons that may hold for one of its rows, each judged
alone, do not make the whole true.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.errors import ConfigError
from bk_spark.rows.statistics import ColumnStatistics, kind_of
from bk_spark.rows.where.comparison import NULL_TESTS, BoundComparison
from bk_spark.rows.where.condition import Condition
from bk_spark.rows.where.like import pattern_of
from bk_spark.rows.where.literals import bound_literals
from bk_spark.rows.where.tree import And, Comparison, Operator, Or, Path, Tree, UnfitLiteral, leaves, mapped

_Bound: TypeAlias = Tree[BoundComparison]
_LIKES = {Operator.LIKE: Operator.EQUAL, Operator.NOT_LIKE: Operator.NOT_EQUAL}
"""What a LIKE is whose pattern has no wildcard."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition on the columns of one log. Pickles."""

    columns: pa.Schema
    """The columns that the condition reads, whole ones also for the fields inside of them."""
    tree: _Bound

    def may_match(self, rows: int, statistics: Mapping[str, ColumnStatistics]) -> bool:
        """False if no row of an entry with ``rows`` rows can match. Columns without statistics can have any value."""
        return _may_match(self.tree, rows, statistics)

    def matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that match, in their order."""
        return batch.filter(_mask(self.tree, batch))

    def required(self) -> Iterator[BoundComparison]:
        """Comparisons that hold for every row that matches."""
        return (part for part in _conjuncts(self.tree) if isinstance(part, BoundComparison))

    def divided(self, names: Collection[str]) -> tuple[RowFilter | None, RowFilter | None]:
        """As two conditions that must both be true: one on columns among ``names`` alone, and the rest. None: always true."""
        parts = [(part, all(one.path[0] in names for one in leaves(part))) for part in _conjuncts(self.tree)]
        inside, rest = ([part for part, is_inside in parts if is_inside is wanted] for wanted in (True, False))
        return self._of(inside), self._of(rest)

    def _of(self, parts: Sequence[_Bound]) -> RowFilter | None:
        if not parts:
            return None
        tree: _Bound = parts[0] if len(parts) == 1 else And(tuple(parts))
        names = dict.fromkeys(one.path[0] for one in leaves(tree))
        return RowFilter(pa.schema([self.columns.field(name) for name in names]), tree)

    def compared(self) -> Iterator[Path]:
        """The columns and fields whose values are compared with others; not those that are only tested for nulls."""
        return (comparison.path for comparison in leaves(self.tree) if comparison.compares)


def bind(condition: Condition, log: str, columns: pa.Schema, zone: tzinfo | None = None) -> RowFilter:
    """Bind ``condition`` to a log's columns. Names match in upper and lower case, as in Spark.

    ``zone`` is that of times without an offset; None refuses them where the column's times have one.

    Raises ConfigError for a column or field that the log does not have, and for a literal that is not of the column's type.
    """
    try:
        tree = mapped(condition.tree, lambda comparison: _bound(comparison, log, columns, zone))
    except UnfitLiteral as problem:
        raise ConfigError("option 'where'", condition.text, str(problem)) from None
    names = dict.fromkeys(comparison.path[0] for comparison in leaves(tree))
    return RowFilter(pa.schema([columns.field(name) for name in names]), tree)


def _conjuncts(tree: _Bound) -> Iterator[_Bound]:
    """Parts that must all be true."""
    if isinstance(tree, And):
        for part in tree.parts:
            yield from _conjuncts(part)
    else:
        yield tree


def _may_match(tree: _Bound, rows: int, statistics: Mapping[str, ColumnStatistics]) -> bool:
    if isinstance(tree, And | Or):
        parts = (_may_match(part, rows, statistics) for part in tree.parts)
        return all(parts) if isinstance(tree, And) else any(parts)
    return tree.may_match(rows, statistics.get(tree.path[0]))


def _mask(tree: _Bound, batch: pa.RecordBatch) -> pa.Array:
    """True for each row that matches; false or null for others."""
    if isinstance(tree, And | Or):
        parts = [_mask(part, batch) for part in tree.parts]
        return reduce(pc.and_kleene if isinstance(tree, And) else pc.or_kleene, parts)
    return tree.mask(batch)


def _bound(comparison: Comparison, log: str, columns: pa.Schema, zone: tzinfo | None) -> BoundComparison:
    path, of = _resolved(comparison.path, log, columns)
    shown, operator = ".".join(path), comparison.operator
    if operator in NULL_TESTS:
        return BoundComparison(path, operator)
    if kind_of(of) is None:
        remedy = "ask IS NULL or IS NOT NULL, or use DataFrame.where()"
        raise UnfitLiteral(f"column '{shown}' is {of}, which has no order here: {remedy}")
    try:
        if operator in _LIKES:
            return _like(path, of, operator, comparison)
        return BoundComparison(path, *bound_literals(of, operator, comparison.literals, zone))
    except UnfitLiteral as problem:
        raise UnfitLiteral(f"column '{shown}' is {of}, what it is compared with: {problem}") from None


def _like(path: Path, of: pa.DataType, operator: Operator, comparison: Comparison) -> BoundComparison:
    if not pa.types.is_string(of):
        raise UnfitLiteral("LIKE is for columns of strings")
    pattern = pattern_of(comparison.literals)
    if isinstance(pattern, str):
        return BoundComparison(path, _LIKES[operator], (pattern.encode(),))
    return BoundComparison(path, operator, pattern=pattern)


def _resolved(wanted: Path, log: str, columns: pa.Schema) -> tuple[Path, pa.DataType]:
    """The names as the log spells them, and the type. Raises UnfitLiteral."""
    name = _same(wanted[0], columns.names)
    if name is None:
        raise UnfitLiteral(f"log '{log}' has no column '{wanted[0]}', its columns are {', '.join(columns.names)}")
    path: Path = (name,)
    of = columns.field(name).type
    for part in wanted[1:]:
        shown = ".".join(path)
        if not pa.types.is_struct(of):
            remedy = "only structs have fields, and a name with a dot stands in `backquotes`"
            raise UnfitLiteral(f"column '{shown}' is {of}, which has no field '{part}': {remedy}")
        names = [field.name for field in of]
        found = _same(part, names)
        if found is None:
            raise UnfitLiteral(f"column '{shown}' has no field '{part}', its fields are {', '.join(names)}")
        path, of = (*path, found), of.field(found).type
    return path, of


def _same(wanted: str, names: list[str]) -> str | None:
    """The one of ``names`` in the same case, or else the first in another."""
    return wanted if wanted in names else next((name for name in names if name.lower() == wanted.lower()), None)
