"""From an entry of a Pulsar topic to its messages, written down from Pulsar's description of its protocol alone.

::

    0x0e01 | CRC-32C int32 of all behind it | size int32 | MessageMetadata | payload, perhaps compressed
    payload of a batch: for each message  size int32 | SingleMessageMetadata | payload

Ref: Pulsar's binary protocol, "Message commands"; PulsarApi.proto, MessageMetadata and SingleMessageMetadata.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from crc32c import crc32c

CHECKSUMMED = 0x0E01

PARTITION_KEY, COMPRESSION, PLAIN_SIZE, IN_BATCH = 6, 8, 9, 11
"""Fields of MessageMetadata."""

SINGLE_KEY, SINGLE_SIZE = 2, 3
"""Fields of SingleMessageMetadata."""

CODECS = {1: "lz4_raw", 3: "zstd"}

ALONE = -1

_HEAD = struct.Struct(">HII")
_SIZE = struct.Struct(">I")

_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_LONGEST = 1500

Fields = dict[int, int | bytes]


@dataclass(frozen=True, slots=True)
class Message:
    key: int
    batch: int
    """The place in its batch; ``ALONE`` if it is none."""
    payload: bytes

    @property
    def sequence(self) -> int:
        return int(self.payload.split(b" ", 3)[2])


class MalformedError(Exception):
    """An entry is not what a broker writes."""


def messages(entry: bytes) -> Iterator[Message]:
    magic, checksum, size = _HEAD.unpack_from(entry)
    if magic != CHECKSUMMED or checksum != crc32c(entry[6:]):
        raise MalformedError(f"an entry begins with {entry[:10].hex()}, and its checksum is {crc32c(entry[6:]):08x}")
    metadata = fields(entry[_HEAD.size : _HEAD.size + size])
    payload = _plain(metadata, entry[_HEAD.size + size :])
    if IN_BATCH not in metadata:
        yield Message(_number(metadata[PARTITION_KEY]), ALONE, payload)
        return
    position = 0
    for place in range(_number(metadata[IN_BATCH])):
        begin = position + _SIZE.size
        single = fields(payload[begin : (end := begin + _SIZE.unpack_from(payload, position)[0])])
        position = end + _number(single[SINGLE_SIZE])
        yield Message(_number(single[SINGLE_KEY]), place, payload[end:position])


def expected(topic: str, key: int, sequence: int) -> bytes:
    """As load/Payload.java makes it."""
    begin = (key + sequence) % len(_LETTERS)
    size = (key * 31 + sequence * 7919) % _LONGEST
    letters = _LETTERS * (_LONGEST // len(_LETTERS) + 2)
    return f"{topic} {key} {sequence} ".encode() + letters[begin : begin + size]


def fields(message: bytes) -> Fields:
    """Of a protobuf message, by number: whole numbers and bytes, the last one where a field comes again."""
    return dict(every_field(message))


def every_field(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
        elif kind == 2:
            size, begin = _varint(message, position)
            position = begin + size
            yield tag >> 3, message[begin:position]
        else:
            raise MalformedError(f"a field of kind {kind} in {message.hex()}")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _plain(metadata: Fields, payload: bytes) -> bytes:
    kind = metadata.get(COMPRESSION, 0)
    if not kind:
        return payload
    size = _number(metadata[PLAIN_SIZE])
    return bytes(pa.Codec(CODECS[_number(kind)]).decompress(payload, size, asbytes=True))


def _number(value: int | bytes) -> int:
    return int(value)
