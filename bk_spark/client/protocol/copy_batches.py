"""Verified entries as the batches that a replica is made of: small ones joined, large ones cut, striped ones sorted out.

Entries keep their digests and the last add confirmed that came with them, so that what is copied is what the writer made.

Ref: docs/formats.md, "A batch of entries".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from bk_spark.config import KIB, MAX_BATCH_ENTRIES
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES, EncodedBatch, EntryBatch, coalesce, encode
from bk_spark.entries.digest import payload_sizes
from bk_spark.errors import CorruptionError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import IdPattern

COPY_BYTES = 512 * KIB
"""What a copied batch is filled up to: one write and one row; with one more entry of the maximum size still a batch."""


class CopyBatches:
    """Takes consecutive entries of one ledger, gives batches of ``pattern``. At most one batch is held back."""

    def __init__(self, metadata: LedgerMetadata, pattern: IdPattern, fill_bytes: int = COPY_BYTES) -> None:
        self._fill_bytes = fill_bytes
        self._digest_type = metadata.digest_type
        self._pattern = pattern
        self._waiting: list[EncodedBatch] = []
        self._nbytes = 0

    def add(self, batch: EntryBatch) -> list[EncodedBatch]:
        """What is full now."""
        full: list[EncodedBatch] = []
        for piece in _cut(batch, self._fill_bytes):
            encoded = encode(piece, self._digest_type, self._pattern)
            if encoded is not None:
                full += self._join(encoded)
        return full

    def rest(self) -> list[EncodedBatch]:
        """What is left, after the last entry."""
        waiting, self._waiting, self._nbytes = self._waiting, [], 0
        return _joined(waiting) if waiting else []

    def _join(self, encoded: EncodedBatch) -> list[EncodedBatch]:
        nbytes = len(encoded.body)
        is_over = bool(self._waiting) and (
            self._nbytes + nbytes > self._fill_bytes or not _is_in_reach(self._waiting[0], encoded)
        )
        full = self.rest() if is_over else []
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
    """Pieces of less than ``fill_bytes`` and one entry, each of which spans no more ids than a batch may."""
    sizes = payload_sizes(batch.payloads) + ENTRY_OVERHEAD_BYTES
    by_size, by_span = (np.cumsum(sizes) - sizes) // fill_bytes, (batch.entry_ids - batch.entry_ids[0]) // MAX_BATCH_ENTRIES
    borders = np.flatnonzero((np.diff(by_size) != 0) | (np.diff(by_span) != 0)) + 1
    for start, end in pairwise([0, *borders.tolist(), len(batch)]):
        yield batch.slice(start, end - start)


def _is_in_reach(first: EncodedBatch, other: EncodedBatch) -> bool:
    return other.header.last_entry_id - first.header.first_entry_id < MAX_BATCH_ENTRIES


def _joined(batches: list[EncodedBatch]) -> list[EncodedBatch]:
    """As one; as they are where a writer's lengths do not add up."""
    try:
        return [coalesce(batches)]
    except CorruptionError:
        return batches
