"""A network in user space: each node's packets come out of a TUN device here, and go into the device of another node.

So a fault is a decision about packets in one place, whatever the kernel's modules are: it can be cut in one direction, lost,
duplicated, delayed, reordered, squeezed or reset for each pair of nodes. A node is a network namespace that is held by a
process: both end with this process, and nothing is left on the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bk_spark.local.process import Keeper
from tests.soak.partitions import disk
from tests.soak.partitions.link import WHOLE, Link, Pair, Passage
from tests.soak.partitions.packets import address_bytes, addresses, is_ipv4, reset_of

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000
"""Ref: linux/if_tun.h."""

TUN = "/dev/net/tun"

MTU = 16_000
"""Large, so that bulk data take few packets: the fabric handles some tens of thousands a second."""

BURST = 64
"""Packets that are taken from one node before the next one has its turn."""

_fabrics = itertools.count()
"""Of this process."""

_NETWORKS, _STEP = 64 * 256, 4_099
"""The networks 10.64.0 to 10.127.255, one for each fabric: several processes of a machine may have some."""

HOME = "home"
"""The node of this process itself, in the namespace in which it runs."""


def problem() -> str:
    """Why no fabric can be made here; "" if one can."""
    if os.geteuid() != 0:
        return "network namespaces and TUN devices need root"
    missing = [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]
    if not Path(TUN).exists():
        missing.append(TUN)
    return f"without {', '.join(missing)} there are no nodes of a network" if missing else disk.problem()


class Node:
    """A network namespace with one address."""

    def __init__(self, name: str, address: str, holder: subprocess.Popen[bytes] | None, device: int) -> None:
        self.name = name
        self.address = address
        self.device = device
        self._holder = holder

    @property
    def prefix(self) -> list[str]:
        """The words in front of a command that runs in this node."""
        return [] if self._holder is None else ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net"]

    def end(self) -> None:
        """Give the namespace back, once no process is in it."""
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()


class Fabric:
    """Nodes, and the links between them. Links that nobody set are whole."""

    def __init__(self, keeper: Keeper, directory: Path, seed: int) -> None:
        self._number = (os.getpid() + next(_fabrics) * _STEP) % _NETWORKS
        self._keeper = keeper
        self._directory = directory
        self._random = random.Random(seed)
        self._nodes: dict[str, Node] = {}
        self._by_address: dict[bytes, Node] = {}
        self._passages: dict[Pair, Passage] = {}
        self._late: list[tuple[float, int, int, bytes]] = []
        """Packets on their way: when they arrive, a count that keeps those of one moment in order, the device, the packet."""
        self._sequence = itertools.count()
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._is_closed = False
        self.add(HOME)
        self._thread = threading.Thread(target=self._forward, name="fabric", daemon=True)
        self._thread.start()

    def add(self, name: str) -> Node:
        """A new node."""
        number = len(self._nodes) + 1
        holder = None if name == HOME else self._hold_namespace()
        interface = f"bk{self._number}n{number}"
        device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", interface.encode(), IFF_TUN | IFF_NO_PI))
        node = Node(name, f"10.{64 + self._number // 256}.{self._number % 256}.{number}", holder, device)
        if holder is not None:
            _await_namespace(holder.pid)
            _run("ip", "link", "set", interface, "netns", str(holder.pid))
            _run(*node.prefix, "ip", "link", "set", "lo", "up")
        _run(*node.prefix, "ip", "address", "add", f"{node.address}/24", "dev", interface)
        _run(*node.prefix, "ip", "link", "set", interface, "mtu", str(MTU), "up")
        with self._lock:
            self._nodes[name] = self._by_address[address_bytes(node.address)] = node
            self._poll.register(device, select.POLLIN)
        return node

    def set(self, links: Mapping[Pair, Link]) -> None:
        """From now on these links hold, and all others are whole. Packets that are on their way arrive as they would have."""
        if not self._thread.is_alive():
            raise RuntimeError("the fabric's thread has ended, and nothing is forwarded: its error is in this process's output")
        with self._lock:
            for pair in {*self._passages, *links}:
                self._passage(pair).link = links.get(pair, WHOLE)

    def counts(self) -> Counter[str]:
        """Packets so far by what became of them."""
        with self._lock:
            return sum((Counter(passage.counts) for passage in self._passages.values()), Counter())

    def close(self) -> None:
        self._is_closed = True
        self._thread.join()
        for node in self._nodes.values():
            os.close(node.device)
            node.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _hold_namespace(self) -> subprocess.Popen[bytes]:
        with open(os.devnull, "ab") as log:
            return self._keeper.spawn(["unshare", "--net", "sleep", "infinity"], log, {})

    def _passage(self, pair: Pair) -> Passage:
        passage = self._passages.get(pair)
        if passage is None:
            passage = self._passages[pair] = Passage(WHOLE)
        return passage

    def _forward(self) -> None:
        while not self._is_closed:
            wait_s = min(0.1, max(0.0, self._late[0][0] - time.monotonic())) if self._late else 0.1
            ready = self._poll.poll(wait_s * 1000)
            with self._lock:
                for device, _ in ready:
                    self._take(device)
                self._deliver(time.monotonic())

    def _take(self, device: int) -> None:
        for _ in range(BURST):
            try:
                packet = os.read(device, 65_536)
            except OSError:  # nothing is left
                return
            if is_ipv4(packet):
                self._send(packet)

    def _send(self, packet: bytes) -> None:
        source, target = (self._by_address.get(address) for address in addresses(packet))
        if source is None or target is None:
            return
        passage, now_s = self._passage((source.name, target.name)), time.monotonic()
        for arrival_s in passage.arrivals(len(packet), now_s, self._random):
            if arrival_s <= now_s:
                _write(target.device, packet)
            else:
                heapq.heappush(self._late, (arrival_s, next(self._sequence), target.device, packet))
        if passage.link.is_reset and (answer := reset_of(packet)) is not None:
            _write(source.device, answer)

    def _deliver(self, now_s: float) -> None:
        while self._late and self._late[0][0] <= now_s:
            _, _, device, packet = heapq.heappop(self._late)
            _write(device, packet)


def _write(device: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # its queue is full, or its node is gone: a network loses such packets
        os.write(device, packet)


def _await_namespace(pid: int) -> None:
    """Until a holder has left this process's namespace."""
    own, deadline_s = os.readlink("/proc/self/ns/net"), time.monotonic() + 30
    while True:
        try:
            if os.readlink(f"/proc/{pid}/ns/net") != own and Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                return
        except OSError:
            pass
        if time.monotonic() > deadline_s:
            raise TimeoutError("a network namespace was not made within 30 s: it needs root")
        time.sleep(0.01)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
