"""What a column means, apart from how Arrow may hold it: its stored type, and values in one plain form.

Plain values: None, bool, int (numbers; days of dates, microseconds of timestamps and durations, nanoseconds of times), float,
Decimal, bytes (texts, too), a tuple for a list, a dict for a struct, a tuple of pairs for a map. A NaN is the text ``NaN``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as of

DAY_NS = 86_400_000_000_000
NAN = "NaN"
EXACT = Context(prec=76)
MAX_DEPTH = 10


@dataclass(frozen=True)
class Shape:
    """A stored type. ``leaf`` is a name in LEAVES; empty for a nested one."""

    type: pa.DataType
    leaf: str = ""
    inner: tuple[Shape, ...] = ()


@dataclass
class Drawing:
    """Where values come from; ``wrong`` are those that no reader takes."""

    chance: random.Random
    wrong_share: float = 0.0
    hides_wrong: bool = False
    """Wrong values lie behind nulls."""
    wrong: list[Any] = field(default_factory=list)

    def value(self, shape: Shape, null_share: float = 0.2) -> Any:
        chance = self.chance
        if chance.random() < null_share:
            return None
        if shape.leaf:
            if shape.leaf in WRONG and chance.random() < self.wrong_share:
                self.wrong.append(WRONG[shape.leaf](chance))
                return self.wrong[-1]
            return LEAVES[shape.leaf][1](chance)
        if of.is_struct(shape.type):
            return {one.name: self.value(child) for one, child in zip(shape.type, shape.inner, strict=True)}
        if of.is_map(shape.type):
            key, item = shape.inner
            return tuple((self.value(key, 0.0), self.value(item)) for _ in range(chance.choice((0, 1, 2))))
        return tuple(self.value(shape.inner[0]) for _ in range(chance.choice((0, 1, 2, 2))))


def _whole(low: int, high: int) -> Callable[[random.Random], int]:
    return lambda chance: chance.choice((low, high, 0, chance.randint(low, high)))


def _decimal(precision: int, scale: int) -> Callable[[random.Random], Decimal]:
    top = 10**precision - 1
    return lambda chance: Decimal(chance.choice((-top, top, 0, chance.randint(-top, top)))).scaleb(-scale, EXACT)


def _float(chance: random.Random) -> Any:
    return chance.choice((NAN, float("inf"), float("-inf"), 0.5, -2.25, 0.0, float(chance.randint(-2000, 2000))))


def _text(chance: random.Random) -> bytes:
    return chance.choice(("", "x", "žluť😀", "a longer text than a view holds within itself", str(chance.random()))).encode()


def _bytes(chance: random.Random) -> bytes:
    return chance.choice((b"", b"\xff\x00", chance.randbytes(chance.randint(1, 40))))


DECIMALS = ((4, 2), (38, 10), (1, 0), (9, 9), (18, 5), (38, 38))
"""Precisions at the edges of Arrow's widths, and scales."""

LAST_DAY = 106_751_991
FAR_DAYS = (LAST_DAY, -LAST_DAY, LAST_DAY + 1, -LAST_DAY - 1, 2**31 - 1)
"""Dates at the edge of timestamps, which have 64 bits of microseconds, and beyond it."""

_UNITS = (1, 1000, 1_000_000)


def _moment(chance: random.Random) -> int:
    return chance.randint(-(10**12), 4 * 10**9) * 1000 * chance.choice(_UNITS) // 1000


LEAVES: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "bool": (pa.bool_(), lambda chance: chance.random() < 0.5),
    **{
        f"int{bits}": (getattr(pa, f"int{bits}")(), _whole(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)) for bits in (8, 16, 32, 64)
    },
    "uint8": (pa.int16(), _whole(0, 2**8 - 1)),
    "uint16": (pa.int32(), _whole(0, 2**16 - 1)),
    "uint32": (pa.int64(), _whole(0, 2**32 - 1)),
    "uint64": (pa.decimal128(20, 0), lambda chance: Decimal(_whole(0, 2**64 - 1)(chance))),
    "half": (pa.float32(), _float),
    "float": (pa.float32(), _float),
    "double": (pa.float64(), _float),
    **{f"decimal({p},{s})": (pa.decimal128(p, s), _decimal(p, s)) for p, s in DECIMALS},
    "string": (pa.string(), _text),
    "json": (pa.string(), lambda chance: b'{"a": 1}'),
    "binary": (pa.binary(), _bytes),
    "uuid": (pa.binary(), lambda chance: chance.randbytes(16)),
    "date": (
        pa.date32(),
        lambda chance: _whole(-700_000, 2_900_000)(chance) if chance.random() < 0.95 else chance.choice(FAR_DAYS),
    ),
    "timestamp": (pa.timestamp("us", "UTC"), _moment),
    "timestamp_ntz": (pa.timestamp("us"), _moment),
    "time": (pa.time64("ns"), lambda chance: chance.randrange(86_400_000_000 // 1000) * 1000 * chance.choice((1, 1000))),
    "duration": (pa.duration("us"), _moment),
}
"""Name → stored type, and a value of it."""

WRONG: dict[str, Callable[[random.Random], Any]] = {
    "time": lambda chance: chance.choice((DAY_NS, -1000, 2 * DAY_NS + 1000)),
    "decimal(4,2)": lambda chance: Decimal(chance.choice((10**4, -(10**4), 12345))).scaleb(-2, EXACT),
    "decimal(38,10)": lambda chance: Decimal(chance.choice((10**38, -(10**38), -(2**127)))).scaleb(-10, EXACT),
}
"""Values that Arrow's buffers can hold, though the type does not have them."""

_NAMES = ("a", "b", "c", "Größe", "with.dot", "with space", "element")


def draw_leaf(chance: random.Random) -> Shape:
    name = "string" if chance.random() < 0.1 else "date" if chance.random() < 0.1 else chance.choice(tuple(LEAVES))
    return Shape(LEAVES[name][0], name)


def draw_shape(chance: random.Random, depth: int) -> Shape:
    """Nested at most ``depth`` deep."""
    kind = chance.choice(("leaf", "list", "struct", "map")) if depth > 0 else "leaf"
    if kind == "leaf":
        return draw_leaf(chance)
    if kind == "struct":
        names = chance.sample(_NAMES, chance.randint(1, 3))
        return struct_of(dict(zip(names, (draw_shape(chance, depth - 1) for _ in names), strict=True)))
    inner = draw_shape(chance, depth - 1)
    if kind == "map":
        key = chance.choice(("int32", "string"))
        return Shape(pa.map_(LEAVES[key][0], inner.type), "", (Shape(LEAVES[key][0], key), inner))
    return Shape(pa.list_(inner.type), "", (inner,))


def struct_of(fields: dict[str, Shape]) -> Shape:
    return Shape(pa.struct([(name, one.type) for name, one in fields.items()]), "", tuple(fields.values()))


def plain(column: pa.Array) -> list[Any]:
    """The plain values of a column in a stored form, found by its buffers alone."""
    kind, valid = column.type, column.is_valid().to_pylist()
    if of.is_null(kind):
        return [None] * len(column)
    if of.is_struct(kind):
        children = [plain(column.field(place)) for place in range(kind.num_fields)]
        rows: list[Any] = [
            {one.name: child[row] for one, child in zip(kind, children, strict=True)} for row in range(len(column))
        ]
    elif of.is_map(kind):
        keys, items, offsets = plain(column.keys), plain(column.items), column.offsets.to_pylist()
        rows = [tuple(zip(keys[a:b], items[a:b], strict=True)) for a, b in itertools.pairwise(offsets)]
    elif of.is_list(kind):
        values, offsets = plain(column.values), column.offsets.to_pylist()
        rows = [tuple(values[a:b]) for a, b in itertools.pairwise(offsets)]
    elif of.is_string(kind):
        rows = column.view(pa.binary()).to_pylist()
    elif of.is_date(kind):
        rows = column.view(pa.int32()).to_pylist()
    elif of.is_timestamp(kind) or of.is_time(kind) or of.is_duration(kind):
        rows = column.view(pa.int64()).to_pylist()
    elif of.is_floating(kind):
        rows = [NAN if one is not None and one != one else one for one in column.to_pylist()]
    else:
        rows = column.to_pylist()
    return [row if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]
