"""ZooKeeper, bookies and AutoRecovery that each run in a node of the fabric."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from benchmarks.peers.bookkeeper_cluster import ApacheBookie, bookie_settings, java_command
from bk_spark.bookie.directories import Directories
from bk_spark.bookie.identity.cookie import format_bookie
from bk_spark.config import ClientConfig
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, ROOT, LocalAutoRecovery, LocalBookie
from bk_spark.local.process import Keeper, LocalProcess, end_all
from bk_spark.local.zookeeper_server import in_clear, zookeeper_command, zookeeper_config
from bk_spark.metadata.registration import initialise_cluster, intended_root, open_root
from bk_spark.metadata.zookeeper import connect
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.interop.apache import JAVA, SETTINGS
from tests.soak.partitions.disk import Disk
from tests.soak.partitions.fabric import Fabric, Node
from tests.soak.partitions.plan import BOOKIES, REPAIRERS, ZOOKEEPERS

ZOOKEEPER_PORT, QUORUM_PORT, ELECTION_PORT, BOOKIE_PORT = 2181, 2888, 3888, 3181
"""Each node has an address of its own, so all may use the same ones."""

SESSION_S = 10.0

AUTORECOVERY = AutoRecoveryConfig(lost_bookie_grace_s=3.0, open_fragment_grace_s=600.0, retry_s=2.0)
"""Quick to copy what a bookie held that is cut off. It fences no writer, which only the recoverers of a round do."""

OF_APACHE = {"autoRecoveryDaemonEnabled": "false", "zkTimeout": "4000"}
"""AutoRecovery is ours. A bookie that was killed is on the list again within seconds."""

_QUORUM_CONFIG = """\
initLimit=40
syncLimit=8
"""
"""In ticks: a follower that has heard nothing for two seconds looks for another leader."""


Dressing: TypeAlias = Callable[[str, list[str]], list[str]]
"""Makes of a node's name and a command of ours one that is watched, and has the node's clock."""


class _InNode(LocalProcess):
    """A process that runs in ``node``."""

    node: Node
    disk: Disk | None = None
    """Its own, if it has one."""

    def _launch(self, command: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})) -> None:
        super()._launch([*self.node.prefix, *command], environment)

    @property
    def last_words(self) -> str:
        """The last line of its log, or how it was ended."""
        code = self._child.returncode if self._child is not None else None
        lines = self.log.read_text(errors="replace").splitlines()
        return lines[-1] if lines and code is not None and code >= 0 else f"exit status {code}"


class EnsembleServer(_InNode):
    """One server of a ZooKeeper ensemble."""

    def __init__(self, keeper: Keeper, directory: Path, node: Node, nodes: Sequence[Node]) -> None:
        super().__init__(keeper, directory, ZOOKEEPER_PORT)
        self._host = node.address
        self.node = node
        self._number = nodes.index(node) + 1
        self._ensemble = "".join(
            f"server.{number}={one.address}:{QUORUM_PORT}:{ELECTION_PORT}\n" for number, one in enumerate(nodes, 1)
        )

    def start(self) -> None:
        """Start it, and wait until it listens. It answers once more than half of the servers see each other."""
        data = self._directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self._number}\n")
        config = self._directory / "zookeeper.cfg"
        config.write_text(zookeeper_config(data, in_clear(self._host, self.port)) + _QUORUM_CONFIG + self._ensemble)
        server = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._launch([*zookeeper_command(), server, str(config)])
        self._await(self._accepts)


class NodeBookie(_InNode, LocalBookie):
    """A bookie in a node of its own."""

    def __init__(self, keeper: Keeper, directory: Path, node: Node, metadata_uri: str) -> None:
        """Format it."""
        self.node = node
        self._host = node.address
        super().__init__(keeper, directory, BOOKIE_PORT, "", metadata_uri, DEFAULT_BOOKIE_CONFIG)
        self.disk = Disk(self.data_dir)
        directories = Directories.of(self.data_dir, self.config)
        with connect(metadata_uri, connect_timeout_s=SESSION_S, session_timeout_s=SESSION_S) as store:
            self.bookie_id = format_bookie(directories, store, open_root(store, ROOT), self.address)

    def _launch(self, command: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})) -> None:
        words = list(command)
        words[words.index("--host") + 1] = self._host
        super()._launch(words, environment)


class NodeApacheBookie(_InNode, ApacheBookie):
    """A bookie of Apache's in a node of its own. It formats itself when it starts."""

    def __init__(self, keeper: Keeper, directory: Path, node: Node, metadata_uri: str) -> None:
        """Raises SkippedError where the jars are not to be had."""
        self.node = node
        self._host = node.address
        servers, root = metadata_uri.removeprefix("zk://").split("/", 1)
        uri_of_java = f"zk+hierarchical://{servers.replace(',', ';')}/{root}"
        place = directory / "data"
        config = bookie_settings(node.address, BOOKIE_PORT, uri_of_java, place, {**SETTINGS, **OF_APACHE})
        super().__init__(keeper, directory, BOOKIE_PORT, config, java_command(JAVA))
        self.bookie_id = self.address
        self.disk = Disk(place)


class NodeAutoRecovery(_InNode, LocalAutoRecovery):
    """An AutoRecovery process in a node of its own."""

    def __init__(self, keeper: Keeper, directory: Path, node: Node, metadata_uri: str, dressed: Dressing) -> None:
        self.node = node
        self._dressed = dressed
        super().__init__(keeper, directory, metadata_uri, AUTORECOVERY, ClientConfig())

    def _launch(self, command: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})) -> None:
        super()._launch(self._dressed(self.node.name, list(command)), environment)


Bookie: TypeAlias = NodeBookie | NodeApacheBookie
Server: TypeAlias = EnsembleServer | Bookie


class NetworkCluster:
    """ZooKeeper's servers, the bookies and AutoRecovery. Ends with ``close``."""

    def __init__(self, keeper: Keeper, directory: Path, fabric: Fabric, dressed: Dressing, apache: int) -> None:
        """``apache`` of the bookies are Apache's."""
        self.servers: dict[str, Server] = {}
        """What may be killed and suspended, by its node."""
        self._repairers: list[NodeAutoRecovery] = []
        nodes = [fabric.add(name) for name in ZOOKEEPERS]
        self.metadata_uri = "zk://" + ",".join(f"{node.address}:{ZOOKEEPER_PORT}" for node in nodes) + ROOT
        try:
            for node in nodes:
                self._start(EnsembleServer(keeper, directory / node.name, node, nodes))
            with connect(self.metadata_uri, connect_timeout_s=SESSION_S, session_timeout_s=SESSION_S) as store:
                initialise_cluster(store, intended_root(store, ROOT, None))
            kinds = [NodeBookie] * (len(BOOKIES) - apache) + [NodeApacheBookie] * apache
            for name, kind in zip(BOOKIES, kinds, strict=True):
                self._start(kind(keeper, directory / name, fabric.add(name), self.metadata_uri))
            for node in [fabric.add(name) for name in REPAIRERS]:
                self._repairers.append(NodeAutoRecovery(keeper, directory / node.name, node, self.metadata_uri, dressed))
                self._repairers[-1].start()
        except BaseException:
            self.close()
            raise

    @property
    def bookies(self) -> list[Bookie]:
        return [server for server in self.servers.values() if not isinstance(server, EnsembleServer)]

    def close(self) -> None:
        """AutoRecovery first, or it would see bookies go. ZooKeeper last: bookies leave its list."""
        end_all(self._repairers)
        end_all(self.bookies)
        end_all([server for server in self.servers.values() if isinstance(server, EnsembleServer)])
        with contextlib.ExitStack() as disks:
            for bookie in self.bookies:
                if bookie.disk is not None:
                    disks.callback(bookie.disk.close)

    def _start(self, server: Server) -> None:
        self.servers[server.node.name] = server
        server.start()
