"""What ``bk-spark bench`` measures: appends to one ledger, its entries read from first to last, and some read one by one.

Memory is bounded: appends on their way by ``Load.in_flight`` and the client's window, durations by ``Latencies``.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.commands.latencies import Latencies
from bk_spark.entries.batch import binaries
from bk_spark.entries.digest import payload_sizes
from bk_spark.errors import CorruptionError

SEED = 1
"""The same payload and the same single reads in every run, so that runs can be compared."""

SINGLE_READS = 1_000
"""Entries that are read one by one: enough for the slowest thousandth to be one of them."""

Tell = Callable[[str, int, int], None]
"""What is done, how much of it, of how much."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is written, until ``seconds`` are over or ``entries`` are appended."""

    entry_bytes: int
    batch_entries: int
    seconds: float
    entries: int | None
    rate: float | None
    """Entries a second at most; None: as many as the cluster confirms."""
    in_flight: int
    """Appends that wait for their confirmation."""


@dataclass(slots=True)
class BenchPhase:
    """What was measured of one of them."""

    name: str
    entries: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)


def write(writer: WriteHandle, load: Load, tell: Tell) -> BenchPhase:
    """Append until the load is done, and wait for the last confirmation. Raises what ended the writer.

    A latency is that of an append, from its call; with a rate from when it was due, so that a cluster that stands still
    for a second shows in all that should have been appended meanwhile.
    """
    phase, room, start_s = BenchPhase("write"), threading.Semaphore(load.in_flight), time.monotonic()
    last: Future[Any] | None = None
    for due_s, payloads in _appends(load, start_s, tell):
        room.acquire()
        last = writer.append_batch_async(payloads) if len(payloads) > 1 else writer.append_async(payloads[0].as_py())
        last.add_done_callback(_measured(phase, room, due_s))
        phase.entries += len(payloads)
    if last is not None:
        last.result()
    phase.seconds, phase.nbytes = time.monotonic() - start_s, phase.entries * load.entry_bytes
    return phase


def _measured(phase: BenchPhase, room: threading.Semaphore, due_s: float | None) -> Callable[[Future[Any]], None]:
    """Called on the client's event loop alone, one after the other."""
    begun_s = time.monotonic() if due_s is None else due_s

    def confirmed(_: Future[Any]) -> None:
        phase.latencies.add(time.monotonic() - begun_s)
        room.release()

    return confirmed


def _appends(load: Load, start_s: float, tell: Tell) -> Iterator[tuple[float | None, pa.BinaryArray]]:
    """When each append is due (None: at once) and its payloads, in time; at least one."""
    payloads = binaries([random.Random(SEED).randbytes(load.entry_bytes)] * load.batch_entries)
    appended = 0
    while load.entries is None or appended < load.entries:
        due_s = None if load.rate is None else start_s + appended / load.rate
        now_s = time.monotonic()
        if appended and max(now_s, due_s or 0.0) - start_s >= load.seconds:
            return
        if due_s is not None and due_s > now_s:
            time.sleep(due_s - now_s)
        count = load.batch_entries if load.entries is None else min(load.batch_entries, load.entries - appended)
        yield due_s, payloads.slice(0, count)
        appended += count
        tell("write", *_share(load, appended, now_s - start_s))


def _share(load: Load, appended: int, passed_s: float) -> tuple[int, int]:
    """How much is done: entries where their number decides, else seconds."""
    if load.entries is not None and appended / load.entries >= passed_s / load.seconds:
        return appended, load.entries
    return int(passed_s), int(load.seconds)


def read(reader: ReadHandle, written: BenchPhase, tell: Tell) -> BenchPhase:
    """All entries, in order. Raises CorruptionError where they are not what was written."""
    phase, start_s = BenchPhase("read"), time.monotonic()
    for batch in reader.read(0, written.entries - 1):
        phase.entries += batch.num_rows
        phase.nbytes += int(payload_sizes(batch.column("payload")).sum())
        tell("read", phase.entries, written.entries)
    phase.seconds = time.monotonic() - start_s
    if (phase.entries, phase.nbytes) != (written.entries, written.nbytes):
        found, expected = f"{phase.entries} entries of {phase.nbytes} bytes", f"{written.entries} of {written.nbytes}"
        raise CorruptionError(f"ledger {reader.ledger_id}", f"it gave {found} where {expected} were written")
    return phase


def read_singly(reader: ReadHandle, entries: int, seconds: float, tell: Tell) -> BenchPhase:
    """Single entries from all over the ledger, each once the one before it is here, for ``seconds`` at most."""
    phase, start_s, chance = BenchPhase("read one"), time.monotonic(), random.Random(SEED)
    total = min(entries, SINGLE_READS)
    for _ in range(total):
        begun_s = time.monotonic()
        if begun_s - start_s > seconds:
            break
        entry_id = chance.randrange(entries)
        phase.nbytes += sum(int(payload_sizes(one.column("payload")).sum()) for one in reader.read(entry_id, entry_id))
        phase.latencies.add(time.monotonic() - begun_s)
        phase.entries += 1
        tell("read one", phase.entries, total)
    phase.seconds = time.monotonic() - start_s
    return phase
