"""The metadata store of a duel: one tree, all its last states, and sessions that may see one of them late.

As ZooKeeper does: writes go to the newest state, in one order; a session reads what some server has seen, never less than it
has seen itself; ``sync`` catches up. A call whose connection breaks may have had no effect, may have had it, or may have
it later, whatever the session does meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from bk_spark.errors import MetadataUnavailableError
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
)

_STATES = 30
"""How many writes a server may lag behind."""

State = dict[str, "_Node"]


@dataclass(frozen=True, slots=True)
class _Node:
    value: bytes
    version: int
    modified_ms: int
    children: tuple[str, ...] = ()


class Tree:
    """``number`` counts the writes."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self.number = 0
        self.on_write: Callable[[Sequence[str], State], object] = lambda paths, state: None
        """Is told which paths each write is about, and the state after it."""
        self._states: deque[State] = deque([{"/": _Node(b"", 0, 0)}], maxlen=_STATES)

    @property
    def newest(self) -> State:
        return self._states[-1]

    @property
    def oldest_number(self) -> int:
        return self.number - len(self._states) + 1

    def state(self, number: int) -> State:
        return self._states[number - self.oldest_number]

    def apply(self, changes: Sequence[StoreChange]) -> None:
        """All or none. Raises TransactionFailedError."""
        check_sizes(changes)
        state = dict(self.newest)
        for index, change in enumerate(changes):
            try:
                self._apply(state, change)
            except StoreError as reason:
                raise TransactionFailedError(index, reason) from None
        self.number += 1
        self._states.append(state)
        self.on_write([one.path for one in changes], state)

    def _apply(self, state: State, change: StoreChange) -> None:
        parent, _, name = change.path.rpartition("/")
        parent = parent or "/"
        if isinstance(change, Create):
            if parent not in state:
                raise NoNodeError(change.path)
            if change.path in state:
                raise NodeExistsError(change.path)
            state[parent] = replace(state[parent], children=(*state[parent].children, name))
            state[change.path] = _Node(change.value, 0, self._clock_ms())
            return
        node = _checked(state, change.path, change.version)
        if isinstance(change, SetValue):
            changed = {"value": change.value, "version": node.version + 1, "modified_ms": self._clock_ms()}
            state[change.path] = replace(node, **changed)  # type: ignore[arg-type]
        elif isinstance(change, Delete):
            if node.children:
                raise NotEmptyError(change.path)
            state[parent] = replace(state[parent], children=tuple(one for one in state[parent].children if one != name))
            del state[change.path]
        else:
            assert isinstance(change, Check)


def _checked(state: State, path: str, version: Version) -> _Node:
    node = state.get(path)
    if node is None:
        raise NoNodeError(path)
    if version is not ANY_VERSION and node.version != version:
        raise BadVersionError(path)
    return node


class Fate(Enum):
    """What becomes of a write."""

    ANSWERED = 0
    REPLY_LOST = 1
    REQUEST_LOST = 2
    DELAYED = 3


class Surroundings:
    """What a session is in: whose it is, and what befalls it. A tree alone has none of that."""

    def turn(self, what: str) -> None:
        """Called before every call. May end the process."""

    def fate(self, what: str) -> Fate:
        """Of a write that is about to be sent."""
        return Fate.ANSWERED

    def is_cut_off(self, what: str) -> bool:
        """Whether a read finds no connection."""
        return False

    def lag(self, most: int) -> int:
        """How many writes, up to ``most``, a read does not see."""
        return 0

    def delay(self, changes: Sequence[StoreChange]) -> None:
        """A write is under way for a while, and its client has given up on it."""


class Session:
    """A ``MetadataStore`` for one process."""

    uri = "simulated"

    def __init__(self, tree: Tree, surroundings: Surroundings) -> None:
        self._tree = tree
        self._surroundings = surroundings
        self._seen = tree.number
        """The number of the newest state that this session saw."""

    # --- reads

    def get(self, path: str) -> Versioned:
        return _versioned(_checked(self._read(f"get {path}"), path, ANY_VERSION))

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        state = self._read(f"get {', '.join(paths)}")
        return [_versioned(state[path]) if path in state else None for path in paths]

    def children(self, path: str) -> list[str]:
        return sorted(_checked(self._read(f"children of {path}"), path, ANY_VERSION).children)

    def sync(self, path: str) -> None:
        self._surroundings.turn("sync")
        if self._surroundings.is_cut_off("sync"):
            raise MetadataUnavailableError(self.uri, "cut off")
        self._seen = self._tree.number

    def _read(self, what: str) -> State:
        self._surroundings.turn(what)
        if self._surroundings.is_cut_off(what):
            raise MetadataUnavailableError(self.uri, "cut off")
        oldest = max(self._seen, self._tree.oldest_number)
        self._seen = self._tree.number - self._surroundings.lag(self._tree.number - oldest)
        return self._tree.state(self._seen)

    # --- writes

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False, make_parents: bool = False) -> None:
        if make_parents:
            self.ensure_path(path.rpartition("/")[0] or "/")
        self._write_one(Create(path, value))

    def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        raise NotImplementedError("ids come from the simulation")

    def set(self, path: str, value: bytes, version: int) -> int:
        self._write_one(SetValue(path, value, version))
        return version + 1

    def delete(self, path: str, version: Version = ANY_VERSION) -> None:
        self._write_one(Delete(path, version))

    def ensure_path(self, path: str) -> None:
        """One write: nothing depends on what lies between its steps."""
        missing = []
        while path not in self._tree.newest:
            missing.append(Create(path))
            path = path.rpartition("/")[0] or "/"
        if missing:
            self._surroundings.turn(f"ensure {path}")
            left = [one for one in reversed(missing) if one.path not in self._tree.newest]
            self._tree.apply(left)
        self._seen = self._tree.number

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        what = _described(changes)
        self._surroundings.turn(what)
        fate = self._surroundings.fate(what)
        if fate is Fate.DELAYED:
            self._surroundings.delay(changes)
        if fate in (Fate.DELAYED, Fate.REQUEST_LOST):
            raise MetadataUnavailableError(self.uri, "the connection broke")
        try:
            self._tree.apply(changes)
        except TransactionFailedError as failure:
            if fate is Fate.REPLY_LOST:
                raise MetadataUnavailableError(self.uri, "the connection broke") from failure
            self._seen = self._tree.number
            raise
        if fate is Fate.REPLY_LOST:
            raise MetadataUnavailableError(self.uri, "the connection broke")
        self._seen = self._tree.number

    def _write_one(self, change: StoreChange) -> None:
        try:
            self.transaction([change])
        except TransactionFailedError as failure:
            raise failure.reason from None

    # --- what no process of a duel needs

    def watch_children(self, path: str, on_change: Callable[[], None]) -> None:
        raise NotImplementedError

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing: no path of a session goes with it."""


def _versioned(node: _Node) -> Versioned:
    return Versioned(node.value, node.version, node.modified_ms, len(node.children), 0)


def _described(changes: Sequence[StoreChange]) -> str:
    return ", ".join(f"{type(one).__name__.lower()} {one.path.removeprefix('/ledgers/bk_spark/logs/data/')}" for one in changes)
