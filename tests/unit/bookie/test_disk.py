from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from bk_spark.bookie.disk import REAL_DISK, TEMPORARY_SUFFIX
from bk_spark.errors import ConfigError, StorageError


def test_a_created_file_has_its_header_and_no_temporary_name(tmp_path):
    file = REAL_DISK.create(tmp_path / "log", b"header")
    file.close()
    assert [one.name for one in tmp_path.iterdir()] == ["log"]
    assert (tmp_path / "log").read_bytes() == b"header"
    assert (file.size, file.synced) == (6, 6)


def test_a_file_that_is_claimed_for_a_library_is_empty_or_what_it_was(tmp_path):
    REAL_DISK.claim(tmp_path / "new")
    (tmp_path / "there").write_bytes(b"content")
    REAL_DISK.claim(tmp_path / "there")
    assert [one.read_bytes() for one in (tmp_path / "new", tmp_path / "there")] == [b"", b"content"]
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


def test_appended_bytes_count_as_synced_only_after_a_sync(tmp_path):
    file = REAL_DISK.create(tmp_path / "log", b"")
    file.append([b"ab", b"cd"])
    assert (file.size, file.synced) == (4, 0)
    file.sync()
    assert file.synced == 4
    file.close()


def test_more_buffers_than_one_writev_takes_are_all_written(tmp_path):
    file = REAL_DISK.create(tmp_path / "log", b"")
    file.append([bytes([number % 251]) for number in range(3000)])
    file.close()
    assert (tmp_path / "log").read_bytes() == bytes(number % 251 for number in range(3000))


@pytest.mark.parametrize("verb", ["write", "sync"])
def test_a_failed_write_or_sync_poisons_the_file_for_good(harness, tmp_path, verb):
    file = harness.disk.create(tmp_path / "log", b"x")
    harness.disk.fail(verb, "log")
    with pytest.raises(StorageError, match="Input/output error"):
        _append_and_sync(file)
    harness.disk.failing.clear()
    for step in (_append_and_sync, lambda one: one.append([b"z"])):
        with pytest.raises(StorageError, match="an earlier write or sync failed"):
            step(file)
    file.close()


def test_a_failed_sync_is_not_tried_again(harness, tmp_path):
    file = harness.disk.create(tmp_path / "log", b"x")
    file.append([b"y"])
    harness.disk.fail("sync", "log")
    for expected in ("Input/output error", "an earlier write or sync failed"):
        with pytest.raises(StorageError, match=expected):
            file.sync()
        harness.disk.failing.clear()
    assert file.synced == 1
    file.close()


def test_after_a_failed_write_a_sync_says_so_though_all_that_was_written_is_synced(harness, tmp_path):
    """Storage rule 6: what could not be written must not pass for durable."""
    file = harness.disk.create(tmp_path / "log", b"x")
    harness.disk.fail("write", "log")
    with pytest.raises(StorageError):
        file.append([b"y"])
    assert file.is_dirty
    with pytest.raises(StorageError, match="an earlier write or sync failed"):
        file.sync()
    file.close()


def _open_files() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found


def test_a_file_that_could_not_be_created_leaves_nothing_open(harness, tmp_path):
    """Compaction tries again and again while a disk is full."""
    harness.disk.fail("write", "log")
    for _ in range(5):
        with pytest.raises(StorageError):
            harness.disk.create(tmp_path / "log", b"x")
    assert [name for name in _open_files() if name.startswith(str(tmp_path))] == []


def test_what_is_rewritten_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("bk_spark.bookie.disk.REWRITTEN_BYTES", 7)
    data = bytes(range(100))
    (tmp_path / "log").write_bytes(data)
    for start in (0, 33, 100):
        REAL_DISK.rewrite(tmp_path / "log", start)
        assert (tmp_path / "log").read_bytes() == data
    with pytest.raises(StorageError, match="rewriting"):
        REAL_DISK.rewrite(tmp_path / "other", 0)


def _append_and_sync(file):
    file.append([b"y"])
    file.sync()


def test_a_directory_is_locked_by_one_holder_at_a_time(tmp_path):
    lock = REAL_DISK.lock(tmp_path)
    with pytest.raises(ConfigError, match="another process uses it"):
        REAL_DISK.lock(tmp_path)
    lock.release()
    REAL_DISK.lock(tmp_path).release()


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        REAL_DISK.lock(tmp_path / "nowhere")


def test_a_replaced_file_has_the_new_content_alone(tmp_path):
    REAL_DISK.replace(tmp_path / "small", b"a long first version")
    REAL_DISK.replace(tmp_path / "small", b"short")
    assert REAL_DISK.read_small(tmp_path / "small") == b"short"
    assert not list(tmp_path.glob(f"*{TEMPORARY_SUFFIX}"))
    assert REAL_DISK.read_small(tmp_path / "none") is None


def test_a_read_is_short_only_at_the_end_of_the_file(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    with REAL_DISK.open_read(tmp_path / "file") as file:
        assert (file.read(2, 3), file.read(8, 10), file.read(20, 5)) == (b"234", b"89", b"")


def test_files_are_synced_together_and_all_have_ended_when_one_has_failed(harness, tmp_path):
    files = [harness.disk.create(tmp_path / name, b"") for name in ("a", "b", "c", "d", "e", "f", "g")]
    for file in files:
        file.append([b"x"])
    for name in ("a", "c"):
        harness.disk.fail("sync", f"/{name}")
    with pytest.raises(StorageError, match=r"syncing .*/a failed"):
        harness.disk.sync_all(files)
    assert [file.synced for file in files] == [0, 1, 0, 1, 1, 1, 1]
    with pytest.raises(StorageError, match=r"syncing .*/c failed: an earlier write or sync failed"):
        harness.disk.sync_all(files[1:3])
    harness.disk.sync_all([])
    for file in files:
        file.close()


def test_one_file_is_synced_by_its_caller(harness, tmp_path):
    file = harness.disk.create(tmp_path / "a", b"")
    file.append([b"x"])
    threads = []
    sync = file._fdatasync
    file._fdatasync = lambda: (threads.append(threading.current_thread()), sync())
    harness.disk.sync_all([file])
    assert (threads, file.synced) == ([threading.current_thread()], 1)
    file.close()


def test_directories_of_one_file_system_have_one_name_for_it(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    name = REAL_DISK.file_system(tmp_path)
    assert name == REAL_DISK.file_system(tmp_path / "other")
    assert name != REAL_DISK.file_system(Path("/proc"))
    monkeypatch.setattr("bk_spark.bookie.disk.KERNEL_BOOT", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("another machine, or another boot")
    assert name != REAL_DISK.file_system(tmp_path)


def test_a_file_system_that_cannot_be_told_has_no_name(tmp_path, monkeypatch):
    assert REAL_DISK.file_system(tmp_path / "missing") == ""
    monkeypatch.setattr("bk_spark.bookie.disk.KERNEL_BOOT", tmp_path / "missing")
    assert REAL_DISK.file_system(tmp_path) == ""
