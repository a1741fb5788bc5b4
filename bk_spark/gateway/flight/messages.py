"""The messages of Arrow Flight, as bytes of protobuf. Pure.

::

    FlightDescriptor  1 type (1: path, 2: command)  2 command  3 path, several
    Ticket, Criteria  1 bytes
    Action            1 type  2 body              ActionType  1 type  2 description
    Result            1 body                      PutResult   1 app_metadata            SchemaResult  1 schema
    FlightInfo        1 schema  2 descriptor  3 endpoints  4 records  5 bytes  6 ordered  7 app_metadata
    FlightEndpoint    1 ticket  2 locations             Location    1 URI
    FlightData        1 descriptor  2 data header  3 app_metadata  1000 data body

They are few, and the body of FlightData has megabytes: generated code would copy it twice more. So there is one reader of
fields here, which checks each length, and one writer. Unknown fields are left out, as protobuf asks for.

Ref: Apache Arrow, Flight.proto; protobuf, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bk_spark.errors import ConfigError, State
from bk_spark.gateway.flight.requests import GivenDescriptor

SERVICE: Final = "arrow.flight.protocol.FlightService"

UNKNOWN_TOTAL: Final = -1
"""Of records or bytes of a FlightInfo."""

_MAX_FIELDS: Final = 2_000
"""Of one message; those that are read here have four, or a path of a few parts."""

_PATH, _COMMAND = 1, 2
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_SIZES = {_FIXED_64: 8, _FIXED_32: 4}
_DATA_BODY = 1000


@dataclass(frozen=True, slots=True)
class FlightData:
    """One message of a stream of batches."""

    header: memoryview
    """The metadata of an Arrow message, without its length; empty where the message has only ``app_metadata``."""
    body: memoryview
    app_metadata: bytes = b""
    descriptor: GivenDescriptor | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a part of a read is had."""

    ticket: bytes
    locations: tuple[str, ...] = ()
    """Empty: where the question was asked."""


# --- what callers send


def decode_descriptor(data: bytes | memoryview) -> GivenDescriptor:
    """Raises ConfigError, as all that decode."""
    kind, command, path = 0, b"", []
    for number, value in _fields("the descriptor", data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and not isinstance(value, int):
            command = bytes(value)
        elif number == 3 and not isinstance(value, int):
            path.append(_text("the descriptor's path", value))
    if kind == _PATH:
        return GivenDescriptor(tuple(path))
    if kind == _COMMAND:
        return GivenDescriptor(command=command)
    raise ConfigError("the type of the descriptor", kind, "give the path of a log, or a command")


def decode_ticket(data: bytes) -> bytes:
    return _first("the ticket", data)


def decode_criteria(data: bytes) -> bytes:
    return _first("the criteria", data)


def decode_action(data: bytes) -> tuple[str, bytes]:
    """Its type and its body."""
    kind, body = "", b""
    for number, value in _fields("the action", data):
        if number == 1 and not isinstance(value, int):
            kind = _text("the action's type", value)
        elif number == 2 and not isinstance(value, int):
            body = bytes(value)
    return kind, body


def decode_data(data: bytes) -> FlightData:
    """Header and body are views of ``data``."""
    header = body = memoryview(b"")
    metadata, descriptor = b"", None
    for number, value in _fields("a message of the stream", data):
        if isinstance(value, int):
            continue
        if number == 1:
            descriptor = decode_descriptor(value)
        elif number == 2:
            header = value
        elif number == 3:
            metadata = bytes(value)
        elif number == _DATA_BODY:
            body = value
    return FlightData(header, body, metadata, descriptor)


# --- what a gateway answers


def encode_data(header: bytes | memoryview, body: bytes | memoryview, app_metadata: bytes = b"") -> bytes:
    parts = [_head(2, len(header)), header]
    if app_metadata:
        parts += [_head(3, len(app_metadata)), app_metadata]
    return b"".join([*parts, _head(_DATA_BODY, len(body)), body])


def encode_descriptor(descriptor: GivenDescriptor) -> bytes:
    if descriptor.command is not None:
        return _number(1, _COMMAND) + _bytes(2, descriptor.command)
    return _number(1, _PATH) + b"".join(_bytes(3, part.encode()) for part in descriptor.path)


def encode_info(
    schema: bytes, descriptor: GivenDescriptor, endpoints: Sequence[Endpoint], records: int, *, app_metadata: bytes = b""
) -> bytes:
    """``endpoints`` are in the order of the log; ``records`` may be UNKNOWN_TOTAL."""
    return b"".join(
        [
            _bytes(1, schema),
            _bytes(2, encode_descriptor(descriptor)),
            *(_bytes(3, _endpoint(one)) for one in endpoints),
            _number(4, records),
            _number(5, UNKNOWN_TOTAL),
            _number(6, 1),
            _bytes(7, app_metadata) if app_metadata else b"",
        ]
    )


def encode_one(payload: bytes) -> bytes:
    """A Result, a PutResult or a SchemaResult."""
    return _bytes(1, payload)


def encode_action_type(name: str, text: str) -> bytes:
    return _bytes(1, name.encode()) + _bytes(2, text.encode())


def _endpoint(endpoint: Endpoint) -> bytes:
    locations = (_bytes(2, _bytes(1, uri.encode())) for uri in endpoint.locations)
    return _bytes(1, _bytes(1, endpoint.ticket)) + b"".join(locations)


# --- protobuf


def _first(what: str, data: bytes) -> bytes:
    found = b""
    for number, value in _fields(what, data):
        if number == 1 and not isinstance(value, int):
            found = bytes(value)
    return found


def _fields(what: str, data: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field; of a fixed number its bytes."""
    view, at, count = memoryview(data), 0, 0
    while at < len(view):
        tag, at = _varint(what, view, at)
        number, kind = tag >> 3, tag & 7
        count += 1
        if not number or count > _MAX_FIELDS:
            raise _malformed(what)
        if kind == _VARINT:
            value, at = _varint(what, view, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(what, view, at)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise _malformed(what)
        if size > len(view) - at:
            raise _malformed(what)
        yield number, view[at : at + size]
        at += size


def _varint(what: str, view: memoryview, at: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            break
        byte = view[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
    raise _malformed(what)


def _malformed(what: str) -> ConfigError:
    return ConfigError(f"the form of {what}", State("wrong"), "it is no message of Arrow Flight")


def _text(what: str, value: memoryview) -> str:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        raise ConfigError(what, bytes(value[:100]), "it is not UTF-8") from None


def _head(number: int, size: int) -> bytes:
    return _encoded(number << 3 | _BYTES) + _encoded(size)


def _bytes(number: int, value: bytes) -> bytes:
    return _head(number, len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _encoded(number << 3 | _VARINT) + _encoded(value % 2**64)


def _encoded(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
