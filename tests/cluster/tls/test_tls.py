"""TLS between clients and real bookies: who is refused and what is said, and certificates replaced while a writer writes."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from prometheus_client.parser import text_string_to_metric_families

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.driver.connections import SMALL_BYTES
from bk_spark.config import TLS_NAMES, BookieConfig, ClientConfig
from bk_spark.errors import BookieUnavailableError, BookKeeperError, ConfigError, NotEnoughBookiesError, UnauthorizedAccessError
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalBookie, LocalCluster
from bk_spark.local.security import Authority, local_tls
from bk_spark.tls.diagnosis import diagnose
from bk_spark.tls.files import LOOK_S, TlsFiles, TlsSource
from bk_spark.tls.grpc_credentials import server_credentials

DEADLINE_S = 60.0

Config = TypeVar("Config", ClientConfig, BookieConfig)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of an authority that the cluster does not know."""
    directory = tmp_path_factory.mktemp("other")
    authority = Authority("other")
    authority.save(directory / "ca.pem")
    authority.issue(directory / "client")
    authority.issue(directory / "bookie", hosts=["127.0.0.1"])
    return directory


@pytest.fixture(scope="module")
def secured_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Bookies with TLS, and ZooKeeper without: so a client whose files are no good comes as far as the bookies."""
    data_dir = tmp_path_factory.mktemp("bookies-with-tls")
    files = local_tls(data_dir / "tls")
    with LocalCluster(bookies=3, data_dir=data_dir, bookie_config=with_files(DEFAULT_BOOKIE_CONFIG, files.server)) as cluster:
        cluster.client_config = with_files(ClientConfig(), files.client)
        yield cluster


def with_files(config: Config, files: TlsFiles) -> Config:
    return replace(config, **dict(zip(TLS_NAMES, astuple(files), strict=True)))


@pytest.fixture(scope="module")
def ledger(secured_cluster: LocalCluster) -> int:
    """A closed ledger with one entry, and with a password."""
    with BookKeeper(secured_cluster.metadata_uri, secured_cluster.client_config) as client:
        with client.create_ledger(password=b"right") as writer:
            writer.append(b"x")
        return writer.ledger_id


def without_tls(config: ClientConfig) -> ClientConfig:
    return replace(config, tls_ca="", tls_certificate="", tls_key="")


def without_certificate(config: ClientConfig) -> ClientConfig:
    return replace(config, tls_certificate="", tls_key="")


REFUSED: dict[str, tuple[Callable[[ClientConfig, Path], ClientConfig], str]] = {
    "no TLS": (
        lambda config, other: without_tls(config),
        r"speaks TLS and this client does not: give tls_ca \(tlsCa, --tls-ca\)",
    ),
    "no certificate": (
        lambda config, other: without_certificate(config),
        "takes only clients with a certificate, and none is given: give tls_certificate and tls_key",
    ),
    "a certificate of another authority": (
        lambda config, other: replace(config, tls_certificate=f"{other}/client.pem", tls_key=f"{other}/client.key"),
        r"refuses this client's certificate .*client.pem \(signed by CN=other\)",
    ),
    "another authority trusted": (
        lambda config, other: replace(config, tls_ca=f"{other}/ca.pem"),
        "shows a certificate that no authority in .*ca.pem signed",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_client_that_bookies_refuse_is_told_why(secured_cluster: LocalCluster, ledger: int, other: Path, case: str) -> None:
    """By a write and by a read, both with the bookie's address."""
    change, why = REFUSED[case]
    refusal = r"the bookie at 127\.0\.0\.1:\d+ " + why
    with BookKeeper(secured_cluster.metadata_uri, change(secured_cluster.client_config, other)) as client:
        writer = client.create_ledger()
        with pytest.raises(NotEnoughBookiesError, match=refusal):
            writer.append(b"x")
        with pytest.raises(BookieUnavailableError, match=refusal):
            list(client.open_ledger(ledger, b"right").read(0, 0))
        bookie_id = secured_cluster.bookies[0].bookie_id
        assert client.describe_bookie(bookie_id) is None


def test_a_wrong_ledger_password_is_refused_and_no_password_is_shown(secured_cluster: LocalCluster, ledger: int) -> None:
    with BookKeeper(secured_cluster.metadata_uri, secured_cluster.client_config) as client:
        for wrong in (b"wrong", b""):
            with pytest.raises(UnauthorizedAccessError, match=f"wrong password for ledger {ledger}") as refused:
                client.open_ledger(ledger, wrong)
            assert "right" not in repr(refused.value)
        handle = client.open_ledger(ledger, b"right")
        assert [batch["payload"].to_pylist() for batch in handle.read(0, 0)] == [[b"x"]]
        assert "right" not in repr(handle) + repr(handle.metadata) + repr(client.config)


def test_a_client_with_tls_is_told_of_a_bookie_without(cluster: LocalCluster, other: Path) -> None:
    config = ClientConfig(tls_ca=f"{other}/ca.pem")
    with (
        BookKeeper(cluster.metadata_uri, config) as client,
        pytest.raises(BookKeeperError, match="speaks no TLS: start it with"),
    ):
        client.create_ledger().append(b"x")


def test_a_cluster_moves_to_tls_bookie_by_bookie_and_serves_all_clients_meanwhile(tmp_path: Path) -> None:
    files = local_tls(tmp_path / "tls")
    secured = with_files(ClientConfig(), files.client)
    ledgers: list[int] = []
    with LocalCluster(bookies=3) as cluster:

        def restart(bookie: LocalBookie, clear_port: int) -> None:
            bookie.stop()
            bookie.config = replace(with_files(bookie.config, files.server), clear_port=clear_port)
            bookie.start()

        def write_and_read_all(config: ClientConfig) -> None:
            with BookKeeper(cluster.metadata_uri, config) as client:
                with client.create_ledger(ack_quorum=3) as writer:
                    writer.append(b"small")
                    writer.append(b"l" * SMALL_BYTES)
                ledgers.append(writer.ledger_id)
                for ledger in ledgers:
                    payloads = [one for batch in client.open_ledger(ledger).read(0, 1) for one in batch["payload"].to_pylist()]
                    assert payloads == [b"small", b"l" * SMALL_BYTES]

        for bookie in cluster.bookies:
            write_and_read_all(ClientConfig())
            restart(bookie, clear_port=0)
        write_and_read_all(ClientConfig())
        for bookie in cluster.bookies:
            write_and_read_all(secured)
            restart(bookie, clear_port=-1)
        write_and_read_all(secured)
        with BookKeeper(cluster.metadata_uri) as client, pytest.raises(BookKeeperError, match="speaks TLS and this client"):
            client.create_ledger().append(b"x")


# --- diagnoses of servers that there are not in a cluster


@contextmanager
def server(directory: Path, ca: Path | None) -> Iterator[int]:
    """A gRPC server with the files bookie.pem and bookie.key; gives the port."""
    files = TlsFiles(str(ca) if ca else "", str(directory / "bookie.pem"), str(directory / "bookie.key"))
    made = grpc.server(None)
    port = made.add_secure_port("127.0.0.1:0", server_credentials(TlsSource(files)))
    made.start()
    yield port
    made.stop(None).wait()


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Authority, Path]:
    """An authority, and a directory with its certificate and the client's."""
    authority = Authority("ours")
    authority.save(tmp_path / "ca.pem")
    authority.issue(tmp_path / "client")
    return authority, tmp_path


@pytest.mark.parametrize(
    ("hosts", "days", "why"),
    [
        (["127.0.0.1"], -1, "shows a certificate that has expired: give it a new one, it takes it without a restart"),
        (["10.0.0.1"], 10, "shows a certificate that is not for '127.0.0.1': its subjectAltName must name the host"),
        (["127.0.0.1"], 10, None),
    ],
)
def test_what_is_wrong_with_a_bookies_certificate_is_said(
    signed: tuple[Authority, Path], hosts: list[str], days: int, why: str | None
) -> None:
    authority, directory = signed
    authority.issue(directory / "bookie", hosts=hosts, days=days)
    with server(directory, None) as port:
        said = diagnose("127.0.0.1", port, TlsFiles(str(directory / "ca.pem"), "", ""))
    assert said is None if why is None else f"the bookie at 127.0.0.1:{port} {why}" in str(said)


def test_an_expired_certificate_of_the_clients_own_is_named(signed: tuple[Authority, Path]) -> None:
    authority, directory = signed
    authority.issue(directory / "bookie", hosts=["127.0.0.1"])
    authority.issue(directory / "client", days=-3)
    files = TlsFiles(*(str(directory / name) for name in ("ca.pem", "client.pem", "client.key")))
    with server(directory, directory / "ca.pem") as port:
        assert "client.pem (expired on 20" in str(diagnose("127.0.0.1", port, files))


def test_where_nobody_answers_or_somebody_says_nothing_tls_is_not_blamed(
    signed: tuple[Authority, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, directory = signed
    files = TlsFiles(str(directory / "ca.pem"), "", "")
    monkeypatch.setattr("bk_spark.tls.diagnosis.STEP_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        assert [diagnose("127.0.0.1", port, one) for one in (files, None)] == [None, None]
    assert [diagnose("127.0.0.1", port, one) for one in (files, None)] == [None, None]


# --- files


@pytest.fixture
def files(signed: tuple[Authority, Path]) -> TlsFiles:
    return TlsFiles(*(str(signed[1] / name) for name in ("ca.pem", "client.pem", "client.key")))


def test_files_that_cannot_be_used_are_named_with_their_setting_before_anything_is_connected(
    files: TlsFiles, tmp_path: Path
) -> None:
    unreachable = "zk://127.0.0.1:1/ledgers"
    ours = ClientConfig(tls_ca=files.ca, tls_certificate=files.certificate, tls_key=files.key)
    Authority("another").issue(tmp_path / "another")
    (tmp_path / "empty").write_text("")
    (tmp_path / "encrypted").write_bytes(encrypted_key())
    cases = {
        r"tls_ca \(.*--tls-ca\) is '.*nowhere': it cannot be read \(No such file": {"tls_ca": "nowhere"},
        r"tls_ca \(.*\) is '.*client.key': there is no certificate in PEM form": {"tls_ca": "client.key"},
        r"tls_certificate \(.*\) is '.*empty': there is no certificate": {"tls_certificate": "empty"},
        r"tls_key \(.*\) is '.*client.pem': there is no private key": {"tls_key": "client.pem"},
        r"tls_key \(.*\) is '.*another.key': it is not the key of the certificate": {"tls_key": "another.key"},
        r"tls_key \(.*\) is '.*encrypted': it is encrypted": {"tls_key": "encrypted"},
        r"tls_ca \(.*\) is '.*': it cannot be read \(Is a directory": {"tls_ca": "."},
    }
    for sentence, change in cases.items():
        config = replace(ours, **{name: str(tmp_path / value) for name, value in change.items()})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=sentence):
            BookKeeper(unreachable, config)


def encrypted_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
    )


def test_a_key_that_everybody_can_read_is_warned_of_once(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    TlsSource(files)
    assert caplog.messages == []
    os.chmod(files.key, 0o644)
    for _ in range(2):
        TlsSource(files)
    assert caplog.messages == [f"{files.key} can be read by everybody on this machine: chmod 600 it"]


def test_files_are_taken_when_they_fit_together_and_a_broken_one_is_logged_once(
    files: TlsFiles, signed: tuple[Authority, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    now = itertools.count()
    source = TlsSource(files, clock_s=lambda: next(now) / 10)
    first = source.content()
    assert source.content() is first
    signed[0].issue(signed[1] / "new")
    shutil.copy(signed[1] / "new.pem", files.certificate)
    assert [source.content() for _ in range(3)] == [first] * 3
    assert len(caplog.messages) == 1
    assert "cannot be used yet, the former ones stay in use: tls_key" in caplog.messages[0]
    shutil.copy(signed[1] / "new.key", files.key)
    second = source.content()
    assert second is not first
    assert second.certificate == (signed[1] / "new.pem").read_bytes()
    Path(files.ca).unlink()
    assert [source.content() for _ in range(2)] == [second] * 2
    assert len(caplog.messages) == 2


def test_the_disk_is_asked_no_more_often_than_is_said(files: TlsFiles, signed: tuple[Authority, Path]) -> None:
    now_s = 0.0
    source = TlsSource(files, clock_s=lambda: now_s)
    first = source.content()
    signed[0].issue(Path(files.certificate).with_suffix(""))
    now_s = 0.9
    assert source.content(LOOK_S) is first
    now_s = 1.0
    assert source.content(LOOK_S) is not first


def test_a_local_clusters_files_are_made_once_and_its_keys_are_its_owners_alone(tmp_path: Path) -> None:
    made = local_tls(tmp_path / "tls")
    content = {path: path.read_bytes() for path in (tmp_path / "tls").iterdir()}
    assert local_tls(tmp_path / "tls") == made
    assert {path: path.read_bytes() for path in (tmp_path / "tls").iterdir()} == content
    keys = [path for path in content if path.suffix == ".key"]
    assert (len(keys), [path.stat().st_mode & 0o077 for path in keys]) == (2, [0, 0])
    for side in (made.server, made.client):
        TlsSource(side)


def test_no_key_is_shown(files: TlsFiles) -> None:
    content = TlsSource(files).content()
    assert content.key is not None
    assert content.key.decode().splitlines()[1] not in repr(content)
    assert "PRIVATE" not in repr(content)


# --- rotation, last: it changes the cluster's files, and puts them back


class Writing:
    """Appends one entry after the other until it is stopped, on one handle."""

    def __init__(self, client: BookKeeper) -> None:
        self._writer = client.create_ledger()
        self._stopped = threading.Event()
        self.problems: list[BaseException] = []
        self.count = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._writer.append(b"x" * 1000)
                self.count += 1
        except BaseException as problem:
            self.problems.append(problem)

    def end(self) -> int:
        """How many entries the ledger has."""
        self._stopped.set()
        self._thread.join()
        assert self.problems == []
        assert len(self._writer.metadata.fragments) == 1, "an ensemble change: a bookie failed an add"
        self._writer.close()
        return self.count


def is_served(uri: str, config: ClientConfig, bookie_id: str) -> bool:
    with BookKeeper(uri, config) as client:
        return client.describe_bookie(bookie_id) is not None


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_authority_is_replaced_under_load_without_an_error_and_its_old_certificates_are_refused_then(
    secured_cluster: LocalCluster, tmp_path: Path, other: Path
) -> None:
    """The clients' files change with the bookies': both sides go on, connections stay, new ones take the new files."""
    uri, tls = secured_cluster.metadata_uri, secured_cluster.data_dir / "tls"
    kept = tmp_path / "kept"
    shutil.copytree(tls, kept)
    old = replace(
        secured_cluster.client_config,
        tls_ca=str(kept / "ca.pem"),
        tls_certificate=str(kept / "client.pem"),
        tls_key=str(kept / "client.key"),
    )
    bookies = [bookie.bookie_id for bookie in secured_cluster.bookies]
    with BookKeeper(uri, secured_cluster.client_config) as client:
        writing = Writing(client)
        wait_until(lambda: writing.count > 10)
        try:
            for name in ("ca.pem", "bookie.pem", "bookie.key", "client.pem", "client.key"):
                shutil.copy(other / name, tls / name)
            wait_until(lambda: all(is_served(uri, secured_cluster.client_config, bookie_id) for bookie_id in bookies))
            assert not any(is_served(uri, old, bookie_id) for bookie_id in bookies)
            before = writing.count
            wait_until(lambda: writing.count > before + 10)
            assert writing.end() > before
            with BookKeeper(uri, old) as refused, pytest.raises(NotEnoughBookiesError, match=r"no authority in .* signed"):
                refused.create_ledger().append(b"x")
            fresh_ca = replace(old, tls_ca=str(tls / "ca.pem"))
            with BookKeeper(uri, fresh_ca) as refused, pytest.raises(NotEnoughBookiesError, match="refuses this client's cert"):
                refused.create_ledger().append(b"x")
        finally:
            shutil.copytree(kept, tls, dirs_exist_ok=True)
        wait_until(lambda: all(is_served(uri, old, bookie_id) for bookie_id in bookies))


def test_a_bookie_that_starts_again_with_new_files_is_reached_by_clients_that_run(secured_cluster: LocalCluster) -> None:
    """The channel that a client has was made with its old files: it takes another one."""
    uri, tls = secured_cluster.metadata_uri, secured_cluster.data_dir / "tls"
    bookie = secured_cluster.bookies[0]
    with BookKeeper(uri, secured_cluster.client_config) as client:
        assert client.describe_bookie(bookie.bookie_id) is not None
        (http,) = (one.http for one in client.list_bookies() if one.bookie_id == bookie.bookie_id)
        config = bookie.config
        bookie.config = replace(config, http_port=int(str(http).split(":")[1]))  # nothing of its address changes
        kept = {path: path.read_bytes() for path in tls.iterdir()}
        authority = Authority("new")
        authority.save(tls / "ca.pem")
        authority.issue(tls / "bookie", hosts=["127.0.0.1"])
        authority.issue(tls / "client")
        try:
            bookie.stop()
            bookie.start()
            assert client.describe_bookie(bookie.bookie_id) is not None
        finally:
            bookie.config = config
            for path, content in kept.items():
                path.write_bytes(content)
        wait_until(lambda: is_served(uri, secured_cluster.client_config, bookie.bookie_id))


def test_the_days_that_certificates_have_left_are_scraped(secured_cluster: LocalCluster) -> None:
    with BookKeeper(secured_cluster.metadata_uri, secured_cluster.client_config) as client:
        address = client.list_bookies()[0].http
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
        families = text_string_to_metric_families(reply.read().decode())
        samples = next(family.samples for family in families if family.name == "bk_spark_bookie_certificate_days_left")
    assert sorted(sample.labels["use"] for sample in samples) == ["ca", "client", "server"]
    for sample in samples:
        assert sample.labels["subject"].startswith("CN=")
        assert sample.value > 0
