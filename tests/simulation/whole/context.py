"""A client's context in a simulated run: the shipped one, with the run's event loop, metadata store and channels.

A call to the metadata store, which a thread of the shipped context makes, is carried to the run's store as one message and made
there, in one piece. Its answer may be lost like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bk_spark.client.driver import client_context
from bk_spark.client.driver.client_context import AVOID_S, ClientContext
from bk_spark.config import ClientConfig
from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata import registration
from bk_spark.metadata.store import (
    BadVersionError,
    Check,
    NoNodeError,
    SetValue,
    StoreChange,
    StoreError,
    TransactionFailedError,
    Versioned,
    name_of,
)
from bk_spark.metadata.znodes import Znodes
from tests.simulation.whole.loop import SimulatedLoop
from tests.simulation.whole.network import SimulatedChannels, address_of, looked_up_address
from tests.simulation.world.client_process import ClientProcess
from tests.simulation.world.messages import METADATA, BlockingCall, Broken, CallMade, SetMetadata
from tests.simulation.world.metadata_store import SimulatedMetadataStore

ZNODES = Znodes("/ledgers")

NOTICED_MS = (1, 20, 400)
"""How long after a bookie came or went a client is told."""


class SimulatedContext(ClientContext):
    """Its clock for deadlines is that of the process, which does not count the time in which it is stopped."""

    def __init__(self, process: ClientProcess, config: ClientConfig) -> None:
        self.process = process
        self.simulated_loop = loop = SimulatedLoop(process)
        self.session = _Session(process)
        loop.after_turn = self.session.look
        made = {
            "EventLoop": SimpleNamespace(get=lambda: loop),
            "ThreadPoolExecutor": lambda *_, **__: self.session,
            "UnderReplication": lambda *_: _Marks(process),
            "Channels": SimulatedChannels,
        }
        with patch.multiple(client_context, **made):
            super().__init__(_StoreView(process, self.session), ZNODES, config)  # type: ignore[arg-type]

    def now_ms(self) -> int:
        return self.process.now_ms

    def _beat(self) -> None:
        """A clock that never takes idleness for a stall needs none."""

    def choose(self, count: int) -> int:
        return self.process.world.choices.choose(count, "placement")

    def avoided(self) -> frozenset[str]:
        return frozenset(one for one, until_s in self._avoided_until_s.items() if until_s > self.loop.time())

    def avoid(self, bookie_id: str) -> None:
        self._avoided_until_s[bookie_id] = self.loop.time() + AVOID_S


class _Session:
    """A client's session with the metadata store: in place of the threads that make its calls, and of its watches."""

    def __init__(self, process: ClientProcess) -> None:
        self.may_have_failed_marks = False
        """Whether any call was not answered: perhaps it was one that marks the ledger."""
        self.leaving: frozenset[str] = frozenset()
        """The bookies that a re-replication may replace."""
        self._process = process
        self._watches: list[Callable[[], None]] = []
        self._seen: object = None
        self._is_shut = False

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()

        def answered(answer: object) -> None:
            if isinstance(answer, Broken):
                self.may_have_failed_marks = True
                future.set_exception(MetadataUnavailableError("simulated", answer.detail))
                return
            assert isinstance(answer, CallMade)
            if answer.error is not None:
                future.set_exception(answer.error)
            else:
                future.set_result(answer.value)

        future.set_running_or_notify_cancel()
        self._process.call(METADATA, BlockingCall(call), answered)
        return future

    def shutdown(self) -> None:
        self._is_shut = True

    def watch(self, on_change: Callable[[], None]) -> None:
        self._watches.append(on_change)
        self._seen = self._registrations()

    def look(self) -> None:
        """The registrations may have changed: then the watches are told, later."""
        if not self._watches or (seen := self._registrations()) == self._seen:
            return
        self._seen = seen
        delay_ms = self._process.world.choices.pick(NOTICED_MS, "a change is noticed after")
        for watch in self._watches:
            self._process.later(delay_ms, watch)

    def _registrations(self) -> object:
        world = self._process.world
        return world.available(), sorted(world.read_only)


class _StoreView:
    """The store as one client's session sees it, at the moment at which a call is made there."""

    uri = "simulated"

    def __init__(self, process: ClientProcess, session: _Session) -> None:
        store = process.world.actors[METADATA]
        assert isinstance(store, SimulatedMetadataStore)
        self._process = process
        self._session = session
        self._store = store

    def sync(self, path: str) -> None:
        self._process.seen_version = self._store.newest

    def get(self, path: str) -> Versioned:
        if self._store.is_deleted:
            raise NoNodeError(path)
        value, version = self._store.seen_by(self._process.seen_version)
        self._process.seen_version = max(self._process.seen_version, version)
        return Versioned(value, version, 0, 0, 0)

    def get_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        if all(path.startswith(ZNODES.available) for path in paths):
            is_lookup = len({name_of(path) for path in paths}) == 1
            return [self._registration(path, is_lookup=is_lookup) for path in paths]
        return [None if self._store.is_deleted else self.get(path) for path in paths]

    def children(self, path: str) -> list[str]:
        """Of the bookies that are registered, in one of two modes."""
        world, is_read_only = self._process.world, path == ZNODES.read_only
        found = [one for one in world.available() if (one in world.read_only) == is_read_only]
        return found if is_read_only else [*found, name_of(ZNODES.read_only)]

    def watch_children(self, path: str, on_change: Callable[[], None]) -> None:
        self._session.watch(on_change)

    def set(self, path: str, value: bytes, version: int) -> int:
        return self._set(path, value, version)

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        """A write with a guard, as re-replication makes it."""
        guard, write = changes
        assert isinstance(guard, Check)
        assert isinstance(write, SetValue)
        if guard.path not in self._store.lock.guards:
            raise TransactionFailedError(0, NoNodeError(guard.path))
        try:
            self._set(write.path, write.value, write.version, self._session.leaving)
        except StoreError as refused:
            raise TransactionFailedError(1, refused) from refused

    def _set(self, path: str, value: bytes, version: int, leaving: frozenset[str] | None = None) -> int:
        if self._store.is_deleted:
            raise NoNodeError(path)
        request = SetMetadata(self._store.ledger_id, value, version, "its change", leaving=leaving)
        written = self._store.set(self._process.name, request)
        self._process.seen_version = self._store.newest
        if written is None:
            raise BadVersionError(path)
        return written

    def _registration(self, path: str, *, is_lookup: bool) -> Versioned | None:
        bookie_id, world = name_of(path), self._process.world
        is_read_only = path == ZNODES.registration(bookie_id, read_only=True)
        if bookie_id not in world.available() or (bookie_id in world.read_only) != is_read_only:
            return None
        address = looked_up_address(world, bookie_id) if is_lookup else address_of(world, bookie_id)
        return Versioned(registration._encode(address), 0, 0, 0, 0)


class _Marks:
    """In place of UnderReplication."""

    def __init__(self, process: ClientProcess) -> None:
        self._world = process.world

    def mark(self, ledger_id: int, bookies: Iterable[str]) -> None:
        self._world.count("marks")
        self._world.invariants.history.marked.update(bookies)
