"""Journals and entry logs as an inspector sees them: of a running bookie, and damaged in any way."""

from __future__ import annotations

from pathlib import Path

from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.inspection.logs import InspectedFile, inspect_files, inspect_records
from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES, FileKind
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES, RecordKind
from bk_spark.bookie.log_files.scan import Gap, ScannedRecord
from bk_spark.entries.crc import crc32c
from tests.unit.bookie.harness import BOOKIE_ID, Harness

LARGE = 5000


def files(harness: Harness, kind: FileKind) -> list[InspectedFile]:
    name = "journal" if kind is FileKind.JOURNAL else "entry_log"
    return list(inspect_files([harness.data_dir / name], kind, REAL_DISK))


def items(file: InspectedFile) -> list[ScannedRecord | Gap]:
    return list(inspect_records(file, REAL_DISK))


def kinds(file: InspectedFile) -> list[RecordKind | str]:
    return ["gap" if isinstance(item, Gap) else item.header.kind for item in items(file)]


def change(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def tree(root: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}


def test_every_kind_of_record_of_a_running_bookie_is_seen(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 9)
    harness.confirm(1, 9)
    harness.add(2, 0, 0, size=LARGE)
    harness.fence(2)
    harness.delete(1)
    (journal,) = files(harness, FileKind.JOURNAL)
    assert journal.header is not None
    assert (journal.header.kind, journal.header.bookie_id) == (FileKind.JOURNAL, BOOKIE_ID)
    assert kinds(journal) == [RecordKind.BATCH, RecordKind.CONFIRMED, RecordKind.FENCE, RecordKind.DELETED]
    (log,) = files(harness, FileKind.ENTRY_LOG)
    (large,) = items(log)
    assert isinstance(large, ScannedRecord)
    assert large.header.batch is not None
    assert large.header.batch.ledger_id == 2
    harness.stop()
    assert {file.header.kind for file in files(harness, FileKind.ENTRY_LOG) if file.header} == {FileKind.ENTRY_LOG}
    assert kinds(files(harness, FileKind.ENTRY_LOG)[0])[-1] is RecordKind.SEAL


def test_copies_are_entry_log_files_too(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 9)
    harness.stop()
    (copies,) = files(harness, FileKind.ENTRY_LOG)
    assert copies.header is not None
    assert copies.header.kind is FileKind.COPIES


def test_damage_is_given_with_its_offsets_and_what_stands_behind_it_too(harness: Harness) -> None:
    harness.start()
    for one in range(3):
        harness.add(1, one, one)
    (journal,) = files(harness, FileKind.JOURNAL)
    second = items(journal)[1]
    assert isinstance(second, ScannedRecord)
    start, end = second.header.place.offset, second.header.end
    change(journal.path, start + RECORD_HEADER_BYTES, b"XXXX")
    assert kinds(journal) == [RecordKind.BATCH, "gap", RecordKind.BATCH]
    gap = items(journal)[1]
    assert isinstance(gap, Gap)
    assert (gap.start, gap.end, gap.looks_torn) == (start, end, False)


def test_a_file_without_a_readable_header_is_given_with_the_reason(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 0)
    (journal,) = harness.files("journal")
    change(journal, 30, b"XXXX")
    (found,) = files(harness, FileKind.JOURNAL)
    assert found.header is None
    assert "checksum of its file header" in found.problem
    assert items(found) == []
    change(journal, 0, b"")
    with journal.open("r+b") as file:
        file.truncate(10)
    (found,) = files(harness, FileKind.JOURNAL)
    assert (found.header, found.size_bytes) == (None, 10)


def test_a_record_of_a_newer_version_ends_what_can_be_read_and_is_named(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 0)
    harness.add(1, 1, 1)
    (journal,) = files(harness, FileKind.JOURNAL)
    second = items(journal)[1]
    assert isinstance(second, ScannedRecord)
    offset = second.header.place.offset
    packed = bytearray(journal.path.read_bytes()[offset : offset + RECORD_HEADER_BYTES - 4])
    packed[4] = 9
    change(journal.path, offset, bytes(packed) + crc32c(bytes(packed)).to_bytes(4, "little"))
    first, gap = items(journal)
    assert isinstance(first, ScannedRecord)
    assert isinstance(gap, Gap)
    assert (gap.start, gap.end) == (offset, journal.size_bytes)
    assert "format version 9" in gap.problem


def test_a_file_that_never_got_its_name_and_one_that_is_gone_are_said_to_be_so(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 0)
    whole = harness.files("journal")[0]
    unfinished = whole.with_name("0000000009.journal.creating")
    unfinished.write_bytes(whole.read_bytes())
    found = files(harness, FileKind.JOURNAL)
    assert [file.problem for file in found] == ["", "it is a file in progress, which means nothing"]
    whole.unlink()
    (gap,) = items(found[0])
    assert isinstance(gap, Gap)
    assert gap.start == FILE_HEADER_BYTES
    assert "No such file" in gap.problem


def test_a_directory_that_is_not_there_holds_nothing(harness: Harness) -> None:
    assert files(harness, FileKind.ENTRY_LOG) == []


def test_looking_changes_nothing_not_even_a_torn_end(harness: Harness) -> None:
    harness.start()
    harness.add(1, 0, 9)
    harness.add(1, 10, 10, size=LARGE)
    harness.kill()
    log = harness.files("entry_log")[0]
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 7)
    before = tree(harness.data_dir)
    for kind in (FileKind.JOURNAL, FileKind.ENTRY_LOG):
        assert [items(file) for file in files(harness, kind)]
    assert tree(harness.data_dir) == before
    (gap,) = items(files(harness, FileKind.ENTRY_LOG)[0])
    assert isinstance(gap, Gap)
    assert gap.looks_torn
