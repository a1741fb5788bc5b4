"""Schedules about what garbage collection deletes: docs/rules.md, storage rules 8 and 10."""

from __future__ import annotations

import pytest

from bk_spark.bookie.index.sqlite_transaction import Transaction
from bk_spark.bookie.space import garbage_collection
from bk_spark.bookie.space.garbage_collection import ClusterMember, DeletedLedgers
from bk_spark.bookie.space.over_replication import OverReplicatedLedgers
from bk_spark.wire.messages import Status
from tests.unit.bookie.space.gc_cluster import BOOKIE_ID, OTHERS, ZNODES, GcCluster
from tests.unit.bookie.storage.storage_case import Cases, Scene, must, must_refuse

CASES = Cases()


class Rounds(GcCluster):
    """Garbage collection, round by round."""

    def __init__(self) -> None:
        super().__init__()
        self._deleted = DeletedLedgers(self.local, self.cluster, lambda: self.now_ms)

    def run(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self._deleted.collect(lambda: True)

    def must_have_deleted_nothing(self) -> None:
        must(self.storage.deletions == [], "a ledger that exists was deleted")


# --- rule 8


def sync_no_reads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterMember, "sync", lambda _: None)


@CASES.add(8, sync_no_reads, "a listing, and the second look too, come after a sync (both out)")
def garbage_collection_reads_a_follower_that_lags(_: Scene) -> None:
    gc = Rounds()
    gc.store.lag()
    gc.create(1)
    gc.storage.put(1)
    gc.run(rounds=3)
    gc.must_have_deleted_nothing()


@CASES.add(8, sync_no_reads, "the decision under the ledger's lock comes after a sync")
def over_replication_reads_a_follower_that_lags(_: Scene) -> None:
    gc = GcCluster()
    gc.create(1, ensemble=OTHERS)
    gc.close(1)
    gc.storage.put(1)
    gc.store.lag()
    gc.write(gc.metadata(1).with_ensemble(0, (BOOKIE_ID, *OTHERS[:2])))
    OverReplicatedLedgers(gc.local, gc.cluster).collect(lambda: True)
    must(gc.storage.deletions == [], "a ledger was deleted that had been given back to this bookie")


def look_once(patch: pytest.MonkeyPatch) -> None:
    def unlisted(self, candidates):
        self._cluster.sync()
        store, znodes = self._cluster.store, self._cluster.znodes
        listed = garbage_collection.listed_among(store, znodes, [one.ledger_id for one in candidates])
        return {one.ledger_id: one for one in candidates if one.ledger_id not in listed}

    patch.setattr(DeletedLedgers, "_without_metadata", unlisted)


@CASES.add(8, look_once, "each candidate is read again after a second sync")
def every_listing_misses_a_ledger(_: Scene) -> None:
    gc = Rounds()
    gc.storage.put(1)
    gc.store.after_listing = lambda: gc.create(1) if gc.store.leader.get_many([ZNODES.ledger(1)]) == [None] else None
    for _round in range(3):
        gc.run()
        gc.must_have_deleted_nothing()
        gc.remove(1)


def want_one_round(patch: pytest.MonkeyPatch) -> None:
    class Everything:
        def __contains__(self, _: object) -> bool:
            return True

    patch.setattr(DeletedLedgers, "_missing_before", property(lambda _: Everything(), lambda *_: None), raising=False)


@CASES.add(8, want_one_round, "an absence counts once two rounds saw it")
def metadata_is_absent_for_one_round(_: Scene) -> None:
    gc = Rounds()
    gc.storage.put(1)
    gc.run()
    gc.create(1)
    gc.run(rounds=2)
    gc.must_have_deleted_nothing()


# --- rule 10


def delete_the_fence_too(patch: pytest.MonkeyPatch) -> None:
    apply = Transaction.apply

    def apply_and_purge(self, change):
        apply(self, change)
        if change.deleted_at and not change.batches:
            self.purge(change.ledger_id)

    patch.setattr(Transaction, "apply", apply_and_purge)


@CASES.add(10, delete_the_fence_too, "a deletion leaves the ledger's fence and master key")
def a_frozen_writer_thaws_after_its_ledger_was_deleted_here(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    bookie.fence(1)
    bookie.restart()
    must(bookie.delete(1, deleted_ms=0).status is Status.OK, "it was not deleted")
    for _ in range(2):
        bookie.restart()
        must_refuse(bookie.add(1, 3, 5).status, "behind a fence")
    must(bookie.add(1, 0, 2, recovery=True).status is Status.OK, "recovery adds are exempt")


def expire_tombstones_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(garbage_collection, "TOMBSTONE_MS", 0)


@CASES.add(10, expire_tombstones_at_once, "a tombstone stays for a week after the metadata was found gone")
def a_writer_is_frozen_for_days(_: Scene) -> None:
    gc = Rounds()
    gc.storage.put(1)
    gc.run(rounds=2)
    gc.now_ms += 6 * 24 * 3600 * 1000
    gc.run(rounds=3)
    must(gc.storage.purged == [], "a fence was forgotten while its writer may thaw")


def look_for_no_metadata(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeletedLedgers, "_without_metadata", lambda _, candidates: {one.ledger_id: one for one in candidates})


@CASES.add(10, look_for_no_metadata, "a tombstone stays while the ledger's metadata exists, however old it is")
def a_writer_is_frozen_for_weeks_and_its_ledger_lives_elsewhere(_: Scene) -> None:
    gc = Rounds()
    gc.create(1)
    gc.storage.put(1)
    gc.storage.delete(1, gc.now_ms)
    gc.now_ms += 30 * 24 * 3600 * 1000
    gc.run(rounds=3)
    must(gc.storage.purged == [], "a fence was forgotten while its writer may thaw")
