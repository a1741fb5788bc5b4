"""Which disks take new bytes. Ref: docs/rules.md, protocol rule 47; situations 58 and 68."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk, Space
from bk_spark.bookie.process.disk_watch import DiskState, DiskWatch, Watermarks, decide, is_out_of_space
from bk_spark.config import MAX_BATCH_BYTES, BookieConfig
from bk_spark.errors import StorageError
from bk_spark.wire.messages import Status

GIB = 1 << 30
MARKS = Watermarks(usage_high=0.95, usage_low=0.90, needed_bytes=0)
WANTED = "10240 MiB have to be free"
"""Of 100 GiB, below the low watermark."""

DATA = Path("/data")
TWO_DISKS = Directories.of(DATA, BookieConfig(ledger_dirs="/a,/b", journal_dirs="/j"))
FIRST, SECOND = TWO_DISKS.entry_logs
[JOURNAL] = TWO_DISKS.journals


def space(used_percent: float, total: int = 100 * GIB) -> Space:
    return Space(round(total * (100 - used_percent) / 100), total)


def decided(fill: dict[Path, float], before: frozenset[Path] = frozenset()) -> DiskState:
    """After a look at disks that are ``fill`` percent full, 50 if they are not named."""
    paths = (DATA, JOURNAL, FIRST, SECOND)
    return decide(TWO_DISKS, {path: space(fill.get(path, 50)) for path in paths}, before, MARKS)


def test_a_disk_is_full_above_the_high_watermark_and_stays_so_down_to_the_low_one() -> None:
    assert not MARKS.is_full(space(94.9), was_full=False)
    assert MARKS.is_full(space(95.1), was_full=False)
    assert MARKS.is_full(space(90.1), was_full=True)
    assert not MARKS.is_full(space(89.9), was_full=True)


def test_a_disk_with_less_free_space_than_the_reserve_is_full_however_small_a_part_is_used() -> None:
    marks = replace(MARKS, needed_bytes=5 * GIB)
    assert marks.is_full(space(91), was_full=False)
    assert not marks.is_full(space(89), was_full=False)
    assert marks.is_full(space(86), was_full=True)
    assert not marks.is_full(space(84), was_full=True)


def test_what_is_needed_is_the_queue_both_caches_and_the_rollback_journal_of_the_index_and_reserved_is_twice_that() -> None:
    config = BookieConfig(sync_queue_bytes=1000, write_cache_bytes=10)
    needed = 1000 + MAX_BATCH_BYTES + 2 * 10 + 4 * 10
    assert Watermarks.of(config) == Watermarks(0.95, 0.90, needed)
    assert Watermarks.of(config).reserve_bytes == 2 * needed


def test_a_full_entry_log_directory_takes_no_adds_while_another_one_does() -> None:
    assert decided({FIRST: 96}) == DiskState(frozenset({FIRST}), (1,))


def test_the_bookie_takes_no_adds_when_all_entry_log_directories_are_full() -> None:
    state = decided({FIRST: 96, SECOND: 96})
    assert state.writable == ()
    assert state.problem == f"too little free space in {FIRST}, {SECOND}: {WANTED}"


@pytest.mark.parametrize("path", [DATA, JOURNAL])
def test_the_bookie_takes_no_adds_when_a_journal_or_the_index_has_no_space(path: Path) -> None:
    state = decided({path: 96})
    assert state.writable == (0, 1)
    assert state.problem == f"too little free space in {path}: {WANTED}"


def test_a_small_disk_is_told_the_reserve_that_has_to_be_free() -> None:
    disk = Space(899 << 20, 900 << 20)
    marks = Watermarks(0.99, 0.99, 465 << 20)
    state = decide(TWO_DISKS, dict.fromkeys((DATA, JOURNAL, FIRST, SECOND), disk), frozenset(), marks)
    assert state.problem.endswith(": 930 MiB have to be free")


def test_a_disk_that_cannot_be_measured_counts_as_full() -> None:
    spaces = {path: space(50) for path in (DATA, FIRST, SECOND)}
    assert decide(TWO_DISKS, {**spaces, JOURNAL: None}, frozenset(), MARKS).problem


EXHAUSTIBLE = replace(MARKS, needed_bytes=5 * GIB)


@pytest.mark.parametrize("exhausted", [(DATA,), (JOURNAL,), (FIRST, SECOND)])
def test_recoveries_are_refused_when_what_was_taken_already_may_need_the_rest_of_a_disk(exhausted: tuple[Path, ...]) -> None:
    for used, is_exhausted in ((94, False), (96, True)):
        spaces = {path: space(used if path in exhausted else 91) for path in (DATA, JOURNAL, FIRST, SECOND)}
        state = decide(TWO_DISKS, spaces, frozenset(), EXHAUSTIBLE)
        assert (bool(state.problem), state.is_exhausted) == (True, is_exhausted)


def test_recoveries_go_on_while_one_entry_log_directory_has_space_for_them() -> None:
    spaces = {path: space(96 if path == FIRST else 50) for path in (DATA, JOURNAL, FIRST, SECOND)}
    assert not decide(TWO_DISKS, spaces, frozenset(), EXHAUSTIBLE).is_exhausted


class FillableDisk(Disk):
    """Its directories are as full as a test says."""

    def __init__(self) -> None:
        self.percent: float = 50
        self.fails = False

    def space(self, directory: Path) -> Space:
        return space(self.percent)

    def probe(self, directory: Path, size: int) -> None:
        super().probe(directory, size)
        if self.fails:
            raise StorageError(f"writing to {directory}", os.strerror(errno.ENOSPC))


class Told:
    """A bookie that is told."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def set_read_only(self, is_read_only: bool, *, is_exhausted: bool) -> None:
        self.heard.append("exhausted" if is_exhausted else "read-only" if is_read_only else "writable")

    def set_writable_directories(self, ordinals: Sequence[int]) -> None:
        self.heard.append(tuple(ordinals))


def test_the_bookie_is_told_of_each_change_once(tmp_path: Path) -> None:
    disk, told = FillableDisk(), Told()
    watch = DiskWatch(Directories.of(tmp_path, BookieConfig()), BookieConfig(), disk)
    for disk.percent in (50, 94, 96, 97, 91, 89, 94):
        watch.look(told)
    assert told.heard == ["read-only", "writable"]
    assert watch.state.problem == ""


def test_the_bookie_is_told_when_its_disks_are_exhausted_and_when_they_are_not_any_more(tmp_path: Path) -> None:
    disk, told = FillableDisk(), Told()
    config = BookieConfig(sync_queue_bytes=4 * GIB, memory_limit_bytes=8 * GIB)  # 4.4 GiB of 100 are needed then
    watch = DiskWatch(Directories.of(tmp_path, config), config, disk)
    for disk.percent in (50, 94, 96, 94, 50):
        watch.look(told)
    assert told.heard == ["read-only", "exhausted", "read-only", "writable"]


def test_the_bookie_is_told_which_entry_log_directories_are_left(tmp_path: Path) -> None:
    config = BookieConfig(ledger_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}")
    told = Told()

    class HalfFull(FillableDisk):
        def space(self, directory: Path) -> Space:
            return space(96 if "a" in directory.parts else self.percent)

    disk = HalfFull()
    watch = DiskWatch(Directories.of(tmp_path, config), config, disk)
    watch.look(told)
    disk.percent = 96
    watch.look(told)
    assert told.heard == [(1,), "read-only"]


def test_compaction_may_take_what_recoveries_may_and_never_what_is_needed_for_what_was_taken_already(tmp_path: Path) -> None:
    config = BookieConfig(sync_queue_bytes=4 * GIB, memory_limit_bytes=8 * GIB)
    needed = Watermarks.of(config).needed_bytes
    disk = FillableDisk()
    watch = DiskWatch(Directories.of(tmp_path, config), config, disk)
    for disk.percent, spare in ((94, 6 * GIB - needed), (97, 0)):
        assert watch.spare_bytes() == spare


def test_a_probe_writes_a_file_into_every_root_and_leaves_nothing(tmp_path: Path) -> None:
    disk = FillableDisk()
    watch = DiskWatch(Directories.of(tmp_path, BookieConfig()), BookieConfig(), disk)
    assert watch.probe()
    disk.fails = True
    assert not watch.probe()
    assert list(tmp_path.iterdir()) == []


def _raised(cause: Exception) -> StorageError:
    try:
        raise StorageError("writing", str(cause)) from cause
    except StorageError as problem:
        return problem


def test_a_failure_is_of_a_full_disk_only_if_the_operating_system_or_sqlite_said_so() -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    assert is_out_of_space(_raised(OSError(errno.ENOSPC, "no space")))
    assert is_out_of_space(_raised(OSError(errno.EDQUOT, "quota")))
    assert is_out_of_space(_raised(full))
    assert not is_out_of_space(_raised(OSError(errno.EIO, "i/o")))
    assert not is_out_of_space(StorageError("writing", "unknown"))
    assert not is_out_of_space(None)


def test_a_full_disk_gets_no_entry_logs_while_another_one_has_space(harness, tmp_path: Path) -> None:
    """Neither large adds nor a checkpoint's copies."""
    full, spacious = tmp_path / "a", tmp_path / "b"
    for root in (full, spacious):
        root.mkdir()
    harness.start(ledger_dirs=f"{full},{spacious}", write_cache_bytes=1)
    harness.disk.space = lambda directory: space(96 if full in directory.parents else 50)
    watch = DiskWatch(Directories.of(harness.data_dir, harness.config), harness.config, harness.disk)
    watch.look(harness.bookie)
    for ledger_id in range(4):
        assert harness.add(ledger_id, 0, 0, size=10_000).status is Status.OK
        assert harness.add(ledger_id, 1, 1, size=10).status is Status.OK
    assert list((full / "entry_log").iterdir()) == []
    assert len(list((spacious / "entry_log").iterdir())) >= 2
    assert not harness.bookie.is_read_only
