"""What ours and Apache BookKeeper's clients are timed at: adding entries to a new ledger, and reading all of one."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.peers.bookkeeper_cluster import Peer
from benchmarks.speed.ledger_runs import Bench, Quorums, read_all
from benchmarks.speed.measure import Sample
from benchmarks.speed.pacing import latency_figures
from benchmarks.speed.payloads import incompressible
from benchmarks.speed.processes import Usage, usage
from bk_spark.local.process import LocalProcess

QUORUMS = Quorums(3, 3, 2)
BATCH_BYTES = 1_000_000
POOL_BATCHES = 16
"""Different batches; both sides add the same entries, in this order, over and over."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The entries that are added."""

    entry_bytes: int
    payloads: pa.BinaryArray

    @property
    def batches(self) -> list[pa.BinaryArray]:
        entries = len(self.payloads) // POOL_BATCHES
        return [self.payloads.slice(start, entries) for start in range(0, len(self.payloads), entries)]

    def write(self, path: Path) -> Path:
        path.write_bytes(self.payloads.buffers()[2])
        return path


def pool(entry_bytes: int, seed: int) -> Pool:
    return Pool(entry_bytes, incompressible(BATCH_BYTES // entry_bytes * POOL_BATCHES, entry_bytes, seed))


def append_batches(bench: Bench, entries: Pool, count: int) -> Callable[[int], Sample]:
    """``append_batch_async``, about a megabyte each."""
    batches = entries.batches

    def run() -> Sample:
        return bench.append_batches(QUORUMS, batches, max(1, count // len(batches[0])))

    return lambda _: _with_cpu(bench, run)


def append_singly(bench: Bench, entries: Pool, count: int, in_flight: int) -> Callable[[int], Sample]:
    """``append_async`` for each entry. The oldest is waited for when so many are under way."""
    payloads: list[bytes] = entries.payloads.to_pylist()

    def run() -> Sample:
        with bench.writer(QUORUMS) as writer:
            start, futures = time.perf_counter(), deque[Future[int]]()
            for number in range(count):
                if len(futures) == in_flight:
                    futures.popleft().result()
                futures.append(writer.append_async(payloads[number % len(payloads)]))
            for future in futures:
                future.result()
            seconds = time.perf_counter() - start
        bench.client.delete_ledger(writer.ledger_id)
        return Sample(seconds, count, writer.length)

    return lambda _: _with_cpu(bench, run)


def read_batches(bench: Bench, ledger_id: int, times: int) -> Callable[[int], Sample]:
    """All entries of a ledger as record batches, so many times over."""

    def run() -> Sample:
        with bench.client.open_ledger(ledger_id) as reader:
            each = [read_all(reader) for _ in range(times)]
        return Sample(sum(one.seconds for one in each), sum(one.rows for one in each), sum(one.nbytes for one in each))

    return lambda _: _with_cpu(bench, run)


def _with_cpu(bench: Bench, run: Callable[[], Sample]) -> Sample:
    bookies, client = bench.bookies_usage(), time.process_time()
    sample = run()
    return _cpu_of(sample, bench.bookies_usage().since(bookies).cpu_s, time.process_time() - client)


def _cpu_of(sample: Sample, bookies_s: float, client_s: float) -> Sample:
    """Microseconds of CPU for each entry: what a machine that is busy otherwise changes least."""
    bookies_us, client_us = (seconds / sample.rows * 1e6 for seconds in (bookies_s, client_s))
    return dataclasses.replace(sample, figures={"bookies_cpu_us": bookies_us, "client_cpu_us": client_us})


def check_content(bench: Bench, ledger_id: int, entries: Pool) -> None:
    with bench.client.open_ledger(ledger_id) as reader:
        for batch in reader.read(0, reader.last_add_confirmed):
            slots = np.asarray(batch.column("entry_id")) % len(entries.payloads)
            if not batch.column("payload").equals(entries.payloads.take(pa.array(slots))):
                raise AssertionError(f"ledger {ledger_id} does not hold what was added")


@dataclass(frozen=True, slots=True)
class PeerRuns:
    """What the Java client does, as samples."""

    bookies: Sequence[LocalProcess]
    peer: Peer

    def add(self, count: int, in_flight: int) -> Callable[[int], Sample]:
        """``asyncAddEntry`` for each entry."""
        return lambda _: self._timed("add", count, in_flight)

    def pace(self, count: int, per_s: int) -> Callable[[int], Sample]:
        """``asyncAddEntry`` of each entry when it is due, from which its latency counts."""

        def run(_: int) -> Sample:
            found = [nanoseconds / 1e9 for nanoseconds in self.peer.ask("pace", count, per_s)["latencies_ns"]]
            return Sample(count / per_s, count, 0, latency_figures(found))

        return run

    def read(self, ledger_id: int, batch: int, in_flight: int) -> Callable[[int], Sample]:
        """``batchReadAsync``: one request for so many entries."""
        return lambda _: self._timed("read", ledger_id, batch, in_flight)

    def read_each(self, ledger_id: int, batch: int, in_flight: int) -> Callable[[int], Sample]:
        """``readAsync`` of so many entries: a request for each."""
        return lambda _: self._timed("read-each", ledger_id, batch, in_flight)

    def written_ledger(self, count: int, in_flight: int) -> int:
        return int(self.peer.ask("add", count, in_flight)["ledger"])

    def check(self, ledger_id: int, count: int) -> None:
        """The client fails where an entry is not what was added."""
        if (found := self.peer.ask("check", ledger_id)["entries"]) != count:
            raise AssertionError(f"{found} entries of {count} are in the peer's ledger {ledger_id}")

    def _timed(self, *command: object) -> Sample:
        bookies, client = self._usage(), usage([self.peer.pid])
        answer = self.peer.ask(*command)
        sample = Sample(answer["seconds"], answer["entries"], answer["bytes"])
        return _cpu_of(sample, self._usage().since(bookies).cpu_s, usage([self.peer.pid]).since(client).cpu_s)

    def _usage(self) -> Usage:
        return usage(bookie.pid for bookie in self.bookies if bookie.pid is not None)
