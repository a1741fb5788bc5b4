"""The ZooKeeper server of a local cluster, from the jars that pyspark ships."""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from bk_spark.errors import ConfigError, MetadataUnavailableError, State
from bk_spark.local.place import storage_errors
from bk_spark.local.process import Keeper, LocalProcess
from bk_spark.local.security import LocalTls, write_secret
from bk_spark.metadata.zookeeper import connect
from bk_spark.tls.client_contexts import client_context

_SESSION_S = 10.0
"""Session timeout of the short sessions that check whether it answers."""

_CONNECT_S = 1.0
"""Short attempts: while ZooKeeper starts, it may accept a connection and forget it."""

_ZOOKEEPER_JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
    "metrics-core",
    "snappy-java",
)
"""The jars of pyspark's 250 that the server needs. With all of them on the class path it starts half as fast."""

_TLS_JARS = (
    "netty-buffer",
    "netty-codec-base",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
)
"""ZooKeeper speaks TLS by Netty alone."""

_JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.preAllocSize=1024")
"""Small, and quick to start. preAllocSize is in KiB: by default ZooKeeper grows its log by 64 MiB at a time."""

_ZOOKEEPER_CONFIG = """\
tickTime=250
minSessionTimeout=500
maxSessionTimeout=60000
dataDir={data}
{listens}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,envi
"""
"""All Spark workers have one address here, so connections per address are unlimited. Sessions are counted in ticks. ``envi``
shows properties of the process."""

_IN_CLEAR = """\
clientPortAddress={host}
clientPort={port}"""

_OVER_TLS = """\
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
secureClientPortAddress={host}
secureClientPort={port}
ssl.keyStore.location={key_store}
ssl.keyStore.type=PEM
ssl.trustStore.location={trust_store}
ssl.trustStore.type=PEM"""
"""Clients must show a certificate: that is ZooKeeper's default."""

_KEY_STORE = "key-store.pem"

_ASK_S = 5.0
"""For the answer to ``envi``, which takes a millisecond."""

_ASKED_BYTES = 65536
"""Of that answer, a few kilobytes with the class path."""

logger = logging.getLogger(__name__)


class LocalZooKeeper(LocalProcess):
    """The ZooKeeper server of a local cluster.

    Whoever answers on a port need not be the process that was started for it. So each start draws a name, which the process
    has as its property ``user.name`` and shows to whoever asks.
    """

    def __init__(self, keeper: Keeper, directory: Path, port: int, java: Sequence[str], tls: LocalTls | None = None) -> None:
        """``java`` is its ``zookeeper_command``. With ``tls`` it speaks nothing else."""
        super().__init__(keeper, directory, port)
        self._java = java
        self._tls = tls
        self._proof = b""

    def start(self) -> None:
        """Start it, and wait until it, and no other one, answers a client."""
        place = self._keeper.place
        config = self._inside / "zookeeper.cfg"
        data = place.from_child / place.below(self._directory / "data")
        with storage_errors(self._directory / config.name):
            self._inside.mkdir(mode=0o700, exist_ok=True)
            self._close_to_others()
            (self._inside / "data").mkdir(exist_ok=True)
            config.write_text(zookeeper_config(data, self._listens()))
        name = f"bk_spark-{secrets.token_hex(8)}"
        self._proof = f"user.name={name}\n".encode()
        shown = [f"-Duser.name={name}", f"-Dbk_spark={self._directory}"]
        server = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._launch([*self._java, *shown, server, str(place.from_child / place.below(self._directory / config.name))])
        self._await(self._answers)

    def uri(self, root: str) -> str:
        """A metadata URI of this server."""
        return f"zk://{self.address}{root}" + ("?tls=true" if self._tls else "")

    def _close_to_others(self) -> None:
        """The metadata, with all names and what is kept of passwords, are its owner's, where the file system has rights."""
        if self._inside.stat().st_mode & 0o077:
            try:
                self._inside.chmod(0o700)
            except PermissionError as problem:
                logger.warning("%s stays open to other users (%s)", self._directory, problem.strerror)

    def _listens(self) -> str:
        if self._tls is None:
            return in_clear(self._host, self.port)
        files, place = self._tls.server, self._keeper.place
        write_secret(self._inside / _KEY_STORE, Path(files.key).read_bytes() + Path(files.certificate).read_bytes())
        key_store = place.from_child / place.below(self._directory / _KEY_STORE)
        return _OVER_TLS.format(host=self._host, port=self.port, key_store=key_store, trust_store=files.ca)

    def _is_ours(self) -> bool:
        try:
            with (
                socket.create_connection((self._host, self.port), timeout=_ASK_S) as connection,
                self._spoken(connection) as asked,
            ):
                asked.sendall(b"envi")
                answer = b""
                while len(answer) < _ASKED_BYTES and (more := asked.recv(_ASKED_BYTES)):
                    answer += more
        except OSError:
            return False
        return self._proof in answer

    def _spoken(self, connection: socket.socket) -> socket.socket:
        if self._tls is None:
            return connection
        return client_context(self._tls.client).wrap_socket(connection, server_hostname=self._host)

    def _answers(self) -> bool:
        if not self._is_ours():
            return False
        try:
            tls = self._tls.client if self._tls else None
            connect(self.uri("/ledgers"), connect_timeout_s=_CONNECT_S, session_timeout_s=_SESSION_S, tls=tls).close()
        except MetadataUnavailableError:
            return False
        return True


def zookeeper_config(data: Path, listens: str) -> str:
    """The configuration of a server that keeps its data in ``data``, with the lines that say where it listens."""
    return _ZOOKEEPER_CONFIG.format(data=data, listens=listens)


def in_clear(host: str, port: int) -> str:
    """The lines of a server that listens there, and speaks no TLS."""
    return _IN_CLEAR.format(host=host, port=port)


def zookeeper_command(*, tls: bool = False) -> list[str]:
    """The command line up to the server's class. Raises ConfigError if Java or a jar is missing."""
    return [find_java(), *_JAVA_OPTIONS, "-cp", find_zookeeper_jars(_TLS_JARS if tls else ())]


def find_java() -> str:
    """The ``java`` in JAVA_HOME, if that is set, or on the PATH. Raises ConfigError."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise ConfigError(
            "JAVA_HOME" if home else "the program 'java'",
            home or State("not on the PATH"),
            "a local cluster needs Java 17 or newer for ZooKeeper: install it, on Debian or Ubuntu with "
            "'apt install openjdk-17-jre-headless', on macOS with 'brew install openjdk@17', and let JAVA_HOME or PATH show it",
        )
    return java


def find_zookeeper_jars(more: Sequence[str] = ()) -> str:
    """The ZooKeeper server's class path in the installed pyspark, without importing pyspark. Raises ConfigError."""
    wanted = (*_ZOOKEEPER_JARS, *more)
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "pyspark", State("not installed"), "a local cluster takes ZooKeeper from it: run 'pip install pyspark'"
        )
    package = Path(spec.submodule_search_locations[0])
    # Spark's Python workers have the package from <home>/python/lib/pyspark.zip; the jars are in <home>.
    jars = next((home / "jars" for home in (package, *package.parents[:4]) if (home / "jars").is_dir()), package / "jars")
    found = [sorted(jars.glob(f"{name}-[0-9]*.jar")) for name in wanted]
    if not all(found):
        missing = [name for name, files in zip(wanted, found, strict=True) if not files]
        raise ConfigError("pyspark's directory of jars", str(jars), f"it lacks {', '.join(missing)}: install pyspark from PyPI")
    return os.pathsep.join(str(files[-1]) for files in found)
