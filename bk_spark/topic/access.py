"""All that reading topics may do: look at ZooKeeper, and read ledgers without recovery.

The types have no call that writes, closes, fences or recovers, and the package imports nothing that has one
(tests/unit/test_imports.py). A topic's broker goes on writing into its open ledger while others read it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from bk_spark.metadata.store import Versioned


class LookedAtStore(Protocol):
    """Pulsar's metadata store, to look at. See ``MetadataStore``."""

    @property
    def uri(self) -> str: ...

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]: ...

    def children(self, path: str) -> list[str]: ...

    def sync(self, path: str) -> None: ...


class ReadLedger(Protocol):
    """A ledger opened without recovery. See ``ReadHandle``."""

    @property
    def is_closed(self) -> bool: ...

    @property
    def last_add_confirmed(self) -> int: ...

    @property
    def length(self) -> int: ...

    def read_last_add_confirmed(self) -> int: ...

    def read_unconfirmed(self, first: int, last: int) -> Iterator[pa.RecordBatch]: ...


OpenLedger = Callable[[int], ReadLedger]
"""Opens a ledger without recovery, and asks how far it is confirmed. Raises NoSuchLedgerError, BookieUnavailableError …"""


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """Where topics are found and read."""

    store: LookedAtStore
    root: str
    """Pulsar's root in the store, without a slash at its end: "" for the store's own root."""
    open_ledger: OpenLedger
    offload_endpoint: str | None = None
    """Of the object store with copies of ledgers, in place of the one that Pulsar noted."""

    @property
    def where(self) -> str:
        """What errors call the place."""
        return f"{self.store.uri} below '{self.root or '/'}'"
