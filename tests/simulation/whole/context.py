"""A client's context in a simulated run: shipped but for its threads, clocks and the metadata store behind them.

A call to the metadata store, which a thread of the shipped context makes, is carried to the run's store as one message and made
there, in one piece. Its answer may be lost like any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from bk_spark.client.driver.bookies import Bookies
from bk_spark.client.driver.client_context import AVOID_S, ClientContext, EnsembleChoice
from bk_spark.config import ClientConfig
from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.registration import BookieAddress, RegisteredBookie
from bk_spark.metadata.store import (
    BadVersionError,
    Check,
    NoNodeError,
    SetValue,
    StoreChange,
    StoreError,
    TransactionFailedError,
    Versioned,
)
from bk_spark.metadata.znodes import Znodes
from tests.simulation.whole.loop import SimulatedLoop, answer_to
from tests.simulation.whole.network import SimulatedChannels, address_of
from tests.simulation.world.client_process import ClientProcess
from tests.simulation.world.messages import METADATA, BlockingCall, Broken, CallMade, SetMetadata
from tests.simulation.world.metadata_store import SimulatedMetadataStore

ZNODES = Znodes("/ledgers")

WRONG_PERCENT = 4
"""Of look-ups that find the address of a bookie that is gone, and another one there."""

_Result = TypeVar("_Result")


class SimulatedContext(ClientContext):
    """The shipped one starts threads, so nothing of its constructor is used."""

    def __init__(self, process: ClientProcess, config: ClientConfig) -> None:
        store = process.world.actors[METADATA]
        assert isinstance(store, SimulatedMetadataStore)
        self._process = process
        self.store: Any = _StoreView(process, store)
        self.znodes = ZNODES
        self.config = config
        self.marks = _Marks(process)  # type: ignore[assignment]
        self.loop = SimulatedLoop(process)
        self.appends_stand_in_line = False
        self.bookies = Bookies(self._lookup, SimulatedChannels())
        self._closed = False
        self._random = random.Random(0)
        self._ensembles = EnsembleChoice(config, self.choose)
        self._avoided_until_s = {}
        self.may_have_failed_marks = False
        """Whether any call was not answered: perhaps it was one that marks the ledger."""

    def now_ms(self) -> int:
        return self._process.now_ms

    def choose(self, count: int) -> int:
        return self._process.world.choices.choose(count, "placement")

    async def registered(self) -> list[RegisteredBookie]:
        return await self._list_bookies()

    def avoided(self) -> frozenset[str]:
        return frozenset(one for one, until_s in self._avoided_until_s.items() if until_s > self.loop.time())

    def avoid(self, bookie_id: str) -> None:
        self._avoided_until_s[bookie_id] = self.loop.time() + AVOID_S

    async def blocking(self, call: Callable[[], _Result]) -> _Result:
        answer = await answer_to(METADATA, BlockingCall(call))
        if isinstance(answer, Broken):
            self.may_have_failed_marks = True
            raise MetadataUnavailableError("simulated", answer.detail)
        assert isinstance(answer, CallMade)
        result: _Result = answer.result()
        return result

    async def _list_bookies(self) -> list[RegisteredBookie]:
        return await self.blocking(self._registered_now)

    def _registered_now(self) -> list[RegisteredBookie]:
        world = self._process.world
        return [RegisteredBookie(one, address_of(one), one in world.read_only) for one in world.available()]

    async def _lookup(self, bookie_id: str) -> BookieAddress | None:
        return await self.blocking(lambda: self._registered_address(bookie_id))

    def _registered_address(self, bookie_id: str) -> BookieAddress | None:
        """A registration outlives its bookie: sometimes another one has its port by then."""
        world = self._process.world
        available = world.available()
        if bookie_id not in available:
            return None
        if not world.is_calm and world.choices.chance(WRONG_PERCENT, "another bookie is there"):
            world.count("bookies at others' addresses")
            return address_of(bookie_id, world.choices.pick(available, "which"))
        return address_of(bookie_id)


class _StoreView:
    """The store as one client's session sees it, at the moment at which a call is made there."""

    def __init__(self, process: ClientProcess, store: SimulatedMetadataStore) -> None:
        self.leaving: frozenset[str] = frozenset()
        """The bookies that a re-replication may replace."""
        self._process = process
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
        return [None if self._store.is_deleted else self.get(path) for path in paths]

    def set(self, path: str, value: bytes, version: int, leaving: frozenset[str] | None = None) -> int:
        if self._store.is_deleted:
            raise NoNodeError(path)
        request = SetMetadata(self._store.ledger_id, value, version, "its change", leaving=leaving)
        written = self._store.set(self._process.name, request)
        self._process.seen_version = self._store.newest
        if written is None:
            raise BadVersionError(path)
        return written

    def transaction(self, changes: Sequence[StoreChange]) -> None:
        """A write with a guard, as re-replication makes it."""
        guard, write = changes
        assert isinstance(guard, Check)
        assert isinstance(write, SetValue)
        if guard.path not in self._store.lock.guards:
            raise TransactionFailedError(0, NoNodeError(guard.path))
        try:
            self.set(write.path, write.value, write.version, self.leaving)
        except StoreError as refused:
            raise TransactionFailedError(1, refused) from refused


class _Marks:
    """In place of UnderReplication."""

    def __init__(self, process: ClientProcess) -> None:
        self._world = process.world

    def mark(self, ledger_id: int, bookies: Iterable[str]) -> None:
        self._world.count("marks")
        self._world.invariants.history.marked.update(bookies)
