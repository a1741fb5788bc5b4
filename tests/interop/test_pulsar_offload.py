"""Ledgers of a topic that a real Pulsar broker's own offloader moved to an object store: all messages are read from there.

The broker is of Pulsar 4.0.0 and its offloader of 4.0.8: Maven has no version of both with all that they need.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.fs as fs
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import sha2

from benchmarks.peers.bookkeeper_cluster import Peer, java_command
from benchmarks.peers.fetch import jars
from benchmarks.speed.measure import SkippedError
from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster
from tests.cluster.lake.object_store import BUCKET, REGION, ObjectStore
from tests.interop.apache import HERE, IS_ALL
from tests.interop.test_pulsar import BROKER
from tests.spark.conftest import spark
from tests.unit.datasource.batches import wait_until

__all__ = ["spark"]

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IS_ALL, reason="make interop: a Pulsar broker with its offloader, and 245 MB from Maven"),
]

TOPIC = "persistent://tenant/namespace/topic"
EACH, LARGE, SMALL = 20, 20, 45
"""Entries of a ledger; messages of a megabyte, which fill the first ledger and several blocks of its copy; and of 100 bytes."""


@dataclass(frozen=True)
class Offloaded:
    """A broker on our bookies, its object store, and where both keep their metadata."""

    broker: Peer
    store: ObjectStore
    metadata_uri: str
    pulsar_metadata: str


@pytest.fixture(scope="module")
def offloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Offloaded]:
    try:
        java = java_command(BROKER, HERE / "pulsar-pom.xml")
        [archive] = jars(HERE / "pulsar-offloader-pom.xml")
    except SkippedError as reason:
        pytest.skip(f"a Pulsar broker with its offloader is not to be had: {reason}")
    folder = tmp_path_factory.mktemp("pulsar-offload")
    shutil.copy(archive, folder / f"{archive.stem}.nar")
    with LocalCluster(bookies=3) as ours, ObjectStore().running() as store:
        places = [ours.zookeeper.address, ours.metadata_uri.replace("zk://", "zk+hierarchical://")]
        command = [*java, str(HERE / "PulsarOffload.java"), *places, str(folder), store.endpoint, REGION, BUCKET]
        with closing(Peer(command, folder / "broker.log")) as broker:
            broker.ask("send", LARGE, 1_000_000)
            broker.ask("send", SMALL, 100)
            yield Offloaded(broker, store, ours.metadata_uri, f"zk://{ours.zookeeper.address}/pulsar-offload")


@pytest.fixture
def client(offloaded: Offloaded) -> Iterator[BookKeeper]:
    with BookKeeper(offloaded.metadata_uri) as made:
        yield made


def payload(number: int) -> bytes:
    """As PulsarOffload.java's."""
    places = np.arange(1_000_000 if number < LARGE else 100)
    return (31 * number + places + places // 256).astype(np.uint8).tobytes()


def is_all(values: list[bytes]) -> bool:
    """All messages in their order; the last one of an open ledger is not confirmed."""
    return values == [payload(number) for number in range(LARGE + SMALL - 1)]


def test_what_pulsars_offloader_moved_is_read_from_there(
    offloaded: Offloaded, client: BookKeeper, spark: SparkSession, tmp_path: Path
) -> None:
    def read() -> list[bytes]:
        topic = client.open_topic(TOPIC, pulsar_metadata=offloaded.pulsar_metadata)
        return [one for batch in topic.read() for one in batch.column("value").to_pylist()]

    def hashes(frame: DataFrame) -> list[str]:
        return sorted(row.hash for row in frame.select(sha2("value", 256).alias("hash")).collect())

    options = {"metadata": offloaded.metadata_uri, "pulsarMetadata": offloaded.pulsar_metadata, "topic": TOPIC}
    frame = spark.read.format("bookkeeper").options(**options, maxBytesPerPartition="4m").load()
    before = hashes(frame)
    assert is_all(read())

    assert offloaded.broker.ask("offload") == {"offload": "SUCCESS "}
    closed = [ledger_id for ledger_id, _, is_offloaded in offloaded.broker.ask("ledgers")["ledgers"] if is_offloaded]
    assert len(closed) == (LARGE + SMALL) // EACH
    objects = offloaded.store.client().get_file_info(fs.FileSelector(BUCKET))
    assert len(objects) == 2 * len(closed)
    offloaded.store.requests.clear()
    assert is_all(read())
    assert offloaded.store.requests == [], "bookies have them still"

    def is_deleted() -> bool:
        offloaded.broker.ask("trim")
        return not client.existing_ledgers(closed)

    wait_until(is_deleted)
    assert is_all(read())
    assert offloaded.store.requests != []
    assert frame.rdd.getNumPartitions() > 4
    assert hashes(frame) == before
    stream = spark.readStream.format("bookkeeper").options(**options, startingOffsets="earliest", maxRowsPerTrigger="30")
    writer = stream.load().writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination(120)
    assert hashes(spark.read.parquet(str(tmp_path / "rows"))) == before
