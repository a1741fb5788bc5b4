"""Batches as messages and back, and streams that lie about themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError
from bk_spark.gateway.flight.batch_stream import MESSAGE_BYTES, IncomingBatches, batch_data, schema_data, small_batches
from bk_spark.gateway.flight.messages import FlightData, decode_data, encode_data
from bk_spark.rows.codec import MAX_ROWS

BATCH = pa.record_batch({"id": [1, 2, None], "item": ["a", None, "ü"], "list": [[1], [], None]})


class Given:
    """Messages in a list."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages: Iterator[bytes] = iter(messages)

    def next(self) -> FlightData | None:
        message = next(self._messages, None)
        return None if message is None else decode_data(message)


def _of(messages: list[bytes]) -> list[pa.RecordBatch]:
    return list(IncomingBatches(Given(messages)))


def _stream(batch: pa.RecordBatch, **options: object) -> list[bytes]:
    """As a caller sends it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    messages, source = [], pa.BufferReader(sink.getvalue())
    for message in pa.ipc.MessageReader.open_stream(source):
        body = b"" if message.body is None else message.body.to_pybytes()
        messages.append(encode_data(message.metadata.to_pybytes(), body))
    return messages


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_batches_come_back_equal_compressed_or_not(compression) -> None:
    assert _of(_stream(BATCH, compression=compression)) == [BATCH]


def test_what_is_sent_is_read_as_the_same() -> None:
    assert _of([schema_data(BATCH.schema), batch_data(BATCH), batch_data(BATCH.slice(1, 1))]) == [BATCH, BATCH.slice(1, 1)]


def test_dictionaries_are_taken_with_their_batches() -> None:
    batch = pa.record_batch({"kind": pa.array(["x", "y", "x"]).dictionary_encode()})
    assert _of(_stream(batch)) == [batch]


def test_messages_without_a_batch_are_noted_and_passed_over() -> None:
    noted: list[bytes] = []
    messages = [
        schema_data(BATCH.schema),
        encode_data(b"", b"", b"one"),
        batch_data(BATCH, b"two"),
        encode_data(b"", b"", b"end"),
    ]
    found = IncomingBatches(Given(messages), lambda message: noted.append(message.app_metadata))
    assert list(found) == [BATCH]
    assert noted == [b"", b"one", b"two", b"end"]


def test_large_batches_are_cut_so_that_every_client_takes_their_messages() -> None:
    large = pa.record_batch({"text": ["x" * 1000] * 10_000})
    pieces = list(small_batches(large))
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([large]))
    assert max(len(batch_data(piece)) for piece in pieces) < MESSAGE_BYTES * 1.1


def test_a_batch_that_claims_more_rows_than_it_may_have_is_refused_before_it_is_decoded() -> None:
    nulls = pa.record_batch({"nothing": pa.nulls(MAX_ROWS + 1)})
    with pytest.raises(ConfigError, match="the number of rows of a batch that was sent is 4194305"):
        _of([schema_data(nulls.schema), batch_data(nulls)])


def test_a_batch_that_claims_more_bytes_than_it_may_have_is_refused_before_it_is_decoded() -> None:
    wide = pa.record_batch([pa.repeat(0, MAX_ROWS)] * 9, names=[f"c{n}" for n in range(9)])
    with pytest.raises(ConfigError, match="the size before compression of a batch"):
        _of(_stream(wide, compression="zstd"))


@pytest.mark.parametrize("place", range(0, 200, 7))
def test_a_spoilt_message_is_refused_or_read_and_never_crashes(place) -> None:
    message = bytearray(batch_data(BATCH))
    message[place % len(message)] ^= 0xFF
    with suppress(ConfigError):
        for batch in _of([schema_data(BATCH.schema), bytes(message)]):
            assert str(batch.to_pydict())


def test_offsets_that_point_behind_their_buffers_are_refused() -> None:
    good = batch_data(pa.record_batch({"text": ["abcdefgh"]}))
    bad = good.replace(b"\x00\x00\x00\x00\x08\x00\x00\x00", b"\x00\x00\x00\x00\xff\xff\xff\x7f")
    assert bad != good
    with pytest.raises(ConfigError, match="it is no stream of Arrow record batches"):
        _of([schema_data(pa.schema([("text", pa.string())])), bad])
