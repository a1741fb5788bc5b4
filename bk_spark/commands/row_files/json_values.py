"""Values of every type as JSON, and back.

==================================== ============================================================================
type                                 JSON
==================================== ============================================================================
boolean, integers, string            as they are; text that is not UTF-8 has its bytes as \\udc80 to \\udcff
float, double                        numbers; "NaN", "Infinity" and "-Infinity" are strings
decimal, binary, dates, times, …     strings, as in CSV (simple_values.py)
struct, array                        object, array
map                                  array of [key, value]; an object is read, too
==================================== ============================================================================

A number stays the text that it was until its column's type is known: no digit is lost on the way.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.commands.row_files import simple_values
from bk_spark.commands.row_files.bad_value import BadValue
from bk_spark.rows.validity import without_text


class Number(str):
    """A number that is no ``int``, as it was written: it has a point, an exponent or far too many digits; NaN, Infinity, -0."""

    def __repr__(self) -> str:
        return str(self)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"one object has the name {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


_LONG = 1_000
"""Digits that no type has."""


def _whole(text: str) -> int | Number:
    """Python's integers have no negative zero, and take no text of more than some thousand digits."""
    return int(text) if len(text) < _LONG and text != "-0" else Number(text)


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=Number, parse_constant=Number, object_pairs_hook=_object)
loaded = _DECODER.decode
"""What a text of JSON says. Raises ValueError."""

dumped = json.JSONEncoder(allow_nan=False).encode

_TAKES: tuple[tuple[Any, frozenset[type], str], ...] = (
    (pa.types.is_boolean, frozenset({bool}), "is neither true nor false"),
    (pa.types.is_integer, frozenset({int, Number}), "is no whole number"),
    (pa.types.is_floating, frozenset({int, Number, str}), "is no number"),
    (pa.types.is_decimal, frozenset({int, Number, str}), "is no number"),
    (pa.types.is_struct, frozenset({dict}), "is no object"),
    (pa.types.is_map, frozenset({dict, list}), "is neither an object nor an array of [key, value]"),
    (pa.types.is_list, frozenset({list}), "is no array"),
    (pa.types.is_null, frozenset(), "is in a column of nulls"),
)
_STRING = (frozenset({str}), "is no string")


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """What JSON said as a column of a log's type. Raises BadValue."""
    takes, why = next(((takes, why) for is_one, takes, why in _TAKES if is_one(kind)), _STRING)
    if not set(map(type, values)) - {type(None)} <= takes:
        raise BadValue(next(one for one in values if one is not None and type(one) not in takes), why)
    if pa.types.is_struct(kind):
        return _structs(values, kind)
    if pa.types.is_map(kind):
        return _maps(values, kind)
    if pa.types.is_list(kind):
        return _lists(values, kind, column(_joined(values), kind.value_type))
    if pa.types.is_string(kind):
        return _strings(values)
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return pa.array(values, kind)
    return simple_values.from_texts(_strings([None if one is None else str(one) for one in values]), kind)


def plain(values: pa.Array) -> list[Any]:
    """The values of a column as JSON's encoder takes them."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _plain_structs(values)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _plain_lists(values)
    if pa.types.is_string(kind):
        return _plain_strings(values)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return list(values.to_pylist())
    texts = simple_values.to_texts(values).to_pylist()
    if not pa.types.is_floating(kind):
        return list(texts)
    return [one if one is None or one[-1] in "Ny" else float(one) for one in texts]


def _structs(values: list[Any], kind: pa.StructType) -> pa.Array:
    _refuse_other_names(values, kind)
    children = []
    for field in kind:
        try:
            children.append(column([_field_of(one, field) for one in values], field.type))
        except BadValue as bad:
            raise bad.within(field.name) from None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array([one is None for one in values], pa.bool_()))


def _field_of(one: dict[str, Any] | None, field: pa.Field) -> Any:
    """Below a null, a field that is never null has a value that nobody sees."""
    if one is not None and (one.get(field.name) is not None or field.nullable):
        return one.get(field.name)
    if one is not None:
        raise BadValue(one, f"lacks '{field.name}', which is never null")
    return None if field.nullable else 0 if pa.types.is_integer(field.type) else ""


def _refuse_other_names(values: list[Any], kind: pa.StructType) -> None:
    known = {field.name for field in kind}
    for one in values:
        if one is not None and not one.keys() <= known:
            name = next(name for name in one if name not in known)
            raise BadValue(one[name], "is in a field that the type does not have", name)


def _maps(values: list[Any], kind: pa.MapType) -> pa.Array:
    pairs: list[Any] = []
    keys: list[pa.Array] = []
    for is_object, group in itertools.groupby(_joined_pairs(values), key=lambda pair: pair[0]):
        some = [pair for _, pair in group]
        names = [name for name, _ in some]
        keys.append(simple_values.from_texts(_strings(names), kind.key_type) if is_object else column(names, kind.key_type))
        pairs += some
    found = pa.concat_arrays(keys) if keys else pa.nulls(0, kind.key_type)
    if found.null_count:
        raise BadValue(None, "is no key of a map")
    items = column([item for _, item in pairs], kind.item_type)
    entries = pa.StructArray.from_arrays([found, items], fields=[kind.key_field, kind.item_field])
    return _lists(values, kind, entries)


def _joined_pairs(values: list[Any]) -> Any:
    """Each pair of all maps, and whether an object has it."""
    for one in values:
        for pair in one.items() if isinstance(one, dict) else one or ():
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise BadValue(one, "has an element that is not [key, value]")
            yield isinstance(one, dict), pair


def _lists(values: list[Any], kind: pa.DataType, inner: pa.Array) -> pa.Array:
    sizes = pa.array([None if one is None else len(one) for one in values], pa.int32())
    ends = pc.cumulative_sum(sizes.fill_null(0))
    starts = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.Array.from_buffers(kind, len(values), [sizes.is_valid().buffers()[1], starts.buffers()[1]], children=[inner])


def _joined(values: list[Any]) -> list[Any]:
    return list(itertools.chain.from_iterable(one for one in values if one is not None))


def _strings(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        pass
    found = []
    for one in values:
        try:
            found.append(None if one is None else one.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:
            raise BadValue(one, "has half of a character (a surrogate without the other)") from None
    return pa.array(found, pa.binary()).view(pa.string())


def _plain_strings(values: pa.Array) -> list[Any]:
    try:
        return list(values.to_pylist())
    except UnicodeDecodeError:
        found = values.cast(without_text(values.type)).to_pylist()
        return [None if one is None else one.decode("utf-8", "surrogateescape") for one in found]


def _plain_structs(values: pa.StructArray) -> list[Any]:
    names = [field.name for field in values.type]
    children = [plain(values.field(place)) for place in range(len(names))]
    rows = zip(*children, strict=True) if children else itertools.repeat((), len(values))
    valid = values.is_valid().to_pylist()
    return [dict(zip(names, row, strict=True)) if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]


def _plain_lists(values: pa.Array) -> list[Any]:
    if pa.types.is_map(values.type):
        inner: list[Any] = [list(pair) for pair in zip(plain(values.keys), plain(values.items), strict=True)]
    else:
        inner = plain(values.values)
    offsets = values.offsets.to_pylist()
    valid = values.is_valid().to_pylist()
    spans = itertools.pairwise(offsets)
    return [inner[start:end] if is_valid else None for (start, end), is_valid in zip(spans, valid, strict=True)]
