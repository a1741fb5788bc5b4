"""What is to be copied for a lost bookie, and how it is cut into tasks."""

from __future__ import annotations

from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.config import LedgerOptions
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.metadata.znodes import Znodes
from bk_spark.replication.groups import LostShare, groups, ledgers_naming, lost_bytes
from tests.memory_store import MemoryStore, MemoryTree

LOST = "lost"
ZNODES = Znodes("/ledgers")


def _ledger(ledger_id: int, *fragments: tuple[int, str], last: int | None = 99, write_quorum: int = 3) -> LedgerMetadata:
    """With fragments that begin at an entry, each on a named bookie and two others; 10 bytes an entry."""
    options = LedgerOptions(write_quorum=write_quorum)
    made = new_ledger(ledger_id, options, (fragments[0][1], "b", "c"), created_ms=0, creator_token=1)
    for first, bookie in fragments[1:]:
        made = made.with_ensemble(first, (bookie, "b", "c"))
    return made if last is None else made.closed_at(last, (last + 1) * 10)


def test_a_ledger_names_a_bookie_in_any_fragment_with_entries_or_without() -> None:
    """Protocol rule 54."""
    assert LOST in _ledger(1, (0, LOST), (50, "a")).bookies
    assert LOST in _ledger(1, (0, "a"), (100, LOST)).bookies
    assert LOST in _ledger(1, (0, LOST), last=-1).bookies
    assert LOST not in _ledger(1, (0, "a")).bookies


def test_what_a_bookie_held_is_its_share_of_the_fragments_that_name_it() -> None:
    assert lost_bytes(_ledger(1, (0, LOST)), LOST) == 1000
    assert lost_bytes(_ledger(1, (0, LOST), (30, "a")), LOST) == 300
    assert lost_bytes(_ledger(1, (0, LOST), (30, "a"), (90, LOST)), LOST) == 400
    assert lost_bytes(_ledger(1, (0, LOST), write_quorum=2), LOST) == 666
    assert lost_bytes(_ledger(1, (0, "a"), (100, LOST)), LOST) == 0
    assert lost_bytes(_ledger(1, (0, LOST), last=-1), LOST) == 0
    assert lost_bytes(_ledger(1, (0, LOST), last=None), LOST) == 0


def test_groups_hold_every_ledger_once_within_their_bounds_and_the_largest_come_first() -> None:
    shares = [LostShare(ledger_id, nbytes) for ledger_id, nbytes in enumerate([5, 0, 70, 30, 1000, 0, 60, 40])]
    assert groups(shares, nbytes=100, ledgers=3) == [[4], [2], [6, 7], [3, 0, 1], [5]]
    assert groups([], nbytes=100, ledgers=3) == []


def _stored(*ledgers: LedgerMetadata) -> MemoryStore:
    store = MemoryStore(MemoryTree(lambda: 0))
    store.ensure_path(ZNODES.root)
    for one in ledgers:
        LedgerStore(store, ZNODES).create(one, [], lambda failure: None)
    return store


def test_the_listing_finds_the_ledgers_that_name_it_and_says_which_cannot_be_read() -> None:
    store = _stored(_ledger(3, (0, LOST)), _ledger(4, (0, "a")), _ledger(20_000, (0, "a"), (7, LOST)), _ledger(5, (0, "a")))
    store.set(ZNODES.ledger(5), b"junk", 0)
    looked_at: list[int] = []
    found = ledgers_naming(store, ZNODES, LOST, looked_at.append)
    assert found.shares == (LostShare(3, 1000), LostShare(20_000, 930))
    assert ["ledger 5" in one for one in found.unreadable] == [True]
    assert looked_at[-1] == 4


def test_a_listing_ends_at_its_limit() -> None:
    store = _stored(*(_ledger(ledger_id, (0, LOST)) for ledger_id in range(5)))
    found = ledgers_naming(store, ZNODES, LOST, lambda done: None, limit=2)
    assert [one.ledger_id for one in found.shares] == [0, 1]
