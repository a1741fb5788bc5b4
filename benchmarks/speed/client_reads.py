"""Reads without Spark, from the page cache: one reader of one ledger, with all replicas there and with one killed."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.speed.ledger_runs import Bench, Quorums, read_all
from benchmarks.speed.measure import Entrant, Result, Sample, Setting, alternate, workload
from benchmarks.speed.payloads import incompressible
from benchmarks.speed.wire import Wire
from bk_spark import BookKeeper
from bk_spark.config import KIB, MIB

BOOKIES = 4
SIZES = {"100 B": 100, "1 KiB": KIB}
POOL = 16
ABOUT = "entries read by one reader, from the page cache, with all replicas and with the first one killed"
NOTES = (
    "Four bookies, of which one is killed once the ledgers are written: one ledger of each size has nothing on it, the other "
    "one begins its ensemble with it. Each turn has a client of its own, that has not found out yet; connecting and opening "
    "are not counted. The wire is one grpcio server that sends the same bytes in messages of 4 MiB, two requests under way.",
)


@workload("client_reads", ABOUT)
def reads(setting: Setting) -> Result:
    user_bytes = setting.choose(256 * MIB, 4 * MIB)
    with Bench(setting.directory, BOOKIES) as bench, Wire(1) as wire:
        ledgers = _Ledgers(bench, user_bytes, setting.seed)
        whole = {size: ledgers.without_victim(entry_bytes) for size, entry_bytes in SIZES.items()}
        hurt = {size: ledgers.victim_first(entry_bytes) for size, entry_bytes in SIZES.items()}
        ledgers.victim.kill()
        entrants = [Entrant(f"bk_spark, {size}", _reading(bench, whole[size])) for size in SIZES]
        entrants += [Entrant(f"bk_spark, {size}, first replica killed", _reading(bench, hurt[size])) for size in SIZES]
        entrants.append(Entrant("wire", lambda _: wire.fetch(user_bytes, 4 * MIB)))
        return Result("client_reads", ABOUT, alternate(entrants, setting.runs, setting.choose(1, 0)), notes=NOTES)


class _Ledgers:
    """Ledgers with and without one bookie. Ensembles are chosen at random: ledgers are created until one fits."""

    def __init__(self, bench: Bench, user_bytes: int, seed: int) -> None:
        self._bench, self._count, self._seed = bench, max(1, user_bytes // MIB), seed
        self.victim = bench.local.bookies[0]

    def without_victim(self, entry_bytes: int) -> int:
        return self._written(entry_bytes, lambda ensemble: self.victim.bookie_id not in ensemble)

    def victim_first(self, entry_bytes: int) -> int:
        return self._written(entry_bytes, lambda ensemble: self.victim.bookie_id == ensemble[0])

    def _written(self, entry_bytes: int, fits: Callable[[tuple[str, ...]], bool]) -> int:
        batches = [incompressible(MIB // entry_bytes, entry_bytes, self._seed + number) for number in range(POOL)]
        while True:
            with self._bench.writer(Quorums()) as writer:
                if fits(tuple(writer.metadata.fragments[0].ensemble)):
                    for future in [writer.append_batch_async(batches[n % POOL]) for n in range(self._count)]:
                        future.result()
                    return writer.ledger_id
            self._bench.client.delete_ledger(writer.ledger_id)


def _reading(bench: Bench, ledger_id: int) -> Callable[[int], Sample]:
    def run(_: int) -> Sample:
        with BookKeeper(bench.local.metadata_uri) as client, client.open_ledger(ledger_id) as reader:
            return read_all(reader)

    return run
