"""Copies of checkpoints and compactions, and what a crash leaves of them. Ref: docs/rules.md, storage rules 5 and 7."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from bk_spark.bookie.log_files.log_file import NO_PREDECESSOR, FileKind, unpack_file_header
from bk_spark.bookie.log_files.mark import LogState
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES, RecordKind
from bk_spark.errors import CorruptionError, StorageError
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.world.simulated_disk import MachineStops, SimulatedDisk
from tests.unit.bookie.log_files.log_home import KEY, LARGE, LogHome, make_batch


@pytest.fixture
def home(tmp_path):
    """The index has been written to."""
    home = LogHome(tmp_path).open()
    home.add(1, 0, 0, LARGE)
    home.commit()
    return home


def _copy(home, count=1, purpose="checkpoint"):
    copies = home.logs.copies(purpose)
    locations = [copies.append(make_batch(2, one, one), KEY, one + 1) for one in range(count)]
    copies.sync()
    return copies, locations


def test_copies_are_not_replayed_and_name_no_predecessor(home):
    copies, locations = _copy(home, 3)
    copies.seal()
    _copy(home)
    copies.seal()
    home.commit(copies.files())
    for file_id in (2, 3):
        header = unpack_file_header(home.logs.path_of(file_id).read_bytes()[:4096], "it")
        assert (header.kind, header.predecessor) == (FileKind.COPIES, NO_PREDECESSOR)
    home.kill().open()
    assert (home.records, home.damages) == ([], [])
    assert [home.logs.read(one)[0].sequence for one in locations] == [1, 2, 3]


def test_direct_logs_are_chained_past_the_copies_between_them(tmp_path):
    home = LogHome(tmp_path, entry_log_file_bytes=9000).open()
    for first in range(3):
        home.add(1, first, first, LARGE)
        copies, _ = _copy(home)
        copies.seal()
    home.kill().open()
    assert home.ids() == [(1, 0, 0), (1, 1, 1), (1, 2, 2)]
    assert home.damages == []


def test_copies_that_the_index_does_not_know_are_deleted_and_their_ids_do_not_come_again(home):
    _copy(home)
    home.kill().open()
    assert [path.name for path in home.paths("entry_logs")] == ["0000000001.log"]
    _copy(home)
    assert [path.name for path in home.paths("entry_logs")] == ["0000000001.log", "0000000003.log"]


def test_copies_that_were_open_are_cut_to_what_the_index_knows_and_sealed(home):
    copies, locations = _copy(home, 2)
    home.commit(copies.files())
    size = home.known[2].total_bytes
    late = copies.append(make_batch(2, 2, 2), KEY, 3)
    copies.sync()
    for _ in range(2):  # the index does not learn of the first time
        home.kill().open()
        assert home.logs.path_of(2).stat().st_size == size + RECORD_HEADER_BYTES
        sealed = [one for one in home.logs.files() if one.file_id == 2]
        assert [(one.size_bytes, one.is_sealed) for one in sealed] == [(size + RECORD_HEADER_BYTES, True)]
    assert [home.logs.read(one)[0].sequence for one in locations] == [1, 2]
    with pytest.raises(CorruptionError):
        home.logs.read(late)
    assert [header.kind for _, header in home.logs.scan(2)] == [RecordKind.BATCH, RecordKind.BATCH, RecordKind.SEAL]
    home.commit()
    home.kill().open()
    assert [one for one in home.logs.files() if one.file_id == 2] == []


@pytest.mark.parametrize("state", [LogState.SEALED, LogState.DEAD])
def test_copies_that_are_sealed_or_dead_are_left_alone(home, state):
    copies, _ = _copy(home)
    copies.seal()
    home.commit(copies.files())
    home.known[2] = replace(home.known[2], state=state, total_bytes=5000)
    before = home.logs.path_of(2).read_bytes()
    home.kill().open()
    assert home.logs.path_of(2).read_bytes() == before


def test_copies_that_are_shorter_than_the_index_says_stay_as_they_are(home):
    copies, locations = _copy(home, 2)
    home.commit(copies.files())
    os.truncate(home.logs.path_of(2), locations[1].offset + 20)
    before = home.logs.path_of(2).read_bytes()
    home.kill().open()
    assert home.logs.path_of(2).read_bytes() == before
    assert home.logs.read(locations[0])
    with pytest.raises(CorruptionError):
        home.logs.read(locations[1])


def test_nothing_is_deleted_under_an_index_that_was_never_written_to(home):
    """It may stand in the place of one that was lost, and the copies are all that is left."""
    _copy(home)
    home.mark, home.known = type(home.mark)(), {}
    home.kill().open()
    assert len(home.paths("entry_logs")) == 2


def test_in_limbo_nothing_is_deleted_nor_cut_for_the_index_may_be_an_older_one(home):
    """Storage rule 13; then the first start after the limbo settles the copies as ever."""
    copies, _ = _copy(home)
    home.commit(copies.files())
    mark, known = home.mark, dict(home.known)
    late = copies.append(make_batch(2, 1, 1), KEY, 2)
    copies.sync()
    copies.seal()
    only = home.logs.copies("compaction").append(make_batch(3, 0, 0), KEY, 3)
    home.logs.copies("compaction").sync()
    home.mark, home.known, home.is_limbo = mark, known, True
    for _ in range(2):
        home.kill().open()
        assert [home.logs.read(one)[0].sequence for one in (late, only)] == [2, 3]
        (sealed,) = (one for one in home.logs.files() if one.file_id == late.file_id)
        assert (sealed.is_sealed, sealed.size_bytes) == (True, home.logs.size_of(late.file_id))
    home.is_limbo = False
    home.kill().open()
    assert home.logs.path_of(only.file_id) is None


def test_copies_with_a_damaged_header_are_left_alone_and_reads_of_them_fail(home):
    copies, (location,) = _copy(home)
    home.commit(copies.files())
    path = home.logs.path_of(2)
    data = bytearray(path.read_bytes())
    data[13] ^= 1
    path.write_bytes(data)
    home.kill().open()
    assert path.read_bytes() == bytes(data)
    with pytest.raises(CorruptionError, match="file header"):
        home.logs.read(location)


def test_a_direct_log_is_sealed_and_synced_though_a_file_behind_it_is_unreadable(tmp_path):
    """What was replayed of it is durable before the index is told of it; storage rule 7."""
    disk = SimulatedDisk(1)
    home = LogHome(tmp_path, disk).open()
    home.add(1, 0, 0, LARGE)
    _copy(home)
    location = home.append(make_batch(1, 1, 1, LARGE))
    home.logs.write()
    disk._names[str(home.logs.path_of(2))].data[13] ^= 1
    for _ in range(2):
        home.kill().open()
        assert [damage.path.name for damage in home.damages] == ["0000000002.log"]
        assert disk.unsynced == []
        assert [header.kind for _, header in home.logs.scan(location.file_id)][-1] is RecordKind.SEAL
    home.commit()
    home.kill().open()
    assert home.damages == [], "a file was begun behind it, and the mark is in that"


def test_direct_logs_and_unreadable_files_that_the_index_does_not_know_are_never_deleted(tmp_path):
    home = LogHome(tmp_path, entry_log_file_bytes=9000).open()
    home.add(1, 0, 0, LARGE)
    home.commit()
    home.add(1, 1, 1, LARGE)
    _copy(home)
    path = home.logs.path_of(3)
    data = path.read_bytes()
    path.write_bytes(b"?" + data[1:])
    home.kill().open()
    assert [home.logs.path_of(one) is not None for one in (1, 2, 3)] == [True] * 3
    assert home.ids() == [(1, 1, 1)]


def test_what_the_index_is_told_of_settled_copies_is_durable(tmp_path):
    for seed in range(10):
        disk = SimulatedDisk(seed)
        home = LogHome(tmp_path, disk).open()
        copies, _ = _copy(home, 2)
        home.commit(copies.files())
        home.kill().open().commit()
        disk.crash_machine(SeededChoices(seed), may_garble=False)
        home.open()
        assert home.logs.size_of(1) == home.known[1].total_bytes
        assert [header.kind for _, header in home.logs.scan(1)][-1] is RecordKind.SEAL


def test_copies_of_two_purposes_share_no_file_and_are_asked_for_by_name(home):
    first, _ = _copy(home, purpose="checkpoint")
    second, _ = _copy(home, purpose="compaction")
    assert first is home.logs.copies("checkpoint")
    assert not {one.file_id for one in first.files()} & {one.file_id for one in second.files()}


def test_a_sealed_copy_is_reported_until_the_index_has_taken_it(home):
    copies, _ = _copy(home)
    opened = copies.files()
    copies.seal()
    copies.committed(opened)
    assert [one.is_sealed for one in copies.files()] == [True]
    copies.committed(copies.files())
    assert copies.files() == ()
    _copy(home)
    assert [one.file_id for one in copies.files()] == [3]


def test_closed_copies_are_not_reported_any_more(home):
    """Whoever gave them up may have deleted them."""
    copies, _ = _copy(home)
    copies.seal()
    _copy(home)
    assert len(copies.files()) == 2
    copies.close()
    assert copies.files() == ()


def test_after_a_failure_copies_begin_anew_without_what_was_left(harness, tmp_path):
    home = LogHome(tmp_path, harness.disk).open()
    copies, _ = _copy(home)
    harness.disk.fail("write", "/entry_log/")
    copies.append(make_batch(2, 5, 5), KEY, 5)
    with pytest.raises(StorageError):
        copies.sync()
    harness.disk.failing.clear()
    copies.append(make_batch(2, 6, 6), KEY, 6)
    copies.close()
    assert copies.files() == ()
    _, (location,) = _copy(home)
    assert location.file_id == 2
    assert [header.sequence for _, header in home.logs.scan(2)] == [1]


def test_a_crash_at_any_step_of_the_settling_leaves_what_the_next_start_settles(tmp_path):
    """Storage rule 7."""
    for steps in range(1, 200):
        disk = SimulatedDisk(steps)
        home = LogHome(tmp_path, disk, entry_log_file_bytes=100_000).open()
        home.add(1, 0, 0, LARGE)
        copies, locations = _copy(home, 2)
        home.commit(copies.files())
        copies.append(make_batch(2, 2, 2), KEY, 3)
        copies.sync()
        _copy(home, purpose="compaction")
        home.logs.close()
        disk.stop_after(steps)
        try:
            home.open()
            is_over = True
        except MachineStops:
            is_over = False
        disk.stop_never()
        disk.crash_machine(SeededChoices(steps), may_garble=False)
        home.open()
        assert home.damages == []
        assert [path.name for path in home.paths("entry_logs")] == ["0000000001.log", "0000000002.log"]
        assert [home.logs.read(one)[0].sequence for one in locations] == [1, 2]
        assert [header.kind for _, header in home.logs.scan(2)][-1] is RecordKind.SEAL
        if is_over:
            break
    assert is_over
