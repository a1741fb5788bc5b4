"""Values of Python, numpy and pandas as a column: by Arrow alone where their types tell that it keeps them, else one by one."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.types as of

from bk_spark.rows.python.values import exact

_NONE = type(None)
REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, KeyError)
"""What Arrow raises for values that are not of a column's type."""


def array_of_values(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """The values in the field's type, a stored one (arrow_types.py). Raises Unfit; one of REFUSED if they are too many."""
    if is_plain(field.type, values):
        try:
            return pa.array(values, field.type)
        except REFUSED:
            pass  # exact names the value
    return pa.array([exact(field.type, value, field.name) for value in values], field.type)


def is_plain(kind: pa.DataType, values: Sequence[Any]) -> bool:
    """Whether Arrow takes these values unchanged, or refuses them, by itself."""
    types = set(map(type, values))
    types.discard(_NONE)
    if not types:
        return True
    if kind.id not in _PLAIN:
        return bool(kind.num_fields) and _is_plain_inside(kind, values, types)
    return types <= _PLAIN[kind.id] and (kind.id not in _CHECKS or _CHECKS[kind.id](kind, values))


def _is_plain_inside(kind: pa.DataType, values: Sequence[Any], types: set[type]) -> bool:
    given = [value for value in values if value is not None]
    if of.is_struct(kind):
        names = [field.name for field in kind]
        if types != {dict} or not set().union(*given) <= set(names):
            return False
        return all(is_plain(field.type, [value.get(field.name) for value in given]) for field in kind)
    if of.is_map(kind):
        if types != {dict}:
            return False
        keys, items = list(chain.from_iterable(given)), list(chain.from_iterable(one.values() for one in given))
        return is_plain(kind.key_type, keys) and is_plain(kind.item_type, items)
    if not types <= {list, tuple, np.ndarray}:
        return False
    arrays = [value for value in given if type(value) is np.ndarray] if np.ndarray in types else []
    lists = [value for value in given if type(value) is not np.ndarray] if arrays else given
    return all(_is_plain_array(kind.value_type, one) for one in arrays) and is_plain(
        kind.value_type, list(chain.from_iterable(lists))
    )


def _is_plain_array(kind: pa.DataType, array: np.ndarray[Any, Any]) -> bool:
    if array.ndim != 1 or not array.dtype.isnative:
        return False
    is_whole = of.is_integer(kind) and array.dtype.kind in "iu"
    return is_whole or (of.is_float64(kind) and array.dtype == np.float64)


def _stay_finite(kind: pa.DataType, values: Sequence[Any]) -> bool:
    with np.errstate(over="ignore"):
        given = np.array(values, np.float64)
        rounded = given.astype(np.float32)
    return not (np.isinf(rounded) & np.isfinite(given) | (rounded == 0) & (given != 0)).any()


def _fit_zone(kind: pa.DataType, values: Sequence[Any]) -> bool:
    """Whether all have a zone, or none, as the type; and offsets of whole seconds, because Arrow cuts off the rest."""
    zones = {id(zone): zone for zone in (value.tzinfo for value in values if value is not None)}.values()
    if of.is_time(kind) or kind.tz is None:
        return all(zone is None for zone in zones)
    return all(
        type(zone) is ZoneInfo or (type(zone) is datetime.timezone and not zone.utcoffset(None).microseconds) for zone in zones
    )


_PLAIN: dict[int, frozenset[type]] = {
    **{kind.id: frozenset({int}) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    pa.float64().id: frozenset({float, int}),
    pa.float32().id: frozenset({float}),
    pa.string().id: frozenset({str}),
    pa.bool_().id: frozenset({bool}),
    pa.binary().id: frozenset({bytes}),
    pa.decimal128(1).id: frozenset({Decimal}),
    pa.date32().id: frozenset({datetime.date}),
    pa.timestamp("us").id: frozenset({datetime.datetime}),
    pa.time64("ns").id: frozenset({datetime.time}),
    pa.duration("us").id: frozenset({datetime.timedelta}),
}
"""Types of Python whose values Arrow keeps or refuses by itself; where there is a check, if it holds."""

_CHECKS: dict[int, Callable[[pa.DataType, Sequence[Any]], bool]] = {
    pa.float32().id: _stay_finite,
    pa.timestamp("us").id: _fit_zone,
    pa.time64("ns").id: _fit_zone,
}
