"""What Pulsar stores of topics: ledgers, cursors, partitions and schemas; plain, compressed, and damaged."""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.proto import pulsar_pb2
from bk_spark.pulsar import stored
from bk_spark.pulsar.positions import Position
from bk_spark.pulsar.schemas import TYPES, TopicSchema
from bk_spark.pulsar.stored import ManagedLedger, OffloadedCopy, SchemaLocator, SchemaVersion, StoredCursor, StoredLedger

TOPIC = "persistent://public/default/orders"
LEDGERS = pulsar_pb2.ManagedLedgerInfo(
    ledgerInfo=[
        pulsar_pb2.ManagedLedgerInfo.LedgerInfo(ledgerId=5, entries=100, size=4_000, timestamp=1_700_000_000_000),
        pulsar_pb2.ManagedLedgerInfo.LedgerInfo(ledgerId=8),
    ]
).SerializeToString()

PACKED: dict[int, Callable[[bytes], bytes]] = {
    0: lambda data: data,
    1: lambda data: pa.compress(data, codec="lz4_raw", asbytes=True),
    2: zlib.compress,
    3: lambda data: pa.compress(data, codec="zstd", asbytes=True),
    4: lambda data: pa.compress(data, codec="snappy", asbytes=True),
}


def compressed(message: bytes, kind: int, size: int | None = None) -> bytes:
    fields = pulsar_pb2.CompressedInfo(compressionType=kind, uncompressedSize=len(message) if size is None else size)
    head = fields.SerializeToString()
    return struct.pack(">Hi", 0x4778, len(head)) + head + PACKED[kind](message)


def test_the_ledgers_of_a_topic_are_listed_in_their_order_the_open_one_without_a_count() -> None:
    closed, open_ledger = StoredLedger(5, 100, 4_000, 1_700_000_000_000), StoredLedger(8, 0, 0, 0)
    assert stored.managed_ledger(TOPIC, LEDGERS) == ManagedLedger((closed, open_ledger), None)


def test_the_bytes_of_a_worked_example_are_read() -> None:
    value = bytes.fromhex("0a06 0805 1003 1807".replace(" ", "")) + bytes.fromhex("1204 0805 1002".replace(" ", ""))
    assert stored.managed_ledger(TOPIC, value) == ManagedLedger((StoredLedger(5, 3, 7, 0),), Position(5, 2))


def test_a_topic_that_was_just_made_has_no_ledgers() -> None:
    assert stored.managed_ledger(TOPIC, b"") == ManagedLedger(())


S3 = {
    "name": "aws-s3",
    "properties": [{"key": key, "value": key[0]} for key in ("bucket", "region", "endpoint of nobody")]
    + [{"key": "serviceEndpoint", "value": "e"}],
}
UID = {"uidMsb": -2, "uidLsb": 3}


@pytest.mark.parametrize(
    ("fields", "copy", "is_on_bookies"),
    [
        ({}, None, True),
        ({"complete": False, "driverMetadata": S3}, None, True),
        ({"complete": True, "driverMetadata": S3}, OffloadedCopy("aws-s3", None, "b", "r", "e"), True),
        (
            {"complete": True, "bookkeeperDeleted": True, **UID},
            OffloadedCopy("unnamed", UUID(int=(2**64 - 2) << 64 | 3)),
            False,
        ),
        ({"complete": True, "offloadSegment": [{}], **UID}, OffloadedCopy("unnamed", None), True),
    ],
)
def test_an_offloaded_ledger_is_on_bookies_until_pulsar_deleted_it_there(
    fields: dict[str, Any], copy: OffloadedCopy | None, is_on_bookies: bool
) -> None:
    info = pulsar_pb2.ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=5).offloadContext.CopyFrom(pulsar_pb2.OffloadContext(**fields))
    [ledger] = stored.managed_ledger(TOPIC, info.SerializeToString()).ledgers
    assert (ledger.copy, ledger.is_on_bookies) == (copy, is_on_bookies)


@pytest.mark.parametrize("kind", PACKED)
def test_a_compressed_value_is_read_as_the_plain_one(kind: int) -> None:
    assert stored.managed_ledger(TOPIC, compressed(LEDGERS, kind)) == stored.managed_ledger(TOPIC, LEDGERS)
    cursor = pulsar_pb2.ManagedCursorInfo(cursorsLedgerId=9, markDeleteLedgerId=5, markDeleteEntryId=2).SerializeToString()
    assert stored.cursor(compressed(cursor, kind)) == stored.cursor(cursor)


@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        LEDGERS[:-1],
        b"\x0a\x00",
        b"\x47\x78",
        struct.pack(">Hi", 0x4778, 0),
        struct.pack(">Hi", 0x4778, -1),
        struct.pack(">Hi", 0x4778, 2**31 - 1),
        compressed(LEDGERS, 1)[:-1],
        compressed(LEDGERS, 2)[:-9],
        compressed(LEDGERS, 3)[:-1],
        compressed(LEDGERS, 4)[:-1],
        compressed(LEDGERS, 3, size=len(LEDGERS) + 1),
        compressed(LEDGERS, 1, size=2**31 - 1),
        compressed(LEDGERS, 2, size=-1),
        compressed(LEDGERS[:-1], 2),
    ],
)
def test_damaged_ledgers_of_a_topic_are_damage_that_names_the_topic(value: bytes) -> None:
    with pytest.raises(CorruptionError, match=TOPIC):
        stored.managed_ledger(TOPIC, value)


READERS: list[Callable[[bytes], Any]] = [
    lambda value: stored.managed_ledger(TOPIC, value),
    stored.cursor,
    stored.cursor_entry,
    stored.partitions,
    stored.schema_locator,
    stored.schema_entry,
]


@pytest.mark.parametrize("read", READERS)
@given(value=st.binary(max_size=30) | st.binary(max_size=30).map(lambda rest: b"\x47\x78\0\0\0\4\x08\2\x10\5" + rest))
def test_any_bytes_are_a_value_or_damage(read: Callable[[bytes], Any], value: bytes) -> None:
    with contextlib.suppress(CorruptionError, ConfigError):
        read(value)


def test_a_cursor_that_a_broker_closed_has_its_position_itself() -> None:
    info = pulsar_pb2.ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=-1)
    cursor = stored.cursor(info.SerializeToString())
    assert cursor == StoredCursor(-1, Position(5, -1))
    assert cursor.mark_delete == Position(5, -1)


def test_a_cursor_in_use_has_its_position_in_its_ledger_and_the_stored_one_is_old() -> None:
    info = pulsar_pb2.ManagedCursorInfo(cursorsLedgerId=9, markDeleteLedgerId=5, markDeleteEntryId=2)
    cursor = stored.cursor(info.SerializeToString())
    assert cursor.mark_delete is None
    assert (cursor.cursors_ledger_id, cursor.stored_mark_delete) == (9, Position(5, 2))
    assert stored.cursor_entry(pulsar_pb2.PositionInfo(ledgerId=5, entryId=7).SerializeToString()) == Position(5, 7)


def test_a_cursor_without_a_position_and_a_ledger_is_damage() -> None:
    with pytest.raises(CorruptionError, match="neither"):
        stored.cursor(pulsar_pb2.ManagedCursorInfo(cursorsLedgerId=-1).SerializeToString())


def test_a_partitioned_topic_says_how_many_partitions_it_has() -> None:
    assert stored.partitions(b'{"partitions":4,"deleted":false}') == 4
    assert stored.partitions(b'{"partitions":0}') == 0


@pytest.mark.parametrize(
    "value", [b"", b"4", b"{}", b'{"partitions":-1}', b'{"partitions":"4"}', b'{"partitions":true}', b"\xff"]
)
def test_a_number_of_partitions_that_is_none_is_damage(value: bytes) -> None:
    with pytest.raises(CorruptionError, match="partitions"):
        stored.partitions(value)


def index_entry(version: int, ledger_id: int, entry_id: int = 0) -> pulsar_pb2.IndexEntry:
    position = pulsar_pb2.PositionInfo(ledgerId=ledger_id, entryId=entry_id)
    return pulsar_pb2.IndexEntry(version=version, position=position, hash=b"#")


def test_the_versions_of_a_schema_are_found_with_the_newest() -> None:
    newest = index_entry(1, 12, 3)
    locator = pulsar_pb2.SchemaLocator(info=newest, index=[newest, index_entry(0, 10)])
    versions = SchemaVersion(0, 10, 0), SchemaVersion(1, 12, 3)
    assert stored.schema_locator(locator.SerializeToString()) == SchemaLocator(versions[1], versions)


def schema_bytes(kind: int, definition: bytes = b"", *, deleted: bool = False, **properties: str) -> bytes:
    info = pulsar_pb2.SchemaInfo(schema_id="t", user="u", schema=definition, timestamp=1, deleted=deleted)
    info.type = kind
    for name, value in properties.items():
        info.props.add(key=name.replace("_", "."), value=value)
    return pulsar_pb2.SchemaEntry(schema_data=info.SerializeToString()).SerializeToString()


@pytest.mark.parametrize("number", pulsar_pb2.SchemaInfo.SchemaType.values())
def test_each_type_that_is_stored_has_the_name_that_clients_show(number: int) -> None:
    definition = struct.pack(">ii", 0, 0)
    schema = stored.schema_entry(schema_bytes(number, definition))
    assert schema.type.replace("_", "") == pulsar_pb2.SchemaInfo.SchemaType.Name(number).replace("_", "")
    assert len(pulsar_pb2.SchemaInfo.SchemaType.values()) == len(TYPES)


def test_the_definition_of_a_structured_schema_is_text_and_its_properties_are_in_order() -> None:
    schema = stored.schema_entry(schema_bytes(3, b'{"type": "record"}', b="2", a="1"))
    assert schema == TopicSchema("JSON", '{"type": "record"}', (("a", "1"), ("b", "2")))


def test_a_deleted_schema_is_none() -> None:
    assert stored.schema_entry(schema_bytes(1, deleted=True)) == TopicSchema("NONE")
    assert stored.schema_entry(schema_bytes(2, deleted=True)) == TopicSchema("NONE")


def test_a_key_value_has_the_schemas_of_keys_and_values() -> None:
    definition = struct.pack(">i", 2) + b"{}" + struct.pack(">i", 0)
    properties = {"key_schema_type": "JSON", "value_schema_type": "STRING", "kv_encoding_type": "SEPARATED"}
    own = json.dumps({"__charset": "UTF-16", "gone": None})
    schema = stored.schema_entry(schema_bytes(16, definition, value_schema_properties=own, **properties))
    assert schema.key == TopicSchema("JSON", "{}")
    assert schema.value == TopicSchema("STRING", None, (("__charset", "UTF-16"),))
    assert schema.is_separated


@pytest.mark.parametrize("definition", [b"", struct.pack(">i", 0), struct.pack(">ii", 0, 1), struct.pack(">ii", -1, 0)])
def test_a_key_value_whose_definitions_cannot_be_told_apart_is_damage(definition: bytes) -> None:
    with pytest.raises(CorruptionError, match="KEY_VALUE"):
        stored.schema_entry(schema_bytes(16, definition))


def test_properties_of_a_key_that_are_no_json_are_damage() -> None:
    with pytest.raises(CorruptionError, match="keys"):
        stored.schema_entry(schema_bytes(16, struct.pack(">ii", 0, 0), key_schema_properties="["))


def test_a_type_that_is_newer_than_this_program_is_refused_and_is_no_damage() -> None:
    info = pulsar_pb2.SchemaInfo(schema_id="t", user="u", type=2, schema=b"", timestamp=1, deleted=False)
    newer = info.SerializeToString().replace(b"\x18\x02", b"\x18\x16")
    with pytest.raises(ConfigError, match=r"does not know it.*schema=raw"):
        stored.schema_entry(pulsar_pb2.SchemaEntry(schema_data=newer).SerializeToString())


def test_properties_of_a_schema_that_are_not_utf_8_are_read_as_far_as_they_are() -> None:
    info = pulsar_pb2.SchemaInfo(schema_id="t", user="u", type=2, schema=b"", timestamp=1, deleted=False)
    info.props.add(key="name", value="b")
    info.props.add(key="other", value="c")
    damaged = pulsar_pb2.SchemaEntry(schema_data=info.SerializeToString().replace(b"name", b"na\xffe"))
    assert stored.schema_entry(damaged.SerializeToString()).properties == (("na\ufffde", "b"), ("other", "c"))
