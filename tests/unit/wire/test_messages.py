"""Messages: the round trip, and what is refused."""

import dataclasses

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.config import DigestType
from bk_spark.entries.batch import EncodedBatch, encode, seal
from bk_spark.entries.crc import crc32c
from bk_spark.entries.digest import Digester, master_key
from bk_spark.entries.recut import coalesce
from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.codec import (
    LARGE_BYTES,
    decode_add_reply,
    decode_add_request,
    decode_administer_reply,
    decode_administer_request,
    decode_description,
    decode_force_reply,
    decode_force_request,
    decode_last_add_confirmed_reply,
    decode_last_add_confirmed_request,
    decode_read_reply,
    decode_read_request,
    decode_store_last_add_confirmed_reply,
    decode_store_last_add_confirmed_request,
    encode_add_reply,
    encode_add_request,
    encode_administer_reply,
    encode_administer_request,
    encode_description,
    encode_force_reply,
    encode_force_request,
    encode_last_add_confirmed_reply,
    encode_last_add_confirmed_request,
    encode_read_reply,
    encode_read_request,
    encode_store_last_add_confirmed_reply,
    encode_store_last_add_confirmed_request,
    pack_add_request,
    unpack_add_request,
)
from bk_spark.wire.messages import (
    MAX_DIRECTORIES,
    MAX_WAIT_MS,
    PROTOCOL_VERSION,
    AddReply,
    AddRequest,
    AdministerReply,
    AdminOperation,
    BookieDescription,
    BookieDirectory,
    FenceRequest,
    ForceRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    PlainReply,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    Status,
    StoreLastAddConfirmedRequest,
    Verdict,
)

KEY = master_key(b"secret")


def _add_request() -> AddRequest:
    payloads = pa.array([b"one", b"two"], pa.binary())
    sealed = seal(Digester(DigestType.CRC32C, b""), 3, 10, payloads, length_before=7, last_add_confirmed=9)
    batch = encode(sealed, DigestType.CRC32C)
    assert batch is not None
    return AddRequest(5, "bookie-1", KEY, batch)


@pytest.mark.parametrize("confirmed", [10, 11])
def test_a_writer_s_add_says_nothing_is_confirmed_that_it_brings_and_a_copy_may(confirmed: int) -> None:
    payloads = pa.array([b"one", b"two"], pa.binary())
    sealed = seal(Digester(DigestType.CRC32C, b""), 3, 10, payloads, length_before=7, last_add_confirmed=confirmed)
    batch = encode(sealed, DigestType.CRC32C)
    assert batch is not None
    copy = AddRequest(5, "bookie-1", KEY, batch, recovery=True)
    assert decode_add_request(*unpack_add_request(pack_add_request(copy, 5))) == copy
    add = dataclasses.replace(copy, recovery=False)
    with pytest.raises(CorruptionError, match=f"last add confirmed {confirmed} is not below its entries"):
        decode_add_request(*unpack_add_request(pack_add_request(add, 5)))


LARGE_ADD = pb.AddRequest(version=1, request_id=5, bookie_id="bookie-1", body=bytes(LARGE_BYTES)).SerializeToString()


def test_every_message_survives_the_wire() -> None:
    add = _add_request()
    assert decode_add_request(*unpack_add_request(pack_add_request(add, add.request_id))) == add
    read = ReadRequest("bookie-1", 3, KEY, 0, 9, IdPattern(4, 2, 1), 1000)
    assert decode_read_request(encode_read_request(read)) == read
    for reply in (ReadBatch(add.batch), ReadEnd(Status.NO_SUCH_ENTRY, 12, "why")):
        assert decode_read_reply(encode_read_reply(reply)) == reply
    assert decode_add_reply(encode_add_reply(AddReply(5, Status.OK))) == AddReply(5, Status.OK)
    lac = LastAddConfirmedRequest("bookie-1", 3, KEY)
    assert decode_last_add_confirmed_request(encode_last_add_confirmed_request(lac)) == lac
    answer = LastAddConfirmedReply(Status.OK, -1)
    assert decode_last_add_confirmed_reply(encode_last_add_confirmed_reply(answer)) == answer


def test_a_description_tells_the_directories_and_an_older_bookie_s_tells_none() -> None:
    directory = BookieDirectory("/data", "data journal-0 entry_log-0", "boot:803", 5, 9)
    description = BookieDescription(Status.OK, "bookie-1", 5, 9, "1.0", (directory,))
    assert decode_description(encode_description(description)) == description
    assert directory.holds_entries
    assert not dataclasses.replace(directory, uses="journal-0").holds_entries
    older = pb.DescribeReply(status=pb.OK, bookie_id="bookie-1", free_bytes=5, total_bytes=9, program_version="0.1")
    assert decode_description(older).directories == ()


def test_a_description_tells_a_bounded_number_of_directories_in_printable_text() -> None:
    told = [pb.Directory(path="/\x1b[2J", file_system="x" * 100_000)] * (MAX_DIRECTORIES + 1)
    found = decode_description(pb.DescribeReply(status=pb.OK, directories=told)).directories
    assert len(found) == MAX_DIRECTORIES
    assert (found[0].path, len(found[0].file_system) < 100_000) == ("/\N{REPLACEMENT CHARACTER}[2J", True)


@pytest.mark.parametrize("flags", [{"recovery": True}, {"deferred_sync": True}])
def test_the_flags_of_an_add_survive_the_wire(flags: dict[str, bool]) -> None:
    add = dataclasses.replace(_add_request(), **flags)
    assert decode_add_request(*unpack_add_request(pack_add_request(add, add.request_id))) == add


def test_a_joined_batch_survives_the_wire() -> None:
    sealed = seal(
        Digester(DigestType.CRC32C, b""), 3, 12, pa.array([b"x"], pa.binary()), length_before=13, last_add_confirmed=11
    )
    second = encode(sealed, DigestType.CRC32C)
    assert second is not None
    add = dataclasses.replace(_add_request(), batch=coalesce([_add_request().batch, second]))
    assert add.batch.header.mixed_lac
    assert decode_add_request(*unpack_add_request(pack_add_request(add, add.request_id))) == add


def test_fences_and_long_polls_survive_the_wire() -> None:
    read = ReadRequest("bookie-1", 3, KEY, 0, 9, DENSE, 1000, fence=True)
    assert decode_read_request(encode_read_request(read)) == read
    for lac in (
        LastAddConfirmedRequest("bookie-1", 3, KEY, fence=True),
        LastAddConfirmedRequest("bookie-1", 3, KEY, beyond=-1, wait_ms=MAX_WAIT_MS),
        LastAddConfirmedRequest("bookie-1", 3, KEY, beyond=17, wait_ms=1),
    ):
        assert decode_last_add_confirmed_request(encode_last_add_confirmed_request(lac)) == lac
    answer = LastAddConfirmedReply(Status.OK, 7, is_fenced=True)
    assert decode_last_add_confirmed_reply(encode_last_add_confirmed_reply(answer)) == answer


def test_an_explicit_last_add_confirmed_and_a_force_survive_the_wire() -> None:
    store = StoreLastAddConfirmedRequest("bookie-1", 3, KEY, 12)
    assert decode_store_last_add_confirmed_request(encode_store_last_add_confirmed_request(store)) == store
    force = ForceRequest("bookie-1", 3, KEY)
    assert decode_force_request(encode_force_request(force)) == force
    reply = PlainReply(Status.READ_ONLY, "why")
    assert decode_store_last_add_confirmed_reply(encode_store_last_add_confirmed_reply(reply)) == reply
    assert decode_force_reply(encode_force_reply(reply)) == reply


def test_operations_and_their_figures_survive_the_wire() -> None:
    for operation in AdminOperation:
        assert decode_administer_request(encode_administer_request("b1", operation)) == ("b1", operation, ())
    ends = encode_administer_request("b1", AdminOperation.LIMBO_END, [7, 5])
    assert decode_administer_request(ends) == ("b1", AdminOperation.LIMBO_END, (7, 5))
    with pytest.raises(CorruptionError, match="it names 101 ledgers, 100 are allowed"):
        decode_administer_request(encode_administer_request("b1", AdminOperation.LIMBO_END, range(101)))
    reply = AdministerReply(
        Status.UNKNOWN, "it starts", {"runs": 3, "bytes_freed": 1 << 40, "last_run_ms": -1}, {7: "b2: away"}
    )
    assert decode_administer_reply(encode_administer_reply(reply)) == reply
    with pytest.raises(CorruptionError, match="knows none with the number 0"):
        decode_administer_request(pb.AdministerRequest(version=PROTOCOL_VERSION, bookie_id="b1"))
    with pytest.raises(FormatVersionError):
        decode_administer_request(pb.AdministerRequest(version=PROTOCOL_VERSION + 1, operation=pb.SCRUB))


def test_a_wait_is_cut_to_the_longest_that_a_bookie_keeps() -> None:
    asked = LastAddConfirmedRequest("bookie-1", 3, KEY, wait_ms=MAX_WAIT_MS + 1)
    assert decode_last_add_confirmed_request(encode_last_add_confirmed_request(asked)).wait_ms == MAX_WAIT_MS


def test_requests_of_one_ledger_with_impossible_numbers_are_refused() -> None:
    for ledger_id, entry_id in ((-1, 0), (3, -2)):
        lac = LastAddConfirmedRequest("bookie-1", ledger_id, KEY, beyond=entry_id, wait_ms=1)
        with pytest.raises(CorruptionError):
            decode_last_add_confirmed_request(encode_last_add_confirmed_request(lac))
        store = StoreLastAddConfirmedRequest("bookie-1", ledger_id, KEY, entry_id)
        with pytest.raises(CorruptionError):
            decode_store_last_add_confirmed_request(encode_store_last_add_confirmed_request(store))
    with pytest.raises(CorruptionError):
        decode_force_request(encode_force_request(ForceRequest("bookie-1", -1, KEY)))


@pytest.mark.parametrize("field", ["version", "master_key"])
def test_requests_of_one_ledger_with_a_field_missing_are_refused(field: str) -> None:
    store = encode_store_last_add_confirmed_request(StoreLastAddConfirmedRequest("bookie-1", 3, KEY, 12))
    force = encode_force_request(ForceRequest("bookie-1", 3, KEY))
    for message in (store, force):
        message.ClearField(field)
    with pytest.raises(CorruptionError):
        decode_store_last_add_confirmed_request(store)
    with pytest.raises(CorruptionError):
        decode_force_request(force)


def test_a_request_of_a_newer_version_is_refused_by_name() -> None:
    message = encode_add_request(_add_request())
    message.version = PROTOCOL_VERSION + 1
    with pytest.raises(FormatVersionError, match=f"an add request has format version {PROTOCOL_VERSION + 1}"):
        decode_add_request(message)


@pytest.mark.parametrize("field", ["version", "master_key", "header", "body", "body_crc32c"])
def test_an_add_request_with_a_field_missing_is_refused(field: str) -> None:
    message = encode_add_request(_add_request())
    message.ClearField(field)
    with pytest.raises(CorruptionError):
        decode_add_request(message)


@pytest.mark.parametrize("size", [10, LARGE_BYTES - 200, LARGE_BYTES, 3 * LARGE_BYTES])
def test_an_add_request_is_what_protobuf_makes_of_it_whatever_its_size(size: int) -> None:
    payloads = pa.array([bytes(range(256)) * (size // 256) + b"end"], pa.binary())
    sealed = seal(Digester(DigestType.CRC32C, b""), 7, 5, payloads, length_before=0, last_add_confirmed=-1)
    batch = encode(sealed, DigestType.CRC32C)
    assert batch is not None
    add = dataclasses.replace(_add_request(), batch=batch, recovery=True)
    data = pack_add_request(add, 77)
    assert pb.AddRequest.FromString(data) == encode_add_request(dataclasses.replace(add, request_id=77))
    assert decode_add_request(*unpack_add_request(data)) == dataclasses.replace(add, request_id=77)


def test_an_add_of_bytes_that_are_no_batch_is_refused() -> None:
    body = b"no batch" * 80
    batch = EncodedBatch(_add_request().batch.header, body, crc32c(body))
    with pytest.raises(CorruptionError, match="the batch of entries"):
        decode_add_request(encode_add_request(dataclasses.replace(_add_request(), batch=batch)))


@given(st.binary(max_size=60))
def test_a_large_add_request_behind_junk_is_read_as_protobuf_reads_it_or_refused(junk: bytes) -> None:
    data = junk + LARGE_ADD
    try:
        message, body = unpack_add_request(data)
    except (DecodeError, CorruptionError):
        return
    whole = pb.AddRequest.FromString(data)
    assert body == whole.body
    whole.ClearField("body")
    assert message == whole


@given(st.binary(max_size=200))
def test_junk_bytes_are_refused_with_an_error_of_ours_or_of_protobuf(data: bytes) -> None:
    with pytest.raises((DecodeError, BookKeeperError)):
        decode_add_request(pb.AddRequest.FromString(data))


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (4, 3)])
def test_a_read_of_an_impossible_range_is_refused(first: int, last: int) -> None:
    with pytest.raises(CorruptionError):
        decode_read_request(encode_read_request(ReadRequest("b", 3, KEY, first, last, DENSE, 1000)))


def test_only_ok_is_positive_and_only_missing_things_are_negative() -> None:
    """Ref: BP-46, "A note on Response Codes"."""
    positive = {status for status in Status if status.verdict is Verdict.POSITIVE}
    negative = {status for status in Status if status.verdict is Verdict.NEGATIVE}
    assert positive == {Status.OK}
    assert negative == {Status.NO_SUCH_LEDGER, Status.NO_SUCH_ENTRY}
    assert {status.value for status in Status} == set(pb.Status.values()) - {pb.STATUS_UNSPECIFIED}


def test_a_status_that_this_version_does_not_know_is_unknown() -> None:
    assert decode_add_reply(pb.AddReply(request_id=1, status=99)).status is Status.UNKNOWN  # type: ignore[arg-type]
    assert decode_add_reply(pb.AddReply(request_id=1)).status is Status.UNKNOWN


def test_keys_are_not_shown_in_messages() -> None:
    requests = [
        _add_request(),
        ReadRequest("b", 3, KEY, 0, 9, DENSE, 1),
        LastAddConfirmedRequest("b", 3, KEY),
        StoreLastAddConfirmedRequest("b", 3, KEY, 1),
        FenceRequest("b", 3, KEY),
        ForceRequest("b", 3, KEY),
    ]
    for request in requests:
        assert repr(KEY)[2:-1] not in f"{request!r} {request.describe()}"
