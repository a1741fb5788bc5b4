"""Batches as messages and back, and streams that lie about themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError
from bk_spark.gateway.flight import batch_stream
from bk_spark.gateway.flight.batch_stream import MESSAGE_BYTES, IncomingBatches, batch_data, schema_data, small_batches
from bk_spark.gateway.flight.messages import FlightData, decode_data, encode_data
from bk_spark.rows.arrow_types import spark_schema
from bk_spark.rows.codec import MAX_ROWS
from tests.unit.entries.shared_fields import schema_of_shared_fields

_METADATA = b"SPARK::metadata::json"
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
    return _messages(sink)


def _messages(sink: pa.BufferOutputStream) -> list[bytes]:
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


def test_a_schema_whose_fields_share_their_children_is_refused_before_it_is_built(monkeypatch) -> None:
    monkeypatch.setattr(pa.ipc, "open_stream", lambda source: source.read(8) and pytest.fail("Arrow was given the schema"))
    with pytest.raises(ConfigError, match="a batch that was sent is malformed: its schema has more than 10000 fields"):
        _of([encode_data(schema_of_shared_fields(22), b"")])


def test_dictionaries_that_are_added_to_without_end_are_refused_once_they_are_too_large_together(monkeypatch) -> None:
    monkeypatch.setattr(batch_stream, "MAX_DECODED_BYTES", 1 << 20)
    schema, first, delta, *batches = _dictionaries(emit_dictionary_deltas=True)
    assert len(_of([schema, first, delta, delta, *batches])) == 2
    with pytest.raises(ConfigError, match=r"of the dictionaries that were sent is 1\d{6}: they may have 1048576 together"):
        _of([schema, first, *[delta] * 10, *batches])


def test_dictionaries_that_replace_each_other_are_taken_for_as_long_as_the_stream_lasts(monkeypatch) -> None:
    monkeypatch.setattr(batch_stream, "MAX_DECODED_BYTES", 1 << 20)
    schema, first, other, *batches = _dictionaries(emit_dictionary_deltas=False)
    assert len(_of([schema, first, *[other] * 20, *batches])) == 2


def _dictionaries(*, emit_dictionary_deltas: bool) -> list[bytes]:
    """A schema, a dictionary, one that follows it, of 128 KiB, and then two batches."""
    few = pa.array(["a"])
    more = pa.array(["a", *(f"{n:0>1024}" for n in range(128))])
    parts = [pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([0]), one)], names=["kind"]) for one in (few, more)]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=emit_dictionary_deltas)
    with pa.ipc.new_stream(sink, parts[0].schema, options=options) as writer:
        for part in parts:
            writer.write_batch(part)
    messages = _messages(sink)
    return [*messages[:2], messages[3], messages[2], messages[4]]


def test_of_the_metadata_of_a_caller_s_columns_only_comments_stay_at_any_depth() -> None:
    own = {
        _METADATA: b'{"comment": "in cents", "CURRENT_DEFAULT": "now()", "__CHAR_VARCHAR_TYPE_STRING": "char(3)"}',
        b"x": b"y",
    }
    inner = pa.field("inner", pa.string(), metadata=own)
    kinds = [
        pa.string(),
        pa.struct([inner]),
        pa.list_(inner),
        pa.list_(inner, 2),
        pa.large_list(inner),
        pa.list_view(inner),
        pa.large_list_view(inner),
        pa.map_(pa.field("key", pa.string(), nullable=False, metadata=own), inner),
        pa.dictionary(pa.int8(), pa.list_(inner)),
        pa.run_end_encoded(pa.int32(), pa.struct([inner])),
    ]
    schema = pa.schema([pa.field(f"c{place}", kind, metadata=own) for place, kind in enumerate(kinds)], metadata={"a": "b"})
    found = IncomingBatches(Given([schema_data(schema)]))
    assert found.schema == schema
    assert not re.search("CURRENT_DEFAULT|CHAR_VARCHAR|-- schema|x: 'y'", found.schema.to_string())
    assert spark_schema(found.schema)["fields"][0]["metadata"] == {"comment": "in cents"}
    assert spark_schema(found.schema)["fields"][1]["type"]["fields"][0]["metadata"] == {"comment": "in cents"}


def test_batches_come_with_the_schema_of_their_stream() -> None:
    fields = [pa.field("a", pa.struct([pa.field("b", pa.int64(), metadata={"x": "y"})]), metadata={_METADATA: b'{"x": 1}'})]
    batch = pa.record_batch([pa.array([{"b": 1}, None], fields[0].type)], schema=pa.schema(fields))
    (found,) = _of(_stream(batch))
    assert found == batch
    assert not found.schema.field("a").metadata


def test_metadata_inside_of_an_extension_type_is_refused() -> None:
    storage = pa.struct([pa.field("b", pa.int64(), metadata={_METADATA: b'{"CURRENT_DEFAULT": "1"}'})])
    schema = pa.schema([pa.field("a", pa.opaque(storage, "own", "me"))])
    with pytest.raises(ConfigError, match="fields inside of an extension type may have no metadata here"):
        _ = IncomingBatches(Given([schema_data(schema)])).schema


@pytest.mark.parametrize("text", [b"[" * 20_000, b'{"a": ' * 900 + b"1" + b"}" * 900, b"1", b"\xff"])
def test_a_comment_that_is_no_json_object_or_nested_too_deeply_is_refused_in_one_sentence(text) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), metadata={_METADATA: text})])
    with pytest.raises(ConfigError, match="it must be a JSON object of at most 64 levels"):
        _ = IncomingBatches(Given([schema_data(schema)])).schema
    with pytest.raises(ConfigError, match="the comment of column 'a'"):
        spark_schema(schema)


@pytest.mark.parametrize("name", [b"column", b"inside", b"where!"])
def test_a_name_that_is_no_utf_8_is_refused_in_one_sentence_by_gateways_and_writers(name) -> None:
    struct = pa.struct([pa.field("inside", pa.timestamp("us", "where!"))])
    message = pa.schema([pa.field("column", pa.list_(struct))]).serialize().to_pybytes()
    spoilt = pa.ipc.read_schema(pa.py_buffer(message.replace(name, b"\xff" + name[1:])))
    with pytest.raises(ConfigError, match=r"it is no stream of Arrow record batches .*'utf-8' codec can't decode byte 0xff"):
        _ = IncomingBatches(Given([schema_data(spoilt)])).schema
    with pytest.raises(ConfigError, match="names of columns, fields and time zones are UTF-8: rename it"):
        spark_schema(spoilt)


def test_a_column_of_nulls_that_may_have_none_is_refused_in_one_sentence() -> None:
    message = pa.schema([pa.field("a", pa.null())]).serialize().to_pybytes()
    places = [place for place, byte in enumerate(message) if byte == 1]
    spoilt = [message[:place] + b"\0" + message[place + 1 :] for place in places]
    [schema] = [one for one in map(_read_schema, spoilt) if one is not None and not one.field(0).nullable]
    with pytest.raises(ConfigError, match=r"it is no stream of Arrow record batches .*may not be non-nullable"):
        _ = IncomingBatches(Given([schema_data(schema)])).schema


def _read_schema(message: bytes) -> pa.Schema | None:
    with suppress(pa.ArrowException, OSError):
        found = pa.ipc.read_schema(pa.py_buffer(message))
        return found if found.types == [pa.null()] else None
    return None


def test_a_batch_of_few_bytes_whose_rows_share_one_large_value_is_refused() -> None:
    large = pa.array([list(range(1000))])
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 65_536, pa.int8()), large)
    batch = pa.record_batch([shared], names=["x"])
    assert batch.nbytes < 100_000
    with pytest.raises(
        ConfigError, match=r"the size without dictionaries, runs and views of a batch that was sent is 53\d{7}: it may"
    ):
        _of(_stream(batch))
