"""The messages inside of batches: where each lies, and its own metadata.

Only a message's metadata say how long it is, so a batch is walked message by message. The walk looks for that one number alone;
all else is parsed for the messages of all batches at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Final

import numpy as np
import numpy.typing as npt

from bk_spark.pulsar.protobuf_columns import PADDING, Parsed, parse

PROPERTIES, KEY, PAYLOAD_SIZE, COMPACTED_OUT, EVENT_TIME, ORDERING_KEY, SEQUENCE_ID, NULL_VALUE = 1, 2, 3, 4, 5, 7, 8, 9
"""The fields of SingleMessageMetadata that are read."""

_INT32: Final = Struct(">i")
_FIXED: Final = {1: 8, 5: 4}
"""Kind of field → its bytes, of those with a fixed size."""
_PROPERTIES_TAG, _KEY_TAG, _SIZE_TAG = 0x0A, 0x12, 0x18

Ints = npt.NDArray[np.int64]


class DamagedBatchError(Exception):
    """A batch that does not hold the messages that its entry says it has."""


@dataclass(slots=True)
class Batches:
    """Payloads of batches, decompressed, and the places of their messages in all of them joined."""

    parts: list[bytes] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    _length: int = 0

    def add(self, owner: int, payload: bytes, count: int) -> None:
        """The batch of the entry at place ``owner``. Raises DamagedBatchError."""
        begins, ends, behind = _walk(payload, count)
        offset = self._length
        self.begins += begins if not offset else [one + offset for one in begins]
        self.ends += ends if not offset else [one + offset for one in ends]
        self.behind += behind if not offset else [one + offset for one in behind]
        self.parts.append(payload)
        self.owners.append(owner)
        self.counts.append(len(begins))
        self._length += len(payload)

    def read(self) -> Messages:
        """All messages."""
        data = b"".join([*self.parts, bytes(PADDING)])
        begins, ends, behind = (np.array(one, np.int64) for one in (self.begins, self.ends, self.behind))
        numbers = (PAYLOAD_SIZE, COMPACTED_OUT, EVENT_TIME, SEQUENCE_ID, NULL_VALUE)
        found = parse(np.frombuffer(data, np.uint8), begins, ends, numbers, (KEY, ORDERING_KEY), (PROPERTIES,))
        counts = np.array(self.counts, np.int64)
        owners = np.repeat(np.array(self.owners, np.int64), counts)
        firsts = np.repeat(np.cumsum(counts) - counts, counts)
        good = ~found.malformed & (found.varints[PAYLOAD_SIZE].int32 == behind - ends)
        return Messages(data, owners, np.arange(len(owners)) - firsts, found, ends, behind, good)


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of batches, batch after batch."""

    data: bytes
    """What the places are in."""
    owners: Ints
    """The place of the entry that each is in."""
    indexes: Ints
    """Its index in its batch."""
    metadata: Parsed
    value_starts: Ints
    value_ends: Ints
    good: npt.NDArray[np.bool_]


def _walk(payload: bytes, count: int) -> tuple[list[int], list[int], list[int]]:
    """Where the metadata of each message begin and end, and where its value ends. Bytes behind the last one do not count."""
    begins: list[int] = []
    ends: list[int] = []
    behind: list[int] = []
    at, length, unpack = 0, len(payload), _INT32.unpack_from
    try:
        for _ in range(count):
            begin = at + 4
            end = begin + unpack(payload, at)[0]
            if not begin <= end <= length:
                raise DamagedBatchError(f"message {len(begins)} of its {count} reaches beyond its end")
            place, size = begin, -1
            while place < end:
                tag = payload[place]
                if tag == _SIZE_TAG:
                    size = payload[place + 1]
                    if size < 0x80:
                        break
                    second = payload[place + 2]
                    if second < 0x80:
                        size = size & 0x7F | second << 7
                    else:
                        size, _ = _varint(payload, place + 1)
                    break
                first = payload[place + 1]
                if first < 0x80 and tag in (_KEY_TAG, _PROPERTIES_TAG):
                    place += 2 + first
                else:
                    place = _behind_field(payload, place)
            at = end + size
            if size < 0 or at > length:
                raise DamagedBatchError(f"message {len(begins)} of its {count} has no value, or a longer one than there is")
            begins.append(begin)
            ends.append(end)
            behind.append(at)
    except (StructError, IndexError):
        raise DamagedBatchError(f"it ends within message {len(begins)} of its {count}") from None
    return begins, ends, behind


def _behind_field(data: bytes, at: int) -> int:
    """Where the field that begins at a place ends, of any kind."""
    tag, at = _varint(data, at)
    if tag & 7 in _FIXED:
        return at + _FIXED[tag & 7]
    value, at = _varint(data, at)
    if tag & 7 not in (0, 2):
        raise DamagedBatchError("the metadata of a message are none")
    return at + value if tag & 7 else at


def _varint(data: Sequence[int], at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise DamagedBatchError("a number in its metadata has too many bytes")
