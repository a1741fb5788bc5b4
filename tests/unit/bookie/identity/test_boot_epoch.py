"""The epoch of a running bookie: a disk that goes back to a snapshot of the current boot is noticed, and a crash is no loss.

Ref: docs/rules.md, storage rule 9.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie.identity.boot import Boot, MetadataPlace
from bk_spark.bookie.identity.boot_epoch import move_boot_epoch
from bk_spark.bookie.identity.boot_file import BootPhase
from bk_spark.bookie.identity.cookie_file import BootNumber
from bk_spark.errors import (
    BookKeeperError,
    ConfigError,
    CorruptionError,
    MetadataConflictError,
    MetadataUnavailableError,
    StorageError,
)
from tests.memory_store import MemoryStore
from tests.unit.bookie.identity.bookie_home import (
    ZNODES,
    Cut,
    Home,
    QuickDisk,
    SteppedDisk,
    SteppedStore,
    Steps,
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def move(home: Home, boot: Boot, times: int = 1, store: MemoryStore | None = None) -> None:
    for _ in range(times):
        move_boot_epoch(boot, MetadataPlace(store or home.store, ZNODES))


def roots_of(home: Home) -> list[Path]:
    return list(home.directories.roots)


# --- snapshots


@pytest.mark.parametrize("place", range(4))
def test_a_disk_that_goes_back_to_a_snapshot_of_this_boot_does_not_fit_after_two_moves(home: Home, place: int) -> None:
    boot = home.run()
    move(home, boot)
    restore = home.snapshot(roots_of(home)[place])
    move(home, boot, 2)
    restore()
    (found,) = home.examine().mismatches
    assert (found.is_loss, found.is_automatic) == (True, True)
    assert "is 1, epoch 1:" in str(found.error)
    assert "was number 1, epoch 3, so" in str(found.error)
    assert "is a copy, or was restored from an older state" in str(found.error)
    home.configure(automatic_cookie_repair=True)
    assert "is taken for lost" in home.run().possible_loss


def test_a_snapshot_that_was_taken_at_any_step_of_a_move_does_not_fit_after_the_next_two(tmp_path: Path) -> None:
    for home in moves_cut_everywhere(tmp_path):
        home.change_stored(lambda stored: replace(stored, boot=stored.boot.next_epoch.next_epoch))
        assert len(home.examine().mismatches) == 4


def test_a_snapshot_of_a_disk_that_has_lapsed_since_still_fits(home: Home) -> None:
    """What acknowledgements have to end for: nothing tells the two apart."""
    boot = home.run()
    move(home, boot)
    restores = [home.snapshot(root) for root in roots_of(home)]
    with pytest.raises(MetadataUnavailableError):
        move(home, boot, store=Silent(home.tree, Steps()))
    for restore in restores:
        restore()
    assert home.examine().mismatches == ()


# --- crashes


def move_cut_at(home: Home, step: int) -> None:
    """Boot, and die after so many steps of a move."""
    steps = Steps()
    boot = home.boot(disk=SteppedDisk(steps))
    steps.done, steps.cut_before = 0, step
    with pytest.raises(Cut):
        move(home, boot, store=SteppedStore(home.tree, steps))


def moves_cut_everywhere(tmp_path: Path) -> list[Home]:
    """A move writes every boot file, changes the znode, and writes every boot file again."""
    homes = [Home(tmp_path / str(step)) for step in range(9)]
    for step, home in enumerate(homes):
        move_cut_at(home, step)
    return homes


def test_a_crash_at_any_step_of_a_move_is_no_loss(tmp_path: Path) -> None:
    epochs = []
    for home in moves_cut_everywhere(tmp_path):
        assert home.examine().mismatches == ()
        epochs.append(home.stored().boot.epoch)
        boot = home.run()
        assert boot.possible_loss == ""
        move(home, boot)
        boot.end()
        assert home.examine().mismatches == ()
    assert epochs == [0] * 5 + [1] * 4


def test_crashes_at_any_step_of_moves_one_after_the_other_are_understood(tmp_path: Path) -> None:
    for first in range(3):
        for second in range(3):
            for third in range(3):
                home = Home(tmp_path / f"{first}{second}{third}", disks=False)
                for step in (first, second, third):
                    move_cut_at(home, step)
                assert home.run().possible_loss == ""


def test_a_change_that_takes_effect_after_the_crash_still_fits(home: Home) -> None:
    late: list[Callable[[], object]] = []
    boot = home.run()
    with pytest.raises(Cut):
        move(home, boot, store=Late(home, late))
    assert home.examine().mismatches == ()
    late[0]()
    assert home.examine().mismatches == ()
    assert home.run().possible_loss == ""


def test_a_change_that_takes_effect_during_the_next_boot_leaves_disks_that_fit(home: Home) -> None:
    late: list[Callable[[], object]] = []
    with pytest.raises(Cut):
        move(home, home.run(), store=Late(home, late))
    identity = home.examine()
    late[0]()
    with pytest.raises(MetadataConflictError):
        home.boot(identity=identity)
    assert home.run().possible_loss == ""


# --- answers of the metadata store that do not come


class Silent(SteppedStore):
    """Takes no change and says nothing."""

    def set(self, path: str, value: bytes, version: int) -> int:
        raise MetadataUnavailableError(self.uri, "no answer")


class Deaf(SteppedStore):
    """Makes the change, and its reply is lost."""

    def set(self, path: str, value: bytes, version: int) -> int:
        super().set(path, value, version)
        raise MetadataUnavailableError(self.uri, "no answer")


class Late(SteppedStore):
    """Makes the change when it is told to."""

    def __init__(self, home: Home, late: list[Callable[[], object]]) -> None:
        super().__init__(home.tree, Steps())
        self._late = late

    def set(self, path: str, value: bytes, version: int) -> int:
        self._late.append(lambda: MemoryStore.set(self, path, value, version))
        raise Cut


def test_a_lost_reply_is_read_again(home: Home) -> None:
    boot = home.run()
    move(home, boot, store=Deaf(home.tree, Steps()))
    assert home.stored().boot == boot.confirmed == home.records()[0].confirmed
    assert boot.confirmed.epoch == 1


def test_tries_without_an_answer_repeat_one_epoch_until_it_is_there(home: Home) -> None:
    boot = home.run()
    for _ in range(3):
        with pytest.raises(MetadataUnavailableError):
            move(home, boot, store=Silent(home.tree, Steps()))
        assert {record.pending for record in home.records()} == {boot.confirmed.next_epoch}
    move(home, boot)
    assert home.stored().boot.epoch == boot.confirmed.epoch == 1


def test_a_change_that_took_effect_between_two_tries_is_the_move(home: Home) -> None:
    late: list[Callable[[], object]] = []
    boot = home.run()
    with pytest.raises(Cut):
        move(home, boot, store=Late(home, late))
    late[0]()
    move(home, boot)
    assert home.stored().boot.epoch == boot.confirmed.epoch == 1


def test_no_epoch_is_stored_before_every_disk_knows_of_it(home: Home) -> None:
    class Failing(QuickDisk):
        fails_at = -1

        def replace(self, path: Path, data: bytes) -> None:
            self.fails_at -= 1
            if self.fails_at == 0:
                raise StorageError(f"writing {path}", os.strerror(errno.EIO))
            super().replace(path, data)

    disk = Failing()
    boot = home.boot(disk=disk)
    for place in range(1, 5):
        disk.fails_at = place
        with pytest.raises(StorageError):
            move(home, boot)
        assert home.stored().boot.epoch == 0
        assert home.examine().mismatches == ()
    move(home, boot)
    for place in range(5, 9):  # the confirmation
        disk.fails_at = place
        with pytest.raises(StorageError):
            move(home, boot)
        assert home.examine().mismatches == ()
    move(home, boot)
    assert {record.confirmed for record in home.records()} == {home.stored().boot}


# --- others


def test_a_clone_that_boots_ends_the_moves_of_the_original(home: Home) -> None:
    original = home.run()
    home.run()
    with pytest.raises(MetadataConflictError, match="it is that of boot 2, epoch 0, and this process is boot 1, epoch 0"):
        move(home, original)


def test_a_clone_that_boots_between_the_look_and_the_change_of_a_move_wins(home: Home) -> None:
    class Racing(SteppedStore):
        def set(self, path: str, value: bytes, version: int) -> int:
            home.run()
            return super().set(path, value, version)

    with pytest.raises(MetadataConflictError):
        move(home, home.run(), store=Racing(home.tree, Steps()))
    assert home.stored().boot.number == 2


def test_a_clone_with_the_number_of_this_boot_is_told_from_it_by_its_token(home: Home) -> None:
    boot = home.run()
    home.change_stored(lambda stored: replace(stored, boot=BootNumber(1, "another", 7)))
    with pytest.raises(MetadataConflictError):
        move(home, boot)
    home.change_stored(lambda stored: replace(stored, boot=BootNumber(1, "another", 0)))
    with pytest.raises(MetadataConflictError):
        move(home, boot)


@pytest.mark.parametrize("epoch", [1, 0])
def test_a_metadata_store_that_went_back_is_moved_on_by_the_running_bookie(home: Home, epoch: int) -> None:
    boot = home.run()
    move(home, boot, 5)
    home.change_stored(lambda stored: replace(stored, boot=replace(stored.boot, epoch=epoch)))
    move(home, boot)
    assert home.stored().boot.epoch == 6
    assert home.run().possible_loss == ""


def test_a_metadata_store_that_went_back_before_this_boot_is_moved_on_too(home: Home) -> None:
    home.run().end()
    before = home.stored()
    boot = home.run()
    home.change_stored(lambda stored: before)
    move(home, boot)
    assert home.stored().boot == boot.confirmed
    assert boot.number == 2


def test_a_metadata_store_that_went_back_while_the_bookie_was_down_is_left_to_the_operator_and_is_no_loss(home: Home) -> None:
    """Nothing shows that the disks are old; limbo of all bookies at once would never end."""
    boot = home.run()
    move(home, boot, 5)
    boot.end()
    home.change_stored(lambda stored: replace(stored, boot=replace(stored.boot, epoch=1)))
    found = home.examine().mismatches
    assert [(one.is_loss, one.is_automatic) for one in found] == [(False, False)] * 4
    assert "the metadata store knows bookie" in str(found[0].error)
    home.fix()
    assert home.run().possible_loss == ""


def test_a_bookie_whose_cookie_is_gone_or_rewritten_cannot_move(home: Home) -> None:
    boot = home.run()
    path = ZNODES.cookie(home.bookie_id)
    home.store.set(path, b"rubbish", home.store.get(path).version)
    with pytest.raises(CorruptionError):
        move(home, boot)
    home.store.delete(path)
    with pytest.raises(ConfigError, match="removed from the cluster"):
        move(home, boot)


# --- what else the boot file says


def test_a_move_keeps_what_the_run_has_noted_and_the_clean_mark_keeps_the_epoch(home: Home) -> None:
    boot = home.run()
    boot.note_failed_sync()
    move(home, boot)
    assert all(record.skipped_journal and record.phase is BootPhase.RUNNING for record in home.records())
    boot.end()
    assert {record.confirmed.epoch for record in home.records()} == {1}
    assert home.run().possible_loss == ""


def test_a_failed_sync_that_could_not_be_noted_is_noted_by_the_next_move(home: Home) -> None:
    class Failing(QuickDisk):
        is_failing = False

        def replace(self, path: Path, data: bytes) -> None:
            if self.is_failing:
                raise StorageError(f"writing {path}", os.strerror(errno.EIO))
            super().replace(path, data)

    disk = Failing()
    boot = home.boot(disk=disk)
    boot.opened(skips_journal=False)
    disk.is_failing = True
    boot.note_failed_sync()
    with pytest.raises(BookKeeperError):
        move(home, boot)
    disk.is_failing = False
    move(home, boot)
    assert all(record.skipped_journal for record in home.records())


def test_a_stop_with_a_move_under_way_is_clean_wherever_the_move_ends(home: Home) -> None:
    late: list[Callable[[], object]] = []
    boot = home.run()
    with pytest.raises(Cut):
        move(home, boot, store=Late(home, late))
    boot.end()
    late[0]()
    assert home.run().possible_loss == ""
