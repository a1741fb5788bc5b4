"""What Pulsar stores: entries of topics, values of its metadata store, schemas and typed values, and positions in topics."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import fastavro
import numpy as np
import pyarrow as pa

from bk_spark.errors import BookKeeperError
from bk_spark.proto import pulsar_pb2
from bk_spark.pulsar import single_messages, stored
from bk_spark.pulsar.chunks import ChunkAssembler
from bk_spark.pulsar.compression import DamagedPayloadError, decompress
from bk_spark.pulsar.messages import decode
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.offloaded import (
    HEAD_BYTES,
    Block,
    DamagedCopyError,
    check_head,
    entry_problem,
    parse_entries,
    parse_index,
)
from bk_spark.pulsar.positions import Offsets, Position, TopicOffset
from bk_spark.pulsar.protobuf_columns import PADDING, parse
from bk_spark.pulsar.schemas import TopicSchema, topic_schema
from bk_spark.pulsar.selection import encrypted, to_messages, without_markers, without_tombstones
from bk_spark.pulsar.single_messages import Batches
from bk_spark.pulsar.transactions import Fates, OpenTransactions
from bk_spark.pulsar.values.typed_values import ValueReader
from tests.soak.fuzz.engine import Target
from tests.unit.pulsar.copies import written_copy
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

_MESSAGES = [
    Message(b"value" * 9, {"a": "1", "b": ""}, {"partition_key": "k", "event_time": 5, "sequence_id": 2**63}),
    Message(b"", fields={"null_value": True, "ordering_key": b"o"}),
    Message(b"x", fields={"compacted_out": True}),
]
_COPY = written_copy([single(b"v" * 40), b"", batch(_MESSAGES)])
_DEFINITION = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "shop", "type": ["null", "string"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "more", "type": {"type": "map", "values": "double"}},
        ],
    }
)


def targets() -> list[Target]:
    return [
        Target("topics: an entry", _entries, _decode_one),
        Target("topics: entries and what follows", _topics, _read_all),
        Target("topics: a batch", lambda: [batch_payload(_MESSAGES)], _walk),
        Target("topics: protobuf in step", lambda: [metadata({"a": "b"}, uuid="u").SerializeToString()], _parse),
        *(_compression(name, number) for name, number in (("LZ4", LZ4), ("ZLIB", ZLIB), ("ZSTD", ZSTD), ("SNAPPY", SNAPPY))),
        Target("topics: list of ledgers", _managed_ledgers, lambda data: stored.managed_ledger("persistent://t/n/x", data)),
        Target("topics: index of a copy", lambda: [_COPY.index], parse_index, refusals=(DamagedCopyError,)),
        Target("topics: block of a copy", lambda: [_COPY.data], _block_of_copy, refusals=(DamagedCopyError,)),
        Target("topics: subscription", _cursors, stored.cursor),
        Target("topics: position of a subscription", _cursor_entries, stored.cursor_entry),
        Target("topics: number of partitions", lambda: [b'{"partitions": 3}'], stored.partitions),
        Target("topics: index of schemas", _locators, stored.schema_locator),
        Target("topics: schema", _schemas, _use_schema),
        Target("topics: definition of a schema", lambda: [_DEFINITION.encode()], _use_definition),
        *(_values(kind, seeds) for kind, seeds in _VALUES.items()),
        Target("topics: name", lambda: [b"persistent://t/n/x-partition-3", b"x", b"t/n/x"], _name),
        Target("topics: start", lambda: [b"17:3:5", b'{"persistent://t/n/x": "1:1"}', b"latest"], _start),
        Target("topics: offset of a stream", _offsets, lambda data: TopicOffset.from_json(json.loads(data)), refusals=_OF_JSON),
    ]


# --- entries


@cache
def _entries() -> Sequence[bytes]:
    found = [single(b"v" * 40, compression=one, properties={"a": "b"}, partition_key="k") for one in range(5)]
    found += [batch(_MESSAGES, compression=one) for one in (NONE, LZ4, ZLIB, ZSTD, SNAPPY)]
    broker = pulsar_pb2.BrokerEntryMetadata(broker_timestamp=1, index=2)
    locked = pulsar_pb2.EncryptionKeys(key="k", value=b"v")
    found += [batch(_MESSAGES, broker=broker), framed(metadata(encryption_keys=[locked]), b"?"), marker(21, 1, 2)]
    return [*found, *chunks(b"large" * 20, 30, "u", compression=ZLIB), single(b"t", txnid_most_bits=1, txnid_least_bits=2)]


def _decode_one(data: bytes) -> object:
    """Between two whole ones, which must be read whatever lies between them."""
    whole = single(b"whole")
    found = decode(np.arange(3, dtype=np.int64), pa.array([whole, data, whole], pa.binary()))
    found.rows.validate(full=True)
    kept = [(row, value) for row, value in zip(*_columns(found.rows, "entry_id", "value"), strict=True) if row != 1]
    assert kept == [(0, b"whole"), (2, b"whole")], kept
    return found


def _columns(rows: pa.RecordBatch, *names: str) -> list[list[object]]:
    return [rows.column(name).to_pylist() for name in names]


@cache
def _topics() -> Sequence[bytes]:
    """Some entries, each with its length before it."""
    return [b"".join(len(one).to_bytes(2, "big") + one for one in _entries())]


def _apart(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "big")
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def _read_all(data: bytes) -> object:
    """All steps from entries to rows that a reader gets."""
    entries = list(_apart(data))[:200]
    rows = decode(np.arange(len(entries), dtype=np.int64), pa.array(entries, pa.binary())).rows
    encrypted(rows)
    rows = rows.filter(rows.column("encryption_key").is_null())
    chunks_of, fates, opened = ChunkAssembler(), Fates(), OpenTransactions()
    missing = chunks_of.needs_look_back(rows)
    chunks_of.prime([rows.slice(0, rows.num_rows // 2)], missing)
    rows = chunks_of.feed(1, rows).rows
    fates.learn(rows)
    fates.unknown(rows)
    opened.feed(1, rows)
    opened.readable_until(Position(1, len(entries)))
    rows = without_tombstones(without_markers(rows.filter(fates.committed_mask(rows))))
    messages = to_messages("persistent://t/n/x", 1, rows)
    messages.validate(full=True)
    return messages


def _walk(data: bytes) -> object:
    """Found in jumps and walked, a batch has the same messages."""
    one = np.array([len(data)], np.int64)
    found = Batches(data + bytes(PADDING), np.zeros(1, np.int64), one, np.zeros(1, np.int64), np.array([3], np.int64)).read()
    try:
        walked = single_messages._walk(data, 3)
    except single_messages.DamagedBatchError:
        assert found.problems, "the walk says that it is damaged"
        return found
    assert walked[2].tolist() == found.value_ends.tolist()
    return found


def _parse(data: bytes) -> object:
    padded = np.frombuffer(data + bytes(PADDING), np.uint8)
    return parse(padded, np.array([0, 0]), np.array([len(data), 0]), tuple(range(1, 31)), (1, 6), (4, 13))


def _compression(name: str, number: int) -> Target:
    """The first four bytes are the size that the entry says."""
    seeds = [len(one).to_bytes(4, "big") + compressed(one, number) for one in (b"", b"a" * 1000, bytes(range(256)) * 4)]

    def run(data: bytes) -> object:
        size = int.from_bytes(data[:4], "big")
        found = decompress(data[4:], number, size)
        assert len(found) == size
        return found

    return Target(f"topics: {name}", lambda: seeds, run, refusals=(DamagedPayloadError,))


# --- copies in object stores


def _block_of_copy(data: bytes) -> object:
    """The entries of a block as long as it is, read all at once and in pieces."""
    index = replace(parse_index(_COPY.index), data_bytes=len(data))
    block = Block(0, index.last_entry_id, 0, len(data))
    check_head(data[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0"), index, block)
    at, entry_id, found, size = index.head_bytes, 0, [], 7
    while entry_id <= block.last_entry_id and at + size <= len(data):
        part = parse_entries(data[at : at + size], at, entry_id, block)
        found += [entry_problem(data[at + begin : at + end]) for begin, end in part.places]
        at, entry_id, size = at + part.used, part.behind, max(7, part.wanted)
    whole = parse_entries(data[index.head_bytes :], index.head_bytes, 0, block)
    assert len(found) <= len(whole.places)
    return whole


# --- the metadata store


@cache
def _managed_ledgers() -> Sequence[bytes]:
    ledger = pulsar_pb2.ManagedLedgerInfo.LedgerInfo(ledgerId=5, entries=7, size=100, timestamp=9)
    ledger.offloadContext.complete = True
    ledger.offloadContext.driverMetadata.name = "aws-s3"
    plain = pulsar_pb2.ManagedLedgerInfo(ledgerInfo=[ledger, ledger]).SerializeToString()
    return [plain, *_packed(plain)]


def _packed(plain: bytes) -> list[bytes]:
    """The compressed forms of a value."""
    found = []
    for number in (LZ4, ZLIB, ZSTD, SNAPPY):
        head = pulsar_pb2.CompressedInfo(compressionType=number, uncompressedSize=len(plain)).SerializeToString()
        found.append(b"\x47\x78" + len(head).to_bytes(4, "big") + head + compressed(plain, number))
    return found


@cache
def _cursors() -> Sequence[bytes]:
    plain = pulsar_pb2.ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=7).SerializeToString()
    return [plain, *_packed(plain)]


def _cursor_entries() -> Sequence[bytes]:
    return [pulsar_pb2.PositionInfo(ledgerId=5, entryId=7).SerializeToString()]


@cache
def _locators() -> Sequence[bytes]:
    position = pulsar_pb2.PositionInfo(ledgerId=5, entryId=0)
    entry = pulsar_pb2.IndexEntry(version=1, position=position, hash=b"h")
    return [pulsar_pb2.SchemaLocator(info=entry, index=[entry, entry]).SerializeToString()]


@cache
def _schemas() -> Sequence[bytes]:
    def entry(kind: int, definition: bytes, **properties: str) -> bytes:
        info = pulsar_pb2.SchemaInfo(schema_id="s", user="", type=kind, schema=definition, timestamp=0, deleted=False)
        info.props.extend(pulsar_pb2.KeyValue(key=key, value=value) for key, value in properties.items())
        return pulsar_pb2.SchemaEntry(schema_data=info.SerializeToString()).SerializeToString()

    part = b"\0\0\0\0"
    both = {"key.schema.type": "INT32", "value.schema.type": "STRING"}
    return [entry(3, _DEFINITION.encode()), entry(5, _DEFINITION.encode()), entry(2, b""), entry(16, part + part, **both)]


def _use_schema(data: bytes) -> object:
    return ValueReader(stored.schema_entry(data)).arrow_type


def _use_definition(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    return [ValueReader(TopicSchema(kind, text)).arrow_type for kind in ("JSON", "AVRO")]


# --- values


def _avro() -> bytes:
    value = {"id": 1, "shop": "a", "tags": ["x", "y"], "when": 5, "price": b"\x05", "more": {"a": 1.5}}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, json.loads(_DEFINITION), value)
    return written.getvalue()


_PAIR = topic_schema(
    "KEY_VALUE", b"\0\0\0\0\0\0\0\0", {"key.schema.type": "INT32", "value.schema.type": "STRING", "kv.encoding.type": "INLINE"}
)
_VALUES: dict[TopicSchema, Callable[[], Sequence[bytes]]] = {
    TopicSchema("AVRO", _DEFINITION): lambda: [_avro()],
    TopicSchema("JSON", _DEFINITION): lambda: [
        b'{"id": 1, "shop": "a", "tags": ["x"], "when": 5, "price": 1.5, "more": {"a": 1.5}}',
        b'{"id": 1}',
    ],
    TopicSchema("STRING"): lambda: ["grün".encode()],
    TopicSchema("INT64"): lambda: [bytes(8)],
    TopicSchema("TIMESTAMP"): lambda: [bytes(8)],
    TopicSchema("LOCAL_DATE_TIME"): lambda: [bytes(16)],
    _PAIR: lambda: [b"\0\0\0\4\0\0\0\1\0\0\0\1a"],
}


def _values(schema: TopicSchema, seeds: Callable[[], Sequence[bytes]]) -> Target:
    reader = ValueReader(schema)

    def run(data: bytes) -> object:
        whole = seeds()[0]
        values = pa.array([whole, data, None, whole], pa.binary())
        found = reader.convert(values, pa.nulls(4, pa.binary()), lambda version: schema)
        found.values.validate(full=True)
        assert (found.values.type, len(found.values)) == (reader.arrow_type, 4)
        assert {one.row for one in found.problems} <= {1}
        return found

    return Target(f"topics: values of {schema.type}", seeds, run)


# --- what users and Spark give


def _name(data: bytes) -> object:
    name = TopicName.parse(data.decode("utf-8", "surrogateescape"))
    return name.base, name.partition, name.is_system, str(name)


def _start(data: bytes) -> object:
    return Offsets.parse("start", data.decode("utf-8", "surrogateescape"))


_OF_JSON = (BookKeeperError, ValueError, RecursionError)
"""Spark parses the checkpoint's JSON before it hands it over."""


def _offsets() -> Sequence[bytes]:
    offset = TopicOffset({"persistent://t/n/x": Position(5, 7), "persistent://t/n/y": Position(-1, -1)})
    return [json.dumps(offset.to_json()).encode()]
