"""Reads of a range from one Apache bookie: batch reads, or single ones, many at a time.

Single reads take the place of batch reads for a bookie that holds only some of the ids, because a batch read ends at the first
gap; whenever a read fences, because an answer must not be one that was made before the fence; and where a bookie is too old.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from bk_spark.client.driver.apache.connections import ApacheConnections
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.entries.apache_entries import length_breaks
from bk_spark.entries.batch import EncodedBatch, encode
from bk_spark.entries.digest import APACHE_KEY_BYTES
from bk_spark.entries.entry_bytes import Places, entries_of
from bk_spark.errors import CorruptionError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache import version_3
from bk_spark.wire.messages import ReadBatch, ReadEnd, ReadRequest, Status

MOST_FRAME_BYTES = 4 << 20
"""Asked for in one batch read: below the 5 MiB that Apache's bookies take by default as the largest frame. One that takes less
answers with less."""

MOST_SINGLE_READS = 128
"""Single reads under way for one read: enough to keep the bookie busy for several round trips."""

_Part: TypeAlias = tuple[Iterator[EncodedBatch], ReadEnd | None]
"""The next entries, and the end of the read if it has come."""


class RangeRead:
    """One read of a range from one bookie."""

    def __init__(self, connections: ApacheConnections, request: ReadRequest) -> None:
        self._connections = connections
        self._request = request
        self._left_bytes = request.maximum_bytes
        self._count = 1
        """How many single entries to ask for next: as many as are likely to fit into what is left."""

    async def parts(self) -> AsyncIterator[ReadBatch | ReadEnd]:
        """Raises CorruptionError for what is no entry of the ledger, or not one that was asked for."""
        request, position = self._request, self._request.first
        while self._left_bytes > 0 and (ids := self._next_ids(position)):
            found = await self._read_batch(ids[0]) if request.pattern.is_dense and not request.fence else None
            batches, end = found or await self._read_singly(ids)
            for batch in batches:
                self._left_bytes -= len(batch.body)
                position = batch.header.last_entry_id + 1
                yield ReadBatch(batch)
                await asyncio.sleep(0)  # an answer may be cut into thousands of batches; others have their turn between them
            if end is not None:
                yield end
                return
        yield ReadEnd(Status.OK, next(iter(self._next_ids(position)), request.last + 1))

    def _next_ids(self, position: int) -> list[int]:
        """The next ids, at least one if there is one."""
        pattern, last = self._request.pattern, self._request.last
        ids: list[int] = pattern.ids(position, min(last, position + MOST_SINGLE_READS)).tolist()
        return ids

    async def _read_batch(self, first: int) -> _Part | None:
        """None: the bookie has no batch reads."""
        request = self._request
        most = min(request.last - first + 1, MAX_BATCH_ENTRIES)
        most_bytes = min(self._left_bytes, MOST_FRAME_BYTES)
        answer = await self._connections.batch_read(request.ledger_id, first, most, most_bytes)
        if answer is None:
            return None
        if answer.status is not Status.OK:
            return iter(()), ReadEnd(answer.status, first, detail(answer.status, answer.code))
        return self._batches(first, answer.data, answer.places), None

    async def _read_singly(self, ids: list[int]) -> _Part:
        """The next entries up to one that is not there, which ends the read."""
        ids, request = ids[: self._count], self._request
        key = request.master_key[:APACHE_KEY_BYTES] if request.fence else b""
        questions = [version_3.read(request.ledger_id, entry_id, key) for entry_id in ids]
        connection = await self._connections.numbered()
        answers = await asyncio.gather(*(connection.ask(pb.READ_ENTRY, question) for question in questions))
        bodies: list[bytes] = []
        end: ReadEnd | None = None
        left = self._left_bytes
        for entry_id, answer in zip(ids, answers, strict=True):
            status = version_3.status_of(answer.status)
            if status is not Status.OK:
                end = ReadEnd(status, entry_id, detail(status, answer.status))
                break
            left -= len(answer.readResponse.body)
            if bodies and left < 0:  # the entries became larger: what is too much is asked for again
                break
            bodies.append(answer.readResponse.body)
        if not bodies:
            return iter(()), end
        fitting = left // (max(map(len, bodies)) + 1)
        self._count = max(1, min(MOST_SINGLE_READS, 2 * self._count, fitting))
        ends = np.cumsum([0, *map(len, bodies)])
        return self._batches(ids[0], b"".join(bodies), np.stack([ends[:-1], ends[1:]], axis=1)), end

    def _batches(self, first: int, data: bytes, places: Places) -> Iterator[EncodedBatch]:
        """The entries at these places of ``data``, which must be ``first`` and those that follow it. Mostly one batch."""
        request = self._request
        if not len(places):
            raise CorruptionError("an answer to a read", "it has no entry")
        entries = entries_of(request.ledger_id, request.digest_type, data, places)
        for start, end in pairwise(length_breaks(entries, request.pattern)):
            batch = encode(entries.slice(start, end - start), request.digest_type, request.pattern)
            if batch is None or (batch.header.first_entry_id, batch.header.count) != (first, end - start):
                raise CorruptionError("an answer to a read", "it has other entries than those that were asked for")
            first = batch.header.last_entry_id + 1
            yield batch


def detail(status: Status, code: int) -> str:
    return f"code {code}" if status is Status.UNKNOWN else ""
