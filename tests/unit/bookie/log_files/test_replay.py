"""Tears, damage, and the end of a replay. Ref: docs/rules.md, storage rules 2, 6 and 7, protocol rule 40, situation 54."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES
from bk_spark.errors import StorageError
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.world.simulated_disk import Content, MachineStops, SimulatedDisk
from tests.unit.bookie.log_files.log_home import LARGE, SMALL, LogHome, make_batch

LAST_FILES = pytest.mark.parametrize(("kind", "size"), [("journals", SMALL), ("entry_logs", 300)])
THREE = [(1, 0, 2), (1, 3, 5), (1, 6, 8)]


class LastFile:
    """Three batches in one file, whose bytes can be changed. Two were acked for sure when the third was written.

    The witness does not tell of the third.
    """

    def __init__(self, kind: str, size: int, *, is_idle: bool = False) -> None:
        self.disk = SimulatedDisk(1)
        self.home = LogHome(Path("/b"), self.disk, direct_add_bytes=600).open()
        self.ends = []
        for ids in THREE:
            self.witnessed = self.home.told()
            self.home.add(*ids, size)
            (self.path,) = self.home.paths(kind)
            self.ends.append(self.size)
        if is_idle:
            self.home.logs.idle()
        self.home.kill()
        self.home.witnessed = self.witnessed
        self.data = bytes(self.content.data)
        self.starts = [FILE_HEADER_BYTES, *(end if kind == "journals" else end + -end % 4096 for end in self.ends[:2])]

    @property
    def content(self) -> Content:
        return self.disk._names[str(self.path)]

    @property
    def size(self) -> int:
        return len(self.content.data)

    def put(self, data: bytes) -> None:
        self.content.data[:] = data
        self.content.synced = len(data)

    def start_with(self, data: bytes) -> LogHome:
        """What a start finds if the file holds these bytes; a second start must find the same."""
        self.put(data)
        self.home.open().kill()
        found, damages = self.home.ids(), [(one.offset, one.problem) for one in self.home.damages]
        self.home.open().kill()
        assert self.home.ids() == found
        assert [(one.offset, one.problem) for one in self.home.damages] == damages
        return self.home

    def flipped(self, bit: int) -> bytes:
        data = bytearray(self.data)
        data[bit // 8] ^= 1 << bit % 8
        return bytes(data)


# --- above the durable length: the third batch was not acked


@LAST_FILES
def test_undecidable_damage_is_not_said_to_have_been_durable(kind, size):
    file = LastFile(kind, size)
    file.put(file.flipped(8 * file.starts[2]))
    (damage,) = file.home.open().damages
    assert not damage.is_below_durable
    assert str(damage).endswith("whether it was ever durable is not known")


# --- below the durable length


@LAST_FILES
def test_every_flipped_bit_of_a_header_below_the_durable_length_is_damage_and_later_batches_come_back(kind, size):
    file = LastFile(kind, size)
    for bit in range(8 * file.starts[1], 8 * (file.starts[1] + RECORD_HEADER_BYTES)):
        _is_damage_of_the_second(file, file.start_with(file.flipped(bit)))


@LAST_FILES
def test_flipped_bits_of_a_body_below_the_durable_length_are_damage_and_later_batches_come_back(kind, size):
    file = LastFile(kind, size)
    begin = file.starts[1] + RECORD_HEADER_BYTES
    bits = range(8 * begin, 8 * file.ends[1])
    for bit in random.Random(2).sample(bits, 300):
        _is_damage_of_the_second(file, file.start_with(file.flipped(bit)))


def _is_damage_of_the_second(file, home):
    assert home.ids() == [THREE[0], THREE[2]]
    (damage,) = home.damages
    assert (damage.path, damage.is_below_durable) == (file.path, True)
    assert damage.offset <= file.starts[1] < damage.end <= file.starts[2]


@LAST_FILES
def test_the_last_acked_batch_that_turns_to_zeros_is_damage_once_the_log_was_idle(kind, size):
    """Without the IDLE record it cannot be told from a tear."""
    for is_idle in (True, False):
        file = LastFile(kind, size, is_idle=is_idle)
        zeros = file.data[: file.ends[1]] + bytes(file.ends[2] - file.ends[1]) + file.data[file.ends[2] :]
        home = file.start_with(zeros)
        assert home.ids() == THREE[:2]
        assert [one.is_below_durable for one in home.damages] == [True] * is_idle


@LAST_FILES
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_file_that_is_cut_below_the_mark_or_gone_is_damage_until_the_mark_has_passed_it(kind, size, is_gone):
    file = LastFile(kind, size)
    home = file.home.open()
    home.commit()
    home.kill()
    file.put(file.data[: file.ends[2] - 5])
    if is_gone:
        file.disk.unlink(file.path)
    for _ in range(2):
        (damage,) = home.open().damages
        assert (damage.path, damage.offset, damage.is_below_durable) == (file.path, 0 if is_gone else file.ends[2] - 5, True)
        home.kill()
    assert is_gone or file.size == file.ends[2] - 5
    home.open().commit()
    assert home.kill().open().damages == []
    home.add(2, 0, 2, size)
    assert home.kill().open().ids() == [(2, 0, 2)]
    assert home.damages == []


# --- the end of a replay


@LAST_FILES
def test_starting_again_and_again_does_not_grow_a_file(kind, size):
    file = LastFile(kind, size)
    home = file.start_with(file.data)
    size_before = file.size
    for _ in range(3):
        home.open().kill()
        assert (file.size, len(home.paths(kind))) == (size_before, 1)
    assert home.ids() == THREE


def test_files_that_never_got_their_names_are_removed_from_every_directory(tmp_path):
    home = LogHome(tmp_path).open().kill()
    left = [
        home.directories.journals[0] / "0000000009.journal.creating",
        home.directories.entry_logs[0] / "0000000009.log.creating",
    ]
    for path in left:
        path.write_bytes(b"part of a header")
    home.open()
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_second_crash_at_any_step_of_a_replay_loses_nothing_and_hides_no_damage(tmp_path, is_damaged):
    """Storage rule 7. Two journal directories and two for entry logs, each with a torn end."""
    places = [tmp_path / name for name in "abcd"]
    for steps in range(1, 300):
        disk = SimulatedDisk(steps)
        home = LogHome(tmp_path, disk, journal_dirs=f"{places[0]},{places[1]}", ledger_dirs=f"{places[2]},{places[3]}").open()
        for ledger_id in range(4):
            home.add(ledger_id, 0, 0, LARGE if ledger_id > 1 else SMALL)
            home.add(ledger_id, 1, 1, LARGE if ledger_id > 1 else SMALL)
        _tear(disk, home, is_damaged)
        acked = sorted((ledger_id, first, first) for ledger_id in range(4) for first in range(2))
        expected = [one for one in acked if not (is_damaged and one == (0, 0, 0))]
        disk.stop_after(steps)
        try:
            home.open()
            is_over = True
        except MachineStops:
            is_over = False
        disk.stop_never()
        disk.crash_machine(SeededChoices(steps), may_garble=False)
        for _ in range(2):
            home.open()
            assert sorted(home.ids()) == expected
            assert [one.offset for one in home.damages] == [FILE_HEADER_BYTES] * is_damaged
            home.logs.close()
        if is_over:
            break
    assert is_over


def test_after_a_replay_the_ends_of_all_files_are_durable_before_anything_new_is(tmp_path):
    """Storage rule 7: the next file's header says how the one before it was sealed."""
    for seed in range(20):
        disk = SimulatedDisk(seed)
        home = LogHome(tmp_path, disk).open()
        home.add(1, 0, 0)
        home.append(make_batch(1, 1, 1))
        home.logs.write()
        home.kill().open().add(1, 2, 2)
        disk.crash_machine(SeededChoices(seed), may_garble=False)
        assert home.open().damages == []
        assert home.ids() == [(1, 0, 0), (1, 1, 1), (1, 2, 2)]


def _tear(disk, home, is_damaged):
    """Every log gets the beginning of a record that was never synced, the first journal a flipped bit in its first batch."""
    home.logs.close()
    for content in disk._names.values():
        content.data += content.data[FILE_HEADER_BYTES : FILE_HEADER_BYTES + 16]  # magic, and no more of the place
    if is_damaged:
        path = home.paths("journals", 0)[0]
        disk._names[str(path)].data[FILE_HEADER_BYTES + 40] ^= 1


def test_a_replay_that_cannot_sync_what_it_found_does_not_end(harness, tmp_path):
    """Storage rule 6: nothing is served from a file whose sync failed."""
    home = LogHome(tmp_path, harness.disk).open()
    home.add(1, 0, 0)
    home.kill()
    harness.disk.fail("sync", "/journal/")
    with pytest.raises(StorageError, match="syncing"):
        home.open()
    harness.disk.failing.clear()
    assert home.open().ids() == [(1, 0, 0)]


def test_sequences_go_on_above_all_that_was_found(tmp_path):
    home = LogHome(tmp_path).open()
    for first in range(5):
        home.add(1, first, first)
    home.kill()
    home.mark = replace(home.mark, next_sequence=3)
    home.open()
    assert home.logs.sequences.next_sequence == 7  # the SEAL has 6
    assert REAL_DISK.size(home.paths("journals")[0]) > 0
