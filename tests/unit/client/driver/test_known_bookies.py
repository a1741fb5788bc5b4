"""A client that creates ledgers reads who is registered once, and again after a change."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bk_spark.client.driver.client_context import ClientContext, EnsembleChoice
from bk_spark.client.protocol.limits import milliseconds
from bk_spark.client.protocol.state_machine import ChooseReplacements
from bk_spark.config import ClientConfig
from bk_spark.errors import MetadataUnavailableError, NotEnoughBookiesError
from bk_spark.metadata.registration import BookieAddress, RegisteredBookie, initialise_cluster, register, unregister
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")


class CountingStore(MemoryStore):
    listings = 0
    is_silent = False
    """Whether no change is told of."""
    is_cut_off = False

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def children(self, path: str) -> list[str]:
        self.may_go_on.wait()
        if self.is_cut_off:
            raise MetadataUnavailableError("memory://", "cut off")
        self.listings += path == ZNODES.read_only
        return super().children(path)

    def _notify(self, path: str, *, names: bool = True) -> None:
        if not self.is_silent:
            super()._notify(path, names=names)


@pytest.fixture
def store() -> CountingStore:
    store = CountingStore(MemoryTree(lambda: 0))
    initialise_cluster(store, ZNODES)
    for number in (1, 2, 3):
        come(store, number)
    return store


@pytest.fixture
def context(store: CountingStore) -> Iterator[ClientContext]:
    context = ClientContext(store, ZNODES, ClientConfig())
    yield context
    context.close()


def come(store: CountingStore, number: int, *, read_only: bool = False) -> None:
    register(store, ZNODES, BookieAddress(f"b{number}", "127.0.0.1", 3000 + number), read_only)


def test_bookies_are_listed_once_for_many_ledgers(store: CountingStore, context: ClientContext) -> None:
    for _ in range(10):
        assert set(context.choose_ensemble(3, 3)) == {"b1", "b2", "b3"}
    assert store.listings == 1


def test_one_that_goes_or_turns_read_only_is_in_no_ensemble_from_then_on(store: CountingStore, context: ClientContext) -> None:
    context.choose_ensemble(3, 3)
    unregister(store, ZNODES, "b1")
    come(store, 4)
    assert set(context.choose_ensemble(3, 3)) == {"b2", "b3", "b4"}
    come(store, 5)
    come(store, 2, read_only=True)
    assert set(context.choose_ensemble(3, 3)) == {"b3", "b4", "b5"}


def test_one_that_came_is_found_before_the_news_of_it(store: CountingStore, context: ClientContext) -> None:
    """Where those that are known are too few."""
    context.choose_ensemble(3, 3)
    store.is_silent = True
    come(store, 4)
    assert set(context.choose_ensemble(4, 3)) == {"b1", "b2", "b3", "b4"}
    with pytest.raises(NotEnoughBookiesError):
        context.choose_ensemble(5, 3)


def test_a_listing_that_failed_is_tried_again(store: CountingStore, context: ClientContext) -> None:
    store.is_cut_off = True
    with pytest.raises(MetadataUnavailableError):
        context.choose_ensemble(3, 3)
    store.is_cut_off = False
    assert set(context.choose_ensemble(3, 3)) == {"b1", "b2", "b3"}


def test_a_listing_that_failed_after_all_who_waited_had_given_up_fails_nobody_else(
    store: CountingStore, context: ClientContext
) -> None:
    async def give_up() -> None:
        waiting = asyncio.create_task(context.registered())
        await asyncio.sleep(0)
        listing = context._registered
        assert listing is not None
        waiting.cancel()
        await asyncio.wait([waiting])
        store.may_go_on.set()
        await asyncio.wait([listing])

    store.is_cut_off = True
    store.may_go_on.clear()
    context.submit(give_up()).result()
    store.is_cut_off = False
    assert set(context.choose_ensemble(3, 3)) == {"b1", "b2", "b3"}


def test_a_silent_bookie_is_replaced_by_none_that_failed_lately_itself() -> None:
    """Protocol rule 68: under overload the spare bookies are as slow, and would only get the same adds once more."""
    config = ClientConfig()
    known = EnsembleChoice(config, lambda count: 0)
    registered = [RegisteredBookie(f"b{n}", BookieAddress(f"b{n}", "127.0.0.1", n), False) for n in range(1, 6)]
    for _ in range(config.quarantine_errors):
        known.report_failure("b4", 0)
    wanted = ChooseReplacements(1, ("b1", "b2", "b3"), (0, 1), frozenset({"b1", "b2"}), must_be_sound=True)
    assert known.replacements(registered, wanted, 3, 0).bookies == ((0, "b5"),)
    assert len(known.replacements(registered, replace(wanted, must_be_sound=False), 3, 0).bookies) == 2
    later_ms = milliseconds(config.quarantine_s)
    assert len(known.replacements(registered, wanted, 3, later_ms).bookies) == 2


def _in_racks(*racks: str) -> list[RegisteredBookie]:
    addresses = [BookieAddress(f"b{n}", "127.0.0.1", n, rack) for n, rack in enumerate(racks, 1)]
    return [RegisteredBookie(address.bookie_id, address, False) for address in addresses]


def test_a_bookie_that_is_gone_still_holds_its_copies_in_its_rack() -> None:
    """b2 was seen in rack /b: the copy that b3 held goes to /c, not to /b, where b2 has one and will have it again."""
    known, registered = EnsembleChoice(ClientConfig(), lambda count: 0), _in_racks("/a", "/b", "/c", "/b", "/c")
    known.ensemble(registered, 3, 3, 0)
    wanted = ChooseReplacements(1, ("b1", "b2", "b3"), (2,), frozenset({"b3"}))
    assert known.replacements([one for one in registered if one.bookie_id != "b2"], wanted, 3, 0).bookies == ((2, "b5"),)


def test_a_client_that_asks_for_more_racks_than_there_are_creates_no_ledger_and_replaces_no_bookie() -> None:
    known, registered = EnsembleChoice(ClientConfig(min_racks_per_write_quorum=3), lambda count: 0), _in_racks(*"ababab")
    with pytest.raises(NotEnoughBookiesError, match="needs 3 racks in each write set and finds 2"):
        known.ensemble(registered, 3, 3, 0)
    answer = known.replacements(registered, ChooseReplacements(1, ("b1", "b2", "b3"), (2,), frozenset({"b3"})), 3, 0)
    assert answer.bookies == ()
    assert "needs 3 racks in each write set and finds 2" in answer.detail
