"""Ports of this machine that are kept for the processes of one local cluster.

On Linux a socket stays bound to each port without listening. The child can still bind it (both set SO_REUSEADDR), but nobody
who asks for *any* port gets it, even while the child is down. A second local cluster, which asks for this very port because its
directory is a copy, could bind it as well. So whoever keeps a port also holds a Unix socket with the port in its name: of
these there is one in a network namespace, as there is of ports, and it is gone with its process.

On other systems the bound socket would keep the child out, too: there the port is only looked up.
"""

from __future__ import annotations

import contextlib
import socket
import sys

from bk_spark.errors import ConfigError

HOST = "127.0.0.1"

TRIES = 100
"""For a port that is free and not avoided: of 28,000 ports, 256 are avoided at most."""


class Ports:
    """Keeps what ``reserve`` returned until ``close``. Use it as a context manager."""

    def __init__(self) -> None:
        self._held = contextlib.ExitStack()
        self.avoided: frozenset[int] = frozenset()

    def reserve(self, wanted: int | None) -> int:
        """``wanted`` if it is free, otherwise any free one. Raises ConfigError if there is none."""
        for candidate in (wanted or 0, *[0] * TRIES):
            with contextlib.ExitStack() as tried:
                port = _hold(candidate, tried)
                if port is not None and port not in self.avoided:
                    self._held.enter_context(tried.pop_all())
                    return port
        raise ConfigError(
            f"a free port of {HOST}", None, "a process of a local cluster needs one: end programs that hold ports"
        )

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hold(port: int, held: contextlib.ExitStack) -> int | None:
    """The port, 0 for any; None if somebody else has it."""
    holder = held.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((HOST, port))
        port = int(holder.getsockname()[1])
        if sys.platform == "linux":
            held.enter_context(socket.socket(socket.AF_UNIX)).bind(f"\0bk_spark local port {port}")
        else:
            holder.close()
    except OSError:
        return None
    return port
