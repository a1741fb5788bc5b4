"""Which decoded rows readers get, and in which form."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bk_spark.proto.pulsar_pb2 import EncryptionKeys
from bk_spark.pulsar.columns import MESSAGE_SCHEMA
from bk_spark.pulsar.messages import decode
from bk_spark.pulsar.selection import (
    Encrypted,
    encrypted,
    of_chunks,
    to_messages,
    without,
    without_markers,
    without_tombstones,
)
from tests.unit.pulsar.entries import Message, batch, chunks, framed, marker, metadata, single


def rows_of(*entries: bytes) -> pa.RecordBatch:
    return decode(np.arange(len(entries), dtype=np.int64), pa.array(entries, pa.binary())).rows


PLAIN = rows_of(single(b"a"), batch([Message(b"b"), Message(b"c")]))


def test_rows_without_anything_to_remove_pass_as_they_are() -> None:
    assert without_markers(PLAIN) is PLAIN
    assert without_tombstones(PLAIN) is PLAIN
    assert encrypted(PLAIN) == []
    assert of_chunks(PLAIN, frozenset("u")).num_rows == 0


def test_markers_and_tombstones_are_removed() -> None:
    rows = rows_of(single(b"a"), marker(10), single(b"", null_value=True), single(b""))
    assert without_markers(rows).column("value").to_pylist() == [b"a", None, b""]
    assert without_tombstones(rows).column("value").to_pylist() == [b"a", b""]


def test_encrypted_entries_are_named_with_their_key() -> None:
    locked = framed(metadata(encryption_keys=[EncryptionKeys(key="shop", value=b"?")]), b"?")
    assert encrypted(rows_of(single(b"a"), locked)) == [Encrypted(1, "shop")]


def test_chunks_of_some_messages_are_chosen() -> None:
    rows = rows_of(*chunks(b"x" * 9, 4, "u"), *chunks(b"y" * 9, 4, "v"))
    assert of_chunks(rows, frozenset({"v"})).column("entry_id").to_pylist() == [3, 4, 5]


def test_rows_at_places_are_left_out() -> None:
    assert without(PLAIN, {0, 2}).column("value").to_pylist() == [b"b"]


def test_messages_have_their_topic_and_place() -> None:
    found = to_messages("persistent://t/n/x", 7, PLAIN)
    found.validate(full=True)
    assert found.schema == MESSAGE_SCHEMA
    places = [tuple(place.values()) for place in found.column("_message_id").to_pylist()]
    assert places == [(7, 0, -1), (7, 1, 0), (7, 1, 1)]
    assert set(found.column("_topic").to_pylist()) == {"persistent://t/n/x"}
