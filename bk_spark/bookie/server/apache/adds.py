"""The adds that come to a bookie's second port: runs of single adds of Apache's clients, which become batches, and small adds
of this package's clients. All take the way of every add through the sync thread.

Ref: DESIGN.md, "Two wires, one ledger"; docs/rules.md, protocol rules 32 to 35 and 64.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from bk_spark.bookie.server.apache.connection import Connection
from bk_spark.bookie.server.request_metrics import count_refused_add
from bk_spark.bookie.server.requests import Requests
from bk_spark.entries.digest import whole_key
from bk_spark.entries.whole_entries import WholeEntries, encode_whole, stretches
from bk_spark.errors import BookKeeperError
from bk_spark.quorum import IdPattern
from bk_spark.wire.frames import pack_reply, unpack_add
from bk_spark.wire.messages import AddReply, AddRequest, StagedReply, Status


class AddRun(Protocol):
    """Adds in a row, of one ledger, key and kind, over either version of the wire."""

    @property
    def ledger_id(self) -> int: ...
    @property
    def master_key(self) -> bytes: ...
    @property
    def is_recovery(self) -> bool: ...
    @property
    def is_deferred(self) -> bool: ...
    @property
    def whole(self) -> WholeEntries: ...
    def acks(self, rows: slice, status: Status) -> bytes: ...


class Adds:
    """Stores the adds of all connections."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def take(self, connection: Connection, run: AddRun) -> None:
        """Have a run made durable, then answered. The connection takes nothing more while the run waits for its place."""
        connection.owe(len(run.whole))
        if self._requests.new_ledgers.knows(run.ledger_id) and self._requests.sync_thread.has_room:
            self._put(connection, run)
        else:
            connection.hold(self._put_later(connection, run))

    def take_frame(self, connection: Connection, data: memoryview, at: int, end: int) -> None:
        """An add of a client of this package. Raises CorruptionError for what is none."""
        number, request = unpack_add(data, at, end, self._requests.bookie.bookie_id)
        if isinstance(request, AddReply):
            count_refused_add(request.status)
            connection.send(pack_reply(request, number))
            return
        connection.owe(1)
        if self._requests.new_ledgers.knows(request.ledger_id) and self._requests.sync_thread.has_room:
            self._requests.sync_thread.put(request, partial(_answer_frame, connection, number))
        else:
            connection.hold(self._put_frame_later(connection, request, number))

    async def _put_frame_later(self, connection: Connection, request: AddRequest, number: int) -> None:
        refusal = await self._requests.new_ledgers.refusal(request.ledger_id)
        if refusal:
            count_refused_add(Status.READ_ONLY)
            _answer_frame(connection, number, AddReply(number, Status.READ_ONLY, refusal))
            return
        await self._requests.sync_thread.wait_for_room()
        self._requests.sync_thread.put(request, partial(_answer_frame, connection, number))

    async def _put_later(self, connection: Connection, run: AddRun) -> None:
        refusal = await self._requests.new_ledgers.refusal(run.ledger_id)
        if refusal:
            self._refuse(connection, run, slice(None), Status.READ_ONLY)
            return
        await self._requests.sync_thread.wait_for_room()
        self._put(connection, run)

    def _put(self, connection: Connection, run: AddRun) -> None:
        """A batch for each stretch of ids: mostly one."""
        key = whole_key(run.master_key)
        for rows, pattern in stretches(run.whole.entry_ids):
            try:
                request = self._request(run, key, rows, pattern)
            except BookKeeperError:
                self._refuse(connection, run, rows, Status.BAD_REQUEST)
            else:
                self._requests.sync_thread.put(request, partial(_answer, connection, run, rows))

    def _request(self, run: AddRun, key: bytes, rows: slice, pattern: IdPattern) -> AddRequest:
        batch = encode_whole(run.whole.select(rows), pattern)
        return AddRequest(0, self._requests.bookie.bookie_id, key, batch, run.is_recovery, run.is_deferred)

    def _refuse(self, connection: Connection, run: AddRun, rows: slice, status: Status) -> None:
        _acknowledge(connection, run, rows, status)
        count_refused_add(status)


def _answer_frame(connection: Connection, number: int, reply: StagedReply) -> None:
    assert isinstance(reply, AddReply)
    connection.owe(-1)
    if connection.is_open:
        connection.send(pack_reply(reply, number))


def _answer(connection: Connection, run: AddRun, rows: slice, reply: StagedReply) -> None:
    _acknowledge(connection, run, rows, reply.status)


def _acknowledge(connection: Connection, run: AddRun, rows: slice, status: Status) -> None:
    connection.owe(-len(run.whole.entry_ids[rows]))
    if connection.is_open:
        connection.send(run.acks(rows, status))
