"""Spark's Kafka connector as a contestant: a table that becomes a new topic each time, and a topic that is read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StructType

from benchmarks.peers.kafka_cluster import KafkaCluster
from benchmarks.peers.kafka_topics import Topics
from benchmarks.speed.measure import Sample
from benchmarks.speed.processes import usage
from benchmarks.speed.spark_session import PARTITIONS, SparkTable, read_through

FLUSHED = {"flush.messages": "1"}
"""Of a topic: each message set is synced by every replica before it is acked, as a bookie does."""

TUNED_WRITE = {"kafka.batch.size": "262144", "kafka.linger.ms": "20", "kafka.buffer.memory": "67108864"}
"""What tuning guides say for throughput: message sets of up to 256 KiB instead of 16, which wait a little to fill."""

TUNED_READ = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.fetch.min.bytes": "262144",
}
"""The same for reading: more than 500 records a poll, and more than 1 MiB a partition."""


class RowValues:
    """How a user puts rows into Kafka's values: one record a row, as Avro or as JSON."""

    def __init__(self, spark: SparkSession, schema: StructType, encoding: str) -> None:
        self._schema = schema
        self._avro = _avro_schema(spark, schema) if encoding == "avro" else None

    def encoded(self, frame: DataFrame) -> DataFrame:
        row = f.struct("*")
        return frame.select((f.to_json(row) if self._avro is None else to_avro(row, self._avro)).alias("value"))

    def decoded(self, frame: DataFrame) -> DataFrame:
        return frame.select(self._row(f.col("value")).alias("row")).select("row.*")

    def _row(self, value: Column) -> Column:
        return f.from_json(value.cast("string"), self._schema) if self._avro is None else from_avro(value, self._avro)


class KafkaJobs:
    """Three brokers, and Spark jobs on topics of theirs. Close it, or use it in a ``with`` statement.

    ``values`` is None where the table is payloads, each of which is a record's value.
    """

    def __init__(self, spark: SparkSession, directory: Path, values: RowValues | None) -> None:
        directory.mkdir()
        with ExitStack() as stack:
            self._cluster = stack.enter_context(KafkaCluster(directory))
            self._topics = stack.enter_context(Topics(spark, self._cluster.bootstrap_servers))
            self._servers = {"kafka.bootstrap.servers": self._cluster.bootstrap_servers}
            self._spark = spark
            self._values = values
            self._written = 0
            self._stack = stack.pop_all()

    def write_and_delete(self, table: SparkTable, topic_config: Mapping[str, str], options: Mapping[str, str]) -> Sample:
        """A job that writes the table to a new topic, which is gone afterwards. Figure: CPU seconds of the brokers."""
        # A topic that is gone takes a while to go: its name is not used again.
        self._written += 1
        topic = f"written-{self._written}"
        self._topics.create(topic, PARTITIONS, topic_config)
        before = usage(self._cluster.pids).cpu_s
        sample = self.write(table, topic, options)
        used = usage(self._cluster.pids).cpu_s - before
        self._topics.delete(topic)
        # Files that are deleted while the next contestant syncs would be paid by it.
        self._cluster.await_deleted(topic)
        return Sample(sample.seconds, sample.rows, sample.nbytes, {"brokers_cpu_s": used})

    def create(self, topic: str) -> None:
        self._topics.create(topic, PARTITIONS, {})

    def write(self, table: SparkTable, topic: str, options: Mapping[str, str]) -> Sample:
        """A job that writes the table to an empty topic; each record is acked by all replicas in sync."""
        values = (
            table.frame.withColumnRenamed("payload", "value") if self._values is None else self._values.encoded(table.frame)
        )
        writer = values.write.format("kafka").options(**self._servers, topic=topic, **{"kafka.acks": "all"}, **options)
        sample = table.timed(writer.save)
        table.check(self._topics.rows(topic, PARTITIONS))
        return sample

    def read(self, expected: SparkTable, topic: str, options: Mapping[str, str]) -> Sample:
        """A job that reads a topic, which holds that table: each payload and where it stands, or the columns of the rows."""
        found = self._spark.read.format("kafka").options(**self._servers, subscribe=topic, **options).load()
        wanted = found.select("partition", "offset", "value") if self._values is None else self._values.decoded(found)
        return read_through(wanted, expected)

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> KafkaJobs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _avro_schema(spark: SparkSession, schema: StructType) -> str:
    assert spark._jvm is not None
    java_schema = spark._jsparkSession.parseDataType(schema.json())
    converters = spark._jvm.org.apache.spark.sql.avro.SchemaConverters
    return str(converters.toAvroType(java_schema, False, "row", "").toString())
