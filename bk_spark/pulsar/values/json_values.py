"""Values of JSON topics → a column: each value is a JSON document, and an Avro definition says which fields it has.

The forms are those that Jackson gives the objects of Java's clients::

    boolean int long string enum     as they are; a whole number may be written as 1.0
    float double                     a number, or "NaN", "Infinity", "-Infinity"
    record map array                 object, object, array
    bytes fixed                      Base64
    decimal                          a number, or its text
    date                             days since 1970, or [year, month, day]
    time                             a whole number as its definition says, or [hour, minute, second, nanoseconds]
    timestamp                        a whole number as its definition says, or seconds since 1970 with a fraction
    local timestamp                  a whole number as its definition says, or [year, month, day, hour, minute, second, ns]

A list may leave out zeros at its end. The last four may also be text in a form of ISO 8601. A field that a document does not
have is null; one that the definition does not have is left out.

Arrow's own JSON reader takes the documents whose definition it reads as this module does. It is many times as fast, and stops
at the first document that does not fit. Then this module reads all of them one by one.

Ref: JSONSchema of pulsar-client; Jackson's JavaTimeModule.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from bk_spark.entries.digest import payload_bytes
from bk_spark.pulsar.slices import bitmap
from bk_spark.pulsar.values.avro_types import AvroType, avro_type
from bk_spark.pulsar.values.converted import Converted, ValueProblem, from_objects, joined, valid_rows
from bk_spark.pulsar.values.json_times import (
    date_days,
    decimal_number,
    local_microseconds,
    time_nanoseconds,
    utc_microseconds,
    whole,
)

Conversion = Callable[[Any], Any]

_MISFITS: Final = (ValueError, TypeError, ArithmeticError, RecursionError)
_READ_BY_ARROW: Final = ("boolean", "int", "long", "float", "double", "string", "array", "record")
_MAX_BLOCK: Final = 2**31 - 1


class JsonValues:
    """Reads documents of one topic by its newest definition."""

    def __init__(self, newest: str) -> None:
        self.type: Final = avro_type(newest)
        self._conversion = _conversion(self.type)
        parts = list(self.type.all_types())
        self._number = decimal_number if any(one.logical == "decimal" for one in parts) else float
        self._is_read_by_arrow = self.type.base == "record" and all(map(_is_read_by_arrow, parts))

    def convert(self, values: pa.BinaryArray) -> Converted:
        """Documents as the definition's column."""
        found = _read_by_arrow(values, self.type.arrow) if self._is_read_by_arrow else None
        return self._one_by_one(values) if found is None else Converted(found)

    def _one_by_one(self, values: pa.BinaryArray) -> Converted:
        objects: list[Any] = []
        problems: list[ValueProblem] = []
        for row, data in enumerate(values.to_pylist()):
            try:
                document = None if data is None else json.loads(data.decode("utf-8"), parse_float=self._number)
                objects.append(None if document is None else self._conversion(document))
            except _MISFITS as problem:
                objects.append(None)
                problems.append(ValueProblem(row, f"it does not fit its JSON schema ({problem})"))
        converted = from_objects(objects, self.type.arrow)
        return Converted(converted.values, joined(problems, converted.problems))


def _is_read_by_arrow(kind: AvroType) -> bool:
    """Of other types Arrow's reader knows other forms than Pulsar's clients, or none."""
    is_empty = kind.base == "record" and not kind.children
    return kind.base in _READ_BY_ARROW and kind.logical in (None, "uuid") and not is_empty


def _read_by_arrow(values: pa.BinaryArray, kind: pa.StructType) -> pa.Array | None:
    """The column; None if a value is not just one document that fits.

    The reader takes one text of many documents. Each value begins with { and ends with }, so between two values there is
    always the end of a document, and as many documents as values are one in each.
    """
    there = values.drop_null()
    if not pc.all(pc.and_(pc.starts_with(there, b"{"), pc.ends_with(there, b"}"))).as_py():
        return None
    options = pj.ReadOptions(use_threads=False, block_size=min(payload_bytes(there) + len(there) + 1, _MAX_BLOCK))
    parsing = pj.ParseOptions(pa.schema(list(kind)), newlines_in_values=True, unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.py_buffer(b"\n".join(there.to_pylist())), options, parsing)
        columns = [column.combine_chunks() for column in table.select(kind.names).columns]
        struct = pa.StructArray.from_arrays(columns, fields=list(kind))
        struct.validate(full=True)  # the reader passes bytes on that are no UTF-8
    except (pa.ArrowException, KeyError):
        return None
    if len(struct) != len(there):
        return None
    return struct if len(there) == len(values) else _with_nulls(struct, values)


def _with_nulls(there: pa.Array, values: pa.Array) -> pa.Array:
    """The rows of ``there`` where ``values`` are not null, in their order, and null where they are."""
    valid = valid_rows(values)
    places = np.cumsum(valid) - 1
    return there.take(pa.Array.from_buffers(pa.int64(), len(values), [bitmap(valid), pa.py_buffer(places.astype(np.int64))]))


def _conversion(kind: AvroType) -> Conversion:
    """From what a document has to what Arrow takes. Raises one of _MISFITS for what does not fit."""
    if kind.base == "record":
        return _of_record(kind)
    if kind.base == "array":
        return _of_array(_or_null(_conversion(kind.child)))
    if kind.base == "map":
        return _of_map(_or_null(_conversion(kind.child)))
    if kind.base == "enum":
        return _one_of(kind.symbols)
    if kind.logical in _LOGICAL:
        return _LOGICAL[kind.logical]
    if kind.base == "fixed" and kind.logical is None:
        return _of_fixed(kind.size)
    return _BASES[kind.base]


def _or_null(conversion: Conversion) -> Conversion:
    return lambda value: None if value is None else conversion(value)


def _of_record(kind: AvroType) -> Conversion:
    conversions = [(child.name, _conversion(child.type)) for child in kind.children]

    def convert(value: Any) -> dict[str, Any]:
        given = _of_class(value, dict, "object")
        record = {}
        for name, conversion in conversions:
            found = given.get(name)
            if found is not None:
                try:
                    record[name] = conversion(found)
                except _MISFITS as problem:
                    raise ValueError(f"field '{name}': {problem}") from None
        return record

    return convert


def _of_array(element: Conversion) -> Conversion:
    return lambda value: [element(one) for one in _of_class(value, list, "array")]


def _of_map(element: Conversion) -> Conversion:
    return lambda value: [(name, element(one)) for name, one in _of_class(value, dict, "object").items()]


def _one_of(symbols: frozenset[str]) -> Conversion:
    def convert(value: Any) -> Any:
        if not isinstance(value, str) or value not in symbols:
            raise ValueError(f"{value!r} is no symbol of the enum")
        return value

    return convert


def _of_fixed(size: int) -> Conversion:
    def convert(value: Any) -> bytes:
        data = _bytes(value)
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes, not {size}")
        return data

    return convert


def _of_class(value: Any, wanted: type, name: str) -> Any:
    if not isinstance(value, wanted):
        raise ValueError(f"{value!r} is no {name}")
    return value


def _bytes(value: Any) -> bytes:
    return base64.b64decode(_of_class(value, str, "Base64"), validate=True)


def _float(value: Any) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity")):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _null(value: Any) -> None:
    raise ValueError(f"{value!r} is not null")


_BASES: Final[dict[str, Conversion]] = {
    "null": _null,
    "boolean": lambda value: _of_class(value, bool, "boolean"),
    "int": whole,
    "long": whole,
    "float": _float,
    "double": _float,
    "string": lambda value: _of_class(value, str, "string"),
    "fixed": lambda value: _of_class(value, str, "string"),
    "bytes": _bytes,
}

_LOGICAL: Final[dict[str, Conversion]] = {
    "decimal": decimal_number,
    "date": date_days,
    "time-millis": lambda value: time_nanoseconds(value, 1_000_000),
    "time-micros": lambda value: time_nanoseconds(value, 1_000),
    "timestamp-millis": lambda value: utc_microseconds(value, 1_000_000),
    "timestamp-micros": lambda value: utc_microseconds(value, 1_000),
    "timestamp-nanos": lambda value: utc_microseconds(value, 1),
    "local-timestamp-millis": lambda value: local_microseconds(value, 1_000_000),
    "local-timestamp-micros": lambda value: local_microseconds(value, 1_000),
    "local-timestamp-nanos": lambda value: local_microseconds(value, 1),
}
