"""Spark and logs on Apache's bookies: frames, streams, ledgers that Java wrote, and ledgers that an application owns."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers.bookkeeper_cluster import BookKeeperCluster
from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.errors import LedgerClosedError, LedgerFencedError
from tests.interop.apache import IS_ALL, ApacheError, JavaClient, payload
from tests.spark.conftest import Logs, spark

__all__ = ["spark"]

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IS_ALL, reason="make interop: a Spark beside the cluster"),
]

ROWS = 50_000
DIGESTS = ["CRC32C", "CRC32", "HMAC", "DUMMY"]


@pytest.fixture(scope="module")
def prepared(metadata_uri: str, apache: BookKeeperCluster) -> str:
    """The cluster's URI, once logs can be made there."""
    assert main(["cluster", "init", "--metadata", metadata_uri]) == 0
    return metadata_uri


@pytest.fixture
def logs(spark: SparkSession, prepared: str) -> Logs:
    return Logs(spark, prepared)


def checksum(frame: DataFrame) -> tuple[int, ...]:
    found = frame.selectExpr("count(*)", "count(DISTINCT id)", "sum(id)", "sum(crc32(cast(text AS binary)))").first()
    assert found is not None
    return tuple(found)


def rows(spark: SparkSession, count: int = ROWS) -> DataFrame:
    return spark.range(count).selectExpr("id", "concat('row ', id * 7919) AS text", "cast(id AS double) / 3 AS part")


def test_a_frame_comes_back_as_it_was_written(spark: SparkSession, logs: Logs) -> None:
    logs.write(rows(spark), "frame")
    assert checksum(logs.read("frame")) == checksum(rows(spark))
    assert logs.read("frame").where("id >= 49000 AND part < 16400").count() == 200
    logs.write(rows(spark, 100), "frame", mode="overwrite")
    assert checksum(logs.read("frame")) == checksum(rows(spark, 100))
    assert logs.read("frame", versionAsOf=1).count() == ROWS


def test_a_stream_carries_each_row_once_over_a_restart(spark: SparkSession, logs: Logs, tmp_path: Path) -> None:
    logs.write(rows(spark, 1000), "source")

    def carry() -> None:
        reader = (
            spark.readStream.format("bookkeeper")
            .option("metadata", logs.uri)
            .option("startingOffsets", "earliest")
            .load("source")
        )
        writer = reader.writeStream.format("bookkeeper").option("metadata", logs.uri).option("path", "copy")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()

    carry()
    logs.write(rows(spark, 1000).selectExpr("id + 1000 AS id", "text", "part"), "source")
    carry()
    carry()
    assert checksum(logs.read("copy")) == checksum(logs.read("source"))
    assert logs.read("copy").count() == 2000


@pytest.mark.parametrize("digest", DIGESTS)
def test_spark_reads_any_ledger_of_the_cluster(java: JavaClient, logs: Logs, digest: str) -> None:
    ledger_id = java.create(3, 2, 2, digest)
    java.add(ledger_id, 3000, -1)
    java.close_ledger(ledger_id)
    found = logs.read(None, ledger=str(ledger_id)).orderBy("entry_id").collect()
    assert [row.payload for row in found] == [payload(ledger_id, one, -1) for one in range(3000)]


def test_spark_reads_an_open_ledger_of_java_without_fencing_it(java: JavaClient, logs: Logs) -> None:
    ledger_id = java.create(3, 3, 2)
    for count in (100, 1):
        java.add(ledger_id, count, 20)
    assert logs.read(None, ledger=str(ledger_id)).count() == 100, "the last entry is seen with the next one"
    java.add(ledger_id, 1, 20)
    assert logs.read(None, ledger=str(ledger_id), recover="true").count() == 102
    with pytest.raises(ApacheError):
        java.add(ledger_id, 1, 20)


def test_a_log_is_led_and_taken_over_and_read_to_its_end(prepared: str) -> None:
    entries = [b"%d" % one for one in range(1000)]
    with BookKeeper(prepared) as client, BookKeeper(prepared) as other:
        leader = client.open_log("led", create=True).open_writer(roll_bytes=10_000)
        leader.append_batch(entries)
        with other.open_log("led").open_writer() as second:
            second.append(b"second")
            with pytest.raises((LedgerFencedError, LedgerClosedError)):
                leader.append(b"late")
        found = [one for batch in other.open_log("led").read() for one in batch.column("payload").to_pylist()]
    assert found == [*entries, b"second"]
