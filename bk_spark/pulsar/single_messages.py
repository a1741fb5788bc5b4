"""The messages inside of batches: where each lies, and its own metadata.

Only a message's metadata say how long it is, so where a message begins is known from the one before it. A walk from message to
message is slow in Python. So all places are found at once that look like the begin of a message, and what would be the next
one of each; from the begin of a batch the true ones are reached in jumps of 1, 2, 4, 8 … messages.

    places    0  37  60  74  111          60 is in a value, and its next one is at no place
    next     37  74   –  111  end         from 0: 37; from 0 and 37 two further: 74 and 111

A batch in which that does not reach every message, because it has odd or damaged metadata, is walked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

import numpy as np
import numpy.typing as npt

from bk_spark.pulsar.protobuf_columns import Parsed, parse, varints_at

PROPERTIES, KEY, PAYLOAD_SIZE, COMPACTED_OUT, EVENT_TIME, ORDERING_KEY, SEQUENCE_ID, NULL_VALUE = 1, 2, 3, 4, 5, 7, 8, 9
"""The fields of SingleMessageMetadata that are read."""

_INT32: Final = Struct(">i")
_FIXED: Final = {1: 8, 5: 4}
"""Kind of field → its bytes, of those with a fixed size."""
_PROPERTIES_TAG, _KEY_TAG, _SIZE_TAG = 0x0A, 0x12, 0x18

_IS_FIRST_TAG: Final = np.isin(np.arange(256), (_PROPERTIES_TAG, _KEY_TAG, _SIZE_TAG))

MOST_PLACES: Final = 4
"""Places for each message, above which batches are walked: values full of zeros look like the begin of a message everywhere."""

MANY_ZEROS: Final = 8
"""Bytes of a block for each two zeros, below which the zeros are sifted before they are listed: a list has 8 bytes for each."""

BLOCK_BYTES: Final = 128 * 1024
"""Looked through at a time: it stays in the processor's cache."""

MOST_SKIPPED: Final = 64
"""Properties before the size of a message, above which its batch is walked."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Data = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Batches:
    """Decompressed batches, ascending in one buffer, which has PADDING bytes behind the last."""

    data: bytes
    starts: Ints
    ends: Ints
    owners: Ints
    """The place of the entry of each."""
    counts: Ints
    """How many messages its entry says it has."""

    def read(self) -> Messages:
        """All messages of the batches that are whole."""
        data = np.frombuffer(self.data, np.uint8)
        counts = np.maximum(self.counts, 0)
        found, reached = _jump(data, self.starts, self.ends, counts)
        problems = {}
        walked = [found]
        for batch in np.flatnonzero(reached < counts).tolist():
            begin, end = int(self.starts[batch]), int(self.ends[batch])
            try:
                places = _walk(self.data[begin:end], int(counts[batch]))
            except DamagedBatchError as problem:
                problems[int(self.owners[batch])] = str(problem)
                counts[batch] = 0
            else:
                walked.append(places + begin)
        begins, heads, behind = found if len(walked) == 1 else _in_order(walked)
        numbers = (PAYLOAD_SIZE, COMPACTED_OUT, EVENT_TIME, SEQUENCE_ID, NULL_VALUE)
        metadata = parse(data, begins, heads, numbers, (KEY, ORDERING_KEY), (PROPERTIES,))
        firsts = np.repeat(np.cumsum(counts) - counts, counts)
        good = ~metadata.malformed & (metadata.varints[PAYLOAD_SIZE].int32 == behind - heads)
        owners = np.repeat(self.owners, counts)
        return Messages(self.data, owners, np.arange(len(owners)) - firsts, metadata, heads, behind, good, problems)


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
    good: Flags
    problems: dict[int, str]
    """The batches that are damaged, by the place of their entry. Their messages are left out."""


class DamagedBatchError(Exception):
    """A batch that does not hold the messages that its entry says it has."""


def _jump(data: Data, starts: Ints, ends: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Rows of begins and ends of metadata and of ends of values, of the first ``counts`` messages of each batch; and how many
    of each were reached. Of batches in which fewer were reached there are none."""
    places, owners = _places(data, starts, ends)
    if len(places) > MOST_PLACES * int(counts.sum()) + 1000:
        places, owners = places[:0], owners[:0]
    begins = places + 4
    heads = begins + (data[places + 2].astype(np.int64) << 8 | data[places + 3])
    limits = ends[owners]
    sizes, good = _payload_sizes(data, begins, np.minimum(heads, limits))
    behind = heads + sizes
    good &= (heads <= limits) & (behind <= limits)
    firsts = np.searchsorted(places, starts)
    there = (firsts < len(places)) & (counts > 0)
    there[there] = places[firsts[there]] == starts[there]
    ends_batch = (behind[:-1] == limits[:-1]) & (owners[:-1] != owners[1:])
    if there.all() and good.all() and ((behind[:-1] == places[1:]) | ends_batch).all():
        chain = np.arange(len(places))  # all places are true ones, as mostly
    else:
        chain = _reached(places, np.where(good & (behind < limits), behind, -1), firsts[there], int(counts.max(initial=0)))
        chain = chain[good[chain]]
    of_batch = np.bincount(owners[chain], minlength=len(starts))
    ranks = np.arange(len(chain)) - np.repeat(np.cumsum(of_batch) - of_batch, of_batch)
    wanted = counts[owners[chain]]
    chain = chain[(ranks < wanted) & (of_batch[owners[chain]] >= wanted)]
    return np.stack([begins[chain], heads[chain], behind[chain]]), of_batch


def _reached(places: Ints, following: Ints, firsts: Ints, most: int) -> Ints:
    """The places that are reached from the first ones in ``most`` jumps, each to the place ``following``, if that is one."""
    none = len(places)
    nexts = np.searchsorted(places, following)
    is_place = nexts < none
    is_place[is_place] = places[nexts[is_place]] == following[is_place]
    jumps = np.append(np.where(is_place, nexts, none), none)
    reached = np.zeros(none + 1, np.bool_)
    reached[firsts] = True
    for _ in range(min(most, none).bit_length()):  # ``most`` may be a lie, the places are there
        reached[jumps[np.flatnonzero(reached)]] = True
        jumps = jumps[jumps]
    return np.flatnonzero(reached[:none])


def _places(data: Data, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Where a message might begin, and the batch of each place: its metadata have less than 64 KiB, and begin as usual."""
    first, last = int(starts[0]), int(ends[-1])
    blocks = range(first, last, BLOCK_BYTES)
    places = np.concatenate([np.zeros(0, np.int64), *(_places_of(data, at, min(at + BLOCK_BYTES, last)) for at in blocks)])
    owners = np.searchsorted(starts, places, side="right") - 1
    inside = places < ends[owners]  # what is between two batches is of none
    return (places, owners) if inside.all() else (places[inside], owners[inside])


def _places_of(data: Data, first: int, last: int) -> Ints:
    """The places in one block: two zeros, and the first tag behind the size."""
    is_place = (data[first:last] | data[first + 1 : last + 1]) == 0
    if np.count_nonzero(is_place) * MANY_ZEROS > len(is_place):
        is_place &= _IS_FIRST_TAG[data[first + 4 : last + 4]]
    zeros = np.flatnonzero(is_place) + first
    return zeros[_IS_FIRST_TAG[data[zeros + 4]]]


def _payload_sizes(data: Data, begins: Ints, ends: Ints) -> tuple[Ints, Flags]:
    """The size of each value, if only properties and a key stand before it in the metadata; and where that is so."""
    at = begins.copy()
    rows = np.arange(len(at))
    for _ in range(MOST_SKIPPED):
        tags = data[at[rows]]
        rows = rows[((tags == _PROPERTIES_TAG) | (tags == _KEY_TAG)) & (at[rows] < ends[rows])]
        if not len(rows):
            break
        sizes, behind, good = varints_at(data, at[rows] + 1, ends[rows])
        good &= sizes < np.uint64(1 << 31)
        at[rows] = np.where(good, np.minimum(behind + sizes.view(np.int64), ends[rows]), ends[rows])
        rows = rows[good]
    sizes, _, good = varints_at(data, at + 1, ends)
    good &= (at < ends) & (data[at] == _SIZE_TAG) & (sizes < np.uint64(1 << 31))
    return np.where(good, sizes, np.uint64(0)).view(np.int64), good


def _in_order(parts: Sequence[Ints]) -> Ints:
    joined = np.concatenate(parts, axis=1)
    return joined[:, np.argsort(joined[0], kind="stable")]


def _walk(payload: bytes, count: int) -> Ints:
    """Rows of begins and ends of metadata and of ends of values, message by message. Bytes behind the last do not count."""
    places: list[tuple[int, int, int]] = []
    at, length, unpack = 0, len(payload), _INT32.unpack_from
    try:
        for index in range(count):
            begin = at + 4
            end = begin + unpack(payload, at)[0]
            if not begin <= end <= length:
                raise DamagedBatchError(f"message {index} of its {count} reaches beyond its end")
            at = end + _size_of(payload, begin, end)
            if at > length:
                raise DamagedBatchError(f"message {index} of its {count} has a longer value than there is")
            places.append((begin, end, at))
    except (StructError, IndexError):
        raise DamagedBatchError(f"it ends within message {len(places)} of its {count}") from None
    return np.array(places, np.int64).reshape(-1, 3).T


def _size_of(payload: bytes, at: int, end: int) -> int:
    """The size of a value, from its message's metadata."""
    while at < end:
        tag, behind = _varint(payload, at)
        if tag == _SIZE_TAG:
            return _varint(payload, behind)[0]
        at = _behind_field(payload, tag, behind)
    raise DamagedBatchError("a message says no size")


def _behind_field(data: bytes, tag: int, at: int) -> int:
    """Where the field ends whose tag ends at a place."""
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
