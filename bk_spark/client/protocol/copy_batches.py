"""Making copies: verified entries become the batches that are sent to a new replica.

Small batches are joined, large ones are cut, and only the entries of the replica's slot are taken. Entries keep their digests
and the LAC that came with them, so that a copy is exactly what the writer made.

Ref: docs/formats.md, "A batch of entries".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from bk_spark.config import KIB, MAX_BATCH_ENTRIES
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES, EncodedBatch, EntryBatch, encode
from bk_spark.entries.digest import payload_sizes
from bk_spark.entries.recut import coalesce
from bk_spark.errors import CorruptionError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import IdPattern

COPY_BYTES = 512 * KIB
"""A copied batch is filled up to this: it costs one write and one row, and one more entry of the maximum size still fits in."""


class CopyBatches:
    """Takes consecutive entries of one ledger, and makes batches of ``pattern``. At most one batch is held back."""

    def __init__(self, metadata: LedgerMetadata, pattern: IdPattern, fill_bytes: int = COPY_BYTES) -> None:
        self._fill_bytes = fill_bytes
        self._digest_type = metadata.digest_type
        self._pattern = pattern
        self._waiting: list[EncodedBatch] = []
        self._nbytes = 0

    def add(self, batch: EntryBatch) -> list[EncodedBatch]:
        """Returns the batches that are full now."""
        full: list[EncodedBatch] = []
        for piece in _cut(batch, self._fill_bytes):
            encoded = encode(piece, self._digest_type, self._pattern)
            if encoded is not None:
                full += self._join(encoded)
        return full

    def rest(self) -> list[EncodedBatch]:
        """Returns what is left after the last entry."""
        waiting, self._waiting, self._nbytes = self._waiting, [], 0
        return _joined(waiting) if waiting else []

    def _join(self, encoded: EncodedBatch) -> list[EncodedBatch]:
        nbytes = len(encoded.body)
        full: list[EncodedBatch] = []
        if self._waiting:
            assert encoded.header.first_entry_id > self._waiting[-1].header.last_entry_id
            span = encoded.header.last_entry_id - self._waiting[0].header.first_entry_id
            if self._nbytes + nbytes > self._fill_bytes or span >= MAX_BATCH_ENTRIES:
                full = self.rest()
        self._waiting.append(encoded)
        self._nbytes += nbytes
        return full


def copies(batches: Iterable[EntryBatch], metadata: LedgerMetadata, pattern: IdPattern) -> Iterator[EncodedBatch]:
    """Consecutive entries as batches of ``pattern``."""
    made = CopyBatches(metadata, pattern)
    for batch in batches:
        yield from made.add(batch)
    yield from made.rest()


def _cut(batch: EntryBatch, fill_bytes: int) -> Iterator[EntryBatch]:
    """Pieces that exceed ``fill_bytes`` by less than one entry, and span no more ids than a batch may."""
    sizes = payload_sizes(batch.payloads) + ENTRY_OVERHEAD_BYTES
    by_size, by_span = (np.cumsum(sizes) - sizes) // fill_bytes, (batch.entry_ids - batch.entry_ids[0]) // MAX_BATCH_ENTRIES
    borders = np.flatnonzero((np.diff(by_size) != 0) | (np.diff(by_span) != 0)) + 1
    for start, end in pairwise([0, *borders.tolist(), len(batch)]):
        yield batch.slice(start, end - start)


def _joined(batches: list[EncodedBatch]) -> list[EncodedBatch]:
    """As one batch; unchanged if a writer's lengths do not add up."""
    try:
        joined = coalesce(batches)
    except CorruptionError:
        return batches
    assert joined.header.count == sum(batch.header.count for batch in batches)
    return [joined]
