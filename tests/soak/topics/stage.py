"""Our bookies or Apache's, a broker on them, and Pulsar's client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.bookkeeper_cluster import JAVA_OPTIONS, bookkeeper_cluster, java_command
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.ports import Ports
from bk_spark.local.process import Keeper, LocalProcess, end_all
from tests.soak.pulsar.broker import ROOT, Broker, Cluster
from tests.soak.pulsar.client import POM
from tests.soak.topics.client import Client

BOOKIES = 3

JAVA = (*JAVA_OPTIONS, "-Dorg.apache.logging.log4j.level=INFO")
"""The JVM compiles in full, as a broker's does that is measured; its log tells when a ledger is fenced."""

INTERCEPTORS = ("AppendBrokerTimestampMetadataInterceptor", "AppendIndexMetadataInterceptor")

EVERY_FORM: Mapping[str, object] = {
    "transactionCoordinatorEnabled": True,
    "brokerEntryMetadataInterceptors": ",".join(f"org.apache.pulsar.common.intercept.{one}" for one in INTERCEPTORS),
}
"""The broker takes transactions, and puts metadata of its own before each entry."""


APACHE = "apache"
"""The directory of Apache's bookies, and their root in ZooKeeper."""


@dataclass(frozen=True, slots=True)
class Stage:
    metadata_uri: str
    """Of the bookies."""
    zookeeper: str
    """HOST:PORT."""
    bookies: Sequence[LocalProcess]
    broker: Broker
    client: Client

    @property
    def pulsar_uri(self) -> str:
        """For ``pulsar_metadata``: Pulsar's root is not beside BookKeeper's."""
        return f"zk://{self.zookeeper}{ROOT}"

    def pids(self) -> dict[str, list[int]]:
        """The processes of each part."""
        bookies = [bookie.pid for bookie in self.bookies]
        named: dict[str, list[int | None]] = {"bookies": bookies, "broker": [self.broker.pid], "writer": [self.client.pid]}
        return {name: [pid for pid in pids if pid is not None] for name, pids in named.items()}


@contextlib.contextmanager
def stage(
    directory: Path, settings: Mapping[str, object], options: Sequence[str] = JAVA, *, apache: bool = False
) -> Iterator[Stage]:
    """It all ends with the context. ``settings`` are the broker's; ``apache``: Apache's bookies in place of ours.

    Raises SkippedError where Pulsar is not to be had.
    """
    java = java_command(options, POM)
    home = directory / "broker"
    home.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(0 if apache else BOOKIES, directory / "cluster"))
        metadata_uri, bookies = cluster.metadata_uri, cluster.bookies
        if apache:
            bookies = stack.enter_context(bookkeeper_cluster(cluster, directory / APACHE)).bookies
            metadata_uri = f"zk://{cluster.zookeeper.address}/{APACHE}"
        keeper = stack.enter_context(Keeper(home, temporary=False))
        kept = stack.enter_context(Ports())
        port, web_port = kept.reserve(None), kept.reserve(None)
        bookies_uri = metadata_uri.replace("zk://", "zk+hierarchical://")
        pulsar = Cluster(cluster.zookeeper.address, bookies_uri, java, settings)
        pulsar.initialise(web_port, port, home / "initialise.log")
        broker = Broker(keeper, home / "broker-1", pulsar, port, web_port)
        stack.callback(end_all, [broker])
        broker.start()
        client = Client(broker, directory, options)
        stack.callback(client.close)
        yield Stage(metadata_uri, cluster.zookeeper.address, bookies, broker, client)
