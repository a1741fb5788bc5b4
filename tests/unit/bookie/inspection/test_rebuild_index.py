"""The index is made anew from the logs: what comes back, what is forgotten, and that it is not believed blindly.

Storage rules 11, 13 and 14.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK, Disk
from bk_spark.bookie.index.generation import read_generation
from bk_spark.bookie.index.sqlite_index import GENERATION_FILE
from bk_spark.bookie.inspection.index import IndexView, read_index
from bk_spark.bookie.inspection.rebuild_index import REPLACED_DIRECTORY, Progress, RebuildReport, rebuild_index
from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES, FilePosition
from bk_spark.bookie.log_files.mark import LogState
from bk_spark.config import BookieConfig
from bk_spark.entries.digest import master_key
from bk_spark.errors import ConfigError, CorruptionError, StorageError
from bk_spark.wire.messages import DeleteLedgerRequest, Status
from tests.unit.bookie.harness import BOOKIE_ID, FaultyDisk, Harness

LARGE = 5000
"""Bytes of an entry that goes directly into the entry log."""

WATERMARK = 1000


def directories_of(harness: Harness) -> Directories:
    return Directories.of(harness.data_dir, harness.config)


def rebuild(harness: Harness, disk: Disk = REAL_DISK, said: Progress = lambda what, done, total: None) -> RebuildReport:
    return rebuild_index(directories_of(harness), BOOKIE_ID, disk, said)


def lose_index(harness: Harness) -> None:
    shutil.rmtree(harness.data_dir / "index")


def start_after_rebuild(harness: Harness) -> None:
    """As boot.py has it started: it finds another incarnation than the one that the bookie ran with."""
    harness.highest_issued = lambda: WATERMARK
    harness.start(possible_loss="the index was rebuilt")


def fill(harness: Harness) -> None:
    """Small and large adds of two ledgers, checkpointed and not."""
    harness.add(1, 0, 9)
    harness.add(1, 10, 11, size=LARGE)
    harness.add(2, 0, 0)
    harness.add(2, 1, 1)
    harness.restart()
    harness.add(1, 12, 13, size=LARGE)
    harness.add(2, 2, 5)


def assert_filled(harness: Harness) -> None:
    harness.assert_holds(1, 0, 9)
    harness.assert_holds(1, 10, 13, size=LARGE)
    harness.assert_holds(2, 0, 5)


@pytest.mark.parametrize("is_killed", [False, True])
def test_everything_in_entry_logs_and_journals_is_found_again(harness: Harness, is_killed: bool, caplog) -> None:
    """Storage rule 13: small adds and large ones, joined copies, of a bookie that was stopped or killed."""
    harness.start()
    fill(harness)
    if is_killed:
        harness.kill()
    else:
        harness.stop()
    lose_index(harness)
    report = rebuild(harness)
    assert report.damages == []
    start_after_rebuild(harness)
    assert_filled(harness)
    assert harness.confirmed(2).status is Status.UNKNOWN
    assert "data may be lost (the index was rebuilt):" in caplog.text, "it is all that the replay finds to be wrong"
    assert harness.bookie is not None
    for _ in harness.bookie.storage.check_index():
        pass


def test_a_rebuilt_index_is_another_one_and_what_it_lacks_is_unknown_until_it_was_settled(harness: Harness) -> None:
    """Storage rules 11 and 13: by its incarnation the next start knows that this index may have forgotten something."""
    harness.start()
    harness.add(1, 0, 9)
    harness.stop()
    before = read_generation(REAL_DISK, harness.data_dir / "index" / GENERATION_FILE)
    rebuild(harness)
    after = read_generation(REAL_DISK, harness.data_dir / "index" / GENERATION_FILE)
    assert before is not None
    assert after is not None
    assert before.incarnation != after.incarnation
    start_after_rebuild(harness)
    _, end = harness.payloads(1, 0, 20)
    assert (end.status, end.next_entry_id) == (Status.UNKNOWN, 10)
    assert harness.read(WATERMARK, 0, 0)[1].status is Status.UNKNOWN
    assert harness.read(WATERMARK + 1, 0, 0)[1].status is Status.NO_SUCH_LEDGER


def test_a_fence_that_is_in_a_journal_still_holds(harness: Harness) -> None:
    """Storage rule 13."""
    harness.start()
    harness.add(1, 0, 0)
    assert harness.fence(1).status is Status.OK
    harness.kill()
    rebuild(harness)
    start_after_rebuild(harness)
    assert harness.bookie is not None
    facts = harness.bookie.storage.facts(1)
    assert facts is not None
    assert facts.is_fenced


def test_a_deletion_that_is_in_a_journal_keeps_the_ledger_away(harness: Harness) -> None:
    """Storage rules 13 and 14: what was added before it is gone, also what stands in entry logs; what came after it is not."""
    harness.start()
    harness.add(1, 0, 1, size=LARGE)
    harness.add(2, 0, 1, size=LARGE)
    harness.restart()
    assert harness.bookie is not None
    for ledger_id in (1, 2):
        harness.bookie.stage(DeleteLedgerRequest(ledger_id, 1), None)
    assert [reply.status for reply in harness.sync()] == [Status.OK, Status.OK]
    harness.add(2, 0, 0, size=LARGE, tag=1, recovery=True)
    harness.kill()
    assert rebuild(harness).batches == 1
    start_after_rebuild(harness)
    assert harness.payloads(1, 0, 1)[0] == {}
    assert harness.payloads(2, 0, 1)[0].keys() == {0}
    harness.assert_holds(2, 0, 0, size=LARGE, tag=1)
    assert batches_of(harness, 1) == []


@pytest.mark.parametrize("chunk_batches", [1, 1000])
def test_of_two_copies_of_a_record_the_newer_place_counts(harness: Harness, chunk_batches: int, monkeypatch) -> None:
    """A compaction that was cut short has left the log that it copied from."""
    monkeypatch.setattr("bk_spark.bookie.inspection.rebuild_index.CHUNK_BATCHES", chunk_batches)
    harness.start()
    harness.add(1, 0, 1, size=LARGE)
    assert harness.bookie is not None
    storage = harness.bookie.storage
    (stored,) = storage.batches(1, 0, 1).overlapping(0, 1)
    copies = storage.log_files.copies("compaction")
    place = copies.append(storage.get(stored), storage.facts(1).master_key_hash, stored.sequence)
    copies.sync()
    assert stored.location is not None
    assert place.file_id > stored.location.file_id
    harness.kill()
    report = rebuild(harness)
    assert report.batches == 1
    (found,) = batches_of(harness, 1)
    assert found.location == place
    start_after_rebuild(harness)
    harness.assert_holds(1, 0, 1, size=LARGE)


def test_a_copy_whose_original_is_in_a_journal_is_not_there_twice(harness: Harness) -> None:
    """A checkpoint was done, and the crash came before its journals were deleted: the next start replays them again."""
    harness.start()
    harness.add(1, 0, 9)
    for one in range(4):
        harness.add(2, one, one)
    journals = harness.copy() / "journal"
    harness.stop()
    shutil.rmtree(harness.data_dir / "journal")
    shutil.copytree(journals, harness.data_dir / "journal")
    report = rebuild(harness)
    assert report.journal_records == 5
    assert batches_of(harness, 1) == []
    start_after_rebuild(harness)
    harness.assert_holds(1, 0, 9)
    harness.assert_holds(2, 0, 3)


def test_a_large_add_is_no_copy_of_a_small_one_that_is_in_a_journal(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 0)
    harness.add_over(1, 0, 1, size=LARGE, tag=1)
    harness.kill()
    assert rebuild(harness).damages == []
    start_after_rebuild(harness)
    harness.assert_holds(1, 0, 1, size=LARGE, tag=1)


def test_how_far_a_ledger_is_confirmed_is_known_again_from_its_entries(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 9)
    harness.add(1, 10, 19)
    harness.add(1, 20, 20, size=LARGE)
    harness.stop()
    shutil.rmtree(harness.data_dir / "journal")
    rebuild(harness)
    (summary,) = view_of(harness, lambda view: view.ledgers(0, 10))
    assert (summary.last_add_confirmed, summary.highest_entry_id) == (19, 20)


def test_the_index_knows_where_each_log_ends_and_which_are_written_no_more(harness: Harness) -> None:
    """Storage rule 5: what is sealed may be compacted; what is not ends with its last good record."""
    harness.start(entry_log_file_bytes=FILE_HEADER_BYTES + 2 * LARGE)
    for one in range(4):
        harness.add(1, one, one, size=LARGE)
    harness.add(1, 4, 4)
    harness.kill()
    *_, last = harness.files("entry_log")
    end = last.stat().st_size
    with last.open("ab") as file:
        file.write(b"bkRC torn")
    rebuild(harness)
    logs = view_of(harness, IndexView.entry_logs)
    assert [log.state for log in logs] == [LogState.SEALED] * (len(logs) - 1) + [LogState.OPEN]
    assert [log.total_bytes for log in logs] == [*(path.stat().st_size for path in harness.files("entry_log")[:-1]), end]
    mark = view_of(harness, lambda view: view.state.mark)
    assert mark.entry_logs == (FilePosition(int(last.stem), end),)
    assert mark.journals == (FilePosition(1, FILE_HEADER_BYTES),)
    assert (mark.next_journal_id, mark.next_entry_log_id) == (2, int(last.stem) + 1)
    start_after_rebuild(harness)
    harness.assert_holds(1, 0, 3, size=LARGE)
    harness.assert_holds(1, 4, 4)


def test_what_an_earlier_rebuild_left_unfinished_is_thrown_away(harness: Harness) -> None:
    harness.start()
    fill(harness)
    harness.stop()
    left = harness.data_dir / "index.creating"
    left.mkdir()
    (left / "ledgers.sqlite").write_bytes(b"half of it")
    rebuild(harness)
    assert not left.exists()
    start_after_rebuild(harness)
    assert_filled(harness)


def journalled(harness: Harness, *ids: tuple[int, int]) -> None:
    """Small adds in this order, each in a journal of its own, joined by the checkpoint of a stop; the last journal stays."""
    harness.start(journal_file_bytes=FILE_HEADER_BYTES + 1)
    for first, last in ids:
        harness.add(2, first, last)
    journal = harness.copy() / "journal"
    harness.stop()
    assert [(stored.first_entry_id, stored.last_entry_id, stored.sequence) for stored in batches_of(harness, 2)] == [
        (0, 3, len(ids))
    ]
    shutil.rmtree(harness.data_dir / "journal")
    (harness.data_dir / "journal").mkdir()
    last_journal = sorted(journal.iterdir())[-1]
    shutil.copy(last_journal, harness.data_dir / "journal" / last_journal.name)


def test_a_joined_copy_stays_if_only_its_end_is_still_in_a_journal(harness: Harness) -> None:
    journalled(harness, (0, 1), (2, 3))
    report = rebuild(harness)
    assert (report.journal_records, report.batches, report.damages) == (1, 1, [])
    start_after_rebuild(harness)
    harness.assert_holds(2, 0, 3)


def test_a_joined_copy_whose_row_the_replay_would_make_again_is_listed_if_the_journals_lack_its_end(harness: Harness) -> None:
    """Two stored batches of one key there cannot be; what is missing then is unknown, and is repaired from the other
    replicas."""
    journalled(harness, (2, 3), (0, 1))
    (damage,) = rebuild(harness).damages
    assert "the journals have the beginning of it" in damage.problem
    start_after_rebuild(harness)
    harness.assert_holds(2, 0, 1)
    assert harness.read(2, 2, 2)[1].status is Status.UNKNOWN


def test_damaged_records_are_skipped_and_listed(harness: Harness) -> None:
    harness.start()
    for one in range(3):
        harness.add(1, one, one, size=LARGE)
    harness.stop()
    (log,) = (path for path in harness.files("entry_log") if path.stat().st_size > FILE_HEADER_BYTES + 2 * LARGE)
    middle = batches_of(harness, 1)[1].location
    flip(log, middle.offset + 1000)
    lose_index(harness)
    report = rebuild(harness)
    (damage,) = report.damages
    assert damage.path == log
    assert damage.offset <= middle.offset < damage.end
    start_after_rebuild(harness)
    harness.assert_holds(1, 0, 0, size=LARGE)
    harness.assert_holds(1, 2, 2, size=LARGE)
    assert harness.read(1, 1, 1)[1].status is Status.UNKNOWN


def test_a_file_with_an_unreadable_header_is_listed_and_its_id_is_not_used_again(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 0, size=LARGE)
    harness.restart()
    harness.add(1, 1, 1, size=LARGE)
    harness.stop()
    last = harness.files("entry_log")[-1]
    flip(last, 20)
    lose_index(harness)
    report = rebuild(harness)
    assert [damage.path for damage in report.damages] == [last]
    assert view_of(harness, lambda view: view.state.mark).next_entry_log_id == int(last.stem) + 1
    start_after_rebuild(harness)
    harness.assert_holds(1, 0, 0, size=LARGE)


def test_the_torn_end_of_the_last_log_is_no_damage(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 0, size=LARGE)
    harness.add(1, 1, 1, size=LARGE)
    harness.kill()
    log = harness.files("entry_log")[-1]
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 100)
    assert rebuild(harness).damages == []
    start_after_rebuild(harness)
    harness.assert_holds(1, 0, 0, size=LARGE)
    assert harness.read(1, 1, 1)[1].status is Status.UNKNOWN


def test_a_log_that_is_shorter_than_its_successor_says_is_damaged(harness: Harness) -> None:
    harness.start(entry_log_file_bytes=3 * LARGE)
    for one in range(4):
        harness.add(1, one, one, size=LARGE)
    harness.kill()
    first = harness.files("entry_log")[0]
    with first.open("r+b") as file:
        file.truncate(first.stat().st_size - 300)
    report = rebuild(harness)
    assert [damage.path for damage in report.damages] == [first]


@pytest.mark.parametrize("size", [10, LARGE])
def test_two_master_keys_for_one_ledger_are_corruption_and_the_old_index_stays(
    harness: Harness, tmp_path: Path, size: int
) -> None:
    """Storage rule 14, for keys in two entry logs, and for one in a journal and one in an entry log."""
    harness.start()
    harness.add(1, 0, 0, size=LARGE)
    harness.stop()
    other = Harness(tmp_path / "other")
    other.key = master_key(b"another")
    other.start()
    other.add(5, 0, 0, size=LARGE)
    other.restart()
    other.add(1, 1, 1, size=size)
    other.kill()
    for path in (*other.files("entry_log")[1:], *other.files("journal")[-1:]):
        shutil.copy(path, harness.data_dir / path.parent.name / path.name)
    with pytest.raises(CorruptionError, match="ledger 1 with another master key"):
        rebuild(harness)
    for path in (*other.files("entry_log")[1:], *other.files("journal")[-1:]):
        (harness.data_dir / path.parent.name / path.name).unlink()
    harness.start()
    harness.assert_holds(1, 0, 0, size=LARGE)


def test_a_file_of_another_bookie_is_refused(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 0)
    harness.stop()
    with pytest.raises(ConfigError, match="a file of that bookie"):
        rebuild_index(directories_of(harness), "bookie-2", REAL_DISK, lambda what, done, total: None)
    harness.start()
    harness.assert_holds(1, 0, 0)


def test_what_was_written_and_not_synced_is_synced_before_rows_refer_to_it(harness: Harness) -> None:
    """The bytes of a killed process are read back from memory, and may still be lost."""
    harness.start()
    harness.add(1, 0, 0, size=LARGE)
    harness.kill()
    disk = FaultyDisk()
    disk.fail("sync", "entry_log")
    with pytest.raises(StorageError):
        rebuild(harness, disk)


def test_a_start_with_a_lost_or_damaged_index_names_the_way_out(harness: Harness) -> None:
    harness.start()
    fill(harness)
    harness.stop()
    index = harness.data_dir / "index" / "ledgers.sqlite"
    flip(index, index.read_bytes().index(BOOKIE_ID.encode()))
    for _ in range(2):
        with pytest.raises(CorruptionError, match="rebuild-index"):
            harness.start()
        shutil.rmtree(harness.data_dir / "index", ignore_errors=True)
    rebuild(harness)
    start_after_rebuild(harness)
    assert_filled(harness)


def test_the_index_that_was_replaced_is_kept(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 0)
    harness.stop()
    old = (harness.data_dir / "index" / "ledgers.sqlite").read_bytes()
    rebuild(harness)
    assert (harness.data_dir / REPLACED_DIRECTORY / "ledgers.sqlite").read_bytes() == old
    rebuild(harness)
    assert (harness.data_dir / REPLACED_DIRECTORY / "ledgers.sqlite").read_bytes() != old


def test_logs_in_several_directories_are_all_read(harness: Harness, tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("a", "b", "j")]
    for root in roots:
        root.mkdir()
    harness.config = BookieConfig(direct_add_bytes=4096, ledger_dirs=f"{roots[0]},{roots[1]}", journal_dirs=str(roots[2]))
    harness.start()
    fill(harness)
    harness.stop()
    lose_index(harness)
    said: list[tuple[str, int, int]] = []
    report = rebuild(harness, said=lambda *progress: said.append(progress))
    assert report.files == len(list(tmp_path.glob("[abj]/*/*")))
    assert all(any(str(root) in what for what, _, _ in said) for root in roots)
    assert [done for what, done, _ in said if what.startswith("read")] == sorted(
        done for what, done, _ in said if what.startswith("read")
    )
    assert all(done <= total for _, done, total in said)
    start_after_rebuild(harness)
    assert_filled(harness)


def test_a_bookie_that_never_stored_anything_gets_an_empty_index(harness: Harness) -> None:
    harness.start()
    harness.stop()
    lose_index(harness)
    assert rebuild(harness).batches == 0
    start_after_rebuild(harness)
    harness.add(1, 0, 0, recovery=True)


def batches_of(harness: Harness, ledger_id: int):
    return view_of(harness, lambda view: view.batches(ledger_id))


def view_of(harness: Harness, what):
    reading = read_index(harness.data_dir / "index", REAL_DISK, what)
    assert reading.value is not None, reading.problem
    return reading.value


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
