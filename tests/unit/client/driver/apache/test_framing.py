"""The frames of a batch are made once for all its bookies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bk_spark.client.driver.apache.framing import ADDS_AT_ONCE, MOST_KEPT, Framing
from bk_spark.config import DigestType
from bk_spark.entries.batch import EncodedBatch, EntryBatch, binaries, encode, seal
from bk_spark.entries.digest import Digester
from bk_spark.errors import EntryTooLargeError
from bk_spark.wire.apache.version_2 import Flag, pack_adds
from bk_spark.wire.messages import AddRequest

KEY = bytes(range(20))
DIGESTER = Digester(DigestType.CRC32C, b"")


def entries(payloads: list[bytes], first: int = 0) -> EntryBatch:
    return seal(DIGESTER, 7, first, binaries(payloads), length_before=0, last_add_confirmed=-1)


def encoded(batch: EntryBatch) -> EncodedBatch:
    made = encode(batch, DigestType.CRC32C)
    assert made is not None
    return made


def request(payloads: list[bytes], first: int = 0) -> AddRequest:
    return AddRequest(1, "b1", KEY, encoded(entries(payloads, first)))


@pytest.mark.parametrize(("recovery", "flags"), [(False, Flag.NONE), (True, Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY)])
def test_there_is_an_add_for_each_entry_in_pieces(recovery: bool, flags: Flag) -> None:
    batch = entries([b"%d" % number for number in range(2 * ADDS_AT_ONCE + 3)])
    frames = Framing().frames(AddRequest(1, "b1", KEY, encoded(batch), recovery=recovery))
    assert [count for count, _ in frames] == [ADDS_AT_ONCE, ADDS_AT_ONCE, 3]
    assert b"".join(data for _, data in frames) == pack_adds(batch, DigestType.CRC32C, KEY, flags)


def test_all_bookies_of_a_batch_share_its_frames() -> None:
    framing, one = Framing(), request([b"a", b"b"])
    frames = framing.frames(one)
    assert framing.frames(replace(one, request_id=2, bookie_id="b2")) is frames
    assert framing.frames(replace(one, recovery=True)) != frames
    assert framing.frames(request([b"a", b"c"])) != frames


def test_the_frames_of_the_last_few_batches_are_kept() -> None:
    framing, first = Framing(), request([b"a"])
    frames = framing.frames(first)
    for number in range(1, MOST_KEPT):
        framing.frames(request([b"a"], number))
    assert framing.frames(first) is frames
    framing.frames(request([b"a"], MOST_KEPT))
    again = framing.frames(first)
    assert again == frames
    assert again is not frames


def test_an_entry_that_no_bookie_of_apache_takes_is_refused() -> None:
    framing = Framing()
    most = framing.most_payload_bytes
    with pytest.raises(EntryTooLargeError, match=f"{most + 1} bytes, the maximum is {most}"):
        framing.frames(request([b"", bytes(most + 1)]))
    assert len(framing.frames(request([bytes(most)]))) == 1
