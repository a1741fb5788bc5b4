"""Watches that last, the sockets of a ZooKeeper session, and how it stands.

ZooKeeper's own watches fire once and die with their connection; a ``Watch`` is set again each time.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler

from bk_spark.errors import MetadataAccessError, MetadataUnavailableError
from bk_spark.host_port import HostPort

if TYPE_CHECKING:
    from kazoo.protocol.states import WatchedEvent

logger = logging.getLogger(__name__)

SetWatch = Callable[[Callable[["WatchedEvent"], None]], None]
"""Asks the server for one event, which calls the given function. Raises MetadataUnavailableError."""

_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""How a name server says that there is none. The second is no constant of every system."""

_HANDSHAKE_S = 3.0
"""How long a server may take to open a session before the next one, or the same one again, is tried. It takes a synced
write, tens of milliseconds; but a server that is just starting may accept a connection and forget it."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """How a session stands, as this process knows it. A server that is silent may have ended it already."""

    timeout_s: float
    """After so long without contact the servers end the session, and its ephemeral paths are gone."""
    is_connected: bool = False
    lost: int = 0
    """Sessions before this one that the servers ended."""
    changed_s: float = 0.0
    """When the connection was made, or broke, or the session was known to be lost: ``time.monotonic()``."""

    def silent_s(self, now_s: float) -> float:
        """How long there has been no connection; 0 while there is one."""
        return 0.0 if self.is_connected else now_s - self.changed_s


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """The session and its connection at one moment, for people."""

    servers: tuple[str, ...]
    """Those that it may connect to, as the metadata URI names them."""
    server: str
    """The address that it is connected to; empty while it is not."""
    session_id: str
    """In ZooKeeper's own form, such as ``0x100000a2b3c0001``; empty while it is not connected."""
    session_s: float | None
    """How long ago the session began."""
    connected_s: float | None
    """How long ago the connection to ``server`` began; None while there is none."""


class Watch:
    """Calls ``on_change`` on the store's callback thread for every change after ``arm``."""

    def __init__(self, set_watch: SetWatch, on_change: Callable[[], None]) -> None:
        self._set_watch = set_watch
        self._on_change = on_change
        self._ended = False

    def arm(self) -> None:
        self._set_watch(self._on_event)

    def end(self) -> None:
        """Stop: no call begins after this one. The server's remaining event is ignored."""
        self._ended = True

    def refresh(self) -> None:
        """Set the watch again, then report a change; this order loses no change."""
        if self._ended:
            return
        try:
            self.arm()
        except MetadataUnavailableError:
            return  # the next connection refreshes again
        except MetadataAccessError as problem:
            logger.warning("nothing more can be watched: %s", problem)  # on_change's own reads will fail and say why
        if not self._ended:
            self._on_change()

    def _on_event(self, event: WatchedEvent) -> None:
        if event.path is not None:  # None: the connection was lost; the next one refreshes
            self.refresh()


class ZooKeeperSockets(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets, with a deadline for the first connection and a way to cut one that hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.deadline: float | None = None
        """The ``time.monotonic()`` after which no connection is attempted; None once the first one is open."""
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

    def look_for_unknown(self, hosts: Sequence[str]) -> Sequence[str]:
        """Has no element yet. It gets one, why no host has an address, once name servers say so of each of them."""
        said: list[str] = []
        self.spawn(lambda: said.extend(filter(None, [unknown_hosts(hosts)])))  # nothing ends a look-up before its own time
        return said

    def peer(self) -> str:
        """``address:port`` of the other end; empty without a connection."""
        try:
            address = self._socket.getpeername() if self._socket is not None else None
        except OSError:
            return ""
        if address is None:
            return ""
        host, port = address[:2]
        return str(HostPort(host, port))

    def cut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def unknown_hosts(hosts: Sequence[str]) -> str:
    """Why none of them has an address; empty if one may have. A look-up that fails for another reason is no "no"."""
    unknown = []
    for place in map(HostPort.parse, hosts):
        try:
            socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        except socket.gaierror as problem:
            if problem.errno not in _NO_ADDRESS:
                return ""
            unknown.append(f"the host name {place.host} has no address: {problem.strerror}")
        except UnicodeError as problem:
            unknown.append(f"the host name {place.host} has no address: {problem}")
        except OSError:
            return ""
        else:
            return ""
    return "; ".join(unknown)
