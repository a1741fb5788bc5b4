"""A local cluster: a real ZooKeeper from the jars that pyspark ships, and N bookies, each a process of this machine.

::

    <data_dir>/cluster.json               ports, and which directory this is (state.py)
    <data_dir>/lock                       is locked while processes of the cluster may run (place.py)
    <data_dir>/zookeeper/zookeeper.cfg    written at each start;  data/ and log/ beside it
    <data_dir>/bookie-1/data              the bookie's data directory;  log/ beside it
    <data_dir>/autorecovery-1/log         of an AutoRecovery process, if one was started
    <data_dir>/tls/                       with TLS: certificates and keys (security.py)

A directory keeps its ports for as long as it is used, if they are free (ports.py). A copy of it is a cluster of its own
(renewal.py). ``process.py`` ends what is started here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.identity.cookie import format_bookie, read_cookie
from bk_spark.bookie.identity.cookie_file import COOKIE_FILE
from bk_spark.config import BookieConfig, ClientConfig
from bk_spark.embedded.join import TLS_DIRECTORY
from bk_spark.embedded.owners import refusal_of_cluster
from bk_spark.embedded.turn import is_hosted_elsewhere
from bk_spark.errors import BookKeeperError, ConfigError, MetadataUnavailableError, ProcessFailedError, State, StorageError
from bk_spark.local.contents import whole_state
from bk_spark.local.copying import WAIT_S
from bk_spark.local.place import ClusterDirectory, DataDirectoryInUseError, config_errors, inode_of, leads_to
from bk_spark.local.ports import HOST, Ports
from bk_spark.local.process import Keeper, LocalProcess, end_all
from bk_spark.local.refusals import RefusedBookie, reason_of
from bk_spark.local.remains import set_remains_aside
from bk_spark.local.renewal import renew
from bk_spark.local.security import LocalTls, command_environment, command_options, local_tls
from bk_spark.local.state import read_state, write_state
from bk_spark.local.zookeeper_server import LocalZooKeeper, zookeeper_command
from bk_spark.metadata.ledger_layout import LedgerLayout
from bk_spark.metadata.registration import initialise_cluster, intended_root, lookup, open_root, unregister
from bk_spark.metadata.uri import speaks_tls
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect_with
from bk_spark.replication.auditor_znodes import candidates
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.tls.files import TlsFiles

ROOT = "/ledgers"
DEFAULT_BOOKIE_CONFIG = BookieConfig(disk_usage_high=0.99, disk_usage_low=0.98)
"""The disk is shared with everything else on this machine: that it is nearly full says little about what bookies need."""

DEFAULT_AUTORECOVERY_CONFIG = AutoRecoveryConfig()

MAX_BOOKIES = 100
"""Each is a process of some 70 MB, and takes two descriptors of the owner, which keeps its port, of the 1,024 it may have."""

_POLL_S = 0.1

_ZOOKEEPER_TRIES = 3
"""On as many ports. A port is tried at once, so it is lost only to a program that came in between."""

_Config = TypeVar("_Config", BookieConfig, ClientConfig)

logger = logging.getLogger(__name__)


class LocalCluster:
    """ZooKeeper and bookies on this machine, for as long as this process lives.

    ``data_dir=None`` is a temporary directory, which is removed at the end. A directory that was used before has all its data
    again: all of its bookies start, even if that is more than ``bookies``, with their ids, and on their ports where these are
    free. ``bookie_config`` holds for all bookies, for this use of the directory. ``layout`` is how a new cluster lays out its
    ledgers in ZooKeeper (None: hierarchical); a directory that was used before keeps its own. When the constructor returns,
    ZooKeeper serves, and every bookie but those in ``refused``. One that was restored from an older copy is repaired from the
    others, if all of them serve. ``start_bookies=False`` starts ZooKeeper alone, so that repairs that need it can be run.

    A copy of a directory is a cluster of its own. One that was made while the original was in use is refused.

    With ``tls`` bookies and clients show each other certificates, signed by an authority of the cluster's own; clients
    connect with ``client_config``, whose files are in ``<data_dir>/tls``. ``bookie_config.zookeeper_auth`` protects
    everything in ZooKeeper, and is in ``client_config`` too.

    Raises ConfigError (no Java, bad arguments, a directory in use), ProcessFailedError if ZooKeeper or every bookie fails to
    start, and StorageError.

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
        start_bookies: bool = True,
    ) -> None:
        if isinstance(bookies, bool) or not isinstance(bookies, int) or not 0 <= bookies <= MAX_BOOKIES:
            raise ConfigError("bookies", bookies, f"it must be a whole number from 0 to {MAX_BOOKIES}")
        java = zookeeper_command(tls=tls)
        self._temporary = data_dir is None
        self.data_dir = _directory(data_dir)
        self._inode = inode_of(self.data_dir)
        self._layout = layout
        self._closed = False
        self._bookies: list[LocalBookie] = []
        self._autorecoveries: list[LocalAutoRecovery] = []
        self._refused: dict[LocalBookie, BookKeeperError] = {}
        self._repaired: set[LocalBookie] = set()
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove_temporary)
            self._keeper = undo.enter_context(_keeper(self.data_dir, self._temporary))
            self.place.check_unshared()
            files = local_tls(self.data_dir / TLS_DIRECTORY) if tls else None
            self._bookie_config, self.client_config = _secured(bookie_config, files)
            self._state = whole_state(self.place)
            set_remains_aside(self.place)
            self._ports = undo.enter_context(Ports())
            self._begin()
            directory = self.data_dir / "zookeeper"
            self.zookeeper = LocalZooKeeper(self._keeper, directory, self._zookeeper_port(), java, files)
            undo.callback(self._stop_processes)
            self._undo = undo
            self._start(max(bookies, len(self._state.bookie_ports)), start_bookies=start_bookies)
            self._undo = undo.pop_all()

    def __repr__(self) -> str:
        standing = "closed" if self._closed else f"{len(self._bookies)} bookies"
        return f"<LocalCluster at {self.metadata_uri} in {self.data_dir}, {standing}>"

    @property
    def metadata_uri(self) -> str:
        """What clients and Spark's option ``metadata`` take."""
        return self.zookeeper.uri(ROOT)

    @property
    def bookies(self) -> list[LocalBookie]:
        """All bookies of the cluster, running or not, in the order in which they joined."""
        return list(self._bookies)

    @property
    def refused(self) -> list[RefusedBookie]:
        """The bookies that could not be started, when that was tried last."""
        return [
            RefusedBookie(bookie.data_dir.parent.name, bookie.bookie_id, bookie.data_dir, reason_of(problem))
            for bookie, problem in self._refused.items()
        ]

    @property
    def is_gone(self) -> bool:
        """Whether the directory was removed, or emptied: then nothing that the cluster confirms would be found again."""
        return self.place.is_gone

    def add_bookie(self) -> LocalBookie:
        """Format and start one more bookie."""
        self._check_open()
        with connect_with(self.metadata_uri, self.client_config) as store:
            bookie = self._join(None)
            bookie.identify(store)
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

    def restart_ended(self, *, refused: bool = True) -> None:
        """Start again what was started and has ended: ZooKeeper and bookies, not AutoRecovery. Returns once they serve.

        Bookies that cannot be started are in ``refused`` then; without ``refused`` those that are there already are not tried.
        Raises ProcessFailedError, MetadataUnavailableError, and ConfigError if nothing can be started any more.
        """
        self._check_open()
        self._keeper.check_alive()
        self._restart_zookeeper()
        try:
            self._restart_bookies(refused)
        except MetadataUnavailableError:
            if self.zookeeper.pid is not None:
                raise
            self._restart_zookeeper()  # of processes that were killed together, a bookie was seen to have ended before it
            self._restart_bookies(refused)

    def abandon(self) -> None:
        """Kill everything at once, without a word to the bookies, which write nothing any more. Then ``close`` it."""
        self._keeper.kill_all()

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

    @property
    def place(self) -> ClusterDirectory:
        """The open directory."""
        return self._keeper.place

    def _begin(self) -> None:
        """Say durably that the directory is in use; of a copy, first, that it is about to become a cluster of its own."""
        if self._state.is_copied(self.place.mark) or self._state.renewal:
            self._state = self._state.of_a_copy(str(uuid.uuid4()))
        else:
            self._state = dataclasses.replace(self._state, mark=self.place.mark, in_use=True)
        write_state(self.place, self._state)
        self._ports.avoided = frozenset(self._state.former_ports)

    def _zookeeper_port(self) -> int:
        return self._ports.reserve(self._state.zookeeper_port)

    def _start(self, bookies: int, *, start_bookies: bool) -> None:
        self._start_zookeeper()
        with connect_with(self.metadata_uri, self.client_config) as store:
            znodes = intended_root(store, ROOT, self._layout)
            initialise_cluster(store, znodes)
            for port in (*self._state.bookie_ports, *[None] * (bookies - len(self._state.bookie_ports))):
                self._join(port)
            if self._state.renewal:
                data_dirs = [self.place.here(bookie.data_dir) for bookie in self._bookies]
                renew(store, znodes, data_dirs, self._state.renewal)
            self._save_ports()
            if start_bookies:
                self._start_bookies(store, self._bookies)
        if start_bookies and self._bookies and len(self._refused) == len(self._bookies):
            raise next(iter(self._refused.values()))

    def _start_zookeeper(self) -> None:
        for tries_left in reversed(range(_ZOOKEEPER_TRIES)):
            try:
                self.zookeeper.start()
                return
            except ProcessFailedError:
                if not tries_left or not self.zookeeper.is_port_taken:
                    raise
                self.zookeeper.port = self._ports.reserve(None)

    def _restart_zookeeper(self) -> None:
        if self.zookeeper.pid is None:
            _log_end(self.zookeeper)
            self.zookeeper.start()

    def _restart_bookies(self, refused: bool) -> None:
        ended = [one for one in self._bookies if one.pid is None and (refused or one not in self._refused)]
        if ended:
            for bookie in ended:
                if bookie not in self._refused:
                    _log_end(bookie)
            with connect_with(self.metadata_uri, self.client_config) as store:
                self._start_bookies(store, ended)

    def _start_bookies(self, store: ZooKeeperStore, bookies: Sequence[LocalBookie]) -> None:
        """Side by side. Those that refuse are in ``refused`` then, except one that could repair itself from all others."""
        refused = self._try_bookies(store, bookies)
        if len(refused) == 1 and len(self._bookies) > 1 and sum(one.pid is None for one in self._bookies) == 1:
            refused = self._repair(store, *refused.items())
        former = {one: str(problem) for one, problem in self._refused.items()}
        self._refused = {one: problem for one, problem in self._refused.items() if one not in bookies} | refused
        for bookie, problem in refused.items():
            if bookie not in former:
                told = RefusedBookie(bookie.data_dir.parent.name, bookie.bookie_id, bookie.data_dir, reason_of(problem))
                logger.warning("%s", told.told(self.metadata_uri))

    def _try_bookies(self, store: ZooKeeperStore, bookies: Sequence[LocalBookie]) -> dict[LocalBookie, BookKeeperError]:
        """Start them. Returns those that did not, with the reasons. Raises MetadataUnavailableError."""
        refused: dict[LocalBookie, BookKeeperError] = {}
        for step in (self._launch, LocalBookie.await_ready):
            for bookie in bookies:
                if bookie in refused:
                    continue
                try:
                    step(bookie, store)
                except MetadataUnavailableError:
                    raise
                except BookKeeperError as problem:
                    refused[bookie] = problem
        return refused

    def _launch(self, bookie: LocalBookie, store: ZooKeeperStore) -> None:
        if bookie.is_port_taken:
            bookie.port = self._ports.reserve(None)
            self._save_ports()
        bookie.launch(store)

    def _repair(
        self, store: ZooKeeperStore, refusal: tuple[LocalBookie, BookKeeperError]
    ) -> dict[LocalBookie, BookKeeperError]:
        """Have the only bookie that refused repair itself, if that is what helps. It is tried once.

        All others serve, so it returns as one bookie with an older disk does, in limbo, and says "no" to nothing that it lost.
        """
        bookie, problem = refusal
        if bookie in self._repaired or bookie.config.automatic_cookie_repair:
            return {bookie: problem}
        self._repaired.add(bookie)
        settings = bookie.config
        bookie.config = dataclasses.replace(settings, automatic_cookie_repair=True)
        still = self._try_bookies(store, [bookie])
        bookie.config = settings
        if still:
            return {bookie: problem}
        text = "%s (%s) repairs itself from the other bookies, because: %s"
        logger.warning(text, bookie.data_dir.parent.name, bookie.bookie_id, reason_of(problem))
        return {}

    def _join(self, wanted_port: int | None) -> LocalBookie:
        """Add a bookie to the list."""
        directory = self.data_dir / f"bookie-{len(self._bookies) + 1}"
        port = self._ports.reserve(wanted_port)
        bookie = LocalBookie(self._keeper, directory, port, "", self.metadata_uri, self._bookie_config)
        self._bookies.append(bookie)
        return bookie

    def _save_ports(self) -> None:
        """Say which ports are used, in a directory that is this one and in use."""
        ports = tuple(bookie.port for bookie in self._bookies)
        self._state = dataclasses.replace(
            self._state,
            zookeeper_port=self.zookeeper.port,
            bookie_ports=ports,
            mark=self.place.mark,
            in_use=True,
            renewal="",
            tls=speaks_tls(self.metadata_uri),
        )
        write_state(self.place, self._state)

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError(f"the local cluster in {self.data_dir}", State("closed"), "make a new LocalCluster")

    def _stop_processes(self) -> None:
        # AutoRecovery first, or it would see bookies go; ZooKeeper last, since the others unregister there.
        end_all(self._autorecoveries)
        end_all(self._bookies)
        end_all([self.zookeeper])
        if not self._state.renewal and not self.is_gone:
            with contextlib.suppress(StorageError):  # it then counts as in use, which only a copy of it is refused for
                write_state(self.place, dataclasses.replace(self._state, in_use=False))

    def _remove_temporary(self) -> None:
        if self._temporary and leads_to(self.data_dir, self._inode):
            shutil.rmtree(self.data_dir, ignore_errors=True)


class LocalBookie(LocalProcess):
    """One bookie process of a local cluster. ``data_dir`` holds its files."""

    def __init__(
        self, keeper: Keeper, directory: Path, port: int, bookie_id: str, metadata_uri: str, config: BookieConfig
    ) -> None:
        super().__init__(keeper, directory, port)
        self.bookie_id = bookie_id
        """"" until it is known from its directory."""
        self.data_dir = directory / "data"
        self.config = config
        """The settings of its next start."""
        self._metadata_uri = metadata_uri

    def start(self) -> None:
        """Start it, and wait until it is registered and accepts connections."""
        with connect_with(self._metadata_uri, self.config.client_config()) as store:
            self.launch(store)
            self.await_ready(store)

    def identify(self, store: ZooKeeperStore) -> None:
        """Read its id from its directory; a new one is formatted. Raises ConfigError, CorruptionError, StorageError."""
        place = self._keeper.place
        if not leads_to(place.path, place.inode):
            raise ConfigError("data_dir", str(place.path), "it was moved meanwhile: no bookie can be formatted there")
        if (self.data_dir / COOKIE_FILE).exists():
            self.bookie_id = read_cookie(self.data_dir).bookie_id
        else:
            directories = Directories.of(self.data_dir, self.config)
            self.bookie_id = format_bookie(directories, store, open_root(store, ROOT), f"{HOST}:{self.port}")

    def launch(self, store: ZooKeeperStore) -> None:
        """Start the process. A dead one's registration is removed first, so that ``await_ready`` sees the new one."""
        self.check_stopped()
        if not self.bookie_id:
            with config_errors(self.data_dir):
                self.identify(store)
        unregister(store, Znodes(ROOT), self.bookie_id)
        # Metrics are always served, on a free port unless the settings name one; the registration says which.
        config = self.config if self.config.http_port >= 0 else dataclasses.replace(self.config, http_port=0)
        command = bookie_command(self._keeper.place.below(self.data_dir), self._metadata_uri, self.port, config)
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
        with connect_with(self._metadata_uri, self._client) as store:
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


def _log_end(process: LocalProcess) -> None:
    """Of a process that nobody may have asked to end."""
    status = process.exit_status
    how = f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with exit status {status}"
    logger.warning("%s %s, and is started again (its log: %s)", process.log.stem, how, process.log)


def _secured(bookie_config: BookieConfig, files: LocalTls | None) -> tuple[BookieConfig, ClientConfig]:
    """The settings of the bookies, and those of their clients, which name the files."""
    client_config = bookie_config.client_config()
    if files is None:
        return bookie_config, client_config
    return _with_files(bookie_config, files.server), _with_files(client_config, files.client)


def _with_files(config: _Config, files: TlsFiles) -> _Config:
    return dataclasses.replace(config, tls_ca=files.ca, tls_certificate=files.certificate, tls_key=files.key)


def uri_in_use(directory: Path) -> str:
    """The metadata URI of the cluster that uses the directory; "" if none has said so. Raises ConfigError, CorruptionError."""
    place = ClusterDirectory(directory)
    try:
        state = read_state(place)
    finally:
        place.close()
    if not state.in_use or state.zookeeper_port is None:
        return ""
    return f"zk://{HOST}:{state.zookeeper_port}{ROOT}" + ("?tls=true" if state.tls else "")


def _keeper(directory: Path, temporary: bool) -> Keeper:
    """Which waits for a host of ``embedded:DIR`` that is about to end: its users cannot end it. Raises ConfigError."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            return Keeper(directory, temporary)
        except DataDirectoryInUseError:
            if not is_hosted_elsewhere(directory):
                raise
            if time.monotonic() >= deadline_s:
                uri = f"embedded:{directory}"
                remedy = f"programs use it as {uri}: end them, or give {uri} in place of a cluster of your own"
                raise DataDirectoryInUseError("data_dir", str(directory), remedy) from None
            time.sleep(_POLL_S)


def _directory(data_dir: str | os.PathLike[str] | None) -> Path:
    if data_dir is None:
        return Path(tempfile.mkdtemp(prefix="bk_spark-"))
    directory = Path(data_dir).resolve()
    if refusal := refusal_of_cluster(directory):
        raise ConfigError("data_dir", str(data_dir), refusal)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ConfigError("data_dir", str(data_dir), f"it cannot be made ({problem.strerror})") from problem
    return directory
