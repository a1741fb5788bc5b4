"""Tears and damage of logs under a whole bookie. Ref: docs/rules.md, storage rules 2, 7 and 14, situations 54 and 61."""

from __future__ import annotations

import os

import pytest

from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES, FILE_VERSION
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES
from bk_spark.bookie.log_files.witness import WITNESS_FILE
from bk_spark.entries.crc import crc32c
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.wire.messages import Status

KINDS = pytest.mark.parametrize(("kind", "size"), [("journal", 10), ("entry_log", 2000)])


def _write_three(harness, size):
    """Batches of one ledger: 0–2 and 3–5 are acked, 6–8 stands for an add that was not: no witness tells of it.

    Returns the length of the file after the second, when nothing of the third was written.
    """
    kind = "journal" if size == 10 else "entry_log"
    harness.start()
    harness.add(1, 0, 2, size=size)
    harness.add(1, 3, 5, size=size)
    (path,) = harness.files(kind)
    acked = path.stat().st_size
    harness.add(1, 6, 8, size=size)
    harness.kill()
    harness.forget_witness()
    return harness.files(kind)[0], acked


@KINDS
def test_zeros_at_the_end_of_a_file_are_a_tear(harness, kind, size):
    path, acked = _write_three(harness, size)
    data = path.read_bytes()
    path.write_bytes(data[:acked] + bytes(len(data) - acked + 9000))
    harness.start()
    harness.assert_holds(1, 0, 5, size=size)


@KINDS
def test_a_file_that_is_cut_below_the_mark_stops_the_bookie(harness, kind, size):
    harness.start()
    harness.add(1, 0, 2, size=size)
    harness.bookie.storage.checkpoint()
    (path,) = harness.files(kind)
    marked = path.stat().st_size
    harness.kill()
    os.truncate(harness.files(kind)[0], marked - 1)
    with pytest.raises(CorruptionError, match=f"{path.name} from byte {marked - 1} to {marked} is damaged: it breaks off"):
        harness.start()


@KINDS
@pytest.mark.parametrize("idle", [True, False])
def test_an_acked_record_that_turns_to_zeros_is_damage_once_the_bookie_was_idle(harness, kind, size, idle):
    """Without the IDLE record, and with the witness that a power cut may leave, it cannot be told from a tear."""
    harness.start()
    harness.add(1, 0, 2, size=size)
    (path,) = harness.files(kind)
    first = path.stat().st_size
    harness.add(1, 3, 5, size=size)
    second = path.stat().st_size
    if idle:
        harness.bookie.idle()
        harness.bookie.idle()
        assert path.stat().st_size == second + RECORD_HEADER_BYTES
    harness.kill()
    harness.forget_witness()
    (path,) = harness.files(kind)
    data = path.read_bytes()
    path.write_bytes(data[:first] + bytes(second - first) + data[second:])
    if idle:
        with pytest.raises(CorruptionError, match=path.name):
            harness.start()
    else:
        harness.start()
        harness.assert_holds(1, 0, 2, size=size)


@KINDS
def test_a_flipped_bit_in_a_log_gives_an_error_or_the_right_data(harness, kind, size):
    path, acked = _write_three(harness, size)
    origin = harness.data_dir
    places = [*range(0, 80, 7), *range(FILE_HEADER_BYTES - 4, acked, 13 if size == 10 else 997)]
    for number, place in enumerate(places):
        harness.data_dir = origin
        harness.data_dir = harness.copy()
        target = harness.data_dir / kind / path.name
        data = bytearray(target.read_bytes())
        data[place] ^= 1 << number % 8
        target.write_bytes(data)
        try:
            harness.start()
        except BookKeeperError:
            continue
        harness.assert_holds(1, 0, 5, size=size)
        harness.stop()


def test_a_damaged_record_is_replaced_when_its_batch_comes_again(harness):
    harness.start()
    harness.add(1, 0, 2, size=2000)
    harness.stop()
    (path,) = harness.files("entry_log")
    data = bytearray(path.read_bytes())
    data[FILE_HEADER_BYTES + 500] ^= 1
    path.write_bytes(data)
    harness.start()
    assert harness.read(1, 0, 2)[1].status is Status.DAMAGED
    assert harness.add(1, 0, 2, size=2000).status is Status.OK
    harness.assert_holds(1, 0, 2, size=2000)


@KINDS
def test_a_missing_file_between_two_others_stops_the_bookie_by_its_name(harness, kind, size):
    harness.start(journal_file_bytes=5000, entry_log_file_bytes=12000)
    for first in range(0, 45, 3):
        harness.add(1, first, first + 2, size=size)
    harness.kill()
    files = harness.files(kind)
    assert len(files) > 3
    files[1].unlink()
    with pytest.raises(CorruptionError, match=f"{files[1].name} is damaged: it is missing"):
        harness.start()


@KINDS
def test_a_file_with_a_successor_must_be_exactly_as_long_as_that_says(harness, kind, size):
    harness.start(journal_file_bytes=5000, entry_log_file_bytes=12000)
    for first in range(0, 45, 3):
        harness.add(1, first, first + 2, size=size)
    harness.kill()
    before_last = harness.files(kind)[-2]
    os.truncate(before_last, before_last.stat().st_size - RECORD_HEADER_BYTES)
    with pytest.raises(CorruptionError, match=before_last.name):
        harness.start()


def test_a_file_must_end_with_the_sequence_that_its_successor_says(harness):
    harness.start(journal_file_bytes=5000)
    for first in range(0, 45, 3):
        harness.add(1, first, first + 2)
    harness.kill()
    before_last, last = harness.files("journal")[-2:]
    data = bytearray(last.read_bytes())
    data[48] ^= 1  # the predecessor's last sequence
    data[FILE_HEADER_BYTES - 4 : FILE_HEADER_BYTES] = crc32c(bytes(data[: FILE_HEADER_BYTES - 4])).to_bytes(4, "little")
    last.write_bytes(data)
    with pytest.raises(CorruptionError, match=f"{before_last.name} .*its successor says"):
        harness.start()


@KINDS
def test_starting_again_and_again_does_not_grow_a_file(harness, kind, size):
    harness.start()
    harness.add(1, 0, 2, size=size)
    harness.kill()
    harness.start()
    sizes = [path.stat().st_size for path in harness.files(kind)]
    for end in (harness.kill, harness.stop, harness.kill):
        end()
        harness.start()
        assert [path.stat().st_size for path in harness.files(kind)] == sizes
    harness.assert_holds(1, 0, 2, size=size)


@KINDS
def test_no_file_of_an_earlier_process_is_appended_to_and_no_id_comes_again(harness, kind, size):
    seen = set()
    for round_number in range(4):
        harness.start()
        before = {path.name: path.stat().st_size for path in harness.files(kind)}
        harness.add(1, round_number, round_number, size=size * 3)
        after = {path.name: path.stat().st_size for path in harness.files(kind)}
        new = set(after) - set(before)
        assert len(new) == 1
        assert not new & seen
        assert all(after[name] == before[name] for name in before if name in after)
        seen |= set(before) | new
        harness.kill() if round_number % 2 else harness.stop()


@KINDS
def test_a_newer_log_file_is_refused_by_name(harness, kind, size):
    harness.start()
    harness.add(1, 0, 2, size=size)
    harness.kill()
    (path,) = harness.files(kind)
    data = bytearray(path.read_bytes())
    data[8] = FILE_VERSION + 1
    data[FILE_HEADER_BYTES - 4 : FILE_HEADER_BYTES] = crc32c(bytes(data[: FILE_HEADER_BYTES - 4])).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(FormatVersionError, match=f"{path.name} has format version {FILE_VERSION + 1}"):
        harness.start()


def test_a_file_that_never_got_its_name_is_removed(harness):
    harness.start()
    harness.add(1, 0, 2)
    harness.kill()
    unfinished = harness.data_dir / "journal" / "0000000009.journal.creating"
    unfinished.write_bytes(b"part of a header")
    harness.start()
    assert not unfinished.exists()


def test_bookie_files_stored_as_payload_are_not_taken_for_records(harness):
    harness.start()
    harness.add(1, 0, 2, size=2000)
    stolen = harness.files("entry_log")[0].read_bytes()
    harness.kill()
    (path,) = harness.files("entry_log")
    with path.open("ab") as file:  # looks like more records, aligned as in their own file
        file.write(bytes(-path.stat().st_size % 4096) + stolen[FILE_HEADER_BYTES:])
    with pytest.raises(CorruptionError, match="another place"):
        harness.start()


def test_two_master_keys_for_one_ledger_stop_the_bookie(harness):
    """Storage rule 14."""
    path, _ = _write_three(harness, 10)
    data = bytearray(path.read_bytes())
    data[FILE_HEADER_BYTES + 88] ^= 1
    header = slice(FILE_HEADER_BYTES, FILE_HEADER_BYTES + RECORD_HEADER_BYTES - 4)
    data[header.stop : header.stop + 4] = crc32c(bytes(data[header])).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="another master key"):
        harness.start()


# --- what the witness tells of


@KINDS
@pytest.mark.parametrize("how", ["gone", "cut", "zeros"])
def test_acked_entries_whose_newest_file_lost_them_are_unknown_and_never_denied(harness, kind, size, how):
    """Storage rule 15: with all defaults, before the first checkpoint; nothing else says that the file was there."""
    harness.highest_issued = lambda: 9
    harness.start()
    for first in range(0, 9, 3):
        harness.add(1, first, first + 2, size=size)
    harness.kill()
    (path,) = harness.files(kind)
    _damage(path, how)
    harness.start()
    for entry_id in range(9):
        assert harness.read(1, entry_id, entry_id)[1].status in (Status.OK, Status.UNKNOWN)
    assert harness.add(2, 0, 2).status is Status.UNKNOWN
    harness.restart()
    assert harness.bookie.limbo is not None, "the limbo lasts until it is repaired"


def _damage(path, how):
    size = path.stat().st_size
    if how == "gone":
        path.unlink()
    else:
        os.truncate(path, FILE_HEADER_BYTES + 10)
        os.truncate(path, size if how == "zeros" else FILE_HEADER_BYTES + 10)


def test_after_the_limbo_a_file_that_was_lost_is_not_missed_again(harness):
    harness.highest_issued = lambda: 9
    harness.start()
    harness.add(1, 0, 2)
    harness.kill()
    harness.files("journal")[0].unlink()
    harness.start()
    harness.bookie.storage.set_limbo(None)
    harness.kill()
    assert harness.start().limbo is None


@pytest.mark.parametrize("left", [None, b"", b"x" * 1536])
def test_without_a_witness_nothing_is_denied(harness, left):
    harness.highest_issued = lambda: 9
    harness.start()
    harness.add(1, 0, 2)
    harness.kill()
    witness = harness.data_dir / WITNESS_FILE
    witness.unlink()
    if left is not None:
        witness.write_bytes(left)
    harness.start()
    harness.assert_holds(1, 0, 2)
    assert harness.read(2, 0, 0)[1].status is Status.UNKNOWN
    harness.kill()
    assert harness.start().limbo is not None


def test_an_older_index_with_its_own_older_generation_file_is_limbo(harness):
    """Storage rule 15: that file goes back together with the index."""
    harness.highest_issued = lambda: 9
    harness.start()
    harness.add(1, 0, 2)
    harness.stop()
    older = {path: path.read_bytes() for path in harness.files("index")}
    harness.start()
    harness.fence(1)
    harness.stop()
    for path, data in older.items():
        path.write_bytes(data)
    harness.start()
    assert harness.bookie.limbo is not None


def test_a_new_bookie_whose_first_start_was_cut_short_is_new(harness, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(harness.disk, "check", lambda verb, path: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            harness.start()
    assert harness.start().limbo is None
