"""A local cluster: one real ZooKeeper from the jars that pyspark ships, and N bookie processes.

::

    <data_dir>/cluster.json               version, ports
    <data_dir>/zookeeper/zookeeper.cfg    written at each start;  data/ and log/ beside it
    <data_dir>/bookie-1/data              the bookie's data directory;  log/ beside it
    <data_dir>/autorecovery-1/log         of an AutoRecovery process, if one was started
    <data_dir>/tls/                       with TLS: certificates and keys (security.py)

Ports stay the same as long as the directory is used, if they are free. process.py ends what is started here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.identity.cookie import format_bookie, read_cookie
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.config import BookieConfig, ClientConfig
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.local.autorecovery import LocalAutoRecovery
from bk_spark.local.process import HOST, Keeper, LocalProcess, end_all, reserved_port
from bk_spark.local.security import command_environment, local_tls
from bk_spark.local.zookeeper_server import LocalZooKeeper, zookeeper_command
from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.metadata.registration import initialise_cluster, intended_root, lookup, open_root, unregister
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect

ROOT = "/ledgers"
STATE_VERSION = 1
DEFAULT_BOOKIE_CONFIG = BookieConfig(disk_usage_high=0.99, disk_usage_low=0.98)
"""The disk is shared with all else on this machine: that it is nearly full says little of what bookies need."""

DEFAULT_AUTORECOVERY_CONFIG = AutoRecoveryConfig()

_SESSION_S = 10.0
"""Time to connect, and session timeout, of the short sessions with which this module looks at its cluster."""


class LocalCluster:
    """ZooKeeper and bookies on this machine, for as long as this process lives.

    ``data_dir=None`` is a temporary directory, removed at the end. A directory that was used before has all its data
    again: all of its bookies start, under their ids and on their ports where these are free, also if that is more than
    ``bookies``. ``bookie_config`` holds for all of them, at this use of the directory. ``layout`` is how a new
    cluster lays out its ledgers in ZooKeeper (None: hierarchical); a directory that was used before keeps its own. When the
    constructor returns, every process serves.

    With ``tls`` bookies and clients show each other certificates that an authority of the cluster's own signed; clients
    connect with ``client_config``, whose files lie in ``<data_dir>/tls``. ``bookie_config.zookeeper_auth`` protects
    everything in ZooKeeper, and is in ``client_config`` too.

    Raises ConfigError (no Java, bad arguments, a directory in use) and ProcessFailedError.

    Example: ``with LocalCluster(bookies=3) as cluster: BookKeeper(cluster.metadata_uri)``.
    """

    def __init__(
        self,
        bookies: int = 3,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        bookie_config: BookieConfig = DEFAULT_BOOKIE_CONFIG,
        layout: LedgerLayout | None = None,
        tls: bool = False,
    ) -> None:
        if isinstance(bookies, bool) or not isinstance(bookies, int) or bookies < 0:
            raise ConfigError("bookies", bookies, "it must be a whole number, 0 or more")
        java = zookeeper_command()
        self._temporary = data_dir is None
        self.data_dir = _directory(data_dir)
        self._bookie_config, self.client_config = _secured(bookie_config, self.data_dir / "tls" if tls else None)
        self._layout = layout
        self._closed = False
        self._bookies: list[LocalBookie] = []
        self._autorecoveries: list[LocalAutoRecovery] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove_temporary)
            self._keeper = undo.enter_context(Keeper(self.data_dir, self._temporary))
            self._state = _State(self.data_dir / "cluster.json")
            port = undo.enter_context(reserved_port(self._state.zookeeper_port))
            self.zookeeper = LocalZooKeeper(self._keeper, self.data_dir / "zookeeper", port, java)
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

    def start_autorecovery(self, config: AutoRecoveryConfig = DEFAULT_AUTORECOVERY_CONFIG) -> LocalAutoRecovery:
        """Start one more process that finds lost copies, if it is elected auditor, and makes them again."""
        self._check_open()
        directory = self.data_dir / f"autorecovery-{len(self._autorecoveries) + 1}"
        process = LocalAutoRecovery(self._keeper, directory, self.metadata_uri, config, self.client_config)
        self._autorecoveries.append(process)
        process.start()
        return process

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
            initialise_cluster(store, intended_root(store, ROOT, self._layout))
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
            directories = Directories.of(data_dir, self._bookie_config)
            bookie_id = format_bookie(directories, store, open_root(store, ROOT), f"{HOST}:{port}")
        bookie = LocalBookie(self._keeper, directory, port, bookie_id, self.metadata_uri)
        bookie.config = self._bookie_config
        self._bookies.append(bookie)
        return bookie

    def _save(self) -> None:
        self._state.save(self.zookeeper.port, [bookie.port for bookie in self._bookies])

    def _connect(self) -> ZooKeeperStore:
        return _connect(self.metadata_uri, self._bookie_config.zookeeper_auth)

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("the local cluster", str(self.data_dir), "it is closed: make a new LocalCluster")

    def _stop_processes(self) -> None:
        # ZooKeeper last, of which the others take their leave; and AutoRecovery first, which would see bookies go.
        end_all(self._autorecoveries)
        end_all(self._bookies)
        end_all([self.zookeeper])

    def _remove_temporary(self) -> None:
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)


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
        with _connect(self._metadata_uri, self.config.zookeeper_auth) as store:
            self.launch(store)
            self.await_ready(store)

    def launch(self, store: ZooKeeperStore) -> None:
        """Start the process. What an earlier, dead one left registered is removed, so that ``await_ready`` sees the new one."""
        self.check_stopped()
        unregister(store, Znodes(ROOT), self.bookie_id)
        # Metrics are always there, on a free port unless the settings say which: the registration tells where.
        config = self.config if self.config.http_port >= 0 else dataclasses.replace(self.config, http_port=0)
        command = bookie_command(self.data_dir, self._metadata_uri, self.port, config)
        self._launch(command, command_environment(config.client_config()))

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
    """How a bookie process is started: with all settings that are not the default, but no secret, which ``ps`` would show."""
    options = ["--data-dir", str(data_dir), "--metadata", metadata_uri, "--host", HOST, "--port", str(port)]
    for field in dataclasses.fields(BookieConfig):
        value = getattr(config, field.name)
        if value != field.default and field.repr:
            options += ["--" + field.name.replace("_", "-"), str(value).lower() if isinstance(value, bool) else str(value)]
    return [sys.executable, "-P", "-m", "bk_spark.cli", "bookie", "start", *options]


def _secured(bookie_config: BookieConfig, tls_dir: Path | None) -> tuple[BookieConfig, ClientConfig]:
    """The settings of bookies, and of clients that reach them."""
    if tls_dir is None:
        return bookie_config, bookie_config.client_config()
    files = local_tls(tls_dir)
    bookie, client = files.bookie, files.client
    return (
        dataclasses.replace(bookie_config, tls_ca=bookie.ca, tls_certificate=bookie.certificate, tls_key=bookie.key),
        ClientConfig(
            tls_ca=client.ca,
            tls_certificate=client.certificate,
            tls_key=client.key,
            zookeeper_auth=bookie_config.zookeeper_auth,
        ),
    )


def _connect(metadata_uri: str, auth: str) -> ZooKeeperStore:
    return connect(metadata_uri, connect_timeout_s=_SESSION_S, session_timeout_s=_SESSION_S, auth=auth)


def _directory(data_dir: str | os.PathLike[str] | None) -> Path:
    if data_dir is None:
        return Path(tempfile.mkdtemp(prefix="bk_spark-"))
    directory = Path(data_dir).resolve()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ConfigError("data_dir", str(data_dir), f"it cannot be made ({problem.strerror})") from problem
    return directory
