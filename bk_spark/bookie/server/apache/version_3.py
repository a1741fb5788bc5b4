"""Requests of version 3: everything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bk_spark.bookie.server.apache.adds import Adds
from bk_spark.bookie.server.apache.connection import Connection
from bk_spark.bookie.server.apache.reads import ClientReads, Readers, WaitingRead
from bk_spark.bookie.whole_read import FoundEntry
from bk_spark.entries.digest import whole_key
from bk_spark.errors import CorruptionError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache.version_3 import LAST_ENTRY, VERSION, WITHOUT_AUTHENTICATION, covered_by_proof
from bk_spark.wire.apache.version_3_server import (
    FREE_SPACE,
    TOTAL_SPACE,
    AddRuns,
    code_of,
    explicit_last_add_confirmed,
    is_addable,
    pack,
    pack_read,
)
from bk_spark.wire.messages import (
    MAX_WAIT_MS,
    NO_KEY,
    ForceRequest,
    LastAddConfirmedRequest,
    Status,
    StoreLastAddConfirmedRequest,
)


class Version3Requests:
    """Of all connections."""

    def __init__(self, adds: Adds, readers: Readers) -> None:
        self._adds = adds
        self._readers = readers
        self._requests = readers.requests
        self._bookie_id = readers.requests.bookie.bookie_id

    def take(self, connection: Connection, reads: ClientReads, runs: AddRuns, request: pb.Request) -> None:
        header = request.header
        if header.version != VERSION:
            connection.send(pack(header, Status.UNSUPPORTED_VERSION))
        elif header.operation == pb.ADD_ENTRY and request.HasField("addRequest"):
            self._add(connection, runs, request)
        elif header.operation == pb.READ_ENTRY and request.HasField("readRequest"):
            self._read(connection, reads, request)
        elif header.operation == pb.AUTH:
            answer = pb.AuthMessage(authPluginName=WITHOUT_AUTHENTICATION, payload=b"")
            connection.send(pack(header, Status.OK, answer))
        else:
            self._other(connection, request)

    def gathered(self, connection: Connection, runs: AddRuns) -> None:
        """Store the adds that came so far."""
        if runs:
            self._adds.take(connection, runs.run())

    def _add(self, connection: Connection, runs: AddRuns, request: pb.Request) -> None:
        add = request.addRequest
        if not is_addable(add):
            answer = pb.AddResponse(status=code_of(Status.BAD_REQUEST), ledgerId=add.ledgerId, entryId=add.entryId)
            connection.send(pack(request.header, Status.BAD_REQUEST, answer))
            return
        if not runs.follows(add):
            self.gathered(connection, runs)
        runs.take(request.header.txnId, add)

    def _read(self, connection: Connection, reads: ClientReads, request: pb.Request) -> None:
        header, read = request.header, request.readRequest

        def answer(found: FoundEntry) -> bytes:
            return pack_read(header, read, found.status, found.entry, found.confirmed)

        def refused(status: Status) -> bytes:
            return answer(FoundEntry(status))

        is_fence = read.HasField("flag") and read.flag == pb.ReadRequest.FENCE_LEDGER
        if is_fence and not read.HasField("masterKey"):
            self._requests.audit.refused_request(Status.UNAUTHORIZED, connection)
            connection.send(refused(Status.UNAUTHORIZED))
        elif read.HasField("previousLAC") and not is_fence:
            connection.run(self._long_poll(connection, request))
        elif is_fence or header.priority:
            waiting = WaitingRead(read.ledgerId, read.entryId, answer)
            reads.put_urgent(waiting, refused, read.masterKey if is_fence else None)
        else:
            reads.put(WaitingRead(read.ledgerId, read.entryId, answer))

    async def _long_poll(self, connection: Connection, request: pb.Request) -> None:
        """Answered once the ledger is confirmed further, with the next entry if it was asked for and is here."""
        read = request.readRequest
        wait_ms = min(max(read.timeOut, 0), MAX_WAIT_MS)
        asked = LastAddConfirmedRequest(self._bookie_id, read.ledgerId, NO_KEY, beyond=read.previousLAC, wait_ms=wait_ms)
        reply = await self._requests.last_add_confirmed(asked, connection)
        self._requests.audit.refused_request(reply.status, connection)
        found = FoundEntry(reply.status, confirmed=reply.last_add_confirmed)
        is_news = reply.status is Status.OK and reply.last_add_confirmed > read.previousLAC
        if is_news and read.HasField("flag") and read.flag == pb.ReadRequest.ENTRY_PIGGYBACK:
            read.entryId = read.previousLAC + 1 if read.entryId == LAST_ENTRY else read.entryId
            entry = await self._readers.short(connection, partial(self._one, read.ledgerId, read.entryId))
            found = entry if entry.status is Status.OK else found
        connection.send(pack_read(request.header, read, found.status, found.entry, found.confirmed))

    def _one(self, ledger_id: int, entry_id: int) -> FoundEntry:
        return next(self._readers.whole.each(ledger_id, [entry_id]))

    def _other(self, connection: Connection, request: pb.Request) -> None:
        header = request.header
        if header.operation == pb.WRITE_LAC and request.HasField("writeLacRequest"):
            connection.run(self._write_lac(connection, header, request.writeLacRequest))
        elif header.operation == pb.READ_LAC and request.HasField("readLacRequest"):
            connection.run(self._read_lac(connection, header, request.readLacRequest.ledgerId))
        elif header.operation == pb.FORCE_LEDGER and request.HasField("forceLedgerRequest"):
            connection.run(self._force(connection, header, request.forceLedgerRequest.ledgerId))
        elif header.operation == pb.GET_BOOKIE_INFO and request.HasField("getBookieInfoRequest"):
            connection.run(self._describe(connection, header, request.getBookieInfoRequest.requested))
        elif header.operation == pb.GET_LIST_OF_ENTRIES_OF_LEDGER and request.HasField("getListOfEntriesOfLedgerRequest"):
            connection.run(self._list_entries(connection, header, request.getListOfEntriesOfLedgerRequest.ledgerId))
        else:
            connection.send(pack(header, Status.BAD_REQUEST))

    async def _write_lac(self, connection: Connection, header: pb.Header, request: pb.WriteLacRequest) -> None:
        try:
            confirmed, proof = explicit_last_add_confirmed(request)
        except CorruptionError:
            status = Status.BAD_REQUEST
        else:
            key = whole_key(request.masterKey)
            asked = StoreLastAddConfirmedRequest(self._bookie_id, request.ledgerId, key, confirmed, proof)
            status = (await self._requests.store(asked)).status
        self._requests.audit.refused_request(status, connection)
        connection.send(pack(header, status, pb.LedgerResponse(status=code_of(status), ledgerId=request.ledgerId)))

    async def _read_lac(self, connection: Connection, header: pb.Header, ledger_id: int) -> None:
        await self._send_short(connection, partial(self._last_add_confirmed, header, ledger_id))

    async def _send_short(self, connection: Connection, work: Callable[[], tuple[Status, bytes]]) -> None:
        status, answer = await self._readers.short(connection, work)
        self._requests.audit.refused_request(status, connection)
        connection.send(answer)

    def _last_add_confirmed(self, header: pb.Header, ledger_id: int) -> tuple[Status, bytes]:
        last = self._readers.whole.last(ledger_id)
        status = Status.OK if last.status is Status.NO_SUCH_ENTRY else last.status
        answer = pb.ReadLacResponse(status=code_of(status), ledgerId=ledger_id)
        if last.entry:
            answer.lastEntryBody = last.entry
        proven = self._readers.whole.proven(ledger_id) if status is Status.OK else None
        if proven is not None:
            answer.lacBody = covered_by_proof(ledger_id, proven.last_add_confirmed) + proven.proof
        return status, pack(header, status, answer)

    async def _force(self, connection: Connection, header: pb.Header, ledger_id: int) -> None:
        status = (await self._requests.store(ForceRequest(self._bookie_id, ledger_id, NO_KEY))).status
        self._requests.audit.refused_request(status, connection)
        connection.send(pack(header, status, pb.LedgerResponse(status=code_of(status), ledgerId=ledger_id)))

    async def _describe(self, connection: Connection, header: pb.Header, requested: int) -> None:
        found = await self._requests.describe(connection.peer)
        answer = pb.BookieInfoResponse(status=code_of(found.status))
        if requested & TOTAL_SPACE:
            answer.totalDiskCapacity = found.total_bytes
        if requested & FREE_SPACE:
            answer.freeDiskSpace = found.free_bytes
        connection.send(pack(header, found.status, answer))

    async def _list_entries(self, connection: Connection, header: pb.Header, ledger_id: int) -> None:
        await self._send_short(connection, partial(self._listed, header, ledger_id))

    def _listed(self, header: pb.Header, ledger_id: int) -> tuple[Status, bytes]:
        status, listed = self._readers.whole.availability(ledger_id)
        answer = pb.EntryListResponse(status=code_of(status), ledgerId=ledger_id)
        if status is Status.OK:
            answer.availabilityOfEntriesOfLedger = listed
        return status, pack(header, status, answer)
