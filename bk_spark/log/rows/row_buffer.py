"""Rows that wait for others, until they fill an entry or the first of them has waited long enough. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

from bk_spark.config import MAX_ENTRY_BYTES, ClientConfig
from bk_spark.errors import ConfigError
from bk_spark.rows.codec import MAX_ROWS

MAX_DELAY_S = 0.1
"""Rows wait for others for this long: ten entries a second at most while little comes."""

MOST_DELAY_S = 3600.0
"""A row that waits longer was forgotten."""

_Future = TypeVar("_Future")


@dataclass(frozen=True, slots=True)
class RowLimits:
    """When waiting rows are written. Raises ConfigError for limits that make no sense."""

    log: str
    max_rows: int
    max_bytes: int
    """Before compression."""
    max_delay_s: float
    append_wait_s: float = ClientConfig().append_wait_s
    """That of the client."""

    @property
    def window_bytes(self) -> int:
        """Room for the rows of one entry, and for as many while those are encoded."""
        return 2 * self.max_bytes

    def share(self, call: RowCall[Any]) -> int:
        """How much of an entry a call fills, in bytes: of ``max_bytes`` or of ``max_rows``, whichever is more."""
        return max(call.nbytes, -(-call.rows * self.max_bytes // self.max_rows))

    def __post_init__(self) -> None:
        for name, most in (("max_rows", MAX_ROWS), ("max_bytes", MAX_ENTRY_BYTES)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise ConfigError(name, value, f"it must be a whole number from 1 to {most}")
        delay_s = self.max_delay_s
        if isinstance(delay_s, bool) or not isinstance(delay_s, int | float) or not 0 <= delay_s <= MOST_DELAY_S:
            raise ConfigError("max_delay_s", delay_s, f"it must be a number of seconds from 0 to {MOST_DELAY_S:g}")


@dataclass(slots=True, eq=False)
class RowCall(Generic[_Future]):
    """One append of the application, and the future that it is answered with."""

    batches: list[pa.RecordBatch]
    """None of them for a flush, which is answered once all before it is."""
    future: _Future
    rows: int = field(init=False)
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = sum(batch.num_rows for batch in self.batches)
        self.nbytes = sum(batch.nbytes for batch in self.batches)


class RowBuffer(Generic[_Future]):
    """The calls whose rows wait, in order. Not thread-safe."""

    def __init__(self, limits: RowLimits) -> None:
        self._limits = limits
        self._start_anew()

    @property
    def is_empty(self) -> bool:
        return not self._calls

    @property
    def is_full(self) -> bool:
        """Whether the rows are enough for an entry: they are due at once."""
        return self._filled >= self._limits.max_bytes

    @property
    def due_s(self) -> float:
        """When the first call has waited long enough. Of a buffer that is not empty."""
        return self._due_s

    def add(self, call: RowCall[_Future], now_s: float) -> None:
        if not self._calls:
            self._due_s = now_s + self._limits.max_delay_s
        self._calls.append(call)
        self.rows += call.rows
        self._filled += self._limits.share(call)

    def take(self) -> list[RowCall[_Future]]:
        """All calls; none is left."""
        taken = self._calls
        self._start_anew()
        return taken

    def _start_anew(self) -> None:
        self._calls: list[RowCall[_Future]] = []
        self.rows = self._filled = 0
        self._due_s = 0.0
