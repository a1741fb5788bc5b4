"""A Pulsar broker as its operators run it: Pulsar's own starter with a configuration file, in a process that can be killed.

A broker keeps its two ports. What it knows is in ZooKeeper and on the bookies, so it starts again from nothing else.
"""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from bk_spark.local.process import HOST, Keeper, LocalProcess
from bk_spark.metadata.store import NoNodeError
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect
from tests.soak.pulsar.waiting import wait_until

CLUSTER = "soak"
ROOT = "/pulsar"
"""Pulsar's own metadata in ZooKeeper."""

START_S = 300.0
"""A broker needs some ten seconds of a processor, and here it shares two with all other processes."""

SESSION_MS = 6_000
"""Another broker takes the topics of a dead one after this long."""

SETUP_S = 180.0
_ASK_S = 2.0
_SESSION_S = 10.0

_SETTINGS: Mapping[str, object] = {
    "clusterName": CLUSTER,
    "advertisedAddress": HOST,
    "bindAddress": HOST,
    "metadataStoreSessionTimeoutMillis": SESSION_MS,
    "allowAutoTopicCreation": False,
    "brokerDeleteInactiveTopicsEnabled": False,
    # Ledgers come and go quickly: by the number of their entries alone, and in seconds once they are consumed.
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerCursorMaxEntriesPerLedger": 500,
    "retentionCheckIntervalInSeconds": 5,
    # As many threads as two cores can use, and little memory, so that reads go to the bookies.
    "numIOThreads": 2,
    "numHttpServerThreads": 8,
    "numOrderedExecutorThreads": 2,
    "numExecutorThreadPoolSize": 2,
    "numCacheExecutorThreadPoolSize": 2,
    "bookkeeperClientNumIoThreads": 2,
    "bookkeeperClientNumWorkerThreads": 2,
    "managedLedgerCacheSizeMB": 16,
}
"""What differs from Pulsar's defaults beside addresses. Two copies of an entry, both confirmed, are its default."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What all brokers have in common."""

    zookeeper: str
    """HOST:PORT."""
    bookies_uri: str
    """As ``bookkeeperMetadataServiceUri`` has it: ``zk+hierarchical://...``."""
    java: Sequence[str]
    """A JVM with Pulsar on its class path."""
    settings: Mapping[str, object]
    """That come before those of this module."""

    @property
    def store(self) -> str:
        return f"zk:{self.zookeeper}{ROOT}"

    def initialise(self, web_port: int, port: int, log: Path) -> None:
        """As ``pulsar initialize-cluster-metadata`` does, once before the first broker."""
        command = [*self.java, "org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", CLUSTER]
        command += ["--metadata-store", self.store, "--configuration-metadata-store", self.store]
        command += ["--existing-bk-metadata-service-uri", self.bookies_uri]
        command += ["--web-service-url", f"http://{HOST}:{web_port}", "--broker-service-url", f"pulsar://{HOST}:{port}"]
        with log.open("ab") as output:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=SETUP_S)
        if done.returncode != 0:
            raise RuntimeError(f"Pulsar's metadata were not made, see {log}")


class Broker(LocalProcess):
    """One broker. ``port`` is that of clients, ``web_port`` that of administration."""

    def __init__(self, keeper: Keeper, directory: Path, cluster: Cluster, port: int, web_port: int) -> None:
        super().__init__(keeper, directory, port)
        self.web_port = web_port
        self._cluster = cluster
        self._conf = directory / "broker.conf"
        directory.mkdir(parents=True)
        self._conf.write_text(self._configuration())

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the process, once the registration of a dead one has gone: a broker gives up if another has its name."""
        with connect(f"zk://{self._cluster.zookeeper}{ROOT}", connect_timeout_s=START_S, session_timeout_s=_SESSION_S) as store:
            wait_until(lambda: not self._is_registered(store), f"{self._name}'s last registration is gone", START_S)
        self._launch([*self._cluster.java, "org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(self._conf)])

    def await_ready(self) -> None:
        wait_until(self._serves, f"{self._name} serves, see {self.log}", START_S)

    def _is_registered(self, store: ZooKeeperStore) -> bool:
        try:
            store.get(f"{ROOT}/loadbalance/brokers/{HOST}:{self.web_port}")
        except NoNodeError:
            return False
        return True

    def _serves(self) -> bool:
        if self.pid is None:
            raise self._failure("ended before it was ready")
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.web_port}/admin/v2/brokers/ready", timeout=_ASK_S) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False

    def _configuration(self) -> str:
        own = {
            "metadataStoreUrl": self._cluster.store,
            "configurationMetadataStoreUrl": self._cluster.store,
            "bookkeeperMetadataServiceUri": self._cluster.bookies_uri,
            "brokerServicePort": self.port,
            "webServicePort": self.web_port,
        }
        every = {**_SETTINGS, **own, **self._cluster.settings}
        return "".join(f"{name}={str(value).lower() if isinstance(value, bool) else value}\n" for name, value in every.items())
