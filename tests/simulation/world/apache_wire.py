"""A bookie that is spoken to over Apache's wire: the shipped code of both ends, without sockets and threads.

Requests are packed as our client packs them for an Apache bookie, unpacked, and stored and read as the bookie's second
port does; answers go the same way back. So the world keeps its messages, and the storage holds whole entries.

Ordinary adds and batch reads are of version 2; the adds of recoveries, single reads, and all else of version 3.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.server.apache.adds import AddRun, stored_as
from bk_spark.bookie.server.apache.reads import WaitingRead, serve_entries, serve_single
from bk_spark.bookie.whole_read import FoundEntry, WholeReads
from bk_spark.client.driver.apache.bookie import confirmed_reply
from bk_spark.client.driver.apache.framing import Framing
from bk_spark.client.driver.apache.reading import RangeRead
from bk_spark.config import APACHE_FRAME_BYTES
from bk_spark.entries.apache_entries import stretches
from bk_spark.entries.digest import APACHE_KEY_BYTES, whole_key
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache import version_2, version_2_server, version_3, version_3_server
from bk_spark.wire.messages import (
    AddRequest,
    FenceRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    StoreLastAddConfirmedRequest,
)


class ApacheWire:
    def __init__(self, bookie: Bookie) -> None:
        self._whole = WholeReads(bookie.storage, bookie.admission, bookie.report_damage)

    def adds(self, request: AddRequest) -> list[AddRequest]:
        """What the bookie stages for an add."""
        runs = _version_3(request) if request.recovery else _version_2(request)
        return [
            stored_as(run, rows, pattern, request.bookie_id) for run in runs for rows, pattern in stretches(run.whole.entry_ids)
        ]

    def fence(self, request: ReadRequest | LastAddConfirmedRequest) -> FenceRequest:
        return FenceRequest(request.bookie_id, request.ledger_id, whole_key(request.master_key[:APACHE_KEY_BYTES]))

    def told(self, request: StoreLastAddConfirmedRequest) -> StoreLastAddConfirmedRequest:
        """What the bookie stages for a last add confirmed."""
        key = request.master_key[:APACHE_KEY_BYTES]
        written = version_3.write_lac(request.ledger_id, request.last_add_confirmed, key, request.proof or b"")
        confirmed, proof = version_3_server.explicit_last_add_confirmed(written)
        return StoreLastAddConfirmedRequest(request.bookie_id, request.ledger_id, whole_key(key), confirmed, proof)

    def read(self, request: ReadRequest) -> tuple[ReadBatch | ReadEnd, ...]:
        """The answer to a read. A fence is durable already."""
        parts = RangeRead(_Connections(self._whole), request).parts()  # type: ignore[arg-type]
        return tuple(asyncio.run(_all(parts)))

    def read_last_add_confirmed(self, request: LastAddConfirmedRequest) -> LastAddConfirmedReply:
        return confirmed_reply(request, _read_one(self._whole, version_3.read(request.ledger_id, version_3.LAST_ENTRY)))


async def _all(parts: AsyncIterator[ReadBatch | ReadEnd]) -> list[ReadBatch | ReadEnd]:
    return [part async for part in parts]


def _version_2(request: AddRequest) -> Iterator[AddRun]:
    data = memoryview(b"".join(frames for _, frames in Framing().frames(request)))
    at = 0
    while (end := version_2_server.frame_end(data, at, len(data))) is not None:
        run, at = version_2_server.take(data, at, end)
        assert isinstance(run, version_2_server.SingleAdds)
        yield run


def _version_3(request: AddRequest) -> Iterator[AddRun]:
    runs = version_3_server.AddRuns()
    for run in _version_2(request):
        for number, entry in enumerate(run.whole.entries.to_pylist()):
            ids = {"ledgerId": run.ledger_id, "entryId": int(run.whole.entry_ids[number])}
            add = pb.AddRequest(**ids, masterKey=run.master_key, body=entry, flag=pb.AddRequest.RECOVERY_ADD)
            header = pb.Header(version=version_3.VERSION, operation=pb.ADD_ENTRY, txnId=number)
            came = version_3_server.unpack(memoryview(pb.Request(header=header, addRequest=add).SerializeToString()))
            assert came is not None
            assert version_3_server.is_addable(came.addRequest)
            assert runs.follows(came.addRequest)
            runs.take(number, came.addRequest)
    yield runs.run()


class _Connections:
    """Stands in for a client's connections to one Apache bookie."""

    def __init__(self, whole: WholeReads) -> None:
        self._whole = whole

    async def batch_read(self, ledger_id: int, first: int, most_entries: int, most_bytes: int) -> version_2.Answer:
        frame = memoryview(version_2.pack_batch_read(ledger_id, first, 1, most_entries, most_bytes))
        read, _ = version_2_server.take(frame, 0, len(frame))
        assert isinstance(read, version_2_server.EntriesRead)
        return version_2.unpack(serve_entries(self._whole, read, APACHE_FRAME_BYTES).answers[version_2.SIZE_BYTES :])

    async def numbered(self) -> _Connections:
        return self

    async def ask(self, _operation: Any, question: pb.ReadRequest) -> pb.Response:
        return _read_one(self._whole, question)


def _read_one(whole: WholeReads, read: pb.ReadRequest) -> pb.Response:
    header = pb.Header(version=version_3.VERSION, operation=pb.READ_ENTRY, txnId=1)

    def answer(found: FoundEntry) -> bytes:
        return version_3_server.pack_read(header, read, found.status, found.entry, found.confirmed)

    served = serve_single(whole, [WaitingRead(read.ledgerId, read.entryId, answer)])
    return version_3.unpack(served.answers[version_2.SIZE_BYTES :])
