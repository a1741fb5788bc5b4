"""The JVM of the clients. Its commands are in load/PulsarLoad.java."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.bookkeeper_cluster import Peer, java_command
from benchmarks.peers.fetch import jars
from bk_spark.local.zookeeper_server import find_java
from tests.interop.apache import HERE as INTEROP
from tests.interop.apache import JAVA
from tests.soak.pulsar.topics import PARTITIONS, Namespace, Topic

POM = INTEROP / "pulsar-pom.xml"
SOURCES = Path(__file__).parent / "load"
COMPILE_S = 120.0

_JVM = (*(option for option in JAVA if not option.startswith("-Xmx")), "-Xmx512m", "-Dorg.apache.logging.log4j.level=INFO")


def pulsar_java() -> list[str]:
    """A JVM with Pulsar on its class path. Raises SkippedError where its jars are not to be had."""
    return java_command(_JVM, POM)


class LoadError(Exception):
    """A command of the clients failed."""


@dataclass(frozen=True, slots=True)
class Status:
    """Counts so far."""

    acknowledged: dict[str, int]
    received: dict[str, int]
    failed: int
    spoilt: int
    problem: str
    """The last one that any client met, perhaps one that it got over."""


class Load:
    """``records`` is where it writes down what was acknowledged, received and read: see ``records.py``."""

    def __init__(self, ports: Sequence[tuple[int, int]], host: str, directory: Path) -> None:
        """``ports``: of each broker, for clients and for administration."""
        self.records = directory / "records"
        service = "pulsar://" + ",".join(f"{host}:{port}" for port, _ in ports)
        web = "http://" + ",".join(f"{host}:{port}" for _, port in ports)
        command = [*compiled(SOURCES, directory / "classes"), "PulsarLoad", service, web, str(self.records)]
        self._peer = Peer(command, directory / "load.log")

    def namespace(self, namespace: Namespace) -> None:
        self._ask("namespace", namespace.full, -1 if namespace.is_retained else 0, str(namespace.deduplicates).lower())

    def topic(self, topic: Topic) -> None:
        """Create it, and subscribe."""
        self._ask("topic", topic.name, topic.full, PARTITIONS, topic.batching, topic.compression)
        for kind, consumers in topic.subscriptions.items():
            self._ask("subscribe", topic.name, kind, consumers)

    def tenant(self, name: str, cluster: str) -> None:
        self._ask("tenant", name, cluster)

    def send(self, topic: Topic, messages: int, per_second: float, keys: int) -> None:
        """Begin to send."""
        self._ask("send", topic.name, messages, per_second, keys)

    def status(self) -> Status:
        return Status(**self._ask("status"))

    def backlog(self) -> int:
        return int(self._ask("backlog")["backlog"])

    def end(self) -> None:
        """Close senders and receivers: all records are written."""
        self._ask("end")

    def read(self, topic: Topic) -> int:
        """Read it from its first message on, with new readers. Returns how many messages are not what was sent."""
        return int(self._ask("read", topic.name)["spoilt"])

    def delete(self, topic: Topic) -> None:
        self._ask("delete", topic.name)

    def close(self) -> None:
        self._peer.close()

    def _ask(self, *command: object) -> dict[str, Any]:
        answer = self._peer.ask(*command)
        if "error" in answer:
            raise LoadError(answer["error"])
        return answer


def compiled(sources: Path, classes: Path, options: Sequence[str] = _JVM) -> list[str]:
    """A JVM with Pulsar, and with ``sources`` (a directory) compiled. Raises SkippedError where its jars are not to be had."""
    class_path = os.pathsep.join([str(classes), *map(str, jars(POM))])
    compiler = [find_java(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", str(classes), "-cp", class_path]
    done = subprocess.run(
        [*compiler, *map(str, sorted(sources.glob("*.java")))], capture_output=True, text=True, timeout=COMPILE_S
    )
    if done.returncode != 0:
        raise LoadError(done.stdout + done.stderr)
    return [find_java(), *options, "-cp", class_path]
