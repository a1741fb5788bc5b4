"""The index against flipped bits, old copies and newer versions. Ref: docs/rules.md, storage rule 3."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3

import pytest

from bk_spark.bookie.index_rows import BatchRow, LogMark
from bk_spark.bookie.ledger_index import LedgerChange
from bk_spark.bookie.log_file import LogPosition
from bk_spark.bookie.log_writer import EntryLocation
from bk_spark.bookie.sqlite_index import GENERATION_FILE, INDEX_FILE, open_index
from bk_spark.checksum import crc32c
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire import Status

KEY = bytes(range(16))


def _row(ledger_id, first, last, sequence, pattern=DENSE):
    return BatchRow(ledger_id, first, last, sequence, pattern, 77, EntryLocation(1, 4096 * sequence, 200))


@pytest.fixture
def open_it(harness):
    def opened(**more):
        return open_index(harness.data_dir, "bookie-1", harness.disk, **{"logs_exist": False, **more})

    return opened


def test_rows_summary_and_mark_come_back(open_it):
    index = open_it()
    rows = [_row(1, 0, 9, 1), _row(1, 0, 9, 4), _row(1, 5, 30, 2, IdPattern(4, 3, 2)), _row(1, 10, 19, 3)]
    mark = LogMark(9, 3, 2, LogPosition(2, 5000), LogPosition(1, 9000))
    index.commit([LedgerChange(1, KEY, 17, [rows[2], rows[0], rows[3], rows[1]])], mark)
    index.close()
    index = open_it()
    assert index.rows(1, (-1, 0), 10) == rows
    assert index.rows(1, (0, 1), 2) == rows[1:3]
    assert index.mark == mark
    summary = index.summary(1)
    assert (summary.row_count, summary.max_span, summary.highest_entry_id, summary.last_add_confirmed) == (4, 26, 30, 17)
    assert summary.master_key_hash == KEY
    assert index.summary(2) is None
    index.verify_ledger(1)
    index.verify_ledger(2)
    index.close()


def test_a_fence_and_a_last_add_confirmed_stay_whatever_is_committed_later(open_it):
    index = open_it()
    index.commit([LedgerChange(1, KEY, 17, [], is_fenced=True), LedgerChange(2, KEY, 0, [])], LogMark(next_sequence=2))
    index.commit([LedgerChange(1, KEY, 3, [_row(1, 0, 9, 2)])], LogMark(next_sequence=3))
    index.close()
    index = open_it()
    assert (index.summary(1).is_fenced, index.summary(1).last_add_confirmed) == (True, 17)
    assert not index.summary(2).is_fenced
    index.close()


def test_a_commit_that_fails_leaves_rows_and_mark_as_they_were(open_it):
    index = open_it()
    index.commit([LedgerChange(1, KEY, 0, [_row(1, 0, 9, 1)])], LogMark(next_sequence=2))
    with pytest.raises(CorruptionError):
        index.commit([LedgerChange(1, KEY, 0, [_row(1, 10, 19, 2), _row(1, 0, 9, 1)])], LogMark(next_sequence=3))
    assert index.rows(1, (-1, 0), 10) == [_row(1, 0, 9, 1)]
    assert index.mark.next_sequence == 2
    index.verify_ledger(1)
    index.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM batches WHERE first_entry_id = 10",
        "UPDATE batches SET first_entry_id = 11 WHERE first_entry_id = 10",
        "UPDATE batches SET offset = offset + 4096 WHERE first_entry_id = 10",
        "UPDATE batches SET ledger_id = 3 WHERE first_entry_id = 10",
        "UPDATE batches SET last_entry_id = NULL WHERE first_entry_id = 10",
        "UPDATE ledgers SET max_span = 1 WHERE ledger_id = 1",
        "UPDATE ledgers SET flags = 1 - flags WHERE ledger_id = 1",
        "DELETE FROM ledgers WHERE ledger_id = 1",
    ],
)
def test_what_is_changed_behind_its_back_is_found_before_anything_is_denied(open_it, harness, statement):
    index = open_it()
    changes = [LedgerChange(one, KEY, 0, [_row(one, 0, 9, one * 10), _row(one, 10, 19, one * 10 + 1)]) for one in (1, 2)]
    index.commit(changes, LogMark(next_sequence=99))
    index.close()
    with sqlite3.connect(harness.data_dir / INDEX_FILE) as connection:
        connection.execute(statement + ("" if "ledgers" in statement else " AND ledger_id = 1"))
    connection.close()
    with pytest.raises(CorruptionError, match=INDEX_FILE):  # noqa: PT012
        index = open_it(logs_exist=True)
        try:
            index.verify_ledger(1)
        finally:
            index.close()


def test_flipped_bits_never_deny_an_entry_nor_give_a_wrong_one(harness):
    harness.start()
    for ledger_id in (1, 2):
        for first in range(0, 180, 3):
            harness.stage(harness.batch(ledger_id, first, first + 2))
    harness.sync()
    harness.stop()
    path = harness.data_dir / "index" / INDEX_FILE
    data = path.read_bytes()
    chosen = random.Random(1)
    caught = 0
    for _ in range(60):
        flipped = bytearray(data)
        flipped[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        path.write_bytes(flipped)
        caught += _is_caught(harness)
    assert caught > 5
    path.write_bytes(data)


def _is_caught(harness):
    generation = (harness.data_dir / "index" / GENERATION_FILE).read_bytes()
    try:
        harness.start()
    except BookKeeperError:
        return True
    try:
        for ledger_id, first in ((1, 0), (2, 90), (1, 179)):
            _, end = harness.payloads(ledger_id, first, 179)
            if end.status is not Status.OK:
                assert end.status is Status.DAMAGED, end
                return True
        harness.assert_holds(1, 0, 179)
        return False
    finally:
        with contextlib.suppress(BookKeeperError):
            harness.stop()
        (harness.data_dir / "index" / GENERATION_FILE).write_bytes(generation)


def test_an_index_that_is_older_than_its_generation_file_is_refused(harness):
    harness.start()
    harness.add(1, 0, 2)
    harness.stop()
    path = harness.data_dir / "index" / INDEX_FILE
    shutil.copy(path, harness.data_dir / "old")
    harness.start()
    harness.add(1, 3, 5)
    harness.stop()
    shutil.copy(harness.data_dir / "old", path)
    with pytest.raises(CorruptionError, match="it is an old copy"):
        harness.start()


def test_an_index_that_is_one_commit_ahead_of_its_generation_file_is_good(harness):
    """A crash between the commit and the generation file."""
    harness.start()
    harness.add(1, 0, 2)
    harness.stop()
    generation = harness.data_dir / "index" / GENERATION_FILE
    before = generation.read_bytes()
    harness.start()
    harness.add(1, 3, 5)
    harness.stop()
    generation.write_bytes(before)
    harness.start()
    harness.assert_holds(1, 0, 5)


@pytest.mark.parametrize("name", [INDEX_FILE, GENERATION_FILE])
def test_a_missing_index_or_generation_file_is_damage_once_there_are_logs(harness, name):
    harness.start()
    harness.add(1, 0, 2)
    harness.stop()
    (harness.data_dir / "index" / name).unlink()
    with pytest.raises(CorruptionError, match=f"{name} is damaged: it is missing"):
        harness.start()


def test_another_index_than_the_one_of_the_generation_file_is_refused(harness, new_harness, tmp_path):
    other = new_harness(tmp_path / "other")
    for one in (harness, other):
        one.start()
        one.add(1, 0, 2)
        one.stop()
    shutil.copy(other.data_dir / "index" / INDEX_FILE, harness.data_dir / "index" / INDEX_FILE)
    with pytest.raises(CorruptionError, match="another index"):
        harness.start()


def test_a_newer_index_is_refused_by_name(harness):
    harness.start()
    harness.stop()
    with sqlite3.connect(harness.data_dir / "index" / INDEX_FILE) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(FormatVersionError, match=f"{INDEX_FILE} has format version 2"):
        harness.start()


def test_a_newer_generation_file_is_refused_by_name(harness):
    harness.start()
    harness.stop()
    path = harness.data_dir / "index" / GENERATION_FILE
    data = bytearray(path.read_bytes()[:-4])
    data[8] = 2
    path.write_bytes(data + crc32c(bytes(data)).to_bytes(4, "little"))
    with pytest.raises(FormatVersionError, match=f"{GENERATION_FILE} has format version 2"):
        harness.start()


def test_a_damaged_generation_file_stops_the_bookie(harness):
    harness.start()
    harness.stop()
    path = harness.data_dir / "index" / GENERATION_FILE
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=GENERATION_FILE):
        harness.start()
