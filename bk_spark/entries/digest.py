"""Digests: what shows a reader that an entry is the one its writer confirmed.

A digest covers the payload followed by a 32-byte header::

    payload ‖ ledger id ‖ entry id ‖ last add confirmed ‖ length      four int64, big-endian

so that an entry that is stored under another ledger or id, or whose LAC was altered, does not verify either. The payload
stands first, because its part can be computed before the entry's LAC is known.

CRC32C digests are 4 bytes, little-endian, and protect against damage. HMAC digests are HMAC-SHA256, 32 bytes, keyed by
the ledger password, and also protect against whoever does not know it.

Ref: the BookKeeper protocol, "Writing to ledgers"; docs/formats.md, "Digests".
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.config import DigestType
from bk_spark.entries.crc import Words, are_right, crc32c_continued, crc32c_each, pays

DIGEST_BYTES = {DigestType.CRC32C: 4, DigestType.HMAC: 32}

_SHORT_BYTES = 1024
"""Payloads that are shorter on average are copied one by one for their digests: below it that is quicker than slices."""

_HEADER = np.dtype([("ledger_id", ">i8"), ("entry_id", ">i8"), ("last_add_confirmed", ">i8"), ("length", ">i8")])


def master_key(password: bytes) -> bytes:
    """The 32-byte proof of a ledger password that requests carry to bookies."""
    return hashlib.sha256(b"ledger" + password).digest()


def master_key_hash(key: bytes) -> bytes:
    """The 16 bytes that a bookie stores of a master key: enough to recognise it, useless to present it."""
    return hashlib.sha256(b"stored" + key).digest()[:16]


def payload_sizes(payloads: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Bytes of each payload."""
    return np.diff(_offsets(payloads)).astype(np.int64)


def payload_bytes(payloads: pa.BinaryArray) -> int:
    """Bytes of all payloads together."""
    offsets = _offsets(payloads)
    return int(offsets[-1]) - int(offsets[0])


@dataclass(frozen=True, slots=True)
class Digester:
    """Computes and verifies the digests of one ledger."""

    digest_type: DigestType
    password: bytes = field(repr=False)

    def compute(
        self,
        ledger_id: int,
        entry_ids: npt.NDArray[np.int64],
        last_add_confirmed: npt.NDArray[np.int64] | int,
        lengths: npt.NDArray[np.int64],
        payloads: pa.BinaryArray,
    ) -> pa.FixedSizeBinaryArray:
        """One digest an entry. All arrays have one length; ``lengths`` are cumulative and include the entry."""
        headers = _headers(ledger_id, entry_ids, last_add_confirmed, lengths)
        digests = _crc32c(payloads, headers) if self.digest_type is DigestType.CRC32C else self._hmac(payloads, headers)
        width = DIGEST_BYTES[self.digest_type]
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(entry_ids), [None, pa.py_buffer(digests)])

    def are_right(
        self,
        ledger_id: int,
        entry_ids: npt.NDArray[np.int64],
        last_add_confirmed: npt.NDArray[np.int64] | int,
        lengths: npt.NDArray[np.int64],
        payloads: pa.BinaryArray,
        digests: pa.FixedSizeBinaryArray,
    ) -> bool:
        """Whether ``digests`` are what ``compute`` gives, for all entries at once.

        Of CRC32C digests the checksum of all payloads together follows: it is computed over the payloads in one go, in a fifth
        of the time where entries are small. One wrong entry passes as rarely as with its own digest, once in 2³²; two of one
        batch may hide each other, which is for the batch's own checksum to find (``crc.py``).
        """
        sizes = payload_sizes(payloads)
        if self.digest_type is not DigestType.CRC32C or digests.null_count or not pays(sizes):
            return bool(digests.equals(self.compute(ledger_id, entry_ids, last_add_confirmed, lengths, payloads)))
        if digests.type != pa.binary(DIGEST_BYTES[DigestType.CRC32C]):
            return False
        headers = _headers(ledger_id, entry_ids, last_add_confirmed, lengths)
        return are_right(_words(digests), headers, _in_a_row(payloads), sizes)

    def _hmac(self, payloads: pa.BinaryArray, headers: npt.NDArray[np.void]) -> bytes:
        key = hmac.new(hashlib.sha256(b"mac" + self.password).digest(), digestmod=hashlib.sha256)
        pieces = zip(_pieces(payloads), headers, strict=True)
        return b"".join(_hmac_of(key, payload, header.tobytes()) for payload, header in pieces)


def _headers(
    ledger_id: int,
    entry_ids: npt.NDArray[np.int64],
    last_add_confirmed: npt.NDArray[np.int64] | int,
    lengths: npt.NDArray[np.int64],
) -> npt.NDArray[np.void]:
    headers = np.empty(len(entry_ids), dtype=_HEADER)
    headers["ledger_id"] = ledger_id
    headers["entry_id"] = entry_ids
    headers["last_add_confirmed"] = last_add_confirmed
    headers["length"] = lengths
    return headers


def _crc32c(payloads: pa.BinaryArray, headers: npt.NDArray[np.void]) -> bytes:
    return _continued(crc32c_each(_pieces(payloads)), headers).astype("<u4").tobytes()


def _continued(values: Words, headers: npt.NDArray[np.void]) -> Words:
    return crc32c_continued(values, headers.view(np.uint8).reshape(len(headers), _HEADER.itemsize))


def _in_a_row(payloads: pa.BinaryArray) -> memoryview:
    """The bytes of all payloads, at least one that is not empty."""
    offsets = _offsets(payloads)
    return memoryview(payloads.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _words(digests: pa.FixedSizeBinaryArray) -> Words:
    every = np.frombuffer(digests.buffers()[1], dtype="<u4", count=digests.offset + len(digests))
    return every[digests.offset :]


def _hmac_of(key: hmac.HMAC, payload: bytes | memoryview, header: bytes) -> bytes:
    mac = key.copy()
    mac.update(payload)
    mac.update(header)
    return mac.digest()


def _offsets(payloads: pa.BinaryArray) -> npt.NDArray[np.int32]:
    if len(payloads) == 0:
        return np.zeros(1, dtype=np.int32)
    # By count: the buffer of a damaged batch may end within a number behind the last one.
    every = np.frombuffer(payloads.buffers()[1], dtype=np.int32, count=payloads.offset + len(payloads) + 1)
    return every[payloads.offset :]


def _pieces(payloads: pa.BinaryArray) -> Iterable[bytes | memoryview]:
    """Each payload: short ones as bytes, which costs half of what a slice does, long ones without a copy."""
    offsets = _offsets(payloads)
    if offsets[-1] - offsets[0] <= _SHORT_BYTES * len(payloads):
        pieces: list[bytes] = payloads.to_pylist()
        return pieces
    return _slices(payloads)


def _slices(payloads: pa.BinaryArray) -> Iterable[memoryview]:
    data = payloads.buffers()[2]
    view = memoryview(data) if data is not None else memoryview(b"")
    offsets = _offsets(payloads).tolist()
    return (view[start:end] for start, end in itertools.pairwise(offsets))
