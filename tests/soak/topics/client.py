"""The JVM of Pulsar's own client. Its commands are in java/Main.java."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.bookkeeper_cluster import Peer
from bk_spark.local.ports import HOST
from tests.soak.pulsar.broker import Broker
from tests.soak.pulsar.client import LoadError, compiled

SOURCES = Path(__file__).parent / "java"


@dataclass(frozen=True, slots=True)
class Status:
    """Of the writers, so far."""

    acknowledged: int
    unseen: int
    """Of these, no reader gets them: they are encrypted, or their transaction was aborted."""
    writing: int
    """Writers that are not done."""
    problem: str


@dataclass(frozen=True, slots=True)
class Second:
    """What the fast writer did in one second."""

    messages_per_s: float
    p99_ms: float
    """From the send to its acknowledgement."""


class Client:
    """Raises SkippedError where Pulsar is not to be had. ``options`` are the JVM's."""

    def __init__(self, broker: Broker, directory: Path, options: Sequence[str]) -> None:
        service, web = f"pulsar://{HOST}:{broker.port}", f"http://{HOST}:{broker.web_port}"
        self._peer = Peer([*compiled(SOURCES, directory / "classes", options), "Main", service, web], directory / "client.log")

    @property
    def pid(self) -> int:
        return self._peer.pid

    def set_up(self, cluster: str) -> None:
        """Create the namespace that all topics are in."""
        self._ask("setup", cluster)

    def create_forms(self, without: str) -> dict[str, int]:
        """Create the topics of all forms of messages but those whose name begins so. Returns their partitions, 0 for none."""
        topics: dict[str, int] = self._ask("forms", without or "-")["topics"]
        return topics

    def create(self, topic: str, partitions: int) -> None:
        self._ask("topic", topic, partitions)

    def write(self, messages: int, seconds: float) -> None:
        """Begin to write, in all forms."""
        self._ask("write", messages, seconds)

    def status(self) -> Status:
        """Raises LoadError if a writer failed."""
        status = Status(**self._ask("status"))
        if status.problem:
            raise LoadError(status.problem)
        return status

    def mark(self) -> None:
        """Write the last message of each partition, and one behind it, without which readers that ask bookies do not see it."""
        self._ask("mark")

    def receive(self, topic: str, directory: Path) -> int:
        """Read it whole, to its last message, into columns (``received.py``). Returns how many messages there are."""
        return int(self._ask("receive", topic, directory)["messages"])

    def leave(self, topic: str, name: str, place: int) -> tuple[int, int, int]:
        """A subscription acknowledges the messages up to number ``place``, from 0, and is left.

        Returns which one it would get next: ledger, entry, index in the batch.
        """
        ledger_id, entry_id, batch_index = self._ask("leave", topic, name, place)["next"]
        return ledger_id, entry_id, batch_index

    def begin_speed(self, topic: str, message_bytes: int) -> None:
        """Begin to write as fast as it can."""
        self._ask("speed", topic, message_bytes)

    def seconds(self) -> list[Second]:
        """Each whole second since the last call."""
        return [Second(*one) for one in self._ask("seconds")["seconds"]]

    def end_speed(self) -> None:
        self._ask("rest")

    def fill(self, topic: str, messages: int, message_bytes: int) -> None:
        """Write with the producer's defaults, until all is acknowledged."""
        self._ask("fill", topic, messages, message_bytes)

    def drain(self, topic: str) -> tuple[int, float]:
        """Read everything with a reader for each partition. Returns messages and seconds."""
        answer = self._ask("drain", topic)
        return int(answer["messages"]), float(answer["seconds"])

    def close(self) -> None:
        self._peer.close()

    def _ask(self, *command: object) -> dict[str, Any]:
        answer = self._peer.ask(*command)
        if "error" in answer:
            raise LoadError(answer["error"])
        return answer
