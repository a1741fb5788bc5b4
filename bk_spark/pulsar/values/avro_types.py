"""Avro's definitions → Arrow's types. The values of JSON and AVRO topics are defined so.

::

    null boolean int long float double bytes string     null bool int32 int64 float32 float64 binary string
    record enum array map fixed                         struct string list map<string, …> binary
    date                                                date32
    time-millis time-micros                             int64, nanoseconds since midnight
    timestamp-millis -micros -nanos                     timestamp (µs, UTC)
    local-timestamp-millis -micros -nanos               timestamp (µs, without a zone)
    decimal                                             decimal128, up to 38 digits
    uuid                                                string

Every column may be null, whatever the definition says: the reader of an old message does not find a field that it did not have.
A union of null and one type is that type. What has no column type is refused: other unions, and a type that contains itself.
A logical type that is unknown or malformed is ignored, as Avro demands.

Ref: the specification of Apache Avro 1.12, "Schema Declaration" and "Logical Types".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Never

import pyarrow as pa

from bk_spark.errors import ConfigError
from bk_spark.pulsar.columns import TIMESTAMP
from bk_spark.pulsar.schemas import RAW
from bk_spark.pulsar.values.primitive_values import LOCAL_TIMESTAMP

MAX_DECIMAL_DIGITS: Final = 38
"""Of Spark's decimals, and of decimal128."""

MAX_NESTING: Final = 100
"""Types inside of each other. Nobody nests columns so deep; a bound keeps a damaged definition from exhausting the stack."""

PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}

_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.int64(),
    ("long", "time-micros"): pa.int64(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "timestamp-nanos"): TIMESTAMP,
    ("long", "local-timestamp-millis"): LOCAL_TIMESTAMP,
    ("long", "local-timestamp-micros"): LOCAL_TIMESTAMP,
    ("long", "local-timestamp-nanos"): LOCAL_TIMESTAMP,
    ("string", "uuid"): pa.string(),
}
_UUID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type of Avro that a column can have."""

    base: str
    """Avro's name of how it is written, such as int or record."""
    arrow: pa.DataType
    logical: str | None = None
    """What it means, if the definition says so in a way that Avro knows: such as date."""
    children: tuple[AvroField, ...] = ()
    """A record's fields; the element of an array or the value of a map as the only one."""
    symbols: frozenset[str] = frozenset()
    """Of an enum."""
    size: int = 0
    """Bytes of a fixed."""

    @property
    def child(self) -> AvroType:
        """The element of an array, the value of a map."""
        return self.children[0].type

    def all_types(self) -> Iterator[AvroType]:
        """The type, and all in it."""
        yield self
        for field in self.children:
            yield from field.type.all_types()


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record, or what an array or a map consists of."""

    name: str
    type: AvroType


def avro_type(definition: str) -> AvroType:
    """The type that a definition (JSON text) describes.

    Raises ConfigError for text that is no definition, and for types that a column cannot have.
    """
    try:
        return _Definitions().read(json.loads(definition), "", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        reason = f"it is no definition of Avro ({type(problem).__name__}: {problem})"
        raise ConfigError("the definition of the topic's schema", definition, f"{reason}: {RAW}") from None


class _Definitions:
    """Reads one definition. Types with a name may be used again behind the place that defines them."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}
        self._depth = 0

    def read(self, given: Any, namespace: str, path: str) -> AvroType:
        """A definition at ``path``, the names of fields with dots. None in ``_named``: the type is being read."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            _refuse(path, given, f"more than {MAX_NESTING} types are inside of each other")
        try:
            if isinstance(given, list):
                return self._union(given, namespace, path)
            if isinstance(given, str):
                return self._by_name(given, namespace, path)
            if isinstance(given["type"], (list, dict)):
                return self.read(given["type"], namespace, path)
            return self._of_dict(given, namespace, path)
        finally:
            self._depth -= 1

    def _union(self, branches: list[Any], namespace: str, path: str) -> AvroType:
        others = [one for one in branches if one != "null"]
        if len(others) > 1:
            _refuse(path, branches, "a union of several types is no column")
        return self.read(others[0] if others else "null", namespace, path)

    def _by_name(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name, PRIMITIVES[name])
        whole = _whole_name(name, namespace)
        whole = whole if whole in self._named else name
        found = self._named[whole]
        if found is None:
            _refuse(path, name, "a type that contains itself is no column")
        return found

    def _of_dict(self, given: dict[str, Any], namespace: str, path: str) -> AvroType:
        kind = given["type"]
        if kind in ("record", "error", "enum", "fixed"):
            whole = _whole_name(given["name"], given.get("namespace", namespace))
            self._named[whole] = None
            self._named[whole] = found = self._of_name(kind, given, whole.rpartition(".")[0], path)
            return found
        if kind == "array":
            element = self.read(given["items"], namespace, path)
            arrow = pa.list_(pa.field("element", element.arrow))
            return AvroType(kind, arrow, children=(AvroField("element", element),))
        if kind == "map":
            value = self.read(given["values"], namespace, path)
            return AvroType(kind, pa.map_(pa.string(), value.arrow), children=(AvroField("value", value),))
        if kind in PRIMITIVES:
            return _logical(given, path, 0)
        return self._by_name(kind, namespace, path)

    def _of_name(self, kind: str, given: dict[str, Any], namespace: str, path: str) -> AvroType:
        if kind == "enum":
            return AvroType(kind, pa.string(), symbols=frozenset(given["symbols"]))
        if kind == "fixed":
            return _logical(given, path, int(given["size"]))
        inside = f"{path}." if path else ""
        fields = [(one["name"], self.read(one["type"], namespace, f"{inside}{one['name']}")) for one in given["fields"]]
        arrow = pa.struct([pa.field(name, found.arrow) for name, found in fields])
        return AvroType("record", arrow, children=tuple(AvroField(*field) for field in fields))


def _logical(given: dict[str, Any], path: str, size: int) -> AvroType:
    """A primitive or a fixed, with the logical type that its definition gives it."""
    base, logical = str(given["type"]), str(given.get("logicalType"))
    plain = AvroType(base, PRIMITIVES.get(base, pa.binary()), size=size)
    if (base, logical) in _LOGICAL:
        return AvroType(base, _LOGICAL[base, logical], logical)
    if logical == "uuid" and size == _UUID_BYTES:
        return AvroType(base, pa.string(), logical, size=size)
    if logical != "decimal" or base not in ("bytes", "fixed"):
        return plain
    precision, scale = given.get("precision"), given.get("scale", 0)
    if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0):
        return plain
    if precision > MAX_DECIMAL_DIGITS:
        _refuse(path, given, f"a decimal of more than {MAX_DECIMAL_DIGITS} digits is no column")
    return AvroType(base, pa.decimal128(precision, scale), logical, size=size)


def _whole_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _refuse(path: str, given: object, problem: str) -> Never:
    what = f"field '{path}' of the topic's schema" if path else "the topic's schema"
    raise ConfigError(what, given, f"{problem}: {RAW}")
