"""Digests: they prove to a reader that an entry is the one its writer confirmed.

A digest covers the payload followed by a 32-byte header::

    payload ‖ ledger id ‖ entry id ‖ last add confirmed ‖ length      four int64, big-endian

so an entry under another ledger or id, or with an altered LAC, does not verify either. The payload comes first because its part
can be computed before the entry's LAC is known.

CRC32C digests are 4 bytes, little-endian, and protect against damage. HMAC digests are HMAC-SHA256, 32 bytes, keyed by
the ledger password, and also protect against forgery by those who do not know it.

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
from bk_spark.entries.crc import can_verify_together, crc32c_continued, crc32c_each, verify_together

DIGEST_BYTES = {DigestType.CRC32C: 4, DigestType.HMAC: 32}

_SHORT_BYTES = 1024
"""Payloads that are shorter on average are copied for their digests, which is faster than slicing them."""

_HEADER = np.dtype([("ledger_id", ">i8"), ("entry_id", ">i8"), ("last_add_confirmed", ">i8"), ("length", ">i8")])


_PROOF_BYTES = 32
_STORED_BYTES = 16
_TOKEN_BYTES = 8
_NO_TOKEN = bytes(_TOKEN_BYTES)


def master_key(password: bytes, creator_token: int = 0) -> bytes:
    """The 40 bytes by which requests name their ledger to bookies: a proof of its password, then its creator's token.

    A ledger id alone may name two ledgers, after the metadata store went back to an older copy. The token tells them apart.
    0 stands for no token: the metadata, or the client's wire, has none. Then only the password is compared.
    """
    return hashlib.sha256(b"ledger" + password).digest() + creator_token.to_bytes(_TOKEN_BYTES, "little", signed=True)


def master_key_hash(key: bytes) -> bytes:
    """The 24 bytes that a bookie stores of a master key: a hash, which cannot be presented as the key, and the token."""
    return hashlib.sha256(b"stored" + key[:_PROOF_BYTES]).digest()[:_STORED_BYTES] + key[_PROOF_BYTES:]


def is_other_ledger(stored: bytes, asked: bytes) -> bool:
    """Whether two hashes of master keys carry the tokens of two creators."""
    tokens = {stored[_STORED_BYTES:], asked[_STORED_BYTES:]}
    return len(tokens) == 2 and _NO_TOKEN not in tokens


def is_same_key(stored: bytes, asked: bytes) -> bool:
    """Whether two hashes of master keys are the same: the password and the token."""
    return hmac.compare_digest(stored, asked)


def is_same_password(stored: bytes, asked: bytes) -> bool:
    return hmac.compare_digest(stored[:_STORED_BYTES], asked[:_STORED_BYTES])


def payload_sizes(payloads: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Bytes of each payload."""
    return np.diff(_offsets(payloads)).astype(np.int64)


def payload_bytes(payloads: pa.BinaryArray) -> int:
    """Bytes of all payloads together."""
    offsets = _offsets(payloads)
    return int(offsets[-1]) - int(offsets[0])


def is_foreign(stored: bytes, own: bytes) -> bool:
    """Whether what is stored under one hash is surely not of the ledger whose metadata give the other one.

    Data with a token that is not the metadata's may be another ledger's of the same id, so it does not count: nothing says that
    it may go.
    """
    return stored[_STORED_BYTES:] in (_NO_TOKEN, own[_STORED_BYTES:]) and not is_same_password(stored, own)


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
        """One digest for each entry. All arrays have one length; ``lengths`` are cumulative and include the entry."""
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
        """Whether ``digests`` equal ``compute``'s, for all entries at once.

        CRC32C digests of small entries are verified together (``crc.py``), in a fifth of the time. One wrong entry passes as
        rarely as with its own digest, once in 2³²; two wrong ones can hide each other, which the batch's own checksum finds.
        """
        sizes = payload_sizes(payloads)
        if self.digest_type is not DigestType.CRC32C or digests.null_count or not can_verify_together(sizes):
            return bool(digests.equals(self.compute(ledger_id, entry_ids, last_add_confirmed, lengths, payloads)))
        if digests.type != pa.binary(DIGEST_BYTES[DigestType.CRC32C]):
            return False
        headers = _headers(ledger_id, entry_ids, last_add_confirmed, lengths)
        offsets = _offsets(payloads)
        in_a_row = memoryview(payloads.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
        words = np.frombuffer(digests.buffers()[1], dtype="<u4", count=digests.offset + len(digests))[digests.offset :]
        return verify_together(words, headers, in_a_row, sizes)

    def _hmac(self, payloads: pa.BinaryArray, headers: npt.NDArray[np.void]) -> bytes:
        key = hmac.new(hashlib.sha256(b"mac" + self.password).digest(), digestmod=hashlib.sha256)
        digests = []
        for payload, header in zip(_pieces(payloads), headers, strict=True):
            mac = key.copy()
            mac.update(payload)
            mac.update(header.tobytes())
            digests.append(mac.digest())
        return b"".join(digests)


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
    blocks = headers.view(np.uint8).reshape(len(headers), _HEADER.itemsize)
    return crc32c_continued(crc32c_each(_pieces(payloads)), blocks).astype("<u4").tobytes()


def _offsets(payloads: pa.BinaryArray) -> npt.NDArray[np.int32]:
    if len(payloads) == 0:
        return np.zeros(1, dtype=np.int32)
    # With a count: the buffer of a damaged batch can end within a number behind the last offset.
    every = np.frombuffer(payloads.buffers()[1], dtype=np.int32, count=payloads.offset + len(payloads) + 1)
    return every[payloads.offset :]


def _pieces(payloads: pa.BinaryArray) -> Iterable[bytes | memoryview]:
    """Each payload: short ones as bytes, which costs half as much as a slice, long ones as slices without a copy."""
    offsets = _offsets(payloads)
    if offsets[-1] - offsets[0] <= _SHORT_BYTES * len(payloads):
        pieces: list[bytes] = payloads.to_pylist()
        return pieces
    view = memoryview(payloads.buffers()[2])
    return (view[start:end] for start, end in itertools.pairwise(offsets.tolist()))
