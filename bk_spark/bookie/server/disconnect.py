"""Works on clients' connections beneath gRPC: measures whether one makes progress, and closes it.

gRPC's server can end a call, but it keeps the bytes of a reply until the client has taken it or is gone, and it does not tell
how much of it was sent. Closing the connection frees them at once. Connections are found among the process's open files.

Ref: Linux, tcp(7), TCP_INFO.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import unquote

from bk_spark.host_port import HostPort

_FILES = Path("/proc/self/fd")
_ACKNOWLEDGED = struct.Struct("=120xQ")
"""``tcpi_bytes_acked`` in Linux's ``struct tcp_info``."""


def acknowledged_bytes(peers: Collection[str]) -> dict[str, int]:
    """How many bytes each peer's machine has acknowledged so far; 0 for a peer without a connection."""
    wanted = {_address(peer): peer for peer in peers}
    taken = dict.fromkeys(peers, 0)
    for address, connection in _connections(wanted):
        with contextlib.suppress(OSError, struct.error):  # closed meanwhile; an old Linux
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
            (taken[wanted[address]],) = _ACKNOWLEDGED.unpack(info)
    return taken


def disconnect(peers: Collection[str]) -> int:
    """Close the connections of these peers, given as gRPC names them. Returns how many were found: 0 without /proc."""
    found = 0
    for _, connection in _connections({_address(peer) for peer in peers}):
        with contextlib.suppress(OSError):  # closed meanwhile
            connection.shutdown(socket.SHUT_RDWR)
            found += 1
    return found


def _connections(wanted: Collection[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], socket.socket]]:
    """Duplicates of this process's connections with these addresses, each open until the next one is requested.

    Only sockets are duplicated: if a duplicate of SQLite's file were closed, SQLite would lose its locks.
    """
    for file in list(_FILES.iterdir()) if wanted and _FILES.is_dir() else []:
        if not file.is_socket():
            continue
        with contextlib.suppress(OSError), socket.fromfd(int(file.name), socket.AF_INET6, socket.SOCK_STREAM) as duplicate:
            match duplicate.getpeername():  # OSError: not connected, or closed meanwhile
                case (str(host), int(port), *_) if (address := (host.removeprefix("::ffff:"), port)) in wanted:
                    yield address, duplicate


def _address(peer: str) -> tuple[str, int]:
    """``ipv4:127.0.0.1:4711`` or ``ipv6:%5B::1%5D:4711``."""
    try:
        place = HostPort.parse(unquote(peer).partition(":")[2])
    except ValueError:  # another kind of connection
        return "", 0
    return place.host, place.port
