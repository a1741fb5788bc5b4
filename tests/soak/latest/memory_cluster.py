"""A whole cluster in memory: every client of this process, of Spark's data source and of coroutines, too, finds it at URI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from bk_spark import bookkeeper
from bk_spark.client.driver.bookies import Bookies
from bk_spark.datasource import connection
from bk_spark.metadata.registration import BookieAddress, initialise_cluster, register
from tests.memory_store import MemoryStore, MemoryTree
from tests.soak.interrupts.bookies import BOOKIES, ZNODES, Bookie, Session

URI = f"zk://in.memory:2181{ZNODES.root}"


async def _not_of_apache(*_: Any) -> bool:
    return False


@contextmanager
def memory_cluster(clock_ms: Callable[[], int] = lambda: 0) -> Iterator[Bookie]:
    """All bookies are the one that it gives. ``clock_ms`` is the clock of the metadata store."""
    tree, bookie = MemoryTree(clock_ms), Bookie()
    store = MemoryStore(tree)
    initialise_cluster(store, ZNODES)
    for name in BOOKIES:
        register(store, ZNODES, BookieAddress(name, "in.memory", 1))
    with (
        mock.patch.object(bookkeeper, "connect_with", side_effect=lambda *_, **__: Session(tree)),
        mock.patch.object(Bookies, "bookie", return_value=bookie),
        mock.patch.object(Bookies, "are_of_apache", _not_of_apache),
        mock.patch.object(connection, "_clients", {}) as clients,
    ):
        yield bookie
        for client in clients.values():
            client.close()
