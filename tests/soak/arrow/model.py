"""What a log's columns become, and what its rows are then: the rules of docs/guide/spark.md, "Wider types", once more."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.types as of

from tests.soak.arrow.shapes import LAST_DAY, LEAVES, Shape, draw_leaf, struct_of

_DAY_US = 86_400_000_000
_WIDER: dict[pa.DataType, tuple[str, ...]] = {
    pa.int8(): ("int16", "int32", "int64", "double", "uint64", "decimal(18,5)", "decimal(38,10)"),
    pa.int16(): ("int32", "int64", "double", "uint64", "decimal(18,5)", "decimal(38,10)"),
    pa.int32(): ("int64", "double", "uint64", "decimal(18,5)", "decimal(38,10)"),
    pa.int64(): ("decimal(38,10)", "uint64"),
    pa.float32(): ("double",),
    pa.decimal128(4, 2): ("decimal(18,5)", "decimal(38,10)"),
    pa.decimal128(20, 0): ("decimal(38,10)",),
    pa.decimal128(1, 0): ("decimal(4,2)", "uint64", "decimal(18,5)", "decimal(38,10)"),
    pa.decimal128(18, 5): ("decimal(38,10)",),
    pa.decimal128(9, 9): ("decimal(38,38)",),
    pa.date32(): ("timestamp_ntz",),
}
"""Stored type → leaves whose types hold each of its values."""


@dataclass
class ModelLog:
    """Types of columns, in their order, and rows: each value with the type that it was given as."""

    types: dict[str, pa.DataType] = field(default_factory=dict)
    rows: list[dict[str, tuple[Any, pa.DataType]]] = field(default_factory=list)

    def after(self, given: dict[str, pa.DataType], *, merge: bool) -> dict[str, pa.DataType] | None:
        """The types after an append; None where it is refused."""
        if not self.types:
            return given
        if merge:
            together = {name: joined(kind, given.get(name, pa.null())) for name, kind in self.types.items()}
            return None if None in together.values() else _ordered(together, given)
        fits = all(name in self.types and goes_with(kind, self.types[name]) for name, kind in given.items())
        return self.types if fits else None

    def column(self, name: str) -> list[Any]:
        kind = self.types[name]
        return [lifted(*row[name], kind) if name in row else None for row in self.rows]


def _ordered(together: dict[str, Any], given: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    return together | {name: kind for name, kind in given.items() if name not in together}


def joined(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both; None if neither of the two does."""
    if one.equals(other) or of.is_null(other):
        return one
    if of.is_null(one):
        return other
    if of.is_struct(one) and of.is_struct(other):
        fields: dict[str, Any] = {each.name: each.type for each in one}
        for each in other:
            fields[each.name] = joined(fields[each.name], each.type) if each.name in fields else each.type
        return None if None in fields.values() else pa.struct(list(fields.items()))
    if of.is_list(one) and of.is_list(other):
        inner = joined(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    if of.is_map(one) and of.is_map(other):
        inner = joined(one.item_type, other.item_type) if one.key_type.equals(other.key_type) else None
        return None if inner is None else pa.map_(one.key_type, inner)
    for narrow, wide in ((one, other), (other, one)):
        if any(LEAVES[name][0].equals(wide) for name in _WIDER.get(narrow, ())):
            return wide
    return None


def goes_with(given: pa.DataType, stored: pa.DataType) -> bool:
    """Whether the types are equal but for nulls in ``given``."""
    if of.is_null(given) or given.equals(stored):
        return True
    if of.is_struct(given) and of.is_struct(stored):
        pairs = list(zip(given, stored, strict=False))
        same = given.num_fields == stored.num_fields and all(one.name == other.name for one, other in pairs)
        return same and all(goes_with(one.type, other.type) for one, other in pairs)
    if of.is_list(given) and of.is_list(stored):
        return goes_with(given.value_type, stored.value_type)
    same_keys = of.is_map(given) and of.is_map(stored) and given.key_type.equals(stored.key_type)
    return same_keys and goes_with(given.item_type, stored.item_type)


def lifted(value: Any, given: pa.DataType, wanted: pa.DataType) -> Any:
    """A plain value of one type as one of a type that holds it."""
    if value is None or given.equals(wanted):
        return value
    if of.is_struct(wanted):
        types = {each.name: each.type for each in given}
        return {one.name: lifted(value[one.name], types[one.name], one.type) if one.name in types else None for one in wanted}
    if of.is_list(wanted):
        return tuple(lifted(one, given.value_type, wanted.value_type) for one in value)
    if of.is_map(wanted):
        return tuple((key, lifted(one, given.item_type, wanted.item_type)) for key, one in value)
    return value * _DAY_US if of.is_date(given) else value


def holds_far_date(value: Any, given: pa.DataType, wanted: pa.DataType | None) -> bool:
    """Whether a date that no timestamp can be is in the value, and is read as a timestamp of ``wanted``; None: of any type."""
    if value is None:
        return False
    if of.is_struct(given):
        pairs = [(one, None if wanted is None else _field(wanted, one.name)) for one in given]
        return any(holds_far_date(value[one.name], one.type, kind) for one, kind in pairs)
    if of.is_list(given):
        inner = None if wanted is None else wanted.value_type
        return any(holds_far_date(one, given.value_type, inner) for one in value)
    if of.is_map(given):
        inner = None if wanted is None else wanted.item_type
        return any(holds_far_date(one, given.item_type, inner) for _, one in value)
    return bool(of.is_date(given) and (wanted is None or of.is_timestamp(wanted)) and abs(value) > LAST_DAY)


def _field(kind: pa.DataType, name: str) -> pa.DataType:
    found: pa.DataType = kind.field(name).type
    return found


def wider(chance: random.Random, shape: Shape) -> Shape:
    """A shape that holds every value of ``shape``; the same where there is none."""
    if shape.leaf:
        names = _WIDER.get(shape.type, ())
        name = chance.choice(names) if names else shape.leaf
        return Shape(LEAVES[name][0], name)
    if of.is_struct(shape.type):
        fields = {one.name: child for one, child in zip(shape.type, shape.inner, strict=True)}
        name = chance.choice(tuple(fields))
        fields[name] = wider(chance, fields[name])
        return struct_of(fields | ({"gained": draw_leaf(chance)} if chance.random() < 0.3 and "gained" not in fields else {}))
    *keys, inner = shape.inner
    inner = wider(chance, inner)
    kind = pa.map_(keys[0].type, inner.type) if keys else pa.list_(inner.type)
    return Shape(kind, "", (*keys, inner))
