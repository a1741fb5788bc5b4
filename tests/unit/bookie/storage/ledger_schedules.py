"""Schedules about what a bookie knows of ledgers: docs/rules.md, storage rules 1, 4 and 14."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bk_spark.bookie import batch_read
from bk_spark.bookie.index.look_up import BatchWindow
from bk_spark.bookie.log_files import writer
from bk_spark.bookie.log_files.record import RecordKind
from bk_spark.bookie.storage import open_storage
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.bookie.storage.second_adds import Judgement, SecondAdd
from bk_spark.bookie.storage.shared import ChangeGate
from bk_spark.bookie.storage.stored_ledgers import StoredLedgers
from bk_spark.bookie.storage.write_cache import CachedLedger
from bk_spark.errors import BookKeeperError, CorruptionError
from bk_spark.quorum import IdPattern
from bk_spark.wire.messages import Status
from tests.unit.bookie.harness import HeldBackground
from tests.unit.bookie.storage.storage_case import DENIALS, Cases, Scene, must, must_hold, must_not_lose, must_refuse

CASES = Cases()
LARGE = 2000
"""Payload bytes of an entry; three of them go straight into an entry log."""


# --- rule 1


def look_at_the_greatest_first_id(patch: pytest.MonkeyPatch) -> None:
    begin, overlapping = BatchWindow.__init__, BatchWindow.overlapping

    def from_the_beginning(self, cached, fetch, first, span, deleted_at=0):
        begin(self, cached, fetch, 0, span, deleted_at)

    def nearest(self, first, last):
        batches = overlapping(self, 0, last)
        found = max(batches, key=lambda stored: (stored.first_entry_id, stored.sequence), default=None)
        return [found] if found is not None and found.last_entry_id >= first else []

    patch.setattr(BatchWindow, "__init__", from_the_beginning)
    patch.setattr(BatchWindow, "overlapping", nearest)


@CASES.add(1, look_at_the_greatest_first_id, "the look-up visits every stored batch whose interval may hold the id")
def a_part_of_a_batch_comes_again_in_another_cut(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 99)
    bookie.add(1, 10, 19, recovery=True)
    for _ in range(2):
        must_hold(bookie, 1, 50, 50)
        must_hold(bookie, 1, 0, 99)
        bookie.restart()


def replace_rows_with_the_same_first_id(patch: pytest.MonkeyPatch) -> None:
    add = CachedLedger.add

    def replace_row(self, stored, last_add_confirmed):
        self.batches = [one for one in self.batches if one.first_entry_id != stored.first_entry_id]
        add(self, stored, last_add_confirmed)

    patch.setattr(CachedLedger, "add", replace_row)


@CASES.add(1, replace_rows_with_the_same_first_id, "stored batches are never replaced by their first id")
def the_beginning_of_a_batch_comes_again(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 99)
    bookie.add_over(1, 0, 9)
    must_hold(bookie, 1, 50, 50)


def believe_the_newest_interval(patch: pytest.MonkeyPatch) -> None:
    def newest(batches, entry_id):
        found = max(batches, key=lambda stored: stored.sequence, default=None)
        return found if found is not None and found.holds(entry_id) else None

    patch.setattr(batch_read, "newest_holding", newest)


@CASES.add(1, believe_the_newest_interval, "the look-up goes on behind a stored batch whose pattern lacks the id")
def a_striped_batch_lies_over_an_entry_that_it_lacks(scene: Scene) -> None:
    bookie = scene.started()
    pattern = IdPattern(4, 3, 2)
    lacking = next(one for one in range(1, 99) if not pattern.holds(one))
    bookie.add(1, lacking, lacking)
    bookie.add(1, 0, 98, pattern=pattern)
    must_hold(bookie, 1, lacking, lacking)


def take_an_overlap_for_a_duplicate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SecondAdd, "judge", lambda _, batches: Judgement.STORED if batches else Judgement.STORE)


@CASES.add(1, take_an_overlap_for_a_duplicate, "whether an add is stored already is decided for each of its ids")
def an_add_is_stored_in_part(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 9)
    must(bookie.add(1, 5, 14, recovery=True).status is Status.OK, "it was refused")
    must_hold(bookie, 1, 0, 14)


# --- rule 4


def show_only_what_is_durable(patch: pytest.MonkeyPatch) -> None:
    batches = StoredLedgers.batches

    def durable_batches(self, *interval):
        window = batches(self, *interval)
        window._cached = type(window._cached)(one for one in window._cached if one.sequence <= self._durable_sequence)
        return window

    patch.setattr(StoredLedgers, "batches", durable_batches)


@CASES.add(4, show_only_what_is_durable, "an add has its stored batch in memory from the moment it is staged")
def a_read_meets_an_add_whose_sync_is_pending(scene: Scene) -> None:
    bookie = scene.harness()
    bookie.durable_wait_s = 0
    bookie.start()
    bookie.add(1, 0, 2)
    bookie.stage(bookie.batch(1, 3, 5, size=LARGE))
    end = bookie.read(1, 3, 3)[1]
    (reply,) = bookie.sync()
    must(end.status not in DENIALS or reply.status is not Status.OK, "an add was acked after it had been denied")


def let_a_fence_count_once_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    facts = StoredLedgers._facts

    def late(self, ledger):
        found = facts(self, ledger)
        return replace(found, is_fenced=found.is_durably_fenced)

    patch.setattr(StoredLedgers, "_facts", late)


@CASES.add(4, let_a_fence_count_once_it_is_durable, "a fence refuses adds from the moment it is staged")
def an_add_comes_between_a_fence_and_its_sync(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    bookie.stage_fence(1)
    bookie.stage(bookie.batch(1, 3, 5, size=LARGE))
    fence, add = bookie.sync()
    must(fence.status is Status.OK, "the fence was refused")
    must_refuse(add.status, "behind a fence")


def forget_what_was_not_synced(patch: pytest.MonkeyPatch) -> None:
    sync = LedgerStorage.sync

    def sync_or_forget(self) -> None:
        try:
            sync(self)
        except BookKeeperError:
            for _, ledger in self._layers.active.ledgers():
                ledger.batches = [stored for stored in ledger.batches if stored.sequence <= self._durable_sequence]
            raise

    patch.setattr(LedgerStorage, "sync", sync_or_forget)
    patch.setattr(ChangeGate, "check_denial", lambda _: None)


@CASES.add(4, forget_what_was_not_synced, "after a failed sync its stored batches stay, and nothing is denied (both out)")
def the_sync_of_an_add_fails(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    bookie.disk.fail("sync", "/journal/")
    bookie.stage(bookie.batch(1, 3, 5))
    bookie.sync()
    must_not_lose(bookie, 1, 3)


# --- rule 14


def replay_as_adds_are_taken(patch: pytest.MonkeyPatch) -> None:
    take = open_storage._Replay._take_batch

    def take_unless_fenced(self, found, batch):
        if self._ledger(found, batch.header.ledger_id).fenced_at is None:
            take(self, found, batch)

    patch.setattr(open_storage._Replay, "_take_batch", take_unless_fenced)


@CASES.add(14, replay_as_adds_are_taken, "replay ignores fences")
def entries_that_were_acked_stand_behind_a_fence_in_the_journal(scene: Scene) -> None:
    bookie = scene.started()
    bookie.fence(1)
    bookie.add(1, 0, 2, recovery=True)
    bookie.kill()
    bookie.start()
    must_hold(bookie, 1, 0, 2)


def log_no_master_keys(patch: pytest.MonkeyPatch) -> None:
    pack = writer.pack_batch
    patch.setattr(writer, "pack_batch", lambda place, sequence, batch, _: pack(place, sequence, batch, bytes(24)))


@CASES.add(14, log_no_master_keys, "every record carries the master key")
def a_ledger_begins_with_a_large_add(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 4, size=LARGE)
    bookie.kill()
    bookie.start()
    must_hold(bookie, 1, 0, 4, size=LARGE)


def compare_no_master_keys(patch: pytest.MonkeyPatch) -> None:
    def ledger(self, found, ledger_id):
        known = self._layers.active.ledger(ledger_id)
        return known or self._layers.begin(ledger_id, found.header.master_key_hash, self._index.summary(ledger_id))

    patch.setattr(open_storage._Replay, "_ledger", ledger)


@CASES.add(14, compare_no_master_keys, "two master keys for one ledger are corruption")
def two_writers_with_different_passwords_are_in_the_logs(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    bookie.bookie.storage.put(bookie.batch(1, 3, 5), b"another password")
    bookie.sync()
    bookie.kill()
    try:
        bookie.start()
    except CorruptionError:
        return
    must(not bookie.payloads(1, 3, 5)[0], "entries of one writer are served as those of another")


def replay_no_deletions(patch: pytest.MonkeyPatch) -> None:
    take = open_storage._Replay._take_note

    def take_others(self, found, note):
        if note.kind is not RecordKind.DELETED:
            take(self, found, note)

    patch.setattr(open_storage._Replay, "_take_note", take_others)


@CASES.add(14, replay_no_deletions, "a deletion is a tombstone that hides what has a lower sequence, in whatever log")
def a_deleted_ledger_is_met_by_the_scan(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 4, size=LARGE)
    bookie.delete(1)
    bookie.kill()
    bookie.start()
    must(not bookie.payloads(1, 0, 4)[0], "a deleted ledger came back")


def order_by_reading(patch: pytest.MonkeyPatch) -> None:
    stored_batch, numbers = open_storage.stored_batch, iter(range(1, 1000))
    patch.setattr(open_storage, "stored_batch", lambda batch, _, location: stored_batch(batch, next(numbers), location))


@CASES.add(14, order_by_reading, "the union of all logs is ordered by sequence")
def the_newer_copy_is_in_the_log_that_is_read_first(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 4, tag=1)
    bookie.add_over(1, 0, 4, size=LARGE, tag=2)
    bookie.kill()
    bookie.start()
    must_hold(bookie, 1, 0, 4, size=LARGE, tag=2)


def show_what_lies_before_a_deletion(patch: pytest.MonkeyPatch) -> None:
    start = BatchWindow.__init__
    patch.setattr(
        BatchWindow, "__init__", lambda self, cached, fetch, first, span, _=0: start(self, cached, fetch, first, span)
    )


@CASES.add(14, show_what_lies_before_a_deletion, "what has a lower sequence than the deletion is hidden until it is gone")
def a_ledger_is_deleted_while_a_checkpoint_writes_it_out_and_is_then_recovered(scene: Scene) -> None:
    bookie = scene.harness()
    bookie.background = background = HeldBackground()
    bookie.start()
    bookie.add(1, 0, 9, tag=1)
    bookie.bookie.storage.request_checkpoint()
    bookie.bookie.idle()
    bookie.delete(1)
    bookie.add(1, 2, 4, tag=2, recovery=True)
    for _ in range(2):
        must_hold(bookie, 1, 2, 4, tag=2)
        must(not bookie.payloads(1, 0, 0)[0], "a deleted entry came back")
        background.run()
