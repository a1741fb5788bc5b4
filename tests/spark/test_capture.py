"""What somebody reads who listens between the parts of a cluster, while Spark writes and reads."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest
from pyspark.sql import SparkSession

from bk_spark.bookkeeper import BookKeeper
from bk_spark.commands.connect import spark_options
from bk_spark.local.cluster import LocalCluster
from bk_spark.metadata.registration import list_bookies
from tests.spark.loopback_capture import LoopbackCapture


@dataclass(frozen=True)
class Words:
    """Told from everything else that passes."""

    log: str = field(default_factory=lambda: f"log-{uuid.uuid4().hex}")
    payload: str = field(default_factory=lambda: f"payload-{uuid.uuid4().hex}")
    password: str = field(default_factory=lambda: f"password-{uuid.uuid4().hex}")


def ports_of(cluster: LocalCluster) -> set[int]:
    """Of ZooKeeper, and of each bookie: for our clients, for small adds and Apache's clients, and for metrics."""
    with BookKeeper(cluster.metadata_uri, cluster.client_config) as client:
        addresses = [one.address for one in list_bookies(client.metadata_store, client.znodes)]
    own = {address.port for address in addresses} | {address.apache.port for address in addresses if address.apache}
    return own | {cluster.zookeeper.port}


def read_words(cluster: LocalCluster, spark: SparkSession) -> set[str]:
    """Which words pass in clear while rows are written, read as a batch and as a stream, and appended one by one."""
    words = Words()
    given = {"metadata": cluster.metadata_uri, "password": words.password, **spark_options(cluster.client_config)}
    with LoopbackCapture(ports_of(cluster)) as capture:
        frame = spark.createDataFrame([(number, f"{words.payload} {number}") for number in range(100)], "id long, text string")
        frame.write.format("bookkeeper").options(**given).mode("append").save(words.log)
        read = spark.read.format("bookkeeper").options(**given).load(words.log)
        assert read.count() == 100
        with BookKeeper(cluster.metadata_uri, cluster.client_config) as client:
            with client.create_ledger(password=words.password.encode()) as writer:
                writer.append(words.payload.encode())
            assert len(list(client.open_ledger(writer.ledger_id, words.password.encode()).read(0, 0))) == 1
    passed = list(capture.streams.values())
    assert sum(map(len, passed)) > 10_000
    return {name for name, word in vars(words).items() if any(word.encode() in stream for stream in passed)}


@pytest.fixture
def may_listen() -> None:
    try:
        with LoopbackCapture([]):
            pass
    except PermissionError:
        pytest.skip("needs CAP_NET_RAW")


@pytest.mark.usefixtures("may_listen")
def test_nothing_passes_in_clear_in_a_secured_cluster_while_spark_writes_and_reads(
    secured_cluster: LocalCluster, spark: SparkSession
) -> None:
    assert read_words(secured_cluster, spark) == set()


@pytest.mark.usefixtures("may_listen")
def test_whoever_listens_to_a_cluster_without_tls_reads_it_all(cluster: LocalCluster, spark: SparkSession) -> None:
    assert read_words(cluster, spark) == {"log", "payload", "password"}
