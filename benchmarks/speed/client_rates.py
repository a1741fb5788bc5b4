"""How many ledgers a second a client creates, opens, closes and deletes, beside what ZooKeeper alone does.

A turn takes ``count`` ledgers through their lives, one kind of operation after the other. ZooKeeper's turn is the least that
each operation could cost there: one znode created, read, changed by a compare-and-set, deleted, with values as long as a
ledger's metadata, through the same session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack

from benchmarks.speed.measure import Entrant, Result, Sample, Setting, alternate, workload
from bk_spark import BookKeeper, LocalCluster
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.metadata.store import ANY_VERSION

THREADS = 8
LEDGERS, SMALL_LEDGERS = 200, 20
"""A turn of one thread; with more threads twice as many."""

OPERATIONS = ("create", "open", "close", "open closed", "delete")


class Stopwatch:
    """The seconds of each operation of one turn."""

    def __init__(self, count: int, threads: int) -> None:
        self.count = count
        self._threads = threads
        self._seconds: dict[str, float] = {}

    def run(self, name: str, action: Callable[[int], object]) -> list[object]:
        """``action`` for each number, timed."""
        with ExitStack() as stack:
            pool: Executor | None = stack.enter_context(ThreadPoolExecutor(self._threads)) if self._threads > 1 else None
            started = time.perf_counter()
            results: Iterable[object] = map(action, range(self.count)) if pool is None else pool.map(action, range(self.count))
            done = list(results)
            self._seconds[name] = time.perf_counter() - started
        return done

    def sample(self) -> Sample:
        rates = {f"{name.replace(' ', '_')}_per_s": self.count / seconds for name, seconds in self._seconds.items()}
        return Sample(sum(self._seconds.values()), self.count * len(self._seconds), 0, rates)


def ledgers_turn(client: BookKeeper, watch: Stopwatch) -> Sample:
    """Ledgers without entries; ``open`` is without recovery, of a ledger that its writer has open."""
    writers = [writer for writer in watch.run("create", lambda _: client.create_ledger()) if isinstance(writer, WriteHandle)]
    ids = [writer.ledger_id for writer in writers]
    watch.run("open", lambda number: client.open_ledger(ids[number], recover=False))
    watch.run("close", lambda number: writers[number].close())
    watch.run("open closed", lambda number: client.open_ledger(ids[number]))
    watch.run("delete", lambda number: client.delete_ledger(ids[number]))
    return watch.sample()


def znodes_turn(client: BookKeeper, watch: Stopwatch, value: bytes) -> Sample:
    store, root = client.metadata_store, client.znodes.root
    paths = [f"{root}/bench-{number}" for number in range(watch.count)]
    watch.run("create", lambda number: store.create(paths[number], value))
    watch.run("open", lambda number: store.get(paths[number]))
    watch.run("close", lambda number: store.set(paths[number], value, 0))
    watch.run("open closed", lambda number: store.get(paths[number]))
    watch.run("delete", lambda number: store.delete(paths[number], ANY_VERSION))
    return watch.sample()


@workload("client_rates", "ledgers created, opened, closed and deleted a second, beside ZooKeeper alone")
def client_rates(setting: Setting) -> Result:
    count = setting.choose(LEDGERS, SMALL_LEDGERS)
    with LocalCluster(bookies=3, data_dir=setting.directory / "cluster") as cluster, BookKeeper(cluster.metadata_uri) as client:
        with client.create_ledger() as writer:
            value = writer.metadata.encode()
        entrants = []
        for threads in (1, THREADS):
            text = "1 thread" if threads == 1 else f"{threads} threads"
            number = count if threads == 1 else 2 * count

            def ledgers(turn: int, number: int = number, threads: int = threads) -> Sample:
                return ledgers_turn(client, Stopwatch(number, threads))

            def znodes(turn: int, number: int = number, threads: int = threads) -> Sample:
                return znodes_turn(client, Stopwatch(number, threads), value)

            entrants += [Entrant(f"bk_spark, {text}", ledgers), Entrant(f"ZooKeeper alone, {text}", znodes)]
        samples = alternate(entrants, setting.runs, setting.choose(1, 0))
    notes = [
        "`open` is without recovery, of a ledger that its writer has open: bookies are asked how far it is confirmed.",
        "ZooKeeper alone: one znode created, read, changed by a compare-and-set, read, deleted. "
        "A ledger's creation is two writes there, one after the other: the id, which must be above all ids that were issued "
        "before, and the metadata.",
    ]
    return Result("client_rates", "operations on ledgers a second, E=Qw=3, Qa=2, without entries", samples, notes=notes)
