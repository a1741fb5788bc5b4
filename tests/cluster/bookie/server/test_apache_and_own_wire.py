"""Entries that came over one wire, read over the other: their bytes, their digests, and what may be added again.

Ref: docs/formats.md, "Digests"; docs/rules.md, protocol rules 33 and 65.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

import pyarrow as pa
import pytest

from bk_spark.config import DigestType
from bk_spark.entries.apache_entries import own_batches
from bk_spark.entries.batch import EncodedBatch, decode, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.codec import decode_read_reply, encode_add_request, encode_read_request
from bk_spark.wire.messages import AddRequest, ReadBatch, ReadEnd, ReadRequest, Status
from tests.cluster.bookie.apache_client import LAST, PROOF, ApacheServed, Version2, add_2, digest_of, entry, unpack_2
from tests.cluster.bookie.served import BOOKIE_ID, DEADLINE_S

KEY = master_key(b"")
STRIPE = IdPattern(3, 2, 0)
ENDS = ["", "checkpoint", "stop", "kill"]
PAYLOAD = b"payload"


def batch(ledger_id: int, first: int, payloads: Sequence[bytes], kind: DigestType, pattern: IdPattern = DENSE) -> EncodedBatch:
    """As this package's writers send it; with a pattern, what a slot of its ensemble gets."""
    before = first * len(PAYLOAD)
    array = pa.array(payloads, pa.binary())
    sealed = seal(Digester(kind, b""), ledger_id, first, array, length_before=before, last_add_confirmed=first - 1)
    encoded = encode(sealed, kind, pattern)
    assert encoded is not None
    return encoded


def add_batch(apache: ApacheServed, one: EncodedBatch, *, recovery: bool = False, key: bytes = KEY) -> int:
    message = encode_add_request(AddRequest(1, BOOKIE_ID, key, one, recovery=recovery))
    answered = threading.Event()
    answer: Future[int] = Future()

    def messages():
        yield message
        answered.wait(DEADLINE_S)

    try:
        answer.set_result(next(apache.served.stub.Add(messages(), timeout=DEADLINE_S)).status)
    finally:
        answered.set()
    return answer.result()


def read_batches(
    apache: ApacheServed,
    ledger_id: int,
    first: int,
    last: int,
    kind: DigestType,
    *,
    fence: bool = False,
    pattern: IdPattern = DENSE,
) -> tuple[dict[int, bytes], Status]:
    """The payloads by id, whose digests are right, in answers as this package's clients take them."""
    found: dict[int, bytes] = {}
    request = ReadRequest(BOOKIE_ID, ledger_id, KEY, first, last, pattern, 1 << 20, fence)
    for message in apache.served.stub.Read(encode_read_request(request), timeout=DEADLINE_S):
        reply = decode_read_reply(message.SerializeToString())
        if isinstance(reply, ReadEnd):
            return found, reply.status
        assert isinstance(reply, ReadBatch)
        for part in own_batches(reply.batch, kind):
            entries = decode(part)
            assert entries.matching(Digester(kind, b"")).all()
            found |= dict(zip(map(int, entries.entry_ids), entries.payloads.to_pylist(), strict=True))
    raise AssertionError("a read has an end")


def add_all(client: Version2, *entries: bytes) -> None:
    client.send(*(add_2(one) for one in entries))
    assert {unpack_2(client.receive(), 1)[0] for _ in entries} == {0}


def after(apache: ApacheServed, end: str) -> None:
    if end == "checkpoint":
        apache.checkpoint()
    elif end:
        apache.restart(end)


def payload(entry_id: int, size: int) -> bytes:
    return (b"%d " % entry_id * (size // 2 + 1))[:size]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("size", [0, 7, 5_000])
def test_entries_of_a_batch_are_read_one_by_one_as_apaches_clients_know_them(
    apache: ApacheServed, end: str, kind: DigestType, size: int
) -> None:
    """The digests are computed here anew."""
    payloads = [payload(one, size) for one in range(4)]
    assert add_batch(apache, batch(1, 5, payloads, kind)) == pb.OK
    after(apache, end)
    before = 5 * len(PAYLOAD)
    wanted = [entry(1, 5 + n, one, confirmed=4, length=before + (n + 1) * size, kind=kind) for n, one in enumerate(payloads)]
    v2, v3 = apache.version_2(), apache.version_3()
    for n, whole in enumerate(wanted):
        assert v2.read(1, 5 + n) == ("OK", whole)
        assert v3.read(1, 5 + n) == ("OK", whole)
    assert v2.read(1, LAST) == ("OK", wanted[-1])
    assert v2.batch_read(1, 5) == ("OK", wanted)
    assert v2.read(1, 4)[0] == "NOENTRY"
    assert v3.listed(1) == ("OK", [5, 6, 7, 8])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("sizes", [(0,), (7,), (0, 1, 30, 2), (5_000,)])
def test_single_entries_are_read_in_batches_with_right_digests(
    apache: ApacheServed, end: str, kind: DigestType, sizes: tuple[int, ...]
) -> None:
    payloads = [payload(one, sizes[one % len(sizes)]) for one in range(9)]
    lengths = [sum(map(len, payloads[: one + 1])) for one in range(9)]
    entries = [entry(1, n, one, length=lengths[n], kind=kind) for n, one in enumerate(payloads)]
    add_all(apache.version_2(), *entries)
    after(apache, end)
    assert read_batches(apache, 1, 0, 8, kind) == (dict(enumerate(payloads)), Status.OK)
    found, status = read_batches(apache, 1, 3, 12, kind)
    assert ({one: found[one] for one in found if one >= 3}, status) == (
        {one: payloads[one] for one in range(3, 9)},
        Status.NO_SUCH_ENTRY,
    )


@pytest.mark.parametrize("end", ENDS)
def test_single_entries_of_a_stripe_are_read_in_batches(apache: ApacheServed, end: str) -> None:
    ids = [one for one in range(60) if STRIPE.holds(one)]
    add_all(apache.version_2(), *(entry(1, one) for one in ids))
    after(apache, end)
    found, status = read_batches(apache, 1, 0, 59, DigestType.CRC32C, pattern=STRIPE)
    assert (found, status) == (dict.fromkeys(ids, PAYLOAD), Status.OK)


@pytest.mark.parametrize("end", ENDS)
def test_a_batch_of_a_stripe_is_read_one_by_one(apache: ApacheServed, end: str) -> None:
    striped = batch(1, 0, [PAYLOAD] * 30, DigestType.CRC32C, STRIPE)
    assert add_batch(apache, striped) == pb.OK
    after(apache, end)
    client = apache.version_2()
    for one in range(30):
        whole = entry(1, one, confirmed=-1, length=(one + 1) * len(PAYLOAD))
        assert client.read(1, one) == (("OK", whole) if STRIPE.holds(one) else ("NOENTRY", b""))


@pytest.mark.parametrize("end", ENDS)
def test_a_ledger_of_both_kinds_is_whole_over_either_wire(apache: ApacheServed, end: str) -> None:
    """A recovery of one client goes over what a writer of the other one sent."""
    kind = DigestType.CRC32C
    add_all(apache.version_2(), *(entry(1, one) for one in range(5)))
    assert add_batch(apache, batch(1, 5, [PAYLOAD] * 5, kind)) == pb.OK
    add_all(apache.version_2(), *(entry(1, one) for one in range(10, 15)))
    after(apache, end)
    client = apache.version_2()
    status, entries = client.batch_read(1, 0)
    assert (status, len(entries)) == ("OK", 15)
    assert entries[:5] + entries[10:] == [entry(1, one) for one in (*range(5), *range(10, 15))]
    assert entries[5:10] == [entry(1, one, confirmed=4) for one in range(5, 10)]
    assert read_batches(apache, 1, 0, 14, kind) == (dict.fromkeys(range(15), PAYLOAD), Status.OK)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", DigestType)
def test_a_recovery_over_one_wire_may_add_again_what_came_over_the_other(
    apache: ApacheServed, end: str, kind: DigestType
) -> None:
    """Protocol rule 33: with a last add confirmed and a digest of its own."""
    add_all(apache.version_2(), *(entry(1, one, kind=kind) for one in range(4)))
    assert add_batch(apache, batch(2, 0, [PAYLOAD] * 4, kind)) == pb.OK
    after(apache, end)
    again = batch(1, 0, [PAYLOAD] * 4, kind)
    assert add_batch(apache, again, recovery=True) == pb.OK
    assert read_batches(apache, 1, 0, 3, kind) == (dict.fromkeys(range(4), PAYLOAD), Status.OK)
    client = apache.version_2()
    for one in range(4):
        assert client.add(entry(2, one, confirmed=3 - 1, kind=kind), recovery=True) == "OK"
        assert client.read(2, one) == ("OK", entry(2, one, confirmed=2, kind=kind))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("recovery", [False, True])
def test_another_payload_than_came_over_the_other_wire_is_refused(apache: ApacheServed, end: str, recovery: bool) -> None:
    """Protocol rule 65."""
    kind = DigestType.CRC32C
    add_all(apache.version_2(), *(entry(1, one) for one in range(4)))
    assert add_batch(apache, batch(2, 0, [PAYLOAD] * 4, kind)) == pb.OK
    after(apache, end)
    assert add_batch(apache, batch(1, 2, [b"another"], kind), recovery=recovery) == pb.BAD_REQUEST
    assert apache.version_2().add(entry(2, 2, b"another"), recovery=recovery) not in ("OK", "NOENTRY", "NOLEDGER", "FENCED")
    assert apache.version_2().read(1, 2) == ("OK", entry(1, 2))
    assert read_batches(apache, 2, 0, 3, kind)[0] == dict.fromkeys(range(4), PAYLOAD)


def test_a_fence_over_one_wire_holds_over_the_other(apache: ApacheServed) -> None:
    kind, client = DigestType.CRC32C, apache.version_2()
    for ledger_id in (1, 2):
        assert client.add(entry(ledger_id, 0)) == "OK"
    assert client.read(1, LAST, fence=PROOF)[0] == "OK"
    assert read_batches(apache, 2, 0, 0, kind, fence=True)[1] is Status.OK
    assert add_batch(apache, batch(1, 1, [PAYLOAD], kind)) == pb.FENCED
    assert client.add(entry(2, 1)) == "FENCED"


def test_a_key_holds_over_both_wires_with_and_without_its_creators_token(apache: ApacheServed) -> None:
    """Apache's wire has no token: then the password alone is compared."""
    kind, client = DigestType.CRC32C, apache.version_2()
    assert add_batch(apache, batch(1, 0, [PAYLOAD], kind), key=master_key(b"", 77)) == pb.OK
    assert client.add(entry(1, 1)) == "OK"
    assert client.add(entry(1, 2), key=master_key(b"another")[:20]) == "UA"
    assert client.add(entry(2, 0)) == "OK"
    assert add_batch(apache, batch(2, 1, [PAYLOAD], kind)) == pb.OK
    assert add_batch(apache, batch(2, 2, [PAYLOAD], kind), key=master_key(b"another")) == pb.UNAUTHORIZED


def test_how_far_a_ledger_is_confirmed_is_known_over_both_wires(apache: ApacheServed) -> None:
    v3 = apache.version_3()
    assert v3.add(entry(1, 0)) == "OK"
    assert v3.add(entry(1, 1)) == "OK"
    assert apache.served.confirmed(1).result(DEADLINE_S).last_add_confirmed == 0
    assert apache.served.confirm(1, 1).result(DEADLINE_S).status == pb.OK
    assert v3.poll(1, 0, timeout_ms=50_000, piggyback=True).readResponse.body == entry(1, 1)
    poll = apache.served.poll(1, 1)
    assert v3.add(entry(1, 3, confirmed=2)) == "OK"
    assert poll.result(DEADLINE_S).last_add_confirmed == 2


def test_entries_with_a_wrong_digest_are_given_back_as_they_came_and_their_readers_find_out(apache: ApacheServed) -> None:
    wrong = bytearray(entry(1, 0))
    wrong[-1] ^= 1
    add_all(apache.version_2(), bytes(wrong), entry(1, 1))
    apache.checkpoint()
    assert apache.version_2().read(1, 0) == ("OK", bytes(wrong))
    request = ReadRequest(BOOKIE_ID, 1, KEY, 0, 1, DENSE, 1 << 20)
    replies = [decode_read_reply(one.SerializeToString()) for one in apache.served.stub.Read(encode_read_request(request))]
    right = {}
    for reply in replies[:-1]:
        assert isinstance(reply, ReadBatch)
        for part in own_batches(reply.batch, DigestType.CRC32C):
            entries = decode(part)
            matching = entries.matching(Digester(DigestType.CRC32C, b""))
            right |= dict(zip(map(int, entries.entry_ids), map(bool, matching), strict=True))
    assert right == {0: False, 1: True}


def test_the_digests_of_this_test_are_apaches() -> None:
    """The check value of CRC-32C, so that the two sides do not err alike."""
    assert digest_of(DigestType.CRC32C, b"123456789") == bytes.fromhex("e3069283")
