"""What a bookie's two ports write into the audit log. Ref: docs/guide/secure.md, "The audit log"."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from bk_spark.bookie.server import open_calls
from bk_spark.bookie.server.audit import CALLS, CLEAR, CONNECTIONS, WRONG_KEY
from bk_spark.entries.digest import master_key
from bk_spark.local.security import Authority
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.quorum import DENSE
from bk_spark.telemetry.logging_setup import AUDIT_LOGGER
from bk_spark.wire.codec import encode_administer_request, encode_describe_request, encode_read_request
from bk_spark.wire.messages import AdminOperation, ReadRequest, Status
from tests.cluster.bookie import served as client_of
from tests.cluster.bookie.apache_client import OTHER_PROOF, PROOF, ApacheServed, Version3, entry
from tests.cluster.bookie.served import BOOKIE_ID, DEADLINE_S, KEY, Served

ON = AdminOperation.READ_ONLY_ON


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[int], list[str]]:
    """Waits for so many lines, and gives those since the last call, without ports."""
    caplog.set_level(logging.INFO, AUDIT_LOGGER)

    def wait(count: int) -> list[str]:
        deadline = time.monotonic() + DEADLINE_S
        while len(found := [one.getMessage() for one in caplog.records if one.name == AUDIT_LOGGER]) < count:
            assert time.monotonic() < deadline, found
            time.sleep(0.01)
        caplog.clear()
        return [_without_port(line) for line in found]

    return wait


def _without_port(line: str) -> str:
    before, peer, after = line.partition("peer=127.0.0.1:")
    return before + peer.rstrip(":") + " " + after.partition(" ")[2] if peer else line


@pytest.fixture
def served(harness) -> Iterator[Served]:
    made = Served(harness)
    yield made
    made.close()


def test_a_ledger_that_is_fenced_by_a_read_or_with_its_last_add_confirmed_is_told(served: Served, lines) -> None:
    assert Status(served.add(1, 0, 4).result(DEADLINE_S)) is Status.OK
    served.read(1, 0, 4).result(DEADLINE_S)
    assert lines(1) == ["event=fenced ledger=1 peer=127.0.0.1 certificate=none"]
    served.confirmed(2, fence=True).result(DEADLINE_S)
    assert lines(1) == ["event=fenced ledger=2 peer=127.0.0.1 certificate=none"]
    served.read(1, 0, 4, fence=False).result(DEADLINE_S)
    served.confirmed(1).result(DEADLINE_S)
    assert lines(0) == []


def test_a_fence_whose_client_goes_away_at_once_is_told_all_the_same(served: Served, lines) -> None:
    served.disk.sync_may_end.clear()
    call = served.confirmed(3, fence=True)
    served.wait_for_queued_bytes()
    call.cancel()
    served.disk.sync_may_end.set()
    assert lines(1) == ["event=fenced ledger=3 peer=127.0.0.1 certificate=none"]


def test_what_an_operator_changes_is_told_and_what_a_dashboard_looks_at_is_not(served: Served, lines) -> None:
    for operation in (AdminOperation.BOOKIE_STATUS, AdminOperation.GC_STATUS, AdminOperation.LIMBO_STATUS, ON):
        served.stub.Administer(encode_administer_request(BOOKIE_ID, operation), timeout=DEADLINE_S)
    assert lines(1) == ["event=administered operation=READ_ONLY_ON status=OK peer=127.0.0.1 certificate=none"]


def test_a_wrong_password_is_told_once_for_each_client_whatever_it_asks_for(
    served: Served, lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Status(served.add(1, 0, 4).result(DEADLINE_S)) is Status.OK
    monkeypatch.setattr(client_of, "KEY", master_key(b"another"))
    assert Status(served.add(1, 5, 9).result(DEADLINE_S)) is Status.UNAUTHORIZED
    refused = f'event=refused reason="{WRONG_KEY}" peer=127.0.0.1 certificate=none'
    assert lines(1) == [refused]
    served.read(1, 0, 4).result(DEADLINE_S)
    served.read(1, 0, 4, fence=False).result(DEADLINE_S)
    served.confirmed(1).result(DEADLINE_S)
    served.confirm(1, 4).result(DEADLINE_S)
    served.force(1).result(DEADLINE_S)
    served.stop()
    assert lines(1) == [f"{refused} times=5 within_s=60"]


def test_a_call_above_the_number_that_may_be_open_is_told(served: Served, lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_calls, "MAX_CALLS", 0)
    with pytest.raises(grpc.RpcError):
        served.stub.Describe(encode_describe_request(""), timeout=DEADLINE_S)
    assert lines(1) == [f'event=refused reason="{CALLS}" peer=127.0.0.1 certificate=none']


def test_apaches_clients_are_told_of_as_others_are(apache: ApacheServed, lines) -> None:
    client = apache.version_3()
    assert client.add(entry(1, 0)) == "OK"
    assert client.read(1, 0, fence=PROOF)[0] == "OK"
    assert lines(1) == ["event=fenced ledger=1 peer=127.0.0.1 certificate=none"]
    assert client.read(1, 0, fence=OTHER_PROOF)[0] == "UA"
    assert lines(1) == [f'event=refused reason="{WRONG_KEY}" peer=127.0.0.1 certificate=none']


def test_a_connection_of_apaches_above_the_number_that_may_be_open_is_told(harness, lines) -> None:
    harness.config = dataclasses.replace(harness.config, max_connections=16)
    apache = ApacheServed(harness)
    try:
        for _ in range(16):
            assert apache.version_2().read(1, 0)[0] == "NOLEDGER"
        with pytest.raises((EOFError, ConnectionError)):
            apache.version_2().read(1, 0)
        assert lines(1) == [f'event=refused reason="{CONNECTIONS}" peer=127.0.0.1 certificate=none']
    finally:
        apache.close()


@pytest.fixture
def secured(harness, tmp_path: Path) -> Iterator[ApacheServed]:
    """A bookie that asks for certificates."""
    authority = Authority("ours")
    authority.save(tmp_path / "ca.pem")
    authority.issue(tmp_path / "bookie", hosts=["127.0.0.1"])
    authority.issue(tmp_path / "spark-client")
    names = {"tls_ca": "ca.pem", "tls_certificate": "bookie.pem", "tls_key": "bookie.key"}
    harness.config = dataclasses.replace(harness.config, **{name: str(tmp_path / file) for name, file in names.items()})
    made = ApacheServed(harness)
    yield made
    made.close()


def test_the_name_in_the_certificate_is_told_on_both_ports(secured: ApacheServed, tmp_path: Path, lines) -> None:
    files = [(tmp_path / name).read_bytes() for name in ("ca.pem", "spark-client.key", "spark-client.pem")]
    with grpc.secure_channel(f"127.0.0.1:{secured.served.port}", grpc.ssl_channel_credentials(*files)) as channel:
        request = ReadRequest(BOOKIE_ID, 1, KEY, 0, 0, DENSE, 1 << 20, True)
        list(BookieStub(channel).Read(encode_read_request(request), timeout=DEADLINE_S))
    assert lines(1) == ['event=fenced ledger=1 peer=127.0.0.1 certificate="spark-client"']
    client = secured.version_3()
    assert client.status(pb.START_TLS, startTLSRequest=pb.StartTls()) == "OK"
    wrap(client, tmp_path, "spark-client")
    client.read(2, 0, fence=PROOF)
    assert lines(1) == ['event=fenced ledger=2 peer=127.0.0.1 certificate="spark-client"']


def test_who_sends_requests_before_tls_or_shows_no_certificate_is_told(secured: ApacheServed, tmp_path: Path, lines) -> None:
    for client in (secured.version_2(), secured.version_3()):
        assert client.read(1, 0)[0] == "UA"
    assert lines(1) == [f'event=refused reason="{CLEAR}" peer=127.0.0.1 certificate=none']
    stranger = secured.version_3()
    assert stranger.status(pb.START_TLS, startTLSRequest=pb.StartTls()) == "OK"
    with contextlib.suppress(ssl.SSLError, EOFError, ConnectionError):  # refused in the handshake, or right after it
        wrap(stranger, tmp_path, None)
        stranger.read(1, 0)
    reason = "the TLS handshake failed: PEER_DID_NOT_RETURN_A_CERTIFICATE"
    assert lines(1) == [f'event=refused reason="{reason}" peer=127.0.0.1 certificate=none']


def wrap(client: Version3, directory: Path, name: str | None) -> None:
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    if name is not None:
        context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
