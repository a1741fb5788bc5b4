"""The process that runs the cluster of ``embedded:DIR`` for its users: ``python -m bk_spark.local.embedded_host DIR``.

It ends LINGER_S after its last user, or by SIGTERM. Its exit status is 0, too, if another host serves the directory. The last
line that it prints is why it failed.

It follows a directory that is renamed, which users then find under the new name. Once the directory is removed or emptied it
takes no more users, kills the cluster, and ends: what users add would be found nowhere.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from bk_spark.embedded.join import HOST, START_S, STATE_FILE, TLS, TLS_DIRECTORY, greeted, read_host
from bk_spark.embedded.turn import Turn, takes_part
from bk_spark.embedded.users import Users
from bk_spark.errors import BookKeeperError, ConfigError, StorageError
from bk_spark.local.cluster import LocalCluster, uri_in_use
from bk_spark.local.place import DataDirectoryInUseError
from bk_spark.local.refusals import reason_of
from bk_spark.local.repair import Repair
from bk_spark.local.state import write_json

BOOKIES = 3

LINGER_S = 5.0
"""So long it serves after its last user: a script that runs after another one finds it there."""

FIRST_USER_S = 30.0
"""So long it waits for the first one, which started it and may be slow."""

BACKLOG = 128

LEFTOVERS_S = 5.0
"""So long the processes of a killed host may take to end, which the keeper kills at once."""

SUSPENDED_S = START_S / 2
"""So long a host that is suspended is waited for."""

OTHER_HOST_S = START_S - 10.0
"""So long a host is waited for that works: it may start ZooKeeper, and then bookies, a minute each, before it greets anybody.
The rest is for the sentence, which the user reads before it gives up."""

_POLL_S = 0.1


def main() -> int:
    directory = Path(sys.argv[1])
    try:
        tls = TLS in sys.argv[2:] or (directory / TLS_DIRECTORY).is_dir()
        cluster = _cluster(directory, tls=tls)
        if cluster is None:
            return 0
        with cluster:
            _Host(directory, cluster).serve()
    except BookKeeperError as problem:
        print(reason_of(problem), flush=True)
        return 1
    except OSError as problem:
        print(f"{problem.filename or directory} cannot be used ({problem.strerror})", flush=True)
        return 1
    return 0


def _cluster(directory: Path, *, tls: bool = False) -> LocalCluster | None:
    """The cluster, once the directory is free; None if another host serves it.

    Another host may be starting or ending, which takes its time. But if it is this one's turn, no other host is there, and what
    a killed one left ends at once: then another program has the directory.
    """
    began_s = turn_since_s = time.monotonic()
    turn = Turn(directory)
    while True:
        if turn.take():
            with suppress(DataDirectoryInUseError):
                return LocalCluster(BOOKIES, directory, tls=tls)
        elif greeted(directory) is not None:
            return None
        else:  # behind the greeting, for which a busy host takes as long as leftovers may
            turn_since_s = time.monotonic()
        now_s = time.monotonic()
        if now_s >= turn_since_s + LEFTOVERS_S or now_s >= began_s + _patience_s(directory):
            remedy = _other_program(directory) if turn.take() else _other_host(directory)
            raise ConfigError("the directory of embedded:", str(directory), remedy)
        time.sleep(_POLL_S)


def _patience_s(directory: Path) -> float:
    host = read_host(directory)
    return SUSPENDED_S if host is not None and _is_suspended(host.pid, directory) else OTHER_HOST_S


def _is_suspended(pid: int, directory: Path) -> bool:
    """Of the directory's host. False where the system does not tell."""
    if not takes_part(pid, directory):
        return False
    try:
        _, _, behind_name = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return False
    return behind_name.split()[:1] == ["T"]


def _other_host(directory: Path) -> str:
    host = read_host(directory)
    if host is None:
        return "another process starts or ends its cluster, which takes too long: try again"
    problem = f"its host, process {host.pid}, "
    if _is_suspended(host.pid, directory):
        return f"{problem}is suspended: continue it ('kill -CONT {host.pid}'), or end it ('kill -9 {host.pid}')"
    return f"{problem}does not answer: try again"


def _other_program(directory: Path) -> str:
    uri = "its own metadata URI (zk://…)"
    with suppress(BookKeeperError):
        uri = uri_in_use(directory) or uri
    return f"another local cluster uses it, such as 'bk-spark local': stop that one, or give {uri}"


class _Host:
    """Serves a cluster to its users."""

    def __init__(self, directory: Path, cluster: LocalCluster) -> None:
        self._uri = f"embedded:{directory}"
        self._cluster = cluster
        self._repair = Repair(cluster)
        self._token = secrets.token_hex(16)
        self._told: dict[str, object] = {}

    def serve(self) -> None:
        """Until there has been no user for a while, or the directory is gone."""
        stopped: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
        with socket.create_server((HOST, 0), backlog=BACKLOG) as listener:
            listener.setblocking(False)
            port = int(listener.getsockname()[1])
            self._tell(port)
            users = Users(listener, self._token, lambda: self._prepare(port))
            until_s = time.monotonic() + FIRST_USER_S
            while not stopped and time.monotonic() < until_s:
                users.look()
                if self._cluster.is_gone:
                    print("the directory was removed while it was used: the cluster is killed", flush=True)
                    self._cluster.abandon()
                    return
                self._prepare(port)
                until_s = time.monotonic() + LINGER_S if users else until_s
        self._untell()

    def _prepare(self, port: int) -> bool:
        """Have the whole cluster serve; False if its directory is gone."""
        if self._cluster.is_gone:
            return False
        self._repair()
        with suppress(StorageError):  # the file says what it said before
            self._tell(port)
        return True

    def _tell(self, port: int) -> None:
        """Write how users find this host, and what they should know, if that has changed."""
        refused = [one.told(self._uri) for one in self._cluster.refused]
        inode = list(self._cluster.place.inode)
        told = {"port": port, "token": self._token, "pid": os.getpid(), "directory": inode, "refused": refused}
        if told != self._told:
            write_json(self._cluster.place, STATE_FILE, {**told, "metadata": self._cluster.metadata_uri}, mode=0o600)
            self._told = told

    def _untell(self) -> None:
        """Remove that file, unless it is another one's."""
        place = self._cluster.place
        host = read_host(place.inside)
        if host is not None and host.token == self._token:
            with suppress(OSError):
                os.unlink(STATE_FILE, dir_fd=place.descriptor)


if __name__ == "__main__":
    sys.exit(main())
