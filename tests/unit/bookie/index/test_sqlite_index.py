"""The index in its file: opened again, changed behind its back, old copies, missing files, other versions.

Ref: docs/rules.md, storage rule 3.
"""

from __future__ import annotations

import shutil
import sqlite3

import pytest

from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.index.ledger_index import LedgerChange
from bk_spark.bookie.index.sqlite_index import GENERATION_FILE, INDEX_FILE, open_index
from bk_spark.bookie.index.sqlite_tables import Tables
from bk_spark.bookie.log_files.log_file import FilePosition
from bk_spark.bookie.log_files.mark import LogMark
from bk_spark.entries.crc import crc32c
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError, InternalError, StorageError
from bk_spark.quorum import IdPattern
from tests.unit.bookie.index.index_model import KEY, log, stored

SOME = [LedgerChange(1, KEY, 0, [stored(1, 0, 9, 1)])]


@pytest.fixture
def open_it(tmp_path):
    opened = []

    def open_again(directory=tmp_path, bookie_id="bookie-1", **more):
        while opened:
            opened.pop().close()
        opened.append(open_index(directory, bookie_id, REAL_DISK, **{"logs_exist": True, **more}))
        return opened[0]

    yield open_again
    for one in opened:
        one.close()


@pytest.fixture
def new_index(open_it):
    return open_it(logs_exist=False)


def test_rows_summary_and_mark_come_back(new_index, open_it):
    batches = [stored(1, 0, 9, 1), stored(1, 0, 9, 4), stored(1, 5, 30, 2, IdPattern(4, 3, 2)), stored(1, 10, 19, 3)]
    mark = LogMark(9, 3, 2, (FilePosition(2, 5000),), (FilePosition(1, 9000), FilePosition(2, 7)))
    new_index.commit([LedgerChange(1, KEY, 17, [batches[2], batches[0], batches[3], batches[1]])], mark, [log(1)])
    index = open_it()
    assert index.batches(1, (-1, 0), 10) == batches
    assert index.batches(1, (0, 1), 2) == batches[1:3]
    assert index.mark == mark
    assert (mark.journal(0).offset, mark.journal(1).offset, mark.entry_log(1).offset) == (5000, 0, 7)
    summary = index.summary(1)
    assert (summary.batch_count, summary.max_span, summary.highest_entry_id, summary.last_add_confirmed) == (4, 26, 30, 17)
    assert summary.master_key_hash == KEY
    assert index.summary(2) is None
    index.verify_entry(1, 31)
    index.verify_ledger(2)


def test_a_fence_and_a_last_add_confirmed_stay_whatever_is_committed_later(new_index, open_it):
    new_index.commit([LedgerChange(1, KEY, 17, [], is_fenced=True), LedgerChange(2, KEY, 0, [])], LogMark(next_sequence=2))
    new_index.commit([LedgerChange(1, KEY, 3, [stored(1, 0, 9, 2)])], LogMark(next_sequence=3), [log(1)])
    index = open_it()
    assert (index.summary(1).is_fenced, index.summary(1).last_add_confirmed) == (True, 17)
    assert not index.summary(2).is_fenced


def test_a_commit_that_fails_leaves_rows_mark_and_tallies_as_they_were(new_index):
    new_index.commit(SOME, LogMark(next_sequence=2), [log(1)])
    twice = [LedgerChange(2, KEY, 0, [stored(2, 0, 9, 3)]), LedgerChange(1, KEY, 0, [stored(1, 10, 19, 2), stored(1, 0, 9, 1)])]
    with pytest.raises(CorruptionError):
        new_index.commit(twice, LogMark(next_sequence=4), [log(2)])
    assert new_index.batches_from((-1, 0, 0), 10) == [stored(1, 0, 9, 1)]
    assert new_index.mark.next_sequence == 2
    assert [one.file_id for one in new_index.entry_logs()] == [1]
    assert sum(new_index.check(True)) > 3


def test_a_commit_that_fails_at_its_very_end_leaves_nothing_in_memory(new_index, monkeypatch):
    new_index.commit(SOME, LogMark(next_sequence=2), [log(1)])
    with monkeypatch.context() as patch:
        patch.setattr(Tables, "put_state", lambda *_: (_ for _ in ()).throw(sqlite3.OperationalError("no more")))
        with pytest.raises(CorruptionError, match="no more"):
            new_index.commit([LedgerChange(2, KEY, 0, [stored(2, 0, 9, 3)])], LogMark(next_sequence=4), [log(2)])
    new_index.verify_ledger(2)
    assert new_index.summary(2) is None
    assert [one.file_id for one in new_index.entry_logs()] == [1]
    new_index.commit([LedgerChange(2, KEY, 0, [stored(2, 0, 9, 3)])], LogMark(next_sequence=4), [log(2)])
    assert sum(new_index.check(True)) > 4


def test_a_full_disk_is_an_error_and_no_damage(new_index):
    new_index._database._connection.execute("PRAGMA max_page_count = 12")
    changes = [LedgerChange(1, KEY, 0, [stored(1, first, first, first + 1) for first in range(2000)])]
    with pytest.raises(StorageError, match="full"):
        new_index.commit(changes, LogMark(next_sequence=4000), [log(1)])


def test_rows_in_a_log_that_nobody_told_of_are_a_bug(new_index):
    """Its file would be deleted at the next start as one that no index knows of (storage rule 5)."""
    with pytest.raises(InternalError, match="entry log 1, which the index does not know"):
        new_index.commit(SOME, LogMark(next_sequence=2))
    assert new_index.summary(1) is None


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM batches WHERE ledger_id = 1 AND first_entry_id = 10",
        "UPDATE batches SET first_entry_id = 11 WHERE ledger_id = 1 AND first_entry_id = 10",
        "UPDATE batches SET offset = offset + 4096 WHERE ledger_id = 1 AND first_entry_id = 10",
        "UPDATE batches SET ledger_id = 3 WHERE ledger_id = 1 AND first_entry_id = 10",
        "UPDATE batches SET last_entry_id = NULL WHERE ledger_id = 1 AND first_entry_id = 10",
        "DELETE FROM batches WHERE ledger_id = 1 AND first_entry_id = 65530",
        "DELETE FROM segments WHERE ledger_id = 1 AND level = 0 AND number = 0",
        "DELETE FROM batches WHERE ledger_id = 1 AND first_entry_id < 20; DELETE FROM segments WHERE number = 0",
        "UPDATE segments SET child_count = 1 WHERE ledger_id = 1 AND level = 0 AND number = 0",
        "UPDATE ledgers SET max_span = 1 WHERE ledger_id = 1",
        "UPDATE ledgers SET flags = 1 - flags WHERE ledger_id = 1",
        "DELETE FROM ledgers WHERE ledger_id = 1",
        "DELETE FROM ledgers WHERE ledger_id = 1; DELETE FROM batches WHERE ledger_id = 1",
        "DELETE FROM ledgers; DELETE FROM batches; DELETE FROM segments; DELETE FROM buckets",
        "UPDATE buckets SET ledger_count = 1",
        "DELETE FROM entry_logs WHERE file_id = 1",
        "UPDATE entry_logs SET live_bytes = 0",
        "UPDATE entry_logs SET state = 3",
        "DELETE FROM state",
        "DROP INDEX ledgers_by_bucket",
    ],
)
def test_what_is_changed_behind_its_back_is_found_before_anything_is_denied(new_index, open_it, tmp_path, statement):
    changes = [
        LedgerChange(one, KEY, 0, [stored(one, first, first + 9, one * 10 + first) for first in (0, 10, 65_530)])
        for one in (1, 2)
    ]
    new_index.commit(changes, LogMark(next_sequence=99), [log(1)])
    new_index.close()
    with sqlite3.connect(tmp_path / INDEX_FILE) as connection:
        connection.executescript(statement)
    connection.close()
    with pytest.raises(CorruptionError, match=INDEX_FILE):  # noqa: PT012
        index = open_it()
        index.verify_entry(1, 15)
        index.verify_entry(1, 65_536)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE segments SET child_crc_sum = child_crc_sum + 1",
        "UPDATE ledgers SET highest_entry_id = 7",
        "UPDATE ledgers SET flags = 3",
    ],
)
def test_nothing_is_built_upon_what_is_damaged(new_index, statement):
    """A new checksum would make it look whole."""
    new_index.commit(SOME, LogMark(next_sequence=2), [log(1)])
    new_index._database.run(statement)
    with pytest.raises(CorruptionError, match="the checksum of"):
        new_index.commit([LedgerChange(1, KEY, 0, [stored(1, 10, 19, 2)])], LogMark(next_sequence=3))
    assert new_index.batches(1, (-1, 0), 9) == [stored(1, 0, 9, 1)]


def test_a_row_of_an_older_state_is_found_out_though_its_checksum_is_right(new_index, open_it, tmp_path):
    """As a damaged page may lead to an older one: a summary without the fence, in the place of the one with it."""
    new_index.commit([LedgerChange(1, KEY, 5, [])], LogMark(next_sequence=2))
    new_index.close()
    with sqlite3.connect(tmp_path / INDEX_FILE) as connection:
        (old,) = connection.execute("SELECT * FROM ledgers").fetchall()
    connection.close()
    open_it().commit([LedgerChange(1, KEY, 5, [], is_fenced=True)], LogMark(next_sequence=3))
    open_it().close()
    with sqlite3.connect(tmp_path / INDEX_FILE) as connection:
        connection.execute(f"REPLACE INTO ledgers VALUES ({', '.join('?' * len(old))})", old)
    connection.close()
    index = open_it()
    assert not index.summary(1).is_fenced
    with pytest.raises(CorruptionError, match="1 ledgers of bucket 0 are not the 1 that were committed"):
        index.verify_ledger(1)


def test_a_closed_index_can_be_opened_again_though_somebody_keeps_what_was_not_read_to_its_end(new_index, open_it):
    """As the traceback of an error does."""
    new_index.commit([LedgerChange(1, KEY, 0, [stored(1, 0, 9, 1), stored(1, 10, 19, 2)])], LogMark(next_sequence=3), [log(1)])
    kept = new_index._database.every("SELECT * FROM batches")
    assert next(kept)
    assert open_it().summary(1) is not None


def test_an_index_that_is_older_than_its_generation_file_is_refused(new_index, open_it, tmp_path):
    new_index.commit(SOME, LogMark(next_sequence=2), [log(1)])
    new_index.close()
    shutil.copy(tmp_path / INDEX_FILE, tmp_path / "old")
    open_it().commit([LedgerChange(2, KEY, 0, [])], LogMark(next_sequence=3))
    open_it().close()
    shutil.copy(tmp_path / "old", tmp_path / INDEX_FILE)
    with pytest.raises(CorruptionError, match="of generation 2, its generation file says 3: it is an old copy"):
        open_it()


def test_an_index_that_is_one_commit_ahead_of_its_generation_file_is_good(new_index, open_it, tmp_path):
    """A crash between the commit and the generation file."""
    before = (tmp_path / GENERATION_FILE).read_bytes()
    new_index.commit(SOME, LogMark(next_sequence=2), [log(1)])
    new_index.close()
    (tmp_path / GENERATION_FILE).write_bytes(before)
    assert open_it().batches(1, (-1, 0), 10) == [stored(1, 0, 9, 1)]
    assert (tmp_path / GENERATION_FILE).read_bytes() != before


@pytest.mark.parametrize("name", [INDEX_FILE, GENERATION_FILE])
def test_a_missing_index_or_generation_file_is_damage_once_there_are_logs(new_index, open_it, tmp_path, name):
    new_index.close()
    (tmp_path / name).unlink()
    with pytest.raises(CorruptionError, match=f"{name} is damaged: it is missing"):
        open_it()


def test_another_index_than_the_one_of_the_generation_file_is_refused(new_index, open_it, tmp_path):
    (tmp_path / "other").mkdir()
    other = open_it(tmp_path / "other", logs_exist=False)
    assert other._memory.state.incarnation != new_index._memory.state.incarnation
    other.close()
    shutil.copy(tmp_path / "other" / INDEX_FILE, tmp_path / INDEX_FILE)
    with pytest.raises(CorruptionError, match="another index"):
        open_it()


def test_the_index_of_another_bookie_is_refused(new_index, open_it):
    new_index.close()
    with pytest.raises(ConfigError, match="it is the index of that bookie, not of bookie-2"):
        open_it(bookie_id="bookie-2")


@pytest.mark.parametrize(
    ("version", "error", "words"),
    [
        (4, FormatVersionError, f"{INDEX_FILE} has format version 4, this bk_spark reads up to version 3"),
        (1, ConfigError, f"the format version of .*{INDEX_FILE} is 1: .* read the data with the release that wrote it"),
    ],
)
def test_an_index_of_another_version_is_refused_by_name(new_index, open_it, tmp_path, version, error, words):
    new_index.close()
    with sqlite3.connect(tmp_path / INDEX_FILE) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(error, match=words):
        open_it()


def test_a_file_that_is_no_index_is_damage(new_index, open_it, tmp_path):
    new_index.close()
    (tmp_path / INDEX_FILE).write_bytes(b"no database, though it has its name" * 100)
    with pytest.raises(CorruptionError, match="file is not a database"):
        open_it()


def test_a_newer_generation_file_is_refused_by_name(new_index, open_it, tmp_path):
    new_index.close()
    path = tmp_path / GENERATION_FILE
    data = bytearray(path.read_bytes()[:-4])
    data[8] = 2
    path.write_bytes(data + crc32c(bytes(data)).to_bytes(4, "little"))
    with pytest.raises(FormatVersionError, match=f"{GENERATION_FILE} has format version 2"):
        open_it()
