"""Watches that last, the sockets of a ZooKeeper session, how it stands, and a request that kazoo does not have.

ZooKeeper's own watches fire once and die with their connection; a ``Watch`` is set again each time.

A request of its own for each of many values costs the client most of the time: its threads take turns for each. ``ReadMany`` is
one for all. ZooKeeper knows it since 3.6 (``OpCode.multiRead``, ``MultiOperationRecord``, ``MultiResponse``); an older server
answers that it does not, and closes the connection.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import EXCEPTIONS
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import GetData, MultiHeader, stat_struct

from bk_spark.errors import MetadataAccessError, MetadataUnavailableError
from bk_spark.host_port import HostPort

if TYPE_CHECKING:
    from kazoo.protocol.states import WatchedEvent

    from bk_spark.tls.client_contexts import ClientContexts

logger = logging.getLogger(__name__)

SetWatch = Callable[[Callable[["WatchedEvent"], None]], None]
"""Asks the server for one event, which calls the given function. Raises MetadataUnavailableError."""

_HANDSHAKE_S = 3.0
"""How long a server may take to open a session before the next one, or the same one again, is tried. It takes a synced
write, tens of milliseconds; but a server that is just starting may accept a connection and forget it."""

_ERROR = -1
"""The type of a result that is an error."""
_CODE = struct.Struct("!i")
_END = MultiHeader(-1, True, -1)
_READ = MultiHeader(GetData.type, False, -1)


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


def _nothing() -> None:
    """Of a watch that ended."""


class Watch:
    """Calls ``on_change`` on the store's callback thread for every change after ``arm``."""

    def __init__(self, set_watch: SetWatch, on_change: Callable[[], None]) -> None:
        self._set_watch = set_watch
        self._on_change = on_change
        self._ended = False

    def arm(self) -> None:
        self._set_watch(self._on_event)

    def end(self) -> None:
        """Stop: no call begins after this one. The server's remaining event is ignored.

        kazoo keeps this object until that event, which may never come: so it keeps nothing of its owner.
        """
        self._ended = True
        self._on_change = _nothing

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
    """kazoo's threads and sockets, with a deadline for the first connection and a way to cut one that hangs.

    With ``contexts`` connections are over TLS. kazoo's own TLS trusts all authorities of the machine beside the given one, and
    reads the files once.
    """

    def __init__(self, contexts: ClientContexts | None = None) -> None:
        super().__init__()
        self._contexts = contexts
        self.deadline: float | None = None
        """The ``time.monotonic()`` after which no connection is attempted; None once the first one is open."""
        self.is_connected: Callable[[], bool] = lambda: False
        self._socket: socket.socket | None = None

    def select(self, *args: Any) -> Any:
        readers, *others, timeout = args
        if not self.is_connected():
            timeout = min(timeout, _HANDSHAKE_S)
        # A record of TLS may hold several answers. Those that are decrypted already make no socket readable.
        pending = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        found, *rest = super().select(readers, *others, 0 if pending else timeout)
        return [*pending, *(one for one in found if one not in pending)], *rest

    def create_connection(self, *args: Any, timeout: float, hostname: str, **kwargs: Any) -> socket.socket:
        if self.deadline is not None:
            timeout = min(timeout, self.deadline - time.monotonic())
        if timeout <= 0:
            raise KazooTimeoutError("the time to connect is over")
        self._socket = super().create_connection(*args, timeout=timeout, hostname=hostname, **kwargs)
        if self._contexts is not None:
            self._socket.settimeout(timeout)
            self._socket = self._contexts.current().wrap_socket(self._socket, server_hostname=hostname)
        return self._socket

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


class ReadMany:
    """A request of kazoo: what is at each of ``paths``. Its answer has a value with its stat, or an error, for each of them."""

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def serialize(self) -> bytes:
        reads = (_READ.serialize() + GetData(path, None).serialize() for path in self.paths)
        return b"".join([*reads, _END.serialize()])

    def deserialize(self, answer: bytes, offset: int) -> list[Any]:
        """Raises ValueError for an answer in another form."""
        found: list[Any] = []
        header, offset = MultiHeader.deserialize(answer, offset)
        while not header.done:
            if header.type == GetData.type:
                value, stat = GetData.deserialize(answer, offset)
                offset += _CODE.size + len(value or b"") + stat_struct.size
                found.append((value, stat))
            elif header.type == _ERROR:
                found.append(EXCEPTIONS[_CODE.unpack_from(answer, offset)[0]]())
                offset += _CODE.size
            else:
                raise ValueError(f"a result of type {header.type}")
            header, offset = MultiHeader.deserialize(answer, offset)
        return found
