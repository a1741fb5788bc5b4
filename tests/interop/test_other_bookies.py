"""Apache's bookies that are set up in other ways: with TLS, with authentication, and of a version without batch reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.speed.measure import SkippedError
from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import NotEnoughBookiesError
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.security import Authority, local_tls
from bk_spark.tls.files import TlsFiles
from tests.interop.apache import HERE, IS_ALL, Kind, apache_cluster, read_all, uri

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IS_ALL, reason="make interop: three more clusters"),
]

PAYLOADS = [b"%d" % one for one in range(3000)]


@contextmanager
def clients(zookeeper: LocalCluster, directory: Path, kind: Kind) -> Iterator[Callable[[ClientConfig], BookKeeper]]:
    """A cluster of one bookie; gives what makes its clients."""
    try:
        with apache_cluster(zookeeper, directory, replace(kind, bookies=1)):
            yield lambda config: BookKeeper(uri(zookeeper, directory), config)
    except SkippedError as reason:
        pytest.skip(f"Apache BookKeeper's bookies are not to be had: {reason}")


def write_and_read(client: BookKeeper) -> list[bytes]:
    with client.create_ledger(1, 1, 1) as writer:
        writer.append_batch(PAYLOADS)
    with client.open_ledger(writer.ledger_id) as reader:
        return read_all(reader)


def configured(files: TlsFiles) -> ClientConfig:
    return ClientConfig(tls_ca=files.ca, tls_certificate=files.certificate, tls_key=files.key)


def refusal(client: BookKeeper) -> str:
    """What is said of the only bookie."""
    with client, client.create_ledger(1, 1, 1) as writer, pytest.raises(NotEnoughBookiesError) as refused:
        writer.append(b"x")
    return str(refused.value)


@pytest.mark.parametrize("asks", ["takes any client", "asks for a certificate"])
def test_all_traffic_is_over_tls_if_the_client_has_tls_files(zookeeper: LocalCluster, tmp_path: Path, asks: str) -> None:
    is_mutual = asks == "asks for a certificate"
    made = local_tls(tmp_path / "tls")
    bookie, files = made.server, made.client
    other = Authority("other")
    other.save(tmp_path / "other.pem")
    other.issue(tmp_path / "stranger")
    settings = {
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsProvider": "JDK",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": bookie.key,
        "tlsCertificatePath": bookie.certificate,
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": bookie.ca,
        "tlsClientAuthentication": str(is_mutual).lower(),
    }
    with clients(zookeeper, tmp_path / f"tls{is_mutual:d}", Kind(settings)) as connect:
        with connect(configured(files)) as client:
            assert write_and_read(client) == PAYLOADS
        with_another_ca = configured(replace(files, ca=str(tmp_path / "other.pem")))
        assert "shows a certificate that no authority in" in refusal(connect(with_another_ca))
        without = configured(replace(files, certificate="", key=""))
        stranger = configured(replace(files, certificate=str(tmp_path / "stranger.pem"), key=str(tmp_path / "stranger.key")))
        if is_mutual:
            assert "takes only clients with a certificate, and none is given" in refusal(connect(without))
            assert "refuses this client's certificate" in refusal(connect(stranger))
        else:
            with connect(without) as client:
                assert write_and_read(client) == PAYLOADS


def test_a_bookie_without_tls_is_refused_by_a_client_with_tls_files(zookeeper: LocalCluster, tmp_path: Path) -> None:
    files = local_tls(tmp_path / "tls").client
    with clients(zookeeper, tmp_path / "clear", Kind()) as connect:
        assert "speaks no TLS" in refusal(connect(configured(files)))


def test_a_bookie_without_batch_reads_is_read_by_single_ones(zookeeper: LocalCluster, tmp_path: Path) -> None:
    with clients(zookeeper, tmp_path / "older", Kind(pom=HERE / "older-pom.xml")) as connect, connect(ClientConfig()) as client:
        for _ in range(2):
            assert write_and_read(client) == PAYLOADS
