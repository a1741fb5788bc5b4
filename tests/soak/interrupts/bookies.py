"""A client without processes: bookies in memory that store everything at once. All else of the client is what is shipped."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.config import ClientConfig, LedgerOptions
from bk_spark.entries.batch import decode
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.store import Create
from bk_spark.metadata.znodes import Znodes
from bk_spark.wire.messages import AddReply, AddRequest, PlainReply, Status
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")
BOOKIES = ("b1", "b2", "b3")
_ids = itertools.count(1)


class Bookie:
    """All bookies are one: it keeps the payloads of each ledger by entry id."""

    def __init__(self) -> None:
        self.ledgers: dict[int, dict[int, bytes]] = {}
        self.held: list[Callable[[], None]] | None = None
        """Answers that wait until ``go_on``; None: none do."""

    def send_add(self, request: AddRequest, on_reply: Callable[[AddReply], None]) -> QueuedAdd:
        batch = decode(request.batch)
        stored = self.ledgers.setdefault(batch.ledger_id, {})
        stored.update(zip(batch.entry_ids.tolist(), batch.payloads.to_pylist(), strict=True))
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

    async def store_last_add_confirmed(self, *_: Any) -> PlainReply:
        return PlainReply(Status.OK)


class MemoryClient:
    """A context, and ledgers to write."""

    def __init__(self, config: ClientConfig) -> None:
        store = MemoryStore(MemoryTree(lambda: 0))
        initialise_cluster(store, ZNODES)
        self.store = store
        self.context = ClientContext(store, ZNODES, config)
        self.bookie = Bookie()
        self.context.bookies.bookie = lambda bookie_id: self.bookie  # type: ignore[method-assign, assignment, return-value]

    def ledger(self) -> LedgerMetadata:
        """A new one, in the store."""
        metadata = new_ledger(next(_ids), LedgerOptions(), BOOKIES, created_ms=0, creator_token=1)
        path = ZNODES.ledger(metadata.ledger_id)
        self.store.ensure_path(path.rsplit("/", 1)[0])
        self.store.transaction([Create(path, metadata.encode())])
        return metadata
