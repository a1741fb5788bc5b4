"""The user's side: find the host of a directory, or start it, and hold a connection to it until this process ends.

The host says in ``<DIR>/embedded.json`` where it listens. A killed host leaves the file behind, and its port may be given to
another program. So the host greets with the file's token, and whoever does not is none.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bk_spark.errors import ConfigError

PREFIX = "embedded:"
_MACHINE = "#on:"
STATE_FILE = "embedded.json"
LOG_FILE = "embedded.log"
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

_joined: dict[Path, _Joined] = {}
_lock = threading.Lock()


@dataclass(slots=True)
class _Joined:
    """A connection to a host, held until the host ends."""

    connection: socket.socket
    metadata: str

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
    return f"{PREFIX}{_directory(uri)}{_MACHINE}{socket.gethostname()}" if is_embedded(uri) else uri


def resolve(uri: str, used_by: int | None = None) -> str:
    """The metadata URI behind ``uri``, which is returned as it is unless it is ``embedded:DIR``.

    Then the cluster in DIR serves on return, while this process lives, or the process ``used_by``. Raises ConfigError for a
    malformed URI, a directory that cannot be used, one that is settled on another machine, and a cluster that does not start.
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
        joined = _joined.get(directory)
        if joined is None or not joined.is_open:
            joined = _joined[directory] = _join(directory)
            if used_by is not None:
                with suppress(OSError):  # the host has ended already: the next use starts another one
                    joined.connection.sendall(f"{used_by}\n".encode())
    return joined.metadata


def _forget_after_fork() -> None:
    """A forked process is a user of its own once it resolves the URI. Another thread may have held the lock at the fork."""
    global _lock
    _lock = threading.Lock()
    for joined in _joined.values():
        joined.connection.close()
    _joined.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def _directory(uri: str) -> Path:
    name, _, _ = uri.removeprefix(PREFIX).partition(_MACHINE)
    if not name:
        raise ConfigError("the metadata URI", uri, "name a directory: embedded:/var/lib/bk_spark, or embedded:data")
    return Path(name).expanduser().resolve()


def _join(directory: Path) -> _Joined:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        remedy = f"the directory cannot be made ({problem.strerror})"
        raise ConfigError("the metadata URI", f"{PREFIX}{directory}", remedy) from problem
    deadline_s = time.monotonic() + START_S
    started: subprocess.Popen[bytes] | None = None
    while (joined := greeted(directory)) is None:
        if started is None or started.poll() == 0:  # it found another host, which then ended
            started = _start(directory)
        if started.poll() not in (None, 0):
            raise _failure(directory, "did not start")
        if time.monotonic() >= deadline_s:
            raise _failure(directory, f"did not serve within {START_S:g} s")
        time.sleep(_POLL_S)
    return joined


def greeted(directory: Path) -> _Joined | None:
    """A connection to the directory's host; None if none serves."""
    try:
        state = json.loads((directory / STATE_FILE).read_text())
        connection = socket.create_connection((HOST, int(state["port"])), timeout=GREETING_S)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    try:
        if connection.recv(GREETING_BYTES) == f"{state['token']}\n".encode():
            connection.settimeout(None)
            return _Joined(connection, str(state["metadata"]))
    except (OSError, KeyError):
        pass
    connection.close()
    return None


def _start(directory: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C in a terminal ends the user, and the host ends after it."""
    package = str(Path(__file__).resolve().parent.parent.parent)
    python_path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    try:
        with (directory / LOG_FILE).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "bk_spark.embedded.host", str(directory)],
                cwd=directory,
                env={**os.environ, "PYTHONPATH": python_path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as problem:
        raise ConfigError("the metadata URI", f"{PREFIX}{directory}", f"it cannot be used ({problem.strerror})") from problem


def _failure(directory: Path, problem: str) -> ConfigError:
    """One sentence, with the host's own reason: the last line that it printed."""
    log = directory / LOG_FILE
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    reasons = [line for line in lines if line.strip()]
    reason = reasons[-1] if reasons else "its log is empty"
    if shutil.disk_usage(directory).free < FULL_BYTES:
        reason = "the disk is full: free some space, or name a directory on another one"
    return ConfigError("the metadata URI", f"{PREFIX}{directory}", f"its cluster {problem}: {reason} (log: {log})")
