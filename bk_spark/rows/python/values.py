"""A Python value as a value of a column, nested ones too; what is in it is taken by leaves.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set, ValuesView
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as of

from bk_spark.rows.python.leaves import TAKE, NotTaken, refuse


@dataclass(eq=False)
class Unfit(Exception):
    """A value that is none of its column's; ``place`` is that of the value itself, ``visits.element.at``."""

    place: str
    value: Any
    reason: str


def exact(kind: pa.DataType, value: Any, place: str) -> Any:
    """The value as Arrow takes it for ``kind``, a stored type (arrow_types.py). Raises Unfit."""
    try:
        value = _bare(value)
        if value is None:
            return None
        if of.is_struct(kind):
            return _struct(kind, value, place)
        if of.is_map(kind):
            return [
                (_key(kind.key_type, key, f"{place}.key"), exact(kind.item_type, one, f"{place}.value"))
                for key, one in _pairs(value)
            ]
        if of.is_list(kind):
            return [exact(kind.value_type, one, f"{place}.element") for one in _elements(value)]
        for is_one, take in TAKE:
            if is_one(kind):
                return take(kind, value)
        refuse()
    except NotTaken as problem:
        reason = str(problem) or f"it is no {kind}: convert it before"
        raise Unfit(place, value, reason) from None


def _bare(value: Any) -> Any:
    """The value itself of one of numpy or Arrow that only wraps it; None for what stands for no value."""
    if isinstance(value, pa.Scalar):
        try:
            value = value.as_py()
        except (ValueError, OverflowError) as problem:
            refuse(f"Python has no such value ({problem}): convert it before")
    if isinstance(value, np.ma.core.MaskedConstant):
        return None
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return None if np.isnat(value) else value
    is_missing = type(value).__name__ in ("NaTType", "NAType") and type(value).__module__.startswith("pandas.")
    return None if is_missing else value


def _struct(kind: pa.StructType, value: Any, place: str) -> dict[str, Any]:
    given = _fields(kind, value)
    extra = next((name for name in given if not isinstance(name, str) or kind.get_field_index(name) < 0), None)
    if extra is not None:
        fields = ", ".join(field.name for field in kind)
        raise Unfit(f"{place}.{extra}", given[extra], f"'{place}' has no such field, it has {fields}: leave it out")
    return {field.name: exact(field.type, given.get(field.name), f"{place}.{field.name}") for field in kind}


def _fields(kind: pa.StructType, value: Any) -> Mapping[Any, Any]:
    """From a mapping, a named tuple, a tuple with all fields in their order, or pairs of name and value."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        own = getattr(value, "_fields", None) or getattr(value, "__fields__", None)
        if len(value) != (len(own) if own else kind.num_fields):
            refuse(f"it has {len(value)} values, a tuple for it has {kind.num_fields}: give a dict")
        return dict(zip(own or [field.name for field in kind], value, strict=True))
    if not isinstance(value, list):
        refuse()
    pairs = _pairs(value)
    names = [name for name, _ in pairs]
    if any(not isinstance(name, str) for name in names) or len(set(names)) < len(names):
        refuse("its pairs must have the names of fields, each once: give a dict")
    return dict(pairs)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    pairs = list(value) if isinstance(value, (list, tuple, Set)) else refuse()
    if not all(isinstance(one, (tuple, list)) and len(one) == 2 for one in pairs):
        refuse("it must be a dict, or a list of pairs: convert it before")
    return [(key, one) for key, one in pairs]


def _key(kind: pa.DataType, key: Any, place: str) -> Any:
    taken = exact(kind, key, place)
    if taken is None:
        raise Unfit(place, key, "a key of a map cannot be null: leave it out")
    return taken


def _elements(value: Any) -> Collection[Any]:
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)):
        refuse()
    if isinstance(value, (Sequence, Set, ValuesView, np.ndarray, pa.Array, pa.ChunkedArray)):
        return list(value)
    if type(value).__module__.startswith("pandas.") and getattr(value, "ndim", None) == 1:
        return list(value)
    if hasattr(value, "__arrow_c_stream__"):
        try:
            return list(pa.chunked_array(value))
        except (pa.ArrowException, TypeError, ValueError):
            pass
    return refuse()
