"""Re-replication of a lost bookie as a Spark job, with real bookies (protocol rules 53 to 56, situation 76)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from bk_spark.bookkeeper import BookKeeper
from bk_spark.cli import main
from bk_spark.config import ClientConfig
from bk_spark.datasource.jobs import spark_job
from bk_spark.datasource.jobs.rereplication import ReplicationReport, replicate_with_spark
from bk_spark.errors import ConfigError
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalBookie, LocalCluster
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.settings import AutoRecoveryConfig
from tests.unit.datasource.batches import wait_until

LEDGERS = 60
QUICK = AutoRecoveryConfig(open_fragment_grace_s=1.0)
CONFIG = ClientConfig(session_timeout_s=2.0)


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[LocalCluster]:
    """Its bookies are killed for good: tests take the one that joined last, after they added one."""
    with LocalCluster(bookies=3, bookie_config=replace(DEFAULT_BOOKIE_CONFIG, session_timeout_s=2.0)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(own_cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(own_cluster.metadata_uri, CONFIG) as client:
        yield client


def _filled(client: BookKeeper, count: int, striped: bool = False) -> dict[int, list[bytes]]:
    """Closed ledgers of 0 to 3 entries, and what is in them."""
    written = {}
    for number in range(count):
        with client.create_ledger(*((3, 2, 2) if striped else (3, 3, 2))) as writer:
            payloads = [b"%d-%d" % (number, place) * 50 for place in range(number % 4)]
            if payloads:
                writer.append_batch(payloads)
        written[writer.ledger_id] = payloads
    return written


def _naming(client: BookKeeper, bookie_id: str) -> list[int]:
    listed = list(client.list_ledgers())
    return [one.ledger_id for one in client.existing_ledgers(listed) if bookie_id in one.bookies]


def _read(client: BookKeeper, ledger_id: int) -> list[bytes]:
    with client.open_ledger(ledger_id) as reader:
        if reader.last_add_confirmed < 0:
            return []
        return [one for batch in reader.read(0, reader.last_add_confirmed) for one in batch.column("payload").to_pylist()]


def _kill(client: BookKeeper, bookie: LocalBookie) -> None:
    bookie.kill()
    wait_until(lambda: all(one.bookie_id != bookie.bookie_id for one in client.list_bookies()))


def _replicate(spark: SparkSession, cluster: LocalCluster, bookie_id: str) -> ReplicationReport:
    return replicate_with_spark(spark, cluster.metadata_uri, bookie_id, config=CONFIG, recovery=QUICK)


def test_all_that_a_killed_bookie_held_is_copied_until_no_ledger_names_it(
    spark: SparkSession, own_cluster: LocalCluster, client: BookKeeper
) -> None:
    """With ledgers that have no entries, striped ones, an open one whose writer stands still, and marks of an audit."""
    lost = own_cluster.add_bookie()
    written = {**_filled(client, LEDGERS), **_filled(client, 20, striped=True)}
    writer = client.create_ledger(3, 3, 3)  # what is confirmed is on the lost bookie too: its writer replaces nobody
    while lost.bookie_id not in writer.metadata.last_fragment.ensemble:
        writer.close()
        writer = client.create_ledger(3, 3, 3)
    writer.append(b"of an open ledger")
    written[writer.ledger_id] = [b"of an open ledger"]
    _kill(client, lost)
    named = _naming(client, lost.bookie_id)
    marks = UnderReplication(client.metadata_store, client.znodes)
    marks.mark_many({named[0]: [lost.bookie_id], named[1]: [lost.bookie_id, "somebody-else"]})

    with pytest.raises(ConfigError, match="it has no cookie"):
        _replicate(spark, own_cluster, "no-such-bookie")
    report = _replicate(spark, own_cluster, lost.bookie_id)

    assert (report.problems, report.ledgers) == ((), len(named))
    assert report.nbytes > 0
    assert _naming(client, lost.bookie_id) == []
    assert [mark.ledger_id for mark in marks.marks()] == [named[1]]
    assert marks.locks() == {}
    assert client.ledger_metadata(writer.ledger_id).is_closed
    for other in own_cluster.bookies[:1]:  # all entries are on the write quorum that the metadata names: one more may go
        other.stop()
        try:
            assert {ledger_id: _read(client, ledger_id) for ledger_id in written} == written
        finally:
            other.start()
    again = _replicate(spark, own_cluster, lost.bookie_id)
    assert (again.ledgers, again.rounds, again.problems) == (0, 0, ())


def test_ledgers_that_somebody_else_has_locked_are_waited_for(
    spark: SparkSession, own_cluster: LocalCluster, client: BookKeeper
) -> None:
    """Situation 83. As tasks that were killed leave them, whose locks go with their sessions."""
    lost = own_cluster.add_bookie()
    _filled(client, 12)
    _kill(client, lost)
    named = _naming(client, lost.bookie_id)
    with BookKeeper(own_cluster.metadata_uri, CONFIG) as other:
        marks = UnderReplication(other.metadata_store, other.znodes)
        assert all(marks.try_lock(ledger_id, "somebody else") for ledger_id in named)
        told: list[str] = []

        def tell(what: str, done: int, total: int) -> None:
            told.append(what)
            if what == "ledgers":
                for ledger_id in named:  # after the first round
                    marks.unlock(ledger_id)

        config = ClientConfig(session_timeout_s=1.0)
        report = replicate_with_spark(spark, own_cluster.metadata_uri, lost.bookie_id, config=config, recovery=QUICK, tell=tell)
    assert (report.problems, report.ledgers, report.rounds) == ((), len(named), 2)
    assert set(told) == {"ledgers", "ledgers looked at"}


def test_a_registered_bookie_is_refused_and_what_cannot_be_copied_is_named(
    spark: SparkSession, own_cluster: LocalCluster, client: BookKeeper
) -> None:
    """Some ledgers need all the bookies that there are: nothing can take the place of one."""
    lost = own_cluster.add_bookie()
    bookies = len(client.list_bookies())
    stuck = []
    for _ in range(5):
        with client.create_ledger(bookies, 2, 2) as writer:
            writer.append(b"x")
        stuck.append(writer.ledger_id)
    with pytest.raises(ConfigError, match="it is registered"):
        _replicate(spark, own_cluster, lost.bookie_id)
    _kill(client, lost)
    report = _replicate(spark, own_cluster, lost.bookie_id)
    assert (report.ledgers, report.rounds, len(report.problems)) == (0, 1, 5)
    assert [f"ledger {ledger_id}" in one for ledger_id, one in zip(stuck, report.problems, strict=True)] == [True] * 5
    for ledger_id in stuck:
        client.delete_ledger(ledger_id)


def test_the_command_copies_with_spark_and_says_what_it_did(
    spark: SparkSession, own_cluster: LocalCluster, client: BookKeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = own_cluster.add_bookie()
    written = _filled(client, 8)
    command = ["replicate", lost.bookie_id, "--metadata", own_cluster.metadata_uri, "--json", "--open-grace-s", "1"]
    assert main(command) == 1
    assert "it is registered" in capsys.readouterr().err
    _kill(client, lost)
    named = _naming(client, lost.bookie_id)
    assert main(command) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["bookie_id"], record["ledgers"], record["problems"]) == (lost.bookie_id, len(named), [])
    assert _naming(client, lost.bookie_id) == []
    assert {ledger_id: _read(client, ledger_id) for ledger_id in written} == written


def test_the_command_refuses_an_unknown_bookie_before_spark_starts(
    own_cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes seconds to start, and prints lines of its own."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(spark_job, "session", started)
    assert main(["replicate", "nobody", "--force", "--metadata", own_cluster.metadata_uri]) == 1
    assert capsys.readouterr().err.startswith("bk-spark: the bookie to re-replicate is 'nobody': no ledger names it")
