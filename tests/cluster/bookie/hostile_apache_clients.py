"""Clients that mean harm to a bookie's port for Apache's clients, in a process of their own.

    python -m tests.cluster.bookie.hostile_apache_clients ATTACK PORT BOOKIE_ID LEDGER_ID CONNECTIONS

opens its connections, prints a line, and goes on with its attack until it is killed. ``LEDGER_ID`` has entries of 1 MiB.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Callable

from bk_spark.config import MIB
from bk_spark.proto import apache_wire_pb2 as pb
from tests.cluster.bookie.hostile_clients import Attack, Connection

PROOF = hashlib.sha1(b"ledger").digest()
LARGE_BYTES = 16 * MIB
SILENT = 2_000
"""Connections that say nothing cost nothing here."""


class ApacheConnection(Connection):
    def receive(self) -> None:
        """What comes is thrown away."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()


class ApacheAttack(Attack):
    kind = ApacheConnection

    def huge(self) -> None:
        """Frames of 2 GiB and more."""
        self.run(lambda connection: connection.send(struct.pack(">I", 1 << 31) + bytes(100_000)), Connection.send)

    def unfinished(self) -> None:
        """An add of 16 MiB each that never becomes whole."""
        sent: dict[Connection, int] = {}

        def begin(connection: Connection) -> None:
            sent[connection] = 0
            connection.send(struct.pack(">I", LARGE_BYTES) + self._add(0, 1000)[4:1000])

        def go_on(connection: Connection) -> None:
            if not connection.is_busy and sent[connection] < LARGE_BYTES - 2 * MIB:
                sent[connection] += MIB
                connection.send(bytes(MIB))
            connection.send()

        self.run(begin, go_on)

    def large(self) -> None:
        """Adds of 16 MiB, again and again."""
        self._repeat(lambda n: self._add(n, LARGE_BYTES - 100))

    def greedy(self) -> None:
        """Batch reads whose answers nobody takes."""
        frames = b"".join(_framed(struct.pack(">BBHqqqiq", 2, 7, 0, self.ledger_id, 0, n, 0, 1 << 40)) for n in range(64))
        self.run(lambda connection: connection.send(frames), Connection.send, reads=False)

    def last_entries(self) -> None:
        """READ_LAC, with 1 MiB in each answer, which nobody takes."""
        request = pb.LedgerRequest(ledgerId=self.ledger_id)
        frames = b"".join(_request(pb.READ_LAC, n, readLacRequest=request) for n in range(5_000))
        self.run(lambda connection: connection.send(frames), Connection.send, reads=False)

    def small(self) -> None:
        """What is short to ask and to answer, without end."""
        one = pb.LedgerRequest(ledgerId=self.ledger_id)
        frames = b"".join(
            _request(pb.GET_BOOKIE_INFO, n, getBookieInfoRequest=pb.BookieInfoRequest(requested=3))
            + _request(pb.GET_LIST_OF_ENTRIES_OF_LEDGER, n, getListOfEntriesOfLedgerRequest=one)
            + _request(pb.FORCE_LEDGER, n, forceLedgerRequest=one)
            for n in range(500)
        )
        self._repeat(lambda _: frames)

    def polls(self) -> None:
        """Long polls for what never comes."""
        read = pb.ReadRequest(ledgerId=self.ledger_id, entryId=-1, previousLAC=1 << 60, timeOut=60_000)
        frames = b"".join(_request(pb.READ_ENTRY, n, readRequest=read) for n in range(500))
        self._repeat(lambda _: frames)

    def fences(self) -> None:
        """Of ledgers that were never seen, again and again."""
        self._repeat(lambda n: b"".join(self._fence() for _ in range(100)))

    def ledgers(self) -> None:
        """Each add is of a ledger of its own, and no answer is taken."""
        self._repeat(lambda n: b"".join(self._tiny() for _ in range(100)), reads=False)

    def garbage(self) -> None:
        self._repeat(lambda n: _framed(os.urandom(1000)))

    def silent(self) -> None:
        """Connections that say nothing, or half of a request."""
        half = _framed(struct.pack(">BBHqq", 2, 2, 0, 1, 1))
        self.connections += [ApacheConnection(self._port) for _ in range(SILENT - len(self.connections))]
        self.run(
            lambda connection: connection.send(half[: connection.socket.fileno() % 20]), lambda connection: None, reads=False
        )

    def _repeat(self, frames: Callable[[int], bytes], *, reads: bool = True) -> None:
        counts: dict[Connection, int] = {}

        def begin(connection: Connection) -> None:
            counts[connection] = 0

        def go_on(connection: Connection) -> None:
            if not connection.is_busy:
                counts[connection] += 1
                connection.send(frames(counts[connection]))
            connection.send()

        self.run(begin, go_on, reads=reads)

    def _add(self, entry_id: int, size: int) -> bytes:
        """Of one ledger for each connection's turn: other content under a stored id would be refused before it is stored."""
        entry = struct.pack(">4q", next(self._ledgers), entry_id, entry_id - 1, size)
        return _framed(struct.pack(">BBH", 2, 1, 0) + PROOF + entry + bytes(size))

    def _tiny(self) -> bytes:
        return self._add(0, 10)

    def _fence(self) -> bytes:
        return _framed(struct.pack(">BBHqq", 2, 2, 1, next(self._ledgers), -1) + PROOF)


def _framed(frame: bytes) -> bytes:
    return struct.pack(">I", len(frame)) + frame


def _request(operation: int, number: int, **fields: object) -> bytes:
    header = pb.Header(version=3, operation=operation, txnId=number)
    return _framed(pb.Request(header=header, **fields).SerializeToString())  # type: ignore[arg-type]


ATTACKS = (
    "huge",
    "unfinished",
    "large",
    "greedy",
    "last_entries",
    "small",
    "polls",
    "fences",
    "ledgers",
    "garbage",
    "silent",
)

if __name__ == "__main__":
    name, port, bookie_id, ledger_id, connections = sys.argv[1:]
    getattr(ApacheAttack(int(port), bookie_id, int(ledger_id), int(connections)), name)()
