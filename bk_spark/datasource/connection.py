"""The BookKeeper clients of this Python process.

Spark reuses its Python workers for many tasks, and a connection costs more than a small task, so clients are kept. A worker
imports user code only after its fork, so no client crosses a fork. A worker runs one task at a time, but a background thread
of the task may ask for the client too, so there is a lock.
"""

from __future__ import annotations

import gc
import os
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bk_spark.config import ClientConfig
from bk_spark.embedded.join import resolve
from bk_spark.process.memory import keep_freed

if TYPE_CHECKING:
    from bk_spark.bookkeeper import BookKeeper

MAX_CLIENTS = 4
"""Clients that a process keeps, one for each cluster and settings. Each one holds a ZooKeeper session and a thread."""

_clients: dict[tuple[str, ClientConfig], BookKeeper] = {}
_lock = threading.Lock()


def connect(metadata_uri: str, config: ClientConfig) -> BookKeeper:
    """This process's client of a cluster. The first call makes it and imports its libraries.

    ``embedded:DIR`` is looked at each time, for its cluster may have been killed. Raises ConfigError for a malformed URI,
    MetadataUnavailableError where no metadata store answers.
    """
    metadata_uri = resolve(metadata_uri, used_by=_spark())
    key = (metadata_uri, config)
    with _lock:
        client = _clients.pop(key, None) or _load_client()(metadata_uri, config)
        while len(_clients) >= MAX_CLIENTS:
            _clients.pop(next(iter(_clients))).close()
        _clients[key] = client
    return client


@cache
def _spark() -> int | None:
    """The process of the JVM for which this process works; None if it is none of Spark's Python workers, or cannot tell.

    Spark ends its Python processes when they are idle: the JVM is the user of what they use.
    """
    try:
        words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
        if b"pyspark.daemon" in words:  # forked by the daemon, which the JVM started
            return int(Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None
    return os.getppid() if any(word.startswith(b"pyspark.") for word in words) else None


@cache
def _load_client() -> type[BookKeeper]:
    """Import the client with gRPC, kazoo and the rest, hide their objects from the garbage collector, and keep freed memory.

    Spark's worker runs a full garbage collection after each task, on the task's time. It takes about half as long without
    the objects of these libraries.
    """
    from bk_spark.bookkeeper import BookKeeper

    keep_freed()
    gc.freeze()
    return BookKeeper
