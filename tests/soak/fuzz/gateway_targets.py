"""What callers send to a gateway: messages of Flight, requests as JSON, and streams of batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from bk_spark.errors import BookKeeperError
from bk_spark.gateway.flight import messages as wire
from bk_spark.gateway.flight import requests as asked
from bk_spark.gateway.flight.batch_stream import IncomingBatches, batch_data, schema_data
from bk_spark.rows.arrow_types import spark_schema
from tests.soak.fuzz.engine import Target
from tests.soak.fuzz.mutations import spoil_bytes, spoil_json

_READ = {"log": "orders", "columns": ["id"], "where": "id > 5", "start": [1, 0], "end": [2, 7], "version": 3, "lane": [0, 1]}
_LATEST = {"log": "orders", "timestamp": "2026-01-31T12:30:00+00:00", "view": "latest", "deleted_by": "gone", "endpoints": 4}
_TAIL = {"log": "orders", "tail": True, "start": {"entry": 1, "index": 0, "ledger": 7, "log": "u", "version": 1}}
_PUT = {"log": "orders", "application": ["loader", 7], "create": True, "partition_key": ["id"], "lanes": 8, "rows": 10}
_REQUESTS = [json.dumps(one).encode() for one in (_READ, _LATEST, _TAIL, _PUT, {"prefix": "a", "after": "b", "limit": 3})]

_BATCH = pa.record_batch(
    {
        "id": [1, 2, None],
        "text": ["a", None, "ü" * 50],
        "list": [[{"x": 1}], [], None],
    }
)


def targets() -> list[Target]:
    path = wire.encode_descriptor(asked.GivenDescriptor(("orders",)))
    messages = [wire.encode_data(b"head", b"body", b"meta"), path]
    return [
        Target("Flight message", lambda: messages, _message),
        Target("gateway request", lambda: _REQUESTS, _request, spoil_json),
        Target("gateway request, bytes", lambda: _REQUESTS, _request, spoil_bytes),
        Target("schema of a caller", _schemas, _stream_of),
        Target("batch of a caller", _batches, _stream),
    ]


def _message(data: bytes) -> None:
    _by_one_of([partial(decode, data) for decode in (wire.decode_data, wire.decode_ticket, wire.decode_action)])
    wire.decode_descriptor(data)


def _request(data: bytes) -> None:
    """By each parser that could be given it; one must take it, or all say why not."""
    descriptor = asked.GivenDescriptor(command=data)
    parsers: list[Callable[[], object]] = [
        lambda: asked.parse_put(descriptor),
        lambda: asked.parse_exchange(descriptor),
        lambda: asked.parse_criteria(data),
        lambda: asked.parse_action("truncate", data),
        lambda: _again(asked.parse_ticket(data)),
    ]
    _by_one_of(parsers)


def _by_one_of(parsers: Sequence[Callable[[], object]]) -> None:
    problems = []
    for parse in parsers:
        try:
            parse()
            return
        except BookKeeperError as problem:
            problems.append(problem)
    raise problems[-1]


def _again(found: asked.AskedRead | asked.AskedTail) -> None:
    if isinstance(found, asked.AskedTail) or found.version is not None:
        asked.parse_ticket(found.ticket)


class _Given:
    def __init__(self, messages: list[bytes]) -> None:
        self._messages: Iterator[bytes] = iter(messages)

    def next(self) -> wire.FlightData | None:
        message = next(self._messages, None)
        return None if message is None else wire.decode_data(message)


def _batches() -> list[bytes]:
    """The second message and those behind it; the first is the schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _BATCH.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(_BATCH)
    compressed = []
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(sink.getvalue())):
        if message.type != "schema":
            compressed.append(wire.encode_data(message.metadata.to_pybytes(), message.body.to_pybytes()))
    return [*compressed, batch_data(_BATCH)]


def _schemas() -> list[bytes]:
    """The first message of a stream, with time zones, comments, dictionaries, and an extension type."""
    comment = {b"SPARK::metadata::json": b'{"comment": "seen at"}'}
    wide = pa.schema(
        [
            pa.field("at", pa.timestamp("us", "Europe/Zurich"), metadata=comment),
            pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
            pa.field("runs", pa.run_end_encoded(pa.int32(), pa.float64())),
            pa.field("map", pa.map_(pa.string(), pa.decimal128(10, 2))),
            pa.field("json", pa.json_(pa.string())),
        ]
    )
    return [schema_data(_BATCH.schema), schema_data(wide)]


def _stream_of(data: bytes) -> None:
    """What an append does with a schema, and with a batch behind it."""
    batches = IncomingBatches(_Given([data, batch_data(_BATCH)]))
    spark_schema(batches.schema)
    for batch in batches:
        assert batch.serialize().size


def _stream(data: bytes) -> None:
    for batch in IncomingBatches(_Given([schema_data(_BATCH.schema), data])):
        assert batch.serialize().size
