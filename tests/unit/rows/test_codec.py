"""Rows as payloads: exact for every type, whatever nullability and time zone they arrive with; damage is found."""

from __future__ import annotations

import datetime
import struct
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import CorruptionError, EntryTooLargeError, FormatVersionError, SchemaMismatchError, WrongValueError
from bk_spark.rows import codec
from bk_spark.rows.codec import (
    PayloadFormat,
    RowDecoder,
    RowEncoder,
    cut,
    layout,
    numbered,
    rows_up_to,
    without_large,
)
from bk_spark.rows.statistics import ColumnStatistics
from bk_spark.rows.validity import without_text
from tests.unit.entries.shared_fields import schema_of_shared_fields

PLAIN = PayloadFormat(compression="none", max_rows=1000, max_bytes=1 << 20)


def normalised(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, without_large(layout(field.type))) for field in schema])


def encode(batch: pa.RecordBatch, payload_format: PayloadFormat = PLAIN) -> list[pa.Buffer]:
    encoder = RowEncoder("orders", normalised(batch.schema), payload_format)
    return [payload for payload, _ in encoder.encode(batch)]


def round_trip(batch: pa.RecordBatch, payload_format: PayloadFormat = PLAIN) -> pa.Table:
    decoder = RowDecoder(normalised(batch.schema))
    return pa.Table.from_batches([decoder.decode(p, "it") for p in encode(batch, payload_format)], normalised(batch.schema))


def every_type() -> pa.RecordBatch:
    inner = pa.struct([pa.field("x.y", pa.int8(), nullable=False), pa.field("z", pa.list_(pa.string()))])
    columns = {
        "bool": pa.array([True, None, False]),
        "byte": pa.array([-128, None, 127], pa.int8()),
        "long": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
        "float": pa.array([float("inf"), None, -0.0], pa.float32()),
        "double": pa.array([float("-inf"), None, 5e-324]),
        "decimal": pa.array([Decimal("9" * 20 + "." + "9" * 18), None, Decimal(0)], pa.decimal128(38, 18)),
        "string": pa.array(["", None, "žluť😀"]),
        "binary": pa.array([b"", None, b"\x00\xff"]),
        "date": pa.array([datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)], pa.date32()),
        "timestamp": pa.array([-1, None, 2**50], pa.timestamp("us", "Asia/Tokyo")),
        "timestamp_ntz": pa.array([-1, None, 2**50], pa.timestamp("us")),
        "interval": pa.array([-1, None, 2**50], pa.duration("us")),
        "time": pa.array([0, None, 1], pa.time64("ns")),
        "void": pa.nulls(3),
        "array": pa.array([[], None, [1, None]], pa.list_(pa.field("element", pa.int32()))),
        "map": pa.array([[], None, [("k", None)]], pa.map_(pa.string(), pa.int32())),
        "struct": pa.array([{"x.y": 1, "z": None}, None, {"x.y": 2, "z": ["", None]}], inner),
        "a.b c": pa.array([1, 2, 3]),
    }
    return pa.record_batch(list(columns.values()), schema=pa.schema([(name, c.type) for name, c in columns.items()]))


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_every_type_comes_back_equal_and_normalised(compression: str) -> None:
    batch = every_type()
    back = round_trip(batch, PayloadFormat(compression=compression, max_rows=2, max_bytes=1 << 20))
    assert back.schema.equals(normalised(batch.schema))
    assert back.to_pylist() == pa.Table.from_batches([batch]).cast(normalised(batch.schema)).to_pylist()


def test_nan_and_negative_zero_keep_their_bits() -> None:
    values = np.array([0x7FF8000000000001, 0x8000000000000000], dtype=np.uint64).view(np.float64)
    back = round_trip(pa.record_batch({"d": pa.array(values)}))
    assert back["d"].combine_chunks().to_numpy().view(np.uint64).tolist() == [0x7FF8000000000001, 0x8000000000000000]


def test_text_may_be_any_bytes_as_in_spark() -> None:
    raw = pa.array([b"caf\xe9", None, b"plain"])
    text = raw.cast(pa.string(), safe=False)
    listed = pa.ListArray.from_arrays([0, 1, 2, 3], text)
    mapped = pa.MapArray.from_arrays([0, 1, 1, 2], pa.array([b"\xff", b"k"]).cast(pa.string(), safe=False), pa.array([1, 2]))
    nested = pa.StructArray.from_arrays([text, listed], ["x", "y"])
    batch = pa.record_batch([text, listed, mapped, nested], ["s", "l", "m", "n"])
    for name, column in zip(batch.schema.names, round_trip(batch).columns, strict=True):
        [chunk] = column.chunks
        plain = without_text(chunk.type)
        assert chunk.cast(plain).equals(batch.column(name).cast(plain)), name
    assert round_trip(batch).column("s").cast(pa.binary(), safe=False).to_pylist() == raw.to_pylist()


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()], ids=["as it is stored", "cast when it is written"])
def test_structs_of_nulls_beside_a_null_in_a_list_come_back(text: pa.DataType) -> None:
    kind = pa.list_(pa.struct([("b", pa.null())]))
    batch = pa.record_batch([pa.array([[{"b": None}, None]], kind), pa.array(["x"], text)], ["c", "s"])
    assert round_trip(batch).to_pylist() == [{"c": [{"b": None}, None], "s": "x"}]


def test_large_types_are_cast_to_small_ones() -> None:
    nested = pa.map_(pa.large_string(), pa.field("value", pa.large_list(pa.large_binary()), nullable=False))
    batch = pa.record_batch(
        {"s": pa.array(["a", None], pa.large_string()), "m": pa.array([[("k", [b"x", None])], None], nested)}
    )
    back = round_trip(batch)
    assert back.schema.field("m").type == pa.map_(pa.string(), pa.list_(pa.field("element", pa.binary())))
    assert back.to_pylist() == batch.to_pylist()


def test_a_slice_of_a_batch_is_encoded_as_its_own_rows() -> None:
    batch = every_type()
    assert round_trip(batch.slice(1, 2)).to_pylist() == round_trip(batch).to_pylist()[1:]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=200), st.integers(1, 50), st.integers(1, 2000))
def test_cut_keeps_all_rows_and_both_limits(values: list[bytes], max_rows: int, max_bytes: int) -> None:
    pieces = list(cut(pa.record_batch({"b": pa.array(values, pa.binary())}), max_rows, max_bytes))
    assert [v for piece in pieces for v in piece["b"].to_pylist()] == values
    assert all(piece.num_rows <= max_rows for piece in pieces)
    assert all(piece.nbytes <= max_bytes or piece.num_rows == 1 for piece in pieces)


def test_an_empty_batch_has_no_payload() -> None:
    assert encode(every_type().slice(0, 0)) == []


def test_a_row_above_the_maximum_is_refused_before_it_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_DECODED_BYTES", 3 << 20)
    monkeypatch.setattr(RowEncoder, "_message", lambda *_: pytest.fail("it is encoded"))
    with pytest.raises(EntryTooLargeError, match=f"a row, has {(3 << 20) + 4} bytes, the maximum is {2 << 20}"):
        encode(pa.record_batch({"b": pa.array([b"x" * (3 << 20)])}))


def test_a_batch_of_another_schema_is_refused() -> None:
    encoder = RowEncoder("orders", pa.schema([("a", pa.int64())]), PLAIN)
    with pytest.raises(SchemaMismatchError, match="int32"):
        list(encoder.encode(pa.record_batch({"a": pa.array([1], pa.int32())})))


def test_columns_are_picked_by_name_and_missing_ones_are_null() -> None:
    (payload,) = encode(pa.record_batch({"a": pa.array([1, 2]), "b": pa.array(["x", "y"])}))
    wanted = pa.schema([("b", pa.string()), ("new", pa.map_(pa.string(), pa.int32()))])
    assert RowDecoder(wanted).decode(payload, "it").to_pylist() == [{"b": "x", "new": None}, {"b": "y", "new": None}]


def test_payloads_of_changing_schemas_are_decoded_by_one_decoder() -> None:
    (old,), (new,) = (
        encode(pa.record_batch({"a": pa.array([1])})),
        encode(pa.record_batch({"b": pa.array([5]), "a": pa.array([2])})),
    )
    decoder = RowDecoder(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    rows = [decoder.decode(payload, "it").to_pylist()[0] for payload in (old, new, old)]
    assert rows == [{"a": 1, "b": None}, {"a": 2, "b": 5}, {"a": 1, "b": None}]


def test_a_payload_without_any_wanted_column_gives_rows_of_nulls() -> None:
    (payload,) = encode(pa.record_batch({"a": pa.array([1, 2])}))
    assert RowDecoder(pa.schema([("b", pa.string())])).decode(payload, "it").to_pylist() == [{"b": None}, {"b": None}]


def test_a_column_of_another_type_is_refused_with_both_types() -> None:
    (payload,) = encode(pa.record_batch({"a": pa.array([1])}))
    with pytest.raises(CorruptionError, match="'a' is int64, which cannot be read as string"):
        RowDecoder(pa.schema([("a", pa.string())])).decode(payload, "entry 3 of ledger 4")


def test_payloads_of_narrower_types_are_read_as_the_schema_s_and_payloads_of_wider_ones_are_refused() -> None:
    narrow = pa.record_batch(
        {"a": pa.array([1, None], pa.int8()), "s": pa.array([{"x": 1}, None], pa.struct([("x", pa.int16())]))}
    )
    wide = pa.schema([("s", pa.struct([("y", pa.string()), ("x", pa.int64())])), ("a", pa.decimal128(5, 2))])
    (payload,) = encode(narrow)
    rows = RowDecoder(wide).decode(payload, "it")
    assert rows.schema.equals(wide)
    assert rows.to_pylist() == [{"s": {"y": None, "x": 1}, "a": Decimal("1.00")}, {"s": None, "a": None}]
    with pytest.raises(CorruptionError, match=r"'a' is decimal128\(5, 2\), which cannot be read as int8"):
        RowDecoder(narrow.schema).decode(encode(rows)[0], "it")


def test_statistics_have_the_form_of_the_schema_s_type() -> None:
    days = pa.array(range(100), pa.int32()).cast(pa.date32())
    (payload,) = encode(pa.record_batch({"a": pa.array(range(100), pa.int16()), "day": days, "n": pa.nulls(100, pa.float32())}))
    decoder = RowDecoder(pa.schema([("a", pa.decimal128(9, 3)), ("day", pa.timestamp("us")), ("n", pa.float64())]))
    known = {
        "a": ColumnStatistics(0, 0, 99_000),
        "day": ColumnStatistics(0, 0, 99 * 86_400_000_000),
        "n": ColumnStatistics(100),
    }
    assert decoder.statistics(payload, "it", ["a", "day", "n"]) == (100, known)


def test_a_value_that_the_wider_type_does_not_hold_is_told() -> None:
    (payload,) = encode(pa.record_batch({"day": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())}))
    with pytest.raises(WrongValueError, match=r"entry 3 holds 5881580-07-11 in column 'day', which no timestamp"):
        RowDecoder(pa.schema([("day", pa.timestamp("us"))])).decode(payload, "entry 3")


def test_a_bound_that_is_no_value_of_its_column_is_damage() -> None:
    (payload,) = encode(pa.record_batch({"a": pa.array(range(100), pa.int8())}))
    (header_bytes,) = struct.unpack("<H", bytes(payload[6:8]))
    bound = bytes([255]) + b"\x7f" * 255
    row = struct.pack("<HBI", 0, 1, 0) + bound + bound
    fields = struct.pack("<HH", 1, len(row)) + row
    head = bytes(payload[:6]) + struct.pack("<H", 16 + len(fields)) + bytes(payload[8:16])
    spoilt = pa.py_buffer(head + fields + bytes(payload[header_bytes:]))
    with pytest.raises(CorruptionError, match="entry 3"):
        RowDecoder(pa.schema([("a", pa.float64())])).statistics(spoilt, "entry 3", ["a"])


def test_a_newer_format_is_refused_by_name() -> None:
    (payload,) = encode(pa.record_batch({"a": pa.array([1])}))
    newer = bytes(payload[:4]) + struct.pack("<H", 3) + bytes(payload[6:])
    with pytest.raises(FormatVersionError, match="entry 3 of ledger 4 has format version 3"):
        RowDecoder(pa.schema([("a", pa.int64())])).decode(pa.py_buffer(newer), "entry 3 of ledger 4")


def test_a_longer_header_is_skipped() -> None:
    (payload,) = encode(pa.record_batch({"a": pa.array([1])}))
    (header_bytes,) = struct.unpack("<H", bytes(payload[6:8]))
    head, rest = bytes(payload[:header_bytes]), bytes(payload[header_bytes:])
    longer = head[:6] + struct.pack("<H", header_bytes + 8) + head[8:] + b"\xff" * 8 + rest
    assert RowDecoder(pa.schema([("a", pa.int64())])).decode(pa.py_buffer(longer), "it").to_pylist() == [{"a": 1}]


def test_a_header_without_fields_is_read() -> None:
    """As payloads were written before there were statistics."""
    (payload,) = encode(pa.record_batch({"a": pa.array(range(100))}))
    (header_bytes,) = struct.unpack("<H", bytes(payload[6:8]))
    bare = pa.py_buffer(bytes(payload[:6]) + struct.pack("<H", 16) + bytes(payload[8:16]) + bytes(payload[header_bytes:]))
    decoder = RowDecoder(pa.schema([("a", pa.int64())]))
    assert decoder.decode(bare, "it").column("a").to_pylist() == list(range(100))
    assert decoder.statistics(bare, "it", ["a"]) == (100, {})


def test_statistics_ride_in_the_header_and_a_column_that_is_not_there_is_null() -> None:
    (payload,) = encode(pa.record_batch({"a": pa.array(range(100)), "b": pa.array(["x"] * 100)}))
    found = RowDecoder(pa.schema([("a", pa.int64())])).statistics(payload, "it", ["a", "new"])
    assert found == (100, {"a": ColumnStatistics(0, 0, 99), "new": ColumnStatistics(100)})


def test_fields_that_are_not_known_are_skipped_and_a_torn_one_is_damage() -> None:
    (payload,) = encode(pa.record_batch({"a": pa.array(range(100))}))
    (header_bytes,) = struct.unpack("<H", bytes(payload[6:8]))

    def with_fields(fields: bytes) -> pa.Buffer:
        head = bytes(payload[:6]) + struct.pack("<H", 16 + len(fields)) + bytes(payload[8:16])
        return pa.py_buffer(head + fields + bytes(payload[header_bytes:]))

    fields, decoder = bytes(payload[16:header_bytes]), RowDecoder(pa.schema([("a", pa.int64())]))
    later = with_fields(struct.pack("<HH", 7, 3) + b"abc" + fields)
    assert decoder.statistics(later, "it", ["a"])[1] == {"a": ColumnStatistics(0, 0, 99)}
    for torn in (fields[:-1], fields[:3], b"\x01"):
        assert decoder.decode(with_fields(torn), "it").num_rows == 100
        with pytest.raises(CorruptionError, match="entry 3"):
            decoder.statistics(with_fields(torn), "entry 3", ["a"])


def test_only_the_columns_asked_for_are_decoded() -> None:
    """Also beside nested ones: of the others not a buffer is decompressed."""
    nested = pa.array([{"x": i, "y": ["a", "b"]} for i in range(100)])
    (payload,) = encode(pa.record_batch({"n": nested, "a": pa.array(range(100)), "m": nested}))
    found: list[pa.Schema] = []

    class Watched(RowDecoder):
        def _column(self, decoded: pa.RecordBatch, field: pa.Field, what: str) -> pa.Array:
            found.append(decoded.schema)
            return super()._column(decoded, field, what)

    decoder = Watched(pa.schema([("a", pa.int64())]))
    assert decoder.decode(payload, "it").column("a").to_pylist() == list(range(100))
    assert [schema.names for schema in found] == [["a"]]


def test_bytes_that_are_no_rows_are_refused() -> None:
    for payload in (
        b"",
        b"BKRW",
        b"hello world, this is an entry",
        b"BKRW" + struct.pack("<HHII", 1, 16, 1, 2**32 - 1) + b"x" * 50,
    ):
        with pytest.raises(CorruptionError):
            RowDecoder(pa.schema([("a", pa.int64())])).decode(pa.py_buffer(payload), "it")


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_truncated_or_flipped_payload_is_corruption_or_decodes_to_as_many_rows(compression: str) -> None:
    (payload,) = encode(every_type(), PayloadFormat(compression=compression, max_rows=1000, max_bytes=1 << 20))
    data, schema = payload.to_pybytes(), normalised(every_type().schema)
    broken = [data[:size] for size in range(0, len(data), 7)]
    broken += [data[:i] + bytes([data[i] ^ 0xFF]) + data[i + 1 :] for i in range(0, len(data), 5)]
    for bad in broken:
        try:
            assert RowDecoder(schema).decode(pa.py_buffer(bad), "it").num_rows == 3
        except (CorruptionError, FormatVersionError, WrongValueError):
            continue


def test_another_number_of_rows_than_announced_is_damage() -> None:
    (payload,) = encode(pa.record_batch({"a": pa.array([1])}))
    lying = bytes(payload[:8]) + struct.pack("<I", 2) + bytes(payload[12:])
    with pytest.raises(CorruptionError, match="1 rows where 2 are announced"):
        RowDecoder(pa.schema([("a", pa.int64())])).decode(pa.py_buffer(lying), "it")


def test_a_payload_with_two_columns_of_one_name_is_damage() -> None:
    twice = pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(CorruptionError, match="two columns of one name"):
        RowDecoder(pa.schema([("a", pa.int64())])).decode(encode(twice)[0], "it")


def test_a_numbered_payload_says_how_many_rows_a_ledger_holds_up_to_it_and_is_decoded_as_before():
    batch = pa.record_batch({"id": list(range(100))})
    encoder = RowEncoder("log", batch.schema, PayloadFormat(compression="zstd", max_rows=1000, max_bytes=2**20))
    ((payload, _),) = encoder.encode(batch)
    assert rows_up_to(payload, "it") is None
    found = pa.py_buffer(numbered(payload, 2**40))
    assert rows_up_to(found, "it") == 2**40 + 100
    decoder = RowDecoder(batch.schema)
    assert decoder.decode(found, "it").equals(batch)
    assert decoder.statistics(found, "it", ["id"]) == decoder.statistics(payload, "it", ["id"])


def test_a_number_of_rows_of_another_size_is_damage():
    (payload,) = encode(pa.record_batch({"id": [1]}))
    spoilt = bytearray(numbered(payload, 7))
    field = spoilt.index(b"\x02\x00\x08\x00")
    spoilt[field + 2] = 4
    with pytest.raises(CorruptionError, match=r"the rows before it are 4 bytes|its header ends within a field"):
        rows_up_to(pa.py_buffer(bytes(spoilt)), "it")


def test_a_payload_whose_schema_stands_for_millions_of_fields_is_refused_before_arrow_builds_it(monkeypatch) -> None:
    schema = schema_of_shared_fields(20)
    framed = struct.pack("<iI", -1, len(schema)) + schema
    payload = pa.py_buffer(struct.pack("<4sHHII", b"BKRW", 1, 16, 1, len(framed)) + framed + b"rows")
    monkeypatch.setattr(pa.ipc, "read_schema", lambda _: pytest.fail("Arrow was given the schema"))
    with pytest.raises(CorruptionError, match="it is damaged: its schema has more than 100000 fields"):
        RowDecoder(pa.schema([("a", pa.int64())])).decode(payload, "it")


def test_a_row_that_no_reader_could_read_as_the_log_s_type_is_refused_before_it_is_encoded(monkeypatch) -> None:
    many = 2**28
    column = pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), pa.nulls(many))
    batch = pa.record_batch({"x": column})
    form = replace(PLAIN, read_as=(("x", pa.list_(pa.field("element", pa.int64()))),))
    monkeypatch.setattr(RowEncoder, "_message", lambda *_: pytest.fail("it is encoded"))
    expected = r"'x' is list<item: null>, and no reader could read it as list<element: int64> \(268435456 values as int64 take"
    with pytest.raises(SchemaMismatchError, match=expected):
        list(RowEncoder("orders", normalised(batch.schema), form).encode(batch))
