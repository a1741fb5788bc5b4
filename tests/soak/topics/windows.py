"""Does our reading slow the writers down? Windows of time in which a producer writes as fast as it can, with and without it.

Windows of all kinds take turns, so that a machine that becomes slower is so for all. Of each window it is told what the writer
did in its median second, and which processor time and disk its processes took.

- *nobody reads*
- *we follow*: a reader of ours looks every second for what is new
- *we read all*: a reader of ours reads the topic from its beginning, as fast as it can, again and again
- *Pulsar reads all*: so does Pulsar's own, through the broker
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.bookkeeper_cluster import Peer
from benchmarks.speed.processes import Usage, usage
from bk_spark.local.process import HOST
from tests.soak.pulsar.client import compiled
from tests.soak.topics.client import SOURCES, Second
from tests.soak.topics.stage import JAVA, Stage

TOPIC = "persistent://topics/proof/speed"
PARTITIONS = 4
MESSAGE_BYTES = 100

WARM_UP_S = 15.0
SETTLE_S = 4.0
"""Between the start of a reader and of its window. Who follows gets what there is already in this time."""

NOBODY, FOLLOW, WHOLE, PULSARS = "nobody reads", "we follow", "we read all", "Pulsar reads all"
KINDS = (NOBODY, FOLLOW, WHOLE, PULSARS)


@dataclass(frozen=True, slots=True)
class Window:
    kind: str
    seconds: float
    writer: Sequence[Second]
    used: dict[str, Usage]
    """Of each part."""
    read_bytes: int
    """From disks, by all parts."""
    messages_read: int

    @property
    def messages_per_s(self) -> float:
        return statistics.median(one.messages_per_s for one in self.writer)

    @property
    def p99_ms(self) -> float:
        return statistics.median(one.p99_ms for one in self.writer)

    def cells(self) -> list[str]:
        cores = [f"{used.cpu_s / self.seconds:.2f}" for used in self.used.values()]
        written = sum(used.write_bytes for used in self.used.values()) / self.seconds / 1e6
        read = self.read_bytes / self.seconds / 1e6
        rate = f"{self.messages_read / self.seconds:,.0f}"
        return [self.kind, f"{self.messages_per_s:,.0f}", f"{self.p99_ms:.0f}", rate, *cores, f"{written:.1f}", f"{read:.1f}"]


HEADS = ("", "written/s", "p99 ms", "read/s", "bookies", "broker", "writer", "reader", "MB/s written", "MB/s read")
"""Processors are in cores."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A process that reads; its answers count the messages it read so far."""

    pid: int
    count: Callable[[], int]


def measure(stage: Stage, directory: Path, window_s: float, rounds: int, say: Callable[[str], None]) -> list[Window]:
    """``rounds`` windows of each kind."""
    stage.client.create(TOPIC, PARTITIONS)
    stage.client.begin_speed(TOPIC, MESSAGE_BYTES)
    time.sleep(WARM_UP_S)
    windows = []
    for number in range(rounds):
        for kind in KINDS if number % 2 == 0 else reversed(KINDS):
            windows.append(_window(stage, directory, kind, window_s))
            say("  ".join(windows[-1].cells()))
    stage.client.end_speed()
    return windows


def table(windows: Sequence[Window]) -> list[str]:
    """A line for each window, and the writer's rate of each kind beside that of the same round without a reader."""
    rows = [HEADS, *(window.cells() for window in windows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEADS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    alone = [window for window in windows if window.kind == NOBODY]
    for kind in KINDS[1:]:
        those = [window for window in windows if window.kind == kind]
        rates, late = (_ratios(those, alone, name) for name in ("messages_per_s", "p99_ms"))
        lines.append(f"{kind}, beside nobody: the writer's rate {rates}, its p99 {late}")
    return lines


def _ratios(those: Sequence[Window], alone: Sequence[Window], name: str) -> str:
    ratios = [getattr(one, name) / getattr(other, name) for one, other in zip(those, alone, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _window(stage: Stage, directory: Path, kind: str, window_s: float) -> Window:
    with _reading(stage, directory, kind) as reading:
        pids = {**stage.pids(), "reader": [reading.pid] if reading else []}
        every = [pid for some in pids.values() for pid in some]
        time.sleep(SETTLE_S)
        stage.client.seconds()
        before, read, seen = {name: usage(some) for name, some in pids.items()}, _read_bytes(every), _count(reading)
        began = time.monotonic()
        time.sleep(window_s)
        seconds, writer, count = time.monotonic() - began, stage.client.seconds(), _count(reading) - seen
        used = {name: usage(some).since(before[name]) for name, some in pids.items()}
        return Window(kind, seconds, writer, used, _read_bytes(every) - read, count)


def _count(reading: Reading | None) -> int:
    return reading.count() if reading else 0


@contextlib.contextmanager
def _reading(stage: Stage, directory: Path, kind: str) -> Iterator[Reading | None]:
    """It ends with the context."""
    if kind == NOBODY:
        yield None
        return
    if kind == PULSARS:
        service = f"pulsar://{HOST}:{stage.broker.port}"
        command = [*compiled(SOURCES, directory / "classes", JAVA), "Again", service, TOPIC]
    else:
        command = [sys.executable, "-m", "tests.soak.topics.reader", stage.metadata_uri, stage.pulsar_uri, TOPIC, kind]
    with contextlib.closing(Peer(command, directory / "reader.log")) as peer:
        yield Reading(peer.pid, lambda: int(peer.ask("count")["messages"]))


def _read_bytes(pids: Sequence[int]) -> int:
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))
