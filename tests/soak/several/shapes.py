"""Rows of many shapes: drawn columns, types of which one may hold the other, and what values look like in the wider one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

import pyarrow as pa

Row: TypeAlias = dict[str, Any]
Columns: TypeAlias = dict[str, pa.DataType]

NUMBER, KEY = "n", "k"
"""A number that no other row has, in every row; and the column that logs with keys have as their key."""
_WIDTHS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_MIDNIGHT = datetime.min.time()

TYPES: dict[str, tuple[pa.DataType, ...]] = {
    "a": (pa.int8(), pa.int32(), pa.int64(), pa.float64(), pa.string()),
    "s": (pa.string(), pa.string(), pa.null(), pa.binary()),
    "S": (pa.string(),),
    "d": (pa.date32(), pa.timestamp("us")),
    "t": (
        pa.struct({"x": pa.int32()}),
        pa.struct({"x": pa.int64(), "y": pa.string()}),
        pa.struct({"y": pa.string()}),
        pa.struct({"x": pa.bool_()}),
    ),
    "l": (pa.list_(pa.int32()), pa.list_(pa.int64())),
    KEY: (pa.int64(), pa.int64(), pa.int64(), pa.int32(), pa.string(), pa.list_(pa.int32())),
}
"""The types that a column may have; later ones are drawn as often as earlier ones."""


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both, with its fields in the order of ``one``; None where there is none."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if one in _WIDTHS and other in _WIDTHS:
        return max(one, other, key=_WIDTHS.index)
    if pa.float64() in (one, other) and {one, other} & set(_WIDTHS[:3]):
        return pa.float64()
    if {one, other} == {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    if pa.types.is_list(one) and pa.types.is_list(other):
        element = wider(one.value_type, other.value_type)
        return None if element is None else pa.list_(element)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = together({field.name: field.type for field in one}, {field.name: field.type for field in other})
        return None if fields is None else pa.struct(fields)
    return None


def together(one: Columns, other: Columns) -> Columns | None:
    """The columns of both, those of ``one`` first; None where they do not go together."""
    found = dict(one)
    for name, kind in other.items():
        merged = wider(found[name], kind) if name in found else kind
        if merged is None:
            return None
        found[name] = merged
    return None if clashes(found) else found


def clashes(columns: Columns) -> bool:
    """Whether Spark cannot tell two of the names apart."""
    return len({name.lower() for name in columns}) < len(columns)


def shown(value: Any, kind: pa.DataType) -> Any:
    """A value as it is read where the column has that type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: shown(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [shown(one, kind.value_type) for one in value]
    if pa.types.is_timestamp(kind) and not isinstance(value, datetime):
        return datetime.combine(value, _MIDNIGHT)
    return float(value) if pa.types.is_float64(kind) else value


def shown_row(row: Mapping[str, Any], columns: Columns) -> Row:
    return {name: shown(row.get(name), kind) for name, kind in columns.items()}


def drawn_columns(chance: random.Random, like: Columns | None) -> Columns:
    """Often those of the log, or some of them, which it takes; now and then others."""
    if like and chance.random() < 0.75:
        found = {name: kind for name, kind in like.items() if name in (NUMBER, KEY) or chance.random() < 0.85}
        if chance.random() < 0.1:
            found.pop(KEY, None)
    else:
        found = {NUMBER: pa.int64(), KEY: pa.int64()}
    for name in chance.sample(list(TYPES), chance.choice((0, 0, 0, 1, 2))):
        if name != "S" or chance.random() < 0.2:
            found[name] = chance.choice(TYPES[name][:3] if chance.random() < 0.7 else TYPES[name])
    names = chance.sample(list(found), len(found)) if chance.random() < 0.3 else list(found)
    return {name: found[name] for name in names}


def drawn_rows(chance: random.Random, columns: Columns, first: int, count: int) -> list[Row]:
    return [
        {name: first + place if name == NUMBER else _drawn(chance, kind) for name, kind in columns.items()}
        for place in range(count)
    ]


def table_of(rows: Sequence[Row], columns: Columns) -> pa.Table:
    return pa.Table.from_pylist(list(rows), pa.schema(list(columns.items())))


def _drawn(chance: random.Random, kind: pa.DataType) -> Any:
    if pa.types.is_null(kind) or chance.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _drawn(chance, field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_drawn(chance, kind.value_type) for _ in range(chance.choice((0, 1, 3)))]
    return chance.choice(_VALUES.get(kind, (0, 1, -1, 5, 100, -128)))


_VALUES: dict[pa.DataType, tuple[Any, ...]] = {
    pa.bool_(): (True, False),
    pa.float64(): (0.5, -1e300, 3.0),
    pa.string(): ("", "a", "A", "ä" * 40, "\0"),
    pa.binary(): (b"", b"\xff", b"a"),
    pa.date32(): (date(1969, 12, 31), date(2026, 2, 28)),
    pa.timestamp("us"): (datetime(1969, 12, 31, 23, 59), datetime(2026, 2, 28, 1, 2, 3, 4)),
}
