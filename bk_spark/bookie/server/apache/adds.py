"""The adds that come to a bookie's second port: runs of single adds of Apache's clients, which become batches, and small adds
of this package's clients. All take the way of every add through the sync thread.

Ref: DESIGN.md, "Two wires, one ledger"; docs/rules.md, protocol rules 32 to 35 and 64.
"""

from __future__ import annotations

import asyncio
import logging
import math
from functools import partial
from typing import Protocol

from bk_spark.bookie.server.apache.connection import Connection
from bk_spark.bookie.server.members import NO_MEMBER
from bk_spark.bookie.server.request_metrics import count_refused_add
from bk_spark.bookie.server.requests import Requests
from bk_spark.bookie.server.waiting_adds import BUSY, WaitingAdds
from bk_spark.entries.apache_entries import ApacheEntries, encode_apache, stretches
from bk_spark.entries.digest import payload_bytes, payload_sizes, whole_key
from bk_spark.errors import BookKeeperError
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.apache.frame_limits import most_entry_bytes
from bk_spark.wire.frames import pack_reply, unpack_add
from bk_spark.wire.messages import AddReply, AddRequest, StagedReply, Status

TOLD_S = 60.0
"""Between two warnings of entries that are too large."""

logger = logging.getLogger(__name__)


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
    def whole(self) -> ApacheEntries: ...
    def acks(self, rows: slice, status: Status) -> bytes: ...


class Adds:
    """Stores the adds of all connections."""

    def __init__(self, requests: Requests, waiting: WaitingAdds, frame_bytes: int) -> None:
        """Entries that do not fit into frames of ``frame_bytes`` are refused: Apache's clients could not read them back."""
        self._requests = requests
        self._waiting = waiting
        self._most_entry_bytes = most_entry_bytes(frame_bytes)
        self._told_s = -math.inf

    def take(self, connection: Connection, run: AddRun) -> None:
        """Have a run made durable, then answered. The connection takes nothing more while the run waits for its place."""
        connection.owe(len(run.whole))
        if self._may_put(run.ledger_id):
            self._put(connection, run)
            return
        nbytes = payload_bytes(run.whole.entries)
        if self._waiting.is_crowded(nbytes):
            self._refuse(connection, run, slice(None), Status.UNKNOWN)
        else:
            connection.hold(self._put_later(connection, run, nbytes))

    def take_frame(self, connection: Connection, data: memoryview, at: int, end: int, *, is_stranger: bool) -> None:
        """An add of a client of this package. Raises CorruptionError for what is none."""
        number, request = unpack_add(data, at, end, self._requests.bookie.bookie_id)
        if is_stranger:
            request = AddReply(number, Status.UNAUTHORIZED, NO_MEMBER)
            self._requests.audit.refused_request(request.status, connection)
        if isinstance(request, AddReply):
            count_refused_add(request.status)
            connection.send(pack_reply(request, number))
            return
        connection.owe(1)
        if self._may_put(request.ledger_id):
            self._requests.sync_thread.put(request, partial(self._answer_frame, connection, number))
        elif self._waiting.is_crowded(len(request.batch.body)):
            self._refuse_frame(connection, AddReply(number, Status.UNKNOWN, BUSY))
        else:
            connection.hold(self._put_frame_later(connection, request, number))

    def _may_put(self, ledger_id: int) -> bool:
        """Whether an add of this ledger need not wait."""
        return self._requests.new_ledgers.knows(ledger_id) and self._requests.sync_thread.has_room

    async def _put_frame_later(self, connection: Connection, request: AddRequest, number: int) -> None:
        with self._waiting.hold(len(request.batch.body)):
            refusal = await self._requests.new_ledgers.refusal(request.ledger_id)
            if refusal:
                self._refuse_frame(connection, AddReply(number, Status.READ_ONLY, refusal))
                return
            await self._requests.sync_thread.wait_for_room()
            self._requests.sync_thread.put(request, partial(self._answer_frame, connection, number))

    async def _put_later(self, connection: Connection, run: AddRun, nbytes: int) -> None:
        with self._waiting.hold(nbytes):
            refusal = await self._requests.new_ledgers.refusal(run.ledger_id)
            if refusal:
                self._refuse(connection, run, slice(None), Status.READ_ONLY)
                return
            await self._requests.sync_thread.wait_for_room()
            self._put(connection, run)

    def _put(self, connection: Connection, run: AddRun) -> None:
        """A batch for each stretch of ids: mostly one."""
        for rows, pattern in stretches(run.whole.entry_ids):
            self._put_rows(connection, run, rows, pattern)

    def _put_rows(self, connection: Connection, run: AddRun, rows: slice, pattern: IdPattern) -> None:
        largest = int(payload_sizes(run.whole.select(rows).entries).max())
        if largest > self._most_entry_bytes:
            self._tell(run.ledger_id, largest)
            self._refused(connection, run, rows)
            return
        try:
            request = stored_as(run, rows, pattern, self._requests.bookie.bookie_id)
        except BookKeeperError:
            self._refused(connection, run, rows)
        else:
            self._requests.sync_thread.put(request, partial(self._answer, connection, run, rows))

    def _tell(self, ledger_id: int, nbytes: int) -> None:
        """Of a client that writes too large entries one warning a minute is enough."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._told_s + TOLD_S:
            self._told_s = now_s
            text = "an entry of %d bytes for ledger %d is refused, as Apache's clients could not read more than %d back: %s"
            remedy = "for larger ones raise apache_frame_bytes here, and nettyMaxFrameSizeBytes of every client, to one number"
            logger.warning(text, nbytes, ledger_id, self._most_entry_bytes, remedy)

    def _refused(self, connection: Connection, run: AddRun, rows: slice) -> None:
        """A batch was refused, and nothing of it stored. Its adds are tried one by one: each stands for itself."""
        if rows.stop - rows.start == 1:
            self._refuse(connection, run, rows, Status.BAD_REQUEST)
            return
        for row in range(rows.start, rows.stop):
            self._put_rows(connection, run, slice(row, row + 1), DENSE)

    def _answer(self, connection: Connection, run: AddRun, rows: slice, reply: StagedReply) -> None:
        if reply.status is Status.BAD_REQUEST and rows.stop - rows.start > 1:
            self._refused(connection, run, rows)
        else:
            self._acknowledge(connection, run, rows, reply.status)

    def _refuse(self, connection: Connection, run: AddRun, rows: slice, status: Status) -> None:
        self._acknowledge(connection, run, rows, status)
        count_refused_add(status)

    def _acknowledge(self, connection: Connection, run: AddRun, rows: slice, status: Status) -> None:
        self._requests.audit.refused_request(status, connection)
        connection.owe(-len(run.whole.entry_ids[rows]))
        if connection.is_open:
            connection.send(run.acks(rows, status))

    def _refuse_frame(self, connection: Connection, reply: AddReply) -> None:
        count_refused_add(reply.status)
        self._answer_frame(connection, reply.request_id, reply)

    def _answer_frame(self, connection: Connection, number: int, reply: StagedReply) -> None:
        assert isinstance(reply, AddReply)
        self._requests.audit.refused_request(reply.status, connection)
        connection.owe(-1)
        if connection.is_open:
            connection.send(pack_reply(reply, number))


def stored_as(run: AddRun, rows: slice, pattern: IdPattern, bookie_id: str) -> AddRequest:
    """Some adds of a run as one batch. Raises BookKeeperError for ids and numbers that no entry has."""
    batch = encode_apache(run.whole.select(rows), pattern)
    return AddRequest(0, bookie_id, whole_key(run.master_key), batch, run.is_recovery, run.is_deferred)
