"""One large field put behind and taken out of a protobuf message: protobuf itself is the judge."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import CorruptionError
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.wire.body import with_body, without_body

BODY = pb.ReadReply.BODY_FIELD_NUMBER

replies = st.builds(
    pb.ReadReply,
    status=st.integers(0, 12),
    body_crc32c=st.integers(0, 2**32 - 1),
    entry_id=st.integers(-(2**63), 2**63 - 1),
    detail=st.text(max_size=300),
    header=st.none() | st.builds(pb.BatchHeader, ledger_id=st.integers(0, 2**63 - 1), mixed_lac=st.booleans()),
)


@given(reply=replies, body=st.binary(max_size=300))
def test_protobuf_reads_what_was_put_together(reply: pb.ReadReply, body: bytes) -> None:
    data = with_body(reply.SerializeToString(), BODY, memoryview(body))
    reply.body = body
    assert pb.ReadReply.FromString(data) == reply


@given(reply=replies, body=st.binary(max_size=300))
def test_what_protobuf_wrote_is_taken_apart(reply: pb.ReadReply, body: bytes) -> None:
    whole = pb.ReadReply()
    whole.CopyFrom(reply)
    whole.body = body
    others, found = without_body(memoryview(whole.SerializeToString()), BODY, "it")
    assert pb.ReadReply.FromString(others) == reply
    assert bytes(found) == body


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_message_to_both_or_refused(data: bytes) -> None:
    try:
        others, found = without_body(memoryview(data), BODY, "it")
        apart = pb.ReadReply.FromString(others)
    except (CorruptionError, DecodeError):
        return
    whole = pb.ReadReply.FromString(data)
    assert bytes(found) == whole.body
    whole.ClearField("body")
    assert apart == whole


@given(reply=replies, body=st.binary(min_size=1, max_size=300), cut=st.integers(1, 300))
def test_a_body_that_was_cut_is_refused(reply: pb.ReadReply, body: bytes, cut: int) -> None:
    data = with_body(reply.SerializeToString(), BODY, body)
    with pytest.raises(CorruptionError, match="ends within a"):
        without_body(memoryview(data)[: -min(cut, len(body))], BODY, "it")


def test_the_last_of_several_bodies_counts_as_in_protobuf() -> None:
    data = with_body(with_body(b"", BODY, b"one"), BODY, b"two")
    assert bytes(without_body(memoryview(data), BODY, "it")[1]) == b"two" == pb.ReadReply.FromString(data).body


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x08\x01" * 100, "more fields"),
        (b"\x22\x00" * 100, "more fields"),
        (b"\x08" + b"\x80" * 1000, "too long"),
        (b"\x0b", "kind 3"),
        (b"\x09abc", "within a field"),
    ],
)
def test_what_would_keep_a_reader_busy_or_is_no_message_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptionError, match=problem):
        without_body(memoryview(data), BODY, "it")
