"""What passes over this machine's loopback interface, to and from the ports of a cluster. Needs CAP_NET_RAW, as root has it."""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Collection

_ALL_PROTOCOLS = 0x0003
_OUTGOING = 4
"""The copy of a packet that is on its way out: loopback shows each packet twice."""
_SOL_PACKET, _STATISTICS = 263, 6
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 256 << 20
_LARGEST = 1 << 17
_ETHERNET = 14


class LoopbackCapture:
    """Captures while it is open: ``with LoopbackCapture(ports) as capture``. Then ``streams`` has what passed."""

    def __init__(self, ports: Collection[int]) -> None:
        """Raises PermissionError."""
        self._ports = frozenset(ports)
        self._streams: defaultdict[tuple[int, int], bytearray] = defaultdict(bytearray)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.1)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> LoopbackCapture:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        _, dropped = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8))
        self._socket.close()
        assert dropped == 0, f"{dropped} packets were not captured"

    @property
    def streams(self) -> dict[tuple[int, int], bytes]:
        """By the ports of sender and receiver, in the order in which it passed."""
        return {ports: bytes(content) for ports, content in self._streams.items()}

    def _run(self) -> None:
        while True:
            try:
                packet, address = self._socket.recvfrom(_LARGEST)
            except TimeoutError:
                if self._over.is_set():
                    return
                continue
            if address[2] != _OUTGOING:
                self._take(packet[_ETHERNET:])

    def _take(self, packet: bytes) -> None:
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
            return
        tcp = packet[(packet[0] & 15) * 4 :]
        ports: tuple[int, int] = struct.unpack_from("!HH", tcp)
        if self._ports & set(ports):
            self._streams[ports] += tcp[(tcp[12] >> 4) * 4 :]
