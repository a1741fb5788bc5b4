"""Schedules about an index whose files do not hold what was written: docs/rules.md, storage rule 3."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

from bk_spark.bookie.index import sqlite_index, sqlite_tables
from bk_spark.bookie.index.sqlite_tables import Table, Tables
from bk_spark.bookie.index.verification import VerifiedIndex
from bk_spark.bookie.log_files.replay import LogReplay
from bk_spark.bookie.storage import open_storage
from bk_spark.bookie.storage.stored_ledgers import StoredLedgers
from bk_spark.errors import CorruptionError
from tests.unit.bookie.harness import Harness
from tests.unit.bookie.storage.storage_case import Cases, Scene, must_not_lose, must_refuse

CASES = Cases()
LARGE = 2000
"""Payload bytes of an entry; three of them go straight into an entry log."""


def change_index(harness: Harness, *statements: str, values: tuple = ()) -> list[tuple]:
    """Behind the back of a bookie that is stopped."""
    connection = sqlite3.connect(harness.data_dir / "index" / sqlite_index.INDEX_FILE)
    try:
        with connection:
            return [stored for one in statements for stored in connection.execute(one, values).fetchall()]
    finally:
        connection.close()


def deny_without_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VerifiedIndex, "verify_entry", lambda *_: None)


@CASES.add(3, deny_without_proof, "the stored batches of a segment are held against its tally before an entry is denied")
def a_row_vanishes_from_the_index(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 9)
    bookie.add(1, 10, 19, size=LARGE)
    bookie.stop()
    change_index(bookie, "DELETE FROM batches WHERE first_entry_id = 10")
    bookie.start()
    must_not_lose(bookie, 1, 10, size=LARGE)


def read_unverified(patch: pytest.MonkeyPatch, unverified: Table) -> None:
    select = Tables.select

    def select_any(self, table, where="TRUE", values=()):
        if table is not unverified:
            return select(self, table, where, values)
        return self.database.every(f"SELECT * FROM {table.name} WHERE {where}", values)

    patch.setattr(Tables, "select", select_any)


def read_batches_unverified(patch: pytest.MonkeyPatch) -> None:
    read_unverified(patch, sqlite_tables.BATCHES)
    patch.setattr(StoredLedgers, "_read", lambda self, stored: self.log_files.read(stored.location)[1])


@CASES.add(3, read_batches_unverified, "a stored batch has a checksum, and its record must be the one it names (both out)")
def a_row_points_to_another_record(scene: Scene) -> None:
    bookie = scene.started()
    for tag in (1, 2):
        bookie.add_over(1, 0, 4, size=LARGE, tag=tag)
    bookie.stop()
    change_index(bookie, "UPDATE batches SET offset = (SELECT min(offset) FROM batches)")
    bookie.start()
    must_not_lose(bookie, 1, 0, size=LARGE, tag=2)


def believe_any_summary(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VerifiedIndex, "verify_ledger", lambda *_: None)


@CASES.add(3, believe_any_summary, "a summary is held against its bucket before a ledger counts as not fenced")
def a_summary_without_its_fence_comes_back_from_an_older_page(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 4)
    bookie.stop()
    (old,) = change_index(bookie, "SELECT * FROM ledgers")
    bookie.start()
    bookie.fence(1)
    bookie.stop()
    change_index(bookie, f"REPLACE INTO ledgers VALUES ({', '.join('?' * len(old))})", values=old)
    bookie.start()
    must_refuse(bookie.add(1, 5, 9).status, "behind a fence")


@CASES.add(3, believe_any_summary, "a bucket tells how many ledgers it has before one of them is denied")
def a_summary_vanishes(scene: Scene) -> None:
    bookie = scene.started()
    bookie.fence(1)
    bookie.stop()
    change_index(bookie, "DELETE FROM ledgers")
    bookie.start()
    must_refuse(bookie.add(1, 0, 4).status, "behind a fence")


def open_any_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sqlite_index, "check_state", lambda *_: None)
    patch.setattr(open_storage, "problem_of_index", lambda *_: "")
    patch.setattr(LogReplay, "_check_chain", lambda _: None)


@CASES.add(3, open_any_index, "the generation file, the witness and a missing journal tell an older index (all out)")
def an_older_index_takes_the_place_of_the_index(scene: Scene) -> None:
    bookie = scene.started()
    bookie.add(1, 0, 2)
    bookie.stop()
    path = bookie.data_dir / "index" / sqlite_index.INDEX_FILE
    shutil.copy(path, scene.root / "old")
    for ledger_id, first in ((1, 3), (2, 0)):  # the second one lets the journal of the first go
        bookie.start()
        bookie.add(ledger_id, first, first + 2)
        bookie.stop()
    shutil.copy(scene.root / "old", path)
    try:
        bookie.start()
    except CorruptionError:
        return
    must_not_lose(bookie, 1, 3)


def read_summaries_unverified(patch: pytest.MonkeyPatch) -> None:
    read_unverified(patch, sqlite_tables.LEDGERS)
    believe_any_summary(patch)


@CASES.add(3, read_summaries_unverified, "a summary has a checksum, and is held against its bucket (both out)")
def a_bit_flips_in_the_flags_of_a_ledger(scene: Scene) -> None:
    bookie = scene.started()
    bookie.fence(1)
    bookie.stop()
    change_index(bookie, "UPDATE ledgers SET flags = 0")
    bookie.start()
    must_refuse(bookie.add(1, 0, 4).status, "behind a fence")
