"""The largest entry fits into every frame that may carry it, whatever the numbers in it."""

from __future__ import annotations

import pytest

from bk_spark.config import APACHE_FRAME_BYTES, DigestType
from bk_spark.entries.digest import DIGEST_BYTES
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache import version_2_server as v2
from bk_spark.wire.apache import version_3, version_3_server
from bk_spark.wire.apache.frame_limits import most_entry_bytes, most_payload_bytes
from bk_spark.wire.messages import MAX_PROOF_BYTES, Status

LARGEST = 2**63 - 1
KEY = bytes(20)
ENTRY = bytes(most_entry_bytes(APACHE_FRAME_BYTES))


def header(operation: pb.Operation) -> pb.Header:
    return pb.Header(version=version_3.VERSION, operation=operation, txnId=LARGEST, priority=100)


def add() -> bytes:
    """As a recovery of Apache's client sends it."""
    inner = pb.AddRequest(
        ledgerId=LARGEST, entryId=LARGEST, masterKey=KEY, body=ENTRY, flag=pb.AddRequest.RECOVERY_ADD, writeFlags=1
    )
    message = pb.Request(header=header(pb.ADD_ENTRY), addRequest=inner).SerializeToString()
    return len(message).to_bytes(4) + message


def last_add_confirmed() -> bytes:
    proof = bytes(16 + MAX_PROOF_BYTES)
    answer = pb.ReadLacResponse(status=0, ledgerId=LARGEST, lacBody=proof, lastEntryBody=ENTRY)
    return version_3_server.pack(header(pb.READ_LAC), Status.OK, answer)


FRAMES = {
    "a read of version 2": lambda: v2.pack_read(v2.SingleRead(LARGEST, LARGEST, None), Status.OK, ENTRY),
    "a batch read": lambda: v2.pack_entries(v2.EntriesRead(LARGEST, 0, LARGEST, 1, 0, None), Status.OK, bytes(4) + ENTRY),
    "an add of version 2": lambda: bytes(4 + 4 + 20) + ENTRY,
    "an add of version 3": add,
    "a read of version 3": lambda: version_3_server.pack_read(
        header(pb.READ_ENTRY), pb.ReadRequest(ledgerId=LARGEST, entryId=LARGEST), Status.OK, ENTRY, -1
    ),
    "the question how far a ledger is confirmed": last_add_confirmed,
}


@pytest.mark.parametrize("frame", FRAMES)
def test_the_largest_entry_fits_into(frame: str) -> None:
    assert APACHE_FRAME_BYTES - 64 < len(FRAMES[frame]()) <= APACHE_FRAME_BYTES


@pytest.mark.parametrize("digest", DigestType)
def test_the_largest_payload_makes_no_larger_entry_with_any_digest(digest: DigestType) -> None:
    assert 32 + DIGEST_BYTES[digest] + most_payload_bytes(APACHE_FRAME_BYTES) <= len(ENTRY)
