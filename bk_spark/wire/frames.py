"""Small adds of this package's clients, and their answers, as frames on the port that a bookie has for Apache's clients.

gRPC costs an add of a few hundred bytes more than all else together. So small adds go as frames of fixed fields, with the same
content as an AddRequest and an AddReply have in proto/bookie.proto::

    ADD    size (4), version (1), operation (1), flags (2), number (8), hash of the bookie's id (8), master key (28),
           ledger id (8), first and last entry id (8, 8), E, Qw, slot (1, 1, 1), digest type (1), last add confirmed (8),
           length before (8), CRC32C of the body (4), body
    reply  size (4), version (1), operation (1), status (2), number (8), boot (8), detail (the rest, UTF-8)

All numbers are big-endian; the size does not count itself. The version is a number that begins no frame of Apache's protocol:
as the first byte of a protobuf message it would be a field with the number 0, which there is not.

Ref: docs/formats.md, "The wire".
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache

from bk_spark.entries.batch import BatchHeader, EncodedBatch
from bk_spark.entries.digest import is_keyed
from bk_spark.errors import CorruptionError
from bk_spark.wire.codec import checked_add, digest_type_of, pattern_of, printable, status_of
from bk_spark.wire.messages import MAX_TEXT, AddReply, AddRequest, Status

VERSION = 7
_ADD = 1
_RECOVERY, _DEFERRED_SYNC, _MIXED_LAC = 1, 2, 4
_SIZE_BYTES = 4

_REQUEST = struct.Struct(">IBBHQ8s28sqqqBBBBqqI")
_REPLY = struct.Struct(">IBBHQQ")


@lru_cache(256)
def bookie_hash(bookie_id: str, *, is_keyed: bool) -> bytes:
    """Which bookie an add is for: a port may be given to another one.

    For a keyed ledger it is a number of its own: bookies that could not keep others from reading it take it for another one's.
    """
    return hashlib.sha256((b"keyed " if is_keyed else b"") + bookie_id.encode()).digest()[:8]


def pack_add(request: AddRequest, number: int) -> tuple[bytes, bytes | memoryview]:
    """The frame of an add, as what stands before the body, and the body. ``number`` takes the place of the request's own."""
    header, body = request.batch.header, request.batch.body
    assert header.digest_type is not None  # no client adds whole entries
    flags = _RECOVERY * request.recovery | _DEFERRED_SYNC * request.deferred_sync | _MIXED_LAC * header.mixed_lac
    pattern = header.pattern
    packed = _REQUEST.pack(
        _REQUEST.size - _SIZE_BYTES + len(body),
        VERSION,
        _ADD,
        flags,
        number,
        bookie_hash(request.bookie_id, is_keyed=is_keyed(request.master_key)),
        request.master_key,
        header.ledger_id,
        header.first_entry_id,
        header.last_entry_id,
        pattern.ensemble_size,
        pattern.write_quorum,
        pattern.slot,
        header.digest_type.value,
        header.last_add_confirmed,
        header.length_before,
        request.batch.body_crc32c,
    )
    return packed, body


def is_frame(data: memoryview, at: int, end: int) -> bool:
    """Whether the frame from ``at`` to ``end``, with its size in front, is one of these."""
    return end > at + _SIZE_BYTES and data[at + _SIZE_BYTES] == VERSION


def unpack_add(data: memoryview, at: int, end: int, bookie_id: str) -> tuple[int, AddRequest | AddReply]:
    """The number and the content of the add in the frame from ``at`` to ``end``; its refusal if it is for another bookie, or
    cannot be stored. Raises CorruptionError for what is no add."""
    if end - at < _REQUEST.size:
        raise CorruptionError("an add", f"a frame of {end - at} bytes")
    fields = _REQUEST.unpack_from(data, at)
    _, _, operation, flags, number, meant, key, ledger_id, first, last, *pattern, digest, confirmed, length, crc = fields
    if operation != _ADD:
        raise CorruptionError("a request", f"this bookie knows no operation {operation}")
    if meant != bookie_hash(bookie_id, is_keyed=is_keyed(key)):
        return number, AddReply(number, Status.WRONG_BOOKIE, f"this is bookie {bookie_id}")
    try:
        digest_type = digest_type_of(digest)
        ids = (ledger_id, first, last, pattern_of(*pattern), confirmed, length)
        header = BatchHeader(*ids, digest_type, bool(flags & _MIXED_LAC))
        batch = EncodedBatch(header, bytes(data[at + _REQUEST.size : end]), crc)
        request = AddRequest(number, bookie_id, key, batch, bool(flags & _RECOVERY), bool(flags & _DEFERRED_SYNC))
        return number, checked_add(request)
    except CorruptionError as problem:
        return number, AddReply(number, Status.BAD_REQUEST, str(problem))


def pack_reply(reply: AddReply, number: int) -> bytes:
    detail = reply.detail[:MAX_TEXT].encode()
    size = _REPLY.size - _SIZE_BYTES + len(detail)
    return _REPLY.pack(size, VERSION, _ADD, reply.status.value, number, reply.boot) + detail


def unpack_reply(frame: bytes) -> AddReply:
    """``frame`` is without its size. Raises CorruptionError."""
    begin = _REPLY.size - _SIZE_BYTES
    if len(frame) < begin or frame[0] != VERSION or frame[1] != _ADD:
        raise CorruptionError("an answer of a bookie", f"{len(frame)} bytes that are no answer to an add")
    _, _, _, status, number, boot = _REPLY.unpack(bytes(_SIZE_BYTES) + frame[:begin])
    return AddReply(number, status_of(status), printable(frame[begin:].decode(errors="replace")), boot)
