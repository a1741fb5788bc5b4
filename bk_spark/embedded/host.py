"""The process that runs the cluster of ``embedded:DIR`` for its users: ``python -m bk_spark.embedded.host DIR``.

It ends LINGER_S after its last user, or by SIGTERM. Its exit status is 0, too, if another host serves the directory. The last
line that it prints is why it failed.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bk_spark.embedded.join import HOST, START_S, STATE_FILE, greeted
from bk_spark.errors import BookKeeperError, ConfigError, MetadataUnavailableError, ProcessFailedError
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.process import DataDirectoryInUseError

BOOKIES = 3

LINGER_S = 5.0
"""So long it serves after its last user: a script that runs after another one finds it there."""

FIRST_USER_S = 30.0
"""So long it waits for the first one, which started it and may be slow."""

BACKLOG = 128

MAX_WORDS_BYTES = 4096
"""Of what a user says at a time: the ids of a few processes."""

MAX_USERS = 256
"""Connections, and processes that are watched, of each kind. Each takes a descriptor, of which a process may have 1,024."""

REPAIR_PAUSE_S = 10.0
"""After a process of the cluster could not be started again, before the next try."""

_POLL_S = 0.1


def main() -> int:
    directory = Path(sys.argv[1])
    try:
        cluster = _cluster(directory)
        if cluster is None:
            return 0
        with cluster:
            _serve(directory, cluster)
    except (BookKeeperError, OSError) as problem:
        print(str(problem).splitlines()[0], flush=True)
        return 1
    return 0


def _cluster(directory: Path) -> LocalCluster | None:
    """The cluster, once the directory is free; None if another host serves it."""
    deadline_s = time.monotonic() + START_S / 2
    while True:
        try:
            return LocalCluster(BOOKIES, directory)
        except DataDirectoryInUseError:
            if greeted(directory) is not None:
                return None
            if time.monotonic() >= deadline_s:
                remedy = "another local cluster uses it: stop that one, or give its own metadata URI (zk://…)"
                raise ConfigError("the directory of embedded:", str(directory), remedy) from None
            time.sleep(_POLL_S)


class Users:
    """The connections of users, and the processes for which they use the cluster."""

    def __init__(self, listener: socket.socket, greeting: bytes, repair: Callable[[], None]) -> None:
        """``repair`` is called before a user is greeted, who then finds the whole cluster serving."""
        self._listener = listener
        self._greeting = greeting
        self._repair = repair
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._welcome)
        self.connections: set[socket.socket] = set()
        self.processes: dict[int, int] = {}
        """The descriptor of each process, which is readable once it has ended."""

    def __bool__(self) -> bool:
        return bool(self.connections or self.processes)

    def look(self) -> None:
        """Take in who came and who went, for a moment."""
        for key, _ in self._selector.select(_POLL_S):
            key.data()

    def _welcome(self) -> None:
        try:
            user, _ = self._listener.accept()
            self._repair()
            if len(self.connections) >= MAX_USERS:
                user.close()
                return
            user.sendall(self._greeting)
        except OSError:
            return
        user.setblocking(False)
        self.connections.add(user)
        self._selector.register(user, selectors.EVENT_READ, lambda: self._hear(user))

    def _hear(self, user: socket.socket) -> None:
        try:
            words = user.recv(MAX_WORDS_BYTES)
        except OSError:
            words = b""
        for word in words.split():
            if word.isdigit():
                self._watch(int(word))
        if not words:
            self._selector.unregister(user)
            self.connections.remove(user)
            user.close()

    def _watch(self, pid: int) -> None:
        if pid in self.processes or len(self.processes) >= MAX_USERS or not hasattr(os, "pidfd_open"):
            return
        try:
            self.processes[pid] = os.pidfd_open(pid)
        except (OSError, OverflowError):
            return
        self._selector.register(self.processes[pid], selectors.EVENT_READ, lambda: self._ended(pid))

    def _ended(self, pid: int) -> None:
        descriptor = self.processes.pop(pid)
        self._selector.unregister(descriptor)
        os.close(descriptor)


class Repair:
    """Starts processes of the cluster again that have ended, whatever ended them."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._not_before_s = 0.0

    def __call__(self) -> None:
        if time.monotonic() < self._not_before_s:
            return
        try:
            self._cluster.restart_ended()
        except (ProcessFailedError, MetadataUnavailableError) as problem:
            self._not_before_s = time.monotonic() + REPAIR_PAUSE_S
            print(str(problem).splitlines()[0], flush=True)


def _serve(directory: Path, cluster: LocalCluster) -> None:
    """Until there has been no user for a while."""
    token = secrets.token_hex(16)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    state = directory / STATE_FILE
    with socket.create_server((HOST, 0), backlog=BACKLOG) as listener:
        listener.setblocking(False)
        repair = Repair(cluster)
        users = Users(listener, f"{token}\n".encode(), repair)
        _write(state, {"port": listener.getsockname()[1], "token": token, "metadata": cluster.metadata_uri})
        until_s = time.monotonic() + FIRST_USER_S
        while not stopped and time.monotonic() < until_s:
            users.look()
            repair()
            until_s = time.monotonic() + LINGER_S if users else until_s
        state.unlink(missing_ok=True)


def _write(path: Path, state: dict[str, object]) -> None:
    temporary = path.with_suffix(".creating")
    temporary.write_text(json.dumps(state))
    os.chmod(temporary, 0o600)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
