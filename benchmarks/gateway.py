"""What does the way through a gateway cost, and how much memory does a gateway hold?

10 million rows (5 columns, 60 bytes a row) are appended to a log in 20 commits, and read as a whole, on a local cluster of
three bookies. In turns by ``log.append_rows`` and ``log.read_rows`` (*direct*), and through ``bk-spark gateway`` by pyarrow's
Flight client (*python*), Arrow's in Java (*java*) and arrow-go (*go*). Each is a process of its own, on the same two cores as
bookies and gateway. Rows a second count from the first call to the last answer; the rows are made before.

Then all that each has appended is read and compared with the rows as they were made: without a gateway, and what was appended
directly by each client. Java and Go are left out, and named, where they are not to be had; ``--all`` makes that an error.

Last, 50 readers and 20 continuous writers work at a gateway of their own for a while, half of the readers slowly: the most
memory that its process held is told, beside what it held before and what its parts may take (``crowd_bound``); what a run has
shown stands in docs/benchmarks-notes.md.

    python benchmarks/gateway.py [--small] [--rounds N] [--crowd-s S] [--all] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow.flight as flight

from benchmarks.gateway_clients.in_python import by_gateway, directly, ticket
from benchmarks.gateway_clients.programs import in_go, in_java
from benchmarks.gateway_clients.rows import made
from benchmarks.speed.measure import SkippedError
from benchmarks.speed.processes import SPAWN
from bk_spark import LocalCluster
from bk_spark.commands.gateway import READ_BYTES
from bk_spark.config import MIB
from bk_spark.gateway.calls.reads import AHEAD_BYTES, SIDE_BY_SIDE_READS

ROWS, SMALL_ROWS = 10_000_000, 100_000
COMMITS = 20
DIRECT, PYTHON, JAVA, GO = "direct", "python", "java", "go"
WHAT = ("append", "read")
WANTED = 0.6
"""Of direct: what the gateway shall reach in Python."""
READERS, WRITERS, CROWD_S = 50, 20, 120.0
ENTRY_MIB = 4
"""65,536 rows of 60 bytes, the most of one entry."""
LOOKS = 10
"""At the memory, while the crowd works: whether it still grows at the end."""
BEGUN_S = 120.0
"""Until each reader and writer has had an answer; the time of the crowd begins then."""
SLOW_S = 0.2
"""Between two batches of a slow reader."""

Client = Callable[[str, str, str, str, int, int], float]


@dataclass
class Figures:
    """What ``--json`` writes."""

    rows: int
    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Client → append and read → rows/s of each round."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Client → why."""
    compared: list[str] = field(default_factory=list)
    one_caller_mib: int = 0
    idle_mib: int = 0
    crowd_mib: int = 0
    crowd_over_time_mib: list[int] = field(default_factory=list)
    crowd_bound_mib: int = 0
    crowd_answers: dict[str, int] = field(default_factory=dict)
    """Batches that readers and writers had."""

    def ratios(self, client: str, what: str) -> list[float]:
        """Of direct, round by round."""
        return [ours / direct for ours, direct in zip(self.rates[client][what], self.rates[DIRECT][what], strict=True)]


@contextmanager
def gateway(uri: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and its address."""
    command = [sys.executable, "-m", "bk_spark.cli", "gateway", "--metadata", uri, "--open", "--port", "0", "--json"]
    with subprocess.Popen([*command, "--max-calls-per-identity", "128"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, str(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()


def clients(directory: Path, figures: Figures, *, all_of_them: bool) -> dict[str, Client]:
    found: dict[str, Client] = {DIRECT: directly, PYTHON: by_gateway}
    for name, build in ((JAVA, in_java), (GO, in_go)):
        try:
            (directory / name).mkdir()
            found[name] = build(directory / name)
        except SkippedError as reason:
            if all_of_them:
                raise SystemExit(f"{name} is not to be had: {reason}") from None
            figures.skipped[name] = str(reason)
            print(f"{name} is left out: {reason}")
    return found


def measure(figures: Figures, found: dict[str, Client], uri: str, address: str, rounds: int) -> None:
    figures.rates = {name: {what: [] for what in WHAT} for name in found}
    for number in range(rounds):
        for name in sorted(found, reverse=number % 2 == 1):
            for what in WHAT:
                seconds = alone(found[name], uri, address, what, f"{name}-{number}", figures.rows)
                figures.rates[name][what].append(figures.rows / seconds)
                print(f"round {number} {name} {what}: {figures.rows / seconds:,.0f} rows/s", flush=True)


def alone(client: Client, uri: str, address: str, what: str, log: str, rows: int) -> float:
    """In a process of its own."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as worker:
        return worker.submit(client, uri, address, what, log, rows, COMMITS).result()


def compare(figures: Figures, found: dict[str, Client], uri: str, address: str) -> None:
    """Every value. Raises SystemExit where one is another."""
    pairs = [(DIRECT, writer) for writer in found] + [(reader, DIRECT) for reader in found if reader != DIRECT]
    for reader, writer in pairs:
        alone(found[reader], uri, address, "check", f"{writer}-0", figures.rows)
        figures.compared.append(f"{writer} wrote, {reader} read")
        print(f"equal: {figures.rows:,} rows that {writer} wrote and {reader} read", flush=True)


class Crowd:
    """Readers and continuous writers of one gateway."""

    def __init__(self, address: str, log: str) -> None:
        self._address = address
        self._log = log
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._served: set[tuple[str, int]] = set()
        """Readers and writers that had an answer."""
        self.answers = {"read": 0, "written": 0}
        self.held_mib: list[int] = []
        """By the gateway's process, in equal steps of the time."""
        self.problems: list[BaseException] = []

    def work(self, process: subprocess.Popen[str], seconds: float) -> None:
        threads = [threading.Thread(target=self._guarded, args=(self._read, number)) for number in range(READERS)]
        threads += [threading.Thread(target=self._guarded, args=(self._write, number)) for number in range(WRITERS)]
        for one in threads:
            one.start()
        until_s = time.monotonic() + BEGUN_S
        while len(self._served) < len(threads) and not self.problems and time.monotonic() < until_s:
            time.sleep(0.05)
        for _ in range(LOOKS):
            time.sleep(seconds / LOOKS)
            self.held_mib.append(held_mib(process, "VmRSS"))
        self._over.set()
        for one in threads:
            one.join()

    def _guarded(self, work: Callable[[flight.FlightClient, int], None], number: int) -> None:
        try:
            with flight.connect(self._address, generic_options=[("grpc.use_local_subchannel_pool", 1)]) as caller:
                work(caller, number)
        except BaseException as problem:
            self.problems.append(problem)

    def _read(self, caller: flight.FlightClient, number: int) -> None:
        while not self._over.is_set():
            stream = caller.do_get(ticket(self._log))
            for _ in stream:
                self._count("read", number)
                if self._over.wait(SLOW_S if number % 2 else 0):
                    stream.cancel()
                    break

    def _write(self, caller: flight.FlightClient, number: int) -> None:
        log, rows = f"crowd-{number}", made(0, 1000)
        list(caller.do_action(flight.Action("create", json.dumps({"log": log}).encode())))
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"log": log, "continuous": True}).encode())
        stream, answers = caller.do_put(descriptor, rows.schema)
        with stream:
            while not self._over.is_set():
                stream.write_table(rows)
                answers.read()
                self._count("written", number)
            stream.done_writing()

    def _count(self, what: str, number: int) -> None:
        with self._lock:
            self.answers[what] += 1
            self._served.add((what, number))


def crowd_bound(idle_mib: int) -> int:
    """In MiB: what a gateway may hold with this crowd, by its parts.

    Each thread that reads has what it asked bookies for, with an entry beyond it, and ENTRY_MIB of rows four times: unpacked,
    cut, as a message, and in gRPC. A read has such a thread; the first ones have three, and AHEAD_BYTES of rows. A writer has a
    message that waits, one that is appended, and what its ledger sends.
    """
    thread = 2 * READ_BYTES // MIB + 4 * ENTRY_MIB
    first = AHEAD_BYTES // MIB + 3 * thread
    return idle_mib + SIDE_BY_SIDE_READS * first + (READERS - SIDE_BY_SIDE_READS) * thread + WRITERS * ENTRY_MIB


def held_mib(process: subprocess.Popen[str], what: str) -> int:
    """``VmHWM``: the most memory that the process has held; ``VmRSS``: what it holds now."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) // 1024


def report(figures: Figures) -> None:
    print(f"\n{'':10}{'append rows/s':>15}{'of direct':>22}{'read rows/s':>15}{'of direct':>22}")
    for name, rates in figures.rates.items():
        columns = []
        for what in WHAT:
            ratios = figures.ratios(name, what)
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            columns += [f"{statistics.median(rates[what]):>15,.0f}", f"{spread:>22}"]
        print(f"{name:10}{''.join(columns)}")
    worst = min(statistics.median(figures.ratios(PYTHON, what)) for what in WHAT)
    print(f"python reaches {worst:.2f} of direct at least; wanted are {WANTED}: {'yes' if worst >= WANTED else 'NO'}")
    print(f"gateway: {figures.one_caller_mib} MiB at most, with one caller at a time")
    crowd = f"{READERS} readers and {WRITERS} writers ({figures.crowd_answers})"
    is_held = "yes" if figures.crowd_mib <= figures.crowd_bound_mib else "NO"
    print(f"gateway: {figures.crowd_mib} MiB at most, with {crowd}; {figures.idle_mib} idle")
    print(f"over the time: {', '.join(map(str, figures.crowd_over_time_mib))} MiB")
    print(f"bound: {figures.crowd_bound_mib} MiB: {is_held}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one round of few rows: shows that it runs")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default %(default)s")
    text = "how long readers and writers crowd the gateway; default %(default)s"
    parser.add_argument("--crowd-s", type=float, default=CROWD_S, metavar="S", help=text)
    parser.add_argument("--all", action="store_true", help="an error where Java or Go are not to be had")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures there, too")
    args = parser.parse_args()
    rows, rounds, crowd_s = (SMALL_ROWS, 1, 2.0) if args.small else (ROWS, args.rounds, args.crowd_s)
    figures = Figures(rows)
    with LocalCluster(bookies=3) as cluster, tempfile.TemporaryDirectory(prefix="gateway-") as directory:
        found = clients(Path(directory), figures, all_of_them=args.all)
        with gateway(cluster.metadata_uri) as (process, address):
            measure(figures, found, cluster.metadata_uri, address, rounds)
            figures.one_caller_mib = held_mib(process, "VmHWM")
            compare(figures, found, cluster.metadata_uri, address)
        with gateway(cluster.metadata_uri) as (process, address):
            figures.idle_mib = held_mib(process, "VmRSS")
            crowd = Crowd(address, f"{DIRECT}-0")
            crowd.work(process, crowd_s)
            figures.crowd_mib, figures.crowd_bound_mib = held_mib(process, "VmHWM"), crowd_bound(figures.idle_mib)
            figures.crowd_answers, figures.crowd_over_time_mib = crowd.answers, crowd.held_mib
    report(figures)
    if args.json:
        args.json.write_text(json.dumps(asdict(figures), indent=1))
    for problem in crowd.problems[:5]:
        print(f"of the crowd failed: {type(problem).__name__} {problem}")
    return 1 if crowd.problems or figures.crowd_mib > figures.crowd_bound_mib else 0


if __name__ == "__main__":
    sys.exit(main())
