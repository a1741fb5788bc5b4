"""Binds the condition of option ``where`` to a log's columns: skips entries that cannot hold a match, and filters rows.

As in Spark SQL, a comparison with a null holds for no row; NaN equals itself and is above all other numbers; -0.0 equals
0.0; strings are compared by their UTF-8 bytes. literals.py converts the literals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Context, Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.errors import ConfigError
from bk_spark.rows.statistics import ColumnStatistics, Key, Kind, kind_of
from bk_spark.rows.where.condition import Comparison, Condition, Operator, UnfitLiteral
from bk_spark.rows.where.literals import bound_literals

_NULL_TESTS = (Operator.IS_NULL, Operator.IS_NOT_NULL)
_EXACT = Context(prec=76)

_COMPARE: Mapping[Operator, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.AT_MOST: pc.less_equal,
    Operator.MORE: pc.greater,
    Operator.AT_LEAST: pc.greater_equal,
}

_BOUNDS_ALLOW: Mapping[Operator, Callable[[Any, Any, Any], bool]] = {
    Operator.EQUAL: lambda low, high, key: bool(low <= key <= high),
    Operator.IN: lambda low, high, key: bool(low <= key <= high),
    Operator.NOT_EQUAL: lambda low, high, key: not low == key == high,
    Operator.LESS: lambda low, high, key: bool(low < key),
    Operator.AT_MOST: lambda low, high, key: bool(low <= key),
    Operator.MORE: lambda low, high, key: bool(high > key),
    Operator.AT_LEAST: lambda low, high, key: bool(high >= key),
}
"""Whether a value between the bounds, both included, can satisfy the comparison. Bounds and key are of one kind."""


@dataclass(frozen=True, slots=True)
class BoundComparison:
    """A comparison with keys of the column's type. IN without keys holds for no row."""

    column: str
    operator: Operator
    keys: tuple[Key, ...] = ()

    def may_match(self, rows: int, known: ColumnStatistics) -> bool:
        """Whether any of an entry's ``rows`` rows can match."""
        if self.operator is Operator.IS_NULL:
            return known.nulls > 0
        if self.operator is Operator.IS_NOT_NULL or known.nulls >= rows:
            return known.nulls < rows
        return any(_may_hold(self.operator, key, known) for key in self.keys)

    def mask(self, column: pa.Array) -> pa.Array:
        """True for each value that matches; false or null for others."""
        if self.operator is Operator.IS_NULL:
            return pc.is_null(column)
        if self.operator is Operator.IS_NOT_NULL:
            return pc.is_valid(column)
        if kind_of(column.type) is Kind.FLOAT:
            doubles = column.cast(pa.float64())
            return _any([_float_mask(self.operator, doubles, float(key)) for key in self.keys], len(column))
        values = _comparable(column)
        if self.operator is Operator.IN:
            return pc.is_in(values, value_set=pa.array([_scalar(values.type, key) for key in self.keys], values.type))
        return _COMPARE[self.operator](values, _scalar(values.type, self.keys[0]))


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition on the columns of one log. Pickles."""

    columns: pa.Schema
    """The columns that the condition reads."""
    comparisons: tuple[BoundComparison, ...]

    def may_match(self, rows: int, statistics: Mapping[str, ColumnStatistics]) -> bool:
        """False if no row of an entry with ``rows`` rows can match. Columns without statistics can have any value."""
        known = ((comparison, statistics.get(comparison.column)) for comparison in self.comparisons)
        return all(column is None or comparison.may_match(rows, column) for comparison, column in known)

    def matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that match, in their order."""
        masks = (comparison.mask(batch.column(comparison.column)) for comparison in self.comparisons)
        return batch.filter(reduce(pc.and_, masks))


def bind(condition: Condition, log: str, columns: pa.Schema, zone: tzinfo | None = None) -> RowFilter:
    """Bind ``condition`` to a log's columns. Names match in upper and lower case, as in Spark.

    ``zone`` is that of times without an offset; None refuses them where the column's times have one.

    Raises ConfigError for a column that the log does not have, and for a literal that is not of the column's type.
    """
    bound = tuple(_bound(condition, log, columns, comparison, zone) for comparison in condition.comparisons)
    names = dict.fromkeys(comparison.column for comparison in bound)
    return RowFilter(pa.schema([columns.field(name) for name in names]), bound)


def _bound(condition: Condition, log: str, columns: pa.Schema, comparison: Comparison, zone: tzinfo | None) -> BoundComparison:
    wanted, operator = comparison.column, comparison.operator
    same = [name for name in columns.names if name.lower() == wanted.lower()]
    name = wanted if wanted in same else next(iter(same), None)
    if name is None:
        remedy = f"log '{log}' has no column '{wanted}', its columns are {', '.join(columns.names)}"
        raise ConfigError("option 'where'", condition.text, remedy)
    if operator in _NULL_TESTS:
        return BoundComparison(name, operator)
    of = columns.field(name).type
    if kind_of(of) is None:
        remedy = f"column '{name}' is {of}, which has no order here: ask IS NULL or IS NOT NULL, or use DataFrame.where()"
        raise ConfigError("option 'where'", condition.text, remedy)
    try:
        return BoundComparison(name, *bound_literals(of, operator, comparison.literals, zone))
    except UnfitLiteral as problem:
        remedy = f"column '{name}' is {of}, what it is compared with: {problem}"
        raise ConfigError("option 'where'", condition.text, remedy) from None


def _may_hold(operator: Operator, key: Key, known: ColumnStatistics) -> bool:
    """Whether a value that is not null can satisfy the comparison."""
    if known.low is None or known.high is None:
        return True
    if isinstance(key, float) and math.isnan(key):
        return known.has_nan or operator in (Operator.NOT_EQUAL, Operator.LESS, Operator.AT_MOST)
    if known.has_nan and operator in (Operator.NOT_EQUAL, Operator.MORE, Operator.AT_LEAST):
        return True
    return _BOUNDS_ALLOW[operator](known.low, known.high, key)


def _float_mask(operator: Operator, values: pa.Array, key: float) -> pa.Array:
    """The mask of a comparison with a float. Arrow's comparisons with NaN are false, so NaN is handled apart."""
    if not math.isnan(key):
        mask = _COMPARE[Operator.EQUAL if operator is Operator.IN else operator](values, pa.scalar(key))
        return pc.or_(mask, pc.is_nan(values)) if operator in (Operator.MORE, Operator.AT_LEAST) else mask
    if operator in (Operator.EQUAL, Operator.IN, Operator.AT_LEAST):
        return pc.is_nan(values)
    if operator in (Operator.NOT_EQUAL, Operator.LESS):
        return pc.invert(pc.is_nan(values))
    return pc.is_valid(values) if operator is Operator.AT_MOST else _any([], len(values))


def _any(masks: list[pa.Array], rows: int) -> pa.Array:
    return reduce(pc.or_, masks) if masks else pa.repeat(False, rows)


def _comparable(column: pa.Array) -> pa.Array:
    """The same values in a type that Arrow can compare with a key."""
    kind = kind_of(column.type)
    if kind is Kind.BYTES:
        return column.cast(pa.binary())
    if kind is Kind.DECIMAL:
        return column
    return column.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(column.type) else column.cast(pa.int64())


def _scalar(of: pa.DataType, key: Key) -> pa.Scalar:
    if pa.types.is_decimal128(of):
        return pa.scalar(Decimal(int(key)).scaleb(-of.scale, _EXACT), of)
    return pa.scalar(key, of)
