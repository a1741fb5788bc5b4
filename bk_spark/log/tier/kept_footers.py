"""Footers of Parquet files that a process read lately: a file of many ledgers is opened for each of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

from bk_spark.config import MIB

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from bk_spark.files.file_store import FileStore

MOST_BYTES = 16 * MIB
"""Of footers as files have them; in memory they take several times as much. One of a file of 256 MiB has about 0.2 MiB."""

Key: TypeAlias = "tuple[FileStore, str, int]"
"""A store, and the address and size of a file there. Files of tiers never change: what is written anew has another name."""


class KeptFooters:
    """The footers used last, up to MOST_BYTES. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._footers: OrderedDict[Key, pq.FileMetaData] = OrderedDict()
        self._nbytes = 0

    def get(self, key: Key) -> pq.FileMetaData | None:
        with self._lock:
            if key in self._footers:
                self._footers.move_to_end(key)
            return self._footers.get(key)

    def put(self, key: Key, footer: pq.FileMetaData) -> None:
        with self._lock:
            if key in self._footers:
                return
            self._footers[key] = footer
            self._nbytes += footer.serialized_size
            while self._nbytes > MOST_BYTES:
                self._nbytes -= self._footers.popitem(last=False)[1].serialized_size


KEPT_FOOTERS: Final = KeptFooters()
