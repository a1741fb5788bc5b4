"""``bk-spark orphans``, run for real. Ref: docs/rules.md, log rule 1."""

from __future__ import annotations

from bk_spark.cli import main


def left_behind(client, log):
    """A write whose driver was killed."""
    job = client.logs.jobs.begin(log)
    writer = client.create_ledger(job=job)
    writer.append(b"never seen")
    writer.close()
    return job, writer.ledger_id


def of(records, job):
    return [(one["kind"], one["ledger_ids"]) for one in records if one["job"] == job.job_id]


def test_a_killed_write_is_listed_then_swept_and_a_younger_one_is_neither(run, fails, client, log, capsys):
    job, ledger_id = left_behind(client, log)
    assert of(run("orphans", "list"), job) == []
    assert of(run("orphans", "sweep"), job) == []
    assert of(run("orphans", "list", "--older-than-s", "0"), job) == [("running job", [ledger_id])]
    assert [one.ledger_id for one in client.existing_ledgers([ledger_id])] == [ledger_id]
    assert of(run("orphans", "sweep", "--older-than-s", "0"), job) == [("running job", [ledger_id])]
    assert client.existing_ledgers([ledger_id]) == []
    assert main(["orphans", "sweep"]) == 0
    assert "0 orphans were removed, with 0 ledgers" in capsys.readouterr().err
    assert "not a whole number" in fails(2, "orphans", "list", "--older-than-s", "x")
    assert "the age of orphans" in fails(1, "orphans", "list", "--older-than-s", str(10**12))
