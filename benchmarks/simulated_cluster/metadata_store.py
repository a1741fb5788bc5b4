"""ZooKeeper in memory: the shipped code reads and writes it at once, and is told afterwards how long that took.

The znodes of ledgers are rows of the ``LedgerTable``; all others are as in ZooKeeper. The requests of one call take effect
together, at its beginning. A call waits for what the server has to do before it, then for its own requests, one round trip
each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.simulated_cluster.costs import Costs
from benchmarks.simulated_cluster.ledger_table import LedgerTable
from benchmarks.simulated_cluster.resources import Resource
from benchmarks.simulated_cluster.virtual_loop import VirtualLoop
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
    name_of,
    parent_of,
)
from bk_spark.metadata.znodes import Znodes

ZNODES = Znodes("/ledgers")


@dataclass(slots=True)
class _Node:
    value: bytes
    version: int = 0
    modified_ms: int = 0
    children: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Asked:
    """What one call asked of the server, and of the client's own core."""

    requests: int = 0
    server_s: float = 0.0
    cpu_s: float = 0.0


class ZooKeeper:
    """The server. Its one queue serves reads and writes; ``per_second`` counts requests."""

    def __init__(self, loop: VirtualLoop, costs: Costs, table: LedgerTable, queue: Resource) -> None:
        self.loop = loop
        self.costs = costs
        self.table = table
        self.queue = queue
        self.requests: Counter[str] = Counter()
        self.per_second: Counter[int] = Counter()
        self.nodes: dict[str, _Node] = {"/": _Node(b"")}
        self.watches: dict[str, list[Callable[[], None]]] = {}

    def ledger_of(self, path: str) -> int | None:
        """The ledger whose znode a path is."""
        digits = path[len(ZNODES.root) + 1 :].replace("/", "").replace("L", "", 1)
        return int(digits) if len(digits) == 10 and digits.isdigit() else None

    def notify(self, path: str) -> None:
        for on_change in self.watches.get(path, ()):
            self.loop.call_later(self.costs.watch_s, on_change)


class Session:
    """One client's session: a MetadataStore that counts what it is asked in ``asked``."""

    uri = "zk://simulated/ledgers"

    def __init__(self, server: ZooKeeper) -> None:
        self._server = server
        self._costs = server.costs
        self.asked = Asked()

    def taken(self) -> float:
        """Ends a call: takes what it asked from the server, and returns how long its answers took. The CPU is the caller's."""
        asked, server = self.asked, self._server
        now_s = server.loop.time()
        answered_s = server.queue.take(asked.server_s, now_s)
        server.per_second[int(now_s)] += asked.requests
        return answered_s - now_s + asked.requests * self._costs.zookeeper_round_trip_s

    def _ask(self, kind: str, server_s: float, parts: int = 0, names: int = 0) -> None:
        costs = self._costs
        server_s += parts * costs.zookeeper_part_s + names * costs.zookeeper_name_s
        self.charge(kind, server_s, costs.request_cpu_s + parts * costs.value_cpu_s + names * costs.name_cpu_s)

    def charge(self, kind: str, server_s: float, cpu_s: float) -> None:
        """A request whose content nobody wants."""
        self.asked.requests += 1
        self.asked.server_s += server_s
        self.asked.cpu_s += cpu_s
        self._server.requests[kind] += 1

    # --- reads

    def get(self, path: str) -> Versioned:
        self._ask("get", self._costs.zookeeper_read_s)
        return self._read(path)

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        self._ask("get_many", self._costs.zookeeper_read_s, len(paths) - 1)
        found: list[Versioned | None] = []
        for path in paths:
            try:
                found.append(self._read(path))
            except NoNodeError:
                found.append(None)
        return found

    def children(self, path: str) -> list[str]:
        names = sorted(self._node(path).children)
        self._ask("children", self._costs.zookeeper_read_s, names=len(names))
        return names

    def sync(self, path: str) -> None:
        self._ask("sync", self._costs.zookeeper_read_s)

    # --- changes

    def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        make_parents: bool = False,
        readers: Sequence[str] = (),
    ) -> None:
        if make_parents:
            self._ensure(parent_of(path))
        self._change([Create(path, value, tuple(readers))])

    def readers(self, path: str) -> tuple[str, ...]:
        return ()

    def share(self, paths: Sequence[str], readers: Sequence[str]) -> int:
        raise NotImplementedError("the logs of the simulation have no direct readers")

    def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        raise NotImplementedError("nobody in the simulation needs one")

    def set(self, path: str, value: bytes, version: int) -> int:
        self._change([SetValue(path, value, version)])
        return version + 1

    def delete(self, path: str, version: Version) -> None:
        self._change([Delete(path, version)])

    def ensure_path(self, path: str) -> None:
        self._ask("ensure", self._costs.zookeeper_read_s)
        self._ensure(path)

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        self._ask("transaction", self._costs.zookeeper_write_s, len(changes) - 1)
        undo: list[Callable[[], None]] = []
        for index, change in enumerate(changes):
            try:
                undo.append(self._apply(change))
            except StoreError as reason:
                for back in reversed(undo):
                    back()
                raise TransactionFailedError(index, reason) from None
        for change in changes:
            if isinstance(change, SetValue):
                self._server.notify(change.path)

    def watch_children(self, path: str, on_change: Callable[[], None]) -> None:
        raise NotImplementedError("registrations are told by the simulation")

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        self._server.watches.setdefault(path, []).append(on_change)
        return lambda: self._server.watches[path].remove(on_change)

    def close(self) -> None:
        """The session lasts as long as the simulation."""

    # --- what lies behind

    def _change(self, changes: Sequence[StoreChange]) -> None:
        self._ask(type(changes[0]).__name__.lower(), self._costs.zookeeper_write_s)
        for change in changes:
            self._apply(change)
            if isinstance(change, SetValue):
                self._server.notify(change.path)

    def _node(self, path: str) -> _Node:
        node = self._server.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    def _read(self, path: str) -> Versioned:
        ledger_id = self._server.ledger_of(path)
        table = self._server.table
        if ledger_id is None:
            node = self._node(path)
            return Versioned(node.value, node.version, node.modified_ms, len(node.children), 0)
        if ledger_id >= len(table):
            raise NoNodeError(path)
        return Versioned(table.metadata(ledger_id).encode(), table.version(ledger_id), 0, 0, 0)

    def _ensure(self, path: str) -> None:
        missing = []
        while path not in self._server.nodes:
            missing.append(path)
            path = parent_of(path)
        for one in reversed(missing):
            self._change([Create(one)])

    def _apply(self, change: StoreChange) -> Callable[[], None]:
        """Make one change, and return what takes it back."""
        if isinstance(change, Create):
            return self._create(change)
        ledger_id = self._server.ledger_of(change.path)
        if isinstance(change, SetValue) and ledger_id is not None:
            return self._write_ledger(ledger_id, change)
        node = self._node(change.path)
        if change.version is not ANY_VERSION and change.version != node.version:
            raise BadVersionError(change.path)
        if isinstance(change, Check):
            return lambda: None
        if isinstance(change, Delete):
            return self._delete(change.path, node)
        return self._set(node, change)

    def _create(self, change: Create) -> Callable[[], None]:
        nodes, path = self._server.nodes, change.path
        parent = self._node(parent_of(path))
        if path in nodes:
            raise NodeExistsError(path)
        nodes[path] = _Node(change.value, modified_ms=self._server.loop.now_ms)
        parent.children.add(name_of(path))

        def back() -> None:
            del nodes[path]
            parent.children.discard(name_of(path))

        return back

    def _delete(self, path: str, node: _Node) -> Callable[[], None]:
        if node.children:
            raise NotEmptyError(path)
        nodes, parent = self._server.nodes, self._node(parent_of(path))
        del nodes[path]
        parent.children.discard(name_of(path))

        def back() -> None:
            nodes[path] = node
            parent.children.add(name_of(path))

        return back

    def _set(self, node: _Node, change: SetValue) -> Callable[[], None]:
        before = node.value, node.version, node.modified_ms
        node.value, node.version, node.modified_ms = change.value, node.version + 1, self._server.loop.now_ms

        def back() -> None:
            node.value, node.version, node.modified_ms = before

        return back

    def _write_ledger(self, ledger_id: int, change: SetValue) -> Callable[[], None]:
        table = self._server.table
        if table.version(ledger_id) != change.version:
            raise BadVersionError(change.path)
        table.write(ledger_id, change.value)

        def back() -> None:
            raise AssertionError("what changes a ledger is the last change of its transaction")

        return back
