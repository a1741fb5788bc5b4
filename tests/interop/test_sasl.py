"""SASL, DIGEST-MD5: our client on Apache's bookies that ask for it, and Apache's client on ours that do.

Ref: apache/bookkeeper's SASLBookieAuthProviderFactory, SASLClientProviderFactory and MD5DigestBookKeeperTest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.bookkeeper_cluster import BookKeeperCluster, JavaPrograms, java_command
from benchmarks.speed.measure import SkippedError
from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import NotEnoughBookiesError
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalCluster
from bk_spark.local.security import local_tls
from tests.interop.apache import (
    IS_ALL,
    JAVA,
    ApacheError,
    JavaClient,
    Kind,
    apache_cluster,
    java_client,
    payload,
    read_all,
    uri,
)

pytest.importorskip("puresasl")

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IS_ALL, reason="make interop: three more clusters"),
]

USER, PASSWORD = "bookkeeper-etl", "s3cret:ü"
COUNT, SIZE = 2000, 100

JAAS = """\
Bookie {{
  org.apache.zookeeper.server.auth.DigestLoginModule required user_{user}="{password}";
}};
BookKeeper {{
  org.apache.zookeeper.server.auth.DigestLoginModule required username="{user}" password="{password}";
}};
"""
BOOKIES_ASK = {
    "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory",
    "autoRecoveryDaemonEnabled": "false",  # it is a client, and would have to authenticate
}
CLIENT_SAYS = (
    "-Dsetting.clientAuthProviderFactoryClass=org.apache.bookkeeper.sasl.SASLClientProviderFactory",
    "-Dsetting.addEntryTimeoutSec=60",
    "-Dsetting.readEntryTimeoutSec=60",
)
"""A login and 2,000 adds take a moment, and several seconds where much else runs."""


def jaas(directory: Path, password: str = PASSWORD) -> str:
    """The option of a JVM that bookies and clients read their users from."""
    path = directory / f"jaas-{len(password)}.conf"
    path.write_text(JAAS.format(user=USER, password=password))
    return f"-Djava.security.auth.login.config={path}"


def configured(password: str = PASSWORD, user: str = USER) -> ClientConfig:
    return ClientConfig(bookie_auth=f"sasl:{user}:{password}")


def refusal(metadata_uri: str, config: ClientConfig) -> str:
    """What is said of the only bookie."""
    with BookKeeper(metadata_uri, config) as client:
        writer = client.create_ledger(1, 1, 1)
        with writer, pytest.raises(NotEnoughBookiesError) as refused:
            writer.append(b"x")
    return str(refused.value)


def tries_to_add(client: JavaClient) -> int:
    """The code with which it fails."""
    ledger_id = client.create(1, 1, 1)
    with pytest.raises(ApacheError) as refused:
        client.add(ledger_id, 1, SIZE)
    return refused.value.code


@contextmanager
def apache(zookeeper: LocalCluster, directory: Path, settings: dict[str, str] = BOOKIES_ASK) -> Iterator[BookKeeperCluster]:
    """One bookie that asks for SASL."""
    kind = Kind(settings, java=[jaas(directory.parent)], bookies=1)
    try:
        with apache_cluster(zookeeper, directory, kind) as cluster:
            yield cluster
    except SkippedError as reason:
        pytest.skip(f"Apache BookKeeper's bookies are not to be had: {reason}")


def programs(metadata_uri: str, directory: Path, *options: str) -> JavaPrograms:
    try:
        java = java_command((*JAVA, *CLIENT_SAYS, *options))
    except SkippedError as reason:
        pytest.skip(f"Apache BookKeeper's client is not to be had: {reason}")
    return JavaPrograms(metadata_uri, java, directory)


def test_our_client_adds_reads_and_recovers_on_apaches_bookies(zookeeper: LocalCluster, tmp_path: Path) -> None:
    directory = tmp_path / "sasl"
    with apache(zookeeper, directory) as cluster:
        own = uri(zookeeper, directory)
        payloads = [b"%d" % one for one in range(COUNT)]
        with BookKeeper(own, configured()) as client:
            with client.create_ledger(1, 1, 1) as writer:
                writer.append_batch(payloads)
            with client.open_ledger(writer.ledger_id) as reader:
                assert read_all(reader) == payloads
            says = programs(cluster.programs.metadata_uri, tmp_path, jaas(tmp_path))
            with java_client(says, v2=False) as java:
                ledger_id = java.create(1, 1, 1)
                java.add(ledger_id, COUNT, SIZE)
                with client.open_ledger(ledger_id) as reader:
                    assert read_all(reader) == [payload(ledger_id, one, SIZE) for one in range(COUNT)]
                with pytest.raises(ApacheError):
                    java.add(ledger_id, 1, SIZE)  # the recovery has fenced it
        assert "asks its clients to authenticate: by SASL with bookie_auth" in refusal(own, ClientConfig())
        for wrong in (configured(password="wrong"), configured(user="bookkeeper-other")):
            assert "refuses the user or the password of bookie_auth" in refusal(own, wrong)


def test_a_user_whom_apaches_bookies_do_not_allow_is_told_so(zookeeper: LocalCluster, tmp_path: Path) -> None:
    directory = tmp_path / "ids"
    with apache(zookeeper, directory, {**BOOKIES_ASK, "saslJaasClientAllowedIds": "somebody.*"}):
        assert "saslJaasClientAllowedIds" in refusal(uri(zookeeper, directory), configured())


def test_a_bookie_of_apaches_that_asks_nobody_is_refused_by_a_client_with_a_credential(
    zookeeper: LocalCluster, tmp_path: Path
) -> None:
    directory = tmp_path / "open"
    with apache(zookeeper, directory, {}):
        assert "asks nobody to authenticate, so it may be anybody" in refusal(uri(zookeeper, directory), configured())


@pytest.mark.parametrize("over_tls", [False, True], ids=["in clear", "over TLS"])
def test_apaches_client_adds_reads_and_recovers_on_our_bookies(tmp_path: Path, over_tls: bool) -> None:
    """Apache's client sends its first message before it asks for TLS. Version 2 cannot do both at Apache's bookies either."""
    users = tmp_path / "users"
    users.write_text(f"{USER}:{PASSWORD}\n")
    users.chmod(0o600)
    files = local_tls(tmp_path / "tls").server
    tls = {"tls_certificate": files.certificate, "tls_key": files.key} if over_tls else {}
    options = [
        "-Dsetting.tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory",
        "-Dsetting.tlsProvider=JDK",
        "-Dsetting.clientTrustStoreType=PEM",
        f"-Dsetting.clientTrustStore={files.ca}",
    ]
    config = replace(DEFAULT_BOOKIE_CONFIG, apache_users=str(users), **tls)
    with LocalCluster(bookies=1, bookie_config=config) as ours:
        uri_of_java = f"zk+hierarchical://{ours.zookeeper.address}/ledgers"
        own = replace(configured(), tls_ca=files.ca) if over_tls else configured()
        for v2 in (False,) if over_tls else (True, False):
            says = programs(uri_of_java, tmp_path, jaas(tmp_path), *(options if over_tls else []))
            with java_client(says, v2=v2) as java, java_client(says, v2=v2) as other:
                ledger_id = java.create(1, 1, 1)
                java.add(ledger_id, COUNT, SIZE)
                java.close_ledger(ledger_id)
                assert other.open(ledger_id)
                assert other.read(ledger_id, 0, COUNT - 1)["count"] == COUNT
                left = java.create(1, 1, 1)
                java.add(left, COUNT, SIZE)
                other.open(left)
                with pytest.raises(ApacheError):
                    java.add(left, 1, SIZE)
                with BookKeeper(ours.metadata_uri, own) as client, client.open_ledger(ledger_id) as reader:
                    assert read_all(reader) == [payload(ledger_id, one, SIZE) for one in range(COUNT)]
            wrong = programs(uri_of_java, tmp_path, jaas(tmp_path, "wrong"), *(options if over_tls else []))
            with java_client(wrong, v2=v2) as java:
                assert tries_to_add(java) < 0
        without = replace(own, bookie_auth="")  # gRPC's port asks for no SASL
        with BookKeeper(ours.metadata_uri, without) as client, client.create_ledger(1, 1, 1) as writer:
            writer.append_batch([b"x"] * 10)
