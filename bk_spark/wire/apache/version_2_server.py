"""Version 2 of Apache BookKeeper's wire protocol, as a bookie hears and speaks it (version_2.py: as a client does).

Adds are taken in runs. A client that adds quickly sends many ADDs in a row, of one ledger, with ascending ids. If they have one
size, numpy finds all of them at once; the answers to a run are made at once, too.

Ref: Apache BookKeeper's BookieProtocol, BookieProtoEncoding and BatchedReadEntryProcessor.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from bk_spark.entries.apache_entries import LEAST_BYTES, ApacheEntries
from bk_spark.entries.batch import MAX_ENTRY_ID, binaries
from bk_spark.entries.digest import payload_offsets, payload_sizes
from bk_spark.errors import CorruptionError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache.version_2 import ACK, SIZE_BYTES, VERSION, Flag, Operation
from bk_spark.wire.messages import Status

MOST_RUN_ENTRIES = 1_000
"""Of one run: its entries are answered together, so it bounds how long the first one waits."""

_MANY = 8
"""From so many ADDs of one size on, numpy is quicker than one look at each."""

_HEAD = struct.Struct(">IBBH")
_ADD = struct.Struct(">IBBH20sqqq")
_READ = struct.Struct(">qq")
_BATCH_READ = struct.Struct(">qqqiq")
_ANSWER = struct.Struct(">IBBHiqq")
_REQUEST_ID = struct.Struct(">q")
_ENTRY_SIZE = struct.Struct(">i")
_KEY_BYTES = 20
_BEFORE_ENTRY = _HEAD.size + _KEY_BYTES
ENTRIES_HEAD_BYTES = _ANSWER.size + _REQUEST_ID.size
"""Of the answer to a batch read, with its size: what stands before the entries."""
_ADD_HEAD = np.dtype(
    [
        ("head", "V8"),
        ("key", f"V{_KEY_BYTES}"),
        ("ledger_id", ">i8"),
        ("entry_id", ">i8"),
    ]
)

CODES = {
    Status.OK: 0,
    Status.NO_SUCH_LEDGER: 1,
    Status.NO_SUCH_ENTRY: 2,
    Status.BAD_REQUEST: 100,
    Status.IO_ERROR: 101,
    Status.DAMAGED: 101,
    Status.UNAUTHORIZED: 102,
    Status.OTHER_LEDGER: 102,
    Status.UNSUPPORTED_VERSION: 103,
    Status.FENCED: 104,
    Status.READ_ONLY: 105,
    Status.UNKNOWN: 107,
}
"""What this version says for each status; 107: the state of the ledger is unknown. A client takes damage for an I/O error, and
another creator's ledger for one of another password: it asks another bookie."""


@dataclass(frozen=True, slots=True)
class SingleAdds:
    """ADDs in a row, of one ledger, key and kind, with ascending ids."""

    ledger_id: int
    master_key: bytes = field(repr=False)
    flags: int
    whole: ApacheEntries

    @property
    def is_recovery(self) -> bool:
        return bool(self.flags & Flag.RECOVERY_ADD)

    @property
    def is_deferred(self) -> bool:
        return False

    def acks(self, rows: slice, status: Status) -> bytes:
        """The answers to some of the ADDs."""
        ids = self.whole.entry_ids[rows]
        acks = np.zeros(len(ids), dtype=ACK)
        acks["size"] = ACK.itemsize - SIZE_BYTES
        acks["version"] = VERSION
        acks["op"] = Operation.ADD
        acks["code"] = CODES.get(status, CODES[Status.UNKNOWN])
        acks["ledger_id"] = self.ledger_id
        acks["entry_id"] = ids
        return acks.tobytes()


@dataclass(frozen=True, slots=True)
class SingleRead:
    """A READ. ``entry_id`` -1 asks for the last entry."""

    ledger_id: int
    entry_id: int
    fence_key: bytes | None = field(repr=False)
    """With it the ledger is to be fenced first."""
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class EntriesRead:
    """A BATCH_READ of consecutive entries."""

    ledger_id: int
    first: int
    request_id: int
    most_entries: int
    """0 or less: no limit."""
    most_bytes: int
    fence_key: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authentication:
    """An AUTH with its message, which is one of version 3."""

    message: bytes = field(repr=False)

    def unpacked(self) -> pb.AuthMessage:
        """Raises CorruptionError."""
        try:
            return pb.AuthMessage.FromString(self.message)
        except DecodeError as problem:
            raise CorruptionError("an authentication", f"it is no message ({problem})") from None


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that is refused by its form alone, with the frame that says so."""

    answer: bytes


Request = SingleAdds | SingleRead | EntriesRead | Authentication | Refused


def frame_end(data: memoryview, at: int, most_bytes: int) -> int | None:
    """Where the frame at ``at`` ends; None if it is not complete. Raises CorruptionError for one above ``most_bytes``."""
    if len(data) - at < SIZE_BYTES:
        return None
    size = int.from_bytes(data[at : at + SIZE_BYTES])
    if size > most_bytes:
        raise CorruptionError("a request", f"a frame of {size} bytes, at most {most_bytes} are taken")
    end = at + SIZE_BYTES + size
    return end if end <= len(data) else None


def take(data: memoryview, at: int, end: int) -> tuple[Request, int]:
    """The request in the complete frame from ``at`` to ``end``, and where the next one begins: an add takes with it as many of
    those behind it as make a run. Raises CorruptionError for a frame that cannot even be refused: it has no ids."""
    if end - at < _HEAD.size:
        raise CorruptionError("a request", f"a frame of {end - at} bytes is none of version {VERSION}")
    _, version, operation, flags = _HEAD.unpack_from(data, at)
    if version != VERSION:
        return _refused(data, at, end, Status.UNSUPPORTED_VERSION), end
    body = data[at + _HEAD.size : end]
    match operation:
        case Operation.ADD:
            return _take_adds(data, at, end, flags)
        case Operation.READ:
            return _read(body, flags), end
        case Operation.BATCH_READ:
            return _batch_read(body, flags), end
        case Operation.AUTH:
            return Authentication(bytes(body)), end
    return _refused(data, at, end, Status.BAD_REQUEST), end


def _refused(data: memoryview, at: int, end: int, status: Status) -> Refused:
    """The refusal names the ids that stand where this operation has them."""
    operation = data[at + SIZE_BYTES + 1]
    ids_at = at + (_BEFORE_ENTRY if operation == Operation.ADD else _HEAD.size)
    if end - ids_at < _READ.size:
        raise CorruptionError("a request", f"operation {operation} in {end - at} bytes, with {status.name.lower()}")
    ledger_id, entry_id = _READ.unpack_from(data, ids_at)
    return Refused(_packed(operation, status, ledger_id, entry_id, b""))


def _take_adds(data: memoryview, at: int, end: int, flags: int) -> tuple[SingleAdds | Refused, int]:
    if end - at < _BEFORE_ENTRY + LEAST_BYTES:
        return _refused(data, at, end, Status.BAD_REQUEST), end
    _, _, _, _, key, ledger_id, entry_id, _ = _ADD.unpack_from(data, at)
    if ledger_id < 0 or not 0 <= entry_id <= MAX_ENTRY_ID:
        return _refused(data, at, end, Status.BAD_REQUEST), end
    step = end - at
    count = _alike(data, at, step) if len(data) - end >= step else 1
    whole, end = _alike_entries(data, at, step, count) if count >= _MANY else _different_entries(data, at, end)
    return SingleAdds(ledger_id, key, flags, whole), end


def _alike(data: memoryview, at: int, step: int) -> int:
    """How many frames from ``at`` on are like the first: in size, head, key and ledger, with ascending ids."""
    heads = _heads(data, at, step, min((len(data) - at) // step, MOST_RUN_ENTRIES))
    is_next = np.empty(len(heads), dtype=np.bool_)
    is_next[0] = True
    ids = heads["entry_id"]
    is_next[1:] = (ids[1:] > ids[:-1]) & (heads["ledger_id"][1:] == heads["ledger_id"][0])
    for name in ("head", "key"):
        is_next &= heads[name] == heads[name][0]
    return len(heads) if is_next.all() else int(np.argmin(is_next))


def _heads(data: memoryview, at: int, step: int, count: int) -> npt.NDArray[np.void]:
    return np.ndarray((count,), _ADD_HEAD, data, offset=at, strides=(step,))


def _alike_entries(data: memoryview, at: int, step: int, count: int) -> tuple[ApacheEntries, int]:
    heads, size = _heads(data, at, step, count), step - _BEFORE_ENTRY
    rows = np.ndarray((count, size), np.uint8, data, offset=at + _BEFORE_ENTRY, strides=(step, 1))
    ends = np.arange(0, size * (count + 1), size, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))]
    entries = pa.BinaryArray.from_buffers(pa.binary(), count, buffers)
    return ApacheEntries(int(heads["ledger_id"][0]), heads["entry_id"].astype(np.int64), entries), at + count * step


def _different_entries(data: memoryview, at: int, end: int) -> tuple[ApacheEntries, int]:
    """The entry of the ADD from ``at`` to ``end``, and those of the next ones of its ledger, of any size."""
    _, _, _, flags, key, ledger_id, entry_id, _ = _ADD.unpack_from(data, at)
    ids, entries = [entry_id], [bytes(data[at + _BEFORE_ENTRY : end])]
    while len(ids) < MOST_RUN_ENTRIES and len(data) - end >= _ADD.size:
        size, version, operation, *same, next_ledger, next_id, _ = _ADD.unpack_from(data, end)
        next_end = end + SIZE_BYTES + size
        is_alike = (version, operation, same, next_ledger) == (VERSION, Operation.ADD, [flags, key], ledger_id)
        if not is_alike or not ids[-1] < next_id <= MAX_ENTRY_ID or size < _ADD.size - SIZE_BYTES or next_end > len(data):
            break
        ids.append(next_id)
        entries.append(bytes(data[end + _BEFORE_ENTRY : next_end]))
        end = next_end
    return ApacheEntries(ledger_id, np.array(ids, dtype=np.int64), binaries(entries)), end


def _read(body: memoryview, flags: int) -> SingleRead | Refused:
    if len(body) < _READ.size:
        raise CorruptionError("a read", f"it has {len(body)} bytes")
    ledger_id, entry_id = _READ.unpack_from(body)
    read = SingleRead(ledger_id, entry_id, _fence_key(body, _READ.size, flags), bool(flags & Flag.HIGH_PRIORITY))
    return read if _has_its_key(read) else Refused(pack_read(read, Status.UNAUTHORIZED))


def _batch_read(body: memoryview, flags: int) -> EntriesRead | Refused:
    if len(body) < _BATCH_READ.size:
        raise CorruptionError("a batch read", f"it has {len(body)} bytes")
    ledger_id, first, request_id, most_entries, most_bytes = _BATCH_READ.unpack_from(body)
    fence_key = _fence_key(body, _BATCH_READ.size, flags)
    read = EntriesRead(ledger_id, first, request_id, most_entries, most_bytes, fence_key)
    return read if _has_its_key(read) else Refused(pack_entries(read, Status.UNAUTHORIZED))


def _fence_key(body: memoryview, at: int, flags: int) -> bytes | None:
    return bytes(body[at : at + _KEY_BYTES]) if flags & Flag.FENCE else None


def _has_its_key(read: SingleRead | EntriesRead) -> bool:
    """A fence of a ledger that was never seen sets its key: a part of one would shut its writer out."""
    return read.fence_key is None or len(read.fence_key) == _KEY_BYTES


def refusal(request: Request, status: Status) -> bytes:
    """The answers that refuse a request."""
    match request:
        case SingleAdds():
            return request.acks(slice(None), status)
        case SingleRead():
            return pack_read(request, status)
        case EntriesRead():
            return pack_entries(request, status)
        case Authentication():
            return pack_authentication(b"")
        case Refused():
            return request.answer


def pack_read(request: SingleRead, status: Status, entry: bytes = b"") -> bytes:
    """``entry`` if the status is OK."""
    return _packed(Operation.READ, status, request.ledger_id, request.entry_id, entry)


def pack_entries(request: EntriesRead, status: Status, entries: bytes = b"") -> bytes:
    """``entries`` as ``sized`` makes them, if the status is OK."""
    rest = _REQUEST_ID.pack(request.request_id) + entries
    return _packed(Operation.BATCH_READ, status, request.ledger_id, request.first, rest)


def pack_authentication(message: bytes) -> bytes:
    size = _HEAD.size - SIZE_BYTES + len(message)
    return _HEAD.pack(size, VERSION, Operation.AUTH, 0) + message


def _packed(operation: int, status: Status, ledger_id: int, entry_id: int, rest: bytes) -> bytes:
    code = CODES.get(status, CODES[Status.UNKNOWN])
    size = _ANSWER.size - SIZE_BYTES + len(rest)
    return _ANSWER.pack(size, VERSION, operation, 0, code, ledger_id, entry_id) + rest


def sized(parts: Sequence[pa.BinaryArray]) -> bytes:
    """Each entry behind its size."""
    return b"".join(map(_sized, parts))


def _sized(entries: pa.BinaryArray) -> bytes:
    sizes, offsets = payload_sizes(entries), payload_offsets(entries)
    data = memoryview(entries.buffers()[2])
    if (sizes == sizes[0]).all():
        size = int(sizes[0])
        out = np.empty((len(entries), _ENTRY_SIZE.size + size), dtype=np.uint8)
        out[:, : _ENTRY_SIZE.size] = np.frombuffer(_ENTRY_SIZE.pack(size), dtype=np.uint8)
        out[:, _ENTRY_SIZE.size :] = np.frombuffer(data[offsets[0] : offsets[-1]], dtype=np.uint8).reshape(-1, size)
        return out.tobytes()
    pieces: list[bytes | memoryview] = []
    for begin, size in zip(offsets[:-1].tolist(), sizes.tolist(), strict=True):
        pieces += (_ENTRY_SIZE.pack(size), data[begin : begin + size])
    return b"".join(pieces)
