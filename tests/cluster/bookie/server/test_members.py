"""Whom a bookie takes for members, on both of its ports. Ref: DESIGN.md, "Who may do what"."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from bk_spark.bookie.server import watched_file
from bk_spark.bookie.server.audit import STRANGER
from bk_spark.bookie.server.members import NO_MEMBER
from bk_spark.entries.digest import master_key, read_password, write_proof
from bk_spark.errors import ConfigError
from bk_spark.local.security import Authority
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.quorum import DENSE
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER
from bk_spark.wire import codec
from bk_spark.wire.frames import pack_add
from bk_spark.wire.messages import (
    AddRequest,
    AdminOperation,
    BookieDescription,
    ForceRequest,
    LastAddConfirmedRequest,
    ReadEnd,
    ReadRequest,
    Status,
    StoreLastAddConfirmedRequest,
)
from tests.cluster.bookie.apache_client import LAST, PROOF, ApacheServed, entry, status_3
from tests.cluster.bookie.served import BOOKIE_ID, DEADLINE_S, KEY
from tests.cluster.bookie.server.test_apache_tls import secured_2, start_tls, wrap

SECRET, TOKEN = b"s" * 32, -77
PROOF_OF_5 = write_proof(SECRET, 5, TOKEN)
WRITE_KEY = PROOF_OF_5 + TOKEN.to_bytes(8, "little", signed=True)
READ_KEY = master_key(read_password(PROOF_OF_5), TOKEN)
KEYED, PLAIN = 5, 6


class Caller:
    """Over gRPC, with one certificate."""

    def __init__(self, apache: ApacheServed, directory: Path, name: str) -> None:
        ca, key, pem = ((directory / one).read_bytes() for one in ("ca.pem", f"{name}.key", f"{name}.pem"))
        credentials = grpc.ssl_channel_credentials(ca, key, pem)
        self.channel = grpc.secure_channel(
            f"127.0.0.1:{apache.served.port}", credentials, [("grpc.use_local_subchannel_pool", 1)]
        )
        self._stub = BookieStub(self.channel)
        self._harness = apache.harness

    def add(self, ledger_id: int, key: bytes, first: int = 0) -> Status:
        request = AddRequest(1, BOOKIE_ID, key, self._harness.batch(ledger_id, first, first))
        [reply] = self._stub.Add(iter([codec.encode_add_request(request)]), timeout=DEADLINE_S)
        return Status(reply.status)

    def read(self, ledger_id: int, key: bytes, *, fence: bool = False) -> tuple[int, Status]:
        """How many batches came, and how it ended."""
        request = codec.encode_read_request(ReadRequest(BOOKIE_ID, ledger_id, key, 0, 0, DENSE, 1 << 20, fence))
        replies = [codec.decode_read_reply(one.SerializeToString()) for one in self._stub.Read(request, timeout=DEADLINE_S)]
        end = replies[-1]
        assert isinstance(end, ReadEnd)
        return len(replies) - 1, end.status

    def confirmed(self, ledger_id: int, key: bytes, *, fence: bool = False) -> Status:
        request = codec.encode_last_add_confirmed_request(LastAddConfirmedRequest(BOOKIE_ID, ledger_id, key, fence))
        return Status(self._stub.ReadLastAddConfirmed(request, timeout=DEADLINE_S).status)

    def confirm(self, ledger_id: int, key: bytes) -> Status:
        request = codec.encode_store_last_add_confirmed_request(StoreLastAddConfirmedRequest(BOOKIE_ID, ledger_id, key, 0))
        return Status(self._stub.StoreLastAddConfirmed(request, timeout=DEADLINE_S).status)

    def force(self, ledger_id: int, key: bytes) -> Status:
        request = codec.encode_force_request(ForceRequest(BOOKIE_ID, ledger_id, key))
        return Status(self._stub.Force(request, timeout=DEADLINE_S).status)

    def administer(self, operation: AdminOperation) -> Status:
        request = codec.encode_administer_request(BOOKIE_ID, operation)
        return Status(self._stub.Administer(request, timeout=DEADLINE_S).status)

    def describe(self) -> BookieDescription:
        return codec.decode_description(self._stub.Describe(codec.encode_describe_request(""), timeout=DEADLINE_S))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Certificates of a member and of a stranger, both of the bookie's authority, and the file of members."""
    authority = Authority("ours")
    authority.save(tmp_path / "ca.pem")
    authority.issue(tmp_path / "bookie", hosts=["127.0.0.1"])
    for name in ("member", "stranger"):
        authority.issue(tmp_path / name)
    (tmp_path / "members").write_text("# who\n\ncertificate:member\n")
    return tmp_path


@pytest.fixture
def apache(harness, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApacheServed]:
    monkeypatch.setattr(watched_file, "LOOK_S", 0.0)
    files = {
        f"tls_{kind}": str(directory / name)
        for kind, name in (("ca", "ca.pem"), ("certificate", "bookie.pem"), ("key", "bookie.key"))
    }
    harness.config = dataclasses.replace(harness.config, **files, members=str(directory / "members"))
    made = ApacheServed(harness)
    yield made
    made.close()


@pytest.fixture
def member(apache: ApacheServed, directory: Path) -> Iterator[Caller]:
    made = Caller(apache, directory, "member")
    assert made.add(KEYED, WRITE_KEY) is made.add(PLAIN, KEY) is Status.OK
    with made.channel:
        yield made


@pytest.fixture
def stranger(apache: ApacheServed, directory: Path, member: Caller) -> Iterator[Caller]:
    made = Caller(apache, directory, "stranger")
    with made.channel:
        yield made


def test_a_member_may_do_everything(member: Caller) -> None:
    for ledger_id, key, reads in ((KEYED, WRITE_KEY, READ_KEY), (PLAIN, KEY, KEY)):
        assert member.read(ledger_id, reads) == (1, Status.OK)
        assert member.confirmed(ledger_id, reads) is member.confirm(ledger_id, key) is member.force(ledger_id, key) is Status.OK
        assert member.read(ledger_id, key, fence=True) == (1, Status.OK)
    assert member.administer(AdminOperation.READ_ONLY_ON) is Status.OK
    assert member.describe().directories


@pytest.mark.parametrize("operation", AdminOperation)
def test_requests_of_operators_are_for_members(stranger: Caller, operation: AdminOperation) -> None:
    assert stranger.administer(operation) is Status.UNAUTHORIZED


def test_a_stranger_reads_keyed_ledgers_with_their_keys_and_does_nothing_else(stranger: Caller, member: Caller) -> None:
    assert stranger.describe() == BookieDescription(Status.OK, BOOKIE_ID, 0, 0, "")
    assert stranger.read(KEYED, READ_KEY) == (1, Status.OK)
    assert stranger.confirmed(KEYED, READ_KEY) is Status.OK
    for ledger_id, key in ((KEYED, READ_KEY), (KEYED, WRITE_KEY), (KEYED, KEY), (PLAIN, KEY), (PLAIN, READ_KEY), (77, KEY)):
        assert stranger.add(ledger_id, key, 1) is Status.UNAUTHORIZED
        assert stranger.read(ledger_id, key, fence=True) == (0, Status.UNAUTHORIZED)
        assert stranger.confirmed(ledger_id, key, fence=True) is Status.UNAUTHORIZED
        assert stranger.confirm(ledger_id, key) is stranger.force(ledger_id, key) is Status.UNAUTHORIZED
    for key in (KEY, READ_KEY, WRITE_KEY):
        assert stranger.read(PLAIN, key) == (0, Status.UNAUTHORIZED)
        assert stranger.confirmed(PLAIN, key) is Status.UNAUTHORIZED
    assert stranger.read(KEYED, KEY) == (0, Status.UNAUTHORIZED)
    for ledger_id, key in ((KEYED, WRITE_KEY), (PLAIN, KEY)):
        assert member.add(ledger_id, key, 1) is Status.OK, "it was not fenced"


def test_a_stranger_is_refused_everything_on_the_port_for_apaches_clients(
    apache: ApacheServed, directory: Path, member: Caller
) -> None:
    client = apache.version_3()
    assert start_tls(client) == "OK"
    wrap(client, directory, "stranger")
    assert client.add(entry(PLAIN, 1)) == "UA"
    assert client.read(PLAIN, 0) == client.read(KEYED, 0) == client.read(PLAIN, 0, fence=PROOF) == ("UA", b"")
    assert status_3(client.poll(PLAIN, -1, timeout_ms=1)) == "UA"
    assert client.force(PLAIN) == "UA"
    assert client.status(pb.GET_BOOKIE_INFO, getBookieInfoRequest=pb.BookieInfoRequest(requested=3)) == "UA"
    older = secured_2(apache, directory, "stranger")
    assert older.add(entry(PLAIN, 1)) == "UA"
    assert older.read(PLAIN, 0) == older.read(PLAIN, LAST, fence=PROOF) == ("UA", b"")
    assert older.batch_read(PLAIN, 0) == ("UA", [])
    request = AddRequest(1, BOOKIE_ID, WRITE_KEY, apache.harness.batch(KEYED, 1, 1))
    client.socket.sendall(b"".join(pack_add(request, 123)))
    answer = client.receive()
    assert answer[0] == 7
    assert NO_MEMBER.encode() in answer
    trusted = apache.version_3()
    assert start_tls(trusted) == "OK"
    wrap(trusted, directory, "member")
    assert trusted.read(PLAIN, 0)[0] == "OK"


def test_the_file_is_read_again_when_it_changes(stranger: Caller, member: Caller, directory: Path) -> None:
    (directory / "members").write_text("certificate:stranger\r\nuser:somebody\n")
    assert stranger.read(PLAIN, KEY) == (1, Status.OK)
    assert member.read(PLAIN, KEY) == (0, Status.UNAUTHORIZED)
    (directory / "members").write_text("nobody\n")
    assert stranger.read(PLAIN, KEY) == (1, Status.OK), "a file that cannot be used leaves the former one in use"


def test_refusals_of_strangers_are_told(stranger: Caller, member: Caller, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    stranger.administer(AdminOperation.LIMBO_END)
    told = [one.getMessage() for one in caplog.records if one.name == AUDIT_LOGGER]
    assert any(STRANGER in one and 'certificate="stranger"' in one for one in told)
    assert not any("administered" in one for one in told)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", r"members \(--members\) is '.*members': it names no member"),
        ("certificate:\n", "line 1 of .*members is 'certificate:': it must be certificate:NAME or user:NAME"),
        ("x509:CN=member\n", "line 1 of .*it must be certificate:NAME or user:NAME"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_the_start(harness, directory: Path, content: str, problem: str) -> None:
    (directory / "members").write_text(content)
    harness.config = dataclasses.replace(
        harness.config,
        tls_ca=str(directory / "ca.pem"),
        tls_certificate=str(directory / "bookie.pem"),
        tls_key=str(directory / "bookie.key"),
        members=str(directory / "members"),
    )
    with pytest.raises(ConfigError, match=problem):
        ApacheServed(harness)
