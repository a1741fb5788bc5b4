"""Entries become rows as a plain decoder with Google's protobuf makes them, and damage is named and never raised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.proto.pulsar_pb2 import BrokerEntryMetadata, EncryptionKeys
from bk_spark.pulsar import messages
from bk_spark.pulsar.columns import DECODED_SCHEMA
from bk_spark.pulsar.messages import Decoded, decode, decode_in_turns
from tests.unit.pulsar.entries import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    Message,
    batch,
    batch_payload,
    chunks,
    compressed,
    framed,
    marker,
    metadata,
    single,
)
from tests.unit.pulsar.plain_decoder import Row, rows_of

ALL_COMPRESSIONS = [NONE, LZ4, ZLIB, ZSTD, SNAPPY]


def decoded(entries: Sequence[bytes], first: int = 0) -> Decoded:
    ids = np.arange(first, first + len(entries), dtype=np.int64)
    found = decode(ids, pa.array(entries, pa.binary()))
    found.rows.validate(full=True)
    assert found.rows.schema == DECODED_SCHEMA
    return found


def rows(found: Decoded) -> list[Row]:
    times = found.rows.set_column(4, "_publish_time", found.rows.column("_publish_time").cast(pa.int64()))
    times = times.set_column(5, "_event_time", times.column("_event_time").cast(pa.int64()))
    listed = times.to_pylist()
    return [{**row, "_properties": dict(row["_properties"])} for row in listed]


def values(*entries: bytes) -> list[bytes | None]:
    found = decoded(entries)
    assert found.unreadable == ()
    return found.rows.column("value").to_pylist()


def test_the_columns_are_at_the_places_that_this_file_casts() -> None:
    assert DECODED_SCHEMA.names[4:6] == ["_publish_time", "_event_time"]


@pytest.mark.parametrize("compression", ALL_COMPRESSIONS)
def test_messages_alone_and_in_batches_have_their_values_in_every_compression(compression: int) -> None:
    alone = single(b"alone" * 9, compression=compression)
    together = batch([Message(b"a" * 50), Message(b""), Message(b"c")], compression=compression)
    assert values(alone, together, alone) == [b"alone" * 9, b"a" * 50, b"", b"c", b"alone" * 9]


@pytest.mark.parametrize("compression", [LZ4, ZLIB, ZSTD, SNAPPY])
@pytest.mark.parametrize("lie", [-1, 1, 1000, 2**31 - 1])
def test_a_size_that_is_not_the_payloads_is_damage(compression: int, lie: int) -> None:
    data = b"message" * 20
    wrong = framed(metadata(compression=compression, uncompressed_size=max(0, len(data) + lie)), compressed(data, compression))
    found = decoded([single(b"a"), wrong, single(b"b")])
    assert found.rows.column("value").to_pylist() == [b"a", b"b"]
    assert [one.entry_id for one in found.unreadable] == [1]


def test_an_unknown_compression_is_damage() -> None:
    found = decoded([framed(metadata(compression=9, uncompressed_size=1), b"a")])
    assert "compression 9, which is none of Pulsar's" in found.unreadable[0].problem


def test_a_batch_of_one_is_a_batch() -> None:
    assert rows(decoded([batch([Message(b"a")])]))[0]["batch_index"] == 0


def test_what_a_message_of_a_batch_does_not_say_its_batch_says_except_key_and_properties() -> None:
    own = {"partition_key": "k", "event_time": 5, "sequence_id": 9, "ordering_key": b"o", "null_value": False}
    entry = batch(
        [Message(b"a", {"p": "1"}, own), Message(b"b")],
        partition_key="batch",
        ordering_key=b"batch",
        event_time=3,
        sequence_id=8,
        null_value=True,
    )
    first, second = rows(decoded([entry]))
    names = ("key", "value", "_event_time", "_sequence_id", "_ordering_key", "_properties")
    assert [first[name] for name in names] == ["k", b"a", 5000, 9, b"o", {"p": "1"}]
    assert [second[name] for name in names] == [None, None, 3000, 8, None, {}]


def test_messages_that_were_compacted_away_are_left_out_and_keep_their_place() -> None:
    entry = batch([Message(b"a"), Message(b"b", fields={"compacted_out": True}), Message(b"c")])
    assert [(row["batch_index"], row["value"]) for row in rows(decoded([entry]))] == [(0, b"a"), (2, b"c")]


def test_of_two_properties_with_one_name_the_last_counts() -> None:
    head = metadata(properties={"a": "1", "b": "2"})
    head.properties.add(key="a", value="3")
    assert rows(decoded([framed(head, b"")]))[0]["_properties"] == {"a": "3", "b": "2"}


def test_what_brokers_put_before_the_metadata_is_passed_over() -> None:
    broker = BrokerEntryMetadata(broker_timestamp=1, index=2)
    assert values(
        framed(metadata(), b"a", checksum=False), framed(metadata(), b"b", broker=broker), batch([Message(b"c")], broker=broker)
    ) == [b"a", b"b", b"c"]


def test_a_chunk_keeps_its_bytes_as_they_are_stored() -> None:
    found = rows(decoded(chunks(b"x" * 100, 5, "u", compression=ZSTD)))
    assert b"".join(row["value"] for row in found) == compressed(b"x" * 100, ZSTD)
    assert [row["chunk_id"] for row in found] == list(range(len(found)))
    assert {(row["uuid"], row["chunks"], row["uncompressed_size"]) for row in found} == {("u", len(found), 100)}


def test_an_encrypted_entry_is_one_row_without_a_value() -> None:
    keys = [EncryptionKeys(key=name, value=b"?") for name in ("first", "second")]
    locked = framed(metadata(encryption_keys=keys, num_messages_in_batch=5), b"????")
    [row] = rows(decoded([locked]))
    assert (row["encryption_key"], row["value"], row["batch_index"]) == ("first", None, -1)


@pytest.mark.parametrize("key", [b"", b"\x0a\x05ab", b"\x12\x01v", b"\x0a\x01k"])
def test_encryption_keys_that_are_damaged_are_damage_of_their_entry(key: bytes) -> None:
    """The first one, or a further one, is cut, or has no name or no value."""
    whole = EncryptionKeys(key="name", value=b"?").SerializeToString()
    for keys in ([key], [whole, key]):
        head = metadata().SerializeToString() + b"".join(b"\x6a" + bytes([len(one)]) + one for one in keys)
        entry = len(head).to_bytes(4, "big") + head + b"??"
        locked = framed(metadata(encryption_keys=[EncryptionKeys(key="name", value=b"?")]), b"??")
        found = decoded([locked, entry, locked, single(b"a"), entry])
        assert [(row["entry_id"], row["encryption_key"]) for row in rows(found)] == [(0, "name"), (2, "name"), (3, None)]
        assert {one.problem for one in found.unreadable} == {"its encryption keys are damaged"}


def test_a_marker_is_one_row_with_its_transaction() -> None:
    [row] = rows(decoded([marker(21, 2**64 - 1, 7)]))
    assert (row["marker_type"], row["txn_most"], row["txn_least"], row["value"]) == (21, 2**64 - 1, 7, None)


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\x0e",
        b"\x0e\x01\x00",
        b"\x0e\x02\x7f\xff\xff\xff",
        b"\x00\x00\x00\x09no",
        b"\xff\xff\xff\xffno",
        framed(metadata(), b"")[:-3],
        single(b"a", event_time=2**63),
        framed(metadata(num_messages_in_batch=2, uncompressed_size=9), batch_payload([Message(b"a")])),
        framed(metadata(num_messages_in_batch=1, uncompressed_size=5), b"\0\0\0\x02\x18\x05abc"),
        framed(metadata(num_chunks_from_msg=3, chunk_id=3, uuid="u"), b"c"),
        framed(metadata(num_chunks_from_msg=3, chunk_id=1), b"c"),
    ],
)
def test_a_damaged_entry_is_named_and_the_others_are_read(entry: bytes) -> None:
    found = decoded([single(b"a"), entry, batch([Message(b"b")]), entry], first=40)
    assert [(row["entry_id"], row["value"]) for row in rows(found)] == [(40, b"a"), (42, b"b")]
    assert [one.entry_id for one in found.unreadable] == [41, 43]
    assert all(one.problem for one in found.unreadable)


@pytest.mark.parametrize("field", ["producer_name", "partition_key", "uuid"])
def test_a_text_that_is_not_utf_8_is_damage(field: str) -> None:
    extra = {"num_chunks_from_msg": 2, "chunk_id": 0} if field == "uuid" else {}
    entry = framed(metadata(**{field: "\u00e9\u00e9"}, **extra), b"v", checksum=False)
    entry = entry.replace("\u00e9\u00e9".encode(), b"\xff\xfe\xfd\xfc")
    assert [one.problem for one in decoded([entry]).unreadable] == ["it has a text that is not UTF-8"]


def test_no_entries_are_no_rows() -> None:
    assert decoded([]).rows.num_rows == 0


def test_entries_in_the_middle_of_a_larger_array_are_read() -> None:
    entries = pa.array([single(b"%d" % number) for number in range(9)], pa.binary()).slice(3, 4)
    found = decode(np.arange(3, 7, dtype=np.int64), entries)
    assert found.rows.column("value").to_pylist() == [b"3", b"4", b"5", b"6"]


def test_entries_in_several_arrays_are_read_as_those_of_one() -> None:
    entries = pa.array([single(b"%d" % number) for number in range(9)], pa.binary())
    chunks = pa.chunked_array([entries.slice(0, 0), entries.slice(0, 2), pa.array([b""]), entries.slice(5, 3)])
    found = decode(np.arange(6, dtype=np.int64), chunks)
    assert found.rows.column("value").to_pylist() == [b"0", b"1", b"5", b"6", b"7"]
    assert [one.entry_id for one in found.unreadable] == [2]


@pytest.mark.parametrize("alone", [2, 1000])
def test_batches_and_single_messages_keep_the_order_of_their_entries(alone: int) -> None:
    stored = []
    for number in range(1000):
        packed = {"compression": LZ4} if number % 5 == 0 else {}
        is_alone = number % (1000 // alone) == 0
        stored.append(single(b"%d" % number, **packed) if is_alone else batch([Message(b"%d" % number)] * 2, **packed))
    found = decoded(stored).rows
    expected = [entry for entry in range(1000) for _ in range(1 if entry % (1000 // alone) == 0 else 2)]
    assert found.column("entry_id").to_pylist() == expected
    assert found.column("value").to_pylist() == [b"%d" % entry for entry in expected]


def in_turns(entries: Sequence[bytes]) -> list[Decoded]:
    return list(decode_in_turns(np.arange(len(entries), dtype=np.int64), pa.array(entries, pa.binary())))


def test_entries_that_are_too_much_together_are_decoded_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "TURN_BYTES", 1000)
    large, small = single(bytes(5000), compression=ZSTD), batch([Message(bytes(300))], compression=LZ4)
    stored = [small, small, large, large, single(b"a" * 5000), small, small, small, small, small]
    turns = in_turns(stored)
    assert [turn.rows.num_rows for turn in turns] == [2, 1, 1, 4, 2]
    assert [row for turn in turns for row in rows(turn)] == rows(decoded(stored))


@pytest.mark.parametrize("stored", [[], [single(b"a")], [single(b"a", compression=LZ4), b"?"]])
def test_few_entries_are_decoded_in_one_turn(stored: list[bytes]) -> None:
    assert [turn.rows.num_rows for turn in in_turns(stored)] == [len(stored[:1])]


def test_what_is_too_much_for_one_call_is_unreadable_there_and_a_lie_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_TOGETHER_BYTES", 1000)
    packed = [single(bytes(400), compression=one) for one in (LZ4, ZLIB, ZSTD)]
    lie = framed(metadata(compression=ZSTD, uncompressed_size=900), compressed(bytes(400), ZSTD))
    found = decoded([lie, *packed, single(bytes(5000)), lie])
    assert [row["entry_id"] for row in rows(found)] == [1, 2, 4]
    assert [one.entry_id for one in found.unreadable] == [0, 3, 5]
    assert found.unreadable[1].problem == "the others hold 800 bytes: decode fewer together"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
PROPERTIES = st.dictionaries(TEXTS, TEXTS, max_size=3)
SMALL, LONG = st.integers(0, 2**20), st.integers(0, 2**64 - 1)


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


MESSAGES = st.builds(
    Message,
    st.binary(max_size=200),
    PROPERTIES,
    some_of(
        partition_key=TEXTS,
        ordering_key=st.binary(max_size=3),
        event_time=SMALL,
        sequence_id=LONG,
        null_value=st.booleans(),
        compacted_out=st.booleans(),
        partition_key_b64_encoded=st.booleans(),
        null_partition_key=st.booleans(),
    ),
)
HEADS = some_of(
    partition_key=TEXTS,
    ordering_key=st.binary(max_size=3),
    event_time=SMALL,
    sequence_id=LONG,
    null_value=st.booleans(),
    producer_name=TEXTS,
    publish_time=SMALL,
    schema_version=st.binary(max_size=8),
    txnid_most_bits=LONG,
    txnid_least_bits=LONG,
    replicated_from=TEXTS,
    deliver_at_time=SMALL,
    highest_sequence_id=LONG,
)


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    fields = draw(HEADS)
    compression = draw(st.sampled_from(ALL_COMPRESSIONS))
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return batch(draw(st.lists(MESSAGES, max_size=4)), compression=compression, **fields)
    if kind == 1:
        return draw(st.sampled_from(chunks(draw(st.binary(min_size=30, max_size=90)), 10, "u", **fields)))
    if kind == 2:
        return framed(metadata(draw(PROPERTIES), marker_type=draw(st.integers(0, 30)), **fields), draw(st.binary(max_size=9)))
    return single(draw(st.binary(max_size=200)), compression=compression, properties=draw(PROPERTIES), **fields)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An entry with one byte changed, cut, or repeated."""
    entry = bytearray(draw(entries()))
    place = draw(st.integers(0, len(entry) - 1))
    how = draw(st.integers(0, 2))
    if how == 0:
        entry[place] = draw(st.integers(0, 255))
    elif how == 1:
        del entry[place:]
    else:
        entry[place:place] = entry[place : place + draw(st.integers(1, 9))]
    return bytes(entry)


def expected(stored: Sequence[bytes]) -> tuple[list[Row], list[int]]:
    found = [rows_of(place, entry) for place, entry in enumerate(stored)]
    return [row for some in found for row in some or ()], [place for place, some in enumerate(found) if some is None]


@given(st.lists(entries(), max_size=6))
def test_rows_are_those_of_the_plain_decoder(stored: list[bytes]) -> None:
    found = decoded(stored)
    assert (rows(found), [one.entry_id for one in found.unreadable]) == expected(stored)


@given(st.lists(st.one_of(damaged(), st.binary(max_size=40), entries()), min_size=1, max_size=6))
def test_whatever_is_damaged_the_rest_is_read_and_nothing_is_raised(stored: list[bytes]) -> None:
    found = decoded(stored)
    read = rows(found)
    bad = {one.entry_id for one in found.unreadable}
    assert bad.isdisjoint(row["entry_id"] for row in read)
    for place, entry in enumerate(stored):
        plain = rows_of(place, entry)
        if plain is not None and place not in bad:
            assert [row for row in read if row["entry_id"] == place] == plain
