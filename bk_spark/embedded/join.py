"""The user's side: find the host of a directory, or start it, and hold a connection to it until this process ends.

The host says in ``<DIR>/embedded.json`` where it listens, and of which directory it is the host: the device and inode numbers.
A copy of DIR brings the file along, so it is believed only if these are the numbers of the directory that the user names. A
killed host leaves the file behind, and its port may be given to another program. So the host greets with the file's token, and
whoever does not is none. It greets nobody once its directory is gone.

Users know directories by the same numbers: a path that leads to another directory meanwhile is another cluster.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from bk_spark.config import ClientConfig
from bk_spark.embedded.owners import CLUSTER, owner_of, refusal_of_cluster
from bk_spark.errors import ConfigError

PREFIX = "embedded:"
_MACHINE = "#on:"
_TLS = "?tls=true"
STATE_FILE = "embedded.json"
LOG_FILE = "embedded.log"

TLS = "--tls"
"""The argument with which a host makes certificates where there are none."""

TLS_DIRECTORY = "tls"
"""Where in its directory a local cluster keeps them."""

SHOWN_AS = "bk_spark.embedded.host"
"""Stands in the command line of the host, where operators look for it (docs/guide/install.md)."""

HOST = "127.0.0.1"

START_S = 120.0
"""How long a host may take until it serves: a minute at most for each of ZooKeeper and the bookies, which start together."""

GREETING_BYTES = 4096
GREETING_S = 5.0
"""A host greets at once; one that is suspended, or a program that is none, is not waited for longer."""

_POLL_S = 0.05

_TAIL_BYTES = 4096

FULL_BYTES = 1 << 20
"""A disk with less free space is full for a host, which then cannot even write why it failed."""

MAX_USERS = 256
"""Connections, and processes that are watched, of each kind. Each takes a descriptor, of which a process may have 1,024."""

FULL = " full"
"""Behind the token: the host takes no more users."""

_joined: dict[tuple[int, int], _Joined] = {}
"""By the device and inode number of the directory. No other directory gets these while its host, which holds it open, lives."""
_lock = threading.Lock()

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostFile:
    """What a host says in ``embedded.json``."""

    port: int
    token: str
    metadata: str
    pid: int
    directory: tuple[int, int]
    refused: tuple[str, ...]
    """What a user should know: a sentence for each bookie that does not serve."""


@dataclass(slots=True)
class _Joined:
    """A connection to a host, held until the host ends."""

    connection: socket.socket
    host: HostFile
    directory: Path
    """As the user knew it when it was joined. Another one may have its name by now."""

    @property
    def is_open(self) -> bool:
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


def is_embedded(uri: object) -> bool:
    return isinstance(uri, str) and uri.startswith(PREFIX)


def settled(uri: str) -> str:
    """``uri`` for other processes of this program: ``embedded:DIR`` gets an absolute directory and this machine's name."""
    tls = _TLS if _asks_for_tls(uri) else ""
    return f"{PREFIX}{_directory(uri)}{tls}{_MACHINE}{socket.gethostname()}" if is_embedded(uri) else uri


def resolve(uri: str, used_by: int | None = None) -> str:
    """The metadata URI behind ``uri``, which is returned as it is unless it is ``embedded:DIR``.

    Then the cluster in DIR serves on return, while this process lives, or the process ``used_by``. ``embedded:DIR?tls=true``
    makes it speak TLS alone, for good. Raises ConfigError for a malformed URI, a directory that cannot be used, one that is
    settled on another machine, and a cluster that does not start, or that runs without the TLS that is asked for.
    """
    if not is_embedded(uri):
        return uri
    directory = _directory(uri)
    _, _, machine = uri.partition(_MACHINE)
    if machine not in ("", socket.gethostname()):
        remedy = (
            f"it serves processes of {machine} alone: for executors elsewhere start a cluster, and give zk://host:port/ledgers"
        )
        raise ConfigError("the metadata URI", f"{PREFIX}{directory}", remedy)
    with _lock:
        inode = _inode(directory)
        joined = _joined.get(inode) if inode is not None else None
        if joined is None or not joined.is_open:
            joined = _join(directory, tls=_asks_for_tls(uri))
            _joined[joined.host.directory] = joined
            if used_by is not None:
                with suppress(OSError):  # the host has ended already: the next use starts another one
                    joined.connection.sendall(f"{used_by}\n".encode())
            for sentence in joined.host.refused:
                logger.warning("%s%s: %s", PREFIX, directory, sentence)
    if _asks_for_tls(uri) and not joined.host.metadata.endswith(_TLS):
        remedy = f"its cluster was started without TLS: end its users, then use {PREFIX}{directory}{_TLS} first"
        raise ConfigError("the metadata URI", f"{PREFIX}{directory}{_TLS}", remedy)
    return joined.host.metadata


def with_own_files(metadata: str, config: ClientConfig) -> ClientConfig:
    """``config`` with the TLS files of the embedded cluster at ``metadata``, if there is one and ``config`` names none."""
    if config.tls_ca or not metadata.endswith(_TLS):
        return config
    found = next((one.directory for one in list(_joined.values()) if one.host.metadata == metadata), None)
    if found is None:
        return config
    ca, certificate, key = (str(found / TLS_DIRECTORY / file) for file in ("ca.pem", "client.pem", "client.key"))
    return replace(config, tls_ca=ca, tls_certificate=certificate, tls_key=key)


def advice_for(metadata: str) -> Callable[[], str] | None:
    """What to do when nothing answers at the URI ``metadata``, to be asked then; None unless ``resolve`` returned the URI.

    It waits for nobody, so not for the lock either, which a cluster that starts may have for two minutes.
    """
    found = [one for one in list(_joined.values()) if one.host.metadata == metadata]
    return partial(_advice, max(found, key=lambda one: one.is_open)) if found else None


def _advice(joined: _Joined) -> str:
    name = f"{PREFIX}{joined.directory}"
    try:
        joined.directory.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as problem:
        return f"it belongs to {name}, which cannot be looked at ({problem.strerror})"
    if _inode(joined.directory) != joined.host.directory or owner_of(joined.directory) != CLUSTER:
        return f"it belonged to {name}, whose directory was removed or moved: open the cluster again where its directory is"
    if joined.is_open:
        log = joined.directory / LOG_FILE
        return f"it belongs to {name}, whose host, process {joined.host.pid}, starts it again: try again (log: {log})"
    return f"it belongs to {name}, whose host, process {joined.host.pid}, has ended: open {name} again, which starts it"


def _forget_after_fork() -> None:
    """A forked process is a user of its own once it resolves the URI. Another thread may have held the lock at the fork."""
    global _lock
    _lock = threading.Lock()
    for joined in _joined.values():
        joined.connection.close()
    _joined.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def named_directory(uri: str) -> str:
    """The directory as ``uri`` writes it. Raises ConfigError without one."""
    name, _, _ = uri.removeprefix(PREFIX).partition(_MACHINE)
    if not name:
        raise ConfigError("the metadata URI", uri, "name a directory: embedded:/var/lib/bk_spark, or embedded:data")
    return name.removesuffix(_TLS)


def _asks_for_tls(uri: str) -> bool:
    return uri.partition(_MACHINE)[0].endswith(_TLS)


def _directory(uri: str) -> Path:
    return Path(named_directory(uri)).expanduser().resolve()


def _join(directory: Path, *, tls: bool = False) -> _Joined:
    deadline_s = time.monotonic() + START_S
    started: subprocess.Popen[bytes] | None = None
    started_in: tuple[int, int] | None = None
    while (joined := greeted(directory)) is None:
        if refusal := refusal_of_cluster(directory):
            raise ConfigError("the metadata URI", f"{PREFIX}{directory}", refusal)
        inode = _make(directory)
        if started is None or started_in != inode or started.poll() == 0:  # it found another host, which then ended
            started, started_in = _start(directory, tls=tls), inode
        if started.poll() not in (None, 0) and _inode(directory) == inode:
            raise _failure(directory, "did not start")
        if time.monotonic() >= deadline_s:
            raise _failure(directory, f"did not serve within {START_S:g} s")
        time.sleep(_POLL_S)
    return joined


def _make(directory: Path) -> tuple[int, int]:
    """The device and inode number of the directory, which is made if it does not exist. Raises ConfigError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = directory.stat()
    except OSError as problem:
        remedy = f"the directory cannot be made ({problem.strerror})"
        raise ConfigError("the metadata URI", f"{PREFIX}{directory}", remedy) from problem
    return found.st_dev, found.st_ino


def _inode(directory: Path) -> tuple[int, int] | None:
    try:
        found = directory.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def read_host(directory: Path) -> HostFile | None:
    """What the directory's own host says; None if nothing does. A copy's file speaks of another directory."""
    try:
        fields = json.loads((directory / STATE_FILE).read_text())
        device, inode = fields["directory"]
        host = HostFile(
            int(fields["port"]),
            str(fields["token"]),
            str(fields["metadata"]),
            int(fields["pid"]),
            (int(device), int(inode)),
            tuple(str(one) for one in fields["refused"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return host if host.token and host.directory == _inode(directory) else None


def greeted(directory: Path) -> _Joined | None:
    """A connection to the directory's host; None if none serves. Raises ConfigError if it has as many users as it takes."""
    host = read_host(directory)
    if host is None:
        return None
    try:
        connection = socket.create_connection((HOST, host.port), timeout=GREETING_S)
    except (OSError, OverflowError):
        return None
    try:
        greeting = connection.recv(GREETING_BYTES)
        if greeting == f"{host.token}\n".encode():
            connection.settimeout(None)
            return _Joined(connection, host, directory)
    except OSError:
        greeting = b""
    connection.close()
    if greeting == f"{host.token}{FULL}\n".encode():
        remedy = f"its cluster has {MAX_USERS} users, as many as it takes: end one, or start a cluster, and give zk://host:port/ledgers"
        raise ConfigError("the metadata URI", f"{PREFIX}{directory}", remedy)
    return None


def _start(directory: Path, *, tls: bool) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C in a terminal ends the user, and the host ends after it."""
    package = str(Path(__file__).resolve().parent.parent.parent)
    python_path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    words = [str(directory), *([TLS] if tls else [])]
    try:
        with _opened_log(directory) as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-X", SHOWN_AS, "-m", "bk_spark.local.embedded_host", *words],
                cwd=directory,
                env={**os.environ, "PYTHONPATH": python_path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as problem:
        raise ConfigError("the metadata URI", f"{PREFIX}{directory}", f"it cannot be used ({problem.strerror})") from problem


def _opened_log(directory: Path) -> BinaryIO:
    """For lines at its end. It is this user's alone, and no link that somebody else made to another file."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.fdopen(os.open(directory / LOG_FILE, flags, 0o600), "ab")


def _failure(directory: Path, problem: str) -> ConfigError:
    """One sentence, with the host's own reason: the last line that it printed."""
    log, lines = directory / LOG_FILE, []
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    reasons = [line for line in lines if line.strip()]
    reason = reasons[-1] if reasons else "its log is empty"
    with suppress(OSError):
        if shutil.disk_usage(directory).free < FULL_BYTES:
            reason = "the disk is full: free some space, or name a directory on another one"
    return ConfigError("the metadata URI", f"{PREFIX}{directory}", f"its cluster {problem}: {reason} (log: {log})")
