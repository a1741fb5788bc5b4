"""The BookKeeper clients of this Python process.

Spark reuses its Python workers for many tasks, and a connection costs more than a small task: clients are kept. Every
worker imports user code only after its fork, so process ids are not needed. It runs one task at a time, but the task's
background thread may ask for the client too: hence the lock.
"""

from __future__ import annotations

import gc
import threading
from functools import cache
from typing import TYPE_CHECKING

from bk_spark.config import ClientConfig
from bk_spark.process_memory import keep_freed

if TYPE_CHECKING:
    from bk_spark.client.bookkeeper import BookKeeper

MAX_CLIENTS = 4
"""Clusters, or settings for one, that a process serves at a time; each client holds a ZooKeeper session and a thread."""

_clients: dict[tuple[str, ClientConfig], BookKeeper] = {}
_lock = threading.Lock()


def connect(metadata_uri: str, config: ClientConfig) -> BookKeeper:
    """This process's client of a cluster; made, and its libraries imported, at the first call.

    Raises ConfigError for a malformed URI, MetadataUnavailableError where no metadata store answers.
    """
    key = (metadata_uri, config)
    with _lock:
        client = _clients.pop(key, None) or _load_client()(metadata_uri, config)
        while len(_clients) >= MAX_CLIENTS:
            _clients.pop(next(iter(_clients))).close()
        _clients[key] = client
    return client


@cache
def _load_client() -> type[BookKeeper]:
    """Import gRPC, kazoo and the rest, then keep them out of the garbage collector's sight, and freed memory at hand.

    Spark's worker runs a full collection after each task, on the task's time; without the objects of these libraries it takes
    about half as long.
    """
    from bk_spark.client.bookkeeper import BookKeeper

    keep_freed()
    gc.freeze()
    return BookKeeper
