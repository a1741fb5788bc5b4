"""Version 3 of Apache BookKeeper's wire protocol, as a bookie hears and speaks it (version_3.py: as a client does).

Ref: proto/apache_wire.proto; Apache BookKeeper's BookkeeperProtocol.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from bk_spark.entries.apache_entries import LEAST_BYTES, ApacheEntries
from bk_spark.entries.batch import MAX_ENTRY_ID, NO_ENTRY, binaries
from bk_spark.errors import CorruptionError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache.version_3 import VERSION
from bk_spark.wire.messages import MAX_PROOF_BYTES, Status

TOTAL_SPACE, FREE_SPACE = 1, 2
"""What a client wants to know of a bookie, as flags."""

DEFERRED_SYNC = 1
"""The write flag of an add that is answered before it is durable."""

CODES = {
    Status.OK: 0,
    Status.NO_SUCH_LEDGER: 402,
    Status.NO_SUCH_ENTRY: 403,
    Status.BAD_REQUEST: 404,
    Status.IO_ERROR: 501,
    Status.DAMAGED: 501,
    Status.UNAUTHORIZED: 502,
    Status.OTHER_LEDGER: 502,
    Status.UNSUPPORTED_VERSION: 503,
    Status.FENCED: 504,
    Status.READ_ONLY: 505,
    Status.UNKNOWN: 507,
}
"""What this version says for each status, with the same meaning as in version 2."""


def code_of(status: Status) -> int:
    return CODES.get(status, CODES[Status.UNKNOWN])


Answer: TypeAlias = (
    pb.ReadResponse
    | pb.AddResponse
    | pb.LedgerResponse
    | pb.ReadLacResponse
    | pb.BookieInfoResponse
    | pb.EntryListResponse
    | pb.StartTls
    | pb.AuthMessage
)

_FIELDS: dict[int, str] = {
    pb.READ_ENTRY: "readResponse",
    pb.ADD_ENTRY: "addResponse",
    pb.AUTH: "authResponse",
    pb.WRITE_LAC: "writeLacResponse",
    pb.READ_LAC: "readLacResponse",
    pb.GET_BOOKIE_INFO: "getBookieInfoResponse",
    pb.START_TLS: "startTLSResponse",
    pb.FORCE_LEDGER: "forceLedgerResponse",
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: "getListOfEntriesOfLedgerResponse",
}


def unpack(frame: memoryview) -> pb.Request | None:
    """The request in a frame, without its size; None if it is none of this version."""
    try:
        request = pb.Request.FromString(bytes(frame))
    except DecodeError:
        return None
    return request if request.HasField("header") else None


def pack(header: pb.Header, status: Status, answer: Answer | None = None) -> bytes:
    """The frame of an answer to the request with this ``header``; without ``answer`` it says the status alone."""
    response = pb.Response(header=_answering(header), status=code_of(status))
    if answer is not None:
        getattr(response, _FIELDS[header.operation]).CopyFrom(answer)
    return _framed(response)


def _answering(header: pb.Header) -> pb.Header:
    return pb.Header(version=VERSION, operation=header.operation, txnId=header.txnId)


def _framed(response: pb.Response) -> bytes:
    message: bytes = response.SerializeToString()
    return len(message).to_bytes(4) + message


@dataclass(frozen=True, slots=True)
class NumberedAdds:
    """Adds in a row, of one ledger, key and kind, with ascending ids."""

    ledger_id: int
    master_key: bytes = field(repr=False)
    is_recovery: bool
    is_deferred: bool
    whole: ApacheEntries
    numbers: Sequence[int] = field(repr=False)
    """Of the requests."""

    def acks(self, rows: slice, status: Status) -> bytes:
        """The answers to some of the adds."""
        code, ids = code_of(status), self.whole.entry_ids[rows].tolist()
        return b"".join(_ack(number, code, self.ledger_id, one) for number, one in zip(self.numbers[rows], ids, strict=True))


class AddRuns:
    """Gathers adds to runs."""

    def __init__(self) -> None:
        self._kind: tuple[int, bytes, bool, bool] | None = None
        self._ids: list[int] = []
        self._entries: list[bytes] = []
        self._numbers: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    def follows(self, add: pb.AddRequest) -> bool:
        """Whether ``add`` belongs to the run so far."""
        return not self._ids or (self._kind == _kind(add) and add.entryId > self._ids[-1])

    def take(self, number: int, add: pb.AddRequest) -> None:
        """Call it only with what ``follows``, and is ``is_addable``."""
        self._kind = _kind(add)
        self._ids.append(add.entryId)
        self._entries.append(add.body)
        self._numbers.append(number)

    def run(self) -> NumberedAdds:
        """What was gathered, at least one add. The next run begins."""
        assert self._kind is not None
        whole = ApacheEntries(self._kind[0], np.array(self._ids, dtype=np.int64), binaries(self._entries))
        run = NumberedAdds(*self._kind, whole, self._numbers)
        self._ids, self._entries, self._numbers = [], [], []
        return run


def _kind(add: pb.AddRequest) -> tuple[int, bytes, bool, bool]:
    is_recovery = add.HasField("flag") and add.flag == pb.AddRequest.RECOVERY_ADD
    return add.ledgerId, add.masterKey, is_recovery, bool(add.writeFlags & DEFERRED_SYNC)


def is_addable(add: pb.AddRequest) -> bool:
    """Whether the entry is one that may be stored: its first numbers are those of the request."""
    ids = add.ledgerId.to_bytes(8, signed=True) + add.entryId.to_bytes(8, signed=True)
    is_entry = len(add.body) >= LEAST_BYTES and add.body.startswith(ids)
    return is_entry and add.ledgerId >= 0 and 0 <= add.entryId <= MAX_ENTRY_ID


def _ack(number: int, code: int, ledger_id: int, entry_id: int) -> bytes:
    header = pb.Header(version=VERSION, operation=pb.ADD_ENTRY, txnId=number)
    answer = pb.AddResponse(status=code, ledgerId=ledger_id, entryId=entry_id)
    return _framed(pb.Response(header=header, status=code, addResponse=answer))


def pack_read(header: pb.Header, request: pb.ReadRequest, status: Status, entry: bytes, confirmed: int) -> bytes:
    """``entry`` is empty if there is none; ``confirmed``: what the bookie knows of how far the ledger is confirmed."""
    code = code_of(status)
    answer = pb.ReadResponse(status=code, ledgerId=request.ledgerId, entryId=request.entryId, maxLAC=confirmed)
    if entry:
        answer.body = entry
    return pack(header, status, answer)


def explicit_last_add_confirmed(request: pb.WriteLacRequest) -> tuple[int, bytes]:
    """The number, and its proof. Raises CorruptionError for a body that is not of this number, or has no digest behind it."""
    numbers = request.ledgerId.to_bytes(8, signed=True) + request.lac.to_bytes(8, signed=True)
    if not request.body.startswith(numbers) or len(request.body) - len(numbers) > MAX_PROOF_BYTES or request.lac < NO_ENTRY:
        raise CorruptionError("an explicit last add confirmed", "its body is of another ledger or number")
    return request.lac, request.body[len(numbers) :]
