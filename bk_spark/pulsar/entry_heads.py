"""What stands before the payload of each entry: optional parts of the broker, and MessageMetadata.

See docs/formats.md, "Pulsar's entries".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bk_spark.pulsar.protobuf_columns import Parsed, parse

_BROKER_METADATA, _CHECKSUM = 0x0E02, 0x0E01

PRODUCER, SEQUENCE_ID, PUBLISH_TIME, PROPERTIES, KEY, COMPRESSION, UNCOMPRESSED_SIZE = 1, 2, 3, 4, 6, 8, 9
MESSAGES, EVENT_TIME, ENCRYPTION_KEYS, SCHEMA_VERSION, ORDERING_KEY, MARKER_TYPE = 11, 12, 13, 16, 18, 20
TXN_LEAST, TXN_MOST, NULL_VALUE, UUID, CHUNKS, TOTAL_SIZE, CHUNK_ID = 22, 23, 25, 26, 27, 28, 29
"""The fields of MessageMetadata that are read."""

_NUMBERS = (SEQUENCE_ID, PUBLISH_TIME, COMPRESSION, UNCOMPRESSED_SIZE, MESSAGES, EVENT_TIME, MARKER_TYPE)
_MORE_NUMBERS = (TXN_LEAST, TXN_MOST, NULL_VALUE, CHUNKS, TOTAL_SIZE, CHUNK_ID)

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Data = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Heads:
    """Of each entry: its metadata, where its payload is, and whether it has both."""

    metadata: Parsed
    payload_starts: Ints
    payload_ends: Ints
    good: Flags


def read_heads(data: Data, starts: Ints, ends: Ints) -> Heads:
    """The heads of the entries from ``starts`` to ``ends``, excluded, in ``data``, which has PADDING bytes behind the last."""
    at, good = _behind_broker_metadata(data, starts, ends)
    at = np.where(_magic(data, at) == _CHECKSUM, at + 6, at)
    sizes = _int32(data, at)
    begins = at + 4
    payloads = begins + sizes
    good &= (sizes >= 0) & (begins <= ends) & (payloads <= ends)
    begins, payloads = np.where(good, begins, starts), np.where(good, payloads, starts)
    fields = (PRODUCER, KEY, SCHEMA_VERSION, ORDERING_KEY, UUID)
    metadata = parse(data, begins, payloads, _NUMBERS + _MORE_NUMBERS, fields, (PROPERTIES, ENCRYPTION_KEYS))
    required = metadata.slices[PRODUCER].present & metadata.varints[SEQUENCE_ID].present
    good &= required & metadata.varints[PUBLISH_TIME].present & ~metadata.malformed
    return Heads(metadata, payloads, ends, good)


def _behind_broker_metadata(data: Data, starts: Ints, ends: Ints) -> tuple[Ints, Flags]:
    there = _magic(data, starts) == _BROKER_METADATA
    if not there.any():
        return starts, np.ones(len(starts), np.bool_)
    sizes = np.where(there, _int32(data, starts + 2), 0)
    good = (sizes >= 0) & (starts + np.where(there, 6, 0) + sizes <= ends)
    return np.where(there & good, starts + 6 + sizes, starts), good


def _magic(data: Data, at: Ints) -> Ints:
    return data[at].astype(np.int64) << 8 | data[at + 1]


def _int32(data: Data, at: Ints) -> Ints:
    """The big-endian int32 at each place. PADDING covers what lies behind the data of a short entry."""
    places = np.minimum(at, len(data) - 4)
    return np.ascontiguousarray(data[places[:, None] + np.arange(4)]).view(">i4").reshape(-1).astype(np.int64)
