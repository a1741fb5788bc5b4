"""Far more writers than two cores can serve: what they are told, how long they wait, and whether what was confirmed is there.

Three bookies, and client processes that have one client for each writer, so that each writer has connections of its own to
every bookie. Each writer appends to a ledger with 3 / 3 / 2 and keeps some appends under way. A writer that fails is counted
by its error, and begins another ledger. At the end every ledger is recovered and read.

    python benchmarks/overload.py [--small] [--writers 200] [--processes 10] [--seconds 600]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.errors import BookieUnavailableError, BookKeeperError
from bk_spark.local.cluster import LocalCluster

BOOKIES = 3
SHAPE = 3, 3, 2
PATIENCE_S = 60.0
"""Longer than every timeout of a writer: an append that takes longer hangs."""

LOOK_S = 1.0
"""Between two counts of the connections."""

ESTABLISHED = "01"
"""Ref: linux/net/tcp_states.h."""


@dataclass(frozen=True, slots=True)
class Load:
    payload: bytes
    under_way: int


@dataclass(slots=True)
class Tally:
    """What the writers of one process saw."""

    waits_s: list[float] = field(default_factory=list)
    """From each append to its confirmation."""
    confirmed: dict[int, int] = field(default_factory=dict)
    """Ledger → entries."""
    errors: Counter[str] = field(default_factory=Counter)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="10 writers for 3 seconds")
    parser.add_argument("--writers", type=int, default=200, help="default %(default)s")
    parser.add_argument("--processes", type=int, default=10, help="that they are shared out over (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=600.0, help="default %(default)s")
    parser.add_argument("--bytes", type=int, default=1024, help="of an entry (default %(default)s)")
    parser.add_argument("--under-way", type=int, default=8, help="appends of one writer (default %(default)s)")
    parser.add_argument("--of", nargs=2, metavar=("URI", "WRITERS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.of is not None:
        print(json.dumps(written(args.of[0], int(args.of[1]), args.seconds, Load(bytes(args.bytes), args.under_way))))
        return 0
    writers, processes, seconds = (10, 2, 3.0) if args.small else (args.writers, args.processes, args.seconds)
    with tempfile.TemporaryDirectory() as directory, LocalCluster(BOOKIES, Path(directory)) as cluster:
        load = ["--seconds", str(seconds), "--bytes", str(args.bytes), "--under-way", str(args.under_way)]
        print(f"{writers} writers of {args.bytes:,} B, {args.under_way} under way each, for {seconds:g} s", flush=True)
        print(report(cluster, writers, processes, load), flush=True)
    return 0


def report(cluster: LocalCluster, writers: int, processes: int, load: list[str]) -> str:
    command = [sys.executable, __file__, *load, "--of", cluster.metadata_uri, str(writers // processes)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    with ThreadPoolExecutor(processes) as threads:
        outputs = [threads.submit(process.communicate) for process in running]
        most = 0
        while any(process.poll() is None for process in running):
            most = max(most, connections(bookie.pid for bookie in cluster.bookies))
            time.sleep(LOOK_S)
        tallies = [json.loads(output.result()[0]) for output in outputs]
    waits_s = np.concatenate([np.array(one["waits_s"]) for one in tallies])
    errors = sum((Counter(one["errors"]) for one in tallies), Counter[str]())
    confirmed = {int(ledger): count for one in tallies for ledger, count in one["confirmed"].items()}
    lost = missing(cluster.metadata_uri, confirmed)
    p50, p99, longest = np.percentile(waits_s, [50, 99, 100]) * 1000 if len(waits_s) else (0.0, 0.0, 0.0)
    named = ", ".join(f"{name} {count}" for name, count in errors.most_common()) or "none"
    return (
        f"{most:,} connections: errors {named}; "
        f"confirmed {sum(confirmed.values()):,} entries, lost {lost}; "
        f"an append takes {p50:,.0f} ms at the median, {p99:,.0f} at the 99th percentile, {longest:,.0f} at most"
    )


def connections(pids: Iterable[int | None]) -> int:
    """Connections that these processes have: those of their clients, and a few to ZooKeeper."""
    tables = [Path(table).read_text().splitlines()[1:] for table in ("/proc/net/tcp", "/proc/net/tcp6")]
    fields = [line.split() for table in tables for line in table]
    established = {f"socket:[{line[9]}]" for line in fields if line[3] == ESTABLISHED}
    return sum(opened(link) in established for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir())


def opened(link: Path) -> str:
    """What a descriptor stands for; "" if it was closed since it was listed."""
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""


def missing(uri: str, confirmed: dict[int, int]) -> int:
    """How many confirmed entries a reader does not get."""
    lost = 0
    with BookKeeper(uri) as client:
        for ledger_id, count in confirmed.items():
            with client.open_ledger(ledger_id, recover=True) as reader:
                last = reader.last_add_confirmed
                found = sum(batch.num_rows for batch in reader.read(0, last)) if last >= 0 else 0
            lost += max(0, count - found)
    return lost


def written(uri: str, writers: int, seconds: float, load: Load) -> dict[str, Any]:
    """One process: its writers, each with a client of its own."""
    end_s, tally, lock = time.monotonic() + seconds, Tally(), threading.Lock()
    with ThreadPoolExecutor(writers) as threads:
        for done in [threads.submit(one_writer, uri, end_s, load, tally, lock) for _ in range(writers)]:
            done.result()
    return {"waits_s": tally.waits_s, "errors": tally.errors, "confirmed": tally.confirmed}


def one_writer(uri: str, end_s: float, load: Load, tally: Tally, lock: threading.Lock) -> None:
    with BookKeeper(uri) as client:
        while time.monotonic() < end_s:
            doing = "creating a ledger"
            try:
                handle = client.create_ledger(*SHAPE)
                doing = "writing"
                one_ledger(client, handle, end_s, load, tally, lock)
            except BookKeeperError as problem:
                with lock:
                    tally.errors[f"{type(problem).__name__} while {doing}"] += 1


def one_ledger(client: BookKeeper, handle: WriteHandle, end_s: float, load: Load, tally: Tally, lock: threading.Lock) -> None:
    """Append until the end, or until an append fails."""
    with suppress(BookieUnavailableError), client.open_ledger(handle.ledger_id, recover=False) as reader:
        reader.read_last_add_confirmed()  # over gRPC: from here on the client has both of its connections to every bookie
    count, waits_s = 0, list[float]()
    under_way: list[tuple[float, Future[int]]] = []
    try:
        while under_way or time.monotonic() < end_s:
            while len(under_way) < load.under_way and time.monotonic() < end_s:
                under_way.append((time.monotonic(), handle.append_async(load.payload)))
            began_s, append = under_way.pop(0)
            append.result(PATIENCE_S)
            waits_s.append(time.monotonic() - began_s)
            count += 1
        handle.close()
    finally:
        with lock:
            tally.waits_s += waits_s
            tally.confirmed[handle.ledger_id] = count


if __name__ == "__main__":
    raise SystemExit(main())
