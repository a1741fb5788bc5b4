"""Payloads in which look-ups found a key lately: a log of some million rows is then looked up without its bookies."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

from bk_spark.config import MIB

PAYLOAD_BYTES = 64 * MIB
"""As they are stored, compressed: to decode one takes less time than to read it."""


class KeptPayloads:
    """Of one log, those used last. Payloads never change. Threads may share it."""

    def __init__(self, limit_bytes: int = PAYLOAD_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._payloads: OrderedDict[tuple[int, int], pa.Buffer] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()
        """Held for moments."""

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def get(self, ledger_id: int, entry_id: int) -> pa.Buffer | None:
        with self._lock:
            found = self._payloads.get((ledger_id, entry_id))
            if found is not None:
                self._payloads.move_to_end((ledger_id, entry_id))
            return found

    def put(self, ledger_id: int, entry_id: int, payload: pa.Buffer) -> None:
        """Keep a copy: what was read with the payload is free then."""
        with self._lock:
            if (ledger_id, entry_id) in self._payloads or payload.size > self._limit_bytes:
                return
            self._payloads[ledger_id, entry_id] = pa.py_buffer(payload.to_pybytes())
            self._nbytes += payload.size
            while self._nbytes > self._limit_bytes:
                self._nbytes -= self._payloads.popitem(last=False)[1].size
