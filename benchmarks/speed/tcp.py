"""What the network allows: bytes to a server and an answer back over one TCP connection, between two processes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from benchmarks.speed.pacing import at_rate
from benchmarks.speed.processes import SPAWN, Workers

ANSWER = b"acknowledged"


class Tcp:
    """A server and a client, each a process of its own. Close it, or use it in a ``with`` statement."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self._port = listener.getsockname()[1]
        self._server = SPAWN.Process(target=_serve, args=(listener,), daemon=True)
        self._server.start()
        listener.close()
        self._client = Workers(1)

    def round_trips(self, per_s: float, for_s: float, nbytes: int) -> Sequence[float]:
        """How long each of ``nbytes`` took, there and its answer back, at this rate."""
        (found,) = self._client.run(_asking, self._port, per_s, for_s, nbytes)
        return list(found)

    def close(self) -> None:
        self._client.close()
        self._server.kill()
        self._server.join()

    def __enter__(self) -> Tcp:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(listener: socket.socket) -> None:
    """One connection after the other."""
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nbytes = int(connection.recv(16))
            connection.sendall(ANSWER)
            while _received(connection, nbytes):
                connection.sendall(ANSWER)


def _received(connection: socket.socket, nbytes: int) -> bool:
    while nbytes:
        data = connection.recv(nbytes)
        if not data:
            return False
        nbytes -= len(data)
    return True


def _asking(_: int, port: int, per_s: float, for_s: float, nbytes: int) -> Callable[[], list[float]]:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(b"%d" % nbytes)
    connection.recv(len(ANSWER), socket.MSG_WAITALL)
    request = bytes(nbytes)

    def timed() -> list[float]:
        found = []
        with connection:
            for _ in at_rate(round(per_s * for_s), per_s):
                start = time.perf_counter()
                connection.sendall(request)
                connection.recv(len(ANSWER), socket.MSG_WAITALL)
                found.append(time.perf_counter() - start)
        return found

    return timed
