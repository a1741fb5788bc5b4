"""Filters of keys: no key that is held is ever excluded, few others pass, the layout is the documented one, damage is found."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from bk_spark.errors import CorruptionError
from bk_spark.rows.codec import MAGIC, PayloadFormat, RowDecoder, RowEncoder, numbered, rows_up_to
from bk_spark.rows.keys import key_filter
from bk_spark.rows.keys.key_filter import BLOCK_BYTES, SALTS, KeyProbes, decode_key_filter, encode_key_filter, made_filter
from bk_spark.rows.lanes import key_checksums, lanes_of
from bk_spark.rows.statistics import MIN_ROWS

WHAT = "the payload of entry 3 of ledger 7"


def probes(column: pa.Array) -> KeyProbes:
    return KeyProbes(key_checksums([column], len(column)))


def every(column: pa.Array) -> np.ndarray:
    return np.arange(len(column))


def in_lane(keys: pa.Array, lanes: int) -> pa.Array:
    return keys.filter(pa.array(lanes_of([keys], len(keys), lanes) == 1))


@pytest.mark.parametrize("lanes", [2, 8, 256])
@pytest.mark.parametrize("text", [False, True])
def test_few_keys_that_are_not_held_pass_and_all_that_are_held(lanes: int, text: bool) -> None:
    def keys(first: int, count: int) -> pa.Array:
        numbers = range(first, first + count * lanes)
        return in_lane(pa.array([f"customer {one:07d}" for one in numbers] if text else list(numbers)), lanes)

    count = 300 if lanes == 256 else 4_000
    held, others = keys(0, count), keys(10**6, count)
    blocks = made_filter([held], len(held))
    assert len(blocks) <= len(held) * key_filter.BITS_PER_KEY / 8 + BLOCK_BYTES
    assert probes(held).held(blocks, every(held)).tolist() == every(held).tolist()
    passed = len(probes(others).held(blocks, every(others)))
    assert passed / len(others) < (0.03 if lanes == 256 else 0.009)


def test_keys_looked_up_one_by_one_pass_as_many_together() -> None:
    held, others = pa.array(list(range(1000))), pa.array(list(range(500, 5000)))
    blocks = made_filter([held], len(held))
    asked = probes(others)
    together = asked.held(blocks, every(others)).tolist()
    assert together == [place for place in range(len(others)) if len(asked.held(blocks, np.array([place])))]


def test_the_bits_are_those_of_the_documented_layout() -> None:
    checksum = 0x7C2544BF
    assert key_checksums([pa.array([8])], 1).tolist() == [checksum]
    mixed = checksum
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = ((mixed ^ mixed >> 33) * factor) % 2**64
    mixed ^= mixed >> 33
    lower = mixed % 2**32
    expected = b"".join(struct.pack("<I", 1 << (lower * salt % 2**32 >> 27)) for salt in SALTS)
    assert made_filter([pa.array([8])], 1) == expected
    many = pa.array([8, *range(1000, 1400)])
    blocks = made_filter([many], len(many))
    at = (mixed >> 32) * (len(blocks) // BLOCK_BYTES) >> 32
    block = int.from_bytes(blocks[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES], "little")
    assert block & int.from_bytes(expected, "little") == int.from_bytes(expected, "little")


def batch(rows: int = 300) -> pa.RecordBatch:
    return pa.record_batch({"v": list(range(rows)), "k": [f"k{one % 50}" for one in range(rows)]})


def payload_of(rows: pa.RecordBatch, key: tuple[str, ...] = ("k",), max_rows: int = 1000) -> pa.Buffer:
    form = PayloadFormat(compression="none", max_rows=max_rows, max_bytes=1 << 26, key=key)
    [(payload, _)] = RowEncoder("orders", rows.schema, form).encode(rows)
    return payload


def test_a_payload_s_filter_is_read_and_rows_and_statistics_are_as_without_it() -> None:
    rows = batch()
    with_filter, without = payload_of(rows), payload_of(rows, ())
    decoder = RowDecoder(rows.schema)
    blocks = decoder.key_filter(with_filter, WHAT, ("k",))
    assert blocks == made_filter([rows.column("k")], rows.num_rows)
    assert decoder.key_filter(without, WHAT, ("k",)) is None
    assert decoder.decode(with_filter, WHAT).equals(rows)
    assert decoder.statistics(with_filter, WHAT, ["k", "v"]) == decoder.statistics(without, WHAT, ["k", "v"])
    assert decoder.key_filter(pa.py_buffer(numbered(with_filter, 9)), WHAT, ("k",)) == blocks
    assert rows_up_to(pa.py_buffer(numbered(with_filter, 9)), WHAT) == 309


def test_a_filter_of_other_columns_or_of_another_order_is_none() -> None:
    decoder = RowDecoder(batch().schema)
    payload = payload_of(batch(), ("v", "k"))
    assert decoder.key_filter(payload, WHAT, ("v", "k")) is not None
    assert decoder.key_filter(payload, WHAT, ("k", "v")) is None
    assert decoder.key_filter(payload, WHAT, ("k",)) is None


def test_a_payload_of_few_rows_has_no_filter() -> None:
    assert RowDecoder(batch().schema).key_filter(payload_of(batch(MIN_ROWS - 1)), WHAT, ("k",)) is None
    assert RowDecoder(batch().schema).key_filter(payload_of(batch(MIN_ROWS)), WHAT, ("k",)) is not None


def test_a_header_has_room_for_a_full_filter_and_the_statistics_and_a_row_number() -> None:
    rows = pa.record_batch({"k": list(range(65_536)), "s": ["x" * 100] * 65_536})
    payload = payload_of(rows, max_rows=65_536)
    (header_bytes,) = struct.unpack_from("<H", payload, 6)
    assert 60_000 < header_bytes <= 65_535 - 12
    decoder = RowDecoder(rows.schema)
    assert decoder.key_filter(pa.py_buffer(numbered(payload, 5)), WHAT, ("k",)) is not None
    others = pa.array(list(range(10**6, 10**6 + 50_000)))
    blocks = decoder.key_filter(payload, WHAT, ("k",))
    assert blocks is not None
    assert len(probes(others).held(blocks, every(others))) / len(others) < 0.04


def test_statistics_that_fill_the_header_leave_no_filter() -> None:
    columns = {f"{place:04}": ["x" * 64] * 100 for place in range(600)}
    numbers = {f"n{place}": list(range(100)) for place in range(8)}
    rows = pa.record_batch({"k": list(range(100)), **columns, **numbers})
    assert RowDecoder(rows.schema).key_filter(payload_of(rows), WHAT, ("k",)) is None


def test_a_reader_of_another_field_skips_the_filter_and_an_unknown_field_is_skipped_before_it() -> None:
    payload = bytes(payload_of(batch()))
    (header_bytes,) = struct.unpack_from("<H", payload, 6)
    unknown = struct.pack("<HH", 99, 3) + b"abc"
    longer = MAGIC + payload[4:6] + struct.pack("<H", header_bytes + len(unknown)) + payload[8:16] + unknown + payload[16:]
    decoder = RowDecoder(batch().schema)
    assert decoder.key_filter(pa.py_buffer(longer), WHAT, ("k",)) == decoder.key_filter(pa.py_buffer(payload), WHAT, ("k",))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda block: b"",
        lambda block: block[:1],
        lambda block: b"\x00" + block[1:],
        lambda block: block[:3],
        lambda block: block[:-1],
        lambda block: block + b"x",
        lambda block: block[:1] + b"\x09\x00" + block[3:],
        lambda block: b"\x02" + block[1:],
    ],
)
def test_damage_of_the_block_is_corruption_and_names_the_payload(spoil) -> None:
    rows = batch()
    block = encode_key_filter(rows, ["k"], 10_000)
    assert decode_key_filter(block, rows.schema, ["k"], WHAT) is not None
    with pytest.raises(CorruptionError, match=WHAT):
        decode_key_filter(spoil(block), rows.schema, ["k"], WHAT)
