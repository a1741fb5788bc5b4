"""Three Kafka brokers on this machine, each a KRaft controller too, with the settings that come with Kafka.

Kept as they come: flushing, which is left to the operating system (a topic may ask for more), the compression, which is the
producer's, and threads. Set: three replicas of which two must have a record, an end to which memory may grow, no record that
is deleted while we measure, and nothing that only long runs need.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.fetch import jars
from benchmarks.speed.measure import SkippedError
from bk_spark.local.ports import HOST, Ports
from bk_spark.local.process import Keeper, LocalProcess

POM = Path(__file__).with_name("kafka-pom.xml")
BROKERS = 3
HEAP_MIB = 1024
CLUSTER_ID = "YmtfcGVlcl9rYWZrYV8wMA"
"""16 bytes, as Kafka writes them; any will do."""

FORMAT_S = 120.0
GONE_S = 60.0
_LOOK_S = 0.05

JVM_OPTIONS = (
    "-server",
    f"-Xms{HEAP_MIB}m",
    f"-Xmx{HEAP_MIB}m",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""Those of Kafka's own start script."""

PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/data
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=3
log.retention.ms=-1
auto.create.topics.enable=false
log.segment.delete.delay.ms=1000
"""


class KafkaCluster:
    """Brokers that serve, for as long as this process lives. ``directory`` is theirs alone; nothing in it is removed.

    Raises SkippedError where the jars cannot be fetched, and ProcessFailedError.
    """

    def __init__(self, directory: Path) -> None:
        java = java_command(jars(POM))
        with contextlib.ExitStack() as undo:
            keeper = undo.enter_context(Keeper(directory, temporary=False))
            kept = undo.enter_context(Ports())
            ports = [kept.reserve(None) for _ in range(2 * BROKERS)]
            self._brokers = [Broker(keeper, directory / f"kafka-{node}", node, ports, java) for node in range(1, BROKERS + 1)]
            undo.callback(_kill, self._brokers)
            _format(self._brokers)
            for broker in self._brokers:
                broker.launch()
            for broker in self._brokers:
                broker.await_listening()
            self._undo = undo.pop_all()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self._brokers)

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self._brokers if broker.pid is not None]

    def await_deleted(self, topic: str) -> None:
        """No broker has a file of it any more: they delete a second after they are told. Raises TimeoutError."""
        deadline = time.monotonic() + GONE_S
        while left := [path for broker in self._brokers for path in broker.files_of(topic)]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left[0]} is still there {GONE_S:g} s after its topic was deleted")
            time.sleep(_LOOK_S)

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()


class Broker(LocalProcess):
    """One broker and controller. ``ports`` are those of all nodes: first the brokers', then the controllers'."""

    def __init__(self, keeper: Keeper, directory: Path, node: int, ports: Sequence[int], java: Sequence[str]) -> None:
        super().__init__(keeper, directory, ports[node - 1])
        self._java = java
        self._properties = directory / "server.properties"
        directory.mkdir()
        voters = ",".join(f"{1 + at}@{HOST}:{port}" for at, port in enumerate(ports[BROKERS:]))
        places = {"host": HOST, "port": self.port, "controller_port": ports[BROKERS + node - 1], "directory": directory}
        self._properties.write_text(PROPERTIES.format(node=node, voters=voters, **places))

    @property
    def format_command(self) -> list[str]:
        return [*self._java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties)]

    def files_of(self, topic: str) -> list[Path]:
        """Directories of its partitions, those that wait to be deleted too."""
        return list((self._directory / "data").glob(f"{topic}-*"))

    def launch(self) -> None:
        self._launch([*self._java, *JVM_OPTIONS, "kafka.Kafka", str(self._properties)])

    def await_listening(self) -> None:
        """It takes connections; that all brokers know each other comes a moment later."""
        self._await(self._accepts)


def java_command(class_path: Sequence[Path]) -> list[str]:
    """How to start Java with these jars. Raises SkippedError without Java."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else Path("java")
    try:
        subprocess.run([java, "-version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        raise SkippedError(f"Java is needed to run Kafka: {problem}") from None
    return [str(java), "-cp", os.pathsep.join(map(str, class_path))]


def _kill(brokers: Sequence[Broker]) -> None:
    """Asked to end, each would wait for another one to lead what it leads; nobody wants their data any more."""
    for broker in brokers:
        if broker.pid is not None:
            broker.kill()


def _format(brokers: Sequence[Broker]) -> None:
    """All at once: each takes a JVM's start."""
    running = [subprocess.Popen(one.format_command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for one in brokers]
    for child in running:
        output, _ = child.communicate(timeout=FORMAT_S)
        if child.returncode:
            raise RuntimeError(f"Kafka's storage was not formatted: {output.decode(errors='replace')}")
