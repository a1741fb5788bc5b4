"""Values as Arrow may hold them: slices, dictionaries, runs, views, other units and widths, and junk behind nulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as of

from tests.soak.arrow.shapes import EXACT, NAN, Drawing, Shape

_NUMBERS = {name: getattr(pa, name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")}
_DECIMALS = {4: (9, pa.decimal32), 8: (18, pa.decimal64), 16: (38, pa.decimal128), 32: (76, pa.decimal256)}
"""Bytes → the most digits, and the type."""
_UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}


def encoded(shape: Shape, values: Sequence[Any], drawing: Drawing) -> tuple[pa.Array, pa.DataType]:
    """The values in some form, and the stored type of what is given: null where only nulls are."""
    chance = drawing.chance
    if chance.random() < 0.3:
        junk = Drawing(chance)
        before, behind = ([junk.value(shape) for _ in range(chance.randint(0, 3))] for _ in range(2))
        column, kind = _formed(shape, [*before, *values, *behind], drawing)
        return column.slice(len(before), len(values)), kind
    if chance.random() < 0.3 and all(one is None for one in values):
        return pa.nulls(len(values)), pa.null()
    return _formed(shape, values, drawing)


def _formed(shape: Shape, values: Sequence[Any], drawing: Drawing) -> tuple[pa.Array, pa.DataType]:
    form = drawing.chance.random()
    if form < 0.12 and not of.is_map(shape.type):
        return _dictionary(shape, values, drawing)
    if form < 0.2 and values:
        return _runs(shape, values, drawing)
    if shape.leaf:
        return _leaf(shape, values, drawing), shape.type
    if of.is_struct(shape.type):
        return _struct(shape, values, drawing)
    return _map(shape, values, drawing) if of.is_map(shape.type) else _list(shape, values, drawing)


def _dictionary(shape: Shape, values: Sequence[Any], drawing: Drawing) -> tuple[pa.Array, pa.DataType]:
    chance = drawing.chance
    entries: list[Any] = [Drawing(chance).value(shape)]  # nobody refers to it
    indices: list[int | None] = []
    for value in values:
        if value is None and chance.random() < 0.5:
            indices.append(None)
            continue
        entries.append(value)
        indices.append(len(entries) - 1)
    column, kind = _plain_form(shape, entries, drawing)
    index = chance.choice((pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint32()))
    try:
        return pa.DictionaryArray.from_arrays(pa.array(indices, index), column), kind
    except pa.ArrowInvalid:  # it looks at the entries, of which one is wrong
        return _plain_form(shape, values, drawing)


def _runs(shape: Shape, values: Sequence[Any], drawing: Drawing) -> tuple[pa.Array, pa.DataType]:
    ends = [place + 1 for place in range(len(values)) if place + 1 == len(values) or values[place] != values[place + 1]]
    column, kind = _plain_form(shape, [values[end - 1] for end in ends], drawing)
    try:
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, drawing.chance.choice((pa.int16(), pa.int32()))), column), kind
    except pa.ArrowInvalid:  # it looks at the values, of which one is wrong
        return _plain_form(shape, values, drawing)


def _plain_form(shape: Shape, values: Sequence[Any], drawing: Drawing) -> tuple[pa.Array, pa.DataType]:
    if shape.leaf:
        return _leaf(shape, values, drawing), shape.type
    if of.is_struct(shape.type):
        return _struct(shape, values, drawing)
    return _map(shape, values, drawing) if of.is_map(shape.type) else _list(shape, values, drawing)


def _struct(shape: Shape, values: Sequence[Any], drawing: Drawing) -> tuple[pa.Array, pa.DataType]:
    junk = Drawing(drawing.chance, 0.3 if drawing.hides_wrong else 0.0)
    filled = [junk.value(shape, 0.0) if one is None else one for one in values]
    fields, kinds = [], []
    for field, child in zip(shape.type, shape.inner, strict=True):
        column, kind = encoded(child, [one[field.name] for one in filled], drawing)
        fields.append(column)
        kinds.append((field.name, kind))
    names = [field.name for field in shape.type]
    mask = pa.array([one is None for one in values], pa.bool_())
    return pa.StructArray.from_arrays(fields, names, mask=mask), pa.struct(kinds)


def _map(shape: Shape, values: Sequence[Any], drawing: Drawing) -> tuple[pa.Array, pa.DataType]:
    pairs = [pair for one in values if one is not None for pair in one]
    offsets = np.cumsum([0, *(0 if one is None else len(one) for one in values)])
    keys = _leaf(shape.inner[0], [key for key, _ in pairs], drawing)
    items, kind = encoded(shape.inner[1], [item for _, item in pairs], drawing)
    entries = pa.map_(keys.type, items.type)
    mask = pa.array([one is None for one in values], pa.bool_())
    made = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=entries, mask=mask)
    return made, pa.map_(shape.inner[0].type, kind)


def _list(shape: Shape, values: Sequence[Any], drawing: Drawing) -> tuple[pa.Array, pa.DataType]:
    chance, [inner] = drawing.chance, shape.inner
    sizes = {len(one) for one in values if one is not None}
    form = chance.choice(("list", "large", "view", "large view", "fixed"))
    nulls = pa.array([one is None for one in values], pa.bool_())
    if form == "fixed" and len(sizes) == 1 and sizes != {0}:
        [size] = sizes
        junk = tuple(Drawing(chance).value(inner) for _ in range(size))
        child, kind = encoded(inner, [each for one in values for each in (junk if one is None else one)], drawing)
        return pa.FixedSizeListArray.from_arrays(child, size, mask=nulls), pa.list_(kind)
    if "view" in form:
        return _list_view(inner, values, drawing, is_large="large" in form)
    child, kind = encoded(inner, [each for one in values if one is not None for each in one], drawing)
    offsets = np.cumsum([0, *(0 if one is None else len(one) for one in values)])
    is_large = form == "large"
    made = pa.LargeListArray if is_large else pa.ListArray
    return made.from_arrays(pa.array(offsets, pa.int64() if is_large else pa.int32()), child, mask=nulls), pa.list_(kind)


def _list_view(inner: Shape, values: Sequence[Any], drawing: Drawing, *, is_large: bool) -> tuple[pa.Array, pa.DataType]:
    """The elements lie in another order than the lists."""
    offsets, elements = [0] * len(values), []
    for row in drawing.chance.sample(range(len(values)), len(values)):
        offsets[row] = len(elements)
        elements += values[row] or ()
    child, kind = encoded(inner, elements, drawing)
    number = pa.int64() if is_large else pa.int32()
    sizes = [0 if one is None else len(one) for one in values]
    made = pa.LargeListViewArray if is_large else pa.ListViewArray
    nulls = pa.array([one is None for one in values], pa.bool_())
    return made.from_arrays(pa.array(offsets, number), pa.array(sizes, number), child, mask=nulls), pa.list_(kind)


def _leaf(shape: Shape, values: Sequence[Any], drawing: Drawing) -> pa.Array:
    chance, name, kind = drawing.chance, shape.leaf, shape.type
    if name in _NUMBERS:
        return _over_junk(values, _NUMBERS[name](), _NUMBERS[name](), 1)
    if name == "uint64":
        return pa.array([None if one is None else int(one) for one in values], pa.uint64())
    if name in ("half", "float", "double"):
        numbers = [float("nan") if one == NAN else one for one in values]
        return pa.array(numbers, pa.float16() if name == "half" else kind)
    if name in ("string", "binary"):
        return _bytes(values, name, chance.choice(("", "large_", "_view")))
    if name == "uuid":
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    if name == "json":
        texts = pa.array([None if one is None else one.decode() for one in values], pa.string())
        return pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts)
    if of.is_decimal(kind):
        widths = [width for width, (most, _) in _DECIMALS.items() if kind.precision <= most]
        return _decimals(values, kind, 16 if drawing.wrong_share else chance.choice(widths))
    if name == "date":
        if chance.random() < 0.3:
            return _over_junk(values, pa.int64(), pa.date64(), 86_400_000)
        return _over_junk(values, pa.int32(), kind, 1)
    return _times(name, values, kind, drawing) if name != "bool" else pa.array(values, kind)


def _times(name: str, values: Sequence[Any], kind: pa.DataType, drawing: Drawing) -> pa.Array:
    chance = drawing.chance
    known = [one for one in values if one is not None]
    if name == "time":
        fitting = [pa.time64("ns"), *(pa.time64("us") for _ in range(1))]
        fitting += [pa.time32("ms")] if all(one % 1_000_000 == 0 and abs(one) < 2**40 for one in known) else []
        chosen = chance.choice(fitting)
        each = {"ns": 1, "us": 1000, "ms": 1_000_000}[chosen.unit]
        of_bits = pa.int32() if chosen.bit_width == 32 else pa.int64()
        scaled = [None if one is None else one // each for one in values]
        return _over_junk(scaled, of_bits, chosen, 1)
    unit = chance.choice([one for one, each in _UNITS.items() if all(value % each == 0 for value in known)] + ["ns"])
    if unit == "ns" and any(abs(one) > 9 * 10**15 for one in known):
        unit = "us"
    scaled = [None if one is None else one * 1000 if unit == "ns" else one // _UNITS[unit] for one in values]
    if name == "duration":
        return _over_junk(scaled, pa.int64(), pa.duration(unit), 1)
    zone = chance.choice(("UTC", "Europe/Berlin", "+05:30")) if name == "timestamp" else None
    return _over_junk(scaled, pa.int64(), pa.timestamp(unit, zone), 1)


def _bytes(values: Sequence[Any], name: str, form: str) -> pa.Array:
    plain, large, view = (
        (pa.binary(), pa.string()),
        (pa.large_binary(), pa.large_string()),
        (pa.binary_view(), pa.string_view()),
    )
    binary, text = {"": plain, "large_": large, "_view": view}[form]
    column = pa.array(values, binary)
    return column.view(text) if name == "string" else column


def _decimals(values: Sequence[Any], kind: pa.DataType, width: int) -> pa.Array:
    numbers = [None if one is None else int(one.scaleb(kind.scale, EXACT)) for one in values]
    raw = pa.array([None if one is None else one.to_bytes(width, "little", signed=True) for one in numbers], pa.binary(width))
    return raw.view(_DECIMALS[width][1](kind.precision, kind.scale))


def _over_junk(values: Sequence[Any], storage: pa.DataType, kind: pa.DataType, each: int) -> pa.Array:
    """With the largest number behind every null, which is a wrong time."""
    largest = 2 ** (storage.bit_width - 1) - 1
    junk = 0 if of.is_date64(kind) else largest
    numbers = pa.array([junk if one is None else one * each for one in values], storage)
    if None not in values:
        return numbers.view(kind)
    validity = pa.array([None if one is None else True for one in values], pa.bool_()).buffers()[0]
    return pa.Array.from_buffers(kind, len(values), [validity, numbers.buffers()[1]])
