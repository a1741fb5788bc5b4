"""Does a byte cost Spark the same in 100 times the data? As ``scale_bytes``, with jobs that write and read rows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bounded_memory import ROW_BYTES, WorkerPeaks, python_workers, session, source_rows
from benchmarks.speed.measure import Result, Sample, Setting, alternate, workload
from benchmarks.speed.processes import peak_memory_mib, reset_peak_memory
from benchmarks.speed.scale_bytes import claims_of, figures_of, multiples, timed
from bk_spark import LocalCluster

ONCE, SMALL_ONCE = 160_000, 1_000
"""Rows at 1×: 16 MB."""
JOBS, SMALL_JOBS = 5, 1
"""Of a turn at 1×, one after the other, and of those without a row."""


class SparkAtSize:
    """Jobs that append ``rows`` rows to a log each, and as many that read them."""

    def __init__(self, directory: Path, multiple: int, rows: int, jobs: int) -> None:
        self.name = f"{multiple}×, {multiple * rows * ROW_BYTES / 1e6:,.0f} MB"
        self._directory = directory
        self._rows = multiple * rows
        self._warm_up = rows
        self._jobs = jobs if multiple == 1 else 1
        self._empty_jobs = jobs

    def run(self, turn: int) -> Sample:
        path = self._directory / f"cluster-{turn}"
        try:
            with LocalCluster(bookies=3, data_dir=path) as cluster:
                self._write(cluster, ["warm-up"], self._warm_up)
                self._read(cluster, ["warm-up"])
                return self._measured(cluster)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _measured(self, cluster: LocalCluster) -> Sample:
        bookies = [bookie.pid for bookie in cluster.bookies if bookie.pid is not None]
        reset_peak_memory([*bookies, *python_workers()])
        fixed_write_s, fixed_read_s = self._job_times(cluster, 0)
        with WorkerPeaks() as workers:
            write_s, read_s = self._job_times(cluster, self._rows)
        nbytes = self._rows * ROW_BYTES
        figures = figures_of(nbytes, write_s - fixed_write_s, read_s - fixed_read_s)
        figures["empty_write_s"], figures["empty_read_s"] = fixed_write_s, fixed_read_s
        figures["worker_peak_mib"] = workers.peak_mib
        figures["bookie_peak_mib"] = peak_memory_mib(bookies)
        return Sample(write_s + read_s, self._rows, nbytes, figures)

    def _job_times(self, cluster: LocalCluster, rows: int) -> tuple[float, float]:
        """Seconds of one write and one read of so many rows; the mean of several where one is short."""
        jobs = self._jobs if rows else self._empty_jobs
        logs = [f"rows-{rows}-{number}" for number in range(jobs)]
        write_s, _ = timed(lambda: self._write(cluster, logs, rows))
        read_s, _ = timed(lambda: self._read(cluster, logs))
        return write_s / jobs, read_s / jobs

    def _write(self, cluster: LocalCluster, logs: Sequence[str], rows: int) -> None:
        for log in logs:
            source = source_rows(session(), rows, "rows")
            source.write.format("bookkeeper").option("metadata", cluster.metadata_uri).mode("append").save(log)

    def _read(self, cluster: LocalCluster, logs: Sequence[str]) -> None:
        for log in logs:
            found = session().read.format("bookkeeper").option("metadata", cluster.metadata_uri).load(log)
            found.write.format("noop").mode("overwrite").save()


@workload("scale_bytes_spark", "1×, 10× and 100× the data by Spark: time per byte, memory")
def scale_bytes_spark(setting: Setting) -> Result:
    once, jobs = setting.choose(ONCE, SMALL_ONCE), setting.choose(JOBS, SMALL_JOBS)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with session():
        sizes = [SparkAtSize(setting.directory, multiple, once, jobs) for multiple in multiples(setting)]
        samples = alternate(sizes, setting.runs, warmups=0)
    notes = [
        f"1× is {once:,} rows of {ROW_BYTES} characters that hardly compress, in 4 partitions, appended to a log and read into "
        f"Spark's `noop`. Time per byte is that of a job less that of a job without rows in the same turn, for Spark's and our "
        f"fixed costs would make a byte at 1× dear; at 1× a turn takes {jobs} jobs. "
        f"Peaks are those of the turn, of the largest Python worker and the largest bookie.",
    ]
    about = f"rows of {ROW_BYTES} bytes, written to a log and read back, 3/3/2, local[2]"
    return Result("scale_bytes_spark", about, samples, claims_of(samples, "Spark"), notes)
