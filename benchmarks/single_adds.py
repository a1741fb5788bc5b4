"""What single adds leave behind: rows of the index, and bytes on disk for each entry.

The worst case: every entry comes by itself, as from an Apache client that waits for each, round robin over the ledgers, and
none is joined with others before it is stored. Checkpoints join them. Printed as the adds go on: rows and bytes of the index,
bytes of the entry logs, and both for each entry.

    python benchmarks/single_adds.py [--small] [--adds 1000000] [--ledgers 10] [--directory DIR]
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sqlite3
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.index.sqlite_index import INDEX_FILE
from bk_spark.config import BookieConfig
from bk_spark.entries.apache_entries import ApacheEntries, encode_apache
from bk_spark.entries.batch import binaries
from bk_spark.entries.digest import whole_key
from bk_spark.wire.messages import AddRequest, Status

BOOKIE_ID = "benchmark"
KEY = whole_key(bytes(20))
PAYLOAD = bytes(100)
SYNC_EVERY = 100
STEPS = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="10,000 adds")
    parser.add_argument("--adds", type=int, default=1_000_000, help="single adds (default %(default)s)")
    parser.add_argument("--ledgers", type=int, default=10, help="ledgers that they go to in turn (default %(default)s)")
    parser.add_argument("--directory", type=Path, help="where to put the bookie for a while (default: a temporary directory)")
    args = parser.parse_args()
    adds = 10_000 if args.small else args.adds
    print(f"python {platform.python_version()}, entries of {len(PAYLOAD)} B in {args.ledgers} ledgers")
    directory = Path(tempfile.mkdtemp(dir=args.directory))
    try:
        began_s = time.monotonic()
        for done in added(directory, adds, args.ledgers):
            print(f"{done:,} adds, {time.monotonic() - began_s:,.0f} s: {left_behind(directory, done)}", flush=True)
    finally:
        shutil.rmtree(directory)
    return 0


def added(directory: Path, adds: int, ledgers: int) -> Iterator[int]:
    """Yields how many adds are stored, with the bookie stopped."""
    for done in range(0, adds, adds // STEPS):
        bookie = Bookie.open(directory, BOOKIE_ID, BookieConfig())
        for number in range(done, done + adds // STEPS):
            bookie.stage(single_add(number % ledgers + 1, number // ledgers), None)
            if number % SYNC_EVERY == 0:
                check(bookie)
        check(bookie)
        bookie.close()
        yield done + adds // STEPS


def check(bookie: Bookie) -> None:
    refused = [reply for _, reply in bookie.sync() if reply.status is not Status.OK]
    if refused:
        raise AssertionError(f"an add was refused: {refused[0]}")


def single_add(ledger_id: int, entry_id: int) -> AddRequest:
    entry = struct.pack(">4qI", ledger_id, entry_id, entry_id - 1, (entry_id + 1) * len(PAYLOAD), 0) + PAYLOAD
    batch = encode_apache(ApacheEntries(ledger_id, np.array([entry_id]), binaries([entry])))
    return AddRequest(0, BOOKIE_ID, KEY, batch)


def left_behind(directory: Path, entries: int) -> str:
    index = directory / "index" / INDEX_FILE
    with sqlite3.connect(f"file:{index}?mode=ro", uri=True) as database:
        (rows,) = database.execute("SELECT count(*) FROM batches").fetchone()
    logs = sum(path.stat().st_size for path in directory.rglob("*.log"))
    size = index.stat().st_size
    per_entry = f"{size / entries:.2f} B of index and {logs / entries:.1f} B of logs for each entry"
    return f"{rows:,} rows in {size / 1e6:.1f} MB, entry logs {logs / 1e6:,.1f} MB; {per_entry}"


if __name__ == "__main__":
    raise SystemExit(main())
