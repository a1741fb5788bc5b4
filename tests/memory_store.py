"""A metadata store in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bk_spark.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetValue,
    StoreChange,
    StoreError,
    TransactionFailedError,
    Version,
    Versioned,
    check_sizes,
    name_of,
    parent_of,
)


@dataclass(slots=True)
class _Node:
    value: bytes
    version: int
    modified_ms: int
    owner: MemoryStore | None
    next_sequence: int = 0
    readers: tuple[str, ...] = ()
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
            return Versioned(node.value, node.version, node.modified_ms, len(node.children), node.next_sequence)

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        with self._tree.lock:
            return [self.get(path) if path in self._tree.nodes else None for path in paths]

    def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        make_parents: bool = False,
        readers: Sequence[str] = (),
    ) -> None:
        check_sizes([Create(path, value)])
        with self._tree.lock:
            if make_parents:
                self.ensure_path(parent_of(path))
            self._check_create(path)
            self._add(path, value, self if ephemeral else None)
            self._tree.nodes[path].readers = tuple(readers)
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

    def delete(self, path: str, version: Version = ANY_VERSION) -> None:
        with self._tree.lock:
            self._check_delete(path, version)
            self._remove(path)
        self._notify(path)

    def readers(self, path: str) -> tuple[str, ...]:
        with self._tree.lock:
            return self._tree.nodes[path].readers if path in self._tree.nodes else ()

    def share(self, paths: Sequence[str], readers: Sequence[str]) -> int:
        with self._tree.lock:
            found = [self._tree.nodes[path] for path in paths if path in self._tree.nodes]
            found = [node for node in found if node.readers != tuple(readers)]
            for node in found:
                node.readers = tuple(readers)
            return len(found)

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
            self._tree.nodes[change.path].readers = change.readers
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

    def _check_version(self, path: str, version: Version) -> None:
        if version is not ANY_VERSION and self._node(path).version != version:
            raise BadVersionError(path)
        self._node(path)

    def _check_delete(self, path: str, version: Version) -> None:
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
