"""Apache BookKeeper's bookies on this machine, and a Java client that stays warm.

Their metadata are in the ZooKeeper of a bk_spark.LocalCluster, under a root of their own: what is compared never waits for
it, and both clusters live at the same time. Settings are Apache's defaults, which sync the journal before an add is
acked; what differs is said beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.fetch import jars
from bk_spark import BookKeeper
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.ports import HOST, Ports
from bk_spark.local.process import Keeper, LocalProcess, end_all
from bk_spark.local.zookeeper_server import find_java

HERE = Path(__file__).resolve().parent

POM = HERE / "bookkeeper-pom.xml"
BOOKIES = 3

REGISTERED_S = 60.0
"""Far longer than it takes on a machine that does other things."""

SHELL_S = 120.0
"""A command starts a JVM and asks ZooKeeper."""

COMPILE_S = 120.0
"""A file takes two seconds where nothing else runs."""

_STORAGE = "org.apache.bookkeeper.bookie"

DB_STORAGE: Mapping[str, str] = {"ledgerStorageClass": f"{_STORAGE}.storage.ldb.DbLedgerStorage"}
"""Index in RocksDB, one write cache for all ledgers: what Pulsar runs."""

SORTED_STORAGE: Mapping[str, str] = {"ledgerStorageClass": f"{_STORAGE}.SortedLedgerStorage"}
"""What a bookie takes unless told otherwise."""

NOT_SYNCED: Mapping[str, str] = {**DB_STORAGE, "journalSyncData": "false"}
"""An add is acked while it is in the page cache alone."""

_NO_BOUNDS: Mapping[str, str] = {"maxPendingAddRequestsPerThread": "0", "maxPendingReadRequestsPerThread": "0"}
"""Clients do not wait for the slowest of three bookies: more than they have under way may wait there, and is not refused. What
a cluster sets comes before these."""

BOOKIE = "org.apache.bookkeeper.server.Main"
AUTORECOVERY = "org.apache.bookkeeper.replication.AutoRecoveryMain"
"""Apache's programs that run until they are ended."""

_CONFIG = """\
bookiePort={port}
advertisedAddress={host}
allowLoopback=true
metadataServiceUri={metadata_uri}
journalDirectories={directory}/journal
ledgerDirectories={directory}/ledgers
# The disk is shared with all else on this machine: that it is nearly full says little of what bookies need.
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
"""

_OPEN = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.io", "java.nio", "java.util.zip", "jdk.internal.misc")
]
"""What Apache's own start scripts open: without it netty and the checksums take slower ways."""

JAVA_OPTIONS = (
    *_OPEN,
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.leakDetectionLevel=disabled",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=10",
    "-XX:+ParallelRefProcEnabled",
    "-Xms1g",
    "-Xmx1g",
    "-XX:MaxDirectMemorySize=1g",
)
"""As the start scripts have it, with half of their direct memory: there are three bookies on this machine."""


class ApacheBookie(LocalProcess):
    """A bookie; with another ``program`` what else takes a bookie's settings, and then nothing listens at its port."""

    def __init__(
        self, keeper: Keeper, directory: Path, port: int, config: str, java: Sequence[str], program: str = BOOKIE
    ) -> None:
        super().__init__(keeper, directory, port)
        self._command = [*java, program]
        self.bookie_id = f"{HOST}:{port}"
        self.config = directory / "bookie.conf"
        directory.mkdir(parents=True)
        self.config.write_text(config)

    def start(self) -> None:
        """Start it, and wait until it accepts connections. It is registered soon after."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        self._launch([*self._command, "--conf", str(self.config)])

    def await_ready(self) -> None:
        self._await(self._accepts)


class Peer:
    """A JVM that holds a client, and does what it is told: commands and answers in BookKeeperPeer.java."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True, bufsize=1
            )
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, *command: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, command)) + "\n")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Java client ended in {' '.join(map(str, command))}: {self._log.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Its input ends: so does it, after what it is doing."""
        self._process.communicate()


@dataclass(frozen=True)
class JavaPrograms:
    """Programs with Apache's client, on any bookies that it finds at the metadata URI. They log into the directory."""

    metadata_uri: str
    java: Sequence[str]
    directory: Path

    @contextmanager
    def client(self, payloads: Path, entry_bytes: int, *, v2: bool = True) -> Iterator[Peer]:
        """``payloads`` is a file of entries, which the client adds one after the other, again from the start at its end."""
        with self.start(HERE / "BookKeeperPeer.java", str(payloads), str(entry_bytes), str(v2).lower()) as peer:
            yield peer

    @contextmanager
    def start(self, source: Path, *arguments: str) -> Iterator[Peer]:
        """A Java program of one file, started with the metadata URI and ``arguments``."""
        *java, class_path = self.java
        path = os.pathsep.join([str(self._compiled(source)), class_path])
        peer = Peer([*java, path, source.stem, self.metadata_uri, *arguments], self.directory / f"{source.stem}.log")
        try:
            yield peer
        finally:
            peer.close()

    def _compiled(self, source: Path) -> Path:
        """The directory of its classes, whole if it is there. To compile them takes as long as a start, so it is done once."""
        classes = self.directory / f"{source.stem}-classes"
        if not classes.exists():
            part = classes.with_suffix(".part")
            compiler = [self.java[0], "-m", "jdk.compiler/com.sun.tools.javac.Main"]
            command = [*compiler, "-cp", self.java[-1], "-d", str(part), str(source)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=COMPILE_S)
            part.rename(classes)
        return classes


class BookKeeperCluster:
    """Three bookies beside a local cluster of ours, whose ZooKeeper they use."""

    def __init__(self, bookies: Sequence[ApacheBookie], metadata_uri: str, java: Sequence[str], directory: Path) -> None:
        self.bookies = bookies
        self._metadata_uri = metadata_uri
        self._java = java
        self._directory = directory

    def shell(self, *words: object) -> str:
        """Run a command of Apache's shell; returns what it prints. Raises RuntimeError if it fails."""
        return _shell(self._java, self.bookies[0].config, *words)

    @property
    def programs(self) -> JavaPrograms:
        return JavaPrograms(self._metadata_uri, self._java, self._directory)

    @contextmanager
    def client(self, payloads: Path, entry_bytes: int, *, v2: bool = True) -> Iterator[Peer]:
        """As JavaPrograms has it."""
        with self.programs.client(payloads, entry_bytes, v2=v2) as peer:
            yield peer

    @contextmanager
    def program(self, source: Path, *arguments: str) -> Iterator[Peer]:
        """As JavaPrograms has it."""
        with self.programs.start(source, *arguments) as peer:
            yield peer


@contextmanager
def bookkeeper_cluster(
    ours: LocalCluster,
    directory: Path,
    settings: Mapping[str, str] = DB_STORAGE,
    java_options: Sequence[str] = JAVA_OPTIONS,
    *,
    pom: Path = POM,
    bookies: int = BOOKIES,
) -> Iterator[BookKeeperCluster]:
    """In a new directory, whose name is its root's in ZooKeeper too. Raises SkippedError where the jars are not to be had."""
    metadata_uri = f"zk+hierarchical://{ours.zookeeper.address}/{directory.name}"
    java = java_command(java_options, pom)
    with apache_bookies(metadata_uri, directory, settings, java, bookies) as made:
        _shell(java, made[0].config, "initnewcluster")
        for bookie in made:
            bookie.launch()
        for bookie in made:
            bookie.await_ready()
        _await_registered(f"zk://{ours.zookeeper.address}/{directory.name}", bookies)
        yield BookKeeperCluster(made, metadata_uri, java, directory)


@contextmanager
def apache_bookies(
    metadata_uri: str, directory: Path, settings: Mapping[str, str], java: Sequence[str], count: int, program: str = BOOKIE
) -> Iterator[list[ApacheBookie]]:
    """Bookies of any cluster in a new directory, not started yet. They end with the context. ``program``: see ApacheBookie."""
    directory.mkdir()
    with ExitStack() as stack:
        keeper = stack.enter_context(Keeper(directory, temporary=False))
        bookies: list[ApacheBookie] = []
        stack.callback(end_all, bookies)
        for number in range(1, count + 1):
            port = stack.enter_context(Ports()).reserve(None)
            own = directory / f"apache-bookie-{number}"
            config = bookie_settings(HOST, port, metadata_uri, own, settings)
            bookies.append(ApacheBookie(keeper, own, port, config, java, program))
        yield bookies


def bookie_settings(host: str, port: int, metadata_uri: str, directory: Path, settings: Mapping[str, str]) -> str:
    """A bookie's file of settings; ``directory`` is for its data."""
    config = _CONFIG.format(port=port, host=host, metadata_uri=metadata_uri, directory=directory)
    return config + "".join(f"{key}={value}\n" for key, value in {**_NO_BOUNDS, **settings}.items())


def java_command(options: Sequence[str] = JAVA_OPTIONS, pom: Path = POM) -> list[str]:
    """Runs a class that ``pom`` names. Raises SkippedError where its jars are not to be had."""
    class_path = os.pathsep.join(map(str, jars(pom)))
    return [find_java(), *options, "-cp", class_path]


def _await_registered(metadata_uri: str, bookies: int) -> None:
    """A bookie of Apache's accepts connections before it is on the list."""
    deadline = time.monotonic() + REGISTERED_S
    with BookKeeper(metadata_uri) as client:
        while len(found := client.list_bookies()) < bookies:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {found} are registered after {REGISTERED_S:g} s")
            time.sleep(0.05)


def _shell(java: Sequence[str], config: Path, *words: object) -> str:
    command = [*java, "org.apache.bookkeeper.bookie.BookieShell", "-conf", str(config), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SHELL_S)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
