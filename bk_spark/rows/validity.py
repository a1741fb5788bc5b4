"""Whether the values of a column are values of its type: one check for rows that are written and for rows that are read.

A column that Arrow's full validation refuses is one of two things. It is *malformed* if its buffers do not fit together: then
nothing in it can be trusted. Or it holds a *wrong value*: a time of day beyond 24 hours, or a decimal with more digits than its
precision, which other programs hand over. Then all other values are what they are.

Text may be any bytes: a STRING of Spark need not be UTF-8. What lies behind a null does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of

from bk_spark.rows.malformed import check_whole
from bk_spark.rows.ranges import BYTES, has_range

DAY_NS = 86_400_000_000_000
LAST_DAY = (2**63 - 1) // 86_400_000_000
"""Of timestamps, counted from 1970 on; the first one is as far behind. They are in the years 294247 and -290308."""
_LOWEST = np.iinfo(np.int64).min
_EXACT = Context(prec=76)


@dataclass(frozen=True, slots=True)
class WrongValue:
    """A value that its type does not have."""

    place: str
    """Its column and what it is inside of: ``visits.element.at``."""
    value: str
    kind: pa.DataType


def is_sound(column: pa.Array) -> bool:
    """Whether no value of a column in a stored form (codec.py) can be wrong. Raises ArrowException for a malformed one."""
    if has_range(column.type) and _is_plainly_sound(column):
        return True
    return seems_sound(column) and not (has_decimal(column.type) and any(map(_has_lowest, ranged_leaves(column))))


def seems_sound(column: pa.Array) -> bool:
    """Whether Arrow takes all values of a column in any form. Raises ArrowException for a malformed one."""
    # A view of a slice may be malformed where the slice is not, so what Arrow says of the column itself counts, too.
    if is_valid(_seen_as(column, without_text(column.type))) or is_valid(column):
        return True
    check_whole(column)
    return False


def wrong_value(column: pa.Array, name: str) -> WrongValue | None:
    """The first wrong value of a column that is not malformed, in a stored form (codec.py); None if there is none."""
    for place, leaf in ranged_leaves(column, name):
        find = _wrong_time if of.is_time64(leaf.type) else _wrong_decimal
        value = find(leaf)
        if value is not None:
            return WrongValue(place, value, leaf.type)
    return None


def far_date(column: pa.Array, name: str, places: Collection[str] | None = None) -> WrongValue | None:
    """The first date, of those at ``places`` or of all, that no timestamp can be: those have 64 bits of microseconds."""
    for place, leaf in _leaves(column, name, of.is_date32):
        days = leaf.view(pa.int32()).to_numpy() if places is None or place in places else np.zeros(0, np.int32)
        beyond = np.flatnonzero(np.abs(days.astype(np.int64)) > LAST_DAY)
        if len(beyond):
            return WrongValue(place, str(np.datetime64(int(days[beyond[0]]), "D")).lstrip("+"), leaf.type)
    return None


def ranged_leaves(column: pa.Array, place: str = "") -> Iterator[tuple[str, pa.Array]]:
    """The times and decimals in a column, each with its place; without those behind a null of what they are inside of."""
    yield from _leaves(column, place, has_range)


def _leaves(column: pa.Array, place: str, is_wanted: Callable[[pa.DataType], bool]) -> Iterator[tuple[str, pa.Array]]:
    kind = column.type
    if of.is_struct(kind):
        for field, child in zip(kind, column.flatten(), strict=True):
            yield from _leaves(child, f"{place}.{field.name}", is_wanted)
    elif of.is_map(kind):
        entries = entries_of(column).flatten()
        yield from _leaves(entries.field(0), f"{place}.key", is_wanted)
        yield from _leaves(entries.field(1), f"{place}.value", is_wanted)
    elif of.is_list(kind):
        yield from _leaves(column.flatten(), f"{place}.element", is_wanted)
    elif is_wanted(kind):
        yield place, column.drop_null()


@cache
def has_decimal(kind: pa.DataType) -> bool:
    """Whether a type is, or holds, a decimal of 128 bits."""
    return bool(of.is_decimal128(kind)) or any(has_decimal(kind.field(place).type) for place in range(kind.num_fields))


@cache
def has_time(kind: pa.DataType) -> bool:
    """Whether a type is, or holds, a time of day."""
    return bool(of.is_time(kind)) or any(has_time(kind.field(place).type) for place in range(kind.num_fields))


def entries_of(maps: pa.MapArray) -> pa.ListArray:
    """The maps as lists of structs of their keys and values."""
    fields = [maps.type.key_field, maps.type.item_field]
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], fields=fields)
    return pa.Array.from_buffers(pa.list_(entries.type), len(maps), maps.buffers()[:2], offset=maps.offset, children=[entries])


@cache
def without_text(kind: pa.DataType) -> pa.DataType:
    """The same type with bytes in place of text, at any depth."""
    return BYTES.get(kind) or _rebuilt(kind, without_text)


def _is_plainly_sound(column: pa.Array) -> bool:
    """Whether a look at the bits of times or decimals shows that all are values. It takes half of the time of Arrow's check."""
    if column.null_count or not len(column):
        return False
    column.validate()
    kind = column.type
    if of.is_time64(kind):
        numbers = column.view(pa.int64()).to_numpy()
        return bool(numbers.min() >= 0 and numbers.max() < DAY_NS // (1 if kind.unit == "ns" else 1000))
    if not of.is_decimal128(kind):
        return False
    low, high = _halves(column)
    whole = 10**kind.precision >> 64
    if whole:  # between -whole and whole - 1 the upper half alone decides
        return bool(high.min() >= -whole and high.max() < whole)
    if high.min() < -1 or high.max() > 0:
        return False
    sizes = low ^ high  # of a number of 64 bits: itself, or -1 - itself; negative where it has more bits
    return bool(sizes.min() >= 0 and sizes.max() < 10**kind.precision - 1)


def _halves(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The lower and the upper 64 bits of decimals."""
    words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
    return words[:, 0], words[:, 1]


def _has_lowest(place_and_leaf: tuple[str, pa.Array]) -> bool:
    """Whether one of some decimals is the lowest number of 128 bits, which Arrow's check takes for one of few digits."""
    _, leaf = place_and_leaf
    if not of.is_decimal128(leaf.type) or not len(leaf):
        return False
    low, high = _halves(leaf)
    return bool(((high == _LOWEST) & (low == 0)).any())


def is_valid(column: pa.Array | pa.RecordBatch) -> bool:
    """What Arrow says of it."""
    try:
        column.validate(full=True)
    except pa.ArrowException:
        return False
    return True


def _seen_as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same buffers as another type; as they are where Arrow cannot, such as a slice of structs of nulls."""
    if column.type.equals(kind):
        return column
    try:
        return column.view(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column


def _rebuilt(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return change(kind.storage_type)
    if of.is_struct(kind):
        return pa.struct([field.with_type(change(field.type)) for field in kind])
    if of.is_map(kind):
        return pa.map_(change(kind.key_type), kind.item_field.with_type(change(kind.item_type)))
    if of.is_dictionary(kind):
        return pa.dictionary(kind.index_type, change(kind.value_type), kind.ordered)
    if of.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(change(kind.value_type)), kind.list_size)
    for is_one, make in _LISTS:
        if is_one(kind):
            return make(kind.value_field.with_type(change(kind.value_type)))
    return kind


_LISTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Field], pa.DataType]], ...] = (
    (of.is_list, pa.list_),
    (of.is_large_list, pa.large_list),
    (of.is_list_view, pa.list_view),
    (of.is_large_list_view, pa.large_list_view),
)


def _wrong_time(leaf: pa.Array) -> str | None:
    numbers = leaf.view(pa.int64())
    is_wrong = pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, DAY_NS))
    place = is_wrong.index(True).as_py()
    return None if place < 0 else time_text(numbers[place].as_py())


def _wrong_decimal(leaf: pa.Array) -> str | None:
    if is_valid(leaf) and not _has_lowest(("", leaf)):
        return None
    limit = 10**leaf.type.precision
    numbers = (int.from_bytes(one, "little", signed=True) for one in leaf.view(pa.binary(16)).to_pylist())
    wrong = next((number for number in numbers if not -limit < number < limit), None)
    return None if wrong is None else str(Decimal(wrong).scaleb(-leaf.type.scale, _EXACT))


def time_text(nanoseconds: int) -> str:
    """A time of day as SQL spells it, also one beyond 24 hours."""
    seconds, rest = divmod(abs(nanoseconds), 1_000_000_000)
    sign = "-" if nanoseconds < 0 else ""
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
