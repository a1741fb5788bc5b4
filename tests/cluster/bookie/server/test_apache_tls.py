"""TLS on the port for Apache's clients, which begins within a connection: START_TLS in clear, then the handshake.

Ref: apache/bookkeeper's AuthHandler and BookieRequestProcessor.processStartTLSRequestV3.
"""

from __future__ import annotations

import dataclasses
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.bookie.server.apache import listener
from bk_spark.local.security import Authority
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.tls import files as tls
from bk_spark.tls import server_contexts
from tests.cluster.bookie.apache_client import (
    LAST,
    PROOF,
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

MUTUAL = pytest.mark.parametrize("apache_tls", ["mutual"], indirect=True)
LENIENT = pytest.mark.parametrize("apache_tls", ["mutual, or in clear"], indirect=True)


@pytest.fixture(params=["mutual", "one-sided"])
def apache_tls(harness, authority: Authority, tmp_path: Path, request, monkeypatch) -> Iterator[ApacheServed]:
    """``one-sided``: a bookie that asks for no certificates of clients."""
    for module in (tls, server_contexts):
        monkeypatch.setattr(module, "LOOK_S", 0.0)
    harness.config = dataclasses.replace(
        harness.config,
        tls_ca=str(tmp_path / "ca.pem") if request.param.startswith("mutual") else "",
        tls_certificate=str(tmp_path / "bookie.pem"),
        tls_key=str(tmp_path / "bookie.key"),
        apache_clear_clients=request.param.endswith("clear"),
    )
    made = ApacheServed(harness)
    yield made
    made.close()


def is_mutual(apache: ApacheServed) -> bool:
    return bool(apache.harness.config.tls_ca)


def start_tls(client: Version3) -> str:
    return client.status(pb.START_TLS, startTLSRequest=pb.StartTls())


def wrap(client: Version2 | Version3, directory: Path, name: str | None = "client") -> None:
    """The handshake, as a client with the certificate ``name``."""
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    if name is not None:
        context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")


def is_thrown_out(client: Version3, directory: Path, name: str | None) -> bool:
    """Whether the certificate ``name`` opens nothing; START_TLS was answered."""
    try:
        wrap(client, directory, name)
        client.read(1, 0)
    except (ssl.SSLError, EOFError, ConnectionError):
        return True
    return False


def secured_2(apache: ApacheServed, directory: Path, name: str = "client") -> Version2:
    """START_TLS is a message of version 3; version 2 begins behind it."""
    client = apache.version_2()
    request = pb.Request(header=pb.Header(version=3, operation=pb.START_TLS, txnId=1), startTLSRequest=pb.StartTls())
    client.send(request.SerializeToString())
    assert pb.Response.FromString(client.receive()).status == 0
    wrap(client, directory, name)
    return client


def test_without_tls_a_client_that_asks_for_it_is_refused_and_served_in_clear(apache: ApacheServed) -> None:
    client = apache.version_3()
    assert start_tls(client) == "BADREQ"
    assert client.add(entry(1, 0)) == "OK"


def test_both_versions_are_served_over_tls(apache_tls: ApacheServed, tmp_path: Path) -> None:
    v3 = apache_tls.version_3()
    assert start_tls(v3) == "OK"
    wrap(v3, tmp_path)
    v2 = secured_2(apache_tls, tmp_path)
    for number, client in enumerate((v2, v3)):
        assert client.add(entry(1, number)) == "OK"
        assert client.read(1, number) == ("OK", entry(1, number))
        large = entry(2, number, bytes(100_000), length=1)
        assert client.add(large) == "OK"
        assert client.read(2, number) == ("OK", large)
    assert v2.read(1, LAST, fence=PROOF)[0] == "OK"
    assert v3.add(entry(1, 2)) == "FENCED"


@MUTUAL
def test_with_mutual_tls_nothing_is_served_in_clear(apache_tls: ApacheServed, tmp_path: Path) -> None:
    """Protocol version 3 answers that the client is not authorized, version 2 likewise."""
    v3 = apache_tls.version_3()
    requests = [
        (pb.ADD_ENTRY, {"addRequest": add_3(entry(1, 0))}),
        (pb.ADD_ENTRY, {"addRequest": add_3(entry(1, 0), recovery=True)}),
        (pb.READ_ENTRY, {"readRequest": read_3(1, 0)}),
        (pb.READ_ENTRY, {"readRequest": read_3(1, LAST, PROOF)}),
        (pb.WRITE_LAC, {"writeLacRequest": pb.WriteLacRequest(ledgerId=1, lac=0, masterKey=PROOF, body=b"x")}),
        (pb.READ_LAC, {"readLacRequest": pb.LedgerRequest(ledgerId=1)}),
        (pb.FORCE_LEDGER, {"forceLedgerRequest": pb.LedgerRequest(ledgerId=1)}),
        (pb.GET_BOOKIE_INFO, {"getBookieInfoRequest": pb.BookieInfoRequest(requested=3)}),
        (pb.GET_LIST_OF_ENTRIES_OF_LEDGER, {"getListOfEntriesOfLedgerRequest": pb.LedgerRequest(ledgerId=1)}),
    ]
    for operation, fields in requests:
        answer = v3.ask(operation, **fields)
        assert status_3(answer) == "UA", operation
        assert not answer.readResponse.HasField("body")
    v2 = apache_tls.version_2()
    for frame in (add_2(entry(1, 0)), read_2(1, 0), read_2(1, LAST, fence=PROOF), batch_read_2(1, 0, 1)):
        v2.send(frame)
        assert STATUSES_2[unpack_2(v2.receive(), frame[1])[0]] == "UA"
    behind = secured_2(apache_tls, tmp_path)
    assert behind.read(1, 0)[0] == "NOLEDGER"  # nothing was added or fenced


@MUTUAL
def test_with_mutual_tls_an_authentication_in_clear_opens_nothing(apache_tls: ApacheServed) -> None:
    client = apache_tls.version_3()
    client.ask(pb.AUTH, authRequest=pb.AuthMessage(authPluginName="sasl", payload=b""))
    assert client.read(1, 0)[0] == "UA"


@MUTUAL
@pytest.mark.parametrize("name", [None, "stranger"])
def test_with_mutual_tls_a_client_without_a_certificate_of_ours_is_thrown_out(
    apache_tls: ApacheServed, tmp_path: Path, name: str | None
) -> None:
    Authority("another").issue(tmp_path / "stranger")
    client = apache_tls.version_3()
    assert start_tls(client) == "OK"
    assert is_thrown_out(client, tmp_path, name)


def test_a_client_that_speaks_on_in_clear_behind_start_tls_is_thrown_out(apache_tls: ApacheServed, tmp_path: Path) -> None:
    client = apache_tls.version_3()
    assert start_tls(client) == "OK"
    client.send(client.request(pb.ADD_ENTRY, addRequest=add_3(entry(1, 0))).SerializeToString())
    try:
        while client.socket.recv(1 << 16):
            pass  # an alert
    except ConnectionError:
        pass
    assert secured_2(apache_tls, tmp_path).read(1, 0)[0] == "NOLEDGER"


def test_requests_that_come_in_clear_with_start_tls_are_not_taken_as_if_they_were_secured(
    apache_tls: ApacheServed, tmp_path: Path
) -> None:
    """Who stands between client and bookie might put them there."""
    client = apache_tls.version_3()
    begin = client.request(pb.START_TLS, startTLSRequest=pb.StartTls())
    injected = client.request(pb.ADD_ENTRY, addRequest=add_3(entry(1, 0)))
    client.send(begin.SerializeToString(), injected.SerializeToString())
    try:
        answer = pb.Response.FromString(client.receive())
        assert answer.header.operation == pb.START_TLS
        wrap(client, tmp_path)
        assert client.read(1, 0)[0] == "NOLEDGER"
    except (ssl.SSLError, EOFError, ConnectionError):
        pass
    assert secured_2(apache_tls, tmp_path).read(1, 0)[0] == "NOLEDGER"


@LENIENT
def test_clear_clients_are_served_beside_those_with_tls_where_that_is_set(apache_tls: ApacheServed, tmp_path: Path) -> None:
    """So clients can move to TLS one by one. The handshake asks for a certificate all the same."""
    Authority("another").issue(tmp_path / "stranger")
    clear, secured = apache_tls.version_3(), apache_tls.version_3()
    assert clear.add(entry(1, 0)) == "OK"
    assert apache_tls.version_2().read(1, 0) == ("OK", entry(1, 0))
    assert start_tls(secured) == "OK"
    wrap(secured, tmp_path)
    assert secured.add(entry(1, 1)) == "OK"
    assert clear.read(1, 1) == ("OK", entry(1, 1))
    stranger = apache_tls.version_3()
    assert start_tls(stranger) == "OK"
    assert is_thrown_out(stranger, tmp_path, "stranger")


@LENIENT
def test_tls_does_not_begin_while_answers_in_clear_are_owed(apache_tls: ApacheServed) -> None:
    """One could come in the middle of the handshake."""
    client = apache_tls.version_3()
    add = client.request(pb.ADD_ENTRY, addRequest=add_3(entry(1, 0)))
    begin = client.request(pb.START_TLS, startTLSRequest=pb.StartTls())
    client.send(add.SerializeToString(), begin.SerializeToString())
    answers = [pb.Response.FromString(client.receive()) for _ in range(2)]
    assert {answer.header.operation: status_3(answer) for answer in answers} == {pb.START_TLS: "BADREQ", pb.ADD_ENTRY: "OK"}


def test_tls_begins_behind_an_authentication_and_refusals(apache_tls: ApacheServed, tmp_path: Path) -> None:
    """Apache's clients with an authentication provider send its message first, and do not wait for the answer."""
    client = apache_tls.version_3()
    client.read(1, 0)
    authentication = client.request(pb.AUTH, authRequest=pb.AuthMessage(authPluginName="sasl", payload=b""))
    begin = client.request(pb.START_TLS, startTLSRequest=pb.StartTls())
    client.send(authentication.SerializeToString(), begin.SerializeToString())
    operations = [pb.Response.FromString(client.receive()).header.operation for _ in range(2)]
    assert operations == [pb.AUTH, pb.START_TLS]
    wrap(client, tmp_path)
    assert client.add(entry(1, 0)) == "OK"


def test_tls_that_is_asked_for_twice_harms_nothing(apache_tls: ApacheServed, tmp_path: Path) -> None:
    client = apache_tls.version_3()
    assert start_tls(client) == "OK"
    wrap(client, tmp_path)
    try:
        assert start_tls(client) == "BADREQ"
        assert client.read(1, 0)[0] == "NOLEDGER"
    except (EOFError, ConnectionError, ssl.SSLError):
        pass
    assert secured_2(apache_tls, tmp_path).read(1, 0)[0] == "NOLEDGER"


def test_a_handshake_that_does_not_end_is_given_up(
    apache_tls: ApacheServed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_S", 0.5)
    client = apache_tls.version_3()
    assert start_tls(client) == "OK"
    client.socket.sendall(b"\x16\x03\x01" + struct.pack(">H", 512) + bytes(10))
    assert isinstance(client.socket, socket.socket)
    assert client.is_closed() or client.is_closed()  # an alert may come first
    monkeypatch.undo()
    assert secured_2(apache_tls, tmp_path).read(1, 0)[0] == "NOLEDGER"


def test_certificates_that_change_hold_for_the_next_handshake(
    apache_tls: ApacheServed, authority: Authority, tmp_path: Path
) -> None:
    standing = secured_2(apache_tls, tmp_path)
    new = Authority("new")
    new.save(tmp_path / "ca.pem")
    new.issue(tmp_path / "bookie", hosts=["127.0.0.1"])
    new.issue(tmp_path / "client")
    assert secured_2(apache_tls, tmp_path).add(entry(1, 0)) == "OK"
    assert standing.read(1, 0) == ("OK", entry(1, 0))
