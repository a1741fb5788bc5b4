"""Protobuf messages with one large field of bytes, which protobuf would copy twice on either side.

To the wire such a field is a tag, its length and its bytes, anywhere in the message: it is put behind what protobuf encoded
of all others, and taken out before protobuf decodes them. Whoever uses protobuf alone sees no difference.

Ref: protobuf, "Encoding", "Message Structure".
"""

from __future__ import annotations

from bk_spark.errors import CorruptionError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MAX_FIELDS = 64
"""Of one message; those of this package have a dozen. Whoever sends more shall not keep this loop busy with them."""

_MAX_VARINT_BYTES = 10


def with_body(others: bytes, field: int, body: bytes | memoryview) -> bytes:
    """The message that ``others`` encodes, which has no such field, with ``body`` as its field of that number."""
    return b"".join((others, _packed(field << 3 | _BYTES), _packed(len(body)), body))


def without_body(message: memoryview, field: int, what: str) -> tuple[bytes, memoryview]:
    """The message without its field of that number, and that field's bytes, not copied; none where it is not there.

    Raises CorruptionError for what cannot be a message; ``what`` names it.
    """
    others: list[memoryview] = []
    body, at, fields = message[:0], 0, 0
    while at < len(message):
        fields += 1
        if fields > _MAX_FIELDS:
            raise CorruptionError(what, "it has more fields than any message")
        tag, value, end = _field(message, at, what)
        if tag == field << 3 | _BYTES:
            body = message[value:end]
        else:
            others.append(message[at:end])
        at = end
    return b"".join(others), body


def _field(message: memoryview, at: int, what: str) -> tuple[int, int, int]:
    """The tag of the field that begins at ``at``, where its value begins, and where it ends."""
    tag, value = _unpacked(message, at, what)
    kind, end = tag & 7, value
    if kind == _VARINT:
        _, end = _unpacked(message, value, what)
    elif kind == _BYTES:
        size, value = _unpacked(message, value, what)
        end = value + size
    elif kind in (_FIXED32, _FIXED64):
        end = value + (4 if kind == _FIXED32 else 8)
    else:
        raise CorruptionError(what, f"it has a field of kind {kind}")
    if end > len(message):
        raise CorruptionError(what, "it ends within a field")
    return tag, value, end


def _unpacked(message: memoryview, at: int, what: str) -> tuple[int, int]:
    """A number and where it ends."""
    number = 0
    for shift, byte in enumerate(message[at : at + _MAX_VARINT_BYTES]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return number, at + shift + 1
    raise CorruptionError(what, "it ends within a number, or in one that is too long")


def _packed(number: int) -> bytes:
    packed = bytearray()
    while number > 127:
        packed.append(number & 127 | 128)
        number >>= 7
    packed.append(number)
    return bytes(packed)
