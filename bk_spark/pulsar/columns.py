"""The columns of messages: those that readers get, and those that only the steps between entries and readers need."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

MESSAGE_ID: Final = pa.struct(
    [pa.field("ledger_id", pa.int64()), pa.field("entry_id", pa.int64()), pa.field("batch_index", pa.int32())]
)
"""Where a message is. ``batch_index`` is -1 for a message that is not in a batch. A chunked one is where its last chunk is."""

MESSAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("value", pa.binary()),
        pa.field("_topic", pa.string()),
        pa.field("_message_id", MESSAGE_ID),
        pa.field("_publish_time", TIMESTAMP),
        pa.field("_event_time", TIMESTAMP),
        pa.field("_producer", pa.string()),
        pa.field("_sequence_id", pa.int64()),
        pa.field("_properties", pa.map_(pa.string(), pa.string())),
        pa.field("_ordering_key", pa.binary()),
    ]
)
"""What readers get. ``key`` is the text that Pulsar's own clients call the key: of a key of bytes, its Base64. ``value`` is
null for a message without a value (a tombstone), ``_event_time`` where the producer gave none. ``_topic`` is the whole name, of
a partitioned topic with its partition."""

MESSAGE_COLUMNS: Final = tuple(name for name in MESSAGE_SCHEMA.names if name not in ("_topic", "_message_id"))

DECODED_SCHEMA: Final = pa.schema(
    [
        pa.field("entry_id", pa.int64(), nullable=False),
        pa.field("batch_index", pa.int32(), nullable=False),
        *(MESSAGE_SCHEMA.field(name) for name in MESSAGE_COLUMNS),
        pa.field("schema_version", pa.binary()),
        pa.field("txn_most", pa.uint64()),
        pa.field("txn_least", pa.uint64()),
        pa.field("marker_type", pa.int32()),
        pa.field("encryption_key", pa.string()),
        pa.field("uuid", pa.string()),
        pa.field("chunk_id", pa.int32()),
        pa.field("chunks", pa.int32()),
        pa.field("total_size", pa.int32()),
        pa.field("compression", pa.int32(), nullable=False),
        pa.field("uncompressed_size", pa.int64(), nullable=False),
    ]
)
"""What the decoder makes of the entries of one ledger, in order. A row is a message; or an entry that is none yet:

- a chunk: ``chunk_id`` is not null. ``value`` has the chunk's bytes as they are stored; ``compression`` and
  ``uncompressed_size`` tell what the chunks together are.
- a marker of the broker: ``marker_type`` is not null, ``value`` is null.
- an encrypted entry, also one of a whole batch: ``encryption_key`` is the name of its first key, ``value`` is null.

``txn_most`` and ``txn_least`` are not null in messages of a transaction and in the markers that end one."""
