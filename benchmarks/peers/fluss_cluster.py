"""Three tablet servers of Apache Fluss and their coordinator on this machine, with the settings that come with Fluss.

Set: three replicas of each bucket, where data lie, and an end to which the memory of each server may grow. ZooKeeper is that of
the local cluster beside which Fluss runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.fetch import jars
from benchmarks.peers.kafka_cluster import java_command
from bk_spark.local.ports import HOST, Ports
from bk_spark.local.process import Keeper, LocalProcess

POM = Path(__file__).with_name("fluss-pom.xml")
TABLET_SERVERS = 3
HEAP_MIB = 1024

JVM_OPTIONS = (
    f"-Xms{HEAP_MIB // 4}m",
    f"-Xmx{HEAP_MIB}m",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.base/java.nio=org.apache.arrow.memory.core,ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)
"""The last two are those of Fluss's own start script, which Arrow needs."""

SETTINGS = """\
zookeeper.address: {zookeeper}
default.replication.factor: 3
data.dir: {directory}/data
remote.data.dir: {remote}
bind.listeners: FLUSS://{host}:{port}
"""

COORDINATOR = "org.apache.fluss.server.coordinator.CoordinatorServer"
TABLET_SERVER = "org.apache.fluss.server.tablet.TabletServer"


class FlussCluster:
    """Servers that serve, for as long as this process lives. ``directory`` is theirs alone; nothing in it is removed.

    ``zookeeper`` is a connection string, with a root that exists. Raises SkippedError where the jars cannot be fetched, and
    ProcessFailedError.
    """

    def __init__(self, directory: Path, zookeeper: str) -> None:
        java = java_command(jars(POM))
        directory.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:
            keeper = undo.enter_context(Keeper(directory, temporary=False))
            kept = undo.enter_context(Ports())
            ports = [kept.reserve(None) for _ in range(1 + TABLET_SERVERS)]
            servers = [Server(keeper, directory, number, port, zookeeper, java) for number, port in enumerate(ports)]
            undo.callback(_kill, servers)
            for server in servers:
                server.launch()
                server.await_listening()
            self.bootstrap_servers = servers[0].address
            self._undo = undo.pop_all()

    def __enter__(self) -> FlussCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()


class Server(LocalProcess):
    """The coordinator, which has the number 0, or a tablet server."""

    def __init__(self, keeper: Keeper, directory: Path, number: int, port: int, zookeeper: str, java: Sequence[str]) -> None:
        own = directory / f"fluss-{number}"
        super().__init__(keeper, own, port)
        self._java = java
        self._main = TABLET_SERVER if number else COORDINATOR
        own.mkdir()
        places = {"host": HOST, "port": port, "directory": own, "remote": directory / "remote", "zookeeper": zookeeper}
        settings = SETTINGS.format(**places) + (f"tablet-server.id: {number}\n" if number else "")
        for name in ("server.yaml", "common.yaml", "coordinator-server.yaml", "tablet-server.yaml"):
            (own / name).write_text(settings)
        self._configuration = own

    def launch(self) -> None:
        self._launch([*self._java, *JVM_OPTIONS, self._main, "--configDir", str(self._configuration)])

    def await_listening(self) -> None:
        """It takes connections; that all servers know each other comes a moment later."""
        self._await(self._accepts)


def _kill(servers: Sequence[Server]) -> None:
    """Nobody wants their data any more."""
    for server in servers:
        if server.pid is not None:
            server.kill()
