"""The metadata store: small values under paths, with versions. The interface, and the store that lives in memory.

Every change is a compare-and-set on a value's version, or a transaction of such changes that happens whole or not at
all. An operation that ends in ``MetadataUnavailableError`` may have happened: whoever made it reads again and
compares, never assumes. Stores are safe to call from several threads.

Paths are laid out in ``znodes.py``. ``zookeeper.py`` is the same interface on ZooKeeper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from bk_spark.errors import ConfigError

MAX_VALUE_BYTES = 512 * 1024
"""The largest value of one path. ZooKeeper's own limit is 1 MiB for a whole request, path and all."""

MAX_TRANSACTION_BYTES = 960 * 1024
"""The largest sum of paths and values in one transaction: ZooKeeper's limit less room for the headers of its operations."""


class StoreError(Exception):
    """A store's explicit refusal: nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NoNodeError(StoreError):
    """There is nothing at the path (or, when creating, its parent is missing)."""


class NodeExistsError(StoreError):
    """There is something at the path already."""


class BadVersionError(StoreError):
    """The value's version is another one: somebody changed it."""


class NotEmptyError(StoreError):
    """The path has children and cannot be deleted."""


class TransactionFailedError(Exception):
    """A transaction was refused as a whole because of operation number ``index``; ``reason`` is what it would have raised."""

    def __init__(self, index: int, reason: StoreError) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value as it stood when it was read."""

    value: bytes
    version: int
    """Rises by one with each change of the value, from 0 at creation."""
    modified_ms: int
    """When it was last changed, by the store's own clock."""
    children: int
    """How many children the path has."""


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class SetValue:
    path: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Refuses the transaction unless the path exists (and, if a version is given, has that version)."""

    path: str
    version: int | None = None


StoreChange = Create | SetValue | Delete | Check


def check_sizes(changes: Sequence[StoreChange]) -> None:
    """Raise ConfigError where a value, or the whole transaction, is above the limits of every store."""
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
    """What bk_spark needs of a metadata store. Paths are absolute, start with '/', and have no trailing '/'."""

    @property
    def uri(self) -> str:
        """Where the store is, for messages."""

    def get(self, path: str) -> Versioned:
        """The value at ``path``. Raises NoNodeError."""

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """The values at all ``paths``, None where there is nothing. Pipelined: costs about one round trip.

        Each is read after those before it, not all at one moment: something may change between two of them.
        """

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False, make_parents: bool = False) -> None:
        """Create ``path``. An ephemeral one goes with this store's session. Raises NodeExistsError, NoNodeError."""

    def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        """Create ``prefix`` + a ten-digit number that no other call on the parent got; gives back the path."""

    def set(self, path: str, value: bytes, version: int) -> int:
        """Replace the value if it still has ``version``; gives back the new version. Raises BadVersionError, NoNodeError."""

    def delete(self, path: str, version: int | None = None) -> None:
        """Delete ``path`` if it has ``version`` (any, if None). Raises NoNodeError, BadVersionError, NotEmptyError."""

    def children(self, path: str) -> list[str]:
        """The names right below ``path``, sorted; raises NoNodeError."""

    def ensure_path(self, path: str) -> None:
        """Create ``path`` and its parents where they are missing, with empty values."""

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        """Do all or none. Raises TransactionFailedError if one was refused."""

    def sync(self, path: str) -> None:
        """Later reads of this session see all that was committed before this call: call it before acting on an absence."""

    def watch_children(self, path: str, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` (from any thread, briefly) when the names below ``path`` change, until the store closes."""

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` (from any thread, briefly) when the value at ``path`` changes, or ``path`` comes or goes.

        Until the store closes or the function that this gives back is called. There may be calls without a change, and one
        call for several changes.
        """

    def close(self) -> None:
        """End the session; its ephemeral paths go."""


@dataclass(slots=True)
class _Node:
    value: bytes
    version: int
    modified_ms: int
    owner: MemoryStore | None
    next_sequence: int = 0
    children: set[str] = field(default_factory=set)
    """The names right below."""


class MemoryTree:
    """The content of an in-memory store, shared by all its sessions. ``clock_ms`` stands in for the server's clock."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self.clock_ms = clock_ms
        self.lock = threading.RLock()
        self.nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0, None)}
        self.watches: list[tuple[MemoryStore, str, Callable[[], None]]] = []
        self.value_watches: list[tuple[MemoryStore, str, Callable[[], None]]] = []


class MemoryStore:
    """One session on a MemoryTree: the metadata store for tests."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree
        self._open = True

    @property
    def uri(self) -> str:
        return "memory://"

    def get(self, path: str) -> Versioned:
        with self._tree.lock:
            node = self._node(path)
            return Versioned(node.value, node.version, node.modified_ms, len(node.children))

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        with self._tree.lock:
            return [self.get(path) if path in self._tree.nodes else None for path in paths]

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False, make_parents: bool = False) -> None:
        check_sizes([Create(path, value)])
        with self._tree.lock:
            if make_parents:
                self.ensure_path(_parent(path))
            self._check_create(path)
            self._add(path, value, self if ephemeral else None)
        self._notify(path)

    def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        check_sizes([Create(prefix, value)])
        with self._tree.lock:
            parent = self._node(_parent(prefix))
            path = f"{prefix}{parent.next_sequence:010d}"
            parent.next_sequence += 1
            self._add(path, value, self if ephemeral else None)
        self._notify(path)
        return path

    def set(self, path: str, value: bytes, version: int) -> int:
        check_sizes([SetValue(path, value, version)])
        with self._tree.lock:
            self._check_version(path, version)
            written = self._write(path, value)
        self._notify(path, names=False)
        return written

    def delete(self, path: str, version: int | None = None) -> None:
        with self._tree.lock:
            self._check_delete(path, version)
            self._remove(path)
        self._notify(path)

    def children(self, path: str) -> list[str]:
        with self._tree.lock:
            return sorted(self._node(path).children)

    def ensure_path(self, path: str) -> None:
        with self._tree.lock:
            if path in self._tree.nodes:
                return
            self.ensure_path(_parent(path))
            self._add(path, b"", None)
        self._notify(path)

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        check_sizes(changes)
        with self._tree.lock:
            before = self._touched(changes)
            for index, change in enumerate(changes):
                try:
                    self._apply(change)
                except StoreError as reason:
                    self._restore(before)
                    raise TransactionFailedError(index, reason) from None
        for change in changes:
            if not isinstance(change, Check):
                self._notify(change.path, names=isinstance(change, (Create, Delete)))

    def sync(self, path: str) -> None:
        """Nothing to do: every session reads the one tree."""

    def watch_children(self, path: str, on_change: Callable[[], None]) -> None:
        with self._tree.lock:
            self._tree.watches.append((self, path, on_change))

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        watch = (self, path, on_change)
        with self._tree.lock:
            self._tree.value_watches.append(watch)

        def end() -> None:
            with self._tree.lock:
                self._tree.value_watches = [one for one in self._tree.value_watches if one is not watch]

        return end

    def close(self) -> None:
        with self._tree.lock:
            self._open = False
            mine = [path for path, node in self._tree.nodes.items() if node.owner is self]
            for path in mine:
                self._remove(path)
            self._tree.watches = [watch for watch in self._tree.watches if watch[0] is not self]
            self._tree.value_watches = [watch for watch in self._tree.value_watches if watch[0] is not self]
        for path in mine:
            self._notify(path)

    def _apply(self, change: StoreChange) -> None:
        if isinstance(change, Create):
            self._check_create(change.path)
            self._add(change.path, change.value, None)
        elif isinstance(change, SetValue):
            self._check_version(change.path, change.version)
            self._write(change.path, change.value)
        elif isinstance(change, Delete):
            self._check_delete(change.path, change.version)
            self._remove(change.path)
        else:
            self._check_version(change.path, change.version)

    def _node(self, path: str) -> _Node:
        node = self._tree.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    def _check_create(self, path: str) -> None:
        if _parent(path) not in self._tree.nodes:
            raise NoNodeError(path)
        if path in self._tree.nodes:
            raise NodeExistsError(path)

    def _check_version(self, path: str, version: int | None) -> None:
        if version is not None and self._node(path).version != version:
            raise BadVersionError(path)
        self._node(path)

    def _check_delete(self, path: str, version: int | None) -> None:
        self._check_version(path, version)
        if self._node(path).children:
            raise NotEmptyError(path)

    def _add(self, path: str, value: bytes, owner: MemoryStore | None) -> None:
        self._tree.nodes[path] = _Node(value, 0, self._tree.clock_ms(), owner)
        self._node(_parent(path)).children.add(_name(path))

    def _remove(self, path: str) -> None:
        del self._tree.nodes[path]
        self._node(_parent(path)).children.discard(_name(path))

    def _touched(self, changes: Sequence[StoreChange]) -> dict[str, _Node | None]:
        """All that the operations can change, as it stands: a transaction costs the same in a large tree."""
        paths = {path for one in changes for path in (one.path, _parent(one.path))}
        found = {path: self._tree.nodes.get(path) for path in paths}
        return {path: node and replace(node, children=set(node.children)) for path, node in found.items()}

    def _restore(self, before: dict[str, _Node | None]) -> None:
        for path, node in before.items():
            if node is None:
                self._tree.nodes.pop(path, None)
            else:
                self._tree.nodes[path] = node

    def _write(self, path: str, value: bytes) -> int:
        node = self._node(path)
        node.value, node.version, node.modified_ms = value, node.version + 1, self._tree.clock_ms()
        return node.version

    def _notify(self, path: str, *, names: bool = True) -> None:
        """Tell those who watch the value at ``path``, and, with ``names``, the names below its parent."""
        told = [watch for watch in list(self._tree.value_watches) if watch[1] == path]
        told += [watch for watch in list(self._tree.watches) if names and watch[1] == _parent(path)]
        for _, _, on_change in told:
            on_change()


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


def _name(path: str) -> str:
    return path.rsplit("/", 1)[1]
