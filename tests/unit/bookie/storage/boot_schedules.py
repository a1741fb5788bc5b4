"""Schedules about boots, and what a bookie says that may have lost something: docs/rules.md, storage rules 9, 11, 12 and 13."""

from __future__ import annotations

import os
import shutil

import pytest

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK, DirectoryLock, Disk
from bk_spark.bookie.identity import boot, cookie
from bk_spark.bookie.identity.boot_file import BootPhase, BootRecord
from bk_spark.bookie.identity.cookie import format_bookie
from bk_spark.bookie.identity.cookie_file import encode_stored
from bk_spark.bookie.index import values
from bk_spark.bookie.index.values import Limbo
from bk_spark.bookie.inspection import rebuild_index
from bk_spark.bookie.log_files.record import RecordKind
from bk_spark.bookie.storage import open_storage
from bk_spark.errors import ConfigError, MetadataConflictError
from bk_spark.wire.messages import Status
from tests.unit.bookie.harness import BOOKIE_ID
from tests.unit.bookie.identity.bookie_home import QUICK_DISK, ZNODES, Home
from tests.unit.bookie.storage.storage_case import (
    WATERMARK,
    Cases,
    Life,
    Scene,
    Violated,
    let_go,
    must,
    must_hold,
    must_not_lose,
    must_refuse,
)

CASES = Cases()


# --- rule 9


def accept_any_boot_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BootRecord, "fits", lambda *_: True)


@CASES.add(9, accept_any_boot_number, "a boot number that does not fit is the loss of a disk")
def a_disk_is_restored_from_a_snapshot(scene: Scene) -> None:
    life = Life(scene)
    life.boot().add(1, 0, 2)
    life.stop()
    restore = life.home.snapshot(life.home.data)
    life.boot().add(1, 3, 5)
    life.stop()
    restore()
    try:
        bookie = life.boot()
    except ConfigError:
        return
    must_not_lose(bookie, 1, 3)


def win_every_race(patch: pytest.MonkeyPatch) -> None:
    def write(store, znodes, stored, _) -> None:
        path = znodes.cookie(stored.bookie_id)
        store.set(path, encode_stored(stored), store.get(path).version)

    patch.setattr(boot.cookie_file, "write_znode", write)


@CASES.add(9, win_every_race, "the boot number is compared and set, and who loses exits")
def a_bookie_and_its_clone_are_started_together(scene: Scene) -> None:
    home = Home(scene.root / "home", disks=False)
    seen_by_both = home.examine()
    home.boot()
    try:
        home.boot(identity=seen_by_both)
    except MetadataConflictError:
        return
    raise Violated("two processes run as one bookie: each denies what the other one acks")


def lock_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Disk, "lock", lambda _, path: DirectoryLock(os.open(path, os.O_RDONLY)))


@CASES.add(9, lock_nothing, "every directory is locked")
def two_processes_are_started_on_the_same_directories(scene: Scene) -> None:
    root = scene.root / "root"
    root.mkdir()
    with cookie.locked([root], REAL_DISK):
        try:
            with cookie.locked([root], REAL_DISK):
                raise Violated("two processes write to the same files")
        except ConfigError:
            return


def believe_the_present_mode(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(boot, "_lost_by_the_last_run", lambda _: ())


@CASES.add(9, believe_the_present_mode, "the unclean mark of a run without the journal is obeyed whatever the mode is now")
def a_run_without_the_journal_crashes_and_the_next_one_has_it(scene: Scene) -> None:
    life = Life(scene)
    life.boot(journal_write_data=False).add(1, 0, 2)
    life.kill()
    must_not_lose(life.boot(), 1, 0)


def forget_the_loss_at_the_next_boot(patch: pytest.MonkeyPatch) -> None:
    change = boot.replace

    def change_without(record, **fields):
        if fields.get("phase") is BootPhase.RUNNING:
            fields["skipped_journal"] = False
        return change(record, **fields)

    patch.setattr(boot, "replace", change_without)


@CASES.add(9, forget_the_loss_at_the_next_boot, "a boot notes the loss that it met until its limbo is durable")
def a_run_without_the_journal_crashes_and_so_does_the_next_boot(scene: Scene) -> None:
    life = Life(scene)
    life.boot(journal_write_data=False).add(1, 0, 2)
    life.kill()
    life.home.configure(journal_write_data=True)
    life.home.boot()  # and is killed before the storage is opened
    must_not_lose(life.boot(), 1, 0)


def take_the_id_that_was_chosen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cookie, "_new_id", lambda prefix, _: prefix)


@CASES.add(9, take_the_id_that_was_chosen, "an id that a user chose has a random suffix too")
def a_bookie_is_formatted_anew_under_its_old_name(scene: Scene) -> None:
    home = Home(scene.root / "home", disks=False)
    home.store.delete(ZNODES.cookie(home.bookie_id), home.store.get(ZNODES.cookie(home.bookie_id)).version)
    anew = Directories.of(scene.root / "anew", home.config)
    again = format_bookie(anew, home.store, ZNODES, "h:1", disk=QUICK_DISK)
    must(again != home.bookie_id, "an empty bookie denies what the one before it had, in its name")


def take_a_repair_for_no_loss(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(boot, "_lost_directories", lambda _: ())


@CASES.add(9, take_a_repair_for_no_loss, "a directory that was repaired is a loss")
def a_disk_is_lost_and_its_cookie_repaired(scene: Scene) -> None:
    life = Life(scene)
    life.boot().add(1, 0, 2)
    life.stop()
    life.home.lose(life.home.data)
    life.home.fix(bookie_id=life.home.bookie_id)
    must_not_lose(life.boot(), 1, 0)


# --- rule 11


def know_of_no_limbo(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limbo, "holds", lambda *_: False)


@CASES.add(11, know_of_no_limbo, "ledgers up to the watermark are not denied, listed or not")
def a_bookie_that_lost_its_disk_is_asked_for_what_it_had(scene: Scene) -> None:
    bookie = scene.started(fence_watermark=WATERMARK)
    must_not_lose(bookie, 5, 0)
    bookie.add(5, 0, 2, recovery=True)
    must_not_lose(bookie, 5, 3)


@CASES.add(11, know_of_no_limbo, "ledgers up to the watermark take no normal adds")
def a_bookie_that_lost_its_disk_is_written_to_by_one_whom_it_had_fenced(scene: Scene) -> None:
    bookie = scene.started()
    bookie.fence(5)
    let_go(bookie)
    lost = scene.started(fence_watermark=WATERMARK)
    must_refuse(lost.add(5, 0, 2).status, "behind a fence that was lost")
    must(lost.add(5, 0, 2, recovery=True).status is Status.OK, "recovery adds are exempt")


@CASES.add(11, know_of_no_limbo, "ledgers up to the watermark have no last add confirmed")
def a_bookie_that_lost_its_disk_is_asked_how_far_a_ledger_is_confirmed(scene: Scene) -> None:
    bookie = scene.started(fence_watermark=WATERMARK)
    bookie.add(5, 0, 0, recovery=True)
    must(bookie.confirmed(5).status is Status.UNKNOWN, "a last add confirmed was given that may be older than what was lost")


def forget_limbo(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(values, "_packed_limbo", lambda _: b"")


@CASES.add(11, forget_limbo, "limbo is stored in the index before anything is served")
def a_bookie_in_limbo_is_killed_before_it_was_repaired(scene: Scene) -> None:
    bookie = scene.started(fence_watermark=WATERMARK)
    bookie.add(5, 0, 2, recovery=True)
    bookie.kill()
    bookie.start()
    must_not_lose(bookie, 5, 3)
    must_refuse(bookie.add(6, 0, 2).status, "behind a fence that may be lost")


# --- rule 12


def take_every_crash_for_a_loss(patch: pytest.MonkeyPatch) -> None:
    def by_phase(identity):
        if boot._former(identity).phase is BootPhase.RUNNING:
            yield "it did not end cleanly"

    patch.setattr(boot, "_lost_by_the_last_run", by_phase)


@CASES.add(12, take_every_crash_for_a_loss, "an unclean end alone, with the journal, is no loss")
def a_bookie_with_its_journal_is_killed_and_a_live_writer_goes_on(scene: Scene) -> None:
    life = Life(scene)
    life.boot().add(1, 0, 2)
    life.kill()
    bookie = life.boot()
    must_hold(bookie, 1, 0, 2)
    must(bookie.add(1, 3, 5).status is Status.OK, "a live writer is refused after a mere crash")


def replay_no_fences(patch: pytest.MonkeyPatch) -> None:
    take = open_storage._Replay._take_note

    def take_others(self, found, note):
        if note.kind is not RecordKind.FENCE:
            take(self, found, note)

    patch.setattr(open_storage._Replay, "_take_note", take_others)


@CASES.add(12, replay_no_fences, "replay restores fences")
def a_bookie_with_its_journal_is_killed_after_a_fence(scene: Scene) -> None:
    life = Life(scene)
    life.boot().add(1, 0, 2)
    life.bookie.fence(1)
    life.kill()
    must_refuse(life.boot().add(1, 3, 5).status, "behind a fence")


# --- rule 13


def believe_any_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(boot, "_lost_index", lambda *_: ())
    patch.setattr(open_storage, "problem_of_index", lambda *_: "")


@CASES.add(13, believe_any_index, "boot file and witness tell an index of another incarnation (both out)")
def an_index_is_rebuilt_and_the_journal_of_a_fence_is_gone(scene: Scene) -> None:
    life = Life(scene)
    life.boot().add(1, 0, 2)
    life.bookie.fence(1)
    for ledger_id in (2, 3):  # let the journal of the fence go
        life.stop()
        life.boot().add(ledger_id, 0, 2)
    life.stop()
    rebuild(life)
    must_refuse(life.boot().add(1, 3, 5).status, "behind a fence that the new index does not know")
    must_hold(life.bookie, 1, 0, 2)


def rebuild_without_deletions(patch: pytest.MonkeyPatch) -> None:
    read = rebuild_index._Rebuild._read_journal

    def read_and_forget(self, found) -> None:
        read(self, found)
        self._deletions.clear()

    patch.setattr(rebuild_index._Rebuild, "_read_journal", read_and_forget)
    patch.setattr("bk_spark.bookie.storage.write_cache.CachedLedger.delete", lambda *_: None)


@CASES.add(
    13,
    rebuild_without_deletions,
    "a deletion in a journal keeps batches out of the new index, and replay hides them (both out)",
)
def an_index_is_rebuilt_from_logs_with_a_deleted_ledger(scene: Scene) -> None:
    life = Life(scene)
    life.boot().add(1, 0, 0, size=5000)
    life.bookie.delete(1)
    life.kill()
    rebuild(life)
    must(not life.boot().payloads(1, 0, 0)[0], "a deleted ledger came back")


def skip_the_journals(patch: pytest.MonkeyPatch) -> None:
    mark = rebuild_index._Rebuild._mark

    def mark_at_their_ends(self, journals, *more):
        found = mark(self, journals, *more)
        ends = tuple(rebuild_index.FilePosition(files[-1].log.file_id, files[-1].log.size_bytes) for files in journals)
        return rebuild_index.replace(found, journals=ends)

    patch.setattr(rebuild_index._Rebuild, "_mark", mark_at_their_ends)


@CASES.add(13, skip_the_journals, "behind a new index all journals that exist are replayed")
def an_index_is_rebuilt_after_a_crash(scene: Scene) -> None:
    life = Life(scene)
    life.boot().add(1, 0, 2)
    life.kill()
    rebuild(life)
    must_hold(life.boot(), 1, 0, 2)


def rebuild(life: Life) -> None:
    shutil.rmtree(life.home.data / "index")
    rebuild_index.rebuild_index(life.home.directories, BOOKIE_ID, REAL_DISK, lambda *_: None)
