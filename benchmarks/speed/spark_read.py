"""Spark reads, beside what bounds them: a data source that repeats one record batch, and the client without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from benchmarks.speed.ledger_runs import Quorums
from benchmarks.speed.measure import Entrant, Sample, Setting, alternate
from benchmarks.speed.spark_ceilings import register, repeat, write_batch
from benchmarks.speed.spark_jobs import SparkJobs
from benchmarks.speed.spark_session import SparkTable, Subject, in_memory, session
from benchmarks.speed.spark_without import WithoutSpark
from benchmarks.speed.spark_write import ALL, STRIPED, register_subjects
from bk_spark.datasource.spark_schema import to_arrow


def _samples(setting: Setting, subject: Subject) -> dict[str, list[Sample]]:
    with session() as spark, SparkJobs(spark, setting.directory, subject.content) as jobs:
        register(spark)
        arrow = subject.table(setting)
        table = in_memory(spark, arrow, setting.directory)
        for quorums in setting.choose((ALL, STRIPED), (ALL,)):
            jobs.write(table, _log_of(quorums), quorums)
        schema, batch = jobs.frame(_log_of(ALL)).schema, setting.directory / "batch.arrow"
        write_batch(batch, _as_read(arrow, schema))
        with WithoutSpark(setting.directory, jobs.cluster.metadata_uri, table) as without:
            entrants = [Entrant("Spark alone", lambda _: repeat(spark, batch, schema, table))]
            for quorums in setting.choose((ALL, STRIPED), (ALL,)):
                entrants += _both(jobs, without, table, quorums)
            if subject.content == "rows":
                entrants.append(Entrant("row codec", lambda _: without.decode()))
            return alternate(entrants, setting.runs, setting.choose(1, 0))


def _both(jobs: SparkJobs, without: WithoutSpark, table: SparkTable, quorums: Quorums) -> list[Entrant]:
    log = _log_of(quorums)
    ledger_ids = jobs.ledger_ids(log)
    return [
        Entrant(f"bk_spark {quorums}", lambda _: jobs.read(table, log)),
        Entrant(f"client {quorums}", lambda _: without.read(ledger_ids)),
    ]


def _log_of(quorums: Quorums) -> str:
    return f"written {quorums}".replace("/", "-")


def _as_read(table: pa.Table, schema: StructType) -> pa.Table:
    """The table in the columns that a read gives: those of entries have their ids, too."""
    if table.column_names == ["payload"]:
        table = table.add_column(0, "entry_id", pa.array(np.arange(table.num_rows)))
        table = table.add_column(0, "ledger_id", pa.array(np.ones(table.num_rows, dtype=np.int64)))
    return table.cast(to_arrow(schema))


register_subjects("read", _samples)
