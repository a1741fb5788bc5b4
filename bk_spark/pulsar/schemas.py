"""The schema of a topic, as its producers registered it: what its messages' values are.

A schema has a type, and for structured types a definition. Of JSON and AVRO that is an Avro schema as JSON text. A KEY_VALUE
has two schemas, for its keys and its values, and one of two encodings: ``INLINE`` (both are in the message's value) or
``SEPARATED`` (the key is the message's key). The definition of a KEY_VALUE holds both definitions::

    int32 size of the key's definition, that definition, int32 size of the value's definition, that definition

and its properties have the types and properties of the two.

Ref: SchemaType of pulsar-client-api, KeyValueSchemaInfo of pulsar-common.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bk_spark.errors import CorruptionError

RAW: Final = "read the values as bytes with schema=raw"
"""What helps against every schema that has no column type."""

TYPES: Final = (
    "NONE",
    "STRING",
    "JSON",
    "PROTOBUF",
    "AVRO",
    "BOOLEAN",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "KEY_VALUE",
    "INSTANT",
    "LOCAL_DATE",
    "LOCAL_TIME",
    "LOCAL_DATE_TIME",
    "PROTOBUF_NATIVE",
)
"""The types by the number that clients give them. Brokers store that number plus one."""

BYTES_TYPES: Final = ("NONE", "BYTES")
"""Types whose values are bytes. The second is never stored for a topic, only for a key or value of KEY_VALUE."""


_SIZE = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """One version of a topic's schema, or of the keys or values of one."""

    type: str
    """Pulsar's name of the type, as clients show it, such as STRING or KEY_VALUE."""
    definition: str | None = None
    """Of JSON and AVRO: an Avro schema as JSON text. None for types that need none."""
    properties: tuple[tuple[str, str], ...] = ()
    """Names and values, ascending by name."""
    key: TopicSchema | None = None
    value: TopicSchema | None = None
    """Not None of a KEY_VALUE, as ``key``."""

    def property_of(self, name: str) -> str | None:
        """The value of a property; None if it has none of this name."""
        return dict(self.properties).get(name)

    @property
    def is_separated(self) -> bool:
        """Whether it is a KEY_VALUE whose keys are the messages' keys."""
        return self.type == "KEY_VALUE" and self.property_of("kv.encoding.type") == "SEPARATED"


def topic_schema(kind: str, definition: bytes, properties: Mapping[str, str]) -> TopicSchema:
    """A schema from what is stored of it. Raises CorruptionError for a KEY_VALUE whose two parts cannot be told apart."""
    ordered = tuple(sorted(properties.items()))
    if kind == "KEY_VALUE":
        key, value = _parts(definition)
        return TopicSchema(kind, None, ordered, _part(properties, "key", key), _part(properties, "value", value))
    text = definition.decode("utf-8", "replace") if kind in ("JSON", "AVRO") else None
    return TopicSchema(kind, text, ordered)


def _part(properties: Mapping[str, str], part: str, definition: bytes) -> TopicSchema:
    """The schema of ``part``, key or value."""
    text = properties.get(f"{part}.schema.properties") or "{}"
    try:
        own = {str(name): str(value) for name, value in dict(json.loads(text)).items() if value is not None}
    except (ValueError, TypeError) as problem:
        raise CorruptionError(f"the schema of the {part}s", f"its properties are not JSON ({problem})") from None
    return topic_schema(properties.get(f"{part}.schema.type", "BYTES"), definition, own)


def _parts(definition: bytes) -> tuple[bytes, bytes]:
    """The definitions of the keys and of the values."""
    key, rest = _sized(definition)
    value, _ = _sized(rest)
    return key, value


def _sized(data: bytes) -> tuple[bytes, bytes]:
    """What begins with its size, and what is behind it."""
    size = _SIZE.unpack_from(data)[0] if len(data) >= _SIZE.size else -1
    if not 0 <= size <= len(data) - _SIZE.size:
        raise CorruptionError("the definition of a KEY_VALUE", "it does not hold the definitions of keys and values")
    return data[_SIZE.size : _SIZE.size + size], data[_SIZE.size + size :]
