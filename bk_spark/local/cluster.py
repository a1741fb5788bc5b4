"""A local cluster: a real ZooKeeper from the jars that pyspark ships, and N bookies, each a process of this machine.

::

    <data_dir>/cluster.json               version, ports
    <data_dir>/zookeeper/zookeeper.cfg    written at each start;  data/ and log/ beside it
    <data_dir>/bookie-1/data              the bookie's data directory;  log/ beside it
    <data_dir>/autorecovery-1/log         of an AutoRecovery process, if one was started
    <data_dir>/tls/                       with TLS: certificates and keys (security.py)

A directory keeps its ports for as long as it is used, if they are free. ``process.py`` ends what is started here.
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
from typing import TypeVar

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.identity.cookie import format_bookie, read_cookie
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE
from bk_spark.client.replication.auditor_znodes import candidates
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.config import BookieConfig, ClientConfig
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError, MetadataUnavailableError
from bk_spark.local.process import HOST, Keeper, LocalProcess, end_all, reserved_port
from bk_spark.local.security import command_environment, command_options, local_tls
from bk_spark.local.zookeeper_server import LocalZooKeeper, zookeeper_command
from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.metadata.registration import initialise_cluster, intended_root, lookup, open_root, unregister
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect
from bk_spark.tls.files import TlsFiles

ROOT = "/ledgers"
STATE_VERSION = 1
DEFAULT_BOOKIE_CONFIG = BookieConfig(disk_usage_high=0.99, disk_usage_low=0.98)
"""The disk is shared with everything else on this machine: that it is nearly full says little about what bookies need."""

DEFAULT_AUTORECOVERY_CONFIG = AutoRecoveryConfig()

_SESSION_S = 10.0
"""Time to connect, and session timeout, of the short sessions in which this module looks at its cluster."""

_Config = TypeVar("_Config", BookieConfig, ClientConfig)


class LocalCluster:
    """ZooKeeper and bookies on this machine, for as long as this process lives.

    ``data_dir=None`` is a temporary directory, which is removed at the end. A directory that was used before has all its data
    again: all of its bookies start, even if that is more than ``bookies``, with their ids, and on their ports where these are
    free. ``bookie_config`` holds for all bookies, for this use of the directory. ``layout`` is how a new cluster lays out its
    ledgers in ZooKeeper (None: hierarchical); a directory that was used before keeps its own. When the constructor returns,
    every process serves.

    With ``tls`` bookies and clients show each other certificates, signed by an authority of the cluster's own; clients
    connect with ``client_config``, whose files are in ``<data_dir>/tls``. ``bookie_config.zookeeper_auth`` protects
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
            self._state = self.data_dir / "cluster.json"
            zookeeper_port, bookie_ports = _read_ports(self._state)
            port = undo.enter_context(reserved_port(zookeeper_port))
            self.zookeeper = LocalZooKeeper(self._keeper, self.data_dir / "zookeeper", port, java)
            undo.callback(self._stop_processes)
            self._undo = undo
            self._start(bookie_ports + [None] * (bookies - len(bookie_ports)))
            self._undo = undo.pop_all()

    def __repr__(self) -> str:
        standing = "closed" if self._closed else f"{len(self._bookies)} bookies"
        return f"<LocalCluster at {self.metadata_uri} in {self.data_dir}, {standing}>"

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
        with _connect(self.metadata_uri, self._bookie_config.zookeeper_auth) as store:
            bookie = self._join(store, None)
        self._save_ports()
        bookie.start()
        return bookie

    def start_autorecovery(self, config: AutoRecoveryConfig = DEFAULT_AUTORECOVERY_CONFIG) -> LocalAutoRecovery:
        """Start one more AutoRecovery process: a candidate for auditor, and a replication worker."""
        self._check_open()
        directory = self.data_dir / f"autorecovery-{len(self._autorecoveries) + 1}"
        process = LocalAutoRecovery(self._keeper, directory, self.metadata_uri, config, self.client_config)
        self._autorecoveries.append(process)
        process.start()
        return process

    def restart_ended(self) -> None:
        """Start again what was started and has ended: ZooKeeper and bookies, not AutoRecovery. Returns once they serve.

        Raises ProcessFailedError, MetadataUnavailableError, and ConfigError if nothing can be started any more.
        """
        self._check_open()
        if self.zookeeper.pid is None:
            self.zookeeper.start()
        try:
            self._restart_bookies()
        except MetadataUnavailableError:
            if self.zookeeper.pid is not None:
                raise
            self.zookeeper.start()  # of processes that were killed together, a bookie was seen to have ended before it
            self._restart_bookies()

    def close(self) -> None:
        """Stop everything, and remove a temporary directory. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._undo.close()

    def __enter__(self) -> LocalCluster:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, ports: Sequence[int | None]) -> None:
        self.zookeeper.start()
        with _connect(self.metadata_uri, self._bookie_config.zookeeper_auth) as store:
            initialise_cluster(store, intended_root(store, ROOT, self._layout))
            for port in ports:
                self._join(store, port)
            self._save_ports()
            self._start_bookies(store)

    def _restart_bookies(self) -> None:
        if any(bookie.pid is None for bookie in self._bookies):
            with _connect(self.metadata_uri, self._bookie_config.zookeeper_auth) as store:
                self._start_bookies(store)

    def _start_bookies(self, store: ZooKeeperStore) -> None:
        """All that do not run, side by side."""
        ended = [bookie for bookie in self._bookies if bookie.pid is None]
        for bookie in ended:
            bookie.launch(store)
        for bookie in ended:
            bookie.await_ready(store)

    def _join(self, store: ZooKeeperStore, wanted_port: int | None) -> LocalBookie:
        """Add a bookie to the list. It is formatted if its directory is new."""
        directory = self.data_dir / f"bookie-{len(self._bookies) + 1}"
        port = self._undo.enter_context(reserved_port(wanted_port))
        data_dir = directory / "data"
        if (data_dir / COOKIE_FILE).exists():
            bookie_id = read_cookie(data_dir).bookie_id
        else:
            directories = Directories.of(data_dir, self._bookie_config)
            bookie_id = format_bookie(directories, store, open_root(store, ROOT), f"{HOST}:{port}")
        bookie = LocalBookie(self._keeper, directory, port, bookie_id, self.metadata_uri, self._bookie_config)
        self._bookies.append(bookie)
        return bookie

    def _save_ports(self) -> None:
        ports = {"zookeeper_port": self.zookeeper.port, "bookie_ports": [bookie.port for bookie in self._bookies]}
        temporary = self._state.with_suffix(".creating")
        temporary.write_text(json.dumps({"version": STATE_VERSION, **ports}))
        temporary.replace(self._state)

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("the local cluster", str(self.data_dir), "it is closed: make a new LocalCluster")

    def _stop_processes(self) -> None:
        # AutoRecovery first, or it would see bookies go; ZooKeeper last, since the others unregister there.
        end_all(self._autorecoveries)
        end_all(self._bookies)
        end_all([self.zookeeper])

    def _remove_temporary(self) -> None:
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)


class LocalBookie(LocalProcess):
    """One bookie process of a local cluster. ``data_dir`` holds its files."""

    def __init__(
        self, keeper: Keeper, directory: Path, port: int, bookie_id: str, metadata_uri: str, config: BookieConfig
    ) -> None:
        super().__init__(keeper, directory, port)
        self.bookie_id = bookie_id
        self.data_dir = directory / "data"
        self.config = config
        """The settings of its next start."""
        self._metadata_uri = metadata_uri

    def start(self) -> None:
        """Start it, and wait until it is registered and accepts connections."""
        with _connect(self._metadata_uri, self.config.zookeeper_auth) as store:
            self.launch(store)
            self.await_ready(store)

    def launch(self, store: ZooKeeperStore) -> None:
        """Start the process. A dead one's registration is removed first, so that ``await_ready`` sees the new one."""
        self.check_stopped()
        unregister(store, Znodes(ROOT), self.bookie_id)
        # Metrics are always served, on a free port unless the settings name one; the registration says which.
        config = self.config if self.config.http_port >= 0 else dataclasses.replace(self.config, http_port=0)
        command = bookie_command(self.data_dir, self._metadata_uri, self.port, config)
        self._launch(command, command_environment(config.client_config()))

    def await_ready(self, store: ZooKeeperStore) -> None:
        self._await(lambda: self._is_registered(store) and self._accepts())

    def _is_registered(self, store: ZooKeeperStore) -> bool:
        address = lookup(store, Znodes(ROOT), self.bookie_id)
        return address is not None and (address.host, address.port) == (self._host, self.port)


class LocalAutoRecovery(LocalProcess):
    """One AutoRecovery process of a local cluster. ``port`` is its ``http_port``, 0 if it has none."""

    def __init__(
        self, keeper: Keeper, directory: Path, metadata_uri: str, config: AutoRecoveryConfig, client: ClientConfig
    ) -> None:
        """``client`` says how it reaches bookies and ZooKeeper."""
        super().__init__(keeper, directory, config.http_port)
        self.config = config
        """The settings of its next start."""
        self.name = ""
        """Its name in votes and locks. Each start has a new one, because the vote of a killed process stays for a while."""
        self._metadata_uri = metadata_uri
        self._client = client
        self._starts = 0

    def start(self) -> None:
        """Start it, and wait until it stands for election."""
        self.check_stopped()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._starts += 1
        self.name = f"{self._directory.name}.{self._starts}"
        options = ["--metadata", self._metadata_uri, "--name", self.name, "--http-host", HOST]
        command = [*_command("autorecovery", "run", options, self.config), *command_options(self._client)]
        with _connect(self._metadata_uri, self._client.zookeeper_auth) as store:
            self._launch(command, command_environment(self._client))
            self._await(lambda: self.name in candidates(store, Znodes(ROOT)))


def bookie_command(data_dir: Path, metadata_uri: str, port: int, config: BookieConfig) -> list[str]:
    """The command line that starts a bookie."""
    options = ["--data-dir", str(data_dir), "--metadata", metadata_uri, "--host", HOST, "--port", str(port)]
    return _command("bookie", "start", options, config)


def _command(group: str, command: str, options: Sequence[str], config: BookieConfig | AutoRecoveryConfig) -> list[str]:
    """With all settings that are not the default, but without secrets, which ``ps`` would show."""
    words = [sys.executable, "-P", "-m", "bk_spark.cli", group, command, *options]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value != field.default and field.repr:
            words += ["--" + field.name.replace("_", "-"), str(value).lower() if isinstance(value, bool) else str(value)]
    return words


def _read_ports(path: Path) -> tuple[int | None, list[int | None]]:
    """The ports of ZooKeeper and of the bookies in ``cluster.json``; none for a new directory."""
    if not path.exists():
        return None, []
    try:
        state = json.loads(path.read_text())
    except ValueError as problem:
        raise CorruptionError(str(path), f"it is not JSON ({problem})") from problem
    if not isinstance(state, dict) or not isinstance(state.get("version"), int):
        raise CorruptionError(str(path), "it has no version")
    if state["version"] > STATE_VERSION:
        raise FormatVersionError(str(path), state["version"], STATE_VERSION)
    return state.get("zookeeper_port"), list(state.get("bookie_ports", []))


def _secured(bookie_config: BookieConfig, tls_dir: Path | None) -> tuple[BookieConfig, ClientConfig]:
    """The settings of the bookies, and those of their clients. With ``tls_dir`` both name files in it."""
    client_config = bookie_config.client_config()
    if tls_dir is None:
        return bookie_config, client_config
    bookie_files, client_files = local_tls(tls_dir)
    return _with_files(bookie_config, bookie_files), _with_files(client_config, client_files)


def _with_files(config: _Config, files: TlsFiles) -> _Config:
    return dataclasses.replace(config, tls_ca=files.ca, tls_certificate=files.certificate, tls_key=files.key)


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
