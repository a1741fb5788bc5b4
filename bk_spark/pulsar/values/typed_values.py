"""The values of a topic's messages → a column of the type that the topic's newest schema describes.

::

    NONE BYTES                       binary, as they are
    STRING, numbers, times           primitive_values.py
    JSON                             json_values.py, by the newest definition
    AVRO                             avro_values.py, from the definition of the message's own version to the newest
    KEY_VALUE, both in the value     struct<key, value>: int32 size of the key, key, int32 size of the value, value;
                                     a size of -1 means null
    KEY_VALUE, separated             the value only; the key is in the column key

Each message names the version of the schema that it was written with; one that names none counts as written with the newest.
A message whose version has another type than the newest does not fit.

Ref: KeyValue and KeyValueSchemaInfo of pulsar-common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.entries.batch import int64s
from bk_spark.entries.digest import payload_offsets, payload_sizes
from bk_spark.errors import ConfigError
from bk_spark.pulsar.schemas import BYTES_TYPES, RAW, TopicSchema
from bk_spark.pulsar.slices import bitmap
from bk_spark.pulsar.values.avro_values import AvroValues
from bk_spark.pulsar.values.converted import Converted, ValueProblem, in_order, joined, valid_rows
from bk_spark.pulsar.values.json_values import JsonValues
from bk_spark.pulsar.values.primitive_values import FIXED_TYPES, fixed_values, text_codec, text_values

Convert = Callable[[pa.BinaryArray, TopicSchema], Converted]
"""Values that were all written with one schema → a column."""

_PIECES: Final = 5
"""Of an inline KEY_VALUE: size, key, size, value, and what is left over."""


class ValueReader:
    """Reads values as columns of the type ``arrow_type``. One thread uses it. It can be sent to other processes.

    Raises ConfigError for a schema that has no column type, such as PROTOBUF, and for AVRO without fastavro.
    """

    def __init__(self, newest: TopicSchema) -> None:
        self.newest: Final = newest
        arrow_type, self._convert = _reader(newest)
        self.arrow_type: Final = arrow_type

    def __reduce__(self) -> tuple[type[ValueReader], tuple[TopicSchema]]:
        return ValueReader, (self.newest,)

    def convert(self, values: pa.BinaryArray, versions: pa.BinaryArray, schema_of: Callable[[bytes], TopicSchema]) -> Converted:
        """Values as a column; ``versions`` has the schema version of each (binary), null or empty for none.

        ``schema_of`` gives the schema of a version. What it raises passes through.
        """
        parts = []
        for rows, version in _groups(values, versions):
            written = self.newest if version is None else schema_of(version)
            chosen = values if len(rows) == len(values) else values.take(int64s(rows))
            parts.append((rows, self.convert_written(chosen, written)))
        return parts[0][1] if len(parts) == 1 else in_order(parts)

    def convert_written(self, values: pa.BinaryArray, written: TopicSchema) -> Converted:
        """Values that were all written with one schema, as a column."""
        problem = _mismatch(self.newest, written)
        if problem is None:
            return self._convert(values, written)
        found = [ValueProblem(row, problem) for row in np.flatnonzero(valid_rows(values)).tolist()]
        return Converted(pa.nulls(len(values), self.arrow_type), tuple(found))


def _groups(values: pa.BinaryArray, versions: pa.BinaryArray) -> Iterator[tuple[npt.NDArray[np.int64], bytes | None]]:
    """Rows with the same version, which is None for those without one. A value that is null needs no version."""
    numbers = np.full(len(values), -1, np.int64)
    named = valid_rows(values) & valid_rows(versions) & (payload_sizes(versions) > 0)
    if named.any():
        encoded = versions.dictionary_encode()
        numbers[named] = np.frombuffer(encoded.indices.buffers()[1], np.int32, len(values))[named]
    first = int(numbers[0]) if len(numbers) else -1
    for number in [first] if (numbers == first).all() else np.unique(numbers).tolist():
        yield np.flatnonzero(numbers == number), None if number < 0 else encoded.dictionary[number].as_py()


def _mismatch(newest: TopicSchema, written: TopicSchema) -> str | None:
    """Why values of one schema cannot be read as the other; None if they can."""
    if newest.type in BYTES_TYPES:
        return None
    if (newest.type, newest.is_separated) == (written.type, written.is_separated):
        return None
    names = [f"{one.type} (separated)" if one.is_separated else one.type for one in (written, newest)]
    return f"it was written with a schema of type {names[0]}, and the topic's newest one is {names[1]}"


def _reader(newest: TopicSchema) -> tuple[pa.DataType, Convert]:
    """The type of the column, and what makes it."""
    kind, definition = newest.type, newest.definition or ""
    if kind in BYTES_TYPES:
        return pa.binary(), lambda values, written: Converted(values)
    if kind == "STRING":
        text_codec(_charset(newest))
        return pa.string(), lambda values, written: text_values(values, _charset(written))
    if kind in FIXED_TYPES:
        return FIXED_TYPES[kind].arrow, lambda values, written: fixed_values(kind, values)
    if kind == "JSON":
        documents = JsonValues(definition)
        return documents.type.arrow, lambda values, written: documents.convert(values)
    if kind == "AVRO":
        records = AvroValues(definition)
        return records.type.arrow, lambda values, written: records.convert(values, written.definition or "")
    if kind == "KEY_VALUE" and newest.key and newest.value:
        return _separated(newest.value) if newest.is_separated else _inline(newest.key, newest.value)
    raise ConfigError("the type of the topic's schema", kind, f"it has no column type: {RAW}")


def _charset(schema: TopicSchema) -> str:
    return schema.property_of("__charset") or "UTF-8"


def _separated(newest: TopicSchema) -> tuple[pa.DataType, Convert]:
    reader = ValueReader(newest)
    return reader.arrow_type, lambda values, written: reader.convert_written(values, _part(written.value))


def _inline(key: TopicSchema, value: TopicSchema) -> tuple[pa.DataType, Convert]:
    keys, items = ValueReader(key), ValueReader(value)
    arrow = pa.struct([pa.field("key", keys.arrow_type), pa.field("value", items.arrow_type)])

    def convert(values: pa.BinaryArray, written: TopicSchema) -> Converted:
        key_bytes, value_bytes, cut = _keys_and_values(values)
        parts = [
            keys.convert_written(key_bytes, _part(written.key)),
            items.convert_written(value_bytes, _part(written.value)),
        ]
        problems = joined(cut, *(part.problems for part in parts))
        valid = valid_rows(values)
        valid[[one.row for one in problems]] = False
        columns = [part.values for part in parts]
        nulls = pa.Array.from_buffers(pa.bool_(), len(values), [None, bitmap(~valid)])
        return Converted(pa.StructArray.from_arrays(columns, fields=list(arrow), mask=nulls), problems)

    return arrow, convert


def _part(schema: TopicSchema | None) -> TopicSchema:
    assert schema is not None  # of a KEY_VALUE
    return schema


def _keys_and_values(values: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BinaryArray, Sequence[ValueProblem]]:
    """Keys and values of inline KEY_VALUEs, null where they are, and the rows whose sizes do not add up."""
    offsets = payload_offsets(values).astype(np.int64)
    start, end, valid = offsets[:-1], offsets[1:], valid_rows(values)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    key_at = start + 4
    key_size, has_key = _size(data, start, end, valid)
    value_at = key_at + np.maximum(key_size, 0) + 4
    value_size, has_value = _size(data, value_at - 4, end, has_key)
    value_end = value_at + np.maximum(value_size, 0)
    fits = has_key & has_value & (value_end == end)
    places = np.stack([start, key_at, value_at - 4, value_at, value_end], axis=1)
    places[~fits] = start[~fits][:, None]  # places never go back, also where sizes are damaged
    pieces = _pieces(values, np.append(places.reshape(-1), offsets[-1:]))
    number = np.arange(len(values)) * _PIECES
    keys = _taken(pieces, number + 1, fits & (key_size >= 0))
    items = _taken(pieces, number + 3, fits & (value_size >= 0))
    problem = "its bytes are no key and value with their sizes"
    return keys, items, [ValueProblem(row, problem) for row in np.flatnonzero(valid & ~fits).tolist()]


def _size(
    data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], end: npt.NDArray[np.int64], among: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The int32 sizes at these places, and where they and as many bytes behind them lie before ``end``."""
    there = among & (at + 4 <= end)
    sizes = np.zeros(len(at), np.int64)
    sizes[there] = data[at[there][:, None] + np.arange(4)].reshape(-1).view(">i4")
    return sizes, there & (sizes >= -1) & (at + 4 + sizes <= end)


def _pieces(values: pa.BinaryArray, places: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """The bytes of ``values``, cut at these places, not copied."""
    offsets = pa.py_buffer(places.astype(np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), len(places) - 1, [None, offsets, values.buffers()[2] or pa.py_buffer(b"")])


def _taken(pieces: pa.BinaryArray, numbers: npt.NDArray[np.int64], there: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    numbers = np.ascontiguousarray(numbers.astype(np.int64))
    return pieces.take(pa.Array.from_buffers(pa.int64(), len(numbers), [bitmap(there), pa.py_buffer(numbers)]))
