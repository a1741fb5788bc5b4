"""Apache BookKeeper's binary protocol, version 2: adds and batch reads.

A frame is its size (4 bytes, without itself), then a version (1), an operation (1) and flags (2), then what the operation has::

    ADD         request: master key (20), entry                 answer: code (4), ledger (8), entry id (8)
    BATCH_READ  request: ledger (8), first entry id (8), request id (8), most entries (4), most bytes (8)
                answer: code (4), ledger (8), first entry id (8), request id (8), then each entry behind its size (4)

All numbers are big-endian. An answer to an ADD has no number of its request: ledger and entry id say what it answers. The READ
of this version has none either, so that the answer to an earlier read of an entry could be taken for that to a later one, which
fenced the ledger or came after an add. Version 3 numbers its reads, and is used for all single ones.

Ref: Apache BookKeeper's BookieProtocol and BookieProtoEncoding.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np
import numpy.typing as npt

from bk_spark.config import DigestType
from bk_spark.entries.batch import EntryBatch
from bk_spark.entries.entry_bytes import Places, framed
from bk_spark.errors import CorruptionError
from bk_spark.wire.messages import Status

VERSION = 2
SIZE_BYTES = 4

_HEAD = struct.Struct(">BBH")
_BATCH_READ = struct.Struct(">IBBHqqqiq")
_ANSWER = struct.Struct(">BBHiqqq")
_ENTRY_SIZE = struct.Struct(">i")

ACK = np.dtype(
    [
        ("size", ">u4"),
        ("version", "u1"),
        ("op", "u1"),
        ("flags", ">u2"),
        ("code", ">i4"),
        ("ledger_id", ">i8"),
        ("entry_id", ">i8"),
    ]
)
"""An answer to an ADD, with its size."""


class Operation(IntEnum):
    ADD = 1
    READ = 2
    AUTH = 3
    BATCH_READ = 7


class Flag(IntFlag):
    NONE = 0
    FENCE = 1
    RECOVERY_ADD = 2
    HIGH_PRIORITY = 4


CODES = {
    0: Status.OK,
    1: Status.NO_SUCH_LEDGER,
    2: Status.NO_SUCH_ENTRY,
    100: Status.BAD_REQUEST,
    101: Status.IO_ERROR,
    102: Status.UNAUTHORIZED,
    103: Status.UNSUPPORTED_VERSION,
    104: Status.FENCED,
    105: Status.READ_ONLY,
}
"""The others, too many requests (106) and a ledger whose state is unknown (107) among them, are UNKNOWN."""


@dataclass(frozen=True, slots=True)
class Answer:
    """To a BATCH_READ. ``data`` holds the whole frame; ``places`` where its entries begin and end."""

    status: Status
    code: int
    request_id: int
    data: bytes
    places: Places


def pack_adds(batch: EntryBatch, digest_type: DigestType, master_key: bytes, flags: Flag) -> bytes:
    """One ADD for each entry. ``master_key`` has Apache's 20 bytes."""
    return framed(batch, digest_type, _HEAD.pack(VERSION, Operation.ADD, flags) + master_key)


def pack_batch_read(ledger_id: int, first: int, request_id: int, most_entries: int, most_bytes: int) -> bytes:
    """A BATCH_READ of consecutive entries from ``first`` on."""
    size = _BATCH_READ.size - SIZE_BYTES
    head = (size, VERSION, Operation.BATCH_READ, Flag.NONE)
    return _BATCH_READ.pack(*head, ledger_id, first, request_id, most_entries, most_bytes)


def leading_acks(received: memoryview) -> npt.NDArray[np.void]:
    """The answers to ADDs at the beginning, up to the first frame that is something else or not complete."""
    acks = np.frombuffer(received, dtype=ACK, count=len(received) // ACK.itemsize)
    is_ack = (acks["size"] == ACK.itemsize - SIZE_BYTES) & (acks["op"] == Operation.ADD) & (acks["version"] == VERSION)
    return acks[: int(np.argmin(np.append(is_ack, False)))]


def unpack(frame: bytes) -> Answer:
    """The answer to a BATCH_READ, without its size. Raises CorruptionError for anything else."""
    try:
        version, operation, _, code, _, _, request_id = _ANSWER.unpack_from(frame)
    except struct.error:
        raise CorruptionError("an answer of a bookie", f"{len(frame)} bytes that are no answer of version {VERSION}") from None
    if version != VERSION or operation != Operation.BATCH_READ:
        raise CorruptionError("an answer of a bookie", f"it has version {version} and operation {operation}")
    return Answer(CODES.get(code, Status.UNKNOWN), code, request_id, frame, _places(frame, _ANSWER.size))


def _places(frame: bytes, at: int) -> Places:
    """Where the entries of a batch begin and end, each behind its size."""
    if at == len(frame):
        return np.empty((0, 2), dtype=np.int64)
    alike = _places_of_one_size(frame, at)
    if alike is not None:
        return alike
    places = []
    while at < len(frame):
        if at + _ENTRY_SIZE.size > len(frame):
            raise CorruptionError("an answer of a bookie", "it ends within the size of an entry")
        begin = at + _ENTRY_SIZE.size
        at = begin + _ENTRY_SIZE.unpack_from(frame, at)[0]
        if not begin <= at <= len(frame):
            raise CorruptionError("an answer of a bookie", "an entry in it reaches beyond its end")
        places.append((begin, at))
    return np.array(places, dtype=np.int64)


def _places_of_one_size(frame: bytes, at: int) -> Places | None:
    """The same, at once for all entries; None if they do not all have the size of the first one."""
    left = len(frame) - at
    size = _ENTRY_SIZE.unpack_from(frame, at)[0] if left >= _ENTRY_SIZE.size else -1
    step = _ENTRY_SIZE.size + size
    if size < 0 or left % step:
        return None
    sizes = np.ndarray((left // step,), ">i4", frame, offset=at, strides=(step,))
    if (sizes != size).any():
        return None
    begins = np.arange(at + _ENTRY_SIZE.size, len(frame) + 1, step, dtype=np.int64)
    return np.stack([begins, begins + size], axis=1)
