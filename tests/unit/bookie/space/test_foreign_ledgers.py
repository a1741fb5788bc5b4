"""What is stored under a key that is not the ledger's own: protocol rule 24, storage rules 10 and 14."""

from __future__ import annotations

import threading

import pytest

from bk_spark.bookie.space import foreign_ledgers
from bk_spark.bookie.space.foreign_ledgers import ForeignLedgers
from bk_spark.config import LedgerOptions
from bk_spark.entries.digest import master_key
from bk_spark.errors import BookieUnavailableError, MetadataUnavailableError
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.wire.messages import DeleteLedgerRequest, Status
from tests.unit.bookie.space.gc_cluster import OTHERS, ZNODES, GcCluster

OTHER_KEY = master_key(b"another password")


class World(GcCluster):
    """A real bookie; the ledgers of the cluster have the key of the harness."""

    def __init__(self, harness) -> None:
        super().__init__()
        self.harness = harness
        self._sync = threading.Lock()
        self.others_have_the_key = True
        self.begin()

    def begin(self) -> None:
        bookie = self.harness.bookie
        refused = bookie.admission.take_refused
        self.foreign = ForeignLedgers(bookie.storage, self.cluster, refused, self.delete, self.check_key, lambda: 1)
        asked = bookie.storage.request_checkpoint
        bookie.storage.request_checkpoint = lambda: (asked(), bookie.sync(), bookie.idle())

    def delete(self, ledger_id: int, deleted_ms: int, own_key_hash: bytes) -> bool:
        with self._sync:
            self.harness.bookie.stage(DeleteLedgerRequest(ledger_id, deleted_ms, own_key_hash=own_key_hash), None)
            [(_, reply)] = self.harness.bookie.sync()
            return reply.status is Status.OK

    def check_key(self, metadata: LedgerMetadata) -> None:
        if not self.others_have_the_key:
            raise BookieUnavailableError(metadata.ledger_id, 0, ("b2: UNAUTHORIZED", "b3: UNAUTHORIZED"))

    def create_ledger(self, ledger_id: int, password: bytes = b"") -> None:
        options = LedgerOptions(password=password)
        metadata = new_ledger(ledger_id, options, OTHERS, created_ms=0, creator_token=1)
        self.store.ensure_path(ZNODES.ledger(ledger_id).rsplit("/", 1)[0])
        self.store.create(ZNODES.ledger(ledger_id), metadata.encode())

    def refuses(self, ledger_id: int) -> bool:
        return self.harness.read(ledger_id, 0, 0)[1].status is Status.UNAUTHORIZED


@pytest.fixture(params=[{}, {"fence_watermark": 100}], ids=["out of limbo", "in limbo"])
def world(harness, request, monkeypatch):
    monkeypatch.setattr(foreign_ledgers, "CHECKPOINT_LOOK_S", 0.0)
    harness.start(**request.param)
    return World(harness)


def squat(world, ledger_id):
    assert world.harness.add(ledger_id, 0, 4, key=OTHER_KEY, recovery=True).status is Status.OK


@pytest.mark.parametrize("fence", [False, True], ids=["open", "fenced"])
@pytest.mark.parametrize("step", ["", "restart", "kill"])
def test_a_ledger_under_a_foreign_key_is_let_go_and_the_real_one_is_taken(world, step, fence):
    squat(world, 7)
    if fence:
        world.harness.fence(7, key=OTHER_KEY)
    world.create_ledger(7)
    assert world.refuses(7)
    world.foreign.round()
    assert world.foreign.status().ledgers_let_go == 1
    assert not world.refuses(7)
    assert world.harness.add(7, 0, 9, tag=1, recovery=True).status is Status.OK
    if step:
        getattr(world.harness, step)()
        if step == "kill":
            world.harness.start()
    world.harness.assert_holds(7, 0, 9, tag=1)
    if world.harness.bookie.limbo is None:
        assert world.harness.add(7, 10, 10).status is Status.OK


def test_nothing_is_let_go_if_the_other_bookies_have_that_key_too(world):
    """Somebody has changed the password in the metadata: what is stored is confirmed."""
    squat(world, 7)
    world.create_ledger(7)
    world.others_have_the_key = False
    assert world.refuses(7)
    world.foreign.round()
    assert world.refuses(7)
    assert "b2: UNAUTHORIZED" in world.foreign.status().last_error
    assert len(world.harness.read(7, 0, 4, key=OTHER_KEY)[0]) == 1
    world.others_have_the_key = True
    assert world.refuses(7)
    world.foreign.round()
    assert not world.refuses(7)


def test_a_tombstone_under_a_foreign_key_is_let_go(world):
    squat(world, 7)
    world.harness.delete(7)
    world.create_ledger(7)
    assert world.refuses(7)
    world.foreign.round()
    assert not world.refuses(7)


@pytest.mark.parametrize("metadata", ["the same password", "none"])
def test_whoever_asks_with_a_wrong_key_changes_nothing(world, metadata):
    world.harness.add(7, 0, 4, recovery=True)
    world.harness.fence(7)
    if metadata != "none":
        world.create_ledger(7)
    assert world.harness.add(7, 0, 4, key=OTHER_KEY).status is Status.UNAUTHORIZED
    world.foreign.round()
    world.harness.assert_holds(7, 0, 4)
    assert world.harness.add(7, 5, 5).status is Status.FENCED


def test_a_ledger_that_was_not_refused_is_not_looked_at(world):
    squat(world, 7)
    world.create_ledger(7)
    world.store.calls.clear()
    world.foreign.round()
    assert world.store.calls == []
    assert world.refuses(7)


def test_data_under_the_right_key_is_never_deleted_though_the_decision_is_old(world):
    """A tombstone is purged, and the real ledger is added to, between the decision and the deletion."""
    squat(world, 7)
    world.create_ledger(7)
    assert world.refuses(7)

    def too_late(ledger_id: int, deleted_ms: int, own_key_hash: bytes) -> bool:
        assert world.delete(ledger_id, deleted_ms, b"")
        world.harness.bookie.storage.request_checkpoint()
        world.harness.bookie.storage.purge([7])
        assert world.harness.add(7, 0, 4, tag=1, recovery=True).status is Status.OK
        return world.delete(ledger_id, deleted_ms, own_key_hash)

    world.foreign._delete = too_late
    world.foreign.round()
    world.harness.assert_holds(7, 0, 4, tag=1)


def test_without_the_metadata_store_nothing_is_let_go_and_the_next_round_tries_again(world):
    squat(world, 7)
    world.create_ledger(7)
    assert world.refuses(7)
    world.store.failing = "sync"
    with pytest.raises(MetadataUnavailableError):
        world.foreign.round()
    world.store.failing = None
    world.foreign.round()
    assert not world.refuses(7)


def test_a_follower_that_lags_is_synced_first(world):
    world.store.lag()
    squat(world, 7)
    world.create_ledger(7)
    assert world.refuses(7)
    world.foreign.round()
    assert not world.refuses(7)


def test_only_so_many_refused_ledgers_are_remembered(world, monkeypatch):
    monkeypatch.setattr("bk_spark.bookie.admission.MAX_REFUSED", 2)
    for ledger_id in (5, 6, 7):
        squat(world, ledger_id)
        assert world.refuses(ledger_id)
    assert world.harness.bookie.admission.take_refused() == {5, 6}
    assert world.harness.bookie.admission.take_refused() == set()


def test_data_with_another_creators_token_is_never_let_go(world):
    """Protocol rule 64: it may be confirmed data of another ledger, whose id was given out again to a client without tokens."""
    former = master_key(b"another password", creator_token=7)
    world.harness.add(7, 0, 4, key=former, recovery=True)
    options = LedgerOptions(password=b"")
    metadata = new_ledger(7, options, OTHERS, created_ms=0, creator_token=0)
    world.store.ensure_path(ZNODES.ledger(7).rsplit("/", 1)[0])
    world.store.create(ZNODES.ledger(7), metadata.encode())
    assert world.harness.read(7, 0, 0, key=master_key(b""))[1].status is Status.UNAUTHORIZED
    world.foreign.round()
    assert world.foreign.status().ledgers_let_go == 0
    assert len(world.harness.read(7, 0, 4, key=former)[0]) == 1
