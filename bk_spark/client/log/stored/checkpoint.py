"""Checkpoints: whole listings at some versions, so that reading a log costs the same whatever its age.

A checkpoint is a function of the versions up to its own, which never change: whoever writes it writes the same, any number
of writers at once do no harm, and a reader may use any that is whole. It is whole once its value says how many pages it
has; the value is set last. One is written at every thousandth version, by the commit that makes it, and at the version
that becomes the oldest readable one. A missing one costs readers time; that of the oldest version must be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bk_spark.client.log.stored.json_values import decode, encode, integer
from bk_spark.client.log.stored.listing import Listing
from bk_spark.client.log.stored.names import LogNames
from bk_spark.client.log.stored.paths import CHECKPOINT_INTERVAL, LogPaths
from bk_spark.client.log.stored.tree import chunks
from bk_spark.client.log.stored.values import MAX_PAGES, OpenLedger, Page, open_in, open_out, pages_of
from bk_spark.metadata.store import BadVersionError, MetadataStore, NodeExistsError

PAGES_AT_ONCE = 64
"""Pages of full size: 32 MiB in flight."""
_LAST_LOOKED_AT = 16
"""So many checkpoints in a row may be missing, as each is written on a best effort, before a reader folds from afar."""


class CheckpointGoneError(Exception):
    """A vacuum removed the checkpoint while it was read: a newer one is there."""


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The value of a checkpoint whose pages are whole."""

    version: int
    pages: int
    open_ledgers: tuple[OpenLedger, ...]

    def encode(self) -> bytes:
        return encode(version=self.version, pages=self.pages, open=open_out(self.open_ledgers))

    @staticmethod
    def decode(what: str, value: bytes) -> CheckpointState:
        return decode(what, value, _state_in)


def _state_in(record: dict[str, Any]) -> CheckpointState:
    return CheckpointState(integer(record["version"]), integer(record["pages"], 0, MAX_PAGES), open_in(record["open"]))


class ListingCheckpoints:
    """The checkpoints of the logs in one store."""

    def __init__(self, store: MetadataStore, names: LogNames) -> None:
        self._store = store
        self._names = names

    def newest(self, name: str, uid: str, versions: Sequence[int]) -> CheckpointState | None:
        """The first whole one of ``versions``, which are given newest first."""
        if not versions:
            return None
        paths = self._names.paths(uid)
        found = self._store.get_many([paths.checkpoint(one) for one in versions])
        for version, stored in zip(versions, found, strict=True):
            if stored is not None and stored.value:
                return CheckpointState.decode(f"checkpoint {version} of log '{name}'", stored.value)
        return None

    def listing(self, name: str, uid: str, state: CheckpointState) -> Listing:
        """Raises CheckpointGoneError."""
        pages = self._pages(name, self._names.paths(uid), state)
        return Listing(tuple(ledger for page in pages for ledger in page.ledgers), state.open_ledgers)

    def write(self, name: str, uid: str, version: int, listing: Listing) -> None:
        """Write the checkpoint of ``version``, unless it is whole already. Once this returns it is."""
        paths = self._names.paths(uid)
        if self.newest(name, uid, [version]) is not None:
            return
        self._store.ensure_path(paths.checkpoint_bucket(version))
        self._make(paths.checkpoint(version), b"")
        pages = pages_of(listing.closed, [])
        for index, page in enumerate(pages):
            self._make(paths.checkpoint_page(version, index), page.encode())
        try:
            self._store.set(paths.checkpoint(version), CheckpointState(version, len(pages), listing.open).encode(), 0)
        except BadVersionError:
            return  # another writer finished it

    def _make(self, path: str, value: bytes) -> None:
        try:
            self._store.create(path, value)
        except NodeExistsError:
            return  # with the same value

    def _pages(self, name: str, paths: LogPaths, state: CheckpointState) -> Iterator[Page]:
        wanted = [paths.checkpoint_page(state.version, index) for index in range(state.pages)]
        for some in chunks(wanted, PAGES_AT_ONCE):
            for path, stored in zip(some, self._store.get_many(some), strict=True):
                if stored is None:
                    raise CheckpointGoneError(path)
                yield Page.decode(f"a page of checkpoint {state.version} of log '{name}'", stored.value)


def checkpoints_for(version: int, base_version: int, oldest_version: int) -> list[int]:
    """Where a checkpoint for a reader of ``version`` may be, newest first. At or below ``base_version`` none is needed."""
    last = version - version % CHECKPOINT_INTERVAL
    regular = range(last, last - _LAST_LOOKED_AT * CHECKPOINT_INTERVAL, -CHECKPOINT_INTERVAL)
    return sorted({one for one in (*regular, oldest_version) if base_version < one <= version}, reverse=True)
