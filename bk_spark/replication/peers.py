"""The cluster as a bookie that repairs itself needs it: the other bookies' copies, and the ledgers' metadata.

A bookie imports no client. So the command that starts the bookie passes a ``ClusterPeers`` to it, which has the methods of the
protocol ``Peers`` (bookie/repair/ledger_repair.py). It shares the bookie's session with the metadata store.

Entries are read and verified as by any reader, with the repaired bookie asked last. They keep their digests and LACs, so the
copies are what the writer sent.

Ref: BP-46, "The Full Boot-Up Sequence"; docs/rules.md, storage rules 8 and 11, protocol rule 53.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_state_machine_and_wait
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.ledger.read_handle import ReadQueue
from bk_spark.client.ledger.recovery_on_open import recovered
from bk_spark.client.protocol.copy_batches import copies
from bk_spark.client.protocol.last_add_confirmed import ReadLastAddConfirmed
from bk_spark.client.protocol.limits import ReadLimits, milliseconds
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.config import ClientConfig
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.registration import instance_id, sync_same_cluster
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes


class ClusterPeers:
    """The cluster as one of its bookies sees it. Threads may share it. Every call blocks, but not for ever.

    All methods raise MetadataUnavailableError, and MetadataConflictError if the store now holds another cluster.
    """

    def __init__(self, store: MetadataStore, znodes: Znodes, config: ClientConfig) -> None:
        self._store = store
        self._znodes = znodes
        self._instance_id = instance_id(store, znodes)
        self._ledgers = LedgerStore(store, znodes)
        self._context = ClientContext(store, znodes, config)

    def ledger_ids(self) -> Iterator[int]:
        """The ids of all ledgers that existed when this was called, ascending."""
        self._sync()
        return self._ledgers.ids()

    def metadata(self, ledger_ids: Sequence[int]) -> list[LedgerMetadata | BookKeeperError | None]:
        """The current metadata, in the same order; None for a missing ledger, an error for malformed metadata."""
        self._sync()
        return self._ledgers.readable(ledger_ids)

    def recover(self, ledger_id: int) -> LedgerMetadata:
        """Recover the ledger. Returns its CLOSED metadata. Raises what BookKeeper.open_ledger raises."""
        metadata, version = self._ledgers.versioned(ledger_id)
        return recovered(self._context, self._ledgers, metadata, version)

    def write_key(self, metadata: LedgerMetadata) -> bytes:
        """The master key of requests that add to the ledger or fence it. Raises as ``LogSecrets.writable``."""
        return self._context.secrets.writable(metadata).master_key

    def read(self, metadata: LedgerMetadata, first: int, last: int, without: str) -> Iterator[EncodedBatch]:
        """What the bookie ``without`` should hold from ``first`` to ``last``, inclusive, read from other bookies.

        They lie in one fragment, whose ensemble names that bookie. Raises BookieUnavailableError, NoSuchEntryError,
        NoSuchLedgerError or DigestMismatchError where no other bookie has a good copy; batches given before that are good.
        """
        slot = metadata.fragment_of(first).ensemble.index(without)
        avoid = self._context.avoided() | {without}
        machine = ReadEntries(metadata, first, last, ReadLimits.of(self._context.config), avoid=avoid)
        queue = ReadQueue(self._context, metadata, machine)
        try:
            yield from copies(queue, metadata, metadata.slot_pattern(slot))
        finally:
            queue.close()

    def check_key(self, metadata: LedgerMetadata) -> None:
        """Ask the bookies of every ensemble whether they hold the ledger under the metadata's key, or not at all.

        Raises BookieUnavailableError if so many may hold it under another key that they could have confirmed an entry of it.
        """
        seen: set[tuple[str, ...]] = set()
        for number, fragment in enumerate(metadata.fragments, 1):
            if fragment.ensemble not in seen:
                seen.add(fragment.ensemble)
                up_to_here = replace(metadata, fragments=metadata.fragments[:number])
                timeout_ms = milliseconds(self._context.config.read_timeout_s)
                machine = ReadLastAddConfirmed(up_to_here, timeout_ms=timeout_ms)
                run_state_machine_and_wait(self._context, up_to_here, machine)

    def close(self) -> None:
        """Close all connections to bookies. The metadata store stays open: it belongs to the caller."""
        self._context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sync(self) -> None:
        sync_same_cluster(self._store, self._znodes, self._instance_id)
