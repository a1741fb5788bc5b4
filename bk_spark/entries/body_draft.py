"""Writes the body of a batch, with one copy of its payloads: into the place where they stay.

A writer takes a copy of what it is handed over, and knows the digests only once it knows the ids. So a ``BodyDraft`` takes the
payloads when the copy is made, and the columns in front of them later. It is in Arrow's memory, which is kept for the next
one: fresh memory costs a page fault for every 4 KiB, which takes several times as long as to copy them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bk_spark.config import KIB
from bk_spark.entries.body_layout import ALIGNMENT, BodyLayout
from bk_spark.entries.digest import payload_offsets, payloads_in_a_row

LARGE_BYTES = 64 * KIB
"""From so many bytes of payloads on a draft is cheaper than to join the parts of a body, which takes fewer steps of Python."""

_PADDING = [bytes(-size % ALIGNMENT) for size in range(ALIGNMENT)]
"""By the size of what stands before it, modulo ALIGNMENT."""


def body_of(layout: BodyLayout, columns: Sequence[memoryview], payloads: pa.BinaryArray) -> bytes | memoryview:
    """The body of a batch of at least one entry. ``columns`` are the bytes of those in front of the payloads."""
    data = payloads_in_a_row(payloads)
    if len(data) >= LARGE_BYTES:
        return BodyDraft(layout, payloads).completed(columns)
    pieces: list[bytes | memoryview] = [layout.places(len(payloads), len(data)).metadata]
    for buffer in (*columns, _from_zero(payloads), data):
        pieces += (buffer, _PADDING[len(buffer) % ALIGNMENT])
    return b"".join(pieces)


class BodyDraft:
    """A body that has its payloads, copies of ``payloads``, and lacks the columns in front of them."""

    def __init__(self, layout: BodyLayout, payloads: pa.BinaryArray) -> None:
        """At least one payload."""
        data, rows = payloads_in_a_row(payloads), len(payloads)
        self._places = layout.places(rows, len(data))
        self._rows, self._data_bytes = rows, len(data)
        self._memory = pa.allocate_buffer(self._places.size)
        self._body = memoryview(self._memory).cast("B")
        *_, offsets_at, data_at = self._places.buffers
        self._put(0, self._places.metadata)
        self._put(offsets_at, _from_zero(payloads))
        self._put(data_at, data)

    @property
    def payloads(self) -> pa.BinaryArray:
        """They, where they are in the body."""
        *_, offsets_at, data_at = self._places.buffers
        own = [None, self._memory.slice(offsets_at, data_at - offsets_at), self._memory.slice(data_at, self._data_bytes)]
        return pa.BinaryArray.from_buffers(pa.binary(), self._rows, own)

    def completed(self, columns: Sequence[memoryview]) -> memoryview:
        """The body. The draft is used up."""
        for at, column in zip(self._places.buffers, columns, strict=False):
            self._put(at, column)
        return self._body.toreadonly()

    def _put(self, at: int, data: bytes | memoryview) -> None:
        end = at + len(data)
        self._body[at:end] = memoryview(data).cast("B")
        self._body[end : end + -end % ALIGNMENT] = _PADDING[end % ALIGNMENT]


def _from_zero(payloads: pa.BinaryArray) -> memoryview:
    """The offsets of the payloads, as bytes, from 0 on."""
    offsets = payload_offsets(payloads)
    return np.ascontiguousarray(offsets if offsets[0] == 0 else offsets - offsets[0]).data.cast("B")
