"""What is known of the keys of entries, so that a look-up need not read an entry that does not hold its key.

An entry of a closed ledger never changes, and no ledger gets the id of another one. So what is known of an entry holds for
every version of the log, and needs no check.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bk_spark.config import MIB
from bk_spark.log.lookup.asked_keys import AskedKeys
from bk_spark.rows.keys.key_filter import Places
from bk_spark.rows.statistics import ColumnStatistics, Key

KNOWN_BYTES = 64 * MIB
"""With 12 bits a key: the filters of entries that hold 40 million keys, as a log of 40 million rows does at most."""

_OVERHEAD_BYTES = 600
"""Of an entry, for its objects of Python."""

_FEW = 24
"""Keys that are compared with bounds, one by one; of more, hardly ever is none between them."""


@dataclass(frozen=True, slots=True)
class KnownEntry:
    """The keys of the payload that begins in an entry. Without rows none begins there."""

    rows: int
    statistics: Mapping[str, ColumnStatistics] = field(default_factory=dict)
    filter: bytes | None = None
    """Of its keys (key_filter.py); None if it may hold any key."""

    def held(self, keys: AskedKeys, wanted: Places, columns: tuple[str, ...]) -> Places:
        """Those of the ``wanted`` keys that it may hold."""
        found = wanted if self.rows else wanted[:0]
        if self.filter is not None:
            found = keys.probes.held(self.filter, found)
        if not self.statistics or not 0 < len(found) <= _FEW:
            return found
        return np.array([one for one in found.tolist() if self._is_within(keys.compared(one), columns)], np.int64)

    def _is_within(self, key: tuple[Key | None, ...], columns: tuple[str, ...]) -> bool:
        return all(_allows(self.statistics.get(name), self.rows, value) for name, value in zip(columns, key, strict=True))


NO_PAYLOAD = KnownEntry(0)
"""An entry with a later part of a payload."""


def _allows(known: ColumnStatistics | None, rows: int, value: Key | None) -> bool:
    if known is None:
        return True
    if value is None:
        return known.nulls > 0
    if value != value:
        return known.has_nan
    if known.low is None or known.high is None:
        return known.nulls < rows
    return bool(known.low <= value <= known.high)  # type: ignore[operator]  # of one kind


class KnownEntries:
    """Entries of one log's ledgers, of those with the highest ids: look-ups begin there. Threads may share it."""

    def __init__(self, limit_bytes: int = KNOWN_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._entries: dict[tuple[int, int], KnownEntry] = {}
        self._nbytes = 0
        self._lock = threading.Lock()
        """Held for moments, around changes."""

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def get(self, ledger_id: int, entry_id: int) -> KnownEntry | None:
        return self._entries.get((ledger_id, entry_id))

    def put(self, ledger_id: int, entry_id: int, known: KnownEntry) -> None:
        with self._lock:
            before = self._entries.get((ledger_id, entry_id))
            self._entries[ledger_id, entry_id] = known
            self._nbytes += _size(known) - (_size(before) if before else 0)
            if self._nbytes > self._limit_bytes:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Down to three fourths, so that entries are sorted seldom."""
        for place in sorted(self._entries):
            if self._nbytes <= self._limit_bytes * 3 // 4:
                return
            self._nbytes -= _size(self._entries.pop(place))


def _size(known: KnownEntry) -> int:
    bounds = sum(len(one) for of in known.statistics.values() for one in (of.low, of.high) if isinstance(one, bytes))
    return _OVERHEAD_BYTES + bounds + len(known.filter or b"")
