"""Checkpoints: stored listings of some versions, so that reading a log costs the same however old it is.

A checkpoint depends only on the versions up to its own, and those never change. So all its writers write the same; any number
may write at once, and a reader may use any complete one. It is complete once its value, set last, says how many pages it has.

A commit writes a checkpoint at every thousandth version, and a vacuum at the version that becomes the oldest readable one.
Readers can do without the former, more slowly. The checkpoint of the oldest version must exist.

A checkpoint is as long as its log. If each thousandth version of a long log had one, all of them together would grow with the
square of its length: those of 1,000,000 ledgers, which 100,000 commits listed, would have 4 GB. So a commit leaves out those
that would save a reader little (``is_worth``), and the sum is some times the listing, at any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bk_spark.entries.log_secret import decode_secret
from bk_spark.log.stored.listing import Listing
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.paths import CHECKPOINT_INTERVAL, CHECKPOINTS_SPAN
from bk_spark.log.stored.tree import children_of, chunks
from bk_spark.log.stored.values import (
    LEDGERS_PER_PAGE,
    CommittedLedger,
    LogVersion,
    OpenLedger,
    Page,
    PageCount,
    StoredRecord,
    pages_of,
)
from bk_spark.metadata.store import BadVersionError, MetadataStore, NodeExistsError, Versioned, create_for, find, share_as_now

PAGES_AT_ONCE = 64
"""Pages of full size: 32 MiB in flight."""
_LOOKED_AT_ONCE = 16
"""Checkpoints of which a reader takes the newest complete one. The first one is complete, unless its writer died."""
LEDGERS_PER_VERSION = 64
"""Ledgers of a checkpoint that are read in the time of one version with its page."""

GROWN_BY = 8
"""A listing that is longer by one part in so many is worth a checkpoint."""


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

    def newest_up_to(self, name: str, uid: str, version: int, base_version: int, oldest_version: int) -> CheckpointState | None:
        """The newest complete checkpoint that helps a reader of ``version``: at or below ``base_version`` none does.

        Costs nothing before a commit can have written one, and two reads of small values afterwards.
        """
        if version - version % CHECKPOINT_INTERVAL <= base_version:
            return self.newest(name, uid, [oldest_version] if base_version < oldest_version <= version else [])
        there = list(self._there(uid, base_version, version))
        found = (self.newest(name, uid, some) for some in chunks(there, _LOOKED_AT_ONCE))
        return next((state for state in found if state is not None), None)

    def is_due(self, name: str, uid: str, version: LogVersion) -> bool:
        """Whether a reader of ``version`` has enough commits to fold that a checkpoint of it is worth its size."""
        last = self.newest_up_to(name, uid, version.version, version.base_version, 0)
        if last is None:
            return True
        return is_worth(version.version - last.version, version.total.ledgers, last.pages * LEDGERS_PER_PAGE)

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
        """Write the checkpoint of ``version``, unless it is complete already. On return it is complete.

        The log's direct readers may read it, and those that it has by then if they change meanwhile.
        """
        paths = self._names.paths(uid)
        here, secret = self._store.get_many([paths.checkpoint(version), paths.secret])
        if here is not None and here.value:
            return
        readers = _readers(uid, secret)
        bucket = paths.checkpoint_bucket(version)
        self._store.ensure_path(bucket)
        written = [bucket, paths.checkpoint(version)]
        self._create(paths.checkpoint(version), b"", readers)
        pages = pages_of(listing.closed, [])
        for index, page in enumerate(pages):
            self._create(paths.checkpoint_page(version, index), page.encode(), readers)
            written.append(paths.checkpoint_page(version, index))
        if readers:
            self._store.share(written, readers)
        with suppress(BadVersionError):  # another writer completed it
            self._store.set(paths.checkpoint(version), CheckpointState(version, len(pages), listing.open).encode(), 0)
        if secret is not None:
            share_as_now(self._store, written, readers, lambda: _readers(uid, find(self._store, paths.secret)))

    def _there(self, uid: str, above: int, version: int) -> Iterator[int]:
        """The versions above one and up to another that have a checkpoint, complete or not, newest first."""
        paths = self._names.paths(uid)
        for bucket in range(version // CHECKPOINTS_SPAN, above // CHECKPOINTS_SPAN - 1, -1):
            names = children_of(self._store, paths.checkpoint_bucket(bucket * CHECKPOINTS_SPAN))
            yield from (one for one in sorted(map(int, names), reverse=True) if above < one <= version)

    def _create(self, path: str, value: bytes, readers: tuple[str, ...]) -> None:
        with suppress(NodeExistsError):  # with the same value
            create_for(self._store, path, value, readers)


def _readers(uid: str, secret: Versioned | None) -> tuple[str, ...]:
    return () if secret is None else decode_secret(uid, secret.value).readers


def is_worth(folded: int, ledgers: int, before: int) -> bool:
    """Whether a checkpoint of so many ledgers, after one of ``before``, is worth its size: pure.

    A reader folds so many versions without it, which takes as long as to read the listing; or the log has grown so much that
    the sizes of all checkpoints stay a geometric series.
    """
    return folded * LEDGERS_PER_VERSION >= ledgers or ledgers * GROWN_BY >= before * (GROWN_BY + 1)
