"""Builds entries as Pulsar's brokers store them, with Google's protobuf, for tests."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from bk_spark.entries.crc import crc32c
from bk_spark.proto.pulsar_pb2 import BrokerEntryMetadata, KeyValue, MessageMetadata, SingleMessageMetadata

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
_CODECS = {LZ4: "lz4_raw", ZSTD: "zstd", SNAPPY: "snappy"}


@dataclass(frozen=True)
class Message:
    """A message of a batch. ``fields`` are those of SingleMessageMetadata."""

    value: bytes = b""
    properties: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)


def pairs(properties: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in properties.items()]


def compressed(data: bytes, compression: int) -> bytes:
    if compression == ZLIB:
        return zlib.compress(data)
    if compression == NONE:
        return data
    return pa.compress(data, codec=_CODECS[compression], asbytes=True)


def metadata(properties: dict[str, str] | None = None, **fields: Any) -> MessageMetadata:
    """MessageMetadata with what Pulsar requires, and ``fields``."""
    defaults = {"producer_name": "producer", "sequence_id": 7, "publish_time": 1_700_000_000_000}
    return MessageMetadata(**{**defaults, "properties": pairs(properties or {}), **fields})


def framed(head: MessageMetadata, payload: bytes, *, broker: BrokerEntryMetadata | None = None, checksum: bool = True) -> bytes:
    """An entry: what stands before the metadata, the metadata, the payload as it is."""
    encoded = head.SerializeToString()
    body = len(encoded).to_bytes(4, "big") + encoded + payload
    if checksum:
        body = b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body
    if broker is not None:
        found = broker.SerializeToString()
        body = b"\x0e\x02" + len(found).to_bytes(4, "big") + found + body
    return body


def single(
    value: bytes, *, compression: int = NONE, properties: dict[str, str] | None = None, checksum: bool = True, **fields: Any
) -> bytes:
    """An entry of one message."""
    fields = {"compression": compression, "uncompressed_size": len(value), **fields}
    return framed(metadata(properties, **fields), compressed(value, compression), checksum=checksum)


def batch_payload(messages: Sequence[Message]) -> bytes:
    """The payload of a batch, before it is compressed."""
    parts = []
    for one in messages:
        head = SingleMessageMetadata(properties=pairs(one.properties), payload_size=len(one.value), **one.fields)
        encoded = head.SerializeToString()
        parts += [len(encoded).to_bytes(4, "big"), encoded, one.value]
    return b"".join(parts)


def batch(
    messages: Sequence[Message], *, compression: int = NONE, broker: BrokerEntryMetadata | None = None, **fields: Any
) -> bytes:
    """An entry of a batch of messages."""
    payload = batch_payload(messages)
    fields = {"compression": compression, "uncompressed_size": len(payload), "num_messages_in_batch": len(messages), **fields}
    return framed(metadata(**fields), compressed(payload, compression), broker=broker)


def chunks(value: bytes, size: int, uuid: str, *, compression: int = NONE, **fields: Any) -> list[bytes]:
    """The entries of a chunked message, ``size`` bytes each of the compressed value."""
    data = compressed(value, compression)
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    shared = {"compression": compression, "uncompressed_size": len(value), "uuid": uuid, **fields}
    return [
        framed(metadata(**shared, num_chunks_from_msg=len(parts), total_chunk_msg_size=len(data), chunk_id=index), part)
        for index, part in enumerate(parts)
    ]


def marker(kind: int, most: int = 0, least: int = 0) -> bytes:
    """An entry of the broker's own, such as the end of a transaction."""
    return framed(metadata(marker_type=kind, txnid_most_bits=most, txnid_least_bits=least), b"")
