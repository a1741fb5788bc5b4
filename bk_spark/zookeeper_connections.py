"""The sockets of a ZooKeeper session: kazoo's threads, with a deadline for the first connection, and one that can be cut.

``socket`` and ``time`` are here, against the import table, as part of the driver in zookeeper.py.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler

_HANDSHAKE_S = 3.0
"""How long a server may take to open a session before the next one, or the same one again, is tried. It takes a synced
write, tens of milliseconds; but a server that is just starting may accept a connection and forget about it."""


class Connections(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with a deadline for the first connection and a way to end a connection that hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.deadline: float | None = None
        """``time.monotonic()`` after which no connection may be begun; None once the first one stands."""
        self.is_connected: Callable[[], bool] = lambda: False
        self._socket: socket.socket | None = None

    def select(self, *args: Any) -> Any:
        *sockets, timeout = args
        return super().select(*sockets, timeout if self.is_connected() else min(timeout, _HANDSHAKE_S))

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> socket.socket:
        if self.deadline is not None:
            timeout = min(timeout, self.deadline - time.monotonic())
        if timeout <= 0:
            raise KazooTimeoutError("the time to connect is over")
        self._socket = super().create_connection(*args, timeout=timeout, **kwargs)
        return self._socket

    def cut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
