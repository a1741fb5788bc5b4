"""``log compact``, its tasks run in this process: what it takes, keeps, commits and refuses. What Spark does for it is in
tests/spark/jobs. Ref: docs/rules.md, log rules 4 and 6."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

import bk_spark
from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.jobs import compact_log as compaction
from bk_spark.datasource.jobs.compact_log import CompactionReport, compact_log
from bk_spark.datasource.jobs.spark_job import SparkJob
from bk_spark.datasource.read.read_task import Reading
from bk_spark.datasource.write.task_attempt import Attempt
from bk_spark.errors import (
    BookKeeperError,
    ConfigError,
    JobEndedError,
    JobFailedError,
    MetadataConflictError,
    NoSuchLogError,
    UnauthorizedAccessError,
)
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Totals
from tests.cluster.datasource.direct import Direct
from tests.cluster.small_commits import SCHEMA, entry_ledgers, one_row_commits

Compact = Callable[..., CompactionReport]


@pytest.fixture
def compact(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> Compact:
    """``compact_log`` on the cluster. Each task is pickled on its way, as Spark does."""
    monkeypatch.setattr(SparkJob, "run", _run_here)
    return partial(compact_log, None, direct.uri)


def _run_here(job: SparkJob, spark: None, count: int) -> list[Row]:
    sent = pickle.dumps(job.task)
    try:
        return [Row(**row) for number in range(count) for row in pickle.loads(sent)(number)]
    except BookKeeperError as problem:
        raise JobFailedError(job.what, str(problem), job.consequence) from None


def expected(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"row {number}"} for number in range(first, first + count)]


def numbers(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": ids})


def payloads_of(direct: Direct, log: str) -> list[bytes]:
    return direct.column(log, "payload", content="entries")


def test_what_is_appended_meanwhile_stays_and_a_second_compaction_takes_it(compact, direct, bookkeeper, log, monkeypatch):
    """Log rule 4: a commit removes exactly what it names."""
    one_row_commits(bookkeeper, log, 0, 6)
    real = compaction._Compaction._commit

    def append_first(self, stretches, jobs, ledgers):
        one_row_commits(bookkeeper, log, 6, 1)
        return real(self, stretches, jobs, ledgers)

    with monkeypatch.context() as patch:
        patch.setattr(compaction._Compaction, "_commit", append_first)
        assert compact(log).removed == Totals(6, 6, report_bytes(bookkeeper, log, 6))
    assert len(bookkeeper.logs.reader.snapshot(log).ledgers) == 2
    assert compact(log).removed.ledgers == 2
    assert direct.read(log) == expected(0, 7)
    nothing = compact(log)
    assert (nothing.commits, nothing.removed) == (0, Totals())


def report_bytes(bookkeeper: BookKeeper, log: str, version: int) -> int:
    return sum(one.length for one in bookkeeper.logs.reader.snapshot(log, version).ledgers)


def test_a_truncation_meanwhile_makes_it_begin_anew_and_leaves_nothing_behind(compact, direct, bookkeeper, log, monkeypatch):
    """Log rule 4."""
    one_row_commits(bookkeeper, log, 0, 6)
    listed = bookkeeper.logs.reader.snapshot(log).ledgers
    real = compaction._Compaction._commit
    written = []

    def truncate_first(self, stretches, jobs, ledgers):
        written.extend(one.ledger_id for some in ledgers for one in some)
        if len(written) == 1:
            bookkeeper.logs.truncate(log, bookkeeper.logs.names.uid(log), listed[2].ledger_id)
        return real(self, stretches, jobs, ledgers)

    monkeypatch.setattr(compaction._Compaction, "_commit", truncate_first)
    report = compact(log)
    assert (report.commits, report.removed.ledgers) == (1, 4)
    assert direct.read(log) == expected(2, 4)
    assert [one.ledger_id for one in bookkeeper.existing_ledgers(written)] == written[1:]


def test_it_gives_up_clearly_where_the_log_keeps_changing(compact, direct, bookkeeper, log, monkeypatch):
    one_row_commits(bookkeeper, log, 0, 6)
    real = compaction._Compaction._commit

    def truncate_first(self, stretches, jobs, ledgers):
        second = bookkeeper.logs.reader.snapshot(log).ledgers[1].ledger_id
        bookkeeper.logs.truncate(log, bookkeeper.logs.names.uid(log), second)
        return real(self, stretches, jobs, ledgers)

    monkeypatch.setattr(compaction._Compaction, "_commit", truncate_first)
    with pytest.raises(MetadataConflictError, match=log):
        compact(log)
    assert direct.read(log) == expected(3, 3)


def test_entries_are_copied_in_their_order(compact, direct, bookkeeper, log):
    payloads = entry_ledgers(bookkeeper, log, [3, 0, 1, 4])
    report = compact(log)
    assert (report.removed.ledgers, report.added.ledgers, report.added.rows) == (4, 1, 8)
    read = direct.read(log, content="entries")
    assert [row["payload"] for row in read] == payloads
    assert [row["entry_id"] for row in read] == list(range(8))


def test_ledgers_without_rows_are_compacted_away(compact, direct, bookkeeper, log):
    entry_ledgers(bookkeeper, log, [0, 0])
    report = compact(log)
    assert (report.commits, report.removed.ledgers, report.added.ledgers) == (1, 2, 0)
    assert bookkeeper.logs.reader.snapshot(log).ledgers == ()


def test_large_neighbours_stay_and_each_stretch_is_a_commit(compact, direct, bookkeeper, log):
    payloads = entry_ledgers(bookkeeper, log, [1, 1, 30, 1, 1])
    report = compact(log, target_bytes=400)
    assert (report.commits, report.removed.ledgers, report.added.ledgers) == (2, 4, 2)
    assert [one.rows for one in bookkeeper.logs.reader.snapshot(log).ledgers] == [2, 30, 2]
    assert payloads_of(direct, log) == payloads
    assert {one.kind for one in bookkeeper.logs.reader.all_versions(log)[-2:]} == {CommitKind.COMPACT}


def test_neighbouring_groups_are_one_commit_and_keep_their_order(compact, direct, bookkeeper, log):
    payloads = entry_ledgers(bookkeeper, log, [1] * 8)
    report = compact(log, target_bytes=20)
    assert (report.commits, report.removed.ledgers, report.added.ledgers) == (1, 8, 4)
    assert payloads_of(direct, log) == payloads


def test_new_ledgers_are_like_the_newest_one_and_options_change_that(compact, direct, bookkeeper, log):
    for number in range(4):
        direct.write(log, numbers(number), writeQuorum=2, ackQuorum=1, digestType="HMAC", password="secret")
    with pytest.raises(UnauthorizedAccessError):
        compact(log)
    compact(log, options={"password": "secret"})
    [merged] = bookkeeper.logs.reader.snapshot(log).ledgers
    metadata = bookkeeper.ledger_metadata(merged.ledger_id)
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 2, 1)
    assert (metadata.digest_type.name, metadata.password) == ("HMAC", b"secret")
    direct.write(log, numbers(4), password="secret")
    compact(log, options={"password": "secret", "writeQuorum": "3", "ackQuorum": "3"})
    [merged] = bookkeeper.logs.reader.snapshot(log).ledgers
    assert bookkeeper.ledger_metadata(merged.ledger_id).ack_quorum == 3
    assert direct.column(log, password="secret") == list(range(5))


def test_a_ledger_that_does_not_hold_what_the_log_lists_stops_it(compact, direct, bookkeeper, log):
    one_row_commits(bookkeeper, log, 0, 2)
    job = bookkeeper.logs.jobs.begin(log)
    [first, _] = bookkeeper.logs.reader.snapshot(log).ledgers
    with bookkeeper.create_ledger(job=job) as writer:
        [batch] = bookkeeper.open_ledger(first.ledger_id).read(0, 0)
        writer.append_batch(batch.column("payload"))
    wrong = CommittedLedger(writer.ledger_id, 0, writer.length, rows=7)
    bookkeeper.logs.commit(job, CommitRequest(CommitKind.APPEND, (wrong,), schema_json=SCHEMA.json()))
    with pytest.raises(JobFailedError, match="they hold 3 rows, the log lists 9"):
        compact(log)
    assert len(bookkeeper.logs.reader.snapshot(log).ledgers) == 3


def test_an_attempt_that_loses_or_comes_late_leaves_nothing(compact, direct, bookkeeper, log, monkeypatch):
    """Log rule 1: a speculative attempt ends before the commit, another one begins after it."""
    one_row_commits(bookkeeper, log, 0, 3)
    snapshot = bookkeeper.logs.reader.snapshot(log)
    real = compaction._Compaction._commit
    attempts = []

    def another_attempt_first(self, stretches, jobs, ledgers):
        reading, writing = Reading(self._options.reading(snapshot), SCHEMA), self._options.writing(snapshot)
        task = compaction._Task(stretches[0].groups[0], reading, Attempt(writing, jobs[0], SCHEMA))
        attempts.extend([task, task.run()])
        return real(self, stretches, jobs, ledgers)

    monkeypatch.setattr(compaction._Compaction, "_commit", another_attempt_first)
    compact(log)
    late, loser = attempts
    [listed] = bookkeeper.logs.reader.snapshot(log).ledgers
    assert loser.rows == listed.rows == 3
    assert loser.ledger_id != listed.ledger_id
    assert bookkeeper.existing_ledgers([loser.ledger_id]) == []
    with pytest.raises(JobEndedError):
        late.run()


def test_a_log_or_option_that_is_not_there_is_refused(compact, direct, log):
    with pytest.raises(NoSuchLogError):
        compact(log)
    with pytest.raises(ConfigError, match="versionAsOf"):
        compact(log, options={"versionAsOf": "1"})
    direct.write(log, numbers(0))
    with pytest.raises(ConfigError, match="target_bytes"):
        compact(log, target_bytes=0)


def test_it_is_what_users_import():
    assert bk_spark.compact_log is compact_log
