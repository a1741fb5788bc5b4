"""Boot numbers and the unclean mark: what each start knows of the last one (situation 71).

Ref: docs/rules.md, protocol rules 48, 51 and 52, storage rules 9, 12 and 13.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.identity.boot import Boot
from bk_spark.bookie.identity.boot_file import BootPhase, write_boot
from bk_spark.errors import MetadataConflictError, StorageError
from tests.memory_store import MemoryStore
from tests.unit.bookie.identity.bookie_home import (
    QUICK_DISK,
    Cut,
    Home,
    QuickDisk,
    SteppedDisk,
    SteppedStore,
    Steps,
    begin,
    cut_everywhere,
    numbered,
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_every_boot_has_the_next_number_on_all_disks_and_in_the_metadata_store(home: Home) -> None:
    for number in (1, 2, 3):
        boot = home.run()
        assert boot.number == number
        assert home.stored().boot.number == number
        assert {record.confirmed for record in home.records()} == {home.stored().boot}
        assert {record.pending for record in home.records()} == {None}
        boot.end()


def test_a_boot_leaves_apaches_text_and_the_directories_in_the_metadata_store_as_they_are(home: Home) -> None:
    before = home.stored()
    home.run()
    assert home.stored() == replace(before, boot=home.stored().boot)


# --- the unclean mark


def test_every_directory_says_running_before_the_bookie_is_opened(home: Home) -> None:
    """Protocol rule 52: durable before serving and registering."""
    home.boot()
    assert [record.phase for record in home.records()] == [BootPhase.RUNNING] * 4


def test_every_directory_says_clean_after_the_end(home: Home) -> None:
    home.run().end()
    assert [record.phase for record in home.records()] == [BootPhase.CLEAN] * 4


def test_a_clean_stop_is_no_possible_loss_with_or_without_the_journal(home: Home) -> None:
    for writes in (True, False, True):
        home.configure(journal_write_data=writes)
        boot = home.run()
        assert boot.possible_loss == ""
        boot.end()


def test_an_unclean_stop_with_the_journal_is_no_possible_loss(home: Home) -> None:
    """Storage rule 12."""
    for _ in range(3):
        assert home.run().possible_loss == ""


@pytest.mark.parametrize("writes_now", [True, False])
def test_an_unclean_stop_without_the_journal_is_a_possible_loss_whatever_the_mode_is_now(home: Home, writes_now: bool) -> None:
    """Storage rule 9."""
    home.configure(journal_write_data=False)
    home.run()
    home.configure(journal_write_data=writes_now)
    assert "skipped the journal" in home.run().possible_loss


def test_a_stop_that_is_clean_in_all_directories_but_one_is_unclean(home: Home) -> None:
    """Situation 71: partial presence of the mark."""
    home.configure(journal_write_data=False)
    for root in home.directories.roots:
        boot = home.run()
        running = home.records()[0]
        boot.end()
        write_boot(QUICK_DISK, root, running)
        assert "did not end cleanly" in home.run().possible_loss


def test_a_possible_loss_is_known_until_its_limbo_is_durable_and_not_longer(home: Home) -> None:
    home.configure(journal_write_data=False)
    home.run()
    home.configure(journal_write_data=True)
    for _ in range(3):
        assert home.boot().possible_loss  # killed before the storage was opened
    home.run()
    assert home.run().possible_loss == ""


def test_a_run_with_the_journal_does_not_hide_that_the_one_before_skipped_it(home: Home) -> None:
    home.configure(journal_write_data=False)
    home.run()
    home.configure(journal_write_data=True)
    home.boot()
    assert all(record.skipped_journal for record in home.records())


def test_a_run_without_the_journal_says_so_before_it_is_opened(home: Home) -> None:
    home.configure(journal_write_data=False)
    home.boot()
    assert all(record.skipped_journal for record in home.records())


def test_a_failed_sync_is_a_possible_loss(home: Home) -> None:
    """Storage rule 6: what the disk holds after it is unknown."""
    home.run().note_failed_sync()
    assert "saw a failed sync" in home.run().possible_loss


def test_a_failed_sync_that_cannot_be_noted_is_no_other_error(home: Home) -> None:
    boot, disk = failing_boot(home)
    disk.is_failing = True
    boot.note_failed_sync()


def test_a_stop_whose_mark_cannot_be_written_is_unclean(home: Home) -> None:
    home.configure(journal_write_data=False)
    boot, disk = failing_boot(home)
    disk.is_failing = True
    with pytest.raises(StorageError):
        boot.end()
    assert home.run().possible_loss


class FailingDisk(QuickDisk):
    is_failing = False

    def replace(self, path: Path, data: bytes) -> None:
        if self.is_failing:
            raise StorageError(f"writing {path}", os.strerror(errno.EIO))
        super().replace(path, data)


def failing_boot(home: Home) -> tuple[Boot, FailingDisk]:
    disk = FailingDisk()
    return home.boot(disk=disk), disk


# --- the index


def test_an_index_that_was_rebuilt_is_a_possible_loss_once(home: Home) -> None:
    """Storage rule 13."""
    home.run().end()
    home.write_index(1, b"B" * 16)
    boot = home.run(incarnation=b"B" * 16)
    assert "rebuilt" in boot.possible_loss
    boot.end()
    assert home.run(incarnation=b"B" * 16).possible_loss == ""


def test_an_index_that_is_gone_is_a_possible_loss(home: Home) -> None:
    home.run().end()
    home.directories.index.joinpath("generation").unlink()
    assert "another one than the bookie ran with" in home.boot().possible_loss


def test_an_index_taken_from_a_copy_is_a_possible_loss(home: Home) -> None:
    """Storage rule 3: also where its witness was copied along with it."""
    boot = home.run(generation=5)
    home.write_index(9)
    boot.end()
    home.write_index(8)
    assert "the index has generation 8, and 9 when it was last used" in home.run(generation=8).possible_loss


def test_an_index_that_went_on_is_none(home: Home) -> None:
    home.run(generation=5)
    home.write_index(700)
    assert home.run(generation=701).possible_loss == ""


# --- races


def test_a_boot_that_another_one_overtakes_ends_with_a_clear_error(home: Home) -> None:
    identity = home.examine()
    home.boot()
    with pytest.raises(MetadataConflictError, match="another process starts or repairs the same bookie"):
        home.boot(identity=identity)


def test_a_boot_that_another_one_overtook_leaves_the_disks_as_they_were(home: Home) -> None:
    """The winner may be an earlier boot of these disks whose change took effect late: its pending number must still fit."""
    late: list[Callable[[], object]] = []

    class Late(SteppedStore):
        def set(self, path: str, value: bytes, version: int) -> int:
            late.append(lambda: MemoryStore.set(home.store, path, value, version))
            raise Cut

    with pytest.raises(Cut):
        home.boot(store=Late(home.tree, Steps()))
    identity = home.examine()
    late[0]()
    with pytest.raises(MetadataConflictError):
        home.boot(identity=identity)
    assert home.run().possible_loss == ""


# --- cuts


def boot(home: Home, disk: Disk, store: MemoryStore) -> None:
    home.boot(disk=disk, store=store).opened(skips_journal=not home.config.journal_write_data)


def boot_and_end(home: Home, disk: Disk, store: MemoryStore) -> None:
    made = home.boot(disk=disk, store=store)
    made.opened(skips_journal=not home.config.journal_write_data)
    made.end()


def test_a_start_that_is_cut_anywhere_is_understood_by_the_next_one(tmp_path: Path) -> None:
    left = cut_everywhere(numbered(tmp_path, lambda home: home.run().end()), boot_and_end)
    assert len(left) >= 26
    for home in left:
        assert home.examine().mismatches == ()
        assert home.run().possible_loss == ""


def test_starts_that_are_cut_anywhere_one_after_the_other_are_understood(tmp_path: Path) -> None:
    for home in cut_everywhere(numbered(tmp_path, lambda home: home.run().end()), boot):
        for step in (5, 3, 7, 4, 1):
            steps = Steps()
            steps.cut_after = step
            with pytest.raises(Cut):
                boot(home, SteppedDisk(steps), SteppedStore(home.tree, steps))
        assert home.run().possible_loss == ""


def test_a_start_without_the_journal_that_is_cut_anywhere_never_hides_a_loss(tmp_path: Path) -> None:
    """The run before lost data: until its limbo is durable, which is when ``opened`` is called, every start says so."""

    def crash_without_journal(home: Home) -> None:
        home.configure(journal_write_data=False)
        home.run()
        home.configure(journal_write_data=True)

    left = cut_everywhere(numbered(tmp_path, crash_without_journal), begin)
    assert len(left) >= 18
    for home in left:
        assert home.run().possible_loss
