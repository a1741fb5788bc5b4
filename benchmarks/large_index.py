"""How soon can a bookie with a large index serve, and how much memory does it take? Generates an index and opens the bookie.

The index is written by its own commits, the bookie opened after a clean stop, and again after SIGKILL hit a process in the
middle of a commit that spans many ledgers. Files are dropped from the page cache before each opening. Printed: seconds to open;
then, in microseconds, medians of a look-up of one entry in a random ledger, of a proof that an entry is missing in it, and of a
proof that there is no such ledger; and the peak resident size of the process that did all that, beside what it had before.

    python benchmarks/large_index.py [--small] [--rows 20000000] [--ledgers 1000000] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.index.ledger_index import LedgerChange
from bk_spark.bookie.index.look_up import newest_holding
from bk_spark.bookie.index.sqlite_index import INDEX_FILE, open_index
from bk_spark.bookie.index.values import StoredBatch
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.config import BookieConfig, DigestType
from bk_spark.entries.batch import encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.quorum import DENSE
from bk_spark.wire.messages import AddRequest

BOOKIE_ID = "benchmark"
KEY = bytes(24)
LOG_ID = 1
COMMIT_ROWS = 200_000
ROW_IDS = 10
HOLE = 3
"""The row of each ledger that is left out: its ids are what is asked for in vain."""
QUESTIONS = 300
MIB = 1 << 20
KILL_DEADLINE_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="20,000 rows in 1,000 ledgers")
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows, one a batch (default %(default)s)")
    parser.add_argument("--ledgers", type=int, default=1_000_000, help="ledgers (default %(default)s)")
    parser.add_argument("--directory", type=Path, help="where to put the index for a while (default: a temporary directory)")
    parser.add_argument("--step", choices=["generate", "ask", "commit"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.small:
        args.rows, args.ledgers = 20_000, 1_000
    if args.step:
        {"generate": generate, "ask": ask, "commit": commit_much}[args.step](args.directory, args.rows, args.ledgers)
        return 0
    print(f"python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    directory = Path(tempfile.mkdtemp(dir=args.directory))
    try:
        measure(directory, args.rows, args.ledgers)
    finally:
        shutil.rmtree(directory)
    return 0


def measure(directory: Path, rows: int, ledgers: int) -> None:
    run("generate", directory, rows, ledgers)
    size_mib = (directory / "index" / INDEX_FILE).stat().st_size / MIB
    print(f"{rows:,} rows in {ledgers:,} ledgers: {size_mib:,.0f} MiB", flush=True)
    print("after a clean stop:", flush=True)
    forget_pages(directory)
    run("ask", directory, rows, ledgers)
    journal_mib = kill_in_commit(directory, rows, ledgers)
    print(f"after SIGKILL in a commit, with a rollback journal of {journal_mib:,.1f} MiB:", flush=True)
    forget_pages(directory)
    run("ask", directory, rows, ledgers)


def run(step: str, directory: Path, rows: int, ledgers: int) -> None:
    """In a process of its own, so that its memory is its own."""
    subprocess.run(command(step, directory, rows, ledgers), check=True)


def command(step: str, directory: Path, rows: int, ledgers: int) -> list[str]:
    numbers = ["--rows", str(rows), "--ledgers", str(ledgers)]
    return [sys.executable, __file__, "--step", step, "--directory", str(directory), *numbers]


def forget_pages(directory: Path) -> None:
    for path in (directory / "index").iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


# --- the steps, each in a process of its own


def generate(directory: Path, rows: int, ledgers: int) -> None:
    with_one_entry(directory)
    index = open_index(directory / "index", BOOKIE_ID, REAL_DISK, logs_exist=True)
    per_ledger = max(2, rows // ledgers)
    step = max(1, COMMIT_ROWS // per_ledger)
    started = time.monotonic()
    for first in range(1, ledgers + 1, step):
        changes = [ledger_change(one, per_ledger) for one in range(first, min(first + step, ledgers + 1))]
        index.commit(changes, replace(index.mark, next_sequence=(first + step) * per_ledger))
    index.close()
    print(f"generated in {time.monotonic() - started:.1f} s")


def with_one_entry(directory: Path) -> None:
    """A bookie that was stopped, with an entry log for all rows to point to."""
    bookie = Bookie.open(directory, BOOKIE_ID, BookieConfig(direct_add_bytes=1))
    sealed = seal(
        Digester(DigestType.CRC32C, b""), 0, 0, pa.array([b"one"], pa.binary()), length_before=0, last_add_confirmed=-1
    )
    batch = encode(sealed, DigestType.CRC32C, DENSE)
    assert batch is not None
    bookie.stage(AddRequest(1, BOOKIE_ID, master_key(b""), batch), None)
    bookie.sync()
    bookie.close()


def ledger_change(ledger_id: int, rows: int) -> LedgerChange:
    found = [row(ledger_id, number, ledger_id * rows + number) for number in range(rows + 1) if number != HOLE]
    return LedgerChange(ledger_id, KEY, 0, found)


def row(ledger_id: int, number: int, sequence: int) -> StoredBatch:
    first = number * ROW_IDS
    place = EntryLocation(LOG_ID, 4096 + sequence * 1_116, 1_116)
    return StoredBatch(ledger_id, first, first + ROW_IDS - 1, sequence, DENSE, sequence * 2_654_435_761 % (1 << 32), place)


def ask(directory: Path, rows: int, ledgers: int) -> None:
    before = peak_mib()
    started = time.monotonic()
    bookie = Bookie.open(directory, BOOKIE_ID, BookieConfig())
    opened = time.monotonic() - started
    storage = bookie.storage
    chosen = random.Random(1).choices(range(1, ledgers + 1), k=QUESTIONS)
    found = median_us(lambda one: found_there(storage, one), chosen)
    missing = median_us(lambda one: storage.verify_missing(one, HOLE * ROW_IDS + 5), chosen)
    no_ledger = median_us(lambda one: storage.verify_missing(ledgers + one), chosen)
    bookie.close()
    print(
        f"  opened in {opened:.2f} s; found {found:.0f} µs, entry missing {missing:.0f} µs, ledger missing {no_ledger:.0f} µs"
    )
    print(f"  peak resident size {peak_mib():.0f} MiB, {before:.0f} MiB of them before it was opened", flush=True)


def found_there(storage: LedgerStorage, ledger_id: int) -> None:
    assert newest_holding(storage.batches(ledger_id, 15, 15).overlapping(15, 15), 15) is not None


def median_us(call: Callable[[int], None], values: list[int]) -> float:
    def seconds() -> Iterator[float]:
        for value in values:
            started = time.perf_counter()
            call(value)
            yield time.perf_counter() - started

    return statistics.median(seconds()) * 1e6


def commit_much(directory: Path, rows: int, ledgers: int) -> None:
    """Changes pages all over the index, more than SQLite's cache holds; never ends by itself."""
    index = open_index(directory / "index", BOOKIE_ID, REAL_DISK, logs_exist=True)
    mark = replace(index.mark, next_sequence=index.mark.next_sequence + ledgers)

    def changes() -> Iterator[LedgerChange]:
        for ledger_id in range(1, ledgers + 1, max(1, ledgers // 20_000)):
            yield LedgerChange(ledger_id, KEY, 0, [row(ledger_id, rows, mark.next_sequence + ledger_id)])
        print("now", flush=True)
        time.sleep(KILL_DEADLINE_S)

    index.commit(changes(), mark)


def kill_in_commit(directory: Path, rows: int, ledgers: int) -> float:
    """The size of the rollback journal, in MiB, that the killed process left."""
    with subprocess.Popen(command("commit", directory, rows, ledgers), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    return (directory / "index" / f"{INDEX_FILE}-journal").stat().st_size / MIB


def peak_mib() -> float:
    """The largest resident size that this process ever had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1024


if __name__ == "__main__":
    sys.exit(main())
