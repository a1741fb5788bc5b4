"""``bk-spark bench``: how fast a cluster confirms and returns entries, as one client measures it.

It appends to one ledger, reads all entries from first to last, and then reads some one by one. Memory is bounded: appends
under way by ``Load.in_flight`` and the client's window, latencies by ``Latencies``.
"""

from __future__ import annotations

import argparse
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.commands.arguments import Commands, command, positive_count, positive_number, positive_size_bytes
from bk_spark.commands.connect import bookkeeper
from bk_spark.commands.output import ProgressBar, print_records, say
from bk_spark.commands.program.parser import UsageError
from bk_spark.config import MAX_BATCH_ENTRIES, MAX_ENTRY_BYTES
from bk_spark.entries.batch import binaries
from bk_spark.entries.digest import payload_sizes
from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.progress import Progress
from bk_spark.quorum import check_quorums

SEED = 1
"""The same payload and the same single reads in every run, so that runs can be compared."""

SINGLE_READS = 1_000
"""Entries that are read one by one: enough for the slowest thousandth to be one of them."""

STEP = 1.01
"""Latencies are counted in steps of one per cent: a quantile is exact to that."""

SHORTEST_S = 1e-6
STEPS = 2_100
"""1.01 to this power is 1.2 thousand million: longer latencies count as twenty minutes, above every timeout of a client."""

COLUMNS = ["phase", "entries", "seconds", "entries_per_s", "mb_per_s", "p50_ms", "p99_ms", "p999_ms"]
TEXT = (
    "write entries to one new ledger of this cluster, read them all back, then up to 1000 one by one, and print what came of "
    "each: entries and megabytes (10^6 bytes) a second, and the latency that 50, 99 and 99.9 per cent of the appends or reads "
    "stayed below, in milliseconds. The ledger is deleted at the end, also after Ctrl-C; the bookies' disks follow with their "
    "next garbage collection"
)


def add(commands: Commands) -> None:
    parser = command(commands, "bench", "measure this cluster: rates and latencies of adds and reads", _run)
    parser.description = TEXT

    def option(name: str, kind: Callable[[str], float], default: float | None, metavar: str, text: str) -> None:
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=text)

    text = "write for this long, and read single entries no longer (default %(default)s s)"
    option("--seconds", positive_number, 10.0, "S", text)
    text = "write at most N entries (default: as many as fit into --seconds)"
    option("--entries", positive_count, None, "N", text)
    text = "payload of an entry (default %(default)s bytes, also as 4k; at most 16m)"
    option("--entry-bytes", positive_size_bytes, 1024, "N", text)
    option("--batch", positive_count, 100, "N", "entries of an append; 1: singly (default %(default)s)")
    option("--rate", positive_number, None, "N", "entries a second at most (default: as many as the cluster confirms)")
    text = "appends that wait for their confirmation; 1: one after the other (default %(default)s)"
    option("--in-flight", positive_count, 64, "N", text)
    option("--ensemble-size", positive_count, 3, "E", "bookies that the ledger is spread over (default %(default)s)")
    option("--write-quorum", positive_count, 3, "N", "bookies that hold each entry (default %(default)s)")
    text = "bookies that have an entry on disk before it is confirmed (default %(default)s)"
    option("--ack-quorum", positive_count, 2, "N", text)


class Latencies:
    """Many durations in bounded memory: a count for each step, from a microsecond to twenty minutes. Not thread-safe."""

    def __init__(self) -> None:
        self._counts = [0] * STEPS
        self.count = 0

    def add(self, seconds: float) -> None:
        step = math.ceil(math.log(max(seconds, SHORTEST_S) / SHORTEST_S, STEP))
        self._counts[min(step, STEPS - 1)] += 1
        self.count += 1

    def quantile_s(self, part: float) -> float | None:
        """The duration that ``part`` (0 to 1) of all did not exceed, at most one per cent too long; None without durations."""
        rank, seen = max(math.ceil(part * self.count), 1), 0
        for step, count in enumerate(self._counts):
            seen += count
            if seen >= rank:
                return float(SHORTEST_S * STEP**step)
        return None

    def milliseconds(self, parts: Sequence[float]) -> list[float | None]:
        """The quantiles of ``parts``, to four digits."""
        found = [self.quantile_s(part) for part in parts]
        return [None if seconds is None else float(f"{seconds * 1000:.4g}") for seconds in found]


@dataclass(frozen=True, slots=True)
class Load:
    """What to write, until ``seconds`` are over or ``entries`` are appended."""

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
    """The measurements of one phase."""

    name: str
    entries: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)


def _run(args: argparse.Namespace) -> None:
    load = _load(args)
    with bookkeeper(args) as client, ProgressBar() as progress:
        writer = client.create_ledger(args.ensemble_size, args.write_quorum, args.ack_quorum)
        say(f"ledger {writer.ledger_id}: {load.entry_bytes} bytes an entry, {load.batch_entries} entries an append")
        try:
            phases = _measure(client, writer, load, progress.show)
        finally:
            client.delete_ledger(writer.ledger_id)
    print_records([_record(phase) for phase in phases], COLUMNS, as_json=args.json)


def _load(args: argparse.Namespace) -> Load:
    """Raises UsageError."""
    load = Load(args.entry_bytes, args.batch, args.seconds, args.entries, args.rate, args.in_flight)
    if load.batch_entries > MAX_BATCH_ENTRIES:
        raise UsageError(f"--batch {load.batch_entries} is too many: an append has {MAX_BATCH_ENTRIES} entries at most")
    if load.entry_bytes * load.batch_entries > MAX_ENTRY_BYTES:
        nbytes = load.entry_bytes * load.batch_entries
        raise UsageError(f"--batch times --entry-bytes is {nbytes} bytes: an append has {MAX_ENTRY_BYTES} at most")
    try:
        check_quorums(args.ensemble_size, args.write_quorum, args.ack_quorum)
    except ConfigError as problem:
        raise UsageError(str(problem)) from None
    return load


def _record(phase: BenchPhase) -> dict[str, object]:
    """One line of the report. The phase that reads all entries has no latencies: it is one call."""
    rates = {"entries_per_s": phase.entries / phase.seconds, "mb_per_s": phase.nbytes / phase.seconds / 1e6}
    quantiles = phase.latencies.milliseconds((0.5, 0.99, 0.999))
    return {
        "phase": phase.name,
        "entries": phase.entries,
        "bytes": phase.nbytes,
        "seconds": round(phase.seconds, 3),
        **{name: float(f"{value:.4g}") for name, value in rates.items()},
        **dict(zip(("p50_ms", "p99_ms", "p999_ms"), quantiles, strict=True)),
    }


def _measure(client: BookKeeper, writer: WriteHandle, load: Load, tell: Progress) -> list[BenchPhase]:
    with writer:
        written = _write(writer, load, tell)
    with client.open_ledger(writer.ledger_id, recover=False) as reader:
        return [written, _read_all(reader, written, tell), _read_singly(reader, written.entries, load.seconds, tell)]


def _write(writer: WriteHandle, load: Load, tell: Progress) -> BenchPhase:
    """Append the load and wait for the last confirmation. Raises what ended the writer.

    A latency is counted from the call of the append. With a rate it is counted from when the append was due: where a cluster
    stands still for a second, every append that was due in that second shows it.
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
    """A callback that counts one latency. All callbacks run on the client's event loop, one after the other."""
    begun_s = time.monotonic() if due_s is None else due_s

    def confirmed(_: Future[Any]) -> None:
        phase.latencies.add(time.monotonic() - begun_s)
        room.release()

    return confirmed


def _appends(load: Load, start_s: float, tell: Progress) -> Iterator[tuple[float | None, pa.BinaryArray]]:
    """When each append is due (None: at once) and its payloads. Waits until it is due; gives at least one append."""
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
    """How much of the load is done: in entries where their number ends it first, else in seconds."""
    if load.entries is not None and appended / load.entries >= passed_s / load.seconds:
        return appended, load.entries
    return int(passed_s), int(load.seconds)


def _read_all(reader: ReadHandle, written: BenchPhase, tell: Progress) -> BenchPhase:
    """Read all entries, in order. Raises CorruptionError where they are not what was written."""
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


def _read_singly(reader: ReadHandle, entries: int, seconds: float, tell: Progress) -> BenchPhase:
    """Read single entries from all over the ledger, one after the other, for ``seconds`` at most."""
    phase, start_s, chance = BenchPhase("read one"), time.monotonic(), random.Random(SEED)
    total = min(entries, SINGLE_READS)
    for _ in range(total):
        begun_s = time.monotonic()
        if begun_s - start_s > seconds:
            break
        entry_id = chance.randrange(entries)
        phase.nbytes += sum(int(payload_sizes(batch.column("payload")).sum()) for batch in reader.read(entry_id, entry_id))
        phase.latencies.add(time.monotonic() - begun_s)
        phase.entries += 1
        tell("read one", phase.entries, total)
    phase.seconds = time.monotonic() - start_s
    return phase
