"""Directories, rolls, marks, ids, deletion. Ref: docs/rules.md, "Order of syncs", storage rules 5 and 6, protocol rule 38."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.log_files.log_file import ALIGNMENT_BYTES, LOG_START, FileKind, LogFile, unpack_file_header
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES, LedgerNote, RecordKind
from bk_spark.bookie.log_files.witness import WITNESS_FILE
from bk_spark.config import KIB
from bk_spark.errors import StorageError
from tests.unit.bookie.log_files.log_home import KEY, LARGE, LogHome, make_batch


def is_dirty(home: LogHome) -> bool:
    """Something was appended that is not durable."""
    return any(writer.dirty_file is not None for writer in home.logs._writers)


NOTES = [
    LedgerNote(RecordKind.FENCE, 1),
    LedgerNote(RecordKind.CONFIRMED, 1, 7),
    LedgerNote(RecordKind.DELETED, 1, deleted_ms=5),
]


@pytest.fixture
def home(tmp_path):
    return LogHome(tmp_path).open()


@pytest.fixture
def wide(tmp_path):
    """Two journal directories and three for entry logs, each a disk of its own."""
    places = {name: [tmp_path / f"{name}{number}" for number in range(3)] for name in "je"}
    for path in (*places["j"][:2], *places["e"]):
        path.mkdir()
    names = {name: ",".join(map(str, paths)) for name, paths in places.items()}
    journals = names["j"].rsplit(",", 1)[0]
    return LogHome(tmp_path, journal_dirs=journals, ledger_dirs=names["e"]).open()


def _header(path):
    return unpack_file_header(path.read_bytes()[:4096], str(path))


def test_small_batches_and_notes_go_into_a_journal_and_large_ones_into_an_entry_log(home):
    small, large = make_batch(1, 0, 2), make_batch(1, 3, 5, LARGE)
    assert home.append(small) is None
    location = home.append(large)
    for note in NOTES:
        home.note(note)
    home.logs.sync()
    assert home.logs.read(location)[1] == large
    home.kill().open()
    assert {one.header.sequence: one.batch for one in home.records if one.batch} == {1: small, 2: large}
    assert [one.header.note for one in home.records if one.header.note] == NOTES
    assert {one.location for one in home.records} == {None, location}
    assert all(one.header.master_key_hash == KEY for one in home.records)
    assert home.damages == []


def test_every_ledger_has_one_journal_and_one_entry_log_directory(wide):
    for ledger_id in range(6):
        wide.add(ledger_id, 0, 0)
        wide.add(ledger_id, 1, 1, LARGE)
        wide.note(LedgerNote(RecordKind.FENCE, ledger_id))
    wide.logs.sync()
    wide.kill().open()
    assert len(wide.records) == 18
    for number in range(2):
        (path,) = wide.paths("journals", number)
        found = [one for one in wide.records if one.location is None and one.file_id == _header(path).file_id]
        assert {one.batch.header.ledger_id if one.batch else one.header.note.ledger_id for one in found} == {
            number,
            number + 2,
            number + 4,
        }
    for number in range(3):
        (path,) = wide.paths("entry_logs", number)
        found = [one for one in wide.records if one.location and one.file_id == _header(path).file_id]
        assert {one.batch.header.ledger_id for one in found} == {number, number + 3}


def test_no_two_files_of_a_kind_have_the_same_id_whatever_their_directories(wide):
    for ledger_id in range(6):
        wide.add(ledger_id, 0, 0)
        wide.add(ledger_id, 1, 1, LARGE)
    for kind, count in (("journals", 2), ("entry_logs", 3)):
        headers = [_header(path) for number in range(count) for path in wide.paths(kind, number)]
        assert sorted(one.file_id for one in headers) == list(range(1, count + 1))
        assert {one.predecessor.file_id for one in headers} == {0}


def test_each_directory_is_replayed_from_its_own_position_of_the_mark(wide):
    """Protocol rule 38: what one directory has flushed says nothing of the others."""
    for ledger_id in range(6):
        wide.add(ledger_id, 0, 0, LARGE)
        wide.add(ledger_id, 1, 1)
    mark = wide.logs.mark()
    wide.commit()
    journals, entry_logs = (mark.journals[0], LOG_START), (LOG_START, mark.entry_logs[1])  # the third is missing
    wide.mark = replace(mark, journals=journals, entry_logs=entry_logs)
    wide.kill().open()
    assert [one[0] for one in wide.ids() if one[1] == 0] == [0, 2, 3, 5]
    assert [one[0] for one in wide.ids() if one[1] == 1] == [1, 3, 5]
    assert wide.damages == []


def test_records_are_padded_to_a_boundary_where_that_costs_less_than_a_hundredth(tmp_path, monkeypatch):
    monkeypatch.setattr("bk_spark.bookie.log_files.all_log_files.ALIGNED_FROM_BYTES", 256 * KIB)
    home = LogHome(tmp_path).open()
    small = [home.add(1, one, one, size=100_000) for one in range(2)]
    large = [home.add(1, one, one, size=300_000) for one in range(2, 4)]
    assert small[0].offset + small[0].length == small[1].offset
    assert [place.offset % ALIGNMENT_BYTES for place in large] == [0, 0]
    assert large[0].offset + large[0].length < large[1].offset


def test_a_mark_lies_behind_all_that_was_appended(wide):
    for ledger_id in range(6):
        wide.add(ledger_id, 0, 0, LARGE)
        wide.add(ledger_id, 1, 1)
    wide.commit()
    wide.add(4, 2, 2)
    wide.kill().open()
    assert wide.ids() == [(4, 2, 2)]
    assert wide.logs.mark().next_sequence > wide.mark.next_sequence


def test_journals_before_the_mark_of_their_directory_are_deleted_and_no_others(tmp_path):
    (tmp_path / "other").mkdir()
    home = LogHome(tmp_path, journal_dirs=f"{tmp_path},{tmp_path / 'other'}", journal_file_bytes=5000).open()
    for first in range(10):
        home.add(0, first, first)
        home.add(1, first, first)
    before = [home.paths("journals", number) for number in range(2)]
    mark = home.logs.mark()
    home.logs.delete_journals(replace(mark, journals=(LOG_START, mark.journals[1])))
    assert [home.paths("journals", 0), home.paths("journals", 1)] == [before[0], before[1][-1:]]
    home.logs.delete_journals(replace(mark, journals=mark.journals[:1]))
    assert [home.paths("journals", 0), home.paths("journals", 1)] == [before[0][-1:], before[1][-1:]]


def test_a_log_is_rolled_into_sealed_files_that_name_each_other(tmp_path):
    home = LogHome(tmp_path, entry_log_file_bytes=20_000).open()
    locations = [home.add(1, first, first, LARGE) for first in range(7)]
    files = home.logs.files()
    assert [one.file_id for one in files] == [1, 2, 3, 4]
    assert [one.is_sealed for one in files] == [True, True, True, False]
    paths = home.paths("entry_logs")
    assert (
        [one.size_bytes for one in files]
        == [path.stat().st_size for path in paths]
        == [home.logs.size_of(n) for n in range(1, 5)]
    )
    for before, path in zip(files, paths[1:], strict=False):
        predecessor = _header(path).predecessor
        assert (predecessor.file_id, predecessor.sealed_bytes) == (before.file_id, before.size_bytes)
    assert [home.logs.read(one)[1].header.first_entry_id for one in locations] == list(range(7))
    home.kill().open()
    assert [one.location for one in home.records] == locations
    assert home.damages == []


def test_a_sealed_file_is_reported_until_the_index_has_taken_it(tmp_path):
    home = LogHome(tmp_path, entry_log_file_bytes=12_000).open()
    home.add(1, 0, 0, LARGE)
    taken = home.logs.files()
    home.add(1, 1, 1, LARGE)
    home.logs.committed(taken)  # it was open then
    assert [(one.file_id, one.is_sealed) for one in home.logs.files()] == [(1, True), (2, False)]
    home.logs.committed(home.logs.files())
    assert [(one.file_id, one.is_sealed) for one in home.logs.files()] == [(2, False)]
    home.kill().open()
    assert [(one.file_id, one.is_sealed) for one in home.logs.files()] == [(1, True), (2, True)]
    home.commit()
    assert home.logs.files() == ()


def test_only_durable_bytes_of_an_open_file_are_reported(home):
    home.add(1, 0, 0, LARGE)
    (file,) = home.logs.files()
    home.append(make_batch(1, 1, 1, LARGE))
    home.logs.write()
    assert home.logs.files() == (file,)
    assert home.logs.size_of(1) == file.size_bytes < home.paths("entry_logs")[0].stat().st_size


@pytest.mark.parametrize("kind", ["journals", "entry_logs"])
def test_no_id_comes_again_after_the_newest_file_was_deleted(tmp_path, kind):
    """Storage rule 5."""
    home = LogHome(tmp_path).open()
    seen = set()
    for first in range(4):
        home.add(1, first, first, LARGE if kind == "entry_logs" else 10)
        new = {_header(path).file_id for path in home.paths(kind)}
        assert not new & seen
        seen |= new
        home.logs.seal()
        home.commit()
        if kind == "entry_logs":
            home.forget(max(home.known))
            assert home.logs.path_of(max(seen)) is None
        else:
            home.paths(kind)[0].unlink()
            home.mark = replace(home.mark, journals=())
        home.kill().open()
        assert len(home.damages) == (kind == "journals")
    assert seen == {1, 2, 3, 4}


def test_directories_that_are_not_writable_take_no_new_records_copies_neither(wide):
    wide.logs.set_writable([1])
    copies = wide.logs.copies("checkpoint")
    for ledger_id in range(6):
        wide.add(ledger_id, 0, 0, LARGE)
        copies.append(make_batch(ledger_id, 0, 0), KEY, ledger_id)
    copies.sync()
    assert [len(wide.paths("entry_logs", number)) for number in range(3)] == [0, 2, 0]
    wide.logs.set_writable([])  # somewhere recovery adds must go
    wide.add(7, 0, 0, LARGE)
    assert [len(wide.paths("entry_logs", number)) for number in range(3)] == [0, 2, 0]
    wide.logs.set_writable([2, 0])
    wide.add(0, 1, 1, LARGE)
    wide.add(1, 1, 1, LARGE)
    assert [len(wide.paths("entry_logs", number)) for number in range(3)] == [1, 2, 1]


def test_logs_are_dirty_until_they_are_synced(home):
    assert not is_dirty(home)
    home.append(make_batch(1, 0, 0))
    assert is_dirty(home)
    home.logs.write()
    assert is_dirty(home)
    home.logs.sync()
    assert not is_dirty(home)
    assert home.logs.appended_bytes == home.paths("journals")[0].stat().st_size - 4096


def test_idle_is_noted_once_in_every_log_that_grew(wide):
    wide.add(0, 0, 0)
    wide.add(0, 1, 1, LARGE)
    sizes = wide.logs.appended_bytes
    wide.logs.idle()
    wide.logs.idle()
    assert wide.logs.appended_bytes == sizes + 2 * RECORD_HEADER_BYTES
    assert not is_dirty(wide)


class _MeetingDisk(Disk):
    """Two syncs wait for each other."""

    def __init__(self):
        self.barrier = None

    def sync_all(self, files):
        self.barrier = threading.Barrier(len(files), timeout=10)
        for file in files:
            file._fdatasync = self._meet(file._fdatasync)
        super().sync_all(files)

    def _meet(self, sync):
        def meet():
            self.barrier.wait()
            sync()

        return meet


def test_files_in_several_directories_are_synced_at_the_same_time(tmp_path):
    home = LogHome(tmp_path, _MeetingDisk()).open()
    home.append(make_batch(1, 0, 0))
    home.append(make_batch(1, 1, 1, LARGE))
    home.logs.sync()
    assert not is_dirty(home)


@pytest.mark.parametrize("failing", ["journal", "entry_log"])
def test_a_failed_sync_of_one_file_is_an_error_for_good_and_the_others_are_synced(harness, tmp_path, failing):
    """Storage rule 6."""
    home = LogHome(tmp_path, harness.disk).open()
    home.add(1, 0, 0)
    home.add(1, 1, 1, LARGE)
    home.append(make_batch(1, 2, 2))
    home.append(make_batch(1, 3, 3, LARGE))
    harness.disk.fail("sync", f"/{failing}/")
    with pytest.raises(StorageError, match=failing):
        home.logs.sync()
    harness.disk.failing.clear()
    assert {file.path.parent.name for file in harness.disk.files if file.synced < file.size} == {failing}
    with pytest.raises(StorageError, match="an earlier write or sync failed"):
        home.logs.sync()
    assert is_dirty(home)


def test_a_failed_write_poisons_its_file(harness, tmp_path):
    """Storage rule 6."""
    home = LogHome(tmp_path, harness.disk).open()
    home.add(1, 0, 0)
    home.append(make_batch(1, 1, 1))
    harness.disk.fail("write", "/journal/")
    with pytest.raises(StorageError, match="Input/output error"):
        home.logs.sync()
    harness.disk.failing.clear()
    home.append(make_batch(1, 2, 2))
    with pytest.raises(StorageError, match="an earlier write or sync failed"):
        home.logs.sync()
    home.kill().open()
    assert home.ids() == [(1, 0, 0)]


def test_ids_are_given_out_once_to_threads_that_roll_at_the_same_time(tmp_path):
    home = LogHome(tmp_path, entry_log_file_bytes=9000).open()

    def write(purpose):
        copies = home.logs.copies(purpose)
        found = [copies.append(make_batch(1, 0, 0, LARGE), KEY, 1).file_id for _ in range(30)]
        copies.seal()
        return found

    with ThreadPoolExecutor(4) as pool:
        found = [one for part in pool.map(write, "abcd") for one in part]
    assert sorted(found) == list(range(1, 121))
    assert home.logs.mark().next_entry_log_id == 121


def test_nothing_is_left_open_when_the_logs_are_closed(wide):
    (witness,) = _descriptors(wide.directories.data_dir)
    assert witness.endswith(WITNESS_FILE)
    location = wide.add(1, 0, 0, LARGE)
    wide.add(1, 1, 1)
    copies = wide.logs.copies("checkpoint")
    copies.append(make_batch(1, 0, 0), KEY, 1)
    wide.logs.read(location)
    wide.logs.close()
    assert _descriptors(wide.directories.data_dir) == []


def _descriptors(root):
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return [link for link in links if link.startswith(str(root))]


def test_the_kind_of_each_file_stands_in_its_header(wide):
    wide.add(1, 0, 0)
    wide.add(1, 1, 1, LARGE)
    copies = wide.logs.copies("checkpoint")
    copies.append(make_batch(1, 0, 0), KEY, 1)
    copies.sync()
    assert _header(wide.paths("journals", 1)[0]).kind is FileKind.JOURNAL
    assert [_header(path).kind for path in wide.paths("entry_logs", 1)] == [FileKind.ENTRY_LOG, FileKind.COPIES]
    assert copies.files() == (LogFile(2, 1, wide.paths("entry_logs", 1)[1].stat().st_size, False),)
