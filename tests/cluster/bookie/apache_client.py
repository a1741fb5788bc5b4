"""A client of a bookie's port for Apache's clients, by sockets and hand-packed bytes: it shares no code with what it tests."""

from __future__ import annotations

import hashlib
import hmac
import queue
import socket
import struct
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from bk_spark.config import DigestType
from bk_spark.proto import apache_wire_pb2 as pb
from tests.cluster.bookie.served import DEADLINE_S, Served

PASSWORD = b""
PROOF = hashlib.sha1(b"ledger" + PASSWORD).digest()
"""The master key of a ledger without a password, 20 bytes."""
OTHER_PROOF = hashlib.sha1(b"ledger" + b"another").digest()

ADD, READ, AUTH, BATCH_READ = 1, 2, 3, 7
FENCE, RECOVERY, HIGH_PRIORITY = 1, 2, 4
LAST = -1
"""The id by which a read asks for the last entry."""

STATUSES_2 = {
    0: "OK",
    1: "NOLEDGER",
    2: "NOENTRY",
    100: "BADREQ",
    101: "IO",
    102: "UA",
    103: "BADVERSION",
    104: "FENCED",
    105: "READONLY",
    106: "TOOMANYREQUESTS",
    107: "UNKNOWN",
}
STATUSES_3 = {
    0: "OK",
    402: "NOLEDGER",
    403: "NOENTRY",
    404: "BADREQ",
    501: "IO",
    502: "UA",
    503: "BADVERSION",
    504: "FENCED",
    505: "READONLY",
    506: "TOOMANYREQUESTS",
    507: "UNKNOWN",
}
INNER = {
    pb.READ_ENTRY: "readResponse",
    pb.ADD_ENTRY: "addResponse",
    pb.WRITE_LAC: "writeLacResponse",
    pb.READ_LAC: "readLacResponse",
    pb.GET_BOOKIE_INFO: "getBookieInfoResponse",
    pb.FORCE_LEDGER: "forceLedgerResponse",
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: "getListOfEntriesOfLedgerResponse",
}


def crc32c(data: bytes) -> int:
    """Bit by bit, for a few bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def digest_of(kind: DigestType, covered: bytes, password: bytes = PASSWORD) -> bytes:
    match kind:
        case DigestType.CRC32:
            return struct.pack(">q", zlib.crc32(covered))
        case DigestType.HMAC:
            return hmac.digest(hashlib.sha1(b"mac" + password).digest(), covered, "sha1")
        case DigestType.CRC32C:
            return struct.pack(">I", crc32c(covered))
        case DigestType.DUMMY:
            return b""


def entry(
    ledger_id: int,
    entry_id: int,
    payload: bytes = b"payload",
    *,
    confirmed: int | None = None,
    length: int | None = None,
    kind: DigestType = DigestType.CRC32C,
) -> bytes:
    """As a writer sends it whose entries all have this size, and who waits for each."""
    confirmed = entry_id - 1 if confirmed is None else confirmed
    length = (entry_id + 1) * len(payload) if length is None else length
    header = struct.pack(">4q", ledger_id, entry_id, confirmed, length)
    return header + digest_of(kind, header + payload) + payload


def confirmation(ledger_id: int, confirmed: int, kind: DigestType = DigestType.CRC32C) -> bytes:
    """What a writer sends to say how far its ledger is confirmed."""
    covered = struct.pack(">qq", ledger_id, confirmed)
    return covered + digest_of(kind, covered)


class RawClient:
    """One connection. Whatever does not come in time is an error."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self.socket.close()

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(struct.pack(">I", len(one)) + one for one in frames))

    def receive(self) -> bytes:
        (size,) = struct.unpack(">I", self._exactly(4))
        return self._exactly(size)

    def is_closed(self) -> bool:
        """Waits for the end of the connection; False if something else comes."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = self.socket.recv(min(size, 1 << 20))
            if not piece:
                raise EOFError("the bookie closed the connection")
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


class Version2(RawClient):
    """Statuses are names, so that tests of both versions read alike."""

    def add(self, data: bytes, *, key: bytes = PROOF, recovery: bool = False, flags: int = 0) -> str:
        ids = struct.unpack_from(">qq", data)
        self.send(add_2(data, key=key, flags=flags | RECOVERY * recovery))
        answer = self.receive()
        assert len(answer) == 24
        rc, *told = unpack_2(answer, ADD)
        assert tuple(told) == ids
        return STATUSES_2[rc]

    def read(self, ledger_id: int, entry_id: int, *, fence: bytes | None = None) -> tuple[str, bytes]:
        self.send(read_2(ledger_id, entry_id, fence=fence))
        answer = self.receive()
        rc, told_ledger, told_entry = unpack_2(answer, READ)
        assert (told_ledger, told_entry) == (ledger_id, entry_id)  # clients match answers by it, also of LAST
        return STATUSES_2[rc], answer[24:]

    def batch_read(
        self,
        ledger_id: int,
        first: int,
        *,
        count: int = 0,
        size: int = 1 << 20,
        fence: bytes | None = None,
        request_id: int = 9,
    ) -> tuple[str, list[bytes]]:
        request_id = 9
        self.send(batch_read_2(ledger_id, first, request_id, count=count, size=size, fence=fence))
        rc, *told, entries = unpack_batch_2(self.receive())
        assert told == [ledger_id, first, request_id]
        return STATUSES_2[rc], entries


def add_2(data: bytes, *, key: bytes = PROOF, flags: int = 0) -> bytes:
    assert len(key) == 20
    return struct.pack(">BBH", 2, ADD, flags) + key + data


def read_2(ledger_id: int, entry_id: int, *, fence: bytes | None = None, version: int = 2) -> bytes:
    return struct.pack(">BBHqq", version, READ, 0 if fence is None else FENCE, ledger_id, entry_id) + (fence or b"")


def batch_read_2(
    ledger_id: int, first: int, request_id: int, *, count: int = 0, size: int = 1 << 20, fence: bytes | None = None
) -> bytes:
    flags = 0 if fence is None else FENCE
    return struct.pack(">BBHqqqiq", 2, BATCH_READ, flags, ledger_id, first, request_id, count, size) + (fence or b"")


def unpack_2(answer: bytes, operation: int) -> tuple[int, int, int]:
    version, told, flags, rc, ledger_id, entry_id = struct.unpack_from(">BBHiqq", answer)
    assert (version, told, flags) == (2, operation, 0)
    return rc, ledger_id, entry_id


def unpack_batch_2(answer: bytes) -> tuple[int, int, int, int, list[bytes]]:
    rc, ledger_id, first = unpack_2(answer, BATCH_READ)
    (request_id,) = struct.unpack_from(">q", answer, 24)
    entries, at = [], 32
    while at < len(answer):
        (size,) = struct.unpack_from(">i", answer, at)
        entries.append(answer[at + 4 : at + 4 + size])
        assert len(entries[-1]) == size
        at += 4 + size
    return rc, ledger_id, first, request_id, entries


class Version3(RawClient):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._transaction = 0

    def request(self, operation: int, *, version: int = 3, priority: int | None = None, **fields: Any) -> pb.Request:
        self._transaction += 1
        header = pb.Header(version=version, operation=operation, txnId=self._transaction)
        if priority is not None:
            header.priority = priority
        return pb.Request(header=header, **fields)

    def ask(self, operation: int, **fields: Any) -> pb.Response:
        request = self.request(operation, **fields)
        self.send(request.SerializeToString())
        answer = pb.Response.FromString(self.receive())
        assert (answer.header.txnId, answer.header.operation) == (request.header.txnId, operation)
        assert answer.header.version == 3
        return answer

    def status(self, operation: int, **fields: Any) -> str:
        return status_3(self.ask(operation, **fields))

    def add(
        self, data: bytes, *, key: bytes = PROOF, recovery: bool = False, write_flags: int = 0, priority: int | None = None
    ) -> str:
        answer = self.ask(pb.ADD_ENTRY, addRequest=add_3(data, key, recovery, write_flags), priority=priority)
        if answer.HasField("addResponse"):
            assert (answer.addResponse.ledgerId, answer.addResponse.entryId) == struct.unpack_from(">qq", data)
        return status_3(answer)

    def read(self, ledger_id: int, entry_id: int, *, fence: bytes | None = None) -> tuple[str, bytes]:
        answer = self.ask(pb.READ_ENTRY, readRequest=read_3(ledger_id, entry_id, fence))
        return status_3(answer), answer.readResponse.body

    def poll(
        self, ledger_id: int, previous: int, *, entry_id: int = LAST, timeout_ms: int | None = None, piggyback: bool = False
    ) -> pb.Response:
        return self.ask(pb.READ_ENTRY, readRequest=poll_3(ledger_id, previous, entry_id, timeout_ms, piggyback))

    def write_lac(self, ledger_id: int, confirmed: int, *, key: bytes = PROOF, body: bytes | None = None) -> str:
        body = confirmation(ledger_id, confirmed) if body is None else body
        request = pb.WriteLacRequest(ledgerId=ledger_id, lac=confirmed, masterKey=key, body=body)
        return self.status(pb.WRITE_LAC, writeLacRequest=request)

    def read_lac(self, ledger_id: int) -> tuple[str, bytes, bytes]:
        """Status, explicit LAC, last entry."""
        answer = self.ask(pb.READ_LAC, readLacRequest=pb.LedgerRequest(ledgerId=ledger_id))
        return status_3(answer), answer.readLacResponse.lacBody, answer.readLacResponse.lastEntryBody

    def force(self, ledger_id: int) -> str:
        return self.status(pb.FORCE_LEDGER, forceLedgerRequest=pb.LedgerRequest(ledgerId=ledger_id))

    def listed(self, ledger_id: int) -> tuple[str, list[int]]:
        request = pb.LedgerRequest(ledgerId=ledger_id)
        answer = self.ask(pb.GET_LIST_OF_ENTRIES_OF_LEDGER, getListOfEntriesOfLedgerRequest=request)
        status = status_3(answer)
        if status != "OK":
            return status, []
        return status, listed_ids(answer.getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger)


def add_3(data: bytes, key: bytes = PROOF, recovery: bool = False, write_flags: int = 0) -> pb.AddRequest:
    ledger_id, entry_id = struct.unpack_from(">qq", data)
    request = pb.AddRequest(ledgerId=ledger_id, entryId=entry_id, masterKey=key, body=data)
    if recovery:
        request.flag = pb.AddRequest.RECOVERY_ADD
    if write_flags:
        request.writeFlags = write_flags
    return request


def read_3(ledger_id: int, entry_id: int, fence: bytes | None = None) -> pb.ReadRequest:
    request = pb.ReadRequest(ledgerId=ledger_id, entryId=entry_id)
    if fence is not None:
        request.flag = pb.ReadRequest.FENCE_LEDGER
        request.masterKey = fence
    return request


def poll_3(ledger_id: int, previous: int, entry_id: int, timeout_ms: int | None, piggyback: bool) -> pb.ReadRequest:
    request = pb.ReadRequest(ledgerId=ledger_id, entryId=entry_id, previousLAC=previous)
    if timeout_ms is not None:
        request.timeOut = timeout_ms
    if piggyback:
        request.flag = pb.ReadRequest.ENTRY_PIGGYBACK
    return request


def status_3(answer: pb.Response) -> str:
    """The outer status, which the inner one repeats where there is one."""
    inner = INNER.get(answer.header.operation)
    if inner is not None and answer.HasField(inner):  # type: ignore[arg-type]
        assert getattr(answer, inner).status == answer.status
    return STATUSES_3[answer.status]


def listed_ids(availability: bytes) -> list[int]:
    """A bookie's list of entries: sequences that repeat."""
    version, groups = struct.unpack_from(">ii", availability)
    assert (version, len(availability)) == (0, 64 + 24 * groups)
    assert not any(availability[8:64])
    found: list[int] = []
    for group in range(groups):
        first, last, size, period = struct.unpack_from(">qqii", availability, 64 + 24 * group)
        assert size > 0
        starts: Sequence[int] = range(first, last + 1, period) if period else [first]
        assert starts[-1] == last
        found += [one for start in starts for one in range(start, start + size)]
    assert len(found) == len(set(found))
    return sorted(found)


class _Served(Served):
    """Runs what it is given on the sync thread."""

    def __init__(self, harness: Any) -> None:
        self.given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        super().__init__(harness)

    def looks(self) -> None:
        while not self.given.empty():
            self.given.get()()


class ApacheServed:
    """A bookie's server in this process, raw clients of it, and what ends and begins it."""

    def __init__(self, harness: Any) -> None:
        self.harness = harness
        self._clients: list[RawClient] = []
        self.served = _Served(harness)

    @property
    def port(self) -> int:
        apache_port = self.served.server.apache_port
        assert apache_port is not None
        return apache_port.port

    def version_2(self) -> Version2:
        client = Version2(self.port)
        self._clients.append(client)
        return client

    def version_3(self) -> Version3:
        client = Version3(self.port)
        self._clients.append(client)
        return client

    def of_version(self, version: int) -> Version2 | Version3:
        return self.version_2() if version == 2 else self.version_3()

    def checkpoint(self) -> None:
        """Write out what is in the write cache. Returns when it is done."""
        done: Future[None] = Future()

        def checkpoint() -> None:
            try:
                self.harness.bookie.storage.checkpoint()
                done.set_result(None)
            except BaseException as problem:
                done.set_exception(problem)

        self.served.given.put(checkpoint)
        done.result(DEADLINE_S)

    def restart(self, end: str = "stop") -> None:
        """``end``: "stop", "kill" or "power_off", as the harness has them."""
        self._end()
        getattr(self.harness, end)()
        self.served = _Served(self.harness)

    def close(self) -> None:
        self._end()

    def _end(self) -> None:
        while self._clients:
            self._clients.pop().close()
        self.served.close()
