"""A client without processes: bookies in memory that store everything at once. All else of the client is what is shipped."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import wait
from typing import Any

from bk_spark.client.driver.client_context import METADATA_THREADS, ClientContext
from bk_spark.client.driver.connections import ReadProgress
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.config import ClientConfig, LedgerOptions
from bk_spark.entries.batch import EntryBatch, decode, encode
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.store import Create
from bk_spark.metadata.znodes import Znodes
from bk_spark.wire.messages import (
    AddReply,
    AddRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    PlainReply,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    Status,
)
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")
BOOKIES = ("b1", "b2", "b3")
_ids = itertools.count(1)


class Bookie:
    """All bookies are one: it keeps the batches of each ledger, in order."""

    def __init__(self) -> None:
        self.ledgers: dict[int, dict[int, EntryBatch]] = {}
        """By the first id of each batch."""
        self.held: list[Callable[[], None]] | None = None
        """Answers that wait until ``go_on``; None: none do."""

    def payloads(self, ledger_id: int) -> dict[int, bytes]:
        """By entry id."""
        batches = self.ledgers.get(ledger_id, {}).values()
        return {
            one: payload
            for batch in batches
            for one, payload in zip(batch.entry_ids.tolist(), batch.payloads.to_pylist(), strict=True)
        }

    def forget_all_but(self, ledger_id: int) -> None:
        self.ledgers = {ledger_id: self.ledgers[ledger_id]}

    def send_add(self, request: AddRequest, on_reply: Callable[[AddReply], None]) -> QueuedAdd:
        batch = decode(request.batch)
        self.ledgers.setdefault(batch.ledger_id, {})[int(batch.entry_ids[0])] = batch
        loop, reply = asyncio.get_running_loop(), AddReply(request.request_id, Status.OK)
        if self.held is None:
            loop.call_soon(on_reply, reply)
        else:
            self.held.append(lambda: loop.call_soon_threadsafe(on_reply, reply) and None)
        return QueuedAdd(request.request_id, request, on_reply)

    def stand_still(self) -> None:
        self.held = []

    def go_on(self) -> None:
        held, self.held = self.held or [], None
        for answer in held:
            answer()

    async def read(self, request: ReadRequest) -> AsyncIterator[ReadProgress | ReadBatch | ReadEnd]:
        yield ReadProgress.SENT
        for first, batch in list(self.ledgers.get(request.ledger_id, {}).items()):
            start, end = max(request.first - first, 0), min(request.last - first + 1, len(batch))
            if start < end:
                await asyncio.sleep(0)
                encoded = encode(batch.slice(start, end - start), request.digest_type)
                assert encoded is not None
                yield ReadBatch(encoded)
        yield ReadEnd(Status.OK, request.last + 1)

    async def last_add_confirmed(self, request: LastAddConfirmedRequest, timeout_s: float) -> LastAddConfirmedReply:
        return LastAddConfirmedReply(Status.OK, max(self.payloads(request.ledger_id), default=-1))

    async def store_last_add_confirmed(self, *_: Any) -> PlainReply:
        return PlainReply(Status.OK)


class Session(MemoryStore):
    """A session with the metadata store has a thread and a connection, as a real one."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self._connection = os.pipe()
        self._ends = threading.Semaphore(0)
        threading.Thread(target=self._ends.acquire, daemon=True).start()

    def close(self) -> None:
        super().close()
        self._ends.release()
        connection, self._connection = self._connection, ()
        for end in connection:
            os.close(end)


class MemoryClient:
    """A context, and ledgers to write."""

    def __init__(self, config: ClientConfig) -> None:
        self.tree = MemoryTree(lambda: 0)
        store = MemoryStore(self.tree)
        initialise_cluster(store, ZNODES)
        self.store = store
        self.context = ClientContext(store, ZNODES, config)
        self.ledgers = LedgerStore(store, ZNODES)
        self.bookie = Bookie()
        self.context.bookies.bookie = lambda bookie_id: self.bookie  # type: ignore[method-assign, assignment, return-value]
        self._start_all_threads()

    def ledger(self) -> LedgerMetadata:
        """A new one, in the store."""
        metadata = new_ledger(next(_ids), LedgerOptions(), BOOKIES, created_ms=0, creator_token=1)
        path = ZNODES.ledger(metadata.ledger_id)
        self.store.ensure_path(path.rsplit("/", 1)[0])
        self.store.transaction([Create(path, metadata.encode())])
        return metadata

    def reader(self, metadata: LedgerMetadata) -> ReadHandle:
        handle = ReadHandle(self.context, self.ledgers, metadata)
        handle.begin()
        return handle

    def _start_all_threads(self) -> None:
        """Those of the pool for the metadata store come when they are needed: from here on none is new."""
        together = threading.Barrier(METADATA_THREADS)
        wait([self.context._executor.submit(together.wait) for _ in range(METADATA_THREADS)])
