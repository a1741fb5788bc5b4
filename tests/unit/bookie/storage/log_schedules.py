"""Schedules about logs, their damage and their syncs: docs/rules.md, storage rules 2, 6, 7 and 15."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie import bookie as bookie_module
from bk_spark.bookie.disk import AppendFile
from bk_spark.bookie.identity.boot import Boot
from bk_spark.bookie.log_files import scan
from bk_spark.bookie.log_files.all_log_files import LogFiles
from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES, Predecessor
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES, Place
from bk_spark.bookie.log_files.replay import LogReplay
from bk_spark.bookie.log_files.scan import Gap, LogScan
from bk_spark.bookie.log_files.witness import NOTHING, FoundWitness
from bk_spark.bookie.storage import open_storage as replay_module
from bk_spark.bookie.storage.shared import ChangeGate
from bk_spark.errors import BookKeeperError, CorruptionError, StorageError
from bk_spark.wire.messages import AddRequest, Status
from tests.unit.bookie.harness import Harness
from tests.unit.bookie.log_files.log_home import make_batch
from tests.unit.bookie.storage.storage_case import (
    WATERMARK,
    Cases,
    Life,
    Scene,
    Violated,
    deny_what_fails_to_be_read,
    flip,
    let_go,
    must,
    must_hold,
    must_not_lose,
)

CASES = Cases()


def journal_of(harness: Harness) -> Path:
    return harness.files("journal")[0]


def start_after_damage(harness: Harness) -> None:
    """As a process does it, which knows the highest ledger id that was issued."""
    harness.highest_issued = lambda: WATERMARK
    harness.start()


# --- rule 2


def write_nothing_when_idle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogFiles, "idle", lambda _: None)


@CASES.add(2, write_nothing_when_idle, "an idle bookie writes a record from which D catches up")
def the_last_acked_record_rots_and_looks_torn(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    start = journal_of(bookie).stat().st_size
    bookie.add(1, 3, 5)
    end = journal_of(bookie).stat().st_size
    bookie.bookie.idle()
    bookie.kill()
    bookie.forget_witness()
    data = journal_of(bookie).read_bytes()
    journal_of(bookie).write_bytes(data[:start] + bytes(end - start) + data[end:])
    start_after_damage(bookie)
    must_hold(bookie, 1, 0, 2)
    must_not_lose(bookie, 1, 3)


def take_every_bad_end_for_a_tear(patch: pytest.MonkeyPatch) -> None:
    gap = LogScan._gap

    def torn(self, search_from: int, problem: str, _: bool) -> Gap:
        return gap(self, search_from, problem, looks_torn=True)

    patch.setattr(LogScan, "_gap", torn)


@CASES.add(2, take_every_bad_end_for_a_tear, "above D only what a power cut leaves is a tear, anything else a possible loss")
def a_bit_flips_in_the_last_acked_record(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(2, 0, 2)
    start = journal_of(bookie).stat().st_size
    bookie.add(1, 0, 2)
    bookie.kill()
    bookie.forget_witness()
    flip(journal_of(bookie), start + RECORD_HEADER_BYTES + 5)
    start_after_damage(bookie)
    must_not_lose(bookie, 1, 0)


def begin_no_limbo_for_damage(patch: pytest.MonkeyPatch) -> None:
    begin = replay_module._new_limbo
    patch.setattr(replay_module, "_new_limbo", lambda highest, start, told, _: begin(highest, start, told, ()))


@CASES.add(2, begin_no_limbo_for_damage, "damage that replay met begins limbo")
def the_header_of_a_fence_is_unreadable(scene: Scene) -> None:
    bookie = scene.started()
    bookie.fence(1)
    bookie.add(2, 0, 2)
    bookie.kill()
    flip(journal_of(bookie), FILE_HEADER_BYTES + 50)
    start_after_damage(bookie)
    must_hold(bookie, 2, 0, 2)
    must(bookie.add(1, 0, 2).status is not Status.OK, "an add was acked behind a fence")


def adopt_records_of_any_place(patch: pytest.MonkeyPatch) -> None:
    unpack = scan.unpack

    def unpack_anywhere(data: bytes, what: str, salt: int, offset: int):
        header = unpack(data, what, *struct.unpack_from("<QQ", data.ljust(RECORD_HEADER_BYTES), 16))
        return replace(header, place=Place(salt, offset, header.place.synced_through))

    patch.setattr(scan, "may_begin_record", lambda *_: True)
    patch.setattr(scan, "unpack", unpack_anywhere)


@CASES.add(2, adopt_records_of_any_place, "a record counts only with its file's salt and its own offset")
def a_user_has_stored_a_bookie_file_as_payload(scene: Scene) -> None:
    stored = scene.started(direct_add_bytes=1 << 20)
    for ledger_id in (5, 5, 1):  # sequences that are new to the other bookie
        stored.add(ledger_id, 0, 2, tag=9)
    let_go(stored)
    payload = journal_of(stored).read_bytes()
    bookie = scene.started(direct_add_bytes=1 << 20)
    bookie.add(1, 0, 2, tag=1)
    start = journal_of(bookie).stat().st_size
    bookie.stage(make_batch(7, 0, 0, len(payload), payload))
    bookie.sync()
    bookie.kill()
    flip(journal_of(bookie), start + 50)
    start_after_damage(bookie)
    must_hold(bookie, 1, 0, 2, tag=1)


@CASES.add(2, deny_what_fails_to_be_read(CorruptionError), "a damaged record is not an absent one")
def a_record_rots_that_the_index_knows(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2, size=2000)
    bookie.restart()
    flip(bookie.files("entry_log")[0], FILE_HEADER_BYTES + RECORD_HEADER_BYTES + 500)
    must_not_lose(bookie, 1, 0, size=2000)


# --- rule 6


def ack_duplicates_at_once(patch: pytest.MonkeyPatch) -> None:
    stage = bookie_module.Bookie.stage

    def stage_or_ack(self, request, reply_to) -> None:
        before = self.storage.log_files.sequences.next_sequence
        stage(self, request, reply_to)
        if isinstance(request, AddRequest) and self.storage.log_files.sequences.next_sequence == before:
            self._early.append(self._staged.pop())

    patch.setattr(bookie_module.Bookie, "stage", stage_or_ack)


@CASES.add(6, ack_duplicates_at_once, "a duplicate joins the pending sync of the first copy")
def an_add_that_is_staged_is_sent_again_and_the_power_fails(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    for _ in range(2):
        bookie.stage(bookie.batch(1, 3, 5))
    acked = any(reply.status is Status.OK for reply in bookie.early())
    bookie.power_off()
    bookie.start()
    if acked:
        must_hold(bookie, 1, 3, 5)


def forget_failures(patch: pytest.MonkeyPatch) -> None:
    def attempt(self, verb: str, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except OSError as problem:
            raise StorageError(f"{verb} {self.path}", str(problem)) from problem

    patch.setattr(AppendFile, "_attempt", attempt)
    patch.setattr(ChangeGate, "check", lambda _: None)


@CASES.add(6, forget_failures, "a failed sync poisons its file and closes the gate for all changes (both out)")
def a_failed_sync_is_tried_again_and_returns_without_an_error(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    durable = journal_of(bookie).stat().st_size
    bookie.disk.fail("sync", "/journal/")
    bookie.stage(bookie.batch(1, 3, 5))
    bookie.sync()
    bookie.disk.failing.clear()
    left = journal_of(bookie).read_bytes()
    journal_of(bookie).write_bytes(left[:durable] + bytes(len(left) - durable))  # the kernel gives up what it could not write
    acked = bookie.add(1, 3, 5).status is Status.OK
    let_go(bookie)
    start_after_damage(bookie)
    if acked:
        must_hold(bookie, 1, 3, 5)


def deny_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ChangeGate, "check_denial", lambda _: None)


@CASES.add(6, deny_after_a_failure, "after a failed write nothing is denied: the next start may find it")
def a_write_fails_and_what_it_brought_is_asked_for(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 0, size=5000)
    bookie.disk.fail("write", "/entry_log/")
    bookie.stage(bookie.batch(1, 1, 1, size=1_200_000))
    bookie.sync()
    must_not_lose(bookie, 1, 1)


def note_no_failed_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Boot, "note_failed_sync", lambda _: None)


@CASES.add(6, note_no_failed_sync, "the boot after a failed sync counts as unclean")
def a_sync_fails_and_the_disk_has_lost_more_than_was_thought(scene: Scene) -> None:
    life = Life(scene)
    bookie = life.boot()
    bookie.add(2, 0, 2)
    start = journal_of(bookie).stat().st_size
    bookie.add(1, 0, 2)
    life.note_failed_sync()
    life.kill()
    bookie.forget_witness()
    data = journal_of(bookie).read_bytes()
    journal_of(bookie).write_bytes(data[:start].ljust(len(data), b"\0"))
    must_not_lose(life.boot(), 1, 0)


# --- rule 7


def leave_torn_files(patch: pytest.MonkeyPatch) -> None:
    def finish(self) -> Predecessor:
        file_id = next(reversed(self._headers), 0)
        return Predecessor(file_id, self._last.end if self._last else 0, file_id)

    patch.setattr(LogReplay, "finish", finish)


@CASES.add(7, leave_torn_files, "replay cuts a torn file at its last good record, seals and syncs it")
def two_crashes_follow_each_other(scene: Scene) -> None:
    bookie = scene.started()
    for ledger_id in (1, 2):
        bookie.add(ledger_id, 0, 2)
        bookie.kill()
        with bookie.files("journal")[-1].open("ab") as file:
            file.write(bytes(70))
        try:
            bookie.start()
        except BookKeeperError as problem:
            raise Violated("a bookie that merely crashed does not start") from problem
    must_hold(bookie, 1, 0, 2)
    must_hold(bookie, 2, 0, 2)


def stop_at_the_first_gap(patch: pytest.MonkeyPatch) -> None:
    items = LogScan.items

    def first_items(self):
        for item in items(self):
            yield item
            if isinstance(item, Gap):
                return

    patch.setattr(LogScan, "items", first_items)


@CASES.add(7, stop_at_the_first_gap, "the scan goes on behind what it cannot read")
def records_of_another_ledger_stand_behind_a_tear(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    bookie.add(2, 0, 2)
    bookie.kill()
    flip(journal_of(bookie), FILE_HEADER_BYTES + 50)
    start_after_damage(bookie)
    must_hold(bookie, 2, 0, 2)


def ignore_successors(patch: pytest.MonkeyPatch) -> None:
    judged = LogReplay._judged
    patch.setattr(LogReplay, "_judged", lambda self, file_id, gaps, size, _: judged(self, file_id, gaps, size, 0))
    patch.setattr(LogReplay, "_check_sealed", lambda *_: None)


@CASES.add(
    7, ignore_successors, "a file that is not the last must be as its successor says, in length and at its end (both out)"
)
def a_file_that_is_not_the_last_loses_its_end(scene: Scene) -> None:
    bookie = scene.started(journal_file_bytes=4500)
    for first in range(3):
        bookie.add(1, first, first)
    bookie.kill()
    path = bookie.files("journal")[1]
    path.write_bytes(path.read_bytes()[: -RECORD_HEADER_BYTES - 20])
    try:
        start_after_damage(bookie)
    except CorruptionError:
        return
    must_not_lose(bookie, 1, 1)


# --- rule 15


def believe_what_is_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replay_module, "find_witness", lambda *_, **__: FoundWitness(NOTHING, ""))


@CASES.add(15, believe_what_is_there, "the witness names the newest file")
def the_newest_journal_vanishes_before_the_first_checkpoint(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    bookie.kill()
    journal_of(bookie).unlink()
    start_after_damage(bookie)
    must_not_lose(bookie, 1, 0)


@CASES.add(15, believe_what_is_there, "the witness knows how much of the newest file was durable")
def the_last_large_add_is_cut_off(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2, size=2000)
    (log,) = bookie.files("entry_log")
    first = log.stat().st_size
    bookie.add(1, 3, 5, size=2000)
    bookie.kill()
    os.truncate(bookie.files("entry_log")[0], first)
    start_after_damage(bookie)
    must_not_lose(bookie, 1, 3, size=2000)


@CASES.add(15, believe_what_is_there, "the witness tells the generation of the index outside of it")
def an_index_goes_back_with_its_generation_file_to_before_a_limbo(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    bookie.stop()
    older = {path: path.read_bytes() for path in bookie.files("index")}
    bookie.start(fence_watermark=WATERMARK)
    bookie.stop()
    for path, data in older.items():
        path.write_bytes(data)
    start_after_damage(bookie)
    must_not_lose(bookie, 1, 3)
