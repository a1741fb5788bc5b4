"""The types of columns that only text files have: the first type that holds every text of the whole file, and loses nothing.

A column of CSV is boolean, bigint, double, date, timestamp or timestamp_ntz if all of its texts are written as such values are,
``void`` if it has none, else string: so digits with leading zeros, telephone numbers, whole numbers beyond 64 bits and numbers
that a double would round stay text. JSON has types of its own: a string stays a string.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.commands.row_files import text_values, times
from bk_spark.commands.row_files.bad_value import BadValue
from bk_spark.commands.row_files.json_values import Number

_PLAIN_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-][0-9]+)?$"
"""The exponent has a sign, as programs write it: 12e5 may be a name."""
_PLAIN_NOT_FINITE = r"^(?:NaN|nan|-?inf|-?Infinity)$"
_PLAIN_INTEGER = r"^(?:0|-?[1-9][0-9]*)$"
_LONG_INTEGER = r"^-?[0-9]{16}"
"""So many digits without a point are an account's or an order's: a double would show them as 9.2e18."""
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
"""From 0001 to 9999, as Python and SQL have them: others are kept as texts unless a type says that they are dates."""
_CANDIDATES: dict[str, pa.DataType] = {
    r"^(?:true|false|True|False|TRUE|FALSE)$": pa.bool_(),
    _PLAIN_INTEGER: pa.int64(),
    f"{_PLAIN_NUMBER}|{_PLAIN_NOT_FINITE}": pa.float64(),
    times.DATE_ALONE.replace(times.YEAR, _YEAR): pa.date32(),
    times.WITH_ZONE.replace(times.YEAR, _YEAR).replace(times.OFFSET, "(?P<offset>Z)"): pa.timestamp("us", "UTC"),
    times.WITHOUT_ZONE.replace(times.YEAR, _YEAR): pa.timestamp("us"),
}


class GuessedColumn:
    """What the texts of one column that were seen so far can be."""

    def __init__(self) -> None:
        self._left = dict(_CANDIDATES)
        self._is_empty = True
        self._has_number = False

    def see(self, texts: pa.Array) -> None:
        texts = texts.drop_null()
        if not len(texts):
            return
        self._is_empty = False
        self._left = {pattern: kind for pattern, kind in self._left.items() if _fits(texts, pattern, kind)}
        self._has_number = self._has_number or bool(pc.any(pc.match_substring_regex(texts, "[0-9]")).as_py())

    @property
    def type(self) -> pa.DataType:
        if self._is_empty:
            return pa.null()
        found = next(iter(self._left.values()), pa.string())
        return pa.string() if found == pa.float64() and not self._has_number else found


def _fits(texts: pa.Array, pattern: str, kind: pa.DataType) -> bool:
    if not pc.all(pc.match_substring_regex(texts, pattern)).as_py():
        return False
    if kind == pa.float64() and pc.any(pc.match_substring_regex(texts, _LONG_INTEGER)).as_py():
        return False
    try:
        text_values.from_texts(texts, kind)
    except BadValue:
        return False
    return True


def json_type(values: list[Any], known: pa.DataType | None) -> pa.DataType:
    """The type of what JSON said; ``known`` is what the column, or the field of it, has already. Raises BadValue."""
    present = [one for one in values if one is not None]
    kinds = set(map(type, present))
    known = None if known is None or pa.types.is_null(known) else known
    if known is not None and not pa.types.is_nested(known):
        return known
    if kinds <= {dict} and (known is None or pa.types.is_struct(known)) and (present or known is not None):
        return _struct_type(present, known)
    if known is not None and pa.types.is_map(known):
        items = [item for one in present if isinstance(one, dict) for item in one.values()]
        items += [
            pair[1] for one in present if isinstance(one, list) for pair in one if isinstance(pair, list) and len(pair) == 2
        ]
        return pa.map_(known.key_field, known.item_field.with_type(json_type(items, known.item_type)))
    if kinds <= {list} and (known is None or pa.types.is_list(known)) and (present or known is not None):
        elements = [element for one in present for element in one]
        return pa.list_(pa.field("element", json_type(elements, None if known is None else known.value_type)))
    return _simple_type(present, kinds) if known is None else known


def merged_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type of both, of which ``json_type`` found each in a part of the rows; None if there is none."""
    if pa.types.is_null(one) or one.equals(other):
        return other
    if pa.types.is_null(other):
        return one
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _wrapped(merged_type(one.value_type, other.value_type), lambda inner: pa.list_(pa.field("element", inner)))
    if pa.types.is_map(one) and pa.types.is_map(other):
        inner = merged_type(one.item_type, other.item_type)
        return _wrapped(inner, lambda found: pa.map_(one.key_field, one.item_field.with_type(found)))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field for field in one}
        for field in other:
            inner = merged_type(fields[field.name].type, field.type) if field.name in fields else field.type
            if inner is None:
                return None
            fields[field.name] = fields.get(field.name, field).with_type(inner)
        return pa.struct(list(fields.values()))
    return None


def only_fields_of(kind: pa.DataType, own: pa.DataType) -> pa.DataType:
    """``kind``, the type in all files, with only those fields that ``own``, the type in one file, has."""
    if pa.types.is_struct(kind) and pa.types.is_struct(own):
        return pa.struct(
            [kind.field(field.name).with_type(only_fields_of(kind.field(field.name).type, field.type)) for field in own]
        )
    if pa.types.is_list(kind) and pa.types.is_list(own):
        return pa.list_(pa.field("element", only_fields_of(kind.value_type, own.value_type)))
    if pa.types.is_map(kind) and pa.types.is_map(own):
        return pa.map_(kind.key_field, kind.item_field.with_type(only_fields_of(kind.item_type, own.item_type)))
    return kind


def checked_name(name: str) -> str:
    """The name. Raises ValueError where it is no text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name {name!r} has half of a character (a surrogate without the other)") from None
    return name


def _wrapped(inner: pa.DataType | None, wrap: Callable[[pa.DataType], pa.DataType]) -> pa.DataType | None:
    return None if inner is None else wrap(inner)


def _struct_type(present: list[dict[str, Any]], known: pa.DataType | None) -> pa.DataType:
    fields = {} if known is None else {field.name: field for field in known}
    names = dict.fromkeys([*fields, *(name for one in present for name in one)])
    if not names:
        raise BadValue({}, "has no field: no column can hold it")
    found = []
    for name in names:
        field = fields.get(name, pa.field(checked_name(name), pa.null()))
        try:
            found.append(field.with_type(json_type([one.get(name) for one in present], field.type)))
        except BadValue as bad:
            raise bad.within(name) from None
    return pa.struct(found)


def _simple_type(present: list[Any], kinds: set[type]) -> pa.DataType:
    if not present:
        return pa.null()
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {str}:
        return pa.string()
    if kinds <= {int, Number}:
        kind = pa.int64() if kinds == {int} else pa.float64()
        text_values.from_texts(pa.array(list(map(str, present)), pa.string()), kind)
        return kind
    other = next(one for one in present if type(one) is not type(present[0]))
    raise BadValue(other, f"stands beside {present[0]!r}: one column cannot hold both")
