"""``python -m tests.soak.tiers.outgrown --times 10``: a log becomes so many times as large as the disks of its bookies.

Each bookie has a small disk of its own, and a copy of everything that is written. ``tier serve`` moves the rows into the tier
meanwhile, and the bookies' garbage collection frees the space. In the end every row is read, from the log and from the table,
and held against what was written. Prints what is used of each disk before, at most, and after it. Exits with 1 for a finding.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from bk_spark import BookKeeper, LocalCluster, Tier
from bk_spark.config import MIB, BookieConfig
from bk_spark.errors import BookKeeperError
from bk_spark.log.log_handle import Log
from tests.checkout import ROOT

LOG, BOOKIES = "outgrown", 3
ROW_BYTES, APPENDED_ROWS = 1000, 4000
"""An append is one ledger of 4 MB: as much as an entry log file."""
CONFIG = BookieConfig(
    write_cache_bytes=MIB,
    sync_queue_bytes=MIB,
    checkpoint_bytes=4 * MIB,
    journal_file_bytes=2 * MIB,
    entry_log_file_bytes=4 * MIB,
    disk_check_s=0.2,
    gc_interval_s=1.0,
    minor_compaction_interval_s=10.0,
)
"""Files as small as the disks. Of each disk 48 MiB are the bookie's reserve."""
EMPTY_SHARE = 0.25
"""Of a disk, that is used at most once everything is in the tier: journals, the index, and a compaction that is yet to come."""
STUCK_S = 300.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.tiers.outgrown", description=__doc__)
    parser.add_argument("--times", type=float, default=10.0, metavar="N", help="default %(default)s")
    parser.add_argument("--disk-mib", type=int, default=128, metavar="N", help="of each bookie (default %(default)s)")
    args = parser.parse_args()
    if os.geteuid():
        print("a small disk is a file system of its own, and only root may mount one")
        return 0
    with tempfile.TemporaryDirectory(prefix="outgrown-") as folder:
        found = run(Path(folder), args.disk_mib * MIB, round(args.times * args.disk_mib * MIB / ROW_BYTES / APPENDED_ROWS))
    for one in found:
        print(f"DIFFERS {one}")
    print(f"differences: {len(found)}")
    return 1 if found else 0


def run(folder: Path, disk_bytes: int, appends: int) -> list[str]:
    """What was found."""
    with ExitStack() as stack:
        disks = [folder / "cluster" / f"bookie-{number}" for number in range(1, BOOKIES + 1)]
        for disk in disks:
            stack.enter_context(small_disk(disk, disk_bytes))
        cluster = stack.enter_context(LocalCluster(BOOKIES, folder / "cluster", bookie_config=CONFIG))
        client = stack.enter_context(BookKeeper(cluster.metadata_uri))
        watch = stack.enter_context(Watch(disks))
        client.append_rows(LOG, rows(0), create=True)
        log = client.open_log(LOG)
        log.set_tier(Tier(f"file://{folder}/lake", "soak.outgrown", tier_after_s=1, keep_on_bookies_s=0))
        served = stack.enter_context(tier_served(cluster.metadata_uri, folder))
        append(log, appends, served)
        findings = await_released(client, log, watch, disk_bytes)
        findings += [f"tier serve ended by itself ({served.returncode})"] if served.poll() is not None else []
        watch.tell()
        findings += compared("the log", log.read_rows(), appends)
        findings += compared("the table", table_rows(folder), appends)
        count = appends * APPENDED_ROWS
        print(f"{count:,} rows, {count * ROW_BYTES / MIB:,.0f} MiB, disks of {disk_bytes // MIB} MiB")
    return findings


@contextmanager
def small_disk(folder: Path, nbytes: int) -> Iterator[None]:
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Watch:
    """How much of some disks is used: at first, at most, and now."""

    def __init__(self, disks: list[Path]) -> None:
        self._disks = disks
        self._first, self._most = self.used(), self.used()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def used(self) -> list[int]:
        found = [os.statvfs(disk) for disk in self._disks]
        return [(one.f_blocks - one.f_bfree) * one.f_frsize for one in found]

    def tell(self) -> None:
        for disk, first, most, now in zip(self._disks, self._first, self._most, self.used(), strict=True):
            print(f"{disk.name}: {first / MIB:.1f} MiB before, {most / MIB:.1f} at most, {now / MIB:.1f} now", flush=True)

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self._most = [max(pair) for pair in zip(self._most, self.used(), strict=True)]


@contextmanager
def tier_served(uri: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "bk_spark.cli", "tier", "serve", "--interval-s", "1", "--metadata", uri]
    with (folder / "serve.log").open("wb") as told, subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=told) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)
            for line in (folder / "serve.log").read_text().splitlines():
                if " INFO " not in line:
                    print(f"tier serve: {line}", flush=True)


def append(log: Log, appends: int, served: subprocess.Popen[bytes]) -> None:
    """All but the first. While the disks are full it waits, as a writer has to."""
    began = time.monotonic()
    waits = 0
    for number in range(1, appends):
        until = time.monotonic() + STUCK_S
        while True:
            try:
                log.append_rows(rows(number), application=("outgrown", number))
                break
            except BookKeeperError as problem:
                waits += 1
                if time.monotonic() > until or served.poll() is not None:
                    raise
                if waits < 5:
                    print(f"append {number}: {type(problem).__name__}: {problem}", flush=True)
                time.sleep(0.5)  # a pace, not a wait for anything
    print(f"{appends} appends in {time.monotonic() - began:.0f} s; {waits} were refused while disks were full", flush=True)


def await_released(client: BookKeeper, log: Log, watch: Watch, disk_bytes: int) -> list[str]:
    """Until no ledger is on bookies, and their disks have space."""
    ids = [one.ledger_id for one in log.ledgers()]
    if not _comes(lambda: not client.existing_ledgers(ids)):
        return [f"{len(client.existing_ledgers(ids))} of {len(ids)} ledgers are on bookies after {STUCK_S:g} s"]
    if not _comes(lambda: max(watch.used()) <= EMPTY_SHARE * disk_bytes):
        return [f"no ledger is on bookies, and {max(watch.used()) / MIB:.1f} MiB of a disk are used after {STUCK_S:g} s"]
    return []


def _comes(is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + STUCK_S
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def rows(number: int) -> pa.Table:
    """Of one append: no compression makes them smaller."""
    draw = np.random.default_rng(number)
    ids = np.arange(number * APPENDED_ROWS, (number + 1) * APPENDED_ROWS)
    ends = np.arange(APPENDED_ROWS + 1, dtype=np.int32) * ROW_BYTES
    filling = pa.Array.from_buffers(
        pa.binary(), APPENDED_ROWS, [None, pa.py_buffer(ends), pa.py_buffer(draw.bytes(APPENDED_ROWS * ROW_BYTES))]
    )
    return pa.table({"id": ids, "filling": filling})


def table_rows(folder: Path) -> Iterator[pa.RecordBatch]:
    """Sorted: an Iceberg table has no order of its own. It is read an append at a time, so that it fits into memory."""
    table = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/lake/_catalog.db").load_table("soak.outgrown")
    first = 0
    while True:
        found = table.scan(f"id >= {first} and id < {first + 20 * APPENDED_ROWS}", selected_fields=("id", "filling")).to_arrow()
        if not found.num_rows:
            return
        yield from found.sort_by("id").to_batches()
        first += 20 * APPENDED_ROWS


def compared(what: str, found: Iterator[pa.RecordBatch] | pa.RecordBatchReader, appends: int) -> list[str]:
    """Row by row, in order."""
    behind = 0
    for batch in found:
        for start, part in _parts(batch, behind):
            number = start // APPENDED_ROWS
            if number >= appends:
                return [f"{what} has more than {appends * APPENDED_ROWS} rows"]
            expected = rows(number).slice(start % APPENDED_ROWS, part.num_rows)
            if not all(
                pa.chunked_array([part.column(name)]).cast(expected.column(name).type).equals(expected.column(name))
                for name in expected.schema.names
            ):
                return [f"{what} has other rows than were written between {start} and {start + part.num_rows}"]
        behind += batch.num_rows
    return [f"{what} has {behind} rows in place of {appends * APPENDED_ROWS}"] if behind != appends * APPENDED_ROWS else []


def _parts(batch: pa.RecordBatch, first: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of one append each, with the number of the first."""
    at = 0
    while at < batch.num_rows:
        count = min(batch.num_rows - at, APPENDED_ROWS - (first + at) % APPENDED_ROWS)
        yield first + at, batch.slice(at, count)
        at += count


if __name__ == "__main__":
    sys.exit(main())
