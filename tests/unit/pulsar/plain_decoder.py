"""The model that the decoder is held against: one entry at a time, with Google's protobuf, as plainly as it goes."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from bk_spark.proto.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

Row = dict[str, Any]


def rows_of(entry_id: int, entry: bytes) -> list[Row] | None:
    """The rows of an entry; None for a damaged one."""
    try:
        return _rows(entry_id, entry)
    except (DecodeError, ValueError, OSError, zlib.error, KeyError):
        return None


def _rows(entry_id: int, entry: bytes) -> list[Row]:
    if entry[:2] == b"\x0e\x02":
        entry = entry[6 + _int32(entry, 2) :]
    if entry[:2] == b"\x0e\x01":
        entry = entry[6:]
    size = _int32(entry, 0)
    if len(entry) < 4 + size:
        raise ValueError("cut")
    head = MessageMetadata.FromString(entry[4 : 4 + size])
    payload = entry[4 + size :]
    is_chunk, is_marker = head.num_chunks_from_msg > 1, head.HasField("marker_type")
    row = {
        "entry_id": entry_id,
        "batch_index": -1,
        "key": _given(head, "partition_key"),
        "value": None,
        "_publish_time": head.publish_time * 1000,
        "_event_time": head.event_time * 1000 or None,
        "_producer": head.producer_name,
        "_sequence_id": _int64(head.sequence_id),
        "_properties": {one.key: one.value for one in head.properties},
        "_ordering_key": _given(head, "ordering_key"),
        "schema_version": _given(head, "schema_version"),
        "txn_most": _given(head, "txnid_most_bits"),
        "txn_least": _given(head, "txnid_least_bits"),
        "marker_type": _given(head, "marker_type"),
        "encryption_key": head.encryption_keys[0].key if head.encryption_keys else None,
        "uuid": head.uuid if is_chunk else None,
        "chunk_id": head.chunk_id if is_chunk else None,
        "chunks": head.num_chunks_from_msg if is_chunk else None,
        "total_size": head.total_chunk_msg_size if is_chunk else None,
        "compression": head.compression,
        "uncompressed_size": head.uncompressed_size,
    }
    _check_times(row)
    if is_chunk and not (0 <= head.chunk_id < head.num_chunks_from_msg and head.HasField("uuid")):
        raise ValueError("no chunk")
    if is_marker or head.encryption_keys:
        return [row]
    if is_chunk:
        return [{**row, "value": payload}]
    if not head.HasField("num_messages_in_batch"):
        return [{**row, "value": None if head.null_value else _inflated(head, payload)}]
    return [one for one in _messages(head, row, _inflated(head, payload)) if one is not None]


def _messages(head: MessageMetadata, row: Row, payload: bytes) -> list[Row | None]:
    rows: list[Row | None] = []
    at = 0
    for index in range(head.num_messages_in_batch):
        size = _int32(payload, at)
        if len(payload) < at + 4 + size:
            raise ValueError("cut")
        one = SingleMessageMetadata.FromString(payload[at + 4 : at + 4 + size])
        at += 4 + size
        if one.payload_size < 0 or len(payload) < at + one.payload_size:
            raise ValueError("cut")
        value = payload[at : at + one.payload_size]
        at += one.payload_size
        is_null = one.null_value if one.HasField("null_value") else head.null_value
        event = one.event_time if one.HasField("event_time") else head.event_time
        found = {
            **row,
            "batch_index": index,
            "key": _given(one, "partition_key"),
            "value": None if is_null else value,
            "_event_time": event * 1000 or None,
            "_sequence_id": _int64(one.sequence_id) if one.HasField("sequence_id") else row["_sequence_id"],
            "_properties": {pair.key: pair.value for pair in one.properties},
            "_ordering_key": _given(one, "ordering_key"),
        }
        _check_times(found)
        rows.append(None if one.compacted_out else found)
    return rows


def _inflated(head: MessageMetadata, payload: bytes) -> bytes:
    codec = {1: "lz4_raw", 3: "zstd", 4: "snappy"}.get(head.compression)
    if head.compression == 2:
        payload = zlib.decompress(payload)
    elif codec:
        payload = pa.decompress(payload, head.uncompressed_size, codec=codec, asbytes=True)
    elif head.compression:
        raise ValueError("unknown compression")
    return payload


def _given(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _int32(data: bytes, at: int) -> int:
    if len(data) < at + 4:
        raise ValueError("cut")
    found = int.from_bytes(data[at : at + 4], "big", signed=True)
    if found < 0:
        raise ValueError("negative")
    return found


def _int64(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _check_times(row: Row) -> None:
    if max(row["_publish_time"], row["_event_time"] or 0) >= 2**63:
        raise ValueError("no time")
