"""The interface of the metadata store: small values under paths, with versions.

Every change is a compare-and-set on a value's version, unless it says ``ANY_VERSION``, or a transaction of such changes that
happens as a whole or not at all. An operation that ends in ``MetadataUnavailableError`` may have happened: the caller reads
again and compares, and never assumes. Stores are safe to call from several threads.

``znodes.py`` has the paths, ``zookeeper.py`` the implementation on ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from bk_spark.errors import ConfigError, MetadataConflictError

MAX_VALUE_BYTES = 512 * 1024
"""The largest value of one path. ZooKeeper's own limit is 1 MiB for a whole request, path and all."""

MAX_TRANSACTION_BYTES = 960 * 1024
"""The largest sum of paths and values in one transaction: ZooKeeper's limit minus room for its operations' headers."""


class AnyVersion(Enum):
    """The type of ``ANY_VERSION``."""

    ANY_VERSION = "any version"


ANY_VERSION: Final = AnyVersion.ANY_VERSION
"""In the place of a version: change or check whatever is there. A decision on a value that was read must not end in this, for
the value may be another one by then. ``tests/unit/check_then_act`` lists each use with its reason."""

_SHARE_TRIES = 100
"""Each further try means that a member gave the command that changes a log's readers once more meanwhile."""

Version = int | AnyVersion


class StoreError(Exception):
    """A store's explicit refusal: nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NoNodeError(StoreError):
    """The path does not exist (or, when creating, its parent)."""


class NodeExistsError(StoreError):
    """The path exists already."""


class BadVersionError(StoreError):
    """The value has another version: somebody changed it."""


class NotEmptyError(StoreError):
    """The path has children and cannot be deleted."""


class TransactionFailedError(Exception):
    """A whole transaction was refused because of change number ``index``; ``reason`` is the error of that change alone."""

    def __init__(self, index: int, reason: StoreError) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value as it was read."""

    value: bytes
    version: int
    """0 at creation, one more with each change of the value."""
    modified_ms: int
    """When it was last changed, by the store's own clock."""
    children: int
    """The number of the path's children."""
    next_sequence: int
    """The number that the path's next sequential child gets. It was read, not reserved: another session may take it."""


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    value: bytes = b""
    readers: tuple[str, ...] = ()
    """Identities that may read it beside the cluster's members."""


@dataclass(frozen=True, slots=True)
class SetValue:
    path: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: Version


@dataclass(frozen=True, slots=True)
class Check:
    """Refuses the transaction unless the path exists with this version; with ``ANY_VERSION``, unless it exists."""

    path: str
    version: Version


StoreChange = Create | SetValue | Delete | Check


def check_sizes(changes: Sequence[StoreChange]) -> None:
    """Raise ConfigError if a value or the whole transaction is above the limits of all stores."""
    total_bytes = 0
    for change in changes:
        value_bytes = len(change.value) if isinstance(change, (Create, SetValue)) else 0
        if value_bytes > MAX_VALUE_BYTES:
            raise ConfigError(f"the size in bytes of the value at {change.path}", value_bytes, f"at most {MAX_VALUE_BYTES}")
        total_bytes += len(change.path) + value_bytes
    if total_bytes > MAX_TRANSACTION_BYTES:
        what = f"the size in bytes of a metadata transaction of {len(changes)} operations"
        raise ConfigError(what, total_bytes, f"at most {MAX_TRANSACTION_BYTES}: split it")


class MetadataStore(Protocol):
    """The interface of a metadata store. Paths start with '/' and have no trailing '/'."""

    @property
    def uri(self) -> str:
        """The store's address, for messages."""

    def get(self, path: str) -> Versioned:
        """The value at ``path``. Raises NoNodeError."""

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """The values at all ``paths``, None for missing ones. Pipelined: it costs about one round trip.

        The reads happen one after the other, not at one moment: values may change between two of them.
        """

    def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        make_parents: bool = False,
        readers: Sequence[str] = (),
    ) -> None:
        """Create ``path``. An ephemeral one is deleted with this store's session. Raises NodeExistsError, NoNodeError.

        ``readers`` may read it beside the cluster's members.
        """

    def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        """Create ``prefix`` + a ten-digit number that no other call on the parent gets. Returns the path."""

    def set(self, path: str, value: bytes, version: int) -> int:
        """Replace the value if it still has ``version``. Returns the new version. Raises BadVersionError, NoNodeError."""

    def delete(self, path: str, version: Version) -> None:
        """Delete ``path`` if it has ``version``. Raises NoNodeError, BadVersionError, NotEmptyError."""

    def children(self, path: str) -> list[str]:
        """The names directly below ``path``, sorted. Raises NoNodeError."""

    def ensure_path(self, path: str) -> None:
        """Create ``path`` and its parents, if missing, with empty values."""

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        """Make all changes or none. Raises TransactionFailedError if one was refused."""

    def sync(self, path: str) -> None:
        """Let later reads of this session see everything committed before this call. Call it before acting on an absence."""

    def readers(self, path: str) -> tuple[str, ...]:
        """The identities that may read ``path`` and are no members of the cluster; none if it does not exist."""

    def share(self, paths: Sequence[str], readers: Sequence[str]) -> int:
        """Let ``readers`` and no others read the paths beside the cluster's members. Returns of how many that was not so."""

    def watch_children(self, path: str, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` (from any thread, briefly) when the names below ``path`` change, until the store closes."""

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` (from any thread, briefly) when ``path`` is created, changed or deleted.

        The watch ends when the store closes or the returned function is called. There may be calls without a change, and one
        call for several changes.
        """

    def close(self) -> None:
        """End the session and delete its ephemeral paths."""


def find(store: MetadataStore, path: str) -> Versioned | None:
    """The value at ``path``; None if it does not exist."""
    return store.get_many([path])[0]


def find_children(store: MetadataStore, path: str) -> list[str]:
    """The names directly below ``path``, sorted; none if it does not exist."""
    try:
        return store.children(path)
    except NoNodeError:
        return []


def create_for(store: MetadataStore, path: str, value: bytes, readers: tuple[str, ...]) -> None:
    """Create ``path`` for the cluster's members and ``readers``. Raises NodeExistsError, NoNodeError."""
    if not readers:
        return store.create(path, value)
    try:
        return store.transaction([Create(path, value, readers)])
    except TransactionFailedError as failure:
        raise failure.reason from None


def share_as_now(
    store: MetadataStore, paths: Sequence[str], given: tuple[str, ...], now: Callable[[], tuple[str, ...]]
) -> None:
    """Share what was made for the readers ``given`` with those of ``now``, until nobody has changed them meanwhile.

    Call it once ``paths`` are there: whoever changes the readers later finds them. Raises MetadataConflictError.
    """
    for _ in range(_SHARE_TRIES):
        if (found := now()) == given:
            return
        store.share(paths, found)
        given = found
    raise MetadataConflictError(f"the readers of {paths[0]}", f"somebody changed them {_SHARE_TRIES} times: try again")


def parent_of(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


def name_of(path: str) -> str:
    """The last element of ``path``."""
    return path.rsplit("/", 1)[1]
