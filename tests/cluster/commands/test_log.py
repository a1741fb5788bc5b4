"""``bk-spark log …``, run for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest

from bk_spark.cli import main
from bk_spark.commands.output import ProgressBar
from bk_spark.datasource.jobs import spark_job
from bk_spark.log.stored.by_key.settings import KeyCompaction
from tests.checkout import ROOT
from tests.cluster.small_commits import entry_ledgers, one_row_commits


def listed(client, log):
    return [one.ledger_id for one in client.logs.reader.snapshot(log).ledgers]


def test_show_tells_state_commits_ledgers_and_retention(run, client, log, capsys):
    entry_ledgers(client, log, [3, 1])
    with client.open_log(log).open_writer() as writer:
        writer.append(b"x")
        [shown] = run("log", "show", log)
        opened = writer.ledger_id
    assert (shown["version"], shown["ledgers"], shown["open"], shown["rows"], shown["epoch"]) == (3, 2, 1, 4, 1)
    assert (shown["open_ledgers"], shown["oldest_version"], shown["end_row"]) == ([opened], 0, 4)
    assert (shown["version_retention_s"], shown["retention_s"], shown["retention_bytes"]) == (604800, None, None)
    assert [(one["kind"], one["rows"]) for one in shown["commits"]] == [("append", 3), ("append", 1), ("append", 0)]
    assert [one["state"] for one in shown["in_ledgers"]] == ["closed", "closed", "open"]
    assert shown["cursors"] == []
    [short] = run("log", "show", log, "--limit", "1")
    assert (len(short["commits"]), len(short["in_ledgers"])) == (1, 1)
    assert main(["log", "show", log, "--limit", "1"]) == 0
    out, err = capsys.readouterr()
    assert "newest commits:" in out
    assert "--limit N shows more" in err


def test_list_counts_open_ledgers_too(run, client, log):
    entry_ledgers(client, log, [3, 1])
    [record] = [one for one in run("log", "list") if one["log"] == log]
    assert (record["content"], record["version"], record["ledgers"], record["open"], record["rows"]) == ("entries", 2, 2, 0, 4)


def test_truncate_removes_what_lies_before_and_says_how_much(run, fails, client, log):
    entry_ledgers(client, log, [3, 2, 1])
    first, second, third = listed(client, log)
    [report] = run("log", "truncate", log, "--before", f"{second}:1")
    assert (report["removed_ledgers"], report["removed_rows"], report["rows"]) == (1, 3, 3)
    assert listed(client, log) == [second, third]
    [report] = run("log", "truncate", log, "--before", str(second))
    assert (report["removed_ledgers"], report["removed_rows"]) == (0, 0)
    assert f"does not list ledger {first}" in fails(1, "log", "truncate", log, "--before", str(first))
    assert f"--before is '{third + 10**6}:0'" in fails(1, "log", "truncate", log, "--before", str(third + 10**6))
    for wrong in ("x", "1:y", "-1", "1:2:3"):
        assert "LEDGER:ENTRY" in fails(2, "log", "truncate", log, f"--before={wrong}")


def test_set_changes_what_is_given_and_keeps_the_rest(run, fails, client, log):
    entry_ledgers(client, log, [1])
    [first] = run("log", "set", log, "--version-retention-s", "60", "--retention-bytes", "10m")
    assert first == {"log": log, "version_retention_s": 60, "retention_s": None, "retention_bytes": 10 << 20}
    [second] = run("log", "set", log, "--retention-s", "3600", "--retention-bytes", "none")
    assert second == {"log": log, "version_retention_s": 60, "retention_s": 3600, "retention_bytes": None}
    assert run("log", "show", log)[0]["version_retention_s"] == 60
    assert "give at least one of --version-retention-s" in fails(2, "log", "set", log)
    assert "not a whole number" in fails(2, "log", "set", log, "--retention-s", "1.5")
    assert "not a size" in fails(2, "log", "set", log, "--retention-bytes", "10x")
    assert "not a whole number" in fails(2, "log", "set", log, "--version-retention-s", "none")


def test_vacuum_applies_the_retention(run, client, log):
    entry_ledgers(client, log, [3, 2, 1])
    old = listed(client, log)
    run("log", "set", log, "--version-retention-s", "0", "--retention-bytes", "1")
    [first], [second] = (
        run("log", "vacuum", log),
        run("log", "vacuum", log),
    )  # the first may be within the millisecond of its truncation
    assert (first["log"], first["truncated_ledgers"], second["truncated_ledgers"]) == (log, 2, 0)
    assert first["deleted_ledgers"] + second["deleted_ledgers"] == 2
    assert second["oldest_version"] == client.logs.reader.snapshot(log).version
    assert listed(client, log) == old[2:]
    assert [one.ledger_id for one in client.existing_ledgers(old)] == old[2:]


def test_vacuum_takes_one_log_or_all(run, fails, client, log):
    entry_ledgers(client, log, [1])
    entry_ledgers(client, log + "-too", [1])
    assert {log, log + "-too"} <= {one["log"] for one in run("log", "vacuum", "--all")}
    assert "give the name of one log, or --all" in fails(2, "log", "vacuum")
    assert "give the name of one log, or --all" in fails(2, "log", "vacuum", log, "--all")
    assert "there is no log 'nothing'" in fails(1, "log", "vacuum", "nothing")


def test_recover_closes_what_a_writer_left_open(run, client, log, capsys):
    writer = client.open_log(log, create=True).open_writer()
    writer.append(b"confirmed")
    [report] = run("log", "recover", log)
    assert report == {"log": log, "closed_ledgers": [writer.ledger_id], "rows": 1}
    [again] = run("log", "recover", log)
    assert again["closed_ledgers"] == []
    assert listed(client, log) == [writer.ledger_id]


def test_secure_gives_later_ledgers_keys_and_says_which_have_none(run, fails, client, log, capsys):
    one_row_commits(client, log, 0, 2)
    [first] = run("log", "secure", log)
    assert first == {"log": log, "was_secured": False, "ledgers": 2, "ledgers_without_key": 2}
    one_row_commits(client, log, 2, 1)
    [again] = run("log", "secure", log)
    assert (again["was_secured"], again["ledgers"], again["ledgers_without_key"]) == (True, 3, 2)
    [shown] = run("log", "show", log)
    assert shown["secured"] is True
    [*_, newest] = client.ledger_metadata_many(listed(client, log))
    assert newest.is_keyed
    assert "there is no log 'nothing'" in fails(1, "log", "secure", "nothing")


@pytest.mark.nightly(
    held_by="tests/spark/jobs/test_compact_command.py::test_the_command_compacts_a_log_with_spark_and_says_what_it_did, "
    "tests/spark/jobs/test_compact_command.py::test_a_session_of_a_command_is_ended_unless_it_was_there_before"
)
@pytest.mark.timeout(240)
def test_compact_runs_spark_by_itself_and_says_what_it_did(run, client, cluster, log):
    one_row_commits(client, log, 0, 4)
    record = compact(cluster, log, "--master", "local[1]", "--target-bytes", "1m")
    assert (record["commits"], record["removed_ledgers"], record["added_ledgers"], record["rows"]) == (1, 4, 1, 4)
    [shown] = run("log", "show", log)
    assert (shown["commits"][-1]["kind"], shown["rows"]) == ("compact", 4)


def test_compact_refuses_what_is_wrong_before_spark_starts(fails, client, log, monkeypatch):
    def started(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(spark_job, "session", started)
    one_row_commits(client, log, 0, 1)
    assert "there is no log 'nothing'" in fails(1, "log", "compact", "nothing")
    assert "not a size" in fails(2, "log", "compact", log, "--target-bytes", "x")
    assert "1 byte at least" in fails(2, "log", "compact", log, "--target-bytes", "0")


@pytest.fixture
def keyed(client, log):
    """Three commits of twenty rows of five keys; the newest rows of key 4 remove it."""
    opened = client.open_log(log, create=True)
    for first in (0, 20, 40):
        numbers = list(range(first, first + 20))
        rows = {"key": [one % 5 for one in numbers], "n": numbers, "gone": [one % 5 == 4 for one in numbers]}
        opened.append_rows(pa.table(rows), partition_key="key")
    return opened


def kept(log):
    return sorted(log.read_rows().read_all().column("n").to_pylist())


def test_compact_by_key_needs_no_spark_and_says_what_it_removed(run, log, keyed, monkeypatch, capsys):
    monkeypatch.setattr(spark_job, "session", lambda *_, **__: pytest.fail("Spark was started"))
    [report] = run("log", "compact", log, "--by-key", "--deleted-by", "gone", "--tombstones-kept-s", "0")
    assert (report["commits"], report["rows"], report["removed_rows"]) == (1, 4, 56)
    assert kept(keyed) == [55, 56, 57, 58]
    [shown] = run("log", "show", log)
    assert (shown["commits"][-1]["kind"], shown["rows"], shown["first_row"], shown["end_row"]) == ("compact-keys", 4, 0, 60)
    capsys.readouterr()
    assert run("log", "compact", log, "--by-key")[0]["commits"] == 0
    assert main(["log", "compact", log, "--by-key"]) == 0
    assert f"nothing to do in log '{log}': no key has an older row that may go" in capsys.readouterr().err


def test_set_says_how_compact_goes_by_key_from_then_on(run, fails, log, keyed, monkeypatch):
    monkeypatch.setattr(spark_job, "session", lambda *_, **__: pytest.fail("Spark was started"))
    [told] = run("log", "set", log, "--compaction", "key", "--min-compaction-age-s", "3600", "--deleted-by", "gone")
    setting = {"compaction": "key", "deleted_by": "gone", "min_compaction_age_s": 3600, "tombstones_kept_s": 86400}
    assert setting.items() <= told.items()
    assert setting.items() <= run("log", "show", log)[0].items()
    assert run("log", "compact", log)[0]["commits"] == 0
    assert run("log", "compact", log, "--min-compaction-age-s", "0")[0]["rows"] == 5
    run("log", "set", log, "--tombstones-kept-s", "0", "--deleted-by", "none")
    assert keyed.compaction == KeyCompaction(None, 3600, 0)
    run("log", "set", log, "--compaction", "none")
    assert keyed.compaction is None
    assert "compaction" not in run("log", "show", log)[0]
    for given in (["set", log], ["compact", log]):
        assert "--tombstones-kept-s say how a log is compacted by key" in fails(2, "log", *given, "--tombstones-kept-s", "1")
    assert "leave it out" in fails(2, "log", "compact", log, "--by-key", "--target-bytes", "1m")
    assert "only a boolean" in fails(1, "log", "set", log, "--compaction", "key", "--deleted-by", "n")
    assert "invalid choice" in fails(2, "log", "set", log, "--compaction", "keys")
    assert "--compaction" in fails(2, "log", "set", log)


def compact(cluster, log, *more):
    """In a process of its own: it stops the Spark session that it starts."""
    environment = {**os.environ, "BK_SPARK_METADATA": cluster.metadata_uri, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "bk_spark.cli", "log", "compact", log, "--json", *more]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=230, check=False)
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stderr
    [line] = done.stdout.splitlines()
    return json.loads(line)


def test_a_progress_bar_is_drawn_on_a_terminal_alone(capsys, monkeypatch):
    with ProgressBar(redraw_s=0) as bar:
        bar.show("done", 1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with ProgressBar(redraw_s=0) as bar:
        bar.show("ledgers deleted", 1, 2)
        bar.show("ledgers deleted", 2, 2)
    drawn = capsys.readouterr().err
    assert "ledgers deleted  [###############...............]  1 of 2" in drawn
    assert drawn.endswith("\r")


@pytest.mark.parametrize("command", ["truncate", "compact", "vacuum", "set", "recover", "show"])
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["log", command, "--help"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out) > 300
