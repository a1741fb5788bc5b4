"""Gaps between records: where the next one is found, what looks torn. Ref: docs/rules.md, storage rule 2, protocol rule 40."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bk_spark.bookie.disk import ReadFile
from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES, NO_PREDECESSOR, FileHeader, FileKind
from bk_spark.bookie.log_files.record import (
    RECORD_HEADER_BYTES,
    LedgerNote,
    Place,
    RecordKind,
    pack_batch,
    pack_mark,
    pack_note,
    unpack,
)
from bk_spark.bookie.log_files.scan import PIECE_BYTES, SECTOR_BYTES, Gap, LogScan
from tests.unit.bookie.log_files.log_home import KEY, make_batch

SALT = 77
ANYTHING = bytes(range(1, 256)) * 20


class LogBytes:
    """A file's bytes, and where its records are."""

    def __init__(self) -> None:
        self.data = bytes(FILE_HEADER_BYTES)
        self.starts: list[int] = []

    def add(self, size=50, fill=b"", *, is_aligned=False, salt=SALT, skew=0):
        if is_aligned:
            self.data += bytes(-len(self.data) % 4096)
        batch = make_batch(1, len(self.starts), len(self.starts), size, fill)
        place = Place(salt, len(self.data) + skew, 0)
        self.starts.append(len(self.data))
        self.data += pack_batch(place, len(self.starts), batch, KEY) + batch.body
        return self

    def damaged(self, offset, mask=16):
        data = bytearray(self.data)
        data[offset] ^= mask
        return bytes(data)

    def end(self, number):
        return (*self.starts[1:], len(self.data))[number]


class BytesFile(ReadFile):
    def __init__(self, data):
        super().__init__(Path("0000000001.log"), -1)
        self._data = data

    def read(self, offset, size):
        return self._data[offset : offset + size]


def make_scan(data, kind=FileKind.ENTRY_LOG):
    return LogScan(BytesFile(data), FileHeader(kind, 1, SALT, NO_PREDECESSOR, "b"), FILE_HEADER_BYTES, len(data))


@pytest.fixture
def scan():
    """The offsets of the good records, and the gaps."""

    def run(data, kind=FileKind.ENTRY_LOG):
        items = list(make_scan(data, kind).items())
        starts = [one.header.place.offset for one in items if not isinstance(one, Gap)]
        return starts, [one for one in items if isinstance(one, Gap)]

    return run


@pytest.fixture
def log():
    return LogBytes().add(100).add(9000, is_aligned=True).add(9000, is_aligned=True).add(200)


def test_every_record_is_found_with_padding_before_aligned_ones(scan, log):
    assert scan(log.data) == (log.starts, [])


def test_every_flipped_bit_of_a_header_makes_a_gap_of_that_record_alone(scan):
    log = LogBytes().add().add().add()
    for bit in range(8 * RECORD_HEADER_BYTES):
        starts, gaps = scan(log.damaged(log.starts[1] + bit // 8, 1 << bit % 8))
        assert starts == [log.starts[0], log.starts[2]]
        assert [(one.start, one.end, one.looks_torn) for one in gaps] == [(log.starts[1], log.starts[2], False)]


def test_every_flipped_bit_of_a_body_makes_a_gap_of_that_record_alone(scan):
    log = LogBytes().add().add().add()
    for offset in range(log.starts[1] + RECORD_HEADER_BYTES, log.starts[2]):
        starts, gaps = scan(log.damaged(offset))
        assert starts == [log.starts[0], log.starts[2]]
        assert [(one.start, one.end, one.looks_torn) for one in gaps] == [(log.starts[1], log.starts[2], False)]


@pytest.mark.parametrize("size", [PIECE_BYTES - 250, PIECE_BYTES - 200, PIECE_BYTES - 100, PIECE_BYTES, 3 * PIECE_BYTES])
def test_the_next_record_is_found_however_far_it_is(scan, size):
    log = LogBytes().add(size).add(50)
    for ahead in range(0, 240, 7):
        moved = LogBytes().add(size - ahead).add(50)
        assert scan(moved.damaged(moved.starts[0]))[0] == moved.starts[1:]
    assert scan(log.damaged(log.starts[0] + 20))[0] == log.starts[1:]


def test_several_damaged_records_in_a_row_are_one_gap(scan, log):
    data = log.damaged(log.starts[1] + 2)
    data = data[: log.starts[2] + 2] + b"?" + data[log.starts[2] + 3 :]
    starts, gaps = scan(data)
    assert starts == [log.starts[0], log.starts[3]]
    assert [(one.start, one.end) for one in gaps] == [(_end_of(log, 0), log.starts[3])]


def _end_of(log, number):
    return unpack(log.data[log.starts[number] :], "it", SALT, log.starts[number]).end


def test_this_very_file_stored_as_payload_is_never_taken_for_records(scan):
    """Salt and own offset must match: not even behind a damaged header is a copy adopted."""
    inner = LogBytes().add().add(500).add()
    outer = LogBytes().add().add(len(inner.data) + 1, fill=inner.data).add()
    assert inner.data[FILE_HEADER_BYTES:] in outer.data
    assert scan(outer.data)[0] == outer.starts
    for place in (0, 20, 30, 100, RECORD_HEADER_BYTES + 3):
        starts, gaps = scan(outer.damaged(outer.starts[1] + place))
        assert starts == [outer.starts[0], outer.starts[2]]
        assert len(gaps) == 1


def test_inside_a_record_whose_header_is_good_nothing_is_searched(scan):
    """Not even what would be a record of this very place."""
    marker = b"m" * RECORD_HEADER_BYTES
    log = LogBytes().add().add(RECORD_HEADER_BYTES, marker).add()
    place = log.data.index(marker)
    forged = pack_mark(Place(SALT, place, 0), 9, RecordKind.SEAL)
    data = log.data[:place] + forged + log.data[place + RECORD_HEADER_BYTES :]
    assert scan(data)[0] == [log.starts[0], log.starts[2]]


def test_a_record_behind_one_that_was_cut_off_is_found_and_the_gap_does_not_look_torn(scan):
    """So a start leaves a file whose end was lost: cut inside a record, then sealed."""
    log = LogBytes().add().add(3000)
    cut = log.starts[1] + 700
    starts, gaps = scan(log.data[:cut] + pack_mark(Place(SALT, cut, 0), 9, RecordKind.SEAL))
    assert starts == [log.starts[0], cut]
    assert [(one.start, one.end, one.looks_torn) for one in gaps] == [(log.starts[1], cut, False)]


def test_records_of_another_file_or_another_offset_do_not_count(scan):
    log = LogBytes().add().add(salt=SALT + 1).add(skew=4096).add()
    starts, gaps = scan(log.data)
    assert starts == [log.starts[0], log.starts[3]]
    assert [(one.start, one.end) for one in gaps] == [(log.starts[1], log.starts[3])]


def test_a_payload_that_is_nothing_but_magic_is_searched_in_no_time(scan):
    log = LogBytes().add(2_000_000, fill=b"bkRC").add()
    assert scan(log.damaged(log.starts[0] + 5))[0] == log.starts[1:]


@pytest.mark.parametrize("is_aligned", [False, True])
def test_a_file_that_ends_anywhere_inside_its_last_record_looks_torn(scan, is_aligned):
    log = LogBytes().add(100).add(600, is_aligned=is_aligned)
    end = _end_of(log, 0)
    for length in range(end + 1, len(log.data)):
        starts, gaps = scan(log.data[:length])
        assert starts == log.starts[:1]
        assert [(one.start, one.end, one.looks_torn) for one in gaps] == [(end, length, True)]


@pytest.mark.parametrize("size", [100, 3000, 200_000])
def test_zeros_from_the_end_of_a_record_on_look_torn(scan, size):
    log = LogBytes().add(100)
    starts, gaps = scan(log.data + bytes(size))
    assert (starts, [one.looks_torn for one in gaps]) == (log.starts, [True])


def test_a_record_that_is_zeros_from_a_sector_on_looks_torn_and_from_elsewhere_it_does_not(scan):
    log = LogBytes().add(300).add(3000, fill=ANYTHING)
    begin, end = log.starts[1], len(log.data)
    for trailing in (0, 5000):
        for place in range(begin, end - 9):  # the body itself ends in a few zeros
            torn = log.data[:place] + bytes(end - place + trailing)
            zeros = len(torn.rstrip(b"\0"))
            sector = zeros + -zeros % SECTOR_BYTES
            begins = sector < begin + RECORD_HEADER_BYTES or place >= begin + RECORD_HEADER_BYTES
            is_torn = zeros <= begin or (begins and sector < end)
            starts, gaps = scan(torn)
            assert starts == log.starts[:1]
            assert [one.looks_torn for one in gaps] == [is_torn], (place, begin, end)


def test_a_flipped_bit_in_the_last_record_does_not_look_torn(scan):
    """Nor where the body ends in zeros itself, as long as they do not begin a sector."""
    log = LogBytes().add(300).add(900, fill=ANYTHING)
    for offset in range(log.starts[1], len(log.data)):
        starts, gaps = scan(log.damaged(offset))
        assert (starts, [one.looks_torn for one in gaps]) == (log.starts[:1], [False])


@pytest.mark.parametrize("content", [5, 300, 508, 512])
@pytest.mark.parametrize("zeros", [0, 8, 200, 254, 255, 3000])
def test_a_flipped_bit_in_a_record_that_ends_in_zeros_does_not_look_torn(scan, content, zeros):
    """Payloads may, and Arrow pads with them: an acked record whose last sector has nothing else is not to be cut off."""
    body = b"\x01" * content + bytes(zeros)
    for length in range(400, 464, 8):  # the record's end, and that of its content, pass the boundary of a sector
        log = LogBytes().add(length).add(len(body), fill=body)
        begin = log.starts[1]
        for offset in {*range(begin, begin + RECORD_HEADER_BYTES, 3), *range(len(log.data) - zeros - 20, len(log.data), 7)}:
            starts, gaps = scan(log.damaged(offset, mask=1))
            assert (starts, [one.looks_torn for one in gaps]) == (log.starts[:1], [False])


def test_a_record_that_ends_in_some_zeros_and_lost_more_looks_torn(scan):
    for zeros, looks_torn in ((0, True), (40, True), (240, True), (300, False)):
        log = LogBytes().add(300).add(3000, fill=(b"\x01" * (3000 - zeros)).ljust(3000, b"\0"))
        cut = log.starts[1] + 1500
        cut += -cut % SECTOR_BYTES
        torn = log.data[:cut] + bytes(len(log.data) - cut)
        assert [one.looks_torn for one in scan(torn)[1]] == [looks_torn]


@pytest.mark.parametrize("tail", [b"?", b"bkRD", b"?" * 115, b"?" * 116, b"?" * 5000, bytes(10) + b"?", b"bkRC" + b"?" * 30])
def test_a_tail_that_cannot_begin_a_record_does_not_look_torn(scan, tail):
    log = LogBytes().add(300)
    starts, gaps = scan(log.data + tail)
    assert (starts, [one.looks_torn for one in gaps]) == (log.starts, [False])


def test_a_header_whose_rest_is_zeros_looks_torn_only_if_its_beginning_is_right(scan):
    """The boundary of a sector lies inside the header."""
    log = LogBytes().add(300)
    while not 32 <= -len(log.data) % SECTOR_BYTES < RECORD_HEADER_BYTES:
        log.add(50)
    end = len(log.data)
    torn = log.add(600).data[: end + -end % SECTOR_BYTES] + bytes(2000)
    assert [one.looks_torn for one in scan(torn)[1]] == [True]
    for place in (0, 16, 24, 31):
        flipped = bytearray(torn)
        flipped[end + place] ^= 1
        assert [one.looks_torn for one in scan(bytes(flipped))[1]] == [False]


def test_in_a_journal_there_is_no_padding(scan):
    """A small record that was acked and turned to zeros must not pass for it."""
    log = LogBytes().add(100)
    while _end_of(log, -1) % 4096 > 3500 or _end_of(log, -1) % 4096 < 3000:
        log.add(100)
    hidden = 4096 - len(log.data) % 4096
    data = log.data + bytes(hidden)
    log.data = data
    log.add(100)
    assert scan(log.data, FileKind.ENTRY_LOG) == (log.starts, [])
    starts, gaps = scan(log.data, FileKind.JOURNAL)
    assert starts == log.starts
    assert [(one.end - one.start, one.looks_torn) for one in gaps] == [(hidden, False)]


def test_the_highest_synced_through_of_all_good_records_counts_also_behind_a_gap():
    log = LogBytes().add()
    at = len(log.data)
    log.data += pack_note(Place(SALT, at, at), 5, LedgerNote(RecordKind.FENCE, 1), KEY)
    log.data += pack_mark(Place(SALT, len(log.data), 17), 6, RecordKind.IDLE)
    scanned = make_scan(log.damaged(log.starts[0]))
    assert len(list(scanned.items())) == 3
    assert scanned.synced_through == at


def test_random_damage_never_gives_a_record_that_was_not_written(scan):
    generator = random.Random(4)
    log = LogBytes()
    for number in range(12):
        log.add(generator.randrange(5000), is_aligned=number % 3 == 0)
    for _ in range(300):
        data = bytearray(log.data)
        for _ in range(generator.randrange(1, 6)):
            start = generator.randrange(FILE_HEADER_BYTES, len(data))
            end = min(len(data), start + generator.choice([1, 1, 20, 3000]))
            data[start:end] = generator.choice([bytes(end - start), generator.randbytes(end - start)])
        starts, gaps = scan(bytes(data))
        intact = [
            one for number, one in enumerate(log.starts) if data[one : log.end(number)] == log.data[one : log.end(number)]
        ]
        assert set(intact) <= set(starts) <= set(log.starts)
        assert all(any(gap.start <= one < gap.end for gap in gaps) for one in set(log.starts) - set(starts))
