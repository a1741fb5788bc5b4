"""A topic of a real Pulsar broker on Apache's bookies: its ledgers are read, and nothing of ours takes them from the broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.peers.bookkeeper_cluster import BookKeeperCluster, Peer, java_command
from benchmarks.speed.measure import SkippedError
from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.errors import ConfigError
from bk_spark.local.cluster import LocalCluster
from tests.interop.apache import HERE, IS_ALL, JAVA, read_all
from tests.spark.conftest import spark

__all__ = ["spark"]

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IS_ALL, reason="make interop: a Pulsar broker, and 230 MB from Maven"),
]

EACH, SENT = 10, 25
BROKER = [*(option for option in JAVA if not option.startswith("-Xmx")), "-Xmx512m"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def topic(
    zookeeper: LocalCluster, apache: BookKeeperCluster, metadata_uri: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    """The broker and the producer of a topic that has two closed ledgers and an open one."""
    try:
        java = java_command(BROKER, HERE / "pulsar-pom.xml")
    except SkippedError as reason:
        pytest.skip(f"a Pulsar broker is not to be had: {reason}")
    bookies = metadata_uri.replace("zk://", "zk+hierarchical://")
    log = tmp_path_factory.mktemp("pulsar") / "broker.log"
    with closing(Peer([*java, str(HERE / "PulsarTopic.java"), zookeeper.zookeeper.address, bookies], log)) as peer:
        assert peer.ask("send", SENT) == {"sent": SENT}
        yield peer


@pytest.fixture
def run(metadata_uri: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command's exit status, and what it printed."""

    def given(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*map(str, words), "--metadata", metadata_uri])
        return code, *capsys.readouterr()

    return given


def ledgers(topic: Peer) -> list[int]:
    return [ledger_id for ledger_id, _ in topic.ask("ledgers")["ledgers"]]


def messages(payloads: list[bytes]) -> list[str]:
    """A message that was sent by itself stands at the end of its entry."""
    return [entry[entry.rindex(b"message ") :].decode() for entry in payloads]


def of_json(said: tuple[int, str, str]) -> list[dict[str, Any]]:
    code, out, problem = said
    assert code == 0, problem
    return [json.loads(line) for line in out.splitlines()]


def test_closed_ledgers_of_a_topic_are_listed_shown_and_read(
    topic: Peer, client: BookKeeper, metadata_uri: str, run: Run, spark: SparkSession
) -> None:
    first, second, last = ledgers(topic)[:3]
    assert {first, second, last} <= {one["ledger_id"] for one in of_json(run("ledger", "list", "--json"))}
    (shown,) = of_json(run("ledger", "show", second, "--json"))
    assert (shown["state"], shown["digest_type"], shown["entries"]) == ("CLOSED", "CRC32C", EACH)
    assert shown["custom"]["application"] == "pulsar"
    assert len(of_json(run("ledger", "read", second, "--json"))) == EACH
    with client.open_ledger(first) as one, client.open_ledger(second) as other:
        assert messages(read_all(one) + read_all(other)) == [f"message {number}" for number in range(2 * EACH)]
    frame = spark.read.format("bookkeeper").options(metadata=metadata_uri, ledger=second).load().orderBy("entry_id")
    payloads = [bytes(row.payload) for row in frame.collect()]
    assert messages(payloads) == [f"message {number}" for number in range(EACH, 2 * EACH)]


def test_nothing_of_ours_takes_the_open_ledger_from_its_broker(
    topic: Peer, client: BookKeeper, metadata_uri: str, run: Run, spark: SparkSession
) -> None:
    before = ledgers(topic)
    opened = before[-1]
    for words in (
        ("ledger", "show", opened),
        ("ledger", "list"),
        ("ledger", "read", opened),
        ("doctor",),
        ("orphans", "sweep"),
    ):
        code, _, problem = run(*words)
        assert code == 0, (words, problem)
    for word in ("recover", "delete"):
        code, _, problem = run("ledger", word, opened)
        assert code != 0
        assert "pulsar" in problem
    with pytest.raises(ConfigError, match="pulsar"):
        client.open_ledger(opened)
    with pytest.raises(ConfigError, match="pulsar"):
        client.delete_ledger(opened, force=True)
    with client.open_ledger(opened, recover=False) as reader:
        seen = messages(read_all(reader))
    frame = spark.read.format("bookkeeper").options(metadata=metadata_uri, ledger=opened).load().orderBy("entry_id")
    assert messages([bytes(row.payload) for row in frame.collect()]) == seen
    assert seen == [f"message {number}" for number in range(2 * EACH, 2 * EACH + len(seen))]
    assert topic.ask("send", 3) == {"sent": SENT + 3}
    assert ledgers(topic) == before
    with client.open_ledger(opened, recover=False) as reader:
        assert messages(read_all(reader))[: len(seen) + 3] == [
            f"message {number}" for number in range(2 * EACH, 2 * EACH + len(seen) + 3)
        ]
