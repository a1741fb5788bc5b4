"""Values of AVRO topics → a column: each value is read with the definition that its producer had, and given the form of the
newest one, as Avro's rules of schema resolution say.

fastavro reads the bytes. It is given both definitions without their logical types: what it gives then has the types that are
stored, also where a field is missing and has the default of its definition, which is JSON in the stored type. The conversion
to what Arrow takes comes after that, and by the newest definition, as in Pulsar's own clients.

Ref: the specification of Apache Avro 1.12, "Schema Resolution"; AvroSchema of pulsar-client.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from bk_spark.errors import ConfigError
from bk_spark.pulsar.schemas import RAW
from bk_spark.pulsar.values.avro_types import AvroType, avro_type
from bk_spark.pulsar.values.converted import Converted, ValueProblem, from_objects, joined

Conversion = Callable[[Any], Any]

_DECIMALS: Final = Context(prec=1_000)
"""Exact for the unscaled value of any decimal that somebody writes; columns refuse those beyond their own digits."""

_FACTORS: Final = {
    "time-millis": 1_000_000,
    "time-micros": 1_000,
    "timestamp-millis": 1_000,
    "local-timestamp-millis": 1_000,
}
_NANOS: Final = ("timestamp-nanos", "local-timestamp-nanos")


class AvroValues:
    """Reads values of one topic into the form of its newest definition. Raises ConfigError if fastavro is not installed."""

    def __init__(self, newest: str) -> None:
        self._fastavro = _fastavro()
        self._newest = newest
        self.type: Final = avro_type(newest)
        self._reader = self._parsed(newest, self.type)
        self._writers = {newest: self._reader}
        self._conversion = _conversion(self.type)

    def convert(self, values: pa.BinaryArray, written: str) -> Converted:
        """Values that were written by the definition ``written``, as the newest one's column.

        Raises ConfigError if ``written`` is no definition.
        """
        read = self._read(written)
        objects: list[Any] = []
        problems: list[ValueProblem] = []
        for row, data in enumerate(values.to_pylist()):
            try:
                objects.append(None if data is None else read(data))
            except Exception as problem:  # fastavro raises whatever damaged bytes lead its code to
                objects.append(None)
                problems.append(ValueProblem(row, f"it does not fit its Avro schema ({_text(problem)})"))
        converted = from_objects(objects, self.type.arrow)
        return Converted(converted.values, joined(problems, converted.problems))

    def _read(self, written: str) -> Callable[[bytes], Any]:
        if written not in self._writers:
            self._writers[written] = self._parsed(written, None)
        writer, reader = self._writers[written], None if written == self._newest else self._reader
        schemaless_reader, conversion = self._fastavro.schemaless_reader, self._conversion

        def read(data: bytes) -> Any:
            stream = io.BytesIO(data)
            value = schemaless_reader(stream, writer, reader, handle_unicode_errors="replace")
            if stream.tell() != len(data):
                raise ValueError(f"{len(data) - stream.tell()} bytes are left over")
            return value if value is None or conversion is None else conversion(value)

        return read

    def _parsed(self, definition: str, kind: AvroType | None) -> Any:
        try:
            return self._fastavro.parse_schema(stored_form(json.loads(definition), kind), _ignore_default_error=True)
        except Exception as problem:  # as above: whatever it raises, it cannot read this definition
            what = "a definition of the topic's schema"
            raise ConfigError(what, definition, f"fastavro cannot use it ({_text(problem)}): {RAW}") from None


def _text(problem: Exception) -> str:
    return str(problem) or ("it ends too early" if isinstance(problem, EOFError) else type(problem).__name__)


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        remedy = f"AVRO values need the package fastavro: pip install 'bk-spark[pulsar]', or {RAW}"
        raise ConfigError("schema", "topic", remedy) from None
    return fastavro


def stored_form(definition: Any, kind: AvroType | None) -> Any:
    """A definition without logical types. With its type, also with the defaults of bytes as bytes, as a reader needs them."""
    if isinstance(definition, list):
        return [stored_form(one, None if one == "null" else kind) for one in definition]
    if not isinstance(definition, dict):
        return definition
    plain = {name: value for name, value in definition.items() if name not in ("logicalType", "precision", "scale")}
    inner = kind.child if kind and kind.base in ("array", "map") else None
    for name, of_inside in (("type", kind), ("items", inner), ("values", inner)):
        if isinstance(plain.get(name), (dict, list)):
            plain[name] = stored_form(plain[name], of_inside)
    if "fields" in plain:
        types = {child.name: child.type for child in kind.children} if kind else {}
        plain["fields"] = [_stored_field(one, types.get(one["name"])) for one in plain["fields"]]
    return plain


def _stored_field(field: dict[str, Any], kind: AvroType | None) -> dict[str, Any]:
    plain = {**field, "type": stored_form(field["type"], kind)}
    if kind and "default" in field:
        plain["default"] = _stored_default(field["default"], kind)
    return plain


def _stored_default(default: Any, kind: AvroType) -> Any:
    """A default from its JSON form, where bytes are text of the characters U+0000 to U+00FF."""
    if kind.base in ("bytes", "fixed") and isinstance(default, str):
        return default.encode("latin-1", "replace")
    if kind.base == "array" and isinstance(default, list):
        return [_stored_default(one, kind.child) for one in default]
    if kind.base == "map" and isinstance(default, dict):
        return {name: _stored_default(one, kind.child) for name, one in default.items()}
    if kind.base == "record" and isinstance(default, dict):
        types = {child.name: child.type for child in kind.children}
        return {name: _stored_default(one, types[name]) if name in types else one for name, one in default.items()}
    return default


def _conversion(kind: AvroType) -> Conversion | None:
    """From what fastavro gives for the stored form to what Arrow takes; None if that is the same."""
    if kind.base == "record":
        return _of_record(kind)
    if kind.base == "array":
        return _of_array(_conversion(kind.child))
    if kind.base == "map":
        return _of_map(_conversion(kind.child))
    if kind.logical == "decimal":
        return _of_decimal(kind.arrow.scale)
    if kind.logical == "uuid" and kind.size:
        return lambda value: str(UUID(bytes=value))
    if kind.logical in _NANOS:
        return lambda value: value // 1_000
    if kind.logical in _FACTORS:
        factor = _FACTORS[kind.logical]
        return lambda value: value * factor
    return None


def _of_record(kind: AvroType) -> Conversion | None:
    found = [(child.name, _conversion(child.type)) for child in kind.children]
    conversions = [(name, conversion) for name, conversion in found if conversion is not None]
    if not conversions:
        return None

    def convert(record: dict[str, Any]) -> dict[str, Any]:
        for name, conversion in conversions:
            value = record[name]
            if value is not None:
                record[name] = conversion(value)
        return record

    return convert


def _of_array(conversion: Conversion | None) -> Conversion | None:
    if conversion is None:
        return None
    return lambda values: [None if value is None else conversion(value) for value in values]


def _of_map(conversion: Conversion | None) -> Conversion:
    if conversion is None:
        return lambda values: list(values.items())
    return lambda values: [(name, None if value is None else conversion(value)) for name, value in values.items()]


def _of_decimal(scale: int) -> Conversion:
    return lambda value: Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _DECIMALS)
