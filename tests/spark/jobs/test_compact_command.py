"""``bk-spark log compact``: where a Spark session runs already, it takes that one; else it starts one and ends it."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from bk_spark.cli import main
from bk_spark.datasource.jobs.spark_job import session
from tests.cluster.small_commits import one_row_commits


def test_the_command_compacts_a_log_with_spark_and_says_what_it_did(spark, logs, bookkeeper, log, capsys) -> None:
    one_row_commits(bookkeeper, log, 0, 4)
    capsys.readouterr()
    assert main(["log", "compact", log, "--json", "--target-bytes", "1m", "--metadata", logs.uri]) == 0
    said = capsys.readouterr()
    [record] = [json.loads(line) for line in said.out.splitlines()]
    assert (record["commits"], record["removed_ledgers"], record["added_ledgers"], record["rows"]) == (1, 4, 1, 4)
    assert "\r" not in said.err
    snapshot = bookkeeper.logs.reader.snapshot(log)
    assert sum(one.last_entry_id + 1 for one in snapshot.ledgers) == 1
    assert sorted(tuple(row) for row in logs.read(log).collect()) == [(number, f"row {number}") for number in range(4)]


def test_a_session_of_a_command_is_ended_unless_it_was_there_before(spark, monkeypatch) -> None:
    ended = []
    monkeypatch.setattr(SparkSession, "stop", lambda self: ended.append(self))
    with session("local[1]", show_progress=False) as found:
        assert found.range(3).count() == 3
    assert ended == []
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with session("local[1]", show_progress=False) as own:
        assert own.range(3).count() == 3
        assert ended == []
    assert ended == [own]
