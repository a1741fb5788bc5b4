"""Digests: they prove to a reader that an entry is the one its writer confirmed.

A digest covers a header of 32 bytes, followed by the payload::

    ledger id ‖ entry id ‖ last add confirmed ‖ length ‖ payload      four int64, big-endian

so an entry under another ledger or id, or with an altered LAC, does not verify either. Types, widths and keys are Apache
BookKeeper's:

    CRC32     8 bytes   zlib's CRC-32 as an int64, big-endian
    HMAC     20 bytes   HMAC-SHA1, keyed by SHA1("mac" ‖ password)
    CRC32C    4 bytes   CRC-32C as an int32, big-endian
    DUMMY     0 bytes   proves nothing

The CRCs and DUMMY find damage or nothing; HMAC also protects against forgery by those who do not know the password.

Ref: the BookKeeper protocol, "Writing to ledgers"; Apache BookKeeper's DigestManager; docs/formats.md, "Digests".
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.config import DigestType
from bk_spark.entries.crc import (
    Headers,
    Words,
    can_verify_together,
    crc32c,
    crc32c_continued,
    crc32c_of_rows,
    verify_together,
)

DIGEST_BYTES = {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}

_SHORT_BYTES = 1024
"""Payloads that are shorter on average are copied for their digests, which is faster than slicing them."""

_HEADER = np.dtype([("ledger_id", ">i8"), ("entry_id", ">i8"), ("last_add_confirmed", ">i8"), ("length", ">i8")])


APACHE_KEY_BYTES = 20
"""The part of a master key that Apache BookKeeper knows: the proof of the password."""

_STORED_BYTES = 16
_TOKEN_BYTES = 8
_NO_TOKEN = bytes(_TOKEN_BYTES)
_SIGN = 0x80
"""In the last byte of a token: it is negative."""


def master_key(password: bytes, creator_token: int = 0) -> bytes:
    """The 28 bytes by which requests name their ledger to bookies: a proof of its password, then its creator's token.

    A ledger id alone may name two ledgers, after the metadata store went back to an older copy. The token tells them apart.
    0 stands for no token: the metadata, or the client's wire, has none. Then only the password is compared.
    """
    return hashlib.sha1(b"ledger" + password).digest() + creator_token.to_bytes(_TOKEN_BYTES, "little", signed=True)


def write_proof(secret: bytes, ledger_id: int, creator_token: int) -> bytes:
    """The 20 bytes by which requests write to a keyed ledger. They follow from its log's secret."""
    named = ledger_id.to_bytes(8, "big") + creator_token.to_bytes(_TOKEN_BYTES, "big", signed=True)
    return hmac.digest(secret, b"write" + named, "sha256")[:APACHE_KEY_BYTES]


def read_password(proof: bytes) -> bytes:
    """The password by which a keyed ledger is read. It follows from the write proof, and the proof does not follow from it."""
    return hashlib.sha256(b"read" + proof).digest()


def is_keyed(key: bytes) -> bool:
    """Whether a master key, or the hash of one, is of a keyed ledger: its token is negative."""
    return bool(key) and key[-1] >= _SIGN


def whole_key(proof: bytes) -> bytes:
    """The master key of a request over Apache's wire, which carries the proof of the password alone."""
    is_proof = len(proof) == APACHE_KEY_BYTES  # version 3 takes any bytes for one
    return (proof if is_proof else hashlib.sha1(proof).digest()) + _NO_TOKEN


def master_key_hash(key: bytes) -> bytes:
    """The 24 bytes that a bookie stores of a master key: a hash, which cannot be presented as the key, and the token.

    Of a keyed ledger it is the key that reads show. Its hash is one of its own, so that no request without the token fits it.
    """
    kind = b"keyed" if is_keyed(key) else b"stored"
    return hashlib.sha256(kind + key[:APACHE_KEY_BYTES]).digest()[:_STORED_BYTES] + key[APACHE_KEY_BYTES:]


def writable_hash(key: bytes) -> bytes:
    """The hash that a bookie stores of the ledger to which the owner of this master key may write."""
    if not is_keyed(key):
        return master_key_hash(key)
    reads = hashlib.sha1(b"ledger" + read_password(key[:APACHE_KEY_BYTES])).digest()
    return master_key_hash(reads + key[APACHE_KEY_BYTES:])


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
    return np.diff(payload_offsets(payloads)).astype(np.int64)


def payload_bytes(payloads: pa.BinaryArray) -> int:
    """Bytes of all payloads together."""
    offsets = payload_offsets(payloads)
    return int(offsets[-1]) - int(offsets[0])


def payloads_in_a_row(payloads: pa.BinaryArray) -> memoryview:
    """The bytes of all payloads, of at least one."""
    offsets, data = payload_offsets(payloads), payloads.buffers()[2]
    return memoryview(b"" if data is None else data)[int(offsets[0]) : int(offsets[-1])]


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
        digests = self._digests(payloads, headers)
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
        words = np.frombuffer(digests.buffers()[1], dtype=">u4", count=digests.offset + len(digests))[digests.offset :]

        def write(rows: npt.NDArray[np.void], every: slice) -> None:
            confirmed = last_add_confirmed if isinstance(last_add_confirmed, int) else last_add_confirmed[every]
            _write_headers(rows, ledger_id, entry_ids[every], confirmed, lengths[every])

        return verify_together(words, Headers(_HEADER, write), payloads_in_a_row(payloads), sizes)

    def of_bytes(self, covered: bytes) -> bytes:
        """One digest, of something else than an entry."""
        match self.digest_type:
            case DigestType.CRC32C:
                return int(crc32c(covered)).to_bytes(4)
            case DigestType.CRC32:
                return zlib.crc32(covered).to_bytes(8)
            case DigestType.HMAC:
                return hmac.digest(self._hmac_key, covered, "sha1")
            case DigestType.DUMMY:
                return b""

    @property
    def _hmac_key(self) -> bytes:
        return hashlib.sha1(b"mac" + self.password).digest()

    def _digests(self, payloads: pa.BinaryArray, headers: npt.NDArray[np.void]) -> bytes:
        match self.digest_type:
            case DigestType.CRC32C:
                return _crc32c_of(headers, payloads).astype(">u4").tobytes()
            case DigestType.CRC32:
                begun = map(zlib.crc32, map(bytes, headers))
                found = map(zlib.crc32, payload_pieces(payloads), begun)
                return np.fromiter(found, dtype=">i8", count=len(headers)).tobytes()
            case DigestType.HMAC:
                return b"".join(self._macs(payload_pieces(payloads), headers))
            case DigestType.DUMMY:
                return b""

    def _macs(self, payloads: Iterable[bytes | memoryview], headers: npt.NDArray[np.void]) -> Iterator[bytes]:
        key = hmac.new(self._hmac_key, digestmod=hashlib.sha1)
        for payload, header in zip(payloads, headers, strict=True):
            mac = key.copy()
            mac.update(header.tobytes())
            mac.update(payload)
            yield mac.digest()


def _headers(
    ledger_id: int,
    entry_ids: npt.NDArray[np.int64],
    last_add_confirmed: npt.NDArray[np.int64] | int,
    lengths: npt.NDArray[np.int64],
) -> npt.NDArray[np.void]:
    headers = np.empty(len(entry_ids), dtype=_HEADER)
    _write_headers(headers, ledger_id, entry_ids, last_add_confirmed, lengths)
    return headers


def _write_headers(
    headers: npt.NDArray[np.void],
    ledger_id: int,
    entry_ids: npt.NDArray[np.int64],
    last_add_confirmed: npt.NDArray[np.int64] | int,
    lengths: npt.NDArray[np.int64],
) -> None:
    headers["ledger_id"] = ledger_id
    headers["entry_id"] = entry_ids
    headers["last_add_confirmed"] = last_add_confirmed
    headers["length"] = lengths


def _crc32c_of(headers: npt.NDArray[np.void], payloads: pa.BinaryArray) -> Words:
    begun = crc32c_of_rows(headers.view(np.uint8).reshape(len(headers), _HEADER.itemsize))
    return crc32c_continued(begun, payload_pieces(payloads), payload_sizes(payloads))


def payload_offsets(payloads: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Where each payload begins in the array's data, and where the last one ends."""
    if len(payloads) == 0:
        return np.zeros(1, dtype=np.int32)
    # With a count: the buffer of a damaged batch can end within a number behind the last offset.
    every = np.frombuffer(payloads.buffers()[1], dtype=np.int32, count=payloads.offset + len(payloads) + 1)
    return every[payloads.offset :]


def payload_pieces(payloads: pa.BinaryArray) -> Iterable[bytes | memoryview]:
    """Each payload: short ones as bytes, which costs half as much as a slice, long ones as slices without a copy."""
    offsets = payload_offsets(payloads)
    if offsets[-1] - offsets[0] <= _SHORT_BYTES * len(payloads):
        pieces: list[bytes] = payloads.to_pylist()
        return pieces
    view = memoryview(payloads.buffers()[2])
    return (view[start:end] for start, end in itertools.pairwise(offsets.tolist()))
