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
from pathlib import Path

from bk_spark.embedded.join import HOST, START_S, STATE_FILE, greeted
from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.local.cluster import LocalCluster
from bk_spark.local.process import DataDirectoryInUseError

BOOKIES = 3

LINGER_S = 5.0
"""So long it serves without a user: a script that runs after another one finds it there."""

FIRST_USER_S = 30.0
"""So long it waits for the first one, which started it and may be slow."""

BACKLOG = 128
STATE_VERSION = 1
_POLL_S = 0.1


def main() -> int:
    directory = Path(sys.argv[1])
    try:
        cluster = _cluster(directory)
        if cluster is None:
            return 0
        with cluster:
            _serve(directory, cluster.metadata_uri)
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


def _serve(directory: Path, metadata: str) -> None:
    """Until there has been no user for a while."""
    token = secrets.token_hex(16)
    stopped = [False]
    signal.signal(signal.SIGTERM, lambda *_: stopped.__setitem__(0, True))
    state = directory / STATE_FILE
    with socket.create_server((HOST, 0), backlog=BACKLOG) as listener, selectors.DefaultSelector() as selector:
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)
        _write(state, {"version": STATE_VERSION, "port": listener.getsockname()[1], "token": token, "metadata": metadata})
        users: set[socket.socket] = set()
        until_s = time.monotonic() + FIRST_USER_S
        while not stopped[0] and (users or time.monotonic() < until_s):
            for key, _ in selector.select(_POLL_S):
                if key.fileobj is listener:
                    _welcome(listener, selector, users, f"{token}\n".encode())
                elif isinstance(key.fileobj, socket.socket):
                    selector.unregister(key.fileobj)
                    users.discard(key.fileobj)
                    key.fileobj.close()
                    until_s = time.monotonic() + LINGER_S
        state.unlink(missing_ok=True)
    for user in users:
        user.close()


def _welcome(listener: socket.socket, selector: selectors.BaseSelector, users: set[socket.socket], greeting: bytes) -> None:
    try:
        user, _ = listener.accept()
        user.sendall(greeting)
    except OSError:
        return
    selector.register(user, selectors.EVENT_READ)
    users.add(user)


def _write(path: Path, state: dict[str, object]) -> None:
    temporary = path.with_suffix(".creating")
    temporary.write_text(json.dumps(state))
    os.chmod(temporary, 0o600)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
