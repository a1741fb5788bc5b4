"""Clients that mean harm, in a process of their own: raw HTTP/2 over sockets, for no library would send such things.

    python -m tests.cluster.bookie.hostile_clients ATTACK PORT BOOKIE_ID LEDGER_ID CONNECTIONS

opens its connections, prints a line, and goes on with its attack until it is killed. ``LEDGER_ID`` has entries of 1 MiB.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from itertools import count

import pyarrow as pa

from bk_spark.config import DigestType
from bk_spark.entries.batch import encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.quorum import DENSE
from bk_spark.wire.codec import encode_add_request, encode_last_add_confirmed_request, encode_read_request
from bk_spark.wire.messages import MAX_MESSAGE_BYTES, AddRequest, LastAddConfirmedRequest, ReadRequest

KEY = master_key(b"")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
STREAMS = 32
"""Of each connection, where an attack uses many."""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def call_frame(method: str, stream: int, flags: int = END_HEADERS) -> bytes:
    """The beginning of a call."""
    pairs = (":method", "POST"), (":scheme", "http"), (":path", f"/bk_spark.v1.Bookie/{method}"), (":authority", "x")
    pairs += ("te", "trailers"), ("content-type", "application/grpc")
    return frame(HEADERS, flags, stream, b"".join(_literal(*pair) for pair in pairs))


def _literal(name: str, value: str) -> bytes:
    return b"\x10" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def message(encoded: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(encoded)) + encoded


class Connection:
    """One socket, and how much the bookie allows it to send on its first stream."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.window = 65_535
        self.is_open = True
        self._unsent = b""
        self._received = b""

    @property
    def is_busy(self) -> bool:
        return bool(self._unsent)

    def greet(self, settings: bytes = b"") -> None:
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, data: bytes = b"") -> None:
        """What does not fit is sent with the next call."""
        self._unsent += data
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :] if self._unsent else b""
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def receive(self) -> None:
        """Read what came, and note how much may be sent."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
        self._received += data
        while len(self._received) >= 9:
            size, kind, stream = int.from_bytes(self._received[:3]), self._received[3], int.from_bytes(self._received[5:9])
            if len(self._received) < 9 + size:
                return
            if kind == WINDOW_UPDATE and stream == 1:
                self.window += int.from_bytes(self._received[9:13])
            self._received = self._received[9 + size :]

    def close(self) -> None:
        self.is_open = False
        self._unsent = b""
        self.socket.close()


class Attack:
    """Many connections that do one thing."""

    kind: type[Connection] = Connection

    def __init__(self, port: int, bookie_id: str, ledger_id: int, connections: int) -> None:
        self.bookie_id, self.ledger_id = bookie_id, ledger_id
        self._port = port
        self._ledgers = count((1 << 40) + os.getpid() * (1 << 22))
        self.connections = [self.kind(port) for _ in range(connections)]

    def run(self, begin: Callable[[Connection], None], go_on: Callable[[Connection], None], *, reads: bool = True) -> None:
        """Who was thrown out comes again."""
        for connection in self.connections:
            begin(connection)
        print("attacking", flush=True)
        while True:
            for at, connection in enumerate(self.connections):
                if not connection.is_open:
                    self.connections[at] = self.kind(self._port)
                    begin(self.connections[at])
            readable = select.select(self.connections_open if reads else [], [], [], 0.005)[0] if reads else time.sleep(0.005)
            for connection in self.connections:
                if reads and readable and connection.socket in readable:
                    connection.receive()
                if connection.is_open:
                    go_on(connection)

    @property
    def connections_open(self) -> list[socket.socket]:
        return [one.socket for one in self.connections if one.is_open]

    # --- the attacks

    def unfinished(self) -> None:
        """An add of 17 MiB each that never becomes whole."""

        def begin(connection: Connection) -> None:
            connection.greet()
            connection.send(call_frame("Add", 1) + frame(DATA, 0, 1, b"\0" + struct.pack(">I", MAX_MESSAGE_BYTES)))
            connection.window = 65_530

        def go_on(connection: Connection) -> None:
            if not connection.is_busy and connection.window >= 16_384:
                pieces = min(64, connection.window // 16_384)
                connection.window -= pieces * 16_384
                connection.send(frame(DATA, 0, 1, bytes(16_384)) * pieces)
            connection.send()

        self.run(begin, go_on)

    def greedy(self) -> None:
        """Reads whose replies nobody takes."""
        request = encode_read_request(ReadRequest(self.bookie_id, self.ledger_id, KEY, 0, 1 << 40, DENSE, 1 << 40))

        def begin(connection: Connection) -> None:
            connection.greet(struct.pack(">HI", 4, 2**31 - 1))  # any window: gRPC fills the socket, then holds the rest
            for stream in range(1, 2 * STREAMS, 2):
                connection.send(call_frame("Read", stream))
                connection.send(frame(DATA, END_STREAM, stream, message(request.SerializeToString())))

        self.run(begin, Connection.send, reads=False)

    def ranges(self) -> None:
        """Fencing and other reads of everything that there can be, again and again, on many streams."""
        whole = [ReadRequest(self.bookie_id, 1 << 61, KEY, 0, (1 << 62) - 1, DENSE, 1 << 62, fence) for fence in (False, True)]
        encoded = [message(encode_read_request(one).SerializeToString()) for one in whole]
        self._calls("Read", encoded)

    def polls(self) -> None:
        """Long polls for what never comes."""
        request = LastAddConfirmedRequest(self.bookie_id, self.ledger_id, KEY, False, 1 << 60, 60_000)
        self._calls("ReadLastAddConfirmed", [message(encode_last_add_confirmed_request(request).SerializeToString())])

    def _calls(self, method: str, encoded: list[bytes]) -> None:
        """Calls without end, as many at a time as there are streams."""
        streams: dict[Connection, int] = {}

        def begin(connection: Connection) -> None:
            connection.greet()
            streams[connection] = 1

        def go_on(connection: Connection) -> None:
            if not connection.is_busy:
                stream = streams[connection]
                data = encoded[stream // 2 % len(encoded)]
                connection.send(call_frame(method, stream) + frame(DATA, END_STREAM, stream, data))
                streams[connection] += 2
            connection.send()

        self.run(begin, go_on)

    def silent(self) -> None:
        """Connections that say nothing, or half of what a connection begins with."""
        self.run(lambda connection: connection.send(PREFACE[: connection.socket.fileno() % 20]), lambda connection: None)

    def pings(self) -> None:
        def go_on(connection: Connection) -> None:
            connection.send(b"" if connection.is_busy else frame(PING, 0, 0, bytes(8)) * 100)

        self.run(Connection.greet, go_on)

    def headers(self) -> None:
        """Headers without end."""

        def begin(connection: Connection) -> None:
            connection.greet()
            connection.send(call_frame("Describe", 1, 0))

        def go_on(connection: Connection) -> None:
            line = _literal("x-more", "y" * 100) * 100
            connection.send(b"" if connection.is_busy else frame(CONTINUATION, 0, 1, line))

        self.run(begin, go_on)

    def ledgers(self) -> None:
        """Each add is of a ledger of its own, and no reply is read."""

        def begin(connection: Connection) -> None:
            connection.greet()
            connection.send(call_frame("Add", 1))
            connection.window = 1 << 30  # too much: the bookie may end the connection for that, too

        def go_on(connection: Connection) -> None:
            if not connection.is_busy:
                connection.send(b"".join(self._tiny_add() for _ in range(20)))
            connection.send()

        self.run(begin, go_on)

    def _tiny_add(self) -> bytes:
        ledger_id = next(self._ledgers)
        payloads = pa.array([b"x"], pa.binary())
        digester = Digester(DigestType.CRC32C, b"")
        batch = encode(seal(digester, ledger_id, 0, payloads, length_before=0, last_add_confirmed=-1), DigestType.CRC32C, DENSE)
        assert batch is not None
        request = encode_add_request(AddRequest(1, self.bookie_id, KEY, batch))
        return frame(DATA, 0, 1, message(request.SerializeToString()))


ATTACKS = ("unfinished", "greedy", "ranges", "polls", "silent", "pings", "headers", "ledgers")

if __name__ == "__main__":
    name, port, bookie_id, ledger_id, connections = sys.argv[1:]
    getattr(Attack(int(port), bookie_id, int(ledger_id), int(connections)), name)()
