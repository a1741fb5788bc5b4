"""Deleted ledgers: what must hold before they are forgotten. Protocol rules 44 and 46, storage rules 8 and 10, situation 64."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.bookie.index.values import Limbo
from bk_spark.bookie.space import garbage_collection
from bk_spark.bookie.space.garbage_collection import METADATA_EXISTS, TOMBSTONE_MS, ClusterMember, Collected, DeletedLedgers
from bk_spark.errors import BookKeeperError, MetadataConflictError, MetadataUnavailableError, StorageError
from tests.budget import examples
from tests.unit.bookie.space.gc_cluster import BOOKIE_ID, ZNODES, GcCluster


class Rounds(GcCluster):
    def __init__(self) -> None:
        super().__init__()
        self.ledgers = DeletedLedgers(self.local, self.cluster, lambda: self.now_ms)

    def round(self, go_on: Callable[[], bool] = lambda: True) -> Collected:
        return self.ledgers.collect(go_on)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def bury(self, ledger_id: int, deleted_ms: int) -> None:
        """Leave a tombstone."""
        self.storage.put(ledger_id)
        self.storage.delete(ledger_id, deleted_ms)
        self.storage.deletions.clear()


@pytest.fixture
def gc() -> Rounds:
    return Rounds()


def test_a_ledger_without_metadata_goes_in_the_second_round_and_others_stay(gc: Rounds) -> None:
    gc.create(1, 3)
    gc.storage.put(1, 2, 3)
    assert gc.round() == Collected()
    assert gc.storage.deletions == []
    assert gc.round() == Collected(1)
    assert gc.storage.deletions == [(2, gc.now_ms)]
    assert gc.round() == Collected()


def test_an_absence_counts_only_if_it_was_seen_in_two_rounds_in_a_row(gc: Rounds) -> None:
    gc.storage.put(1)
    gc.round()
    gc.create(1)
    gc.round()
    gc.remove(1)
    gc.round()
    assert gc.storage.deleted == []
    gc.round()
    assert gc.storage.deleted == [1]


def test_a_listing_and_the_second_look_each_follow_a_sync(gc: Rounds) -> None:
    gc.storage.put(1)
    gc.store.calls.clear()
    gc.round()
    assert gc.store.calls == ["sync", "list", "sync", "read"]


def test_a_follower_that_lags_invents_no_absence(gc: Rounds) -> None:
    for ledger_id in range(5):
        gc.store.lag()
        gc.create(ledger_id)
        gc.storage.put(ledger_id)
        gc.round()
    assert gc.storage.deleted == []


def test_each_candidate_is_read_again_after_a_second_sync(gc: Rounds) -> None:
    """The listing misses a ledger, the second look finds it, for it does not trust the follower that listed."""
    gc.storage.put(1)

    def create_late() -> None:
        gc.store.lag()
        gc.create(1)

    gc.store.after_listing = create_late
    for _ in range(3):
        gc.round()
        gc.remove(1)
    assert gc.storage.deleted == []


def test_local_ids_are_taken_before_the_listing(gc: Rounds) -> None:
    """A ledger that is made and written between the two is no candidate."""
    new = iter(range(2, 100))

    def create_and_write() -> None:
        for ledger_id in itertools.islice(new, 1):
            gc.create(ledger_id)
            gc.storage.put(ledger_id)

    gc.storage.put(1)
    gc.create(1)
    gc.store.after_listing = create_and_write
    gc.rounds(5)
    assert gc.storage.deleted == []


@pytest.mark.parametrize("call", ["children", "get_many", "sync"])
@pytest.mark.parametrize("answered", [0, 1, 2])
def test_a_failing_or_partial_listing_deletes_nothing(
    gc: Rounds, monkeypatch: pytest.MonkeyPatch, call: str, answered: int
) -> None:
    """Situation 64. The failure comes at the first page, or at a later one, in the round that would delete."""
    monkeypatch.setattr(garbage_collection, "PAGE_LEDGERS", 1)
    gc.storage.put(1, 20_000, 40_000)
    gc.round()
    gc.store.failing, gc.store.fails_after = call, answered
    with pytest.raises(MetadataUnavailableError):
        gc.round()
    assert gc.storage.deleted == []
    gc.store.failing = None
    gc.round()
    assert gc.storage.deleted == [1, 20_000, 40_000]


def test_empty_ranges_are_crossed(gc: Rounds) -> None:
    """Directories of ledger ids that are empty, or not there, lie between those that are listed."""
    ids = [5, 10_001, 1_000_000, 123_456_789, 9_999_999_999]
    gc.storage.put(*ids)
    gc.create(*ids, 70_000, 80_000_000)
    gc.remove(10_001, 70_000, 80_000_000, 9_999_999_999)
    gc.rounds(2)
    assert gc.storage.deleted == [10_001, 9_999_999_999]


def test_a_store_that_was_made_anew_deletes_nothing(gc: Rounds) -> None:
    gc.create(1)
    gc.storage.put(1)
    gc.remove(1)
    instance_id = gc.store.leader.get(ZNODES.instance_id)
    gc.store.leader.set(ZNODES.instance_id, b"another", instance_id.version)
    for _ in range(3):
        with pytest.raises(MetadataConflictError, match="another"):
            gc.round()
    gc.store.leader.delete(ZNODES.instance_id)
    with pytest.raises(MetadataConflictError, match="it has lost the cluster"):
        gc.round()
    assert gc.storage.deleted == []


def test_a_ledger_in_limbo_is_no_candidate(gc: Rounds) -> None:
    gc.storage.put(1, 2)
    gc.storage.limbo = Limbo(100, settled_through=100, unsettled=frozenset({1}))
    gc.rounds(3)
    assert gc.storage.deleted == [2]
    gc.storage.limbo = None
    gc.round()
    assert gc.storage.deleted == [2]
    gc.round()
    assert gc.storage.deleted == [2, 1]


def test_a_deletion_that_is_not_durable_ends_the_round_and_is_tried_again(gc: Rounds) -> None:
    gc.storage.put(1, 2)
    gc.round()
    gc.storage.refuses = True
    with pytest.raises(StorageError, match="ledger 1"):
        gc.round()
    gc.storage.refuses = False
    gc.round()
    assert gc.storage.deleted == [1, 2]


def test_a_round_that_is_told_to_stop_begins_nothing_new(gc: Rounds) -> None:
    gc.storage.put(1, 2, 3)
    gc.round()
    answers = iter([True, True, False])
    assert gc.round(lambda: next(answers)) == Collected(1)
    assert gc.round(lambda: False) == Collected()
    gc.round()
    assert gc.storage.deleted == [1, 2, 3]


def test_a_round_is_bounded_and_the_next_one_goes_on(gc: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "PAGE_LEDGERS", 2)
    monkeypatch.setattr(garbage_collection, "INDEX_PAGE", 3)
    monkeypatch.setattr(garbage_collection, "MAX_CANDIDATES", 4)
    gc.storage.put(*range(10))
    gc.rounds(2)
    assert gc.storage.deleted == [0, 1, 2, 3]
    gc.rounds(4)
    assert gc.storage.deleted == list(range(10))


def test_a_tombstone_goes_a_week_after_the_deletion(gc: Rounds) -> None:
    """Storage rule 10."""
    gc.bury(1, gc.now_ms)
    gc.now_ms += TOMBSTONE_MS - 1
    gc.rounds(3)
    assert gc.storage.purged == []
    gc.now_ms += 1
    gc.rounds(2)
    assert (gc.storage.purged, gc.storage.deletions) == ([1], [])


def test_many_tombstones_go_page_by_page(gc: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the index forgets ledgers nobody can ask it, the sync thread neither."""
    monkeypatch.setattr(garbage_collection, "INDEX_PAGE", 3)
    for ledger_id in range(10):
        gc.bury(ledger_id, gc.now_ms)
    gc.now_ms += TOMBSTONE_MS
    pages: list[int] = []
    purge = gc.storage.purge
    monkeypatch.setattr(gc.storage, "purge", lambda ids: (pages.append(len(ids)), purge(ids)))
    gc.rounds(2)
    assert (pages, gc.storage.purged) == ([3, 3, 3, 1], list(range(10)))


def test_a_tombstone_stays_while_the_metadata_exists(gc: Rounds) -> None:
    gc.bury(1, gc.now_ms)
    gc.create(1)
    gc.now_ms += 10 * TOMBSTONE_MS
    gc.rounds(3)
    assert gc.storage.purged == []


def test_a_clock_that_went_back_keeps_tombstones(gc: Rounds) -> None:
    gc.bury(1, gc.now_ms)
    gc.now_ms -= TOMBSTONE_MS
    gc.rounds(3)
    assert gc.storage.purged == []


def test_the_week_of_an_over_replicated_ledger_begins_when_its_metadata_is_gone(gc: Rounds) -> None:
    """Its data went before, while the ledger lived on elsewhere: its fence is needed until a week after the ledger's end."""
    gc.bury(1, METADATA_EXISTS)
    gc.create(1)
    gc.now_ms += 10 * TOMBSTONE_MS
    gc.rounds(2)
    gc.remove(1)
    assert gc.round() == Collected()
    assert gc.round() == Collected()
    assert gc.storage.deletions == [(1, gc.now_ms)]
    gc.now_ms += TOMBSTONE_MS - 1
    gc.rounds(2)
    assert gc.storage.purged == []
    gc.now_ms += 1
    gc.rounds(2)
    assert gc.storage.purged == [1]


def test_a_ledger_that_is_only_fenced_here_becomes_a_tombstone_too(gc: Rounds) -> None:
    gc.storage.put(1, batches=0)
    gc.rounds(2)
    assert gc.storage.deleted == [1]


def test_the_bookies_own_cluster_is_the_one_of_its_start(gc: Rounds) -> None:
    assert ClusterMember.of(gc.store, ZNODES, BOOKIE_ID) == gc.cluster


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["create", "write", "remove"]), st.integers(0, 7)),
        st.tuples(st.sampled_from(["round", "failing round", "week", "lag"]), st.just(0)),
    ),
    max_size=40,
)


@examples(150)
@given(_STEPS)
def test_no_order_of_events_deletes_a_ledger_that_has_metadata(steps: list[tuple[str, int]]) -> None:
    """A model: a ledger may be deleted only if it was gone at the end of the round before and through this one."""
    gc = Rounds()
    ended: set[int] = set()  # ids are never used again
    gone_at_last_round: set[int] = set()
    for step, number in steps:
        ledger_id = number * 9_999
        gone = {one for one in gc.storage.by_id if gc.store.leader.get_many([ZNODES.ledger(one)])[0] is None}
        match step:
            case "create" if ledger_id not in ended and gc.store.leader.get_many([ZNODES.ledger(ledger_id)])[0] is None:
                gc.create(ledger_id)
            case "write" if ledger_id not in gone and gc.store.leader.get_many([ZNODES.ledger(ledger_id)])[0]:
                gc.storage.put(ledger_id)
            case "remove" if gc.store.leader.get_many([ZNODES.ledger(ledger_id)])[0]:
                gc.remove(ledger_id)
                ended.add(ledger_id)
            case "round" | "failing round":
                gc.store.failing, gc.store.fails_after = ("get_many", 0) if step == "failing round" else (None, 0)
                before = len(gc.storage.deletions)
                try:
                    gc.round()
                    gone_at_last_round, allowed = gone, gone_at_last_round & gone
                except BookKeeperError:
                    allowed = set()
                assert set(gc.storage.deleted[before:]) <= allowed
            case "week":
                gc.now_ms += TOMBSTONE_MS
            case "lag":
                gc.store.lag()
