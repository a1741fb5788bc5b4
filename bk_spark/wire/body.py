"""Protobuf messages with one large field of bytes, which protobuf would copy twice on either side.

On the wire such a field is a tag, a length and the bytes, anywhere in the message. The sender appends it to the other fields
as protobuf encoded them; the receiver takes it out before protobuf decodes the others. Plain protobuf reads and writes the
same messages.

Ref: protobuf, "Encoding", "Message Structure".
"""

from __future__ import annotations

from bk_spark.errors import CorruptionError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MAX_FIELDS = 64
"""The most fields of one message; ours have a dozen. The bound keeps a hostile sender from occupying the parser."""

_MAX_VARINT_BYTES = 10


def with_body(others: bytes, field: int, body: bytes | memoryview) -> bytes:
    """The message ``others``, which is encoded without field number ``field``, with ``body`` as that field."""
    return b"".join((others, _varint(field << 3 | _BYTES), _varint(len(body)), body))


def without_body(message: memoryview, field: int, what: str) -> tuple[bytes, memoryview]:
    """The message without field number ``field``, and that field's bytes as a view; empty if the message lacks the field.

    Raises CorruptionError for bytes that are no message; ``what`` names it.
    """
    others: list[memoryview] = []
    body, at, begin, fields = message[:0], 0, 0, 0
    while at < len(message):
        fields += 1
        if fields > _MAX_FIELDS:
            raise CorruptionError(what, "it has more fields than any message")
        tag, value, end = _field(message, at, what)
        if tag == field << 3 | _BYTES:
            body = message[value:end]
            others.append(message[begin:at])
            begin = end
        at = end
    return b"".join((*others, message[begin:])), body


def _field(message: memoryview, at: int, what: str) -> tuple[int, int, int]:
    """The tag of the field at offset ``at``, and the offsets where its value begins and ends."""
    tag, value = _read_varint(message, at, what)
    kind, end = tag & 7, value
    if kind == _VARINT:
        _, end = _read_varint(message, value, what)
    elif kind == _BYTES:
        size, value = _read_varint(message, value, what)
        end = value + size
    elif kind in (_FIXED32, _FIXED64):
        end = value + (4 if kind == _FIXED32 else 8)
    else:
        raise CorruptionError(what, f"it has a field of kind {kind}")
    if end > len(message):
        raise CorruptionError(what, "it ends within a field")
    return tag, value, end


def _read_varint(message: memoryview, at: int, what: str) -> tuple[int, int]:
    """A number, and the offset behind it."""
    if at < len(message) and message[at] < 128:  # most have one byte
        return message[at], at + 1
    number = 0
    for shift, byte in enumerate(message[at : at + _MAX_VARINT_BYTES]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return number, at + shift + 1
    raise CorruptionError(what, "it ends within a number, or in one that is too long")


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
