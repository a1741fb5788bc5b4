"""Schedules about entry logs that are compacted and deleted: docs/rules.md, storage rule 5."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie.index.sqlite_tables import BATCHES
from bk_spark.bookie.index.sqlite_transaction import Transaction
from bk_spark.bookie.log_files import all_log_files
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogState
from bk_spark.bookie.space.compaction import _Copying
from bk_spark.bookie.storage.stored_ledgers import StoredLedgers
from bk_spark.errors import MissingLogError, StorageError
from tests.simulation.engines.choices import TapeChoices
from tests.simulation.world.simulated_disk import MachineStops, SimulatedDisk
from tests.unit.bookie.log_files.log_home import LARGE, LogHome
from tests.unit.bookie.space.gc_bookie import CollectedBookie, payload
from tests.unit.bookie.storage.storage_case import Cases, Scene, Violated, deny_what_fails_to_be_read, must, must_not_lose

CASES = Cases()


def must_be_right(bookie: CollectedBookie) -> None:
    """All that was written is there, in the right bytes, and nothing that was deleted."""
    for ledger_id, written in bookie.ledgers.items():
        wanted = {one: payload(ledger_id, one, batch.size) for batch in written for one in range(batch.first, batch.last + 1)}
        found, end = bookie.payloads(ledger_id, max(wanted, default=0))
        must(bool(wanted) or not found, f"ledger {ledger_id} came back")
        must(found == wanted, f"ledger {ledger_id} has lost something: {end}")


def collect_every_closed_file(patch: pytest.MonkeyPatch) -> None:
    def on_disk(self) -> list[KnownEntryLog]:
        (directory,) = self.log_files._directories
        return [KnownEntryLog(one, 0, LogState.SEALED, 1 << 20, 0) for one in directory.file_ids()[:-1]]

    patch.setattr(StoredLedgers, "entry_logs", on_disk)
    patch.setattr(Transaction, "bury", lambda *_: True)


@CASES.add(
    5,
    collect_every_closed_file,
    "a log is collected only once the index has it as sealed, in choosing and in burying (both out)",
)
def a_log_rolls_whose_rows_are_in_memory_only(scene: Scene) -> None:
    bookie = CollectedBookie()
    bookie.fill(1, entries=30)
    bookie.compact()
    must_be_right(bookie)
    bookie.kill()
    must_be_right(bookie)


def insert_moved_rows(patch: pytest.MonkeyPatch) -> None:
    def move(self, stored, place) -> None:
        if self._tables.find(BATCHES, (stored.ledger_id, stored.first_entry_id, stored.sequence)) is not None:
            self.remove(stored)
        edit = self._edit(stored.ledger_id)
        edit.after = replace(edit.after, highest_entry_id=1 << 20, max_span=1 << 10, deleted_at=0)
        self._insert(edit, [replace(stored, location=place)])

    patch.setattr(Transaction, "move", move)


@CASES.add(5, insert_moved_rows, "compaction only updates stored batches that are there, below no deletion (both out)")
def a_ledger_is_deleted_while_its_records_are_copied(scene: Scene) -> None:
    bookie = CollectedBookie()
    bookie.fill_mixed()
    asked = iter(range(1000))

    def delete_meanwhile() -> bool:
        if next(asked) == 5:
            bookie.delete(3)
            bookie.checkpoint()
        return True

    bookie.compact(0.8, delete_meanwhile)
    must_be_right(bookie)
    must(bookie.batches(3) == [], "stored batches of a deleted ledger are back")


def enter_copies_unsynced(patch: pytest.MonkeyPatch) -> None:
    def enter(self, emptied: int = 0) -> bool:
        if self._copies is not None:
            for writer in self._copies._writers:
                writer.write()
        is_dead: bool = self._move(emptied)
        self._moves, self._moves_bytes = [], 0
        return is_dead

    patch.setattr(_Copying, "enter", enter)


@CASES.add(5, enter_copies_unsynced, "copies are synced before the index refers to them")
def the_power_fails_right_after_a_compacted_log_is_unlinked(scene: Scene) -> None:
    bookie = CollectedBookie()
    bookie.fill_mixed()
    disk = bookie.disk

    def unlink_and_stop(path: Path) -> None:
        SimulatedDisk.unlink(disk, path)
        SimulatedDisk.sync_directory(disk, path.parent)
        raise MachineStops

    disk.unlink = unlink_and_stop  # type: ignore[method-assign]
    try:
        bookie.compact()
    except MachineStops:
        pass
    else:
        raise AssertionError("nothing was unlinked")
    del disk.unlink  # type: ignore[method-assign]
    disk.crash_machine(TapeChoices([]), may_garble=False)
    bookie.start()
    must_be_right(bookie)


def look_up_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredLedgers, "get", lambda self, stored: stored.batch or self._read(stored))


@CASES.add(5, look_up_once, "a stored batch whose log is gone is looked up once more")
def a_log_is_compacted_between_the_look_up_and_the_read(scene: Scene) -> None:
    bookie = CollectedBookie()
    bookie.fill_mixed()
    storage = bookie.bookie.storage
    batches = storage.batches_from((-1, -1, -1), 1000)
    bookie.compact()
    for stored in batches:
        try:
            storage.get(stored)
        except StorageError as problem:
            raise Violated("a stored batch was not found") from problem


@CASES.add(5, deny_what_fails_to_be_read(MissingLogError), "what was in a log that is gone is unknown")
def a_log_is_gone(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2, size=2000)
    bookie.restart()
    bookie.files("entry_log")[0].unlink()
    must_not_lose(bookie, 1, 0, size=2000)


def count_ids_from_the_directory(patch: pytest.MonkeyPatch) -> None:
    def next_id(replays, *_):
        return max([0, *(file_id for one in replays for file_id in one.directory.file_ids())]) + 1

    patch.setattr(all_log_files, "_next_id", next_id)


@CASES.add(5, count_ids_from_the_directory, "ids go on above those of the directory, the index and the mark")
def the_last_log_is_deleted_and_another_one_begins(scene: Scene) -> None:
    home = LogHome(scene.root / "home", entry_log_file_bytes=30_000)
    home.directories.data_dir.mkdir()
    home.open()
    for first in range(4):
        home.add(1, first, first, LARGE)
    home.logs.seal()
    home.commit()
    home.forget(max(home.known))
    home.kill().open()
    home.add(1, 4, 4, LARGE)
    home.kill().open()
    must((1, 4, 4) in home.ids(), "the file of the mark was begun anew, and what was acked lies before the mark")
