"""Starts: what a former process left, and what follows from a possible loss.

Ref: docs/rules.md, storage rules 2, 7, 11, 12 and 14, protocol rule 38, situations 53, 54 and 61.
"""

from __future__ import annotations

import itertools
import shutil

import pytest

from bk_spark.bookie.disk import ReadFile
from bk_spark.bookie.index.values import Limbo
from bk_spark.bookie.log_files.all_log_files import LogFilesReplay
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES
from bk_spark.bookie.log_files.witness import WITNESS_FILE
from bk_spark.bookie.progress import Progress
from bk_spark.errors import CorruptionError, MissingLogError, StorageError
from bk_spark.wire.messages import AddRequest, Status
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.world.simulated_disk import MachineStops, SimulatedDisk
from tests.unit.bookie.storage.crash_workload import CONFIG, KEY, NAME, batch, open_bookie

SMALL, LARGE = 10, 2000
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["journalled", "direct"])


def _flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def _damage_first_record(harness, kind):
    """In its body; two whole records stand behind it."""
    for first in (0, 5, 10):
        harness.add(1, first, first + 4, size=SMALL if kind == "journal" else LARGE)
    harness.fence(2)
    harness.kill()
    (path,) = harness.files(kind)
    _flip(path, 4096 + RECORD_HEADER_BYTES + 150)


@pytest.mark.parametrize("kind", ["journal", "entry_log"])
def test_damage_is_refused_where_nobody_says_how_far_the_loss_may_reach(harness, kind):
    """Situation 54."""
    harness.start()
    _damage_first_record(harness, kind)
    with pytest.raises(CorruptionError, match=kind):
        harness.start()


@pytest.mark.parametrize("kind", ["journal", "entry_log"])
def test_damage_is_a_possible_loss_and_limbo_is_there_before_anything_is_served(harness, kind):
    """Storage rule 2: what follows the damage is there, what was damaged is unknown, and so is all that is not here."""
    harness.start()
    _damage_first_record(harness, kind)
    harness.highest_issued = lambda: 9
    for _ in range(2):
        harness.start()
        assert harness.bookie.limbo == Limbo(9)
        assert harness.read(1, 0, 4)[1].status is Status.UNKNOWN
        harness.assert_holds(1, 5, 14, size=SMALL if kind == "journal" else LARGE)
        assert harness.read(7, 0, 0)[1].status is Status.UNKNOWN
        assert harness.add(2, 0, 4).status is Status.FENCED
        assert harness.add(3, 0, 4).status is Status.UNKNOWN
        assert harness.add(10, 0, 4).status is Status.OK, "issued later"
        harness.kill()


@pytest.mark.parametrize("suffix", [".journal", ".log"])
def test_a_start_that_met_damage_and_was_cut_anywhere_leaves_the_damage_or_the_limbo(suffix):
    """Storage rule 11: limbo is durable before the mark moves beyond the damage."""
    damaged = SimulatedDisk(1)
    bookie = open_bookie(damaged, CONFIG)
    for number, first in enumerate((0, 5, 10), 1):
        size = SMALL if suffix == ".journal" else 500
        bookie.stage(AddRequest(number, NAME, KEY, batch(1, first, first + 4, size, number)), None)
    assert {reply.status for _, reply in bookie.sync()} == {Status.OK}
    (path,) = (one for one in damaged._names if one.endswith(suffix))
    damaged._names[path].data[4096 + RECORD_HEADER_BYTES + 150] ^= 0x10
    for calls in itertools.count(1):
        disk = damaged.copy(calls)
        disk.stop_after(calls)
        try:
            open_bookie(disk, CONFIG, highest_issued=lambda: 9)
        except MachineStops:
            disk.crash_machine(SeededChoices(calls), may_garble=False)
            assert open_bookie(disk, CONFIG, highest_issued=lambda: 9).limbo == Limbo(9)
        else:
            break
    assert calls > 15


def test_a_possible_loss_that_the_caller_knows_of_begins_limbo_though_all_is_whole(harness):
    harness.start()
    harness.add(1, 0, 4)
    harness.stop()
    harness.highest_issued = lambda: 5
    harness.start(possible_loss="its cookie was repaired")
    harness.assert_holds(1, 0, 4)
    assert harness.read(1, 5, 5)[1].status is Status.UNKNOWN
    harness.stop()
    harness.highest_issued = None
    with pytest.raises(CorruptionError, match="its cookie was repaired"):
        harness.start(possible_loss="its cookie was repaired")


def test_the_highest_issued_ledger_is_asked_for_only_after_a_loss(harness):
    asked = []
    harness.highest_issued = lambda: asked.append(1) or 5
    harness.start()
    harness.add(1, 0, 4)
    harness.kill()
    harness.start()
    assert (asked, harness.bookie.limbo) == ([], None)
    harness.stop()
    harness.start(possible_loss="a disk was lost")
    assert asked == [1]


def test_under_an_older_index_no_copy_is_deleted_or_cut_while_limbo_lasts(harness, tmp_path):
    """Storage rule 13: its copies may be all that is left of what was acked, for another index made from the logs."""
    harness.start()
    harness.add(1, 0, 4)
    harness.bookie.storage.checkpoint()
    shutil.copytree(harness.data_dir / "index", tmp_path / "older")
    harness.add(1, 5, 9)
    harness.restart()
    harness.add(2, 0, 4)
    harness.stop()
    before = {path.name: path.read_bytes() for path in harness.files("entry_log")}
    shutil.rmtree(harness.data_dir / "index")
    shutil.copytree(tmp_path / "older", harness.data_dir / "index")
    harness.highest_issued = lambda: 9
    harness.start(possible_loss="the index is an older one")
    assert len(before) == 2
    assert all((harness.data_dir / "entry_log" / name).read_bytes().startswith(data) for name, data in before.items())
    assert harness.read(1, 5, 9)[1].status is Status.UNKNOWN


def test_what_a_failed_sync_may_have_left_in_memory_alone_is_written_again_before_it_counts(harness, monkeypatch):
    """Storage rule 6: the kernel gives it to the next process as if it was on the disk, and a second sync does nothing."""
    harness.start()
    assert harness.add(1, 0, 4, size=LARGE).status is Status.OK
    (file,) = (one for one in harness.disk.files if one.path.suffix == ".log")
    synced = file.synced
    harness.disk.fail("sync", ".log")
    assert harness.add(1, 5, 9, size=LARGE).status is Status.IO_ERROR
    assert (file.synced, file.size > synced) == (synced, True)
    harness.disk.failing.clear()
    harness.kill()
    rewritten = []
    rewrite = harness.disk.rewrite
    monkeypatch.setattr(
        harness.disk, "rewrite", lambda path, start: (rewritten.append((path.name, start)), rewrite(path, start))
    )
    harness.start()
    harness.assert_holds(1, 0, 9, size=LARGE)
    ((name, start),) = rewritten
    assert (name, start <= synced) == (file.path.name, True)
    harness.restart()
    assert len(rewritten) == 1, "what is known as durable is not written again"


@SIZES
def test_a_row_whose_record_is_damaged_stays_and_is_answered_as_damage(harness, size):
    """Situation 61; a batch that comes again takes its place."""
    harness.start()
    harness.add(1, 0, 4, size=size)
    harness.stop()
    (path,) = (one for one in harness.files("entry_log") if one.stat().st_size > 4096 + 2 * RECORD_HEADER_BYTES)
    _flip(path, 4096 + RECORD_HEADER_BYTES + 150)
    harness.start()
    assert harness.read(1, 0, 4)[1].status is Status.DAMAGED
    assert harness.read(1, 5, 5)[1].status is Status.NO_SUCH_ENTRY
    assert harness.add(1, 0, 4, size=size, recovery=True).status is Status.OK
    harness.assert_holds(1, 0, 4, size=size)


@SIZES
def test_a_batch_whose_sectors_cannot_be_read_is_stored_again_when_it_comes(harness, size, monkeypatch):
    """The commonest fault of a disk: reads of one place fail, for good. What the scrub brings again must be taken."""
    harness.start()
    harness.add(1, 0, 4, size=size)
    harness.restart()
    (stored,) = harness.bookie.storage.batches(1, 0, 4).overlapping(0, 4)
    read = ReadFile.read

    def fail(file, offset, count):
        if file.path == harness.bookie.storage.log_files.path_of(stored.location.file_id) and offset >= stored.location.offset:
            raise StorageError(f"reading {file.path}", "Input/output error")
        return read(file, offset, count)

    monkeypatch.setattr(ReadFile, "read", fail)
    assert harness.read(1, 0, 4)[1].status is Status.IO_ERROR
    assert harness.add(1, 0, 4, size=size, recovery=True).status is Status.OK
    monkeypatch.setattr(ReadFile, "read", read)
    assert len(harness.bookie.storage.batches(1, 0, 4).overlapping(0, 4)) == 2
    harness.assert_holds(1, 0, 4, size=size)


@SIZES
def test_an_entry_log_that_is_gone_makes_its_entries_unknown_never_absent(harness, size):
    """Storage rule 5: the stored batch is looked up once more, and then unknown."""
    harness.start()
    harness.add(1, 0, 4, size=size)
    harness.stop()
    harness.start()
    for path in harness.files("entry_log"):
        path.unlink()
    assert harness.read(1, 0, 4)[1].status is Status.IO_ERROR
    assert harness.add(1, 0, 4, size=size).status is Status.OK, "the copy that comes again takes its place"
    harness.assert_holds(1, 0, 4, size=size)


def test_a_row_that_compaction_moved_after_it_was_found_is_looked_up_again(harness):
    harness.start()
    harness.add(1, 0, 4)
    harness.bookie.storage.checkpoint()
    storage = harness.bookie.storage
    (stored,) = storage.batches(1, 0, 4).overlapping(0, 4)
    copies = storage.log_files.copies("compaction")
    header, batch = storage.log_files.read(stored.location)
    place = copies.append(batch, header.master_key_hash, stored.sequence)
    copies.sync()
    storage.move([(stored, place)], copies.files(), 0)
    storage.log_files.copies("checkpoint").seal()
    copies.seal()
    storage.log_files.delete(stored.location.file_id)
    assert storage.get(stored) == batch
    harness.assert_holds(1, 0, 4)
    storage.log_files.delete(place.file_id)
    with pytest.raises(MissingLogError):
        storage.get(stored)


def test_two_master_keys_for_one_ledger_are_damage(harness):
    """Storage rule 14: the first record says one thing, a later one another."""
    harness.start()
    harness.add(1, 0, 4)
    hash_of = harness.bookie.storage.facts(1).master_key_hash
    logs = harness.bookie.storage.log_files
    logs.append(harness.batch(1, 5, 9), bytes(len(hash_of)), logs.sequences.take())
    logs.sync()
    harness.kill()
    with pytest.raises(CorruptionError, match="another master key"):
        harness.start()


@SIZES
def test_every_directory_has_a_mark_of_its_own(harness, size, tmp_path):
    """Protocol rule 38: several journals and entry logs, on disks of their own."""
    roots = [tmp_path / name for name in ("j0", "j1", "e0", "e1", "e2")]
    for root in roots:
        root.mkdir()
    settings = {
        "journal_dirs": f"{roots[0]},{roots[1]}",
        "ledger_dirs": ",".join(str(root) for root in roots[2:]),
        "journal_file_bytes": 6000,
        "entry_log_file_bytes": 15000,
        "checkpoint_bytes": 30_000,
    }
    harness.start(**settings)
    for first in range(0, 100, 5):
        for ledger_id in range(1, 7):
            harness.stage(harness.batch(ledger_id, first, first + 4, size=size))
        assert {reply.status for reply in harness.sync()} == {Status.OK}
    for ledger_id in (1, 2):
        harness.fence(ledger_id)
    harness.kill()  # copies the data directory with the index, the rest is as a kill leaves it
    for _ in range(2):
        harness.start()
        for ledger_id in range(1, 7):
            harness.assert_holds(ledger_id, 0, 99, size=size)
            assert harness.confirmed(ledger_id).is_fenced == (ledger_id < 3)
        harness.stop()
    assert all(any((root / "entry_log").iterdir()) for root in roots[2:])


def test_a_record_that_is_found_twice_is_taken_once(harness, monkeypatch):
    harness.start()
    for first in (0, 5):
        harness.add(1, first, first + 4)
    harness.fence(1)
    harness.kill()
    records = LogFilesReplay.records
    monkeypatch.setattr(LogFilesReplay, "records", lambda replay: (one for one in records(replay) for _ in range(2)))
    harness.start()
    harness.assert_holds(1, 0, 9)
    assert [
        (stored.first_entry_id, stored.last_entry_id) for stored in harness.bookie.storage.batches_from((-1, -1, -1), 10)
    ] == [(0, 9)]


@pytest.mark.parametrize("kept", ["index", "witness"])
def test_a_bookie_of_which_only_one_thing_is_left_has_lost_something(harness, kept):
    """Storage rule 15: as long as nobody knows how far the loss may reach, each start finds it again."""
    harness.start()
    harness.fence(1)
    harness.stop()
    for kind in ("journal", "entry_log", *(["index"] if kept == "witness" else [])):
        for path in harness.files(kind):
            path.unlink()
    if kept == "index":
        (harness.data_dir / WITNESS_FILE).unlink()
    for _ in range(2):
        with pytest.raises(CorruptionError):
            harness.start()
    if kept == "witness":  # an index that is gone is made anew from the logs, by its operator
        harness.highest_issued = lambda: 9
        with pytest.raises(CorruptionError, match="is missing"):
            harness.start()


def test_a_start_says_what_it_does(harness):
    texts = []
    harness.start()
    harness.add(1, 0, 4)
    harness.kill()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "begin", lambda progress, what, total_bytes=0: texts.append(what))
        harness.start()
    assert texts == [
        "opens its index",
        "replays its logs",
        "seals and syncs its logs",
        "writes what it replayed into its entry logs and index",
    ]
