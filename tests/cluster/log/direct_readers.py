"""A cluster with members at its bookies and in ZooKeeper, and certificates of others, which its servers take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kazoo.client import KazooClient

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalCluster
from bk_spark.local.security import Authority
from bk_spark.metadata.uri import parse_uri
from bk_spark.tls.files import TlsFiles

READER, STRANGER = "reader", "stranger"
IDENTITY = f"x509:CN={READER}"


@dataclass(frozen=True)
class Guarded:
    """Such a cluster."""

    cluster: LocalCluster
    tls: Path

    @property
    def uri(self) -> str:
        return self.cluster.metadata_uri

    @property
    def member_config(self) -> ClientConfig:
        return self.cluster.client_config

    def config(self, name: str) -> ClientConfig:
        """Of the holder of a certificate."""
        files = TlsFiles(*(str(self.tls / file) for file in ("ca.pem", f"{name}.pem", f"{name}.key")))
        changes = {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key}
        return replace(self.member_config, zookeeper_auth="x509", **changes)

    @contextmanager
    def client(self, name: str = "") -> Iterator[BookKeeper]:
        """A member's client, or that of the holder of a certificate."""
        with BookKeeper(self.uri, self.config(name) if name else self.member_config) as made:
            yield made

    @contextmanager
    def zookeeper(self, name: str = "") -> Iterator[KazooClient]:
        """ZooKeeper as it is."""
        config = self.config(name) if name else self.member_config
        scheme, _, credential = config.zookeeper_auth.partition(":")
        made = KazooClient(
            parse_uri(self.uri)[0],
            auth_data=[(scheme, credential)] if credential else None,
            use_ssl=True,
            ca=config.tls_ca,
            certfile=config.tls_certificate,
            keyfile=config.tls_key,
        )
        made.start()
        try:
            yield made
        finally:
            made.stop()
            made.close()


@contextmanager
def guarded(directory: Path) -> Iterator[Guarded]:
    tls = directory / "data" / "tls"
    tls.mkdir(parents=True)
    authority = Authority("guarded")
    authority.save(tls / "ca.pem")
    authority.issue(tls / "bookie", hosts=["127.0.0.1", "localhost"])
    for name in ("client", READER, STRANGER):
        authority.issue(tls / name)
    members = directory / "members"
    members.write_text("certificate:bookie\ncertificate:client\n")
    config = replace(
        DEFAULT_BOOKIE_CONFIG,
        zookeeper_auth="digest:keeper:z00-s3cret",
        tls_ca=str(tls / "ca.pem"),
        tls_certificate=str(tls / "bookie.pem"),
        tls_key=str(tls / "bookie.key"),
        members=str(members),
    )
    with LocalCluster(bookies=3, data_dir=directory / "data", tls=True, bookie_config=config) as cluster:
        yield Guarded(cluster, tls)
