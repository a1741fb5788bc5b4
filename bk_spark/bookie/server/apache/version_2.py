"""Requests of version 2: adds, reads and batch reads."""

from __future__ import annotations

from functools import partial

from bk_spark.bookie.server.apache.adds import Adds
from bk_spark.bookie.server.apache.connection import Connection
from bk_spark.bookie.server.apache.reads import ClientReads, WaitingRead
from bk_spark.bookie.whole_read import FoundEntry
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache.version_2_server import (
    Authentication,
    EntriesRead,
    Refused,
    Request,
    SingleAdds,
    SingleRead,
    pack_authentication,
    pack_entries,
    pack_read,
)
from bk_spark.wire.apache.version_3 import WITHOUT_AUTHENTICATION


class Version2Requests:
    """Of all connections."""

    def __init__(self, adds: Adds) -> None:
        self._adds = adds

    def take(self, connection: Connection, reads: ClientReads, request: Request) -> None:
        match request:
            case SingleAdds():
                self._adds.take(connection, request)
            case SingleRead():
                _read(reads, request)
            case EntriesRead():
                if request.fence_key is None:
                    reads.put(request)
                else:
                    reads.put_urgent(request, partial(pack_entries, request), request.fence_key)
            case Authentication():
                answer = pb.AuthMessage(authPluginName=WITHOUT_AUTHENTICATION, payload=b"")
                connection.send(pack_authentication(answer.SerializeToString()))
            case Refused():
                connection.send(request.answer)


def _read(reads: ClientReads, request: SingleRead) -> None:
    def answer(found: FoundEntry) -> bytes:
        return pack_read(request, found.status, found.entry)

    waiting = WaitingRead(request.ledger_id, request.entry_id, answer)
    if request.fence_key is None and not request.is_urgent:
        reads.put(waiting)
    else:
        reads.put_urgent(waiting, partial(pack_read, request), request.fence_key)
