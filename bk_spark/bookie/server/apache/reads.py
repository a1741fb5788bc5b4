"""The reads of Apache's clients.

Reads of a connection wait in one queue, and many single reads are served at once: Apache's clients read a range as hundreds of
single reads. A read that fences, or is urgent, waits behind no other, and runs on the thread for recoveries.

Ref: docs/rules.md, protocol rules 34 and 35; docs/guide/limits.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice, takewhile
from typing import TypeVar

from bk_spark.bookie.server.apache.connection import Connection
from bk_spark.bookie.server.request_metrics import count_whole_reads
from bk_spark.bookie.server.requests import Requests
from bk_spark.bookie.whole_read import FoundEntry, WholeReads
from bk_spark.config import MAX_BATCH_ENTRIES, MIB
from bk_spark.entries.digest import whole_key
from bk_spark.wire.apache.version_2_server import ENTRIES_HEAD_BYTES, EntriesRead, pack_entries, sized
from bk_spark.wire.messages import Status

MOST_WAITING = 1_000
"""Reads of one connection that wait. Further ones stay in the socket."""

AT_ONCE = 100
"""Single reads that are served together."""

AT_ONCE_BYTES = MIB
"""With more bytes the other ones wait for their turn."""

MOST_URGENT = 32
"""Fences and urgent reads of one connection at a time: as many as fill a group commit."""

REPLY_BYTES = 64 * MIB
"""Answers that clients have not taken, of all connections. As in open_calls.py."""


@dataclass(frozen=True, slots=True)
class WaitingRead:
    """A single read."""

    ledger_id: int
    entry_id: int
    pack: Callable[[FoundEntry], bytes]
    """Makes the answer's frame."""


Read = WaitingRead | EntriesRead

_Answer = TypeVar("_Answer")


class Readers:
    """Serves the reads of all connections."""

    def __init__(self, requests: Requests, frame_bytes: int) -> None:
        """``frame_bytes``: the largest frame of a batch read that clients take."""
        self.requests = requests
        self._frame_bytes = frame_bytes
        bookie = requests.bookie
        self.whole = WholeReads(bookie.storage, bookie.admission, lambda batches: bookie.report_damage(batches))
        self._loop = asyncio.get_running_loop()
        self.full: set[Connection] = set()
        """The connections whose clients must take answers first."""
        self._room = asyncio.Event()

    @property
    def untaken_bytes(self) -> int:
        return sum(connection.untaken_bytes for connection in self.full)

    def taken(self, connection: Connection) -> None:
        """A client has taken its answers, or has gone."""
        self.full.discard(connection)
        self._room.set()

    async def may_reply(self, connection: Connection) -> None:
        """Wait until the client has taken its answers, and all clients together nearly all."""
        await connection.taken()
        while self.untaken_bytes > REPLY_BYTES:
            self._room.clear()
            await self._room.wait()

    async def short(self, connection: Connection, work: Callable[[], _Answer]) -> _Answer:
        """Have the thread for short requests do ``work`` that makes an answer, once the client has taken those before."""
        while True:
            await self.may_reply(connection)
            async with self.requests.short_turns.turn(connection.peer):
                if not connection.is_full and self.untaken_bytes <= REPLY_BYTES:
                    return await self._loop.run_in_executor(self.requests.reserved, work)

    async def answer(self, connection: Connection, reads: list[Read], *, is_urgent: bool = False) -> tuple[bytes, int]:
        """The answers to the first of ``reads``, and how many they are."""
        requests = self.requests
        turns = requests.recovery_turns if is_urgent else requests.read_turns
        pool = requests.recoveries if is_urgent else requests.readers
        async with turns.turn(connection.peer):
            served = await self._run(pool, reads)
        if Status.UNAUTHORIZED in served.statuses:
            requests.audit.refused_request(Status.UNAUTHORIZED, connection)
        return served.answers, len(served.statuses)

    async def _run(self, pool: ThreadPoolExecutor, reads: list[Read]) -> Served:
        began_s = self._loop.time()
        first = reads[0]
        if isinstance(first, EntriesRead):
            served = await self._loop.run_in_executor(pool, serve_entries, self.whole, first, self._frame_bytes)
        else:
            served = await self._loop.run_in_executor(pool, serve_single, self.whole, reads)
        count_whole_reads(served.statuses, served.entries, len(served.answers), self._loop.time() - began_s)
        return served


@dataclass(frozen=True, slots=True)
class Served:
    """Answers in their frames, the status of each, and how many entries they have."""

    answers: bytes
    statuses: list[Status]
    entries: int


def serve_entries(whole: WholeReads, read: EntriesRead, frame_bytes: int) -> Served:
    """Any thread may call this. The answer is within ``frame_bytes``, unless one entry alone is larger."""
    most = min(read.most_entries, MAX_BATCH_ENTRIES) if read.most_entries > 0 else MAX_BATCH_ENTRIES
    most_bytes = min(read.most_bytes, frame_bytes) - ENTRIES_HEAD_BYTES
    status, found = whole.run(read.ledger_id, read.first, most, most_bytes)
    return Served(pack_entries(read, status, sized(found)), [status], sum(map(len, found)))


def serve_single(whole: WholeReads, reads: list[Read]) -> Served:
    """The single reads that come first, as many as have AT_ONCE_BYTES, but at least one. Any thread may call this."""
    answers: list[bytes] = []
    statuses: list[Status] = []
    nbytes = entries = 0
    single = (read for read in takewhile(lambda one: isinstance(one, WaitingRead), reads) if isinstance(read, WaitingRead))
    for ledger_id, group in groupby(single, key=lambda read: read.ledger_id):
        of_ledger = list(group)
        for read, found in zip(of_ledger, whole.each(ledger_id, [read.entry_id for read in of_ledger]), strict=True):
            answers.append(read.pack(found))
            statuses.append(found.status)
            nbytes, entries = nbytes + len(found.entry), entries + (found.status is Status.OK)
            if nbytes > AT_ONCE_BYTES:
                return Served(b"".join(answers), statuses, entries)
    return Served(b"".join(answers), statuses, entries)


class ClientReads:
    """The reads of one connection."""

    def __init__(self, connection: Connection, readers: Readers) -> None:
        self._connection = connection
        self._readers = readers
        self._waiting: deque[Read] = deque()
        self._urgent = 0
        self._served = asyncio.Event()

    def put(self, read: Read) -> None:
        self._waiting.append(read)
        if len(self._waiting) == 1:
            self._connection.run(self._serve())
        elif len(self._waiting) == MOST_WAITING:
            self._connection.hold(self._until(lambda: len(self._waiting) < MOST_WAITING // 2))

    def put_urgent(self, read: Read, refused: Callable[[Status], bytes], fence_key: bytes | None) -> None:
        """With a key the ledger is fenced, durably, before it is read; ``refused`` makes the answer if it is not."""
        self._urgent += 1
        self._connection.run(self._serve_urgent(read, refused, fence_key))
        if self._urgent == MOST_URGENT:
            self._connection.hold(self._until(lambda: self._urgent < MOST_URGENT))

    async def _until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self._served.clear()
            await self._served.wait()

    async def _serve(self) -> None:
        """Serve what waits. What is served leaves the queue afterwards, so that one task at a time does it."""
        while self._waiting:
            await self._readers.may_reply(self._connection)
            answers, count = await self._readers.answer(self._connection, list(islice(self._waiting, AT_ONCE)))
            self._connection.send(answers)
            for _ in range(count):
                self._waiting.popleft()
            self._served.set()

    async def _serve_urgent(self, read: Read, refused: Callable[[Status], bytes], fence_key: bytes | None) -> None:
        requests = self._readers.requests
        try:
            reply = None if fence_key is None else await requests.fence(read.ledger_id, whole_key(fence_key), self._connection)
            if reply is not None:
                requests.audit.refused_request(reply.status, self._connection)
                self._connection.send(refused(reply.status))
                return
            await self._readers.may_reply(self._connection)
            answers, _ = await self._readers.answer(self._connection, [read], is_urgent=True)
            self._connection.send(answers)
        finally:
            self._urgent -= 1
            self._served.set()
