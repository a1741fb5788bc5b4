"""A bookie notices that the metadata store gives ids out again that it holds. Ref: docs/rules.md, protocol rule 64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bk_spark.bookie.pace import RateLimiter
from bk_spark.bookie.process.registration import takes_adds
from bk_spark.bookie.space.garbage_collection import ClusterMember
from bk_spark.bookie.space.gc_run import GcPlan, GcRun
from bk_spark.bookie.space.issued_ids import IssuedIds, ids_given_out_again
from bk_spark.bookie.space.over_replication import OverReplicatedLedgers
from bk_spark.config import LedgerOptions
from bk_spark.errors import ConfigError, MetadataUnavailableError
from bk_spark.metadata import ledger_ids
from bk_spark.metadata.ledger_ids import (
    highest_issued_id,
    issue_ledger_id,
    next_ledger_id,
    next_ledger_id_from,
    raise_ledger_ids,
)
from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.metadata.ledger_metadata import new_ledger
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.znodes import Znodes
from bk_spark.wire.messages import Status
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.bookie.space.gc_bookie import BOOKIE_ID, CollectedBookie

ZNODES = Znodes("/ledgers")
OTHERS = ("bookie-2", "bookie-3", "bookie-4")
MARK = ZNODES.ids_above_of(BOOKIE_ID)


class World(CollectedBookie):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore(MemoryTree(lambda: 0))
        initialise_cluster(self.store, ZNODES)
        self.cluster = ClusterMember.of(self.store, ZNODES, BOOKIE_ID)
        self.next_ids: list[int] = []
        self.ids = IssuedIds(self.bookie.storage, self.cluster, self.bookie.refuse_new_ledgers, self.next_ids.append)
        self.collector = GcRun(
            self.local, self.cluster, RateLimiter(1 << 40, lambda: 0.0, lambda _: None), lambda: 1, self._pause
        )

    def go_back_to(self, next_id: int) -> None:
        """The store is one of an older state."""
        self.store._tree.nodes[ZNODES.id_generator].next_sequence = next_id

    def status_of_add(self, ledger_id: int, *, recovery: bool = False) -> tuple[Status, str]:
        reply = self.answer_to_add(ledger_id, recovery=recovery)
        return reply.status, reply.detail

    def collect(self) -> str:
        """Two rounds; what the second says is wrong."""
        for _ in range(2):
            problem = self.collector.run(GcPlan(over_replicated=True), lambda: True, lambda: True).problem
        return problem

    def _pause(self, seconds: float) -> None:
        self.bookie.idle()


@pytest.fixture
def world() -> Iterator[World]:
    """A bookie with the ledgers 0 to 9, of which the store knows those below 5, and has issued twenty ids."""
    made = World()
    made.go_back_to(20)
    for ledger_id in range(5):
        metadata = new_ledger(ledger_id, LedgerOptions(), (BOOKIE_ID, *OTHERS[:2]), created_ms=0, creator_token=1)
        made.store.create(ZNODES.ledger(ledger_id), metadata.encode(), make_parents=True)
    made.fill(*range(10), entries=2)
    yield made
    made.bookie.close()


def test_a_store_that_issued_all_that_is_held_is_no_finding(world: World) -> None:
    world.go_back_to(10)
    world.ids.look()
    assert world.bookie.ids_above == ""
    assert world.status_of_add(15)[0] is Status.OK
    assert takes_adds(world.bookie)
    assert world.next_ids == [10]


def test_the_highest_id_counts_whether_it_is_in_the_cache_or_in_the_index_and_although_it_was_deleted(world: World) -> None:
    assert world.bookie.storage.highest_ledger_id() == 9
    world.checkpoint()
    assert world.bookie.storage.highest_ledger_id() == 9
    world.delete(9)
    world.checkpoint()
    world.restart()
    assert world.bookie.storage.highest_ledger_id() == 9


CHOSEN = 1 << 40


def test_an_id_that_its_creator_chose_is_no_finding_also_after_its_ledger_was_deleted_and_a_restart(world: World) -> None:
    world.bookie.storage.note_chosen_id(CHOSEN)
    assert world.status_of_add(CHOSEN)[0] is Status.OK
    assert (world.bookie.storage.highest_issued_id(), world.bookie.storage.highest_ledger_id()) == (9, CHOSEN)
    world.ids.look()
    assert world.bookie.ids_above == ""
    world.checkpoint()
    world.restart()
    world.delete(CHOSEN)
    assert (world.bookie.storage.highest_issued_id(), world.bookie.storage.highest_ledger_id()) == (9, CHOSEN)


def test_a_ledger_above_the_counter_that_exists_is_no_finding_and_one_that_does_not_is_one(world: World) -> None:
    """As after a crash, which forgets what was noted of a ledger that had just come."""
    metadata = new_ledger(CHOSEN, LedgerOptions(), (BOOKIE_ID, *OTHERS[:2]), created_ms=0, creator_token=1)
    world.store.create(ZNODES.ledger(CHOSEN), metadata.encode(), make_parents=True)
    assert world.status_of_add(CHOSEN)[0] is Status.OK
    world.ids.look()
    assert world.bookie.ids_above == ""
    assert world.status_of_add(CHOSEN + 1)[0] is Status.OK
    world.ids.look()
    assert f"up to {CHOSEN + 1}" in world.bookie.ids_above


def test_with_ids_above_the_counter_new_ledgers_are_refused_and_those_here_go_on(world: World) -> None:
    world.go_back_to(9)
    world.ids.look()
    status, detail = world.status_of_add(15)
    assert status is Status.READ_ONLY
    assert "up to 9" in detail
    assert "bk-spark cluster raise-ledger-ids" in detail
    assert world.status_of_add(15, recovery=True)[0] is Status.OK
    assert world.status_of_add(3)[0] is Status.OK
    assert not takes_adds(world.bookie), "it registers as read-only"


def test_with_ids_above_the_counter_nothing_is_deleted(world: World) -> None:
    world.go_back_to(5)
    assert "no ledger is deleted, because the metadata store went back" in world.collect()
    world.checkpoint()
    assert [one.batch_count > 0 for one in world.bookie.storage.ledgers(-1, 100)] == [True] * 10


def test_the_finding_stays_when_the_ids_pass_what_is_held(world: World) -> None:
    """Clients that try to create ledgers use ids up."""
    world.go_back_to(8)
    world.ids.look()
    for _ in range(5):
        issue_ledger_id(world.store, ZNODES)
    assert next_ledger_id(world.store, ZNODES) > 9
    world.ids.look()
    assert world.bookie.ids_above
    world.restart()
    assert ids_given_out_again(world.bookie.storage, world.cluster)
    assert world.store.get(MARK).value == b"9"


def test_without_the_mark_and_with_higher_ids_the_bookie_works_again(world: World) -> None:
    world.go_back_to(5)
    world.ids.look()
    assert raise_ledger_ids(world.store, ZNODES, 9) == 10
    world.store.delete(MARK)
    world.ids.look()
    assert world.bookie.ids_above == ""
    assert world.status_of_add(15)[0] is Status.OK


def test_while_the_store_does_not_answer_what_was_found_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.go_back_to(5)
    world.ids.look()
    found = world.bookie.ids_above

    def no_answer(path: str) -> None:
        raise MetadataUnavailableError("memory://", "no answer")

    monkeypatch.setattr(world.store, "sync", no_answer)
    with pytest.raises(MetadataUnavailableError):
        world.ids.look()
    assert world.bookie.ids_above == found != ""


def test_a_closed_ledger_of_another_creator_elsewhere_is_no_reason_to_delete_what_is_here(world: World) -> None:
    for ledger_id, token in ((3, 5), (4, 6)):
        metadata = new_ledger(ledger_id, LedgerOptions(), OTHERS, created_ms=0, creator_token=token).closed_at(1, 1)
        world.store.set(ZNODES.ledger(ledger_id), metadata.encode(), 0)
    world.restart()
    world.write_as(5, 11)
    metadata = new_ledger(11, LedgerOptions(), OTHERS, created_ms=0, creator_token=6).closed_at(1, 1)
    world.store.create(ZNODES.ledger(11), metadata.encode(), make_parents=True)
    world.checkpoint()
    OverReplicatedLedgers(world.local, world.cluster).collect(lambda: True)
    world.checkpoint()
    deleted = [one.ledger_id for one in world.bookie.storage.ledgers(-1, 100) if one.batch_count == 0]
    assert deleted == [3, 4], "their copies here have no token, and fit; ledger 11 is of another creator"


# --- ids


@pytest.mark.parametrize("layout", LedgerLayout)
def test_raised_ids_are_above_what_is_held_and_raising_again_changes_nothing(layout: LedgerLayout) -> None:
    store, znodes = MemoryStore(MemoryTree(lambda: 0)), Znodes("/ledgers", layout)
    initialise_cluster(store, znodes)
    first = raise_ledger_ids(store, znodes, 50)
    assert first > 50
    assert raise_ledger_ids(store, znodes, 50) == first
    assert raise_ledger_ids(store, znodes, 7) == first
    assert highest_issued_id(store, znodes) == first


@pytest.mark.parametrize("layout", [LedgerLayout.HIERARCHICAL, LedgerLayout.LONG_HIERARCHICAL])
@pytest.mark.parametrize("held", [30, 2**31 + 5, 5 << 32 | 17])
def test_ids_that_are_far_behind_go_on_in_a_new_bucket(
    layout: LedgerLayout, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_ids, "MAX_STEPS", 20)
    store, znodes = MemoryStore(MemoryTree(lambda: 0)), Znodes("/ledgers", layout)
    initialise_cluster(store, znodes)
    first = raise_ledger_ids(store, znodes, held)
    assert first == (held >> 32) + 1 << 32
    assert raise_ledger_ids(store, znodes, held) == first
    assert issue_ledger_id(store, znodes).ledger_id == first
    assert raise_ledger_ids(store, znodes, first + 9) == first + 10


@pytest.mark.parametrize("layout", [LedgerLayout.HIERARCHICAL, LedgerLayout.LONG_HIERARCHICAL])
def test_the_next_id_is_found_by_one_read_from_what_it_was_before(layout: LedgerLayout) -> None:
    store, znodes = MemoryStore(MemoryTree(lambda: 0)), Znodes("/ledgers", layout)
    initialise_cluster(store, znodes)
    for _ in range(3):
        known = next_ledger_id(store, znodes)
        issue_ledger_id(store, znodes)
        assert next_ledger_id_from(store, znodes, known) == next_ledger_id(store, znodes) == known + 1
    known = next_ledger_id(store, znodes)
    store.ensure_path(znodes.id_bucket(5))
    issue_ledger_id(store, znodes)
    assert next_ledger_id_from(store, znodes, known) == known, "a later bucket is not seen"
    known = next_ledger_id(store, znodes)
    assert known == 5 << 32 | 1
    issue_ledger_id(store, znodes)
    assert next_ledger_id_from(store, znodes, known) == known + 1


def test_a_flat_cluster_has_no_ids_above_an_id_that_is_none_of_its_own() -> None:
    store, znodes = MemoryStore(MemoryTree(lambda: 0)), Znodes("/ledgers", LedgerLayout.FLAT)
    initialise_cluster(store, znodes)
    with pytest.raises(ConfigError, match="the flat layout has no ids from 2147483647 on"):
        raise_ledger_ids(store, znodes, 2**40)
    assert next_ledger_id(store, znodes) < 5
