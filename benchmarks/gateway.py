"""What does the way through a gateway cost?

10 million rows (5 columns, 60 bytes a row) are appended to a log in 20 commits, and read as a whole, on a local cluster of
three bookies: in turns by ``log.append_rows`` and ``log.read_rows``, and by pyarrow's Flight client through ``bk-spark
gateway``. Each is done in a process of its own, on the same two cores as bookies and gateway. Rows a second count from the
first call to the last answer.

Then 50 readers and 20 continuous writers work at one gateway for a while, half of the readers slowly: the most memory that the
gateway's process held is told.

    python benchmarks/gateway.py [--small] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight

from benchmarks.rows_without_spark import table
from benchmarks.speed.processes import SPAWN
from bk_spark import BookKeeper, LocalCluster

ROWS, SMALL_ROWS = 10_000_000, 100_000
COMMITS = 20
READERS, WRITERS, CROWD_S = 50, 20, 30.0
SLOW_S = 0.2
"""Between two batches of a slow reader."""
BATCH_ROWS = 65_536


def parts(rows: int) -> Iterator[pa.Table]:
    return (table(first, rows // COMMITS) for first in range(0, rows, rows // COMMITS))


def append_directly(uri: str, _: int, log: str, rows: int) -> float:
    with BookKeeper(uri) as bookkeeper:
        opened, given = bookkeeper.open_log(log, create=True), list(parts(rows))
        began_s = time.perf_counter()
        for part in given:
            opened.append_rows(part)
        return time.perf_counter() - began_s


def append_by_gateway(_: str, port: int, log: str, rows: int) -> float:
    with flight.connect(f"grpc://127.0.0.1:{port}") as caller:
        given = list(parts(rows))
        began_s = time.perf_counter()
        for part in given:
            put(caller, part, log=log, create=True, rows=part.num_rows)
        return time.perf_counter() - began_s


def read_directly(uri: str, _: int, log: str, rows: int) -> float:
    with BookKeeper(uri) as bookkeeper:
        began_s = time.perf_counter()
        check(rows, sum(batch.num_rows for batch in bookkeeper.open_log(log).read_rows()))
        return time.perf_counter() - began_s


def read_by_gateway(_: str, port: int, log: str, rows: int) -> float:
    with flight.connect(f"grpc://127.0.0.1:{port}") as caller:
        began_s = time.perf_counter()
        check(rows, sum(chunk.data.num_rows for chunk in caller.do_get(ticket(log))))
        return time.perf_counter() - began_s


WAYS: dict[str, tuple[Callable[[str, int, str, int], float], ...]] = {
    "direct": (append_directly, read_directly),
    "gateway": (append_by_gateway, read_by_gateway),
}


def check(wanted: int, found: int) -> None:
    if wanted != found:
        raise SystemExit(f"{found} rows came of {wanted}")


def ticket(log: str) -> flight.Ticket:
    return flight.Ticket(json.dumps({"log": log}).encode())


def put(caller: flight.FlightClient, given: pa.Table, /, **fields: object) -> None:
    writer, answers = caller.do_put(flight.FlightDescriptor.for_command(json.dumps(fields).encode()), given.schema)
    with writer:
        writer.write_table(given, max_chunksize=BATCH_ROWS)
        writer.done_writing()
        answers.read()


@contextmanager
def gateway(uri: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and its port."""
    command = [sys.executable, "-m", "bk_spark.cli", "gateway", "--metadata", uri, "--open", "--port", "0", "--json"]
    with subprocess.Popen([*command, "--max-calls-per-identity", "128"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        finally:
            process.terminate()


def crowd(port: int, log: str, seconds: float) -> None:
    """Readers and writers of one gateway, until the time is over."""
    over = threading.Event()

    def reader(number: int) -> None:
        with flight.connect(f"grpc://127.0.0.1:{port}") as caller:
            while not over.is_set():
                for _ in caller.do_get(ticket(log)):
                    if over.wait(SLOW_S if number % 2 else 0):
                        break

    def writer(number: int) -> None:
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"log": f"crowd-{number}", "continuous": True}).encode())
        rows = table(0, 1000)
        with flight.connect(f"grpc://127.0.0.1:{port}") as caller:
            list(caller.do_action(flight.Action("create", json.dumps({"log": f"crowd-{number}"}).encode())))
            stream, answers = caller.do_put(descriptor, rows.schema)
            with stream:
                while not over.is_set():
                    stream.write_table(rows)
                    answers.read()

    threads = [threading.Thread(target=reader, args=(number,)) for number in range(READERS)]
    threads += [threading.Thread(target=writer, args=(number,)) for number in range(WRITERS)]
    for one in threads:
        one.start()
    time.sleep(seconds)
    over.set()
    for one in threads:
        one.join()


def peak_mib(process: subprocess.Popen[str]) -> int:
    """The most memory that the process has held."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one round of few rows: shows that it runs")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default %(default)s")
    args = parser.parse_args()
    rows, rounds, crowd_s = (SMALL_ROWS, 1, 2.0) if args.small else (ROWS, args.rounds, CROWD_S)
    rates: dict[tuple[str, str], list[float]] = {(way, what): [] for way in WAYS for what in ("append", "read")}
    with LocalCluster(bookies=3) as cluster, gateway(cluster.metadata_uri) as (process, port):
        for number in range(rounds):
            for way in sorted(WAYS, reverse=number % 2 == 1):
                log = f"{way}-{number}"
                with ProcessPoolExecutor(1, mp_context=SPAWN) as worker:
                    for what, call in zip(("append", "read"), WAYS[way], strict=True):
                        seconds = worker.submit(call, cluster.metadata_uri, port, log, rows).result()
                        rates[way, what].append(rows / seconds)
                        print(f"round {number} {way} {what}: {rows / seconds:,.0f} rows/s", flush=True)
        print(f"gateway: {peak_mib(process)} MiB at most, with one caller")
        crowd(port, "direct-0", crowd_s)
        print(f"gateway: {peak_mib(process)} MiB at most, with {READERS} readers and {WRITERS} writers")
    for what in ("append", "read"):
        ratios = [ours / direct for ours, direct in zip(rates["gateway", what], rates["direct", what], strict=True)]
        median = statistics.median(rates["gateway", what])
        print(
            f"{what}: {median:,.0f} rows/s, {statistics.median(ratios):.2f} of direct ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
