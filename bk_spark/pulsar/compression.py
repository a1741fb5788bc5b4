"""The compressions of Pulsar: of payloads, and of values in its metadata store."""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

MAX_INFLATED_BYTES: Final = 128 * 1024 * 1024
"""The largest payload after decompression: 25 times the largest message of Pulsar's default."""

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
_CODECS: Final = {LZ4: pa.Codec("lz4_raw"), ZSTD: pa.Codec("zstd"), SNAPPY: pa.Codec("snappy")}

_MOST_OF_ONE: Final = {LZ4: 255, ZLIB: 1032, ZSTD: 32_768, SNAPPY: 64}
"""Bytes that one compressed byte can stand for, so that a small lie makes nobody allocate much."""


class DamagedPayloadError(Exception):
    """Bytes that are not what their compression and size say."""


def decompress(data: bytes | pa.Buffer, compression: int, size: int) -> bytes:
    """``size`` bytes, as they were before they were compressed. Raises DamagedPayloadError."""
    if compression == NONE:  # then the size means nothing, and Pulsar's own clients do not look at it
        return data if isinstance(data, bytes) else data.to_pybytes()
    if compression not in _MOST_OF_ONE:
        raise DamagedPayloadError(f"it has compression {compression}, which is none of Pulsar's")
    if not 0 <= size <= min(MAX_INFLATED_BYTES, _MOST_OF_ONE[compression] * (len(memoryview(data)) + 1)):
        raise DamagedPayloadError(f"it says that it has {size} bytes before compression, which is more than it can have")
    if compression == SNAPPY and _snappy_size(data) != size:
        raise DamagedPayloadError(f"it has another size than {size} bytes after it is decompressed")
    try:
        if compression == ZLIB:
            found = zlib.decompressobj().decompress(data, size + 1)  # Pulsar's Java client does not end the stream
        else:
            found = _CODECS[compression].decompress(data, size, asbytes=True)
            if compression == LZ4 and size and _is_shorter(data, size):
                raise DamagedPayloadError(f"it has fewer than {size} bytes after it is decompressed")
    except (zlib.error, OSError, pa.ArrowException) as problem:
        raise DamagedPayloadError(f"it cannot be decompressed ({problem})") from None
    if len(found) != size:
        raise DamagedPayloadError(f"it has another size than {size} bytes after it is decompressed")
    return found


def _is_shorter(data: bytes | pa.Buffer, size: int) -> bool:
    """Whether a block of LZ4 has fewer bytes than its entry says. Nothing in it tells, and the rest would be anything."""
    try:
        _CODECS[LZ4].decompress(data, size - 1, asbytes=True)
    except (OSError, pa.ArrowException):
        return False
    return True


def _snappy_size(data: bytes | pa.Buffer) -> int:
    """The size that a block of SNAPPY begins with, as a varint."""
    size = 0
    for index, byte in enumerate(memoryview(data)[:5]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    return -1
