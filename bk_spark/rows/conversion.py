"""Arrow data as programs hand it over → the form in which a log stores it, with the same values; or an error that names one.

Encodings of Arrow become plain columns, at any depth: dictionaries, runs, views, lists in views, large and fixed sizes. An
extension type is stored as what it is made of: ``arrow.uuid`` as its 16 bytes, ``arrow.json`` as its text.

What a read refuses is refused here, by the same check (validity.py).

Ref: docs/guide/python.md, "Types".
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of

from bk_spark.errors import ConfigError
from bk_spark.rows.arrow_types import arrow_schema, spark_schema
from bk_spark.rows.empty_slices import renewed
from bk_spark.rows.ranges import has_range
from bk_spark.rows.validity import (
    entries_of,
    far_date,
    has_time,
    is_sound,
    is_valid,
    ranged_leaves,
    seems_sound,
    time_text,
    without_text,
    wrong_value,
)

_MAX_ELEMENTS = 2**31 - 1
"""Of the arrays of one batch: a stored list has offsets of 32 bits."""

_CORRECT = "correct it, cast the column to another type, or leave the row out"


class Conversion:
    """Brings batches with the columns of ``given`` into the form in which ``log`` stores them, ``stored``.

    Raises ConfigError for types that a log does not have, and for columns whose names Spark cannot tell apart.
    """

    def __init__(self, log: str, given: pa.Schema) -> None:
        self._log = log
        self.given = given
        if not isinstance(given, pa.Schema) or not len(given):
            shown = str(given)[:200] if isinstance(given, pa.Schema) else type(given).__name__
            raise ConfigError(f"the schema for log '{log}'", shown, "it must be a pyarrow.Schema with at least one column")
        try:
            self.schema = spark_schema(given)
            """Spark's JSON."""
            self.stored = arrow_schema(self.schema)
        except ConfigError as problem:
            raise ConfigError(f"{problem.what} for log '{log}'", problem.value, problem.remedy) from None
        self._fits = given.equals(self.stored)
        self._is_plain = self._fits and not any(map(_has_more_than_numbers, given.types))

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows. Raises ConfigError where a value would be changed, or is none of its type."""
        if self._is_plain and batch.num_rows and is_valid(batch):  # one step for what takes several for each column
            return batch
        before = batch.columns
        given = [_renewed(column) if _has_children(column.type) or not batch.num_rows else column for column in before]
        columns = [self._column(column, field) for column, field in zip(given, self.stored, strict=True)]
        is_same = self._fits and all(new is old for new, old in zip(columns, before, strict=True))
        stored = batch if is_same else pa.RecordBatch.from_arrays(columns, schema=self.stored)
        check_values(self._log, stored)
        return stored

    def _column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.type.equals(field.type):
            return column
        _is_sound(self._log, field.name, column, seems_sound)
        try:
            return _renewed(converted(column, field.type))
        except pa.ArrowException as problem:
            remedy = f"it cannot be stored as {field.type} without loss ({problem}): cast or round the column before"
            raise ConfigError(_value_of(self._log, field.name), str(column.type), remedy) from None


def _has_children(kind: pa.DataType) -> bool:
    return bool(kind.num_fields or of.is_dictionary(kind))


def _has_more_than_numbers(kind: pa.DataType) -> bool:
    """Whether to be valid is more, or less, than a column of this type needs."""
    return bool(kind.num_fields or has_range(kind) or not without_text(kind).equals(kind))


def check_values(log: str, stored: pa.RecordBatch) -> None:
    """Raise ConfigError for a value that no reader takes."""
    for name, column in zip(stored.schema.names, stored.columns, strict=True):
        found = None if _is_sound(log, name, column, is_sound) else wrong_value(column, name)
        if found is not None:
            raise ConfigError(_value_of(log, found.place), found.value, f"no {found.kind} can be that: {_CORRECT}")
        _check_times(log, name, column)


def check_dates(log: str, batch: pa.RecordBatch, timestamps: Collection[str]) -> pa.RecordBatch:
    """The batch itself. Raises ConfigError for a date beyond those of timestamps at a place where it is read as one."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True) if timestamps else ():
        found = far_date(column, name, timestamps)
        if found is not None:
            remedy = f"the log has timestamps there, which end in the years -290308 and 294247: {_CORRECT}"
            raise ConfigError(_value_of(log, found.place), found.value, remedy)
    return batch


def converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same values as ``wanted``, a stored form of the column's type. Raises ArrowException where that is not possible."""
    kind = column.type
    if kind.equals(wanted):
        return column
    if not len(column):
        return pa.nulls(0, wanted)  # what an empty slice is a slice of may not be whole
    if isinstance(column, pa.ExtensionArray):
        return converted(renewed(column.storage), wanted)
    if of.is_run_end_encoded(kind):
        return _of_runs(column, wanted)
    if of.is_dictionary(kind):
        return _picked(column.dictionary, column.indices, wanted)
    if of.is_map(wanted):
        entries = pa.struct([wanted.key_field, wanted.item_field])
        return _maps_of(_as_list(entries_of(column), pa.list_(pa.field("entries", entries, nullable=False))), wanted)
    if of.is_list(wanted):
        return _as_list(column, wanted)
    if of.is_struct(wanted):
        # Flattened, a child is null where the struct is: what lies behind that null does not count.
        children = [converted(child, field.type) for child, field in zip(column.flatten(), wanted, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=column.is_null())
    return _as_decimal128(column, wanted) if of.is_decimal(kind) else column.cast(wanted)


def _as_list(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(column) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _MAX_ELEMENTS:
        raise pa.ArrowInvalid(f"{offsets[-1]} elements in one batch, the maximum is {_MAX_ELEMENTS}: give fewer rows at a time")
    if _is_joined_wrongly(column.type):
        values = _picked(column.values, pa.array(_places(column, lengths, offsets)), wanted.value_type)
    else:
        values = converted(column.flatten(), wanted.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=wanted, mask=column.is_null())


@cache
def _is_joined_wrongly(kind: pa.DataType) -> bool:
    """Whether Arrow may fail where it flattens lists of it: of some dictionaries it joins none, of halffloat wrong ones."""
    if of.is_dictionary(kind) or of.is_run_end_encoded(kind) or isinstance(kind, pa.BaseExtensionType):
        return True
    return any(_is_joined_wrongly(kind.field(place).type) for place in range(kind.num_fields))


def _places(column: pa.Array, lengths: npt.NDArray[Any], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where in ``column.values`` the elements of the lists are, in the order of the lists."""
    if of.is_fixed_size_list(column.type):
        starts = (column.offset + np.arange(len(column))) * column.type.list_size
    else:
        starts = column.offsets.to_numpy()[: len(column)]
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])


def _maps_of(entries: pa.ListArray, wanted: pa.DataType) -> pa.Array:
    """The maps whose keys and values ``entries`` lists."""
    return pa.Array.from_buffers(wanted, len(entries), entries.buffers()[:2], offset=entries.offset, children=[entries.values])


def _of_runs(runs: pa.RunEndEncodedArray, wanted: pa.DataType) -> pa.Array:
    """The value of each row. A slice of runs has the runs of the whole, and an offset."""
    places = np.arange(runs.offset, runs.offset + len(runs))
    return _picked(runs.values, pa.array(np.searchsorted(runs.run_ends, places, side="right")), wanted)


def _picked(values: pa.Array, places: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Those at ``places`` as ``wanted``. What is wrong with the others does not count."""
    values = renewed(values)
    try:
        return converted(values, wanted).take(places)
    except pa.ArrowInvalid as problem:
        try:
            chosen = values.take(places)
        except pa.ArrowNotImplementedError:
            raise problem from None
        return converted(chosen, wanted)


def _as_decimal128(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same numbers, also those with more digits than their type has: the check of the stored form finds and names them."""
    if column.type.bit_width < 128:
        return column.cast(pa.decimal128(38, wanted.scale)).view(wanted)
    validity, data = column.buffers()
    words = np.frombuffer(data, np.int64)[: 4 * (column.offset + len(column))].reshape(-1, 4)
    sign = words[column.offset :, 1:2] >> 63
    fits = (words[column.offset :, 2:] == sign).all(axis=1) | column.is_null().to_numpy(zero_copy_only=False)
    if not fits.all():
        raise pa.ArrowInvalid(f"{column[int(np.flatnonzero(~fits)[0])]} has more than 38 digits")
    numbers = pa.py_buffer(np.ascontiguousarray(words[:, :2]))
    return pa.Array.from_buffers(wanted, len(column), [validity, numbers], offset=column.offset)


def _is_sound(log: str, name: str, column: pa.Array, check: Callable[[pa.Array], bool]) -> bool:
    try:
        return check(column)
    except pa.ArrowException as problem:
        if of.is_date64(column.type):
            remedy = f"a date has no time of day ({problem}): cast the column to timestamp('ms') before, or to date32"
            raise ConfigError(_value_of(log, name), str(column.type), remedy) from None
        remedy = f"its buffers do not fit together ({problem}): whatever made it has a fault, and nothing of it was written"
        raise ConfigError(f"column '{name}' for log '{log}'", str(column.type), remedy) from None


def _check_times(log: str, name: str, column: pa.Array) -> None:
    """Raise ConfigError for a time with nanoseconds: Spark's has microseconds."""
    for place, leaf in ranged_leaves(column, name) if has_time(column.type) else ():
        if not of.is_time64(leaf.type):
            continue
        numbers = leaf.view(pa.int64()).to_numpy()
        is_cut = numbers // 1000 * 1000 != numbers
        if is_cut.any():
            remedy = "a time has microseconds, not nanoseconds: cast or round it before"
            raise ConfigError(_value_of(log, place), time_text(int(numbers[is_cut][0])), remedy)


def _renewed(column: pa.Array) -> pa.Array:
    """As it is where Arrow calls it malformed: the check that follows says so."""
    try:
        return renewed(column)
    except pa.ArrowException:
        return column


def _value_of(log: str, place: str) -> str:
    return f"a value of column '{place}' for log '{log}'"
