"""Copies of ledgers in Pulsar's own layout: their bytes mean what Pulsar writes, and no others are taken for them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.pulsar.messages import decode
from bk_spark.pulsar.offloaded import (
    Block,
    CopyIndex,
    DamagedCopyError,
    check_head,
    entry_problem,
    parse_entries,
    parse_index,
)
from tests.unit.pulsar.copies import FILLING, HEAD_BYTES, WrittenCopy, written_copy
from tests.unit.pulsar.entries import BrokerEntryMetadata, Message, batch, single

ENTRIES = [b"a" * 50, b"", b"c" * 100, b"d", b"e" * 30]
COPY = written_copy(ENTRIES, 300)


def all_entries(copy: WrittenCopy, step: int = 1 << 20) -> list[bytes]:
    """The entries of a copy, whose data come ``step`` bytes at a time, checked as readers check them."""
    index, found = parse_index(copy.index), []
    if len(copy.data) != index.data_bytes:
        raise DamagedCopyError("other bytes than the index says")
    for block in index.blocks:
        check_head(copy.data[block.begin : block.begin + 28], index, block)
        at, entry_id, size = block.begin + index.head_bytes, block.first_entry_id, step
        while entry_id <= block.last_entry_id:
            data = copy.data[at : min(at + size, block.end)]
            parsed = parse_entries(data, at, entry_id, block)
            found += [data[begin:end] for begin, end in parsed.places]
            at, entry_id, size = at + parsed.used, parsed.behind, max(step, parsed.wanted)
    for number, entry in enumerate(found):
        problem = entry_problem(entry)
        if problem:
            raise DamagedCopyError(f"entry {number}: {problem}")
    return found


REAL_INDEX = bytes.fromhex(
    "de47de470000010c0000000000000bac000000000000008000000001000000d80803100318bc142013280332500a18313237"
    "2e302e302e313a33353037392d63346263303361360a183132372e302e302e313a34323633312d30646535616361310a1831"
    "32372e302e302e313a34353937372d653466313330373610003803480250b986dfd7a2345a3a0a1570756c7361722f6d616e"
    "616765642d6c6564676572122174656e616e742f6e616d6573706163652f70657273697374656e742f746f7069635a1b0a09"
    "636f6d706f6e656e74120e6d616e616765642d6c65646765725a150a0b6170706c69636174696f6e120670756c7361720000"
    "000000000000000000010000000000000000"
)
"""As the offloader of Pulsar 4.0.8 wrote it, for a ledger of 20 messages of 100 bytes."""


def test_an_index_that_pulsar_wrote_is_read() -> None:
    assert parse_index(REAL_INDEX) == CopyIndex(2988, 128, 19, 2620, (Block(0, 19, 0, 2988),))


def test_blocks_are_found_with_their_entries() -> None:
    blocks = (Block(0, 1, 0, 300), Block(2, 4, 300, 595))
    assert parse_index(COPY.index) == CopyIndex(595, HEAD_BYTES, 4, 181, blocks)
    assert all_entries(COPY) == ENTRIES


@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=30),
    st.integers(HEAD_BYTES + 72, 600),
    st.integers(12, 200),
)
def test_entries_come_back_whatever_their_sizes_blocks_and_pieces(entries: list[bytes], block_bytes: int, step: int) -> None:
    framed = [single(entry, checksum=bool(len(entry) % 2)) for entry in entries]
    copy = written_copy(framed, block_bytes + 100)
    assert all_entries(copy, step) == framed


def is_told_or_the_same(found: list[bytes], entries: list[bytes]) -> bool:
    """A bit of what says that an entry has a checksum leaves it without one, and makes it no message."""
    ids = np.arange(len(found))
    return found == entries or bool(decode(ids, pa.chunked_array([pa.array(found, pa.binary())])).unreadable)


@given(st.data())
def test_a_flipped_bit_or_a_cut_is_an_error_or_changes_nothing(data: st.DataObject) -> None:
    entries = [single(b"x" * size) for size in data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=12))]
    copy = written_copy(entries, data.draw(st.integers(HEAD_BYTES + 200, 700)))
    of_index = data.draw(st.booleans())
    spoilt = bytearray(copy.index if of_index else copy.data)
    place = data.draw(st.integers(0, len(spoilt) - 1))
    if data.draw(st.booleans()):
        del spoilt[place:]
    else:
        spoilt[place] ^= 1 << data.draw(st.integers(0, 7))
    other = WrittenCopy(copy.data, bytes(spoilt)) if of_index else WrittenCopy(bytes(spoilt), copy.index)
    with suppress(DamagedCopyError):
        assert is_told_or_the_same(all_entries(other), entries)


def replaced(data: bytes, at: int, form: str, *values: int) -> bytes:
    spoilt = bytearray(data)
    struct.pack_into(form, spoilt, at, *values)
    return bytes(spoilt)


LISTED = len(COPY.index) - 40
"""Where the list of the two blocks begins."""


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda index: index[:31], "31 bytes are less than the 32"),
        (lambda index: index[:-1], "do not hold 2 blocks"),
        (lambda index: index + b"\0", "do not hold 2 blocks"),
        (lambda index: replaced(index, 4, ">i", len(index) - 1), "do not hold 2 blocks"),
        (lambda index: b"\0" + index[1:], "begins with 0x0047de47, not 0xde47de47"),
        (lambda index: replaced(index, 0, ">I", 0x3D1FB0BC), "streaming offload"),
        (lambda index: replaced(index, 16, ">q", 27), "head of 27 bytes"),
        (lambda index: replaced(index, 24, ">i", -1), "do not hold -1 blocks"),
        (lambda index: replaced(index, 32, ">B", 0xFF), "no protobuf message"),
        (lambda index: index.replace(b"\x28\x03", b"\x28\x01"), "not those of a closed ledger"),
        (lambda index: replaced(index, LISTED, ">q", 1), "first block begins at byte 0 with entry 1"),
        (lambda index: replaced(index, LISTED + 8, ">i", 2), "block 1 has entries 0 to 1, part 2"),
        (lambda index: replaced(index, LISTED + 20, ">q", 0), "block 1 has entries 0 to -1"),
        (lambda index: replaced(index, LISTED + 32, ">q", 10), "block 1 has entries"),
        (lambda index: replaced(index, 8, ">q", 0), "block 2 has entries"),
    ],
)
def test_a_damaged_index_is_told_what_is_wrong(spoil: Callable[[bytes], bytes], problem: str) -> None:
    with pytest.raises(DamagedCopyError, match=problem):
        parse_index(spoil(COPY.index))


@pytest.mark.parametrize(
    ("at", "form", "value", "problem"),
    [
        (0, ">I", 5, "magic 5, not"),
        (4, ">q", 64, "bytes of the head 64, not 128"),
        (12, ">q", 301, "bytes of the block 301, not 300"),
        (20, ">q", 2, "first entry 2, not 0"),
        (COPY.begins[0], ">i", -1, "entry 0 of -1 bytes"),
        (COPY.begins[0], ">i", 161, "entry 0 of 161 bytes"),
        (COPY.begins[0] + 4, ">q", 1, "entry 1 of 50 bytes, where entry 0 should be"),
        (COPY.begins[1], ">I", 0xFEDCDEAD, "ends before its entry 1"),
        (COPY.begins[1] + 12, ">I", 0, "behind the last entry of its block, is 00000000"),
    ],
)
def test_a_damaged_block_is_told_what_is_wrong(at: int, form: str, value: int, problem: str) -> None:
    with pytest.raises(DamagedCopyError, match=problem):
        all_entries(WrittenCopy(replaced(COPY.data, at, form, value), COPY.index))


def test_an_entry_is_no_filling_whatever_it_holds() -> None:
    entries = [FILLING * 3, FILLING, b""]
    assert all_entries(written_copy(entries)) == entries


@pytest.mark.parametrize(
    "entry",
    [single(b"v"), batch([Message(b"a"), Message(b"b")], broker=BrokerEntryMetadata(broker_timestamp=5, index=7))],
)
def test_the_checksum_of_a_message_finds_each_byte_that_changed(entry: bytes) -> None:
    assert entry_problem(entry) is None
    begin = entry.index(b"\x0e\x01") + 2
    for place in range(begin, len(entry)):
        problem = entry_problem(entry[:place] + bytes([entry[place] ^ 0x10]) + entry[place + 1 :])
        assert problem is not None, place
        assert "CRC-32C" in problem


@pytest.mark.parametrize(
    "entry", [b"", b"\x0e", b"\x0e\x01", b"\x0e\x02", b"\x0e\x02\xff\xff\xff\xff", single(b"v", checksum=False)]
)
def test_an_entry_without_a_checksum_has_no_problem_or_one_but_no_crash(entry: bytes) -> None:
    assert entry_problem(entry) is None or entry == b"\x0e\x01"
