"""Keeps the batches that were decoded last, for clients that read entry by entry what is stored in batches."""

from __future__ import annotations

import threading
from collections import OrderedDict

from bk_spark.bookie.index.values import StoredBatch
from bk_spark.config import MIB
from bk_spark.entries.apache_entries import ApacheEntries

KEPT_BYTES = 32 * MIB
"""Decoded batches that are kept: those of some dozens of readers, of 1 MiB each. Those used longest ago go first."""


class KeptBatches:
    """The batches that were decoded last. Any thread may use it: what is stored never changes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int, int], ApacheEntries] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, stored: StoredBatch) -> ApacheEntries | None:
        key = stored.ledger_id, stored.first_entry_id, stored.sequence
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, stored: StoredBatch, whole: ApacheEntries) -> None:
        with self._lock:
            if (stored.ledger_id, stored.first_entry_id, stored.sequence) in self._kept:
                return
            self._kept[stored.ledger_id, stored.first_entry_id, stored.sequence] = whole
            self._bytes += whole.entries.nbytes
            while self._bytes > KEPT_BYTES:
                self._bytes -= self._kept.popitem(last=False)[1].entries.nbytes
