"""What a bookie that repairs itself needs of its cluster: the other bookies' copies, and the ledgers' metadata.

A bookie imports no client: the command that starts it hands this in, and it fits the shape that the bookie asks for
(``Peers`` of bookie/ledger_repair.py) without naming it. It shares the bookie's session with the metadata store.

Entries are read as every reader reads them, with this bookie asked last, and each is verified. They keep their digests and
the last add confirmed that came with them, so that what is copied is what the writer made.

Ref: BP-46, "The Full Boot-Up Sequence"; docs/rules.md, storage rules 8 and 11, protocol rule 53.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Self

import numpy as np

from bk_spark.client.ledger_store import LedgerStore
from bk_spark.client.read_entries import ReadEntries
from bk_spark.client.read_handle import read_limits
from bk_spark.client.read_queue import ReadQueue
from bk_spark.client.recovery_on_open import recovered
from bk_spark.client.transport import Transport
from bk_spark.config import KIB, MAX_BATCH_ENTRIES, ClientConfig
from bk_spark.digest import master_key, payload_sizes
from bk_spark.entry import ENTRY_OVERHEAD_BYTES, EncodedBatch, EntryBatch, coalesce, encode
from bk_spark.errors import BookKeeperError, CorruptionError
from bk_spark.ledger_metadata import LedgerMetadata
from bk_spark.metadata_store import MetadataStore
from bk_spark.quorum import IdPattern
from bk_spark.registration import instance_id, sync_same_cluster
from bk_spark.znodes import Znodes

COPY_BYTES = 512 * KIB
"""What a copied batch is filled up to: one write and one row; with one more entry of the maximum size still a batch."""


class ClusterPeers:
    """The cluster as one of its bookies sees it. Any thread may call; every call waits, none for ever.

    All raise MetadataUnavailableError where the metadata store does not answer, MetadataConflictError where it is not the
    one any more that it was.
    """

    def __init__(self, store: MetadataStore, znodes: Znodes, config: ClientConfig) -> None:
        self._store = store
        self._znodes = znodes
        self._instance_id = instance_id(store, znodes)
        self._ledgers = LedgerStore(store, znodes)
        self._transport = Transport(store, znodes, config)

    def ledger_ids(self) -> Iterator[int]:
        """The ids of all ledgers that existed when this was called, ascending."""
        self._sync()
        return self._ledgers.ids()

    def metadata(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata | BookKeeperError | None]:
        """As of now, in their order. None: there is no such ledger; an error: what is stored of it cannot be read."""
        self._sync()
        return self._ledgers.readable(ledger_ids)

    def recover(self, ledger_id: int) -> LedgerMetadata:
        """The ledger CLOSED; raises what BookKeeper.open_ledger does."""
        metadata, version = self._ledgers.versioned(ledger_id)
        return recovered(self._transport, self._ledgers, metadata, version)

    def read(self, metadata: LedgerMetadata, first: int, last: int, without: str) -> Iterator[EncodedBatch]:
        """What the bookie ``without`` holds of the entries from ``first`` to ``last``, inclusive, from the others' copies.

        All of it lies in one fragment, whose ensemble names that bookie. Raises BookieUnavailableError, NoSuchEntryError,
        NoSuchLedgerError, DigestMismatchError, where no other bookie gives an entry; what was given before is good.
        """
        slot = metadata.fragment_of(first).ensemble.index(without)
        avoid = self._transport.avoided() | {without}
        operation = ReadEntries(metadata, first, last, read_limits(self._transport.config), avoid=avoid)
        queue = ReadQueue(self._transport, metadata, master_key(metadata.password), operation)
        try:
            yield from _copies(queue, metadata, metadata.slot_pattern(slot))
        finally:
            queue.close()

    def close(self) -> None:
        """End all connections to bookies. The metadata store stays open: it is the caller's."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sync(self) -> None:
        sync_same_cluster(self._store, self._znodes, self._instance_id)


def _copies(batches: Iterable[EntryBatch], metadata: LedgerMetadata, pattern: IdPattern) -> Iterator[EncodedBatch]:
    """Consecutive entries as batches of ``pattern``, small ones joined, large ones cut."""
    waiting: list[EncodedBatch] = []
    nbytes = 0
    for piece in (piece for batch in batches for piece in _cut(batch)):
        encoded = encode(piece, metadata.digest_type, pattern)
        if encoded is None:
            continue
        nbytes += len(encoded.body)
        if waiting and (nbytes > COPY_BYTES or not _is_in_reach(waiting[0], encoded)):
            yield from _joined(waiting)
            waiting, nbytes = [], len(encoded.body)
        waiting.append(encoded)
    if waiting:
        yield from _joined(waiting)


def _cut(batch: EntryBatch) -> Iterator[EntryBatch]:
    """Pieces of less than COPY_BYTES and one entry, each of which spans no more ids than a batch may."""
    sizes = payload_sizes(batch.payloads) + ENTRY_OVERHEAD_BYTES
    by_size, by_span = (np.cumsum(sizes) - sizes) // COPY_BYTES, (batch.entry_ids - batch.entry_ids[0]) // MAX_BATCH_ENTRIES
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
