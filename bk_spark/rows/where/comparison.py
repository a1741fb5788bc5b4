"""One comparison of a condition, bound to a column: which values match, and whether one of an entry can.

As in Spark SQL, a comparison with a null holds for no row; NaN equals itself and is above all other numbers; -0.0 equals
0.0; strings are compared by their UTF-8 bytes. literals.py converts the literals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.rows.statistics import ColumnStatistics, Key, Kind, kind_of
from bk_spark.rows.where.like import Pattern
from bk_spark.rows.where.tree import Operator, Path

NULL_TESTS = (Operator.IS_NULL, Operator.IS_NOT_NULL)
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
    Operator.NOT_EQUAL: lambda low, high, key: not low == key == high,
    Operator.LESS: lambda low, high, key: bool(low < key),
    Operator.AT_MOST: lambda low, high, key: bool(low <= key),
    Operator.MORE: lambda low, high, key: bool(high > key),
    Operator.AT_LEAST: lambda low, high, key: bool(high >= key),
}
"""Whether a value between the bounds, both included, can satisfy the comparison. Bounds and key are of one kind."""


@dataclass(frozen=True, slots=True)
class BoundComparison:
    """A comparison with keys of the column's type, or with a pattern.

    IN without keys holds for no row, NOT IN without keys for every row that has a value.
    """

    path: Path
    operator: Operator
    keys: tuple[Key, ...] = ()
    pattern: Pattern | None = None

    @property
    def compares(self) -> bool:
        """Whether it looks at values, not only for nulls."""
        return bool(self.keys) or self.pattern is not None

    def may_match(self, rows: int, known: ColumnStatistics | None) -> bool:
        """Whether any of an entry's ``rows`` rows can match. ``known`` of the column; None if it can have any value.

        A field inside of a column has no statistics of its own, but is null where the column is.
        """
        if known is None:
            return True
        if len(self.path) > 1:
            return known.nulls < rows or self.operator is Operator.IS_NULL
        if self.operator is Operator.IS_NULL:
            return known.nulls > 0
        if self.operator is Operator.IS_NOT_NULL or known.nulls >= rows:
            return known.nulls < rows
        return self._allowed_by(known)

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """True for each row that matches; false or null for others."""
        column = _values(batch, self.path)
        if self.operator is Operator.IS_NULL:
            return pc.is_null(column)
        if self.operator is Operator.IS_NOT_NULL:
            return pc.is_valid(column)
        if self.pattern is not None:
            mask = self.pattern.mask(column)
            return mask if self.operator is Operator.LIKE else pc.invert(mask)
        if self.operator in (Operator.IN, Operator.NOT_IN):
            mask = self._in_list(column)
            return mask if self.operator is Operator.IN else pc.and_(pc.is_valid(column), pc.invert(mask))
        if kind_of(column.type) is Kind.FLOAT:
            return _float_mask(self.operator, column.cast(pa.float64()), float(self.keys[0]))
        values = _comparable(column)
        return _COMPARE[self.operator](values, _scalar(values.type, self.keys[0]))

    def _allowed_by(self, known: ColumnStatistics) -> bool:
        """Whether a value that is not null can match."""
        if self.pattern is not None:
            like = self.operator is Operator.LIKE
            return self.pattern.may_match(known) if like else self.pattern.may_differ(known)
        if self.operator is Operator.IN:
            return any(_may_hold(Operator.EQUAL, key, known) for key in self.keys)
        if self.operator is Operator.NOT_IN:
            return all(_may_hold(Operator.NOT_EQUAL, key, known) for key in self.keys)
        return _may_hold(self.operator, self.keys[0], known)

    def _in_list(self, column: pa.Array) -> pa.Array:
        """True where the value is in the list, false where it is not, false or null for null."""
        if kind_of(column.type) is Kind.FLOAT:
            doubles = column.cast(pa.float64())
            found = [_float_mask(Operator.EQUAL, doubles, float(key)) for key in self.keys]
            return reduce(pc.or_, found) if found else pa.repeat(False, len(column))
        values = _comparable(column)
        return pc.is_in(values, value_set=pa.array([_scalar(values.type, key) for key in self.keys], values.type))


def _values(batch: pa.RecordBatch, path: Path) -> pa.Array:
    """The column or field; null where a struct around it is null."""
    column = batch.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    return column


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
        mask = _COMPARE[operator](values, pa.scalar(key))
        return pc.or_(mask, pc.is_nan(values)) if operator in (Operator.MORE, Operator.AT_LEAST) else mask
    if operator in (Operator.EQUAL, Operator.AT_LEAST):
        return pc.is_nan(values)
    if operator in (Operator.NOT_EQUAL, Operator.LESS):
        return pc.invert(pc.is_nan(values))
    return pc.is_valid(values) if operator is Operator.AT_MOST else pa.repeat(False, len(values))


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
