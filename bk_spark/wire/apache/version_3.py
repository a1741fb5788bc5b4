"""Apache BookKeeper's protobuf protocol, version 3: single reads, fences, long polls, explicit LACs and disk space; and how a
connection of either version begins: TLS, and the question whether clients must authenticate.

A frame is its size (4 bytes, without itself), then a request or a response, which names its request by a number.

Ref: proto/apache_wire.proto; Apache BookKeeper's BookkeeperProtocol.proto.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from google.protobuf.message import DecodeError

from bk_spark.errors import CorruptionError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.messages import Status

VERSION = 3

LAST_ENTRY = -1
"""As an entry id: the last entry that the bookie has."""

WITHOUT_AUTHENTICATION = "AuthDisabledPlugin"
"""How the clients and the bookies that know no authentication call that."""

SASL = "sasl"
"""How they call SASL, whatever its mechanism."""

Request: TypeAlias = pb.ReadRequest | pb.WriteLacRequest | pb.BookieInfoRequest | pb.StartTls | pb.AuthMessage

CODES = {
    0: Status.OK,
    402: Status.NO_SUCH_LEDGER,
    403: Status.NO_SUCH_ENTRY,
    404: Status.BAD_REQUEST,
    501: Status.IO_ERROR,
    502: Status.UNAUTHORIZED,
    503: Status.UNSUPPORTED_VERSION,
    504: Status.FENCED,
    505: Status.READ_ONLY,
}
"""The others, too many requests (506) and a ledger whose state is unknown (507) among them, are UNKNOWN."""

_TOTAL, _FREE = 1, 2
_LAC = struct.Struct(">qq")
_FIELDS = {
    pb.READ_ENTRY: "readRequest",
    pb.WRITE_LAC: "writeLacRequest",
    pb.GET_BOOKIE_INFO: "getBookieInfoRequest",
    pb.START_TLS: "startTLSRequest",
    pb.AUTH: "authRequest",
}


def pack(operation: pb.Operation, number: int, request: Request) -> bytes:
    """A frame."""
    header = pb.Header(version=VERSION, operation=operation, txnId=number)
    whole = pb.Request(header=header)
    getattr(whole, _FIELDS[operation]).CopyFrom(request)
    message: bytes = whole.SerializeToString()
    return len(message).to_bytes(4) + message


def unpack(frame: bytes) -> pb.Response:
    """Raises CorruptionError."""
    try:
        return pb.Response.FromString(frame)
    except DecodeError as problem:
        raise CorruptionError("an answer of a bookie", f"no response of version {VERSION} ({problem})") from None


def status_of(code: int) -> Status:
    return CODES.get(code, Status.UNKNOWN)


def read(ledger_id: int, entry_id: int, fence_key: bytes = b"") -> pb.ReadRequest:
    """One entry, LAST_ENTRY: the last one. With a master key the ledger is fenced, durably, before the answer."""
    if not fence_key:
        return pb.ReadRequest(ledgerId=ledger_id, entryId=entry_id)
    return pb.ReadRequest(ledgerId=ledger_id, entryId=entry_id, masterKey=fence_key, flag=pb.ReadRequest.FENCE_LEDGER)


def wait_for(ledger_id: int, beyond: int, wait_ms: int) -> pb.ReadRequest:
    """A long poll: answered once the ledger is confirmed beyond ``beyond``, or after ``wait_ms``."""
    return pb.ReadRequest(
        ledgerId=ledger_id, entryId=LAST_ENTRY, previousLAC=beyond, timeOut=wait_ms, flag=pb.ReadRequest.ENTRY_PIGGYBACK
    )


def write_lac(ledger_id: int, confirmed: int, master_key: bytes, proof: bytes) -> pb.WriteLacRequest:
    """``proof`` is the digest of the two numbers, as ``covered_by_proof`` gives them. Readers verify it."""
    body = covered_by_proof(ledger_id, confirmed) + proof
    return pb.WriteLacRequest(ledgerId=ledger_id, lac=confirmed, masterKey=master_key, body=body)


def covered_by_proof(ledger_id: int, confirmed: int) -> bytes:
    """What the digest of an explicit LAC covers."""
    return _LAC.pack(ledger_id, confirmed)


def without_authentication() -> pb.AuthMessage:
    """OK is answered where clients need not authenticate, or have done so with their certificate; else UNAUTHORIZED."""
    return pb.AuthMessage(authPluginName=WITHOUT_AUTHENTICATION, payload=b"")


def authentication(payload: bytes) -> pb.AuthMessage:
    """A message of SASL."""
    return pb.AuthMessage(authPluginName=SASL, payload=payload)


def ask_for_space() -> pb.BookieInfoRequest:
    return pb.BookieInfoRequest(requested=_TOTAL | _FREE)
