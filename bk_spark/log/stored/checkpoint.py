"""Checkpoints: stored listings of some versions, so that reading a log costs the same however old it is.

A checkpoint depends only on the versions up to its own, and those never change. So all its writers write the same; any number
may write at once, and a reader may use any complete one. It is complete once its value, set last, says how many pages it has.

A commit writes a checkpoint at every thousandth version, and a vacuum at the version that becomes the oldest readable one.
Readers can do without the former, more slowly. The checkpoint of the oldest version must exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from bk_spark.log.stored.listing import Listing
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.paths import CHECKPOINT_INTERVAL
from bk_spark.log.stored.tree import chunks
from bk_spark.log.stored.values import CommittedLedger, OpenLedger, Page, PageCount, StoredRecord, pages_of
from bk_spark.metadata.store import BadVersionError, MetadataStore, NodeExistsError

PAGES_AT_ONCE = 64
"""Pages of full size: 32 MiB in flight."""
_LAST_LOOKED_AT = 16
"""So many checkpoints in a row may be missing (commits write them on a best effort) before a reader folds from further back."""


class CheckpointGoneError(Exception):
    """A vacuum removed the checkpoint while it was read: a newer one exists."""


@dataclass(frozen=True, slots=True)
class CheckpointState(StoredRecord):
    """The value of a complete checkpoint."""

    version: int
    pages: PageCount
    open_ledgers: tuple[OpenLedger, ...]


class ListingCheckpoints:
    """The checkpoints of the logs in one store."""

    def __init__(self, store: MetadataStore, names: LogNames) -> None:
        self._store = store
        self._names = names

    def newest(self, name: str, uid: str, versions: Sequence[int]) -> CheckpointState | None:
        """The first complete checkpoint among those of ``versions``, which are given newest first."""
        if not versions:
            return None
        paths = self._names.paths(uid)
        found = self._store.get_many([paths.checkpoint(version) for version in versions])
        for version, stored in zip(versions, found, strict=True):
            if stored is not None and stored.value:
                return CheckpointState.decode(f"checkpoint {version} of log '{name}'", stored.value)
        return None

    def listing(self, name: str, uid: str, state: CheckpointState) -> Listing:
        """Raises CheckpointGoneError."""
        paths = self._names.paths(uid)
        ledgers: list[CommittedLedger] = []
        for some in chunks([paths.checkpoint_page(state.version, index) for index in range(state.pages)], PAGES_AT_ONCE):
            for path, stored in zip(some, self._store.get_many(some), strict=True):
                if stored is None:
                    raise CheckpointGoneError(path)
                ledgers += Page.decode(f"a page of checkpoint {state.version} of log '{name}'", stored.value).ledgers
        return Listing(tuple(ledgers), state.open_ledgers)

    def write(self, name: str, uid: str, version: int, listing: Listing) -> None:
        """Write the checkpoint of ``version``, unless it is complete already. On return it is complete."""
        paths = self._names.paths(uid)
        if self.newest(name, uid, [version]) is not None:
            return
        self._store.ensure_path(paths.checkpoint_bucket(version))
        self._create(paths.checkpoint(version), b"")
        pages = pages_of(listing.closed, [])
        for index, page in enumerate(pages):
            self._create(paths.checkpoint_page(version, index), page.encode())
        with suppress(BadVersionError):  # another writer completed it
            self._store.set(paths.checkpoint(version), CheckpointState(version, len(pages), listing.open).encode(), 0)

    def _create(self, path: str, value: bytes) -> None:
        with suppress(NodeExistsError):  # with the same value
            self._store.create(path, value)


def checkpoints_for(version: int, base_version: int, oldest_version: int) -> list[int]:
    """Versions whose checkpoint may help a reader of ``version``, newest first. At or below ``base_version`` none does."""
    last = version - version % CHECKPOINT_INTERVAL
    regular = range(last, last - _LAST_LOOKED_AT * CHECKPOINT_INTERVAL, -CHECKPOINT_INTERVAL)
    return sorted({one for one in (*regular, oldest_version) if base_version < one <= version}, reverse=True)
