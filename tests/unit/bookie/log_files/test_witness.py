"""The witness of logs and index: its file, what it costs, and what a start makes of it.

Ref: docs/rules.md, storage rule 15; docs/formats.md, "Witness".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie.disk import REAL_DISK, SECTOR_BYTES, Disk, SlotFile
from bk_spark.bookie.log_files import witness as witness_module
from bk_spark.bookie.log_files.log_file import LOG_START, FilePosition
from bk_spark.bookie.log_files.witness import (
    NOTHING,
    WITNESS_FILE,
    WITNESS_VERSION,
    Witness,
    Witnessed,
    find_witness,
    read_witness,
    write_witness,
)
from bk_spark.errors import CorruptionError, FormatVersionError, StorageError
from tests.unit.bookie.harness import FaultyDisk
from tests.unit.bookie.log_files.log_home import LARGE, SMALL, LogHome

CONTENT = Witnessed((FilePosition(7, 5000), LOG_START), (FilePosition(3, 4096),), b"i" * 16, 42)
KINDS = pytest.mark.parametrize(("kind", "size"), [("journals", SMALL), ("entry_logs", LARGE)])


class CountingDisk(Disk):
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def open_slots(self, path: Path) -> SlotFile:
        disk, descriptor = self, super().open_slots(path)._descriptor

        class Counted(SlotFile):
            def _overwrite(self, offset: int, data: bytes) -> None:
                disk.calls["write"] += 1
                super()._overwrite(offset, data)

            def _fdatasync(self) -> None:
                disk.calls["sync"] += 1
                super()._fdatasync()

        return Counted(path, descriptor)


# --- the file


@pytest.mark.parametrize("content", [NOTHING, CONTENT])
def test_what_is_written_is_read_again(tmp_path, content):
    write_witness(REAL_DISK, tmp_path, content)
    assert read_witness(REAL_DISK, tmp_path) == content
    assert (tmp_path / WITNESS_FILE).stat().st_size % SECTOR_BYTES == 0


def test_notes_overwrite_the_sectors_of_what_changed(tmp_path):
    witness = Witness(REAL_DISK, tmp_path, CONTENT)
    witness.note([(7, 6000), (0, 0), (4, 9000)])
    witness.note_index(b"j" * 16, 43)
    witness.close()
    assert read_witness(REAL_DISK, tmp_path) == Witnessed(
        (FilePosition(7, 6000), LOG_START), (FilePosition(4, 9000),), b"j" * 16, 43
    )


def test_a_flipped_bit_in_any_field_and_a_cut_anywhere_are_damage(tmp_path):
    write_witness(REAL_DISK, tmp_path, CONTENT)
    path = tmp_path / WITNESS_FILE
    data = path.read_bytes()
    used = [sector * SECTOR_BYTES + place for sector, size in enumerate((24, 28, 20, 20, 20)) for place in range(size)]
    for place in used:
        flipped = bytearray(data)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        assert find_witness(REAL_DISK, tmp_path, has_past=True).problem
    for length in range(used[-1]):
        path.write_bytes(data[:length])
        with pytest.raises(CorruptionError, match=WITNESS_FILE):
            read_witness(REAL_DISK, tmp_path)


def test_a_witness_of_a_newer_version_is_refused_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(witness_module, "WITNESS_VERSION", WITNESS_VERSION + 1)
    write_witness(REAL_DISK, tmp_path, CONTENT)
    monkeypatch.undo()
    with pytest.raises(FormatVersionError, match=WITNESS_FILE):
        find_witness(REAL_DISK, tmp_path, has_past=True)


def test_a_file_of_another_kind_in_its_place_is_damage_though_its_checksums_are_right(tmp_path, monkeypatch):
    monkeypatch.setattr(witness_module, "_MAGIC", b"another!")
    write_witness(REAL_DISK, tmp_path, CONTENT)
    monkeypatch.undo()
    with pytest.raises(CorruptionError, match="it is not a witness file"):
        read_witness(REAL_DISK, tmp_path)


def test_only_a_bookie_without_a_past_may_have_no_witness(tmp_path):
    assert find_witness(REAL_DISK, tmp_path, has_past=False).problem == ""
    assert find_witness(REAL_DISK, tmp_path, has_past=True).problem == f"{tmp_path / WITNESS_FILE} is missing"


# --- what it costs


@KINDS
def test_group_commits_write_the_witness_and_only_a_new_file_syncs_it(tmp_path, kind, size):
    disk = CountingDisk()
    home = LogHome(tmp_path, disk).open()
    for first in range(20):
        home.add(1, first, first, size)
    assert disk.calls == {"write": 20, "sync": 1}
    home.logs.seal()
    disk.calls.clear()
    home.add(1, 20, 20, size)
    assert disk.calls == {"write": 1, "sync": 1}


def test_an_idle_bookie_syncs_the_witness_once(tmp_path):
    disk = CountingDisk()
    home = LogHome(tmp_path, disk).open()
    home.add(1, 0, 0)
    home.logs.idle()
    disk.calls.clear()
    for _ in range(3):
        home.logs.idle()
    assert disk.calls == {}


def test_after_a_failed_write_or_sync_of_the_witness_nothing_is_synced_any_more(tmp_path):
    for verb in ("write", "sync"):
        disk = FaultyDisk()
        home = LogHome(tmp_path / verb, disk)
        home.directories.data_dir.mkdir()
        home.open()
        disk.fail(verb, WITNESS_FILE)
        for _ in range(2):
            with pytest.raises(StorageError, match=WITNESS_FILE):
                home.add(1, 0, 0)
        disk.failing.clear()
        with pytest.raises(StorageError, match="an earlier write or sync failed"):
            home.logs.sync()
        home.kill()


# --- what a start makes of it


@KINDS
def test_the_newest_file_is_missed_until_another_one_follows_it(tmp_path, kind, size):
    """Storage rule 15: no successor names it, and before the first checkpoint no mark does."""
    home = LogHome(tmp_path).open()
    for first in range(3):
        home.add(1, first, first, size)
    home.kill()
    (path,) = home.paths(kind)
    path.unlink()
    (damage,) = home.open().damages
    assert (damage.path, damage.is_below_durable) == (path, True)
    assert "it is missing, though it was durable up to byte" in str(damage)
    home.add(2, 0, 0, size)
    assert [one.name[:10] for one in home.paths(kind)] == ["0000000002"], "its id is not used again"
    home.commit()
    assert home.kill().open().damages == []


@KINDS
def test_the_newest_of_several_files_is_missed(tmp_path, kind, size):
    home = LogHome(tmp_path, journal_file_bytes=4600, entry_log_file_bytes=9500).open()
    for first in range(6):
        home.add(1, first, first, size)
    home.kill()
    *_, path = home.paths(kind)
    path.unlink()
    assert [one.path for one in home.open().damages] == [path]


@KINDS
def test_every_cut_and_all_zeros_below_what_was_durable_are_damage(tmp_path, kind, size):
    """Exact after a kill: the last batch was acked, and no record behind it says so."""
    home = LogHome(tmp_path).open()
    for first in range(3):
        home.add(1, first, first, size)
    home.kill()
    (path,) = home.paths(kind)
    data, home.witnessed = path.read_bytes(), home.told()
    for length in range(4096, len(data), 97 if size == SMALL else 1009):
        for left in (data[:length], data[:length].ljust(len(data), b"\0"), data[:length] + bytes(9000)):
            path.write_bytes(left)
            damages = home.open().damages
            home.kill()
            assert bool(damages) == (left[: len(data)] != data)
            assert all(one.is_below_durable for one in damages)


def test_an_entry_log_that_compaction_deleted_is_not_missed(tmp_path):
    home = LogHome(tmp_path).open()
    home.add(1, 0, 0, LARGE)
    home.logs.seal()
    home.commit()
    home.forget(1)
    home.kill()
    assert home.told().entry_log(0).file_id == 1
    assert home.open().damages == []


def test_what_lies_behind_the_mark_is_not_asked_of_the_witness(tmp_path):
    """An old witness asks for less, never for more."""
    home = LogHome(tmp_path).open()
    home.add(1, 0, 0)
    old = home.told()
    home.logs.seal()
    home.add(1, 1, 1)
    home.kill()
    home.witnessed = replace(old, entry_logs=())
    assert home.open().damages == []
    assert home.ids() == [(1, 0, 0), (1, 1, 1)]


def test_each_directory_has_its_own_newest_file(tmp_path):
    places = [tmp_path / name for name in "abcd"]
    settings = {"journal_dirs": f"{places[0]},{places[1]}", "ledger_dirs": f"{places[2]},{places[3]}"}
    for lost in range(4):
        home = LogHome(tmp_path / f"data{lost}", **settings)
        home.directories.data_dir.mkdir()
        for place in places:
            place.mkdir(exist_ok=True)
        home.open()
        for ledger_id in range(4):
            home.add(ledger_id, 0, 0, SMALL if ledger_id < 2 else LARGE)
        home.kill()
        (path,) = home.paths("journals" if lost < 2 else "entry_logs", lost % 2)
        path.unlink()
        assert [one.path for one in home.open().damages] == [path]
        home.kill()
        for place in places:
            for file in place.rglob("*.*"):
                file.unlink()
