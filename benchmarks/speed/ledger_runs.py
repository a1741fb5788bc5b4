"""The client without Spark: three bookies on this machine, ledgers written and read, and what that cost."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.speed.measure import Sample
from benchmarks.speed.pacing import at_rate, latency_figures
from benchmarks.speed.processes import Usage, usage
from bk_spark import BookKeeper, LocalCluster
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.local.process import LocalProcess


@dataclass(frozen=True, slots=True)
class Quorums:
    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2

    @property
    def copies_each(self) -> float:
        """What part of a ledger each bookie of its ensemble keeps."""
        return self.write_quorum / self.ensemble_size

    def __str__(self) -> str:
        return f"{self.ensemble_size}/{self.write_quorum}/{self.ack_quorum}"


class Bench:
    """A cluster and a client of it. Close it, or use it in a ``with`` statement."""

    def __init__(self, directory: Path, bookies: int = 3) -> None:
        with ExitStack() as stack:
            self.local = stack.enter_context(LocalCluster(bookies=bookies, data_dir=directory / "cluster"))
            self.client = stack.enter_context(BookKeeper(self.local.metadata_uri))
            self._bookies: Sequence[LocalProcess] = self.local.bookies
            self._stack = stack.pop_all()

    @contextmanager
    def at(self, metadata_uri: str, bookies: Sequence[LocalProcess]) -> Iterator[Bench]:
        """The same with a client of another cluster."""
        other = copy(self)
        other._bookies = bookies
        with BookKeeper(metadata_uri) as other.client:
            yield other

    def writer(self, quorums: Quorums) -> WriteHandle:
        return self.client.create_ledger(quorums.ensemble_size, quorums.write_quorum, quorums.ack_quorum)

    def append_batches(self, quorums: Quorums, batches: Sequence[pa.BinaryArray], count: int) -> Sample:
        """``count`` batches into one ledger, the given ones over and over, from the first append until all are confirmed.

        Figures: CPU seconds of this process and of bookies, and what these sent to disks for each byte of the user and replica.
        """
        before, client_before = self.bookies_usage(), time.process_time()
        with self.writer(quorums) as writer:
            start = time.perf_counter()
            futures = [writer.append_batch_async(batches[number % len(batches)]) for number in range(count)]
            for future in futures:
                future.result()
            seconds = time.perf_counter() - start
            rows, nbytes = writer.last_add_confirmed + 1, writer.length
        used, client_cpu_s = self.bookies_usage().since(before), time.process_time() - client_before
        self.client.delete_ledger(writer.ledger_id)
        written = used.write_bytes / (nbytes * quorums.write_quorum)
        return Sample(seconds, rows, nbytes, {"client_cpu_s": client_cpu_s, "bookies_cpu_s": used.cpu_s, "written": written})

    def written_ledger(self, quorums: Quorums, batches: Sequence[pa.BinaryArray], count: int) -> int:
        """The id of a new ledger that holds so many batches and is closed."""
        with self.writer(quorums) as writer:
            for future in [writer.append_batch_async(batches[number % len(batches)]) for number in range(count)]:
                future.result()
        return writer.ledger_id

    def bookies_usage(self) -> Usage:
        return usage(bookie.pid for bookie in self._bookies if bookie.pid is not None)

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_all(reader: ReadHandle) -> Sample:
    """All entries of a closed ledger as record batches, counted."""
    start = time.perf_counter()
    rows = sum(batch.num_rows for batch in reader.read(0, reader.last_add_confirmed))
    seconds = time.perf_counter() - start
    if rows != reader.last_add_confirmed + 1:
        raise AssertionError(f"{rows} entries of {reader.last_add_confirmed + 1} were read")
    return Sample(seconds, rows, reader.length)


class InFlight:
    """At most so many appends under way, whose latencies are kept."""

    def __init__(self, window: int) -> None:
        self.latencies_s: list[float] = []
        self._window, self._under_way = window, 0
        self._ended = threading.Semaphore(0)
        self._problem: BaseException | None = None

    def append(self, begin: Callable[[], Future[Any]], since: float | None = None) -> None:
        """Begin one when there is room. ``since``: what its latency counts from, on the clock of ``time.perf_counter``."""
        if self._under_way == self._window:
            self._await_one()
        self._under_way += 1
        counts_from = time.perf_counter() if since is None else since
        begin().add_done_callback(lambda future: self._done(future, counts_from))

    def wait(self) -> None:
        """Until all are confirmed; raises what one of them failed with."""
        while self._under_way:
            self._await_one()
        if self._problem is not None:
            raise self._problem

    def _await_one(self) -> None:
        self._ended.acquire()
        self._under_way -= 1

    def _done(self, future: Future[Any], counts_from: float) -> None:
        self.latencies_s.append(time.perf_counter() - counts_from)
        self._problem = self._problem or future.exception()
        self._ended.release()


UNBOUNDED = 1 << 20


def append_at_rate(writer: WriteHandle, payload: bytes, per_s: float, for_s: float) -> Sample:
    """Single adds in an open loop: each begins when it is due, whatever became of those before, and counts from then.

    One goes before and is not counted, with which the writer connects to the bookies of its ensemble.
    """
    writer.append(payload)
    adds, count = InFlight(UNBOUNDED), math.ceil(per_s * for_s)
    for intended in at_rate(count, per_s):
        adds.append(lambda: writer.append_async(payload), since=intended)
    adds.wait()
    return Sample(count / per_s, count, count * len(payload), latency_figures(adds.latencies_s))
