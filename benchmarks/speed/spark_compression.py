"""What the compression of row payloads costs a Spark job, and what it saves."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.speed.measure import Entrant, Result, Sample, Setting, alternate, workload
from benchmarks.speed.spark_ceilings import register, throw_away
from benchmarks.speed.spark_jobs import SparkJobs
from benchmarks.speed.spark_session import SUBJECTS, SparkTable, in_memory, session
from benchmarks.speed.spark_write import ALL

COMPRESSIONS = ("none", "lz4", "zstd")
SUBJECT = SUBJECTS["numeric"]
ABOUT = f"Spark write and read of {SUBJECT.title} with each compression"
NOTES = (
    "`stored` is the size of the payloads for each byte of the rows in memory. *Spark alone* is a Python data source that "
    "throws the same rows away.",
)


@workload("spark_compression", ABOUT)
def compression(setting: Setting) -> Result:
    with session() as spark, SparkJobs(spark, setting.directory, SUBJECT.content) as jobs:
        register(spark)
        table = in_memory(spark, SUBJECT.table(setting), setting.directory)
        entrants = [Entrant("write, Spark alone", lambda _: throw_away(table))]
        for name in COMPRESSIONS:
            jobs.write(table, f"read {name}", ALL, compression=name)
            entrants += [_write(jobs, table, name), _read(jobs, table, name)]
        samples = alternate(entrants, setting.runs, setting.choose(1, 0))
    return Result("spark_compression", ABOUT, samples, [], NOTES)


def _write(jobs: SparkJobs, table: SparkTable, name: str) -> Entrant:
    return Entrant(f"write, {name}", lambda _: jobs.write_and_delete(table, ALL, compression=name))


def _read(jobs: SparkJobs, table: SparkTable, name: str) -> Entrant:
    def run(_: int) -> Sample:
        log = f"read {name}"
        stored = sum(one.length for one in jobs.client.open_log(log).snapshot().ledgers)
        return replace(jobs.read(table, log), figures={"stored": stored / table.nbytes})

    return Entrant(f"read, {name}", run)
