"""What an operation used: wall time, CPU time, memory, requests to ZooKeeper."""

from __future__ import annotations

import os
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient

from benchmarks.speed.processes import memory_mib, peak_memory_mib, reset_peak_memory, usage
from bk_spark.metadata.uri import parse_uri

_ASK_S = 5.0
_RECEIVED = re.compile(rb"^Received: (\d+)", re.MULTILINE)


@dataclass(slots=True)
class Used:
    """What one part of an operation used; of several runs of it, the sum."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    """How far memory rose above what the process had before."""
    requests: Counter[str] = field(default_factory=Counter)
    """Requests to ZooKeeper by their kind. A transaction is one."""

    def to_json(self) -> dict[str, object]:
        """What ``Used(**…)`` takes."""
        return {name: getattr(self, name) for name in ("wall_s", "cpu_s", "peak_mib")} | {"requests": dict(self.requests)}

    def of_one(self, count: int) -> Used:
        """Times and requests of one of so many repetitions."""
        requests = Counter({kind: round(number / count) for kind, number in self.requests.items()})
        return Used(self.wall_s / count, self.cpu_s / count, self.peak_mib, requests)


class Meter:
    """Measures this process, part by part. One at a time: it counts the requests of every session."""

    def __init__(self) -> None:
        self._used: dict[str, Used] = {}
        self._counts: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()
        _count_requests(self._sent)

    @contextmanager
    def running(self, part: str = "") -> Iterator[None]:
        """Measure what happens in the block. Entered again for a part it gives the mean of both."""
        pid, sent = os.getpid(), self._sent.copy()
        reset_peak_memory([pid])
        memory, cpu_s, began_s = memory_mib([pid]), time.process_time(), time.perf_counter()
        yield
        used = self._used.setdefault(part, Used())
        self._counts[part] += 1
        used.wall_s += time.perf_counter() - began_s
        used.cpu_s += time.process_time() - cpu_s
        used.peak_mib = max(used.peak_mib, peak_memory_mib([pid]) - memory)
        used.requests += self._sent - sent

    def used(self) -> dict[str, Used]:
        """Of each part, in the order in which they began."""
        return {part: used.of_one(self._counts[part]) for part, used in self._used.items()}


@contextmanager
def process_running(used: Used, pid: int, uri: str) -> Iterator[None]:
    """As ``Meter.running`` of another process, whose requests are all that ZooKeeper receives meanwhile."""
    before, received, memory, began_s = usage([pid]), packets(uri), memory_mib([pid]), time.perf_counter()
    reset_peak_memory([pid])
    yield
    used.wall_s += time.perf_counter() - began_s
    used.cpu_s += usage([pid]).since(before).cpu_s
    used.peak_mib = max(used.peak_mib, peak_memory_mib([pid]) - memory)
    used.requests["all"] += packets(uri) - received


def packets(uri: str) -> int:
    """How many packets ZooKeeper has received since it began: requests of all its clients, and their pings."""
    host, _, port = parse_uri(uri)[0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_ASK_S) as connection:
        connection.sendall(b"srvr")
        answer = b""
        while more := connection.recv(65_536):
            answer += more
    found = _RECEIVED.search(answer)
    assert found is not None, answer
    return int(found[1])


def _count_requests(sent: Counter[str]) -> None:
    """Count what sessions of this process send from now on, by kind."""
    call = KazooClient._call

    def counted(self: KazooClient, request: Any, result: Any) -> Any:
        sent[type(request).__name__] += 1
        return call(self, request, result)

    KazooClient._call = counted
