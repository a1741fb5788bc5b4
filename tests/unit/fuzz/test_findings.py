"""What the fuzzer has found: each value once more."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.bookie.identity.boot_file import decode_boot
from bk_spark.bookie.identity.checked_text import encode_fields
from bk_spark.bookie.identity.cookie_file import decode_cookie, decode_stored
from bk_spark.bookie.log_files.log_file import (
    FILE_HEADER_BYTES,
    NO_PREDECESSOR,
    FileHeader,
    FileKind,
    pack_file_header,
    unpack_file_header,
)
from bk_spark.config import DigestType
from bk_spark.datasource.option_values import ledger_ids
from bk_spark.datasource.passwords import password
from bk_spark.entries.batch import MAX_ENTRY_ID, BatchHeader
from bk_spark.entries.crc import crc32c
from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError
from bk_spark.log.stored.checkpoint import CheckpointState
from bk_spark.log.stored.names import decode_name
from bk_spark.log.stored.schema import decode_schema, parse_schema
from bk_spark.log.stored.values import ApplicationState, Head, JobState, LogVersion, Page
from bk_spark.metadata import registration
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.ledger_metadata_pb2 import BookieServiceInfoFormat
from bk_spark.quorum import DENSE
from bk_spark.rows import codec
from bk_spark.rows.codec import RowDecoder
from bk_spark.rows.where.condition import parse_where
from bk_spark.wire.codec import decode_last_add_confirmed_request, decode_read_request, decode_store_last_add_confirmed_request
from tests.soak.fuzz.metadata_targets import targets as metadata_targets
from tests.soak.fuzz.row_targets import _payload

LONG = "7" * 5000
"""More digits than Python makes a number of."""

VALUES: dict[str, Callable[[str, bytes], Any]] = {
    "log head": Head.decode,
    "log version": LogVersion.decode,
    "log page": Page.decode,
    "write job": JobState.decode,
    "application": ApplicationState.decode,
    "checkpoint": CheckpointState.decode,
}


def _seed(name: str) -> dict[str, Any]:
    [target] = [one for one in metadata_targets() if one.name == name]
    found: dict[str, Any] = json.loads(target.seeds()[0])
    return found


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("odd", [float("inf"), float("nan"), 1.5, True, {}, [[]], "x", 2**63, "\ud800"])
def test_no_field_of_a_log_s_value_may_hold_anything_else(name: str, odd: Any) -> None:
    record = _seed(name)
    for field in record:
        value = json.dumps({**record, field: odd}).encode()
        if isinstance(record[field], bool) and odd is True:
            continue
        if isinstance(record[field], str) and odd == "x" and field not in ("kind", "content"):
            continue
        if record[field] is None or field == "retention":  # what is not there has its default
            continue
        with pytest.raises(BookKeeperError):
            VALUES[name]("it", value)


@pytest.mark.parametrize("name", VALUES)
def test_a_log_s_value_that_is_nested_without_end_is_damaged(name: str) -> None:
    with pytest.raises(CorruptionError, match="nested too deeply"):
        VALUES[name]("it", b"[" * 100_000)


def test_a_commit_or_checkpoint_that_claims_very_many_pages_is_damaged() -> None:
    """They would all be asked for."""
    for name in ("log version", "checkpoint"):
        with pytest.raises(CorruptionError, match="no whole number from 0 to 100000"):
            VALUES[name]("it", json.dumps({**_seed(name), "pages": 2**62}).encode())


def test_a_log_s_uid_is_no_path() -> None:
    with pytest.raises(CorruptionError, match="is no uid"):
        decode_name("it", json.dumps({"format": 2, "uid": "../x"}).encode())


@pytest.mark.parametrize("schema", [1, [], {"fields": [{}]}, {"fields": 5}, {"type": "struct", "fields": [{"name": 5}]}])
def test_a_schema_that_is_none_is_refused(schema: Any) -> None:
    with pytest.raises(CorruptionError):
        decode_schema("it", json.dumps({"format": 2, "schema": schema}).encode())
    with pytest.raises(ConfigError, match="StructType"):
        parse_schema("orders", json.dumps(schema))


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="StructType"):
        parse_schema("orders", '{"a":' * 100_000)


def test_numbers_of_thousands_of_digits_are_damage() -> None:
    cookie = f'4\nbookieHost: "h"\ninstanceId: "i"\n# bk_spark version: 1\n# bk_spark boot: {LONG} abc\n'.encode()
    for decode in (
        lambda: decode_stored(cookie, "it"),
        lambda: decode_stored(LONG.encode() + cookie, "it"),
        lambda: decode_cookie(encode_fields("bk_spark cookie", int("1"), [("version", LONG)]).replace(b": 1", b": x"), "it"),
        lambda: decode_boot(encode_fields("bk_spark boot", 1, [("confirmed", f"{LONG} abc"), ("skipped_journal", "no")]), "it"),
    ):
        with pytest.raises(CorruptionError) as damaged:
            decode()
        assert len(str(damaged.value)) < 2000


def test_a_log_file_of_a_bookie_whose_id_is_no_text_is_damaged() -> None:
    data = bytearray(pack_file_header(FileHeader(FileKind.JOURNAL, 1, 7, NO_PREDECESSOR, "bookie")))
    data[60] = 0xFF
    sealed = bytes(data[: FILE_HEADER_BYTES - 4])
    with pytest.raises(CorruptionError, match="not UTF-8"):
        unpack_file_header(sealed + struct.pack("<I", crc32c(sealed)), "it")


def test_ledger_metadata_with_names_that_are_no_text_is_damaged() -> None:
    value = b"BookieMetadataFormatVersion\t3\n\x10\x08\x01\x10\x01\x18\x00(\x012\x05\n\x01\xff\x10\x008\x01"
    with pytest.raises(CorruptionError):
        LedgerMetadata.decode(7, value)


@pytest.mark.parametrize(("host", "port"), [(b"\xff", 1), (b"unix:/x", 1), (b"h h", 1), (b"", 1), (b"h", 0), (b"h", 1 << 30)])
def test_a_registration_that_names_no_host_and_port_is_damaged(host: bytes, port: int) -> None:
    endpoint = BookieServiceInfoFormat.Endpoint(
        id="b", port=port, host="HOST", protocol="bk_spark-grpc", auth=[], extensions=[]
    )
    encoded = endpoint.SerializeToString().replace(b"\x1a\x04HOST", b"\x1a" + bytes([len(host)]) + host)
    value = b"2" + bytes([len(encoded)]) + encoded
    with pytest.raises(CorruptionError):
        registration._decode("b", "/ledgers/available/b", value)


def test_a_condition_that_nests_very_deeply_or_is_one_long_number_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="parentheses"):
        parse_where("where", "(" * 5000 + "a = 1" + ")" * 5000)
    for text in ("a = " + "9" * 20_000 + "x", "a = 1e" + "9" * 30):
        with pytest.raises(ConfigError):
            parse_where("where", text)


def test_options_that_no_number_or_text_can_be_made_of_are_refused() -> None:
    with pytest.raises(ConfigError):
        ledger_ids("ledger", LONG)
    with pytest.raises(ConfigError) as refused:
        password("password", "secret\udcff")
    assert "secret" not in str(refused.value)


def test_an_error_shows_a_part_of_a_long_value() -> None:
    assert len(str(ConfigError("option 'x'", "v" * 1_000_000, "choose another"))) < 2000


@pytest.mark.parametrize("field", ["first_entry_id", "last_entry_id", "length_before"])
def test_a_batch_whose_sums_would_overflow_is_refused(field: str) -> None:
    ids = {"first_entry_id": MAX_ENTRY_ID + 1, "last_entry_id": MAX_ENTRY_ID + 1, "length_before": 2**63 - 1}
    given = {"first_entry_id": 5, "last_entry_id": 5, "length_before": 0} | ({field: ids[field]} if field[0] == "l" else ids)
    with pytest.raises(CorruptionError):
        BatchHeader(1, given["first_entry_id"], given["last_entry_id"], DENSE, 4, given["length_before"], DigestType.CRC32C)


def test_requests_about_entries_that_no_ledger_can_have_are_refused() -> None:
    common = {"version": 1, "bookie_id": "b", "master_key": bytes(40), "ledger_id": 1}
    pattern = pb.IdPattern(ensemble_size=1, write_quorum=1)
    with pytest.raises(CorruptionError):
        decode_read_request(pb.ReadRequest(**common, last_entry_id=2**63 - 1, maximum_bytes=1, pattern=pattern))
    with pytest.raises(CorruptionError):
        decode_last_add_confirmed_request(pb.ReadLastAddConfirmedRequest(**common, beyond=2**63 - 1))
    with pytest.raises(CorruptionError):
        decode_store_last_add_confirmed_request(pb.StoreLastAddConfirmedRequest(**common, last_add_confirmed=2**63 - 1))


# --- rows


def _claims(rows: int, announced: int) -> None:
    """A payload whose header says so many rows is refused before memory is taken for them."""
    good = bytearray(_payload(pa.record_batch({"void": pa.nulls(rows)})))
    good[8:12] = struct.pack("<I", announced)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CorruptionError, match="rows"):
        RowDecoder(pa.schema([("lacking", pa.int64())])).decode(pa.py_buffer(bytes(good)), "it")
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


def test_a_payload_of_a_hundred_bytes_that_claims_billions_of_rows_takes_no_memory() -> None:
    _claims(5, 2**32 - 1)
    _claims(5, 2**22)
    _claims(2**30, 2**22)


_ZEROS = 1_234_567


def _zeros(compression: str) -> pa.Buffer:
    """A payload of one row of as many zero bytes, which hardly anything else holds in so few."""
    rows = pa.record_batch({"b": pa.array([bytes(_ZEROS)], pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_batch(rows)
    head = struct.pack("<4sHHII", b"BKRW", 1, 16, 1, rows.schema.serialize().size)
    return pa.py_buffer(head + bytes(sink.getvalue()))


def _refused(payload: pa.Buffer, why: str) -> None:
    """A payload is refused before memory is taken for what it claims."""
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CorruptionError, match=why):
        RowDecoder(pa.schema([("b", pa.binary())])).decode(payload, "it")
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_payload_that_claims_to_hold_more_than_its_compression_can_takes_no_memory(compression: str) -> None:
    good = bytes(_zeros(compression))
    for claimed in (2 * _ZEROS, 1 << 40):
        lying = good.replace(struct.pack("<q", _ZEROS), struct.pack("<q", claimed))
        assert lying != good
        _refused(pa.py_buffer(lying), f"a buffer of .* bytes that stands for {claimed}")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_payload_that_holds_more_than_the_maximum_takes_no_memory(compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = _zeros(compression)
    assert RowDecoder(pa.schema([("b", pa.binary())])).decode(payload, "it").nbytes > _ZEROS
    monkeypatch.setattr(codec, "MAX_DECODED_BYTES", _ZEROS)
    _refused(payload, f"the maximum is {_ZEROS}")


def test_a_payload_without_a_column_is_damaged() -> None:
    schema = pa.schema([]).serialize()
    message = bytes(_payload(pa.record_batch({"void": pa.nulls(5)})))[16 + pa.schema([("void", pa.null())]).serialize().size :]
    payload = struct.pack("<4sHHII", b"BKRW", 1, 16, 5, schema.size) + bytes(schema) + message
    with pytest.raises(CorruptionError):
        RowDecoder(pa.schema([("void", pa.null())])).decode(pa.py_buffer(payload), "it")


def test_a_refused_condition_does_not_repeat_a_word_of_thousands_of_characters() -> None:
    for text in ("9" * 30_000, "a = 1 " + "b" * 30_000, "a = " + "=" * 30_000):
        with pytest.raises(ConfigError) as refusal:
            parse_where("where", text)
        assert len(str(refusal.value)) < 2_000
