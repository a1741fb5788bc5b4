"""The metadata store: small values under paths, with versions. The interface, and a store in memory for tests.

Every change is a compare-and-set on a value's version, or a transaction of such changes that happens as a whole or not at
all. An operation that ends in ``MetadataUnavailableError`` may have happened: the caller reads again and compares, and never
assumes. Stores are safe to call from several threads.

``znodes.py`` has the paths, ``zookeeper.py`` the implementation on ZooKeeper.
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
"""The largest sum of paths and values in one transaction: ZooKeeper's limit minus room for its operations' headers."""


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
    """Refuses the transaction unless the path exists, with this version if one is given."""

    path: str
    version: int | None = None


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

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False, make_parents: bool = False) -> None:
        """Create ``path``. An ephemeral one is deleted with this store's session. Raises NodeExistsError, NoNodeError."""

    def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        """Create ``prefix`` + a ten-digit number that no other call on the parent gets. Returns the path."""

    def set(self, path: str, value: bytes, version: int) -> int:
        """Replace the value if it still has ``version``. Returns the new version. Raises BadVersionError, NoNodeError."""

    def delete(self, path: str, version: int | None = None) -> None:
        """Delete ``path`` if it has ``version`` (any, if None). Raises NoNodeError, BadVersionError, NotEmptyError."""

    def children(self, path: str) -> list[str]:
        """The names directly below ``path``, sorted. Raises NoNodeError."""

    def ensure_path(self, path: str) -> None:
        """Create ``path`` and its parents, if missing, with empty values."""

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        """Make all changes or none. Raises TransactionFailedError if one was refused."""

    def sync(self, path: str) -> None:
        """Let later reads of this session see everything committed before this call. Call it before acting on an absence."""

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


def parent_of(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


def name_of(path: str) -> str:
    """The last element of ``path``."""
    return path.rsplit("/", 1)[1]


@dataclass(slots=True)
class _Node:
    value: bytes
    version: int
    modified_ms: int
    owner: MemoryStore | None
    next_sequence: int = 0
    children: set[str] = field(default_factory=set)
    """The names directly below."""


class MemoryTree:
    """The content of an in-memory store, shared by all its sessions. ``clock_ms`` stands in for the server's clock."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self.clock_ms = clock_ms
        self.lock = threading.RLock()
        self.nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0, None)}
        self.watches: list[tuple[MemoryStore, str, Callable[[], None]]] = []
        self.value_watches: list[tuple[MemoryStore, str, Callable[[], None]]] = []


class MemoryStore:
    """One session on a MemoryTree."""

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
                self.ensure_path(parent_of(path))
            self._check_create(path)
            self._add(path, value, self if ephemeral else None)
        self._notify(path)

    def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        check_sizes([Create(prefix, value)])
        with self._tree.lock:
            parent = self._node(parent_of(prefix))
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
            self.ensure_path(parent_of(path))
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
        if parent_of(path) not in self._tree.nodes:
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
        self._node(parent_of(path)).children.add(name_of(path))

    def _remove(self, path: str) -> None:
        del self._tree.nodes[path]
        self._node(parent_of(path)).children.discard(name_of(path))

    def _touched(self, changes: Sequence[StoreChange]) -> dict[str, _Node | None]:
        """Copies of all nodes that the changes can alter; not of the whole tree, which may be large."""
        paths = {path for change in changes for path in (change.path, parent_of(change.path))}
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
        """Call the watches of the value at ``path``, and, with ``names``, those of the names below its parent."""
        watches = [watch for watch in list(self._tree.value_watches) if watch[1] == path]
        watches += [watch for watch in list(self._tree.watches) if names and watch[1] == parent_of(path)]
        for _, _, on_change in watches:
            on_change()
