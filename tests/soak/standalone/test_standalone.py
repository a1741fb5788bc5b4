"""Several executors on two hosts: speculation, lost executors, a lost driver. Each row once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster
from tests.soak.standalone.standalone import HOSTS, Application, kill, running_application
from tests.unit.datasource.batches import wait_until

pytestmark = pytest.mark.timeout(300)
"""Six JVMs start and work at once: on a quiet machine with two cores all tests take a minute together."""


@pytest.fixture(scope="module")
def application(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    with running_application(cluster.metadata_uri, tmp_path_factory.mktemp("standalone")) as one:
        yield one


def give(application: Application, log: str, batches: int, rows: int, first: int = 0) -> Path:
    """Files for a stream into ``log``: one a batch."""
    directory = application.directory / f"{log}-in"
    directory.mkdir()
    for n in range(batches):
        lines = (f'{{"id": {i}, "text": "{"x" * 500}"}}\n' for i in range(first + n * rows, first + (n + 1) * rows))
        (directory / f"{n:03}.json").write_text("".join(lines))
    return directory


def held(logs, log: str) -> list[int]:
    return sorted(row.id for row in logs.read(log, "id bigint").collect())


def listed(bookkeeper: BookKeeper, log: str) -> set[int]:
    return {one.ledger_id for one in bookkeeper.logs.reader.snapshot(log).ledgers}


def test_a_batch_is_written_and_read_by_executors_on_two_hosts_in_log_order(application: Application, log) -> None:
    found = application.run("write_and_read", log)
    assert found["hosts"] == sorted({*HOSTS})
    assert found["partitions"] > 2
    assert found["ids"] == list(range(20_000))


def test_a_task_that_fails_and_is_retried_leaves_each_row_once(application, logs, bookkeeper: BookKeeper, log) -> None:
    """In a batch write, and in a stream."""
    before = set(bookkeeper.list_ledgers())
    give(application, log, 2, 3000, first=6000)
    application.run("retry", log)
    assert held(logs, log) == list(range(12_000))
    assert set(bookkeeper.list_ledgers()) - before == listed(bookkeeper, log)


def test_a_slow_attempt_that_ends_after_the_commit_adds_nothing_and_leaves_nothing(application, logs, bookkeeper, log) -> None:
    """Log rule 1: Spark ran a second attempt on the other host, and committed that one's rows."""
    before = set(bookkeeper.list_ledgers())
    application.run("speculate", log)
    assert (application.directory / "ended-1").read_text() == "returned"
    assert (application.directory / "ended-0").read_text() == "failed"
    assert held(logs, log) == list(range(8000))
    assert set(bookkeeper.list_ledgers()) - before == listed(bookkeeper, log)


def test_an_executor_that_is_killed_within_a_batch_of_a_stream_leaves_each_row_once(application, logs, bookkeeper, log) -> None:
    before = set(bookkeeper.list_ledgers())
    give(application, log, 3, 3000)
    application.begin("lose_an_executor", log)
    victim = application.directory / "victim"
    wait_until(victim.exists, 120)
    for process_id in json.loads(victim.read_text()):
        kill(process_id)
    application.result()
    wait_until(lambda: len(list(application.directory.glob("127.0.0.*/app-*/*"))) == 3)  # a third executor took its place
    assert held(logs, log) == list(range(9000))
    assert [version.added.rows for version in bookkeeper.logs.reader.all_versions(log)] == [3000, 3000, 3000]
    assert set(bookkeeper.list_ledgers()) - before == listed(bookkeeper, log)


def test_a_driver_that_is_killed_after_the_sink_s_commit_repeats_the_batch_and_each_row_is_there_once(
    application, logs, bookkeeper, log, cluster
) -> None:
    """Log rule 5. The last test of this application."""
    before = set(bookkeeper.list_ledgers())
    directory = give(application, log, 3, 3000)
    application.begin("stop_after_the_commit", log)
    wait_until((application.directory / "committed").exists, 120)
    application.kill()
    checkpoint = application.directory / f"{log}-checkpoint"
    assert not (checkpoint / "commits" / "1").exists()
    assert held(logs, log) == list(range(6000))

    files = logs.spark.readStream.schema("id bigint, text string").option("maxFilesPerTrigger", 1).json(str(directory))
    sink = files.writeStream.format("bookkeeper").option("metadata", cluster.metadata_uri)
    sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(log).awaitTermination(120)
    assert (checkpoint / "commits" / "2").exists()
    assert held(logs, log) == list(range(9000))
    assert [version.application[1] for version in bookkeeper.logs.reader.all_versions(log)] == [0, 1, 2]
    assert set(bookkeeper.list_ledgers()) - before == listed(bookkeeper, log)
