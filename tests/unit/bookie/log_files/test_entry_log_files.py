"""Reads, scans and deletions of entry logs. Ref: docs/rules.md, storage rules 2 and 5, protocol rule 39, situation 61."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.log_files import entry_log_files
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES, RECORD_VERSION, RecordKind
from bk_spark.bookie.log_files.replay import Damage
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.entries.crc import crc32c
from bk_spark.errors import CorruptionError, FormatVersionError, MissingLogError
from tests.unit.bookie.log_files.log_home import KEY, LARGE, LogHome, make_batch


@pytest.fixture
def home(tmp_path):
    """Every large batch is a file of its own."""
    return LogHome(tmp_path, entry_log_file_bytes=9000).open()


def _open_descriptors(root):
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [os.readlink(name) for name in names if os.path.exists(name) or os.path.islink(name)]


def _held(home):
    return [link for link in _open_descriptors(home) if link.startswith(str(home.directories.data_dir)) and ".log" in link]


def test_a_deleted_log_is_missing_and_never_empty(home):
    first, second = home.add(1, 0, 0, LARGE), home.add(1, 1, 1, LARGE)
    home.logs.read(first)
    home.logs.delete(first.file_id)
    for call in (home.logs.read, lambda one: home.logs.size_of(one.file_id)):
        with pytest.raises(MissingLogError, match="entry log 1 failed"):
            call(first)
    with pytest.raises(MissingLogError):
        list(home.logs.scan(first.file_id))
    assert home.logs.path_of(first.file_id) is None
    assert home.logs.path_of(second.file_id) == home.paths("entry_logs")[0]
    assert home.logs.read(second)
    home.logs.delete(first.file_id)  # a crash may have left it to be done again


def test_a_log_that_is_deleted_while_it_is_read_is_read_to_its_end_and_then_gives_its_space_back(home):
    location = home.add(1, 0, 0, LARGE)
    home.add(1, 1, 1, LARGE)
    scan = home.logs.scan(location.file_id)
    first, _ = next(scan)
    home.logs.delete(location.file_id)
    assert [link.endswith("(deleted)") for link in _held(home) if "0001.log" in link] == [True]
    assert [header.kind for _, header in scan] == [RecordKind.SEAL]
    assert first == location
    assert [link for link in _held(home) if "0001.log" in link] == []


def test_a_bounded_number_of_files_is_kept_open_and_all_can_be_read(home, monkeypatch):
    monkeypatch.setattr(entry_log_files, "MAX_OPEN_FILES", 2)
    locations = [home.add(1, first, first, LARGE) for first in range(5)]
    home.logs.seal()
    for _ in range(2):
        assert [home.logs.read(one)[1].header.first_entry_id for one in locations] == list(range(5))
        assert len(_held(home)) == 2
    home.logs.close()
    assert _held(home) == []


def test_a_file_that_is_read_again_and_again_is_opened_once(tmp_path):
    opened = []

    class CountingDisk(Disk):
        def open_read(self, path):
            opened.append(path)
            return super().open_read(path)

    home = LogHome(tmp_path, CountingDisk()).open()
    locations = [home.add(1, first, first, LARGE) for first in range(5)]
    opened.clear()
    for location in locations * 3:
        home.logs.read(location)
    assert len(opened) == 1


def test_threads_that_read_and_one_that_deletes_see_the_right_bytes_or_that_the_log_is_gone(home, monkeypatch):
    monkeypatch.setattr(entry_log_files, "MAX_OPEN_FILES", 3)
    locations = [home.add(1, first, first, LARGE) for first in range(12)]
    home.logs.seal()
    is_over = threading.Event()

    def read():
        gone = set()
        while not is_over.is_set():
            for number, location in enumerate(locations):
                try:
                    assert home.logs.read(location)[1].header.first_entry_id == number
                    assert number not in gone
                except MissingLogError:
                    gone.add(number)
        return gone

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        for location in locations[:10]:
            home.logs.delete(location.file_id)
        is_over.set()
        assert all(reader.result() <= set(range(10)) for reader in readers)
    assert not any("deleted" in link for link in _held(home))


def test_a_record_of_another_length_than_the_index_says_is_damage(home):
    location = home.add(1, 0, 0, LARGE)
    for wrong in (replace(location, length=location.length + 1), replace(location, offset=location.offset - 4)):
        with pytest.raises(CorruptionError, match=r"0000000001\.log at byte"):
            home.logs.read(wrong)


def test_a_flipped_bit_of_a_body_is_found_by_a_read_of_it(home):
    location = home.add(1, 0, 0, LARGE)
    _flip(home.paths("entry_logs")[0], location.offset + RECORD_HEADER_BYTES + 100)
    with pytest.raises(CorruptionError, match="body"):
        home.logs.read(location)


def test_a_scan_gives_every_record_and_goes_on_behind_damage(tmp_path):
    home = LogHome(tmp_path).open()
    locations = [home.add(1, first, first, LARGE) for first in range(4)]
    home.logs.seal()
    (path,) = home.paths("entry_logs")
    _flip(path, locations[1].offset + 3)
    _flip(path, locations[2].offset + RECORD_HEADER_BYTES + 3)
    found = list(home.logs.scan(1))
    assert [location for location, _ in found if location in locations] == [locations[0], locations[3]]
    gaps = [one for _, one in found if isinstance(one, Damage)]
    assert [(gap.path, gap.is_below_durable) for gap in gaps] == [(path, True)] * 2
    assert gaps[0].offset <= locations[1].offset < gaps[0].end <= locations[2].offset <= gaps[1].offset
    assert gaps[1].end == locations[3].offset  # with the padding before it
    assert [one.kind for _, one in found if not isinstance(one, Damage)][-1] is RecordKind.SEAL


def test_a_scan_of_headers_alone_reads_no_bodies(tmp_path):
    home = LogHome(tmp_path).open()
    locations = [home.add(1, first, first, LARGE) for first in range(2)]
    _flip(home.paths("entry_logs")[0], locations[0].offset + RECORD_HEADER_BYTES + 3)
    assert [location for location, _ in home.logs.scan(1, verify_bodies=False)] == locations


def test_a_scan_of_a_file_that_grows_ends_where_it_is_durable(tmp_path):
    home = LogHome(tmp_path).open()
    location = home.add(1, 0, 0, LARGE)
    home.append(make_batch(1, 1, 1, LARGE))
    home.logs.write()
    assert [one for one, _ in home.logs.scan(1)] == [location]


def test_a_damaged_file_header_is_an_error_of_every_read_and_not_a_missing_log(home):
    location = home.add(1, 0, 0, LARGE)
    home.logs.seal()
    _flip(home.paths("entry_logs")[0], 30)
    for _ in range(2):
        with pytest.raises(CorruptionError, match="file header"):
            home.logs.read(location)
    assert _held(home) == []


def test_a_newer_record_is_refused_by_name_also_where_the_scan_goes_on_behind_damage(tmp_path):
    home = LogHome(tmp_path).open()
    locations = [home.add(1, first, first, LARGE) for first in range(2)]
    (path,) = home.paths("entry_logs")
    data = bytearray(path.read_bytes())
    start = locations[1].offset
    data[start + 4] = RECORD_VERSION + 1
    data[start + 120 : start + 124] = crc32c(bytes(data[start : start + 120])).to_bytes(4, "little")
    data[locations[0].offset] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatVersionError, match=r"0000000001\.log at byte"):
        list(home.logs.scan(1))


def test_copies_are_read_like_all_entry_logs(home):
    copies = home.logs.copies("checkpoint")
    batch = make_batch(1, 0, 2)
    location = copies.append(batch, KEY, 9)
    copies.sync()
    header, found = home.logs.read(location)
    assert (found, header.sequence, header.master_key_hash) == (batch, 9, KEY)
    assert isinstance(location, EntryLocation)


def _flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 16
    path.write_bytes(data)
