"""Deliberate bugs, one at a time, and within how many cases each is found: how sharp the net is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.types as of

from bk_spark.log.rows import append_rows, given_rows, row_form
from bk_spark.log.stored import merging, schema
from bk_spark.rows import arrow_types, conversion
from tests.soak.arrow.case import Broken, Case
from tests.soak.arrow.codec_log import CodecLog


@dataclass(frozen=True)
class Bug:
    """``within`` cases it is found, on the seeds from 0."""

    name: str
    patches: tuple[tuple[Any, str, Any], ...]
    within: int


@contextmanager
def _patched(patches: tuple[tuple[Any, str, Any], ...]) -> Iterator[None]:
    made = [mock.patch.object(where, name, new) for where, name, new in patches]
    for one in made:
        one.start()
    try:
        yield
    finally:
        for one in made:
            one.stop()


def run_case(seed: int) -> None:
    """One case on a log in memory. Raises whatever is found."""
    chance = random.Random(~seed)
    Case(seed, CodecLog(chance.choice(("none", "lz4", "zstd")), chance.choice((1, 3, 1000)))).run()


def found_after(bug: Bug, most: int) -> int | None:
    """The number of cases after which the bug is found; None if it is not."""
    with _patched(bug.patches):
        for seed in range(most):
            try:
                run_case(seed)
            except Exception:
                return seed + 1
    return None


_as_decimal128 = conversion._as_decimal128
_converted = conversion.converted
_of = conversion.Conversion.of
_spark_type = arrow_types._spark_type


def _same(given: Any) -> Any:
    return given


def _merged_without_new_columns(stored: list[Any], given: list[Any], place: str) -> list[Any]:
    known = {field["name"] for field in stored}
    return merging.merged_fields(stored, given, place)[: len(stored)] if known else given


def _without_views(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if of.is_dictionary(column.type) and (
        of.is_string_view(column.type.value_type) or of.is_binary_view(column.type.value_type)
    ):
        raise pa.ArrowNotImplementedError("no kernel")
    return _converted(column, wanted)


def _without_offsets(maps: pa.MapArray) -> pa.ListArray:
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], fields=[maps.type.key_field, maps.type.item_field])
    return pa.Array.from_buffers(pa.list_(entries.type), len(maps), maps.buffers()[:2], children=[entries])


def _without_nulls_of_structs(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if of.is_struct(column.type) and not column.type.equals(wanted):
        children = [conversion.converted(column.field(place), field.type) for place, field in enumerate(wanted)]
        return pa.StructArray.from_arrays(children, fields=list(wanted))
    return _converted(column, wanted)


def _first_batch(log: str, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    yield from list(stream)[:1]


def _without_zone(kind: pa.DataType, column: str) -> Any:
    found = _spark_type(kind, column)
    return "timestamp_ntz" if found == "timestamp" else found


def _nan_as_null(self: conversion.Conversion, batch: pa.RecordBatch) -> pa.RecordBatch:
    found = _of(self, batch)
    columns = [
        pa.array(column.to_numpy(zero_copy_only=False), column.type, from_pandas=True)
        if of.is_floating(column.type)
        else column
        for column in found.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=found.schema)


def _as_far_as_it_comes(log: str, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        yield from stream
    except Broken:
        return


def _unchecked(log: str, batch: pa.RecordBatch, timestamps: frozenset[str]) -> pa.RecordBatch:
    return batch


def _raw_refusal(log: str, name: str, column: pa.Array, check: Callable[[pa.Array], bool]) -> bool:
    return check(column)


def _without_place(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    found = _as_decimal128(column, wanted)
    return pa.Array.from_buffers(wanted, len(found), found.buffers())


BUGS: tuple[Bug, ...] = (
    Bug("a column that the first rows did not have is dropped", ((schema, "merged_fields", _merged_without_new_columns),), 40),
    Bug("the write does not check values", ((conversion, "is_sound", lambda column: True),), 150),
    Bug("the caller's memory is kept", ((append_rows, "in_own_memory", _same), (row_form, "in_own_memory", _same)), 20),
    Bug("a void column stays void", ((merging, "VOID", "none"),), 150),
    Bug("a dictionary of views is refused", ((conversion, "converted", _without_views),), 400),
    Bug("the offset of a slice of maps is ignored", ((conversion, "entries_of", _without_offsets),), 400),
    Bug("a null struct becomes one of nulls", ((conversion, "converted", _without_nulls_of_structs),), 80),
    Bug(
        "only the first chunk is taken", ((given_rows, "batches_of", _first_batch), (row_form, "batches_of", _first_batch)), 20
    ),
    Bug("the time zone is dropped", ((arrow_types, "_spark_type", _without_zone),), 80),
    Bug("a NaN becomes null", ((conversion.Conversion, "of", _nan_as_null),), 150),
    Bug(
        "a source that fails is taken as far as it came",
        ((given_rows, "batches_of", _as_far_as_it_comes), (row_form, "batches_of", _as_far_as_it_comes)),
        150,
    ),
    Bug("names that differ in case are taken", ((arrow_types, "_check_names", lambda names, place: None),), 600),
    Bug(
        "dates that timestamps cannot be are taken",
        ((append_rows, "check_dates", _unchecked), (row_form, "check_dates", _unchecked)),
        1500,
    ),
    Bug("what is malformed is a raw error", ((conversion, "_is_sound", _raw_refusal),), 200),
    Bug("the offset of a slice of wide decimals is ignored", ((conversion, "_as_decimal128", _without_place),), 400),
    Bug("empty slices are written as they are", ((conversion, "renewed", _same),), 800),
)
