"""The port for Apache's clients: which version a connection speaks, and what is no request of either.

Ref: Apache BookKeeper's RequestDecoder, BookieProtoEncoding and AuthHandler.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bk_spark.proto import apache_wire_pb2 as pb
from tests.cluster.bookie.apache_client import (
    ADD,
    AUTH,
    LAST,
    PROOF,
    READ,
    STATUSES_2,
    ApacheServed,
    Version2,
    Version3,
    add_2,
    add_3,
    batch_read_2,
    entry,
    read_2,
    read_3,
    status_3,
    unpack_2,
)
from tests.cluster.bookie.served import DEADLINE_S


def test_a_connection_may_begin_with_version_3_and_goes_on_with_version_2_for_good(apache: ApacheServed) -> None:
    client = apache.version_3()
    assert client.add(entry(1, 0)) == "OK"
    client.send(read_2(1, 0), read_2(1, 1))
    assert unpack_2(client.receive(), READ) == (0, 1, 0)
    assert unpack_2(client.receive(), READ) == (2, 1, 1)
    client.send(client.request(pb.READ_ENTRY, readRequest=read_3(1, 0)).SerializeToString())
    try:
        answer = client.receive()
    except (EOFError, ConnectionError):
        return
    with pytest.raises(AssertionError):  # whatever it is, it is no message of version 3
        assert status_3(pb.Response.FromString(answer)) == "OK"


def test_a_connection_that_sends_version_3_alone_stays_so(v3: Version3) -> None:
    for entry_id in range(100):
        assert v3.add(entry(1, entry_id)) == "OK"
        assert v3.read(1, entry_id) == ("OK", entry(1, entry_id))


def test_a_connection_that_begins_with_version_2_needs_no_greeting(v2: Version2) -> None:
    assert v2.read(1, 0)[0] == "NOLEDGER"


def test_connections_of_both_versions_meet_in_one_ledger(v2: Version2, v3: Version3) -> None:
    assert v2.add(entry(1, 0)) == "OK"
    assert v3.add(entry(1, 1)) == "OK"
    assert v3.read(1, 0) == ("OK", entry(1, 0))
    assert v2.read(1, 1) == ("OK", entry(1, 1))
    assert v2.read(1, LAST, fence=PROOF) == ("OK", entry(1, 1))
    assert v3.add(entry(1, 2)) == "FENCED"


def test_frames_arrive_in_any_pieces(either) -> None:
    if isinstance(either, Version2):
        frames = [add_2(entry(1, 0)), read_2(1, 0)]
    else:
        frames = [
            either.request(pb.ADD_ENTRY, addRequest=add_3(entry(1, 0))).SerializeToString(),
            either.request(pb.READ_ENTRY, readRequest=read_3(1, 0)).SerializeToString(),
        ]
    for byte in b"".join(struct.pack(">I", len(one)) + one for one in frames):
        either.socket.sendall(bytes([byte]))
    answers = {either.receive() for _ in frames}
    assert len(answers) == 2
    assert either.read(1, 0) == ("OK", entry(1, 0))


@pytest.mark.parametrize("operation", [3, 4, 12, 13, 99])
def test_an_operation_that_version_3_has_not_is_a_bad_request(v3: Version3, operation: int) -> None:
    assert v3.status(operation) == "BADREQ"
    assert v3.add(entry(1, 0)) == "OK"


@pytest.mark.parametrize(
    "operation", [pb.READ_ENTRY, pb.ADD_ENTRY, pb.WRITE_LAC, pb.READ_LAC, pb.GET_BOOKIE_INFO, pb.FORCE_LEDGER]
)
def test_a_request_without_its_own_part_is_refused_and_the_connection_goes_on(v3: Version3, operation: int) -> None:
    assert v3.status(operation) in ("BADREQ", "OK" if operation == pb.GET_BOOKIE_INFO else "BADREQ")
    assert v3.add(entry(1, 0)) == "OK"


@pytest.mark.parametrize("version", [1, 2, 4, 1000])
def test_another_version_in_the_header_of_version_3_is_refused_as_such(v3: Version3, version: int) -> None:
    assert v3.status(pb.READ_ENTRY, version=version, readRequest=read_3(1, 0)) == "BADVERSION"
    assert v3.status(pb.ADD_ENTRY, version=version, addRequest=add_3(entry(1, 0))) == "BADVERSION"
    assert v3.read(1, 0)[0] == "NOLEDGER"


def test_another_version_in_the_header_of_version_2_is_refused_as_such(v2: Version2) -> None:
    assert v2.add(entry(1, 0)) == "OK"
    v2.send(read_2(1, 0, version=3))
    *_, rc, ledger_id, entry_id = struct.unpack_from(">BBHiqq", v2.receive())
    assert (STATUSES_2[rc], ledger_id, entry_id) == ("BADVERSION", 1, 0)
    assert v2.read(1, 0)[0] == "OK"


@pytest.mark.parametrize("operation", [4, 5, 6, 8, 99])
def test_an_operation_that_version_2_has_not_harms_no_other_request(v2: Version2, operation: int) -> None:
    """It is dropped, or refused as a bad request."""
    assert v2.add(entry(1, 0)) == "OK"
    v2.send(struct.pack(">BBHqq", 2, operation, 0, 1, 0), read_2(1, 0))
    answer = v2.receive()
    if answer[1] != READ:
        assert struct.unpack_from(">i", answer, 4) == (100,)
        answer = v2.receive()
    assert unpack_2(answer, READ) == (0, 1, 0)


@pytest.mark.parametrize("plugin", ["", "sasl", "AuthDisabledPlugin"])
def test_who_wants_to_authenticate_is_told_that_there_is_no_need(v2: Version2, v3: Version3, plugin: str) -> None:
    message = pb.AuthMessage(authPluginName=plugin, payload=b"x")
    answer = v3.ask(pb.AUTH, authRequest=message)
    assert (status_3(answer), answer.authResponse.authPluginName) == ("OK", "AuthDisabledPlugin")
    assert answer.authResponse.HasField("payload")
    v2.send(struct.pack(">BBH", 2, AUTH, 0) + message.SerializeToString())
    told = v2.receive()
    assert told[:4] == struct.pack(">BBH", 2, AUTH, 0)
    assert pb.AuthMessage.FromString(told[4:]).authPluginName == "AuthDisabledPlugin"
    for client in (v2, v3):
        assert client.read(1, 0)[0] == "NOLEDGER"  # type: ignore[attr-defined]


def test_what_is_said_of_the_context_of_a_request_is_taken_and_ignored(v3: Version3) -> None:
    """Field 200, which has no name here."""
    context = b"\xc2\x0c\x0a\x0a\x03key\x12\x03val"
    request = v3.request(pb.ADD_ENTRY, addRequest=add_3(entry(1, 0)))
    v3.send(request.SerializeToString() + context)
    assert status_3(pb.Response.FromString(v3.receive())) == "OK"


def test_requests_of_several_ledgers_are_answered_each_for_itself(v3: Version3) -> None:
    """In any order, matched by the number of the transaction."""
    asked = {}
    for entry_id in range(50):
        for ledger_id in (1, 2, 3):
            request = v3.request(pb.ADD_ENTRY, addRequest=add_3(entry(ledger_id, entry_id)))
            asked[request.header.txnId] = ledger_id, entry_id
            v3.send(request.SerializeToString())
    for _ in range(len(asked)):
        answer = pb.Response.FromString(v3.receive())
        ids = asked.pop(answer.header.txnId)
        assert (status_3(answer), answer.addResponse.ledgerId, answer.addResponse.entryId) == ("OK", *ids)


def test_interleaved_adds_and_reads_of_version_2_are_all_answered(v2: Version2) -> None:
    ids = [(ledger_id, entry_id) for entry_id in range(100) for ledger_id in (1, 2, 3)]
    v2.send(*(add_2(entry(*one)) for one in ids))
    assert sorted(unpack_2(v2.receive(), ADD) for _ in ids) == sorted((0, *one) for one in ids)
    v2.send(*(read_2(*one) for one in ids), read_2(1, 0), read_2(9, 9))
    answers = [v2.receive() for _ in range(len(ids) + 2)]
    found = sorted((unpack_2(one, READ)[1:], one[24:]) for one in answers if unpack_2(one, READ)[0] == 0)
    assert found == sorted((one, entry(*one)) for one in [*ids, (1, 0)])
    assert [unpack_2(one, READ) for one in answers if unpack_2(one, READ)[0]] == [(1, 9, 9)]


def test_an_answer_is_not_held_up_by_a_long_poll_of_the_same_connection(v3: Version3) -> None:
    assert v3.add(entry(1, 0)) == "OK"
    waiting = v3.request(pb.READ_ENTRY, readRequest=pb.ReadRequest(ledgerId=1, entryId=-1, previousLAC=5, timeOut=60_000))
    v3.send(waiting.SerializeToString())
    v3.socket.settimeout(DEADLINE_S / 2)
    assert v3.read(1, 0)[0] == "OK"


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0", b"\0\0\0\1\2", b"\0\0\0\4\2\1\0\0", b"\0\0\0\5\2\7\0\0\0"]
)
def test_garbage_ends_at_most_its_own_connection(apache: ApacheServed, data: bytes) -> None:
    client = apache.version_2()
    client.socket.sendall(data)
    client.socket.shutdown(1)
    assert apache.version_2().add(entry(1, 0)) == "OK"


@pytest.mark.parametrize("size", [1 << 31, (1 << 32) - 1, 20 << 20])
def test_a_frame_that_is_too_large_ends_the_connection_before_it_has_come(apache: ApacheServed, size: int) -> None:
    client = apache.version_2()
    client.socket.sendall(struct.pack(">I", size) + bytes(100))
    assert client.is_closed()
    assert apache.version_2().add(entry(1, 0)) == "OK"


FRAME = 5 << 20


def sized(entry_id: int, nbytes: int) -> bytes:
    """An entry of so many bytes."""
    return struct.pack(">4q", 1, entry_id, -1, 0) + bytes(nbytes - 32)


def test_an_entry_just_below_the_limit_of_a_frame_is_taken_and_read_back_by_either_version(v2: Version2, v3: Version3) -> None:
    sent = sized(0, FRAME - 88)
    assert v2.add(sent) == "OK"
    v2.send(read_2(1, 0))
    v3.send(v3.request(pb.READ_ENTRY, readRequest=read_3(1, 0)).SerializeToString())
    for client in (v2, v3):
        assert FRAME - 64 <= len(client.receive()) + 4 <= FRAME
        assert client.read(1, 0) == ("OK", sent)


@pytest.mark.parametrize("nbytes", [FRAME - 87, FRAME + 4096, 16 << 20])
def test_an_entry_that_apaches_clients_could_not_read_back_is_refused_and_the_connection_goes_on(either, nbytes: int) -> None:
    """A Java client with defaults breaks its connection at a larger frame, and can then not even recover the ledger."""
    assert either.add(entry(1, 0)) == "OK"
    assert either.add(sized(1, nbytes)) == "BADREQ"
    assert either.read(1, 1) == ("NOENTRY", b"")
    assert either.add(entry(1, 1)) == "OK"


def test_of_adds_that_come_together_those_that_are_too_large_alone_are_refused(v2: Version2) -> None:
    v2.send(*(add_2(one) for one in (entry(1, 0), sized(1, FRAME), entry(1, 2))))
    answers = {(answer := unpack_2(v2.receive(), ADD))[2]: STATUSES_2[answer[0]] for _ in range(3)}
    assert answers == {0: "OK", 1: "BADREQ", 2: "OK"}


def test_a_batch_read_stays_within_the_frame(v2: Version2) -> None:
    for entry_id in range(4):
        assert v2.add(sized(entry_id, 2 << 20)) == "OK"
    v2.send(batch_read_2(1, 0, 9, size=1 << 40))
    answer = v2.receive()
    assert 4 << 20 <= len(answer) + 4 <= FRAME


@pytest.fixture
def bookie_of_pulsar(harness) -> Iterator[ApacheServed]:
    harness.config = replace(harness.config, apache_frame_bytes=FRAME + (10 << 10))
    made = ApacheServed(harness)
    yield made
    made.close()


def test_a_raised_limit_takes_what_pulsars_brokers_send_at_their_defaults(bookie_of_pulsar: ApacheServed) -> None:
    """Messages of 5 MiB, in frames of up to 10 KiB more: nettyMaxFrameSizeBytes in Pulsar's settings of bookies."""
    for entry_id, client in enumerate((bookie_of_pulsar.version_2(), bookie_of_pulsar.version_3())):
        sent = sized(entry_id, FRAME + 36)
        assert client.add(sent) == "OK"
        assert client.read(1, entry_id) == ("OK", sent)
