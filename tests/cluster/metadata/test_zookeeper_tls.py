"""Connections to a real ZooKeeper over TLS, and identities by certificate and by SASL.

Ref: ZooKeeper Administrator's Guide, "Encryption, Authentication, Authorization Options".
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.security import ACL, Id, Permissions

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import ConfigError, MetadataAccessError, MetadataUnavailableError
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.ports import Ports
from bk_spark.local.process import Keeper, end_all
from bk_spark.local.security import Authority, LocalTls
from bk_spark.local.zookeeper_server import LocalZooKeeper, zookeeper_command
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.store import Create
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect
from bk_spark.metadata.zookeeper_session import ZooKeeperSockets
from bk_spark.tls.client_contexts import client_context
from bk_spark.tls.files import TlsFiles
from bk_spark.tls.server_contexts import server_context

SASL_PROVIDER = "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
JAAS = """Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required user_ann="s3cret" user_bob="other";
};
"""
LONG_S = 20.0


class Place:
    """An authority's directory: ``files`` gives a certificate a name, and says what to connect with."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority("ours")
        directory.mkdir(exist_ok=True)
        self.authority.save(directory / "ca.pem")

    def files(self, name: str, *, by: Authority | None = None, hosts: tuple[str, ...] = (), days: int = 10) -> TlsFiles:
        (by or self.authority).issue(self.directory / name, hosts=hosts, days=days)
        return TlsFiles(*(str(self.directory / file) for file in ("ca.pem", f"{name}.pem", f"{name}.key")))


@contextlib.contextmanager
def server(directory: Path, tls: LocalTls | None, *options: str) -> Iterator[LocalZooKeeper]:
    directory.mkdir()
    with Keeper(directory, temporary=False) as keeper, Ports() as ports:
        java = [*zookeeper_command(tls=tls is not None), *options]
        one = LocalZooKeeper(keeper, directory / "zookeeper", ports.reserve(None), java, tls)
        try:
            one.start()
            yield one
        finally:
            end_all([one])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def ours(place: Place) -> TlsFiles:
    return place.files("ann")


@pytest.fixture(scope="module")
def secured(place: Place, ours: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    jaas = place.directory / "jaas.conf"
    jaas.write_text(JAAS)
    options = (f"-Djava.security.auth.login.config={jaas}", SASL_PROVIDER)
    files = LocalTls(place.files("server", hosts=("127.0.0.1",)), ours)
    with server(tmp_path_factory.mktemp("secured") / "of", files, *options) as one:
        yield one


def session(uri: str, tls: TlsFiles | None, auth: str = "", timeout_s: float = LONG_S) -> ZooKeeperStore:
    return connect(uri, connect_timeout_s=timeout_s, session_timeout_s=10.0, auth=auth, tls=tls)


def refused_quickly(uri: str, tls: TlsFiles | None) -> str:
    began_s = time.monotonic()
    with pytest.raises(MetadataUnavailableError) as refused:
        session(uri, tls)
    assert time.monotonic() - began_s < LONG_S - 5
    return str(refused.value)


def test_an_answer_that_came_in_one_record_with_another_is_not_waited_for(place: Place, ours: TlsFiles) -> None:
    """What is decrypted already makes no socket readable; requests that wait to be sent are seen beside it."""
    files = place.files("server", hosts=("127.0.0.1",))
    handler = ZooKeeperSockets()
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as beside:
        accepted = beside.submit(lambda: server_context(files).wrap_socket(listening.accept()[0], server_side=True))
        plain = socket.create_connection(listening.getsockname())
        with client_context(ours).wrap_socket(plain, server_hostname="127.0.0.1") as client, accepted.result() as peer:
            peer.sendall(b"ab")
            assert client.recv(1) == b"a"
            wakes, wake = handler.create_socket_pair()
            with wakes, wake:
                assert handler.select([client, wakes], [], [], 0.2)[0] == [client]
                wake.send(b"x")
                assert handler.select([client, wakes], [], [], 0.2)[0] == [client, wakes]
            assert client.recv(1) == b"b"
            assert handler.select([client], [], [], 0.2)[0] == []


def test_a_session_over_tls_reads_and_writes(secured: LocalZooKeeper, ours: TlsFiles) -> None:
    with session(secured.uri("/many"), ours) as store:
        store.transaction([Create("/many", b""), *(Create(f"/many/{number}", b"x" * 100) for number in range(500))])
        found = store.get_many([f"/many/{number}" for number in range(501)])
        assert [one and one.value for one in found] == [b"x" * 100] * 500 + [None]


def test_a_client_in_clear_of_a_server_with_tls_is_told_so(secured: LocalZooKeeper) -> None:
    said = refused_quickly(f"zk://{secured.address}/ledgers", None)
    assert f"the ZooKeeper server at {secured.address} speaks TLS at this port and this client does not: end" in said


def test_a_client_with_tls_of_a_server_in_clear_is_told_so(zookeeper_server: LocalZooKeeper, ours: TlsFiles) -> None:
    said = refused_quickly(f"zk://{zookeeper_server.address}/ledgers?tls=true", ours)
    assert f"the ZooKeeper server at {zookeeper_server.address} speaks no TLS at this port: name its secureClientPort" in said


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda place: place.files("late", days=-3), "late.pem (expired on 20"),
        (lambda place: place.files("foreign", by=Authority("theirs")), "foreign.pem (signed by CN=theirs)"),
        (
            lambda place: TlsFiles(str(place.directory / "ca.pem"), "", ""),
            "takes only clients with a certificate, and none is given",
        ),
    ],
)
def test_a_client_whose_certificate_is_no_good_is_told_why(
    secured: LocalZooKeeper, place: Place, spoil: Callable[[Place], TlsFiles], why: str
) -> None:
    assert why in refused_quickly(secured.uri("/ledgers"), spoil(place))


def test_a_server_of_another_authority_is_named(secured: LocalZooKeeper, place: Place, ours: TlsFiles) -> None:
    Authority("another").save(place.directory / "another.pem")
    said = refused_quickly(secured.uri("/ledgers"), replace(ours, ca=str(place.directory / "another.pem")))
    assert "shows a certificate that no authority in" in said


@pytest.mark.parametrize(
    ("hosts", "days", "why"),
    [
        (("127.0.0.1",), -1, "shows a certificate that has expired: give it a new one"),
        (("10.0.0.1",), 10, "not for '127.0.0.1': its subjectAltName must name the host that the metadata URI names"),
    ],
)
def test_what_is_wrong_with_a_servers_certificate_is_said(tmp_path: Path, hosts: tuple[str, ...], days: int, why: str) -> None:
    place = Place(tmp_path / "tls")
    files = place.files("ann")
    good = place.files("server", hosts=("127.0.0.1",))
    with server(tmp_path / "of", LocalTls(good, files)) as one:
        one.stop()
        place.files("server", hosts=hosts, days=days)
        one._answers = one._accepts  # type: ignore[method-assign]  # its own look at itself would be refused
        one.start()
        assert why in refused_quickly(one.uri("/ledgers"), files)


def test_a_certificate_is_an_identity_and_who_shows_another_one_is_refused(
    secured: LocalZooKeeper, place: Place, ours: TlsFiles
) -> None:
    uri, znodes = secured.uri("/by-certificate"), Znodes("/by-certificate")
    with session(uri, ours, "x509") as store:
        initialise_cluster(store, znodes)
        store.create(f"{znodes.root}/more")
        wanted = [ACL(Permissions.ALL, Id("x509", "CN=ann"))]
        assert store.acls([znodes.root, znodes.available, f"{znodes.root}/more"]) == [wanted] * 3
    for auth in ("x509", ""):
        with pytest.raises(MetadataAccessError, match="ZooKeeper refuses access to /by-certificate"):
            BookKeeper(uri, _config(place.files("eve"), auth))


def test_a_password_over_tls_does_not_let_everybody_in_who_shows_the_same_certificate(
    secured: LocalZooKeeper, ours: TlsFiles
) -> None:
    uri, znodes = secured.uri("/by-password"), Znodes("/by-password")
    for auth in ("digest:ann:s3cret", "sasl:ann:s3cret"):
        with session(uri, ours, auth) as store:
            store.create(f"/by-{auth[:4]}")
            found = store.acls([f"/by-{auth[:4]}"])[0]
            assert [one.id.scheme for one in found or []] == [auth.partition(":")[0]]
    with session(uri, ours, "sasl:ann:s3cret") as store:
        initialise_cluster(store, znodes)
        assert store.acls([znodes.root]) == [[ACL(Permissions.ALL, Id("sasl", "ann"))]]
    for auth in ("x509", "", "sasl:bob:other", "digest:ann:s3cret"):
        with pytest.raises(MetadataAccessError, match="ZooKeeper refuses access to /by-password"):
            BookKeeper(uri, _config(ours, auth))


def test_a_wrong_sasl_password_is_refused_at_once_and_is_not_shown(secured: LocalZooKeeper, ours: TlsFiles) -> None:
    began_s = time.monotonic()
    with pytest.raises(MetadataAccessError) as refused:
        session(secured.uri("/ledgers"), ours, "sasl:ann:wr0ng")
    assert time.monotonic() - began_s < LONG_S - 5
    assert "ZooKeeper refuses access to any path" in str(refused.value)
    assert "wr0ng" not in str(refused.value)


def test_new_files_are_used_by_the_next_connection_of_a_session(secured: LocalZooKeeper, place: Place) -> None:
    files = place.files("turning")
    with session(secured.uri("/ledgers"), files, "x509") as store:
        store.create("/turned-before")
        turned = place.files("turned")
        for kind in ("key", "pem"):
            (place.directory / f"turned.{kind}").replace(place.directory / f"turning.{kind}")
        assert turned != files
        store._handler.cut()
        deadline = time.monotonic() + LONG_S
        while True:
            with contextlib.suppress(MetadataUnavailableError):
                store.create(f"/turned-{time.monotonic_ns()}-", ephemeral=True)
                name = next(one for one in store.children("/") if one.startswith("turned-") and one != "turned-before")
                break
            assert time.monotonic() < deadline
        assert [acl and acl[0].id.id for acl in store.acls([f"/{name}"])] == ["CN=turned"]
        with pytest.raises(MetadataAccessError):  # the next certificate of a member has the same subject
            store.get("/turned-before")


def _config(files: TlsFiles, auth: str) -> ClientConfig:
    return ClientConfig(tls_ca=files.ca, tls_certificate=files.certificate, tls_key=files.key, zookeeper_auth=auth)


@pytest.mark.parametrize(
    ("uri", "auth", "certificate", "why"),
    [
        ("zk://127.0.0.1:1/ledgers?tls=true", "", None, r"tls_ca \(.*\) is missing: the metadata URI zk://.* asks for TLS"),
        ("zk://127.0.0.1:1/ledgers", "x509", "ann", r"zookeeper_auth \(.*\) is 'x509': it shows a certificate over TLS alone"),
        ("zk://127.0.0.1:1/ledgers?tls=true", "x509", "", r"tls_certificate \(.*\) is missing: it is the identity"),
        ("zk://127.0.0.1:1/ledgers?tls=maybe", "", "ann", "may have tls=true and nothing else"),
    ],
)
def test_settings_that_do_not_fit_the_uri_are_refused_before_anything_is_connected(
    ours: TlsFiles, uri: str, auth: str, certificate: str | None, why: str
) -> None:
    files = {None: None, "": replace(ours, certificate="", key=""), "ann": ours}[certificate]
    with pytest.raises(ConfigError, match=why):
        session(uri, files, auth)


def test_a_whole_cluster_speaks_tls_with_its_zookeeper(secured_cluster: LocalCluster) -> None:
    assert secured_cluster.metadata_uri.endswith("?tls=true")
    said = refused_quickly(secured_cluster.metadata_uri.removesuffix("?tls=true"), None)
    assert "speaks TLS at this port" in said
