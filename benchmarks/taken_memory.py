"""What it costs that appends take a copy of memory that their caller may change.

Three bookies on this machine. The same arrays of entries are appended with a copy of the payloads at the call, and with none
before they are encoded; the same rows through a row writer and in one commit, with the copy and without it. Both ways take
turns, because other work on the machine comes and goes, and what counts is the CPU time of the client, which is what bounds its
rate. The median ratio of the pairs of turns is printed, with the lowest and the highest.

    python benchmarks/taken_memory.py [--small] [--rounds 9]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from bk_spark import BookKeeper, LocalCluster
from bk_spark.client.ledger.write_items import CallPart
from bk_spark.log.rows import append_rows, row_form

SIZES = (100, 1_000, 100_000)
"""Bytes of an entry."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one round of 2 MB")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of turns (default %(default)s)")
    args = parser.parse_args()
    megabytes, rounds = (2, 1) if args.small else (48, args.rounds)
    print(f"python {platform.python_version()}, {megabytes} MB a turn, {rounds} pairs of turns")
    with LocalCluster(bookies=3) as cluster, BookKeeper(cluster.metadata_uri) as client:
        for size in SIZES:
            compare(f"entries of {size:,} B", entries(client, size, megabytes), rounds)
        compare("rows of a row writer", leader_rows(client, megabytes), rounds)
        compare("rows in one commit", committed_rows(client, megabytes), rounds)
    return 0


def compare(what: str, turn: Callable[[bool], None], rounds: int) -> None:
    turn(True)
    ratios = []
    for number in range(rounds):
        took = {is_copied: timed(turn, is_copied) for is_copied in ([True, False] if number % 2 else [False, True])}
        ratios.append(took[False] / took[True])
    print(
        f"{what}: rate with the copy {statistics.median(ratios):.3f} of that without ({min(ratios):.3f} to {max(ratios):.3f})"
    )


def timed(turn: Callable[[bool], None], is_copied: bool) -> float:
    began_s = time.process_time()
    turn(is_copied)
    return time.process_time() - began_s


def entries(client: BookKeeper, size: int, megabytes: int) -> Callable[[bool], None]:
    batch_bytes = 1_000_000
    array = pa.array([bytes(size)] * (batch_bytes // size), pa.binary())

    def turn(is_copied: bool) -> None:
        with _taken(is_copied), client.create_ledger() as writer:
            for appended in [writer.append_batch_async(array) for _ in range(megabytes)]:
                appended.result()

    return turn


def _taken(is_copied: bool) -> ExitStack:
    stack = ExitStack()
    if not is_copied:
        stack.enter_context(patch.object(CallPart, "take", _keep))
    return stack


def _keep(part: CallPart) -> None:
    """As ``CallPart.take``, in the memory of whoever called."""
    if part.source is not None:
        part._taken, part.source = part.source.array.slice(part.start, part.count), None


def _table(megabytes: int) -> pa.Table:
    count = megabytes * 1_000_000 // 16
    random = np.random.default_rng(1)
    return pa.table({"id": np.arange(count), "amount": random.integers(0, 100_000, count)})


def leader_rows(client: BookKeeper, megabytes: int) -> Callable[[bool], None]:
    log, table = client.open_log("led", create=True), _table(megabytes)

    def turn(is_copied: bool) -> None:
        with _copies(is_copied), log.open_row_writer(table.schema) as writer:
            for batch in table.to_batches(max_chunksize=20_000):
                writer.append_async(batch)

    return turn


def committed_rows(client: BookKeeper, megabytes: int) -> Callable[[bool], None]:
    log, table = client.open_log("committed", create=True), _table(megabytes)

    def turn(is_copied: bool) -> None:
        with _copies(is_copied):
            log.append_rows(table)

    return turn


def _copies(are_made: bool) -> ExitStack:
    stack = ExitStack()
    for module in () if are_made else (append_rows, row_form):
        stack.enter_context(patch.object(module, "in_own_memory", lambda batch: batch))
    return stack


if __name__ == "__main__":
    raise SystemExit(main())
