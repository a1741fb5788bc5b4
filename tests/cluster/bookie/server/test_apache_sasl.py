"""SASL on the port for Apache's clients: nothing is served before a client has authenticated.

Ref: apache/bookkeeper's AuthHandler.ServerSideHandler, SASLBookieAuthProvider and SASLClientAuthProvider.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bk_spark.bookie.server import watched_file
from bk_spark.bookie.server.apache import listener
from bk_spark.bookie.server.audit import CLEAR, LOGINS, SLOW_LOGIN, UNKNOWN
from bk_spark.client.driver.apache.connecting import open_framed
from bk_spark.client.driver.apache.login_access import LoginAccess
from bk_spark.client.driver.apache.sasl import Credential
from bk_spark.client.driver.framed_adds import AddConnection
from bk_spark.local.security import Authority
from bk_spark.metadata.registration import BookieAddress
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER
from bk_spark.wire.frames import pack_add
from bk_spark.wire.messages import MAX_MESSAGE_BYTES, AddReply, Status
from tests.cluster.bookie.apache_client import (
    AUTH,
    LAST,
    PROOF,
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
)
from tests.cluster.bookie.served import DEADLINE_S
from tests.sasl_client import nonce_of, proof, response
from tests.soak.fuzz.apache_server_targets import _adds

USER, PASSWORD = "bookkeeper-etl", "s3cret:x"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(f"# who may write\n\n{USER}:{PASSWORD}\nother:{PASSWORD}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def sasl(harness, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApacheServed]:
    monkeypatch.setattr(watched_file, "LOOK_S", 0.0)
    harness.config = dataclasses.replace(harness.config, apache_users=str(file))
    made = ApacheServed(harness)
    yield made
    made.close()


@pytest.fixture
def over_tls(harness, file: Path, tmp_path: Path) -> Iterator[ApacheServed]:
    authority = Authority("ours")
    authority.save(tmp_path / "ca.pem")
    authority.issue(tmp_path / "bookie", hosts=["127.0.0.1"])
    tls = {"tls_certificate": str(tmp_path / "bookie.pem"), "tls_key": str(tmp_path / "bookie.key")}
    harness.config = dataclasses.replace(harness.config, apache_users=str(file), **tls)
    made = ApacheServed(harness)
    yield made
    made.close()


@pytest.fixture
def refusals(caplog: pytest.LogCaptureFixture) -> Callable[[int], list[str]]:
    """Waits for so many lines of the audit log, and gives what they say behind the client's port."""
    caplog.set_level(logging.INFO, AUDIT_LOGGER)

    def wait(count: int) -> list[str]:
        deadline = time.monotonic() + DEADLINE_S
        while len(found := [one.getMessage() for one in caplog.records if one.name == AUDIT_LOGGER]) < count:
            assert time.monotonic() < deadline, found
            time.sleep(0.01)
        return [line.partition("event=refused reason=")[2] for line in found]

    return wait


def message(payload: bytes, plugin: str = "sasl") -> pb.AuthMessage:
    return pb.AuthMessage(authPluginName=plugin, payload=payload)


def say(client: Version2 | Version3, payload: bytes, plugin: str = "sasl") -> bytes | None:
    """The bookie's answer; None if it refuses in a frame."""
    if isinstance(client, Version3):
        answer = client.ask(pb.AUTH, authRequest=message(payload, plugin))
        return answer.authResponse.payload if status_3(answer) == "OK" else None
    client.send(struct.pack(">BBH", 2, AUTH, 0) + message(payload, plugin).SerializeToString())
    frame = client.receive()
    assert frame[:4] == struct.pack(">BBH", 2, AUTH, 0)
    answer = pb.AuthMessage.FromString(frame[4:])
    assert answer.authPluginName == plugin
    return answer.payload


def log_in(client: Version2 | Version3, user: str = USER, password: str = PASSWORD) -> bytes | None:
    challenge = say(client, b"")
    assert challenge is not None
    nonce = nonce_of(challenge)
    answer = say(client, response(user, password, nonce, authzid=user))
    assert answer in (None, proof(user, PASSWORD, nonce, authzid=user))
    return answer


@pytest.mark.parametrize("version", [2, 3])
def test_a_client_that_has_authenticated_is_served(sasl: ApacheServed, version: int) -> None:
    client = sasl.of_version(version)
    assert log_in(client)
    assert client.add(entry(1, 0)) == "OK"
    assert client.read(1, 0) == ("OK", entry(1, 0))
    large = entry(2, 0, bytes(200_000), length=1)
    assert client.add(large) == "OK"
    assert client.read(1, LAST, fence=PROOF)[0] == "OK"


def test_a_message_behind_the_last_one_is_answered_as_where_nobody_must_authenticate(sasl: ApacheServed) -> None:
    """Apache's client sends one."""
    client = sasl.version_3()
    assert log_in(client)
    assert client.ask(pb.AUTH, authRequest=message(b"")).authResponse.authPluginName == "AuthDisabledPlugin"
    assert client.add(entry(1, 0)) == "OK"


def test_nothing_is_served_before_and_what_was_asked_is_told(sasl: ApacheServed, refusals) -> None:
    v3 = sasl.version_3()
    requests = {
        pb.ADD_ENTRY: {"addRequest": add_3(entry(1, 0))},
        pb.READ_ENTRY: {"readRequest": read_3(1, LAST, PROOF)},
        pb.WRITE_LAC: {"writeLacRequest": pb.WriteLacRequest(ledgerId=1, lac=0, masterKey=PROOF, body=b"x")},
        pb.READ_LAC: {"readLacRequest": pb.LedgerRequest(ledgerId=1)},
        pb.FORCE_LEDGER: {"forceLedgerRequest": pb.LedgerRequest(ledgerId=1)},
        pb.GET_BOOKIE_INFO: {"getBookieInfoRequest": pb.BookieInfoRequest(requested=3)},
        pb.GET_LIST_OF_ENTRIES_OF_LEDGER: {"getListOfEntriesOfLedgerRequest": pb.LedgerRequest(ledgerId=1)},
    }
    for operation, fields in requests.items():
        assert v3.status(operation, **fields) == "UA", operation
    v2 = sasl.version_2()
    for frame in (add_2(entry(1, 0)), read_2(1, LAST, fence=PROOF), batch_read_2(1, 0, 1)):
        v2.send(frame)
        assert struct.unpack_from(">i", v2.receive(), 4) == (102,)
    assert refusals(1) == [refusals(1)[0]]
    assert refusals(1)[0].startswith(f'"{UNKNOWN}" peer=127.0.0.1:')
    assert log_in(v3)
    assert v3.read(1, 0)[0] == "NOLEDGER"  # nothing was added or fenced


def test_small_adds_of_our_own_client_are_not_taken_before(sasl: ApacheServed) -> None:
    client = sasl.version_2()
    client.socket.sendall(b"".join(pack_add(_adds()[0], 123)))
    with contextlib.suppress(EOFError):
        assert struct.unpack_from(">i", client.receive(), 4)[0] != 0
    assert log_in(after := sasl.version_3())
    assert after.read(9, LAST)[0] == "NOLEDGER"


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [(USER, "wrong", "its password is wrong"), ("nobody", PASSWORD, "there is no such user")],
)
def test_a_wrong_password_ends_the_connection_and_is_told_with_the_user(
    sasl: ApacheServed, refusals, version: int, user: str, password: str, reason: str
) -> None:
    client = sasl.of_version(version)
    with contextlib.suppress(EOFError):  # version 2 has no frame that refuses
        assert log_in(client, user, password) is None
    assert client.is_closed()
    [told] = refusals(1)
    assert told.startswith(f'"{reason}" peer=127.0.0.1:')
    assert told.endswith(f' certificate=none user="{user}"')


def test_the_user_is_named_in_what_an_authenticated_client_does(sasl: ApacheServed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    client = sasl.version_3()
    assert log_in(client)
    client.add(entry(1, 0))
    client.read(1, LAST, fence=PROOF)
    [line] = [one.getMessage() for one in caplog.records if one.name == AUDIT_LOGGER]
    assert line.startswith("event=fenced ledger=1 peer=127.0.0.1:")
    assert line.endswith(f'certificate=none user="{USER}"')


def test_a_question_whether_one_must_authenticate_is_answered_and_no_refusal_to_tell(sasl: ApacheServed, refusals) -> None:
    client = sasl.version_3()
    for _ in range(3):
        assert say(client, b"", "AuthDisabledPlugin") is None
    assert log_in(client)
    assert refusals(0) == []


@pytest.mark.parametrize("version", [2, 3])
def test_another_mechanism_is_refused(sasl: ApacheServed, refusals, version: int) -> None:
    client = sasl.of_version(version)
    with contextlib.suppress(EOFError):
        assert say(client, b"`\x82\x01") is None
    assert client.is_closed()
    assert "it begins with another mechanism than DIGEST-MD5" in refusals(1)[0]


def test_a_message_of_version_2_that_is_none_ends_the_connection(sasl: ApacheServed) -> None:
    client = sasl.version_2()
    client.send(struct.pack(">BBH", 2, AUTH, 0) + b"\xff")
    assert client.is_closed()


def test_a_changed_file_is_used_by_new_connections(sasl: ApacheServed, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = sasl.version_3()
    assert log_in(first)
    file.write_text(f"second:{PASSWORD}\n")
    assert log_in(sasl.version_3(), "second")
    assert log_in(sasl.version_3()) is None
    assert first.add(entry(1, 0)) == "OK"
    caplog.set_level(logging.WARNING)
    file.write_text("broken\n")
    assert log_in(sasl.version_3(), "second")
    assert "the file of users changed and cannot be used" in caplog.text
    os.remove(file)
    assert log_in(sasl.version_3(), "second")


def test_who_does_not_authenticate_in_time_is_closed(sasl: ApacheServed, refusals, monkeypatch: pytest.MonkeyPatch) -> None:
    known, stranger = sasl.version_3(), sasl.version_3()
    assert log_in(known)
    assert say(stranger, b"")
    monkeypatch.setattr(listener, "LOGIN_S", 0.2)
    assert stranger.is_closed()
    assert SLOW_LOGIN in refusals(1)[0]
    assert known.add(entry(1, 0)) == "OK"


def test_the_oldest_of_too_many_strangers_gives_way(sasl: ApacheServed, refusals, monkeypatch: pytest.MonkeyPatch) -> None:
    known = sasl.version_3()
    assert log_in(known)
    monkeypatch.setattr(listener, "STRANGERS_SHARE", 10**9)  # one
    oldest = sasl.version_3()
    assert say(oldest, b"")
    newest = sasl.version_3()
    assert log_in(newest)
    assert oldest.is_closed()
    assert LOGINS in refusals(1)[0]
    assert known.add(entry(1, 0)) == "OK"


@pytest.mark.parametrize("version", [2, 3])
def test_a_stranger_cannot_make_the_bookie_hold_a_large_frame(
    sasl: ApacheServed, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "LOGIN_S", DEADLINE_S)
    client = sasl.of_version(version)
    client.socket.sendall(struct.pack(">I", listener.STRANGERS_FRAME_BYTES + 1) + b"x")
    assert _ends_within(client, DEADLINE_S / 4)
    known = sasl.of_version(version)
    assert log_in(known)
    known.socket.sendall(struct.pack(">I", MAX_MESSAGE_BYTES) + b"x")
    assert not _ends_within(known, 0.2)


def _ends_within(client: Version2 | Version3, seconds: float) -> bool:
    client.socket.settimeout(seconds)
    try:
        return client.is_closed()
    except TimeoutError:
        return False


# --- with TLS


def start_tls(client: Version3, tmp_path: Path) -> None:
    answer = pb.Response.FromString(client.receive())
    assert (answer.header.operation, answer.status) == (pb.START_TLS, 0)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")


@pytest.mark.parametrize("order", ["before", "with", "behind"])
def test_a_first_message_in_clear_around_start_tls_is_answered_over_tls(
    over_tls: ApacheServed, tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's clients do so. What they send once they are answered must not come into the handshake."""
    monkeypatch.setattr(listener, "EARLY_S", DEADLINE_S)
    client = over_tls.version_3()
    early = client.request(pb.AUTH, authRequest=message(b""))
    frames = [early.SerializeToString(), client.request(pb.START_TLS, startTLSRequest=pb.StartTls()).SerializeToString()]
    frames = frames if order == "before" else frames[::-1]
    if order == "with":
        client.send(*frames)
    else:
        client.send(frames[0])
        assert not _ends_within(client, 0.2)
        client.send(frames[1])
    start_tls(client, tmp_path)
    answer = pb.Response.FromString(client.receive())
    assert (answer.header.operation, answer.header.txnId) == (pb.AUTH, early.header.txnId)
    assert client.read(1, 0)[0] == "UA"
    nonce = nonce_of(answer.authResponse.payload)
    assert say(client, response(USER, PASSWORD, nonce)) == proof(USER, PASSWORD, nonce)
    assert client.add(entry(1, 0)) == "OK"


@pytest.mark.parametrize("version", [2, 3])
def test_nothing_else_may_come_behind_start_tls(over_tls: ApacheServed, tmp_path: Path, version: int) -> None:
    """Who stands between client and bookie might put it there."""
    client = over_tls.version_3()
    injected = (
        add_2(entry(1, 0)) if version == 2 else client.request(pb.ADD_ENTRY, addRequest=add_3(entry(1, 0))).SerializeToString()
    )
    client.send(client.request(pb.START_TLS, startTLSRequest=pb.StartTls()).SerializeToString(), injected)
    assert client.is_closed()


def test_a_client_that_asks_for_tls_first_authenticates_behind_it(over_tls: ApacheServed, tmp_path: Path) -> None:
    client = over_tls.version_3()
    client.send(client.request(pb.START_TLS, startTLSRequest=pb.StartTls()).SerializeToString())
    start_tls(client, tmp_path)
    assert client.read(1, 0)[0] == "UA"
    assert log_in(client)
    assert client.add(entry(1, 0)) == "OK"


def test_where_tls_is_asked_of_all_nobody_authenticates_in_clear(over_tls: ApacheServed, refusals, monkeypatch) -> None:
    monkeypatch.setattr(listener, "LOGIN_S", 0.5)
    client = over_tls.version_3()
    client.send(client.request(pb.AUTH, authRequest=message(b"")).SerializeToString())
    assert status_3(client.ask(pb.AUTH, authRequest=message(b""))) == "UA"
    assert CLEAR in refusals(1)[0]
    assert client.is_closed()


# --- our own client at it


def as_client(sasl: ApacheServed, auth: str) -> Status:
    """A small add, by a client with this credential."""
    pytest.importorskip("puresasl")
    replies: list[AddReply] = []

    async def whole() -> None:
        access = LoginAccess(credential=Credential.of(auth))
        connection = await open_framed(BookieAddress("bookie-1", "127.0.0.1", sasl.port), access, AddConnection())
        answered = asyncio.Event()
        connection.on_reply = lambda reply: (replies.append(reply), answered.set())
        connection.write(pack_add(_adds()[0], 123))
        await asyncio.wait_for(answered.wait(), DEADLINE_S)
        connection.close("the test has ended")

    asyncio.run(whole())
    return replies[0].status


def test_small_adds_of_our_own_client_are_taken_with_its_credential(sasl: ApacheServed) -> None:
    assert as_client(sasl, f"sasl:{USER}:{PASSWORD}") is Status.OK


@pytest.mark.parametrize(
    ("auth", "problem"),
    [
        (f"sasl:{USER}:wrong", r"refuses the user or the password of bookie_auth \(bookieAuth, --bookie-auth-file\)"),
        ("", "asks its clients to authenticate: by SASL with bookie_auth"),
    ],
)
def test_our_own_client_with_a_wrong_password_or_none_is_told(sasl: ApacheServed, auth: str, problem: str) -> None:
    with pytest.raises(ConnectionError, match=problem):
        as_client(sasl, auth)
