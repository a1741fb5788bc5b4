"""Ledger ids as the tree of znodes lists them, in each of the layouts. Protocol rule 44."""

from __future__ import annotations

import itertools

import pytest

from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.ledger_ids import ledger_ids, ledger_pages, listed_among
from bk_spark.metadata.ledger_layout import MAX_LEDGER_ID, LedgerLayout
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree

ALL_IDS = [0, 1, 9_999, 10_000, 123_456, 1_000_000_000, 2**31 - 2, 2**31 - 1, 9_999_999_999, 2**40, MAX_LEDGER_ID]
AROUND = [
    "LAYOUT",
    "idgen-long/HOB-0000000001",
    "underreplication/locks",
    "77",
    "50/1234",
    "000/0000/0000",
    "bk_spark/logs/000",
]
"""What is at a root besides ledgers, and empty directories."""


class CountingStore(MemoryStore):
    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.listed: list[str] = []
        self.fails_at: str | None = None

    def children(self, path: str) -> list[str]:
        self.listed.append(path)
        if path == self.fails_at:
            raise MetadataUnavailableError(self.uri, "no answer")
        return super().children(path)


@pytest.fixture(params=LedgerLayout)
def znodes(request: pytest.FixtureRequest) -> Znodes:
    return Znodes("/ledgers", request.param)


@pytest.fixture
def ids(znodes: Znodes) -> list[int]:
    return [ledger_id for ledger_id in ALL_IDS if ledger_id <= znodes.layout.largest_id]


@pytest.fixture
def store(znodes: Znodes, ids: list[int]) -> CountingStore:
    made = CountingStore(MemoryTree(lambda: 0))
    initialise_cluster(made, znodes)
    for ledger_id in ids:
        made.create(znodes.ledger(ledger_id), make_parents=True)
    for name in AROUND:
        made.ensure_path(f"/ledgers/{name}")
    return made


def test_all_ids_come_ascending_across_empty_directories_and_what_else_is_there(
    store: CountingStore, znodes: Znodes, ids: list[int]
) -> None:
    assert list(ledger_ids(store, znodes)) == ids


def test_pages_hold_what_they_are_asked_for_and_none_is_empty(store: CountingStore, znodes: Znodes, ids: list[int]) -> None:
    for size in (1, 2, 3, len(ids), len(ids) + 1):
        pages = list(ledger_pages(store, znodes, page=size))
        assert list(itertools.chain.from_iterable(pages)) == ids
        assert all(len(page) == size for page in pages[:-1])
        assert all(pages)


def test_a_listing_goes_on_after_any_id(store: CountingStore, znodes: Znodes, ids: list[int]) -> None:
    """Also after one that does not exist, which may have been deleted meanwhile."""
    for after in [-1, *ids, *[ledger_id + 1 for ledger_id in ids], 5_555]:
        assert list(ledger_ids(store, znodes, after)) == [ledger_id for ledger_id in ids if ledger_id > after]


def test_directories_that_a_listing_is_past_are_not_read_again() -> None:
    znodes = Znodes("/ledgers")
    store = CountingStore(MemoryTree(lambda: 0))
    for ledger_id in (3, 20_000, 99_999_999, 100_000_000):
        store.create(znodes.ledger(ledger_id), make_parents=True)
    assert list(ledger_ids(store, znodes, 99_999_998)) == [99_999_999, 100_000_000]
    assert store.listed == ["/ledgers", "/ledgers/00", "/ledgers/00/9999", "/ledgers/01", "/ledgers/01/0000", "/ledgers"]


def test_a_page_is_given_before_the_next_directory_is_read() -> None:
    """Bounded memory: a listing of millions holds one directory, of at most 10,000 names."""
    znodes = Znodes("/ledgers")
    store = CountingStore(MemoryTree(lambda: 0))
    for ledger_id in (3, 20_000, 30_000):
        store.create(znodes.ledger(ledger_id), make_parents=True)
    assert next(ledger_pages(store, znodes, page=1)) == [3]
    assert store.listed == ["/ledgers", "/ledgers/00", "/ledgers/00/0000"]


def test_an_id_at_the_path_of_another_layout_is_not_listed() -> None:
    """In a hierarchical cluster a small id has no long path: what stands there is nothing that ``ledger`` would find."""
    znodes = Znodes("/ledgers")
    store = MemoryStore(MemoryTree(lambda: 0))
    store.ensure_path("/ledgers/000/0000/0000/0000/L0007")
    store.ensure_path("/ledgers/L0000000008")
    store.ensure_path("/ledgers/99/9999/L9999")
    assert list(ledger_ids(store, znodes)) == []


def test_what_is_asked_for_is_found_across_missing_and_empty_directories(
    store: CountingStore, znodes: Znodes, ids: list[int]
) -> None:
    asked = sorted({*ids, 2, 10_001, 70_000, 1_012_340_000, 5_012_340_000, 8_000_000_000})
    assert listed_among(store, znodes, asked) == set(ids)


def test_only_the_directories_of_what_is_asked_for_are_listed() -> None:
    znodes = Znodes("/ledgers")
    store = CountingStore(MemoryTree(lambda: 0))
    listed_among(store, znodes, [0, 1, 2, 123_456, 2**31])
    assert store.listed == ["/ledgers/00/0000", "/ledgers/00/0012", "/ledgers/000/0000/0021/4748"]


def test_a_listing_is_whole_or_fails(store: CountingStore, znodes: Znodes, ids: list[int]) -> None:
    store.fails_at = znodes.ledger(123_456).rsplit("/", 1)[0]
    with pytest.raises(MetadataUnavailableError):
        list(ledger_ids(store, znodes))
    with pytest.raises(MetadataUnavailableError):
        list(ledger_pages(store, znodes, page=1))
    with pytest.raises(MetadataUnavailableError):
        listed_among(store, znodes, ids)


def test_there_are_no_ledgers_at_an_empty_root(store: CountingStore) -> None:
    assert list(ledger_ids(store, Znodes("/elsewhere"))) == []
    assert list(ledger_pages(store, Znodes("/elsewhere"))) == []
    assert listed_among(store, Znodes("/elsewhere"), [1]) == set()
