"""Payloads in parts: whole for every reader, whatever entries it reads; a part that is not as it was written is an error."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest

from bk_spark.entries.batch import binaries
from bk_spark.errors import CorruptionError, FormatVersionError, NoSuchEntryError
from bk_spark.rows import parts
from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder
from bk_spark.rows.parts import PayloadPart, Whole, decode_part, encode_part, in_parts, rows_begun, whole_payloads

LIMIT, PART = 60, 40


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of 60 bytes at most, and parts of 40."""
    monkeypatch.setattr(parts, "MAX_ENTRY_BYTES", LIMIT)
    monkeypatch.setattr(parts, "PART_BYTES", PART)


def payload(name: bytes, size: int) -> bytes:
    """Different bytes for each name and place."""
    return (b"BKRW\x01\x00" + b"".join(name + b"%d " % place for place in range(size)))[:size]


PAYLOADS = [payload(b"a", 20), payload(b"b", 120), payload(b"c", 61), payload(b"d", 61), payload(b"e", 60), payload(b"f", 81)]
"""In 1, 3, 2, 2, 1 and 3 entries."""


def entries() -> list[bytes]:
    return [bytes(entry) for entry, _ in in_parts((pa.py_buffer(one), 1) for one in PAYLOADS)]


class Ledger:
    """Reads entries in batches of ``step``, as a ReadHandle does."""

    def __init__(self, held: list[bytes], step: int = 100) -> None:
        self.held = held
        self.step = step
        self.reads: list[tuple[int, int]] = []

    def __call__(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        self.reads.append((first, last))
        for start in range(first, last + 1, self.step):
            ids = [one for one in range(start, min(start + self.step, last + 1)) if one < len(self.held)]
            if ids:
                columns = [pa.array(ids, pa.int64()), binaries([self.held[one] for one in ids])]
                yield pa.record_batch(columns, names=["entry_id", "payload"])
        if last >= len(self.held):
            raise NoSuchEntryError(7, len(self.held))

    def whole(self, first: int, last: int) -> list[tuple[int, bytes]]:
        found = []
        for batch in whole_payloads(self, 7, first, last):
            ids, payloads = batch.column("entry_id").to_pylist(), batch.column("payload").to_pylist()
            found += list(zip(ids, payloads, strict=True))
        return found


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_readers_of_any_two_cuts_give_each_payload_once_with_the_entry_in_which_it_begins(step: int) -> None:
    held = entries()
    begun = [0, 1, 4, 6, 8, 9]
    assert len(held) == 12
    for one in range(len(held) + 1):
        for other in range(one, len(held) + 1):
            bounds = [0, one, other, len(held)]
            found = []
            for first, beyond in itertools.pairwise(bounds):
                if first < beyond:
                    found += Ledger(held, step).whole(first, beyond - 1)
            assert found == list(zip(begun, PAYLOADS, strict=True))


@pytest.mark.usefixtures("small")
def test_the_entry_of_the_first_part_has_the_rows() -> None:
    found = list(in_parts([(pa.py_buffer(payload(b"b", 120)), 5), (pa.py_buffer(payload(b"a", 20)), 3)]))
    assert [rows for _, rows in found] == [5, 0, 0, 3]
    assert [rows_begun(entry, "it") for entry, _ in found[:3]] == [5, 0, 0]


@pytest.mark.usefixtures("small")
def test_batches_without_parts_pass_uncopied() -> None:
    ledger = Ledger(entries()[:1] * 5)
    [batch] = whole_payloads(ledger, 7, 0, 4)
    assert batch.num_rows == 5
    assert ledger.reads == [(0, 4)]


def with_flipped_byte(entry: bytes) -> bytes:
    return entry[:-1] + bytes([entry[-1] ^ 1])


LOST = [("part lost", place, held) for place in (1, 2, 3, 6, 7, 11) for held in [lambda all_, at: all_[:at] + all_[at + 1 :]]]
CHANGES = [
    *LOST,
    *(("doubled", place, lambda all_, at: all_[: at + 1] + all_[at:]) for place in (1, 2, 3, 6)),
    *(("exchanged", place, lambda all_, at: [*all_[:at], all_[at + 1], all_[at], *all_[at + 2 :]]) for place in (1, 2, 4)),
    *(("of another row", place, lambda all_, at: [*all_[:at], all_[at + 2], *all_[at + 1 :]]) for place in (4, 5)),
    *(
        ("flipped", place, lambda all_, at: [*all_[:at], with_flipped_byte(all_[at]), *all_[at + 1 :]])
        for place in (1, 2, 3, 11)
    ),
    *(("shorter", place, lambda all_, at: [*all_[:at], all_[at][:-1], *all_[at + 1 :]]) for place in (1, 2, 3, 11)),
    *(("longer", place, lambda all_, at: [*all_[:at], all_[at] + b"x", *all_[at + 1 :]]) for place in (1, 2, 3, 11)),
]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("change", "place", "changed"), CHANGES)
def test_parts_that_are_not_as_they_were_written_fail_a_reader_wherever_the_ledger_is_cut(change, place, changed) -> None:
    held = changed(entries(), place)
    for beyond in range(1, len(held) + 1):
        with pytest.raises(CorruptionError, match="of ledger 7"):
            Ledger(held).whole(0, beyond - 1) + (Ledger(held).whole(beyond, len(held) - 1) if beyond < len(held) else [])


@pytest.mark.usefixtures("small")
def test_a_payload_whose_last_part_is_not_in_the_ledger_names_the_entry() -> None:
    with pytest.raises(CorruptionError, match=r"entry 9 of ledger 7 .*3 parts, of which that in entry 11 is missing"):
        Ledger(entries()[:-1]).whole(0, 10)


@pytest.mark.usefixtures("small")
def test_parts_with_more_bytes_than_the_whole_are_refused_before_the_last_one_is_there() -> None:
    held = entries()
    held[2] += bytes(60)
    with pytest.raises(CorruptionError, match=r"entry 1 of ledger 7 .*more than 120 bytes"):
        Ledger(held[:3]).whole(0, 2)


@pytest.mark.usefixtures("small")
def test_a_reader_that_begins_inside_a_payload_looks_once_for_its_first_part() -> None:
    ledger = Ledger(entries())
    assert ledger.whole(2, 3) == []
    assert ledger.reads == [(2, 3), (1, 1)]


@pytest.mark.parametrize(
    "header",
    [
        (31, 1, 0, 2, 0, 5),
        (500, 1, 0, 2, 0, 5),
        (32, 0, 0, 2, 0, 5),
        (32, 2**22 + 1, 0, 2, 0, 5),
        (32, 1, 2, 2, 0, 5),
        (32, 1, 0, 1, 0, 5),
        (32, 1, 0, 2**20, 0, 2**21),
        (32, 1, 0, 2, 0, 4),
        (32, 1, 0, 2, 0, 2**40),
    ],
)
def test_a_header_that_no_writer_makes_is_damage(header: tuple[int, ...]) -> None:
    with pytest.raises(CorruptionError, match="entry 3"):
        decode_part(pa.py_buffer(struct.pack("<4sHHIIIIQ", b"BKRW", 2, *header) + b"12345"), "entry 3")
    with pytest.raises(CorruptionError, match="entry 3"):
        decode_part(pa.py_buffer(b"BKRW\x02\x00"), "entry 3")


def test_a_longer_header_of_a_part_is_skipped() -> None:
    entry = struct.pack("<4sHHIIIIQ", b"BKRW", 2, 40, 1, 0, 2, 9, 5) + b"newer..." + b"123"
    part = decode_part(pa.py_buffer(entry), "it")
    assert part is not None
    assert (part, bytes(part.data)) == (PayloadPart(Whole(1, 2, 9, 5), 0, part.data), b"123")
    again = decode_part(encode_part(part), "it")
    assert again == part


def test_a_row_above_the_maximum_entry_comes_back_and_a_part_alone_is_no_payload() -> None:
    batch = pa.record_batch({"b": pa.array([b"x" * (17 << 20), b"y"]), "n": pa.array([1, 2], pa.int64())})
    encoder = RowEncoder("orders", batch.schema, PayloadFormat(compression="none", max_rows=1000, max_bytes=1 << 20))
    held = list(in_parts(encoder.encode(batch)))
    assert [rows for _, rows in held] == [1, 0, 0, 0, 0, 1]
    decoder = RowDecoder(batch.schema)
    ledger = Ledger([bytes(entry) for entry, _ in held])
    found = [decoder.decode(pa.py_buffer(one), "it") for _, one in ledger.whole(0, len(held) - 1)]
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([batch]))
    with pytest.raises(CorruptionError, match="one part of a larger payload"):
        decoder.decode(held[0][0], "it")


def test_a_version_that_is_newer_than_parts_is_refused_by_name() -> None:
    with pytest.raises(FormatVersionError, match="entry 3 has format version 3"):
        rows_begun(pa.py_buffer(struct.pack("<4sHHII", b"BKRW", 3, 16, 1, 5) + b"x" * 50), "entry 3")
