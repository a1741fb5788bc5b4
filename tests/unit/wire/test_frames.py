"""Small adds and their answers as frames."""

from __future__ import annotations

import struct
from dataclasses import replace

import pyarrow as pa
import pytest

from bk_spark.config import DigestType
from bk_spark.entries.batch import encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.errors import CorruptionError
from bk_spark.quorum import IdPattern
from bk_spark.wire import frames
from bk_spark.wire.messages import AddReply, AddRequest, Status

KEY = master_key(b"secret", 77)


def request(**flags: bool) -> AddRequest:
    digester = Digester(DigestType.HMAC, b"secret")
    sealed = seal(digester, 9, 4, pa.array([b"a", b"bc", b"d"], pa.binary()), length_before=8, last_add_confirmed=3)
    batch = encode(sealed, DigestType.HMAC, IdPattern(3, 2, 0))
    assert batch is not None
    return AddRequest(5, "bookie-1", KEY, batch, **flags)


def packed(one: AddRequest) -> bytes:
    return b"".join(frames.pack_add(one, 123))


def unpacked(data: bytes, bookie_id: str = "bookie-1") -> AddRequest | AddReply:
    number, found = frames.unpack_add(memoryview(b"##" + data), 2, 2 + len(data), bookie_id)
    assert number == 123
    return found


@pytest.mark.parametrize("flags", [{}, {"recovery": True}, {"deferred_sync": True}])
def test_an_add_arrives_as_it_was_sent(flags: dict[str, bool]) -> None:
    sent = request(**flags)
    assert unpacked(packed(sent)) == replace(sent, request_id=123)


def test_an_add_for_another_bookie_is_refused_and_the_refusal_names_this_one() -> None:
    assert unpacked(packed(request()), "bookie-2") == AddReply(123, Status.WRONG_BOOKIE, "this is bookie bookie-2")


@pytest.mark.parametrize("place", [-1, 100, 70, 78])
def test_an_add_that_was_altered_on_its_way_is_refused(place: int) -> None:
    data = bytearray(packed(request()))
    data[place] ^= 0x55
    assert unpacked(bytes(data)).status is Status.BAD_REQUEST  # type: ignore[union-attr]


def test_a_writers_add_that_confirms_its_own_entries_is_refused() -> None:
    sent = request()
    header = replace(sent.batch.header, last_add_confirmed=5)
    refused = unpacked(packed(replace(sent, batch=replace(sent.batch, header=header))))
    assert isinstance(refused, AddReply)
    assert "is not below its entries" in refused.detail


def test_a_reply_arrives_as_it_was_sent() -> None:
    sent = AddReply(5, Status.FENCED, "ledger 9 is fenced", boot=1 << 63)
    data = frames.pack_reply(sent, 123)
    assert len(data) == 4 + struct.unpack_from(">I", data)[0]
    assert frames.unpack_reply(data[4:]) == replace(sent, request_id=123)


@pytest.mark.parametrize("data", [b"", b"\7", b"\7\2" + bytes(30), b"\2\1" + bytes(30)])
def test_what_is_no_reply_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        frames.unpack_reply(data)


def test_what_is_no_add_is_damage() -> None:
    for data in (b"\0\0\0\4\7\1\0\0", bytes([0, 0, 0, 120, 7, 9]) + bytes(118)):
        with pytest.raises(CorruptionError):
            unpacked(data)
