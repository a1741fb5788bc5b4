"""A local cluster: one real ZooKeeper from the jars that pyspark ships, and N bookie processes.

::

    <data_dir>/cluster.json               version, ports
    <data_dir>/zookeeper/zookeeper.cfg    written at each start;  data/ and log/ beside it
    <data_dir>/bookie-1/data              the bookie's data directory;  log/ beside it

Ports stay the same as long as the directory is used, if they are free. local_process.py ends what is started here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bk_spark.bookie.cookie import format_bookie, read_cookie
from bk_spark.bookie.cookie_file import COOKIE_FILE
from bk_spark.bookie.directories import Directories
from bk_spark.config import BookieConfig
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError, MetadataUnavailableError
from bk_spark.local_process import HOST, Keeper, LocalProcess, end_all, reserved_port
from bk_spark.registration import initialise_cluster, lookup, unregister
from bk_spark.znodes import Znodes
from bk_spark.zookeeper import ZooKeeperStore, connect

ROOT = "/ledgers"
STATE_VERSION = 1
DEFAULT_BOOKIE_CONFIG = BookieConfig(disk_usage_high=0.99, disk_usage_low=0.98)
"""The disk is shared with all else on this machine: that it is nearly full says little of what bookies need."""

_SESSION_S = 10.0
"""Time to connect, and session timeout, of the short sessions with which this module looks at its cluster."""

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
"""What the server needs of pyspark's 250 jars: with all of them on the class path it starts half as fast."""

_JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.preAllocSize=1024")
"""Small and quick to start. preAllocSize is in KiB; ZooKeeper would grow its log by 64 MiB at a time."""

_ZOOKEEPER_CONFIG = """\
tickTime=250
minSessionTimeout=500
maxSessionTimeout=60000
dataDir={data}
clientPortAddress={host}
clientPort={port}
maxClientCnxns=0
admin.enableServer=false
"""
"""Every Spark worker comes from one address: no limit of connections to an address. Sessions are counted in ticks."""


class LocalCluster:
    """ZooKeeper and bookies on this machine, for as long as this process lives.

    ``data_dir=None`` is a temporary directory, removed at the end. A directory that was used before has all its data
    again: all of its bookies start, under their ids and on their ports where these are free, also if that is more than
    ``bookies``. ``bookie_config`` holds for all of them, at this use of the directory. When the constructor returns, every
    process serves.

    Raises ConfigError (no Java, bad arguments, a directory in use) and ProcessFailedError.

    Example: ``with LocalCluster(bookies=3) as cluster: BookKeeper(cluster.metadata_uri)``.
    """

    def __init__(
        self,
        bookies: int = 3,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        bookie_config: BookieConfig = DEFAULT_BOOKIE_CONFIG,
    ) -> None:
        if isinstance(bookies, bool) or not isinstance(bookies, int) or bookies < 0:
            raise ConfigError("bookies", bookies, "it must be a whole number, 0 or more")
        java, class_path = find_java(), find_zookeeper_jars()
        self._temporary = data_dir is None
        self.data_dir = _directory(data_dir)
        self._bookie_config = bookie_config
        self._closed = False
        self._bookies: list[LocalBookie] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove_temporary)
            self._keeper = undo.enter_context(Keeper(self.data_dir, self._temporary))
            self._state = _State(self.data_dir / "cluster.json")
            port = undo.enter_context(reserved_port(self._state.zookeeper_port))
            command = [java, *_JAVA_OPTIONS, "-cp", class_path]
            self.zookeeper = LocalZooKeeper(self._keeper, self.data_dir / "zookeeper", port, command)
            undo.callback(self._stop_processes)
            self._undo = undo
            self._start(bookies)
            self._undo = undo.pop_all()

    @property
    def metadata_uri(self) -> str:
        """What clients and Spark's option ``metadata`` take."""
        return f"zk://{HOST}:{self.zookeeper.port}{ROOT}"

    @property
    def bookies(self) -> list[LocalBookie]:
        """All bookies of the cluster, running or not, in the order in which they joined."""
        return list(self._bookies)

    def add_bookie(self) -> LocalBookie:
        """Format and start one more bookie."""
        self._check_open()
        with self._connect() as store:
            bookie = self._join(store, None)
            self._save()
            bookie.launch(store)
            bookie.await_ready(store)
        return bookie

    def close(self) -> None:
        """Stop everything, and remove the directory if it is a temporary one. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._undo.close()

    def __enter__(self) -> LocalCluster:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, bookies: int) -> None:
        self.zookeeper.start()
        ports = self._state.bookie_ports
        with self._connect() as store:
            initialise_cluster(store, Znodes(ROOT))
            for port in ports + [None] * (bookies - len(ports)):
                self._join(store, port)
            self._save()
            for bookie in self._bookies:
                bookie.launch(store)
            for bookie in self._bookies:
                bookie.await_ready(store)

    def _join(self, store: ZooKeeperStore, wanted_port: int | None) -> LocalBookie:
        directory = self.data_dir / f"bookie-{len(self._bookies) + 1}"
        port = self._undo.enter_context(reserved_port(wanted_port))
        data_dir = directory / "data"
        if (data_dir / COOKIE_FILE).exists():
            bookie_id = read_cookie(data_dir).bookie_id
        else:
            bookie_id = format_bookie(Directories.of(data_dir, self._bookie_config), store, Znodes(ROOT), f"{HOST}:{port}")
        bookie = LocalBookie(self._keeper, directory, port, bookie_id, self.metadata_uri)
        bookie.config = self._bookie_config
        self._bookies.append(bookie)
        return bookie

    def _save(self) -> None:
        self._state.save(self.zookeeper.port, [bookie.port for bookie in self._bookies])

    def _connect(self) -> ZooKeeperStore:
        return connect(self.metadata_uri, connect_timeout_s=_SESSION_S, session_timeout_s=_SESSION_S)

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("the local cluster", str(self.data_dir), "it is closed: make a new LocalCluster")

    def _stop_processes(self) -> None:
        # Bookies first, and all at once: they take their leave of ZooKeeper.
        end_all(self._bookies)
        end_all([self.zookeeper])

    def _remove_temporary(self) -> None:
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)


class LocalZooKeeper(LocalProcess):
    """The ZooKeeper server of a local cluster."""

    def __init__(self, keeper: Keeper, directory: Path, port: int, java: Sequence[str]) -> None:
        super().__init__(keeper, directory, port)
        self._java = java

    def start(self) -> None:
        """Start it, and wait until it answers a client."""
        data = self._directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        config = self._directory / "zookeeper.cfg"
        config.write_text(_ZOOKEEPER_CONFIG.format(data=data, host=HOST, port=self.port))
        self._launch([*self._java, "org.apache.zookeeper.server.ZooKeeperServerMain", str(config)])
        self._await(self._accepts)
        self._await(self._answers)

    def _answers(self) -> bool:
        try:
            # Short attempts: while ZooKeeper starts it may accept a connection and forget about it.
            connect(f"zk://{self.address}{ROOT}", connect_timeout_s=1.0, session_timeout_s=_SESSION_S).close()
        except MetadataUnavailableError:
            return False
        return True


class LocalBookie(LocalProcess):
    """One bookie process of a local cluster. ``data_dir`` holds its files."""

    def __init__(self, keeper: Keeper, directory: Path, port: int, bookie_id: str, metadata_uri: str) -> None:
        super().__init__(keeper, directory, port)
        self.bookie_id = bookie_id
        self.data_dir = directory / "data"
        self.config = DEFAULT_BOOKIE_CONFIG
        """The settings that it starts with, the next time."""
        self._metadata_uri = metadata_uri

    def start(self) -> None:
        """Start it, and wait until it is registered and accepts connections."""
        with connect(self._metadata_uri, connect_timeout_s=_SESSION_S, session_timeout_s=_SESSION_S) as store:
            self.launch(store)
            self.await_ready(store)

    def launch(self, store: ZooKeeperStore) -> None:
        """Start the process. What an earlier, dead one left registered is removed, so that ``await_ready`` sees the new one."""
        self.check_stopped()
        unregister(store, Znodes(ROOT), self.bookie_id)
        self._launch(bookie_command(self.data_dir, self._metadata_uri, self.port, self.config))

    def await_ready(self, store: ZooKeeperStore) -> None:
        self._await(lambda: self._is_registered(store) and self._accepts())

    def _is_registered(self, store: ZooKeeperStore) -> bool:
        address = lookup(store, Znodes(ROOT), self.bookie_id)
        return address is not None and (address.host, address.port) == (HOST, self.port)


class _State:
    """``cluster.json``: which bookies a data directory has, and the ports to use again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        state: dict[str, Any] = _read_state(path) if path.exists() else {"version": STATE_VERSION}
        if state["version"] > STATE_VERSION:
            raise FormatVersionError(str(path), state["version"], STATE_VERSION)
        self.zookeeper_port: int | None = state.get("zookeeper_port")
        self.bookie_ports: list[int | None] = list(state.get("bookie_ports", []))

    def save(self, zookeeper_port: int, bookie_ports: Sequence[int]) -> None:
        state = {"version": STATE_VERSION, "zookeeper_port": zookeeper_port, "bookie_ports": list(bookie_ports)}
        temporary = self._path.with_suffix(".creating")
        temporary.write_text(json.dumps(state))
        temporary.replace(self._path)


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_text())
    except ValueError as problem:
        raise CorruptionError(str(path), f"it is not JSON ({problem})") from problem
    if not isinstance(state, dict) or not isinstance(state.get("version"), int):
        raise CorruptionError(str(path), "it has no version")
    return state


def bookie_command(data_dir: Path, metadata_uri: str, port: int, config: BookieConfig) -> list[str]:
    """How a bookie process is started: with all settings that are not the default."""
    options = ["--data-dir", str(data_dir), "--metadata", metadata_uri, "--host", HOST, "--port", str(port)]
    for field in dataclasses.fields(BookieConfig):
        value = getattr(config, field.name)
        if value != field.default:
            options += ["--" + field.name.replace("_", "-"), str(value).lower() if isinstance(value, bool) else str(value)]
    return [sys.executable, "-P", "-m", "bk_spark.cli", "bookie", "start", *options]


def find_java() -> str:
    """The ``java`` of JAVA_HOME, or else of the PATH. Raises ConfigError."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise ConfigError(
            "JAVA_HOME" if home else "the program 'java'",
            home or "not on the PATH",
            "a local cluster needs Java 17 or newer for ZooKeeper: install it, on Debian or Ubuntu with "
            "'apt install openjdk-17-jre-headless', on macOS with 'brew install openjdk@17', and let JAVA_HOME or PATH show it",
        )
    return java


def find_zookeeper_jars() -> str:
    """The class path of the ZooKeeper server in the installed pyspark, which is not imported. Raises ConfigError."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("pyspark", "not installed", "a local cluster takes ZooKeeper from it: run 'pip install pyspark'")
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    found = [sorted(jars.glob(f"{name}-[0-9]*.jar")) for name in _ZOOKEEPER_JARS]
    if not all(found):
        missing = [name for name, files in zip(_ZOOKEEPER_JARS, found, strict=True) if not files]
        raise ConfigError("pyspark's directory of jars", str(jars), f"it lacks {', '.join(missing)}: install pyspark from PyPI")
    return os.pathsep.join(str(files[-1]) for files in found)


def _directory(data_dir: str | os.PathLike[str] | None) -> Path:
    if data_dir is None:
        return Path(tempfile.mkdtemp(prefix="bk_spark-"))
    directory = Path(data_dir).resolve()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ConfigError("data_dir", str(data_dir), f"it cannot be made ({problem.strerror})") from problem
    return directory
