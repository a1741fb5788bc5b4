"""Does a byte cost the same in 100 times the data? Time per byte and memory, at 1×, 10× and 100×, by the client and by Spark.

Each turn has a fresh cluster, so that none finds what another one left. What is written is read back whole.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from os import getpid
from pathlib import Path
from typing import TypeVar

from benchmarks.speed.measure import Claim, Result, Sample, Setting, alternate, claim, workload
from benchmarks.speed.payloads import incompressible
from benchmarks.speed.processes import peak_memory_mib, reset_peak_memory
from bk_spark import BookKeeper, LocalCluster
from bk_spark.config import MIB

T = TypeVar("T")

ENTRY_BYTES = 1024
PIECE_BYTES = 1 * MIB
"""Of one ``append_batch_async``."""
ONCE, SMALL_ONCE = 16 * MIB, 1 * MIB
"""1×: creating and closing the ledger takes some hundredths of the time."""
LEDGERS = 4
"""Of a turn at 1×, one after the other: a single one is over before the noise of the machine is."""
MULTIPLES, SMALL_MULTIPLES = (1, 10, 100), (1, 4)


def multiples(setting: Setting) -> Sequence[int]:
    return setting.choose(MULTIPLES, SMALL_MULTIPLES)


class ClientAtSize:
    """Ledgers of ``nbytes``, written and read back by the client without Spark."""

    def __init__(self, directory: Path, multiple: int, nbytes: int) -> None:
        self.name = f"{multiple}×, {nbytes // MIB:,} MiB"
        self._directory = directory
        self._pieces = nbytes // PIECE_BYTES
        self._warm_up = self._pieces // multiple
        self._ledgers = LEDGERS if multiple == 1 else 1
        self._payloads = incompressible(PIECE_BYTES // ENTRY_BYTES, ENTRY_BYTES, seed=1)

    def run(self, turn: int) -> Sample:
        path = self._directory / f"cluster-{turn}"
        try:
            with LocalCluster(bookies=3, data_dir=path) as cluster, BookKeeper(cluster.metadata_uri) as client:
                self._read(client, self._written(client, self._warm_up))
                return self._measured(cluster, client)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _measured(self, cluster: LocalCluster, client: BookKeeper) -> Sample:
        bookies = [bookie.pid for bookie in cluster.bookies if bookie.pid is not None]
        reset_peak_memory([*bookies, getpid()])
        write_s, ids = timed(lambda: [self._written(client, self._pieces) for _ in range(self._ledgers)])
        read_s, entries = timed(lambda: sum(self._read(client, ledger_id) for ledger_id in ids))
        nbytes = self._ledgers * self._pieces * PIECE_BYTES
        assert entries * ENTRY_BYTES == nbytes, f"{entries} entries were read, {nbytes // ENTRY_BYTES} written"
        figures = figures_of(nbytes, write_s, read_s)
        figures["client_peak_mib"] = peak_memory_mib([getpid()])
        figures["bookie_peak_mib"] = peak_memory_mib(bookies)
        return Sample(write_s + read_s, nbytes // ENTRY_BYTES, nbytes, figures)

    def _written(self, client: BookKeeper, pieces: int) -> int:
        with client.create_ledger() as writer:
            futures = [writer.append_batch_async(self._payloads) for _ in range(pieces)]
            for future in futures:
                future.result()
            return writer.ledger_id

    def _read(self, client: BookKeeper, ledger_id: int) -> int:
        with client.open_ledger(ledger_id) as handle:
            return sum(len(batch) for batch in handle.read(0, handle.last_add_confirmed))


def timed(action: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    result = action()
    return time.perf_counter() - started, result


def figures_of(nbytes: int, write_s: float, read_s: float) -> dict[str, float]:
    return {"write_s_per_gib": write_s / nbytes * 2**30, "read_s_per_gib": read_s / nbytes * 2**30}


def claims_of(samples: Mapping[str, Sequence[Sample]], who: str) -> list[Claim]:
    """The largest against the smallest."""
    names = list(samples)
    return [
        claim(
            f"{who}: time per byte {way}, {names[-1]} against {names[0]}",
            [one.figures[figure] for one in samples[names[-1]]],
            [one.figures[figure] for one in samples[names[0]]],
            1.1,
            at_least=False,
        )
        for way, figure in (("written", "write_s_per_gib"), ("read", "read_s_per_gib"))
    ]


@workload("scale_bytes_client", "1×, 10× and 100× the data by the client without Spark: time per byte, memory")
def scale_bytes_client(setting: Setting) -> Result:
    once = setting.choose(ONCE, SMALL_ONCE)
    sizes = [ClientAtSize(setting.directory, multiple, multiple * once) for multiple in multiples(setting)]
    samples = alternate(sizes, setting.runs, warmups=0)
    notes = [
        f"1× is {once // MIB} MiB, entries of {ENTRY_BYTES} random bytes; each is written and read back in one turn. "
        f"At 1× a turn takes {LEDGERS} ledgers. Peaks are those of the turn, of the client and of the largest bookie.",
    ]
    about = f"ledgers of entries of {ENTRY_BYTES} bytes, written and read back, 3/3/2"
    return Result("scale_bytes_client", about, samples, claims_of(samples, "client"), notes)
