"""Ledger ids are never given twice, and one that is taken now is above all others (docs/rules.md, storage rule 11).

Situation 87: the generators' ids are unique under concurrency.
"""

from __future__ import annotations

import threading

import pytest

from bk_spark.errors import ConfigError
from bk_spark.metadata.ledger_ids import forget, highest_issued_id, issue_ledger_id, ledger_ids, raise_ledger_ids
from bk_spark.metadata.ledger_layout import LARGEST_INT, LedgerLayout
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.store import ANY_VERSION, MetadataStore
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect
from tests.memory_store import MemoryStore, MemoryTree


def new_ledger_id(store: MetadataStore, znodes: Znodes) -> int:
    issued = issue_ledger_id(store, znodes)
    forget(store, issued)
    return issued.ledger_id


@pytest.fixture(params=LedgerLayout)
def znodes(request: pytest.FixtureRequest, znodes: Znodes) -> Znodes:
    return Znodes(znodes.root, request.param)


def test_the_highest_issued_id_is_above_all_that_any_session_got_before(
    store: ZooKeeperStore, metadata_uri: str, znodes: Znodes
) -> None:
    """Real ZooKeeper: that the znodes of earlier ids are deleted, and by whom, does not matter."""
    initialise_cluster(store, znodes)
    names = store.children(znodes.id_generator)
    with connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as other:
        issued = [new_ledger_id(session, znodes) for session in (store, other, other, store, other)]
        assert highest_issued_id(store, znodes) > max(issued)
    assert issued == sorted(set(issued))
    assert store.children(znodes.id_generator) == names
    assert list(ledger_ids(store, znodes)) == []


def test_ids_that_many_sessions_take_at_once_are_unique(store: ZooKeeperStore, znodes: Znodes) -> None:
    """Also while the first bucket of long ids is being made."""
    initialise_cluster(store, znodes)
    issued: list[int] = []

    def take() -> None:
        with connect(store.uri, connect_timeout_s=10.0, session_timeout_s=10.0) as mine:
            issued.extend(new_ledger_id(mine, znodes) for _ in range(5))
            if znodes.layout is not LedgerLayout.FLAT:
                mine.ensure_path(znodes.long_id_generator)
            issued.extend(new_ledger_id(mine, znodes) for _ in range(5))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(issued)) == 40
    if znodes.layout is not LedgerLayout.FLAT:
        assert max(issued) > 1 << 32


HIERARCHIES = [LedgerLayout.HIERARCHICAL, LedgerLayout.LONG_HIERARCHICAL]


class Numbers:
    """A cluster in memory whose sequential znodes can be set near their end."""

    def __init__(self, layout: LedgerLayout) -> None:
        self.tree = MemoryTree(lambda: 0)
        self.store = MemoryStore(self.tree)
        self.znodes = Znodes("/ledgers", layout)
        initialise_cluster(self.store, self.znodes)

    def at(self, parent: str, number: int) -> None:
        self.store.ensure_path(parent)
        self.tree.nodes[parent].next_sequence = number

    def take(self, count: int = 1) -> list[int]:
        return [new_ledger_id(self.store, self.znodes) for _ in range(count)]


@pytest.mark.parametrize("layout", HIERARCHIES)
def test_when_numbers_are_used_up_ids_go_on_in_buckets_as_apaches_generator_has_them(layout: LedgerLayout) -> None:
    """TestLongZkLedgerIdGenerator: short ids first, then the upper 32 bits are 1, 2, …"""
    numbers = Numbers(layout)
    numbers.at(numbers.znodes.id_generator, LARGEST_INT - 2)
    ids = numbers.take(4)
    assert ids == [LARGEST_INT - 2, LARGEST_INT - 1, 1 << 32, 1 << 32 | 1]
    assert numbers.store.children("/ledgers/idgen-long") == ["HOB-0000000001"]
    numbers.at(numbers.znodes.id_bucket(1), LARGEST_INT - 1)
    assert numbers.take(3) == [1 << 32 | LARGEST_INT - 1, 2 << 32, 2 << 32 | 1]
    assert numbers.store.children(numbers.znodes.id_bucket(2)) == []


@pytest.mark.parametrize("layout", HIERARCHIES)
def test_numbers_below_zero_are_no_ids(layout: LedgerLayout) -> None:
    """ZooKeeper counts on from the largest number of 32 bits to the smallest."""
    numbers = Numbers(layout)
    numbers.at(numbers.znodes.id_generator, -(2**31))
    assert numbers.take() == [1 << 32]


@pytest.mark.parametrize("layout", HIERARCHIES)
def test_where_apache_went_over_to_buckets_ids_come_from_the_last_one(layout: LedgerLayout) -> None:
    numbers = Numbers(layout)
    numbers.store.ensure_path("/ledgers/idgen-long/HOB-0000000007")
    numbers.store.ensure_path("/ledgers/idgen-long/HOB-0000000012")
    numbers.store.ensure_path("/ledgers/idgen-long/other")
    assert numbers.take(2) == [12 << 32, 12 << 32 | 1]


def test_the_last_bucket_ends_in_the_largest_id_and_then_there_are_no_more() -> None:
    numbers = Numbers(LedgerLayout.LONG_HIERARCHICAL)
    numbers.at(numbers.znodes.id_bucket(LARGEST_INT), LARGEST_INT - 1)
    assert numbers.take() == [(LARGEST_INT << 32) + LARGEST_INT - 1]
    with pytest.raises(ConfigError, match="used up"):
        numbers.take()


def test_a_flat_cluster_without_more_ids_says_so_and_gives_none_twice() -> None:
    numbers = Numbers(LedgerLayout.FLAT)
    numbers.at("/ledgers", LARGEST_INT)
    with pytest.raises(ConfigError, match=r"'flat'.*end before 2147483647.*hierarchical"):
        numbers.take()


@pytest.mark.parametrize("layout", HIERARCHIES)
def test_ids_begin_at_0_where_apaches_tools_made_the_cluster_and_no_client_came_yet(layout: LedgerLayout) -> None:
    numbers = Numbers(layout)
    numbers.store.delete(numbers.znodes.id_generator, ANY_VERSION)
    assert numbers.take(2) == [0, 1]


@pytest.mark.parametrize("layout", HIERARCHIES)
def test_ids_do_not_begin_at_0_again_where_ledgers_exist(layout: LedgerLayout) -> None:
    numbers = Numbers(layout)
    numbers.store.create(numbers.znodes.ledger(4), make_parents=True)
    numbers.store.delete(numbers.znodes.id_generator, ANY_VERSION)
    with pytest.raises(ConfigError, match=r"ledger 4 exists: run bk-spark cluster raise-ledger-ids"):
        numbers.take()
    assert raise_ledger_ids(numbers.store, numbers.znodes, held=4) == 5
    assert numbers.take() == [5]


def test_a_session_that_lags_asks_for_the_latest_list_before_it_begins_ids_at_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a sync a listing does not prove that there is no ledger."""
    numbers = Numbers(LedgerLayout.HIERARCHICAL)
    numbers.store.delete(numbers.znodes.id_generator, ANY_VERSION)

    def catch_up(_: str) -> None:
        numbers.store.create(numbers.znodes.ledger(4), make_parents=True)

    monkeypatch.setattr(numbers.store, "sync", catch_up)
    with pytest.raises(ConfigError, match="ledger 4 exists"):
        numbers.take()
