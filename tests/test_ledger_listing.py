"""Ledger ids as the hierarchy of znodes lists them. Protocol rule 44."""

from __future__ import annotations

import pytest

from bk_spark.errors import MetadataUnavailableError
from bk_spark.ledger_listing import ledger_ids, listed_among
from bk_spark.metadata_store import MemoryStore, MemoryTree
from bk_spark.registration import initialise_cluster
from bk_spark.znodes import MAX_LEDGER_ID, Znodes

ZNODES = Znodes("/ledgers")
IDS = [0, 1, 9_999, 10_000, 123_456, 1_000_000_000, MAX_LEDGER_ID]


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


@pytest.fixture
def store() -> CountingStore:
    made = CountingStore(MemoryTree(lambda: 0))
    initialise_cluster(made, ZNODES)
    for ledger_id in IDS:
        made.create(ZNODES.ledger(ledger_id), make_parents=True)
    made.ensure_path("/ledgers/50/1234")
    made.ensure_path("/ledgers/underreplication/locks")
    return made


def test_all_ids_come_ascending_across_empty_directories(store: CountingStore) -> None:
    assert list(ledger_ids(store, ZNODES)) == IDS


def test_what_is_asked_for_is_found_across_missing_and_empty_directories(store: CountingStore) -> None:
    asked = sorted([*IDS, 2, 10_001, 70_000, 5_012_340_000, 8_000_000_000])
    assert listed_among(store, ZNODES, asked) == set(IDS)


def test_only_the_directories_of_what_is_asked_for_are_listed(store: CountingStore) -> None:
    store.listed.clear()
    listed_among(store, ZNODES, [0, 1, 2, 123_456])
    assert store.listed == ["/ledgers/00/0000", "/ledgers/00/0012"]


def test_a_listing_is_whole_or_fails(store: CountingStore) -> None:
    store.fails_at = "/ledgers/00/0012"
    with pytest.raises(MetadataUnavailableError):
        list(ledger_ids(store, ZNODES))
    with pytest.raises(MetadataUnavailableError):
        listed_among(store, ZNODES, IDS)


def test_there_are_no_ledgers_at_an_empty_root(store: CountingStore) -> None:
    assert list(ledger_ids(store, Znodes("/elsewhere"))) == []
    assert listed_among(store, Znodes("/elsewhere"), [1]) == set()
