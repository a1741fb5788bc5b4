"""``log compact``: the same rows in fewer ledgers, swapped in at once. Ref: docs/rules.md, log rules 4 and 6."""

from __future__ import annotations

import os
import time
from decimal import Decimal

import pyarrow as pa
import pytest

import bk_spark
from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.jobs import compact_log as compaction
from bk_spark.datasource.jobs.compact_log import compact_log
from bk_spark.datasource.read.read_task import Reading
from bk_spark.datasource.write.task_attempt import Attempt
from bk_spark.errors import (
    ConfigError,
    JobEndedError,
    JobFailedError,
    MetadataConflictError,
    NoSuchLogError,
    UnauthorizedAccessError,
)
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Retention, Totals
from bk_spark.rows import conversion
from bk_spark.wire.messages import AdminOperation
from tests.cluster.small_commits import SCHEMA, entry_ledgers, one_row_commits

COMMITS = int(os.environ.get("BK_SPARK_COMPACTION_COMMITS", "120"))
"""More than a vacuum deletes at once. 10,000 for the long form; a hundred take about a second."""


def rows_of(frame):
    return [tuple(row) for row in frame.collect()]


def expected(first, count):
    return [(number, f"row {number}") for number in range(first, first + count)]


def test_many_one_row_commits_become_few_ledgers_with_the_same_rows(spark, logs, bookkeeper, log):
    """Log rules 4 and 8. The old version stays readable until its retention ends; then a vacuum gives the space back."""
    one_row_commits(bookkeeper, log, 0, COMMITS)
    old = bookkeeper.logs.reader.snapshot(log).ledgers
    before = logs.read(log, versionAsOf=COMMITS)
    report = compact_log(spark, logs.uri, log)
    assert (report.commits, report.version) == (1, COMMITS + 1)
    assert (report.removed.ledgers, report.removed.rows, report.added.rows) == (COMMITS, COMMITS, COMMITS)
    snapshot = bookkeeper.logs.reader.snapshot(log)
    assert len(snapshot.ledgers) <= 10
    assert sum(one.last_entry_id + 1 for one in snapshot.ledgers) <= 10
    assert rows_of(logs.read(log)) == expected(0, COMMITS)
    assert rows_of(before) == expected(0, COMMITS)
    assert vacuum(bookkeeper, log).deleted_ledgers == 0
    uid = bookkeeper.logs.names.uid(log)
    bookkeeper.logs.set_retention(log, uid, Retention(version_retention_s=0))
    assert vacuum(bookkeeper, log).deleted_ledgers == COMMITS
    assert bookkeeper.existing_ledgers([one.ledger_id for one in old]) == []
    assert collected(bookkeeper) >= 3 * COMMITS  # each ledger was on three bookies
    assert rows_of(logs.read(log)) == expected(0, COMMITS)
    with pytest.raises(Exception, match=f"the oldest version of log '{log}' that can be read is {COMMITS + 1}"):
        logs.read(log, versionAsOf=COMMITS)


def vacuum(bookkeeper: BookKeeper, log: str):
    return bookkeeper.vacuum_log(log)


def collected(bookkeeper: BookKeeper) -> int:
    """How many ledgers the bookies have forgotten, after two rounds: a ledger must be missing in both."""
    for _ in range(2):
        for bookie in bookkeeper.list_bookies():
            runs = figures(bookkeeper, bookie.bookie_id, AdminOperation.GC_STATUS)["runs"]
            deadline = time.monotonic() + 60
            figures(bookkeeper, bookie.bookie_id, AdminOperation.GC_RUN)
            while figures(bookkeeper, bookie.bookie_id, AdminOperation.GC_STATUS)["runs"] == runs:
                assert time.monotonic() < deadline
    ids = [bookie.bookie_id for bookie in bookkeeper.list_bookies()]
    return sum(figures(bookkeeper, one, AdminOperation.GC_STATUS)["ledgers_deleted"] for one in ids)


def figures(bookkeeper: BookKeeper, bookie_id: str, operation: AdminOperation) -> dict[str, int]:
    return dict(bookkeeper.administer_bookie(bookie_id, operation).figures)


def test_what_is_appended_meanwhile_stays_and_a_second_compaction_takes_it(spark, logs, bookkeeper, log, monkeypatch):
    """Log rule 4: a commit removes exactly what it names."""
    one_row_commits(bookkeeper, log, 0, 6)
    real = compaction._Compaction._commit

    def append_first(self, stretches, jobs, ledgers):
        one_row_commits(bookkeeper, log, 6, 1)
        return real(self, stretches, jobs, ledgers)

    monkeypatch.setattr(compaction._Compaction, "_commit", append_first)
    assert compact_log(spark, logs.uri, log).removed == Totals(6, 6, report_bytes(bookkeeper, log, 6))
    assert len(bookkeeper.logs.reader.snapshot(log).ledgers) == 2
    monkeypatch.undo()
    assert compact_log(spark, logs.uri, log).removed.ledgers == 2
    assert rows_of(logs.read(log)) == expected(0, 7)
    nothing = compact_log(spark, logs.uri, log)
    assert (nothing.commits, nothing.removed) == (0, Totals())


def report_bytes(bookkeeper, log, version):
    return sum(one.length for one in bookkeeper.logs.reader.snapshot(log, version).ledgers)


def test_a_truncation_meanwhile_makes_it_begin_anew_and_leaves_nothing_behind(spark, logs, bookkeeper, log, monkeypatch):
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
    report = compact_log(spark, logs.uri, log)
    assert (report.commits, report.removed.ledgers) == (1, 4)
    assert rows_of(logs.read(log)) == expected(2, 4)
    assert [one.ledger_id for one in bookkeeper.existing_ledgers(written)] == written[1:]


def test_it_gives_up_clearly_where_the_log_keeps_changing(spark, logs, bookkeeper, log, monkeypatch):
    one_row_commits(bookkeeper, log, 0, 6)
    real = compaction._Compaction._commit

    def truncate_first(self, stretches, jobs, ledgers):
        second = bookkeeper.logs.reader.snapshot(log).ledgers[1].ledger_id
        bookkeeper.logs.truncate(log, bookkeeper.logs.names.uid(log), second)
        return real(self, stretches, jobs, ledgers)

    monkeypatch.setattr(compaction._Compaction, "_commit", truncate_first)
    with pytest.raises(MetadataConflictError, match=log):
        compact_log(spark, logs.uri, log)
    assert rows_of(logs.read(log)) == expected(3, 3)


def test_entries_are_copied_in_their_order(spark, logs, bookkeeper, log):
    payloads = entry_ledgers(bookkeeper, log, [3, 0, 1, 4])
    report = compact_log(spark, logs.uri, log)
    assert (report.removed.ledgers, report.added.ledgers, report.added.rows) == (4, 1, 8)
    read = logs.read(log, content="entries").collect()
    assert [bytes(row.payload) for row in read] == payloads
    assert [row.entry_id for row in read] == list(range(8))


def test_ledgers_without_rows_are_compacted_away(spark, logs, bookkeeper, log):
    entry_ledgers(bookkeeper, log, [0, 0])
    report = compact_log(spark, logs.uri, log)
    assert (report.commits, report.removed.ledgers, report.added.ledgers) == (1, 2, 0)
    assert bookkeeper.logs.reader.snapshot(log).ledgers == ()


def test_large_neighbours_stay_and_each_stretch_is_a_commit(spark, logs, bookkeeper, log):
    payloads = entry_ledgers(bookkeeper, log, [1, 1, 30, 1, 1])
    report = compact_log(spark, logs.uri, log, target_bytes=400)
    assert (report.commits, report.removed.ledgers, report.added.ledgers) == (2, 4, 2)
    assert [one.rows for one in bookkeeper.logs.reader.snapshot(log).ledgers] == [2, 30, 2]
    assert [bytes(row.payload) for row in logs.read(log, content="entries").collect()] == payloads
    assert {one.kind for one in bookkeeper.logs.reader.all_versions(log)[-2:]} == {CommitKind.COMPACT}


def test_neighbouring_groups_are_one_commit_and_keep_their_order(spark, logs, bookkeeper, log):
    payloads = entry_ledgers(bookkeeper, log, [1] * 8)
    report = compact_log(spark, logs.uri, log, target_bytes=20)
    assert (report.commits, report.removed.ledgers, report.added.ledgers) == (1, 8, 4)
    assert [bytes(row.payload) for row in logs.read(log, content="entries").collect()] == payloads


def test_rows_of_older_schemas_come_back_in_the_log_s_schema(spark, logs, log):
    logs.write(spark.sql("SELECT 1 AS id"), log)
    logs.write(spark.sql("SELECT 2 AS id, 'x' AS text"), log, mergeSchema=True)
    compact_log(spark, logs.uri, log)
    assert rows_of(logs.read(log)) == [(1, None), (2, "x")]


def test_rows_with_a_wrong_value_are_copied_as_they_are_and_all_else_is_read(spark, logs, bookkeeper, log, monkeypatch):
    """As a program wrote them that did not look at its values."""
    monkeypatch.setattr(conversion, "is_sound", lambda column: True)
    prices = (pa.array([Decimal(one)]).cast(pa.decimal128(4, 2), safe=False) for one in ("1.50", "123.45"))
    for number, price in enumerate(prices):
        bookkeeper.open_log(log, create=True).append_rows(pa.table({"id": [number], "price": price}))
    assert compact_log(spark, logs.uri, log).added.ledgers == 1
    assert rows_of(logs.read(log, "id bigint")) == [(0,), (1,)]
    assert rows_of(logs.read(log, where="price <= 99.99")) == [(0, Decimal("1.50"))]
    with pytest.raises(Exception, match=r"holds 123.45 in column 'price', which no decimal128\(4, 2\) can be"):
        logs.read(log).collect()


def test_new_ledgers_are_like_the_newest_one_and_options_change_that(spark, logs, bookkeeper, log):
    for number in range(4):
        logs.write(spark.range(number, number + 1), log, writeQuorum=2, ackQuorum=1, digestType="HMAC", password="secret")
    with pytest.raises(UnauthorizedAccessError):
        compact_log(spark, logs.uri, log)
    compact_log(spark, logs.uri, log, options={"password": "secret"})
    [merged] = bookkeeper.logs.reader.snapshot(log).ledgers
    metadata = bookkeeper.ledger_metadata(merged.ledger_id)
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 2, 1)
    assert (metadata.digest_type.name, metadata.password) == ("HMAC", b"secret")
    logs.write(spark.range(4, 5), log, password="secret")
    compact_log(spark, logs.uri, log, options={"password": "secret", "writeQuorum": "3", "ackQuorum": "3"})
    [merged] = bookkeeper.logs.reader.snapshot(log).ledgers
    assert bookkeeper.ledger_metadata(merged.ledger_id).ack_quorum == 3
    assert rows_of(logs.read(log, password="secret")) == [(number,) for number in range(5)]


def test_a_failing_task_is_told_in_one_sentence_and_leaves_nothing(spark, logs, bookkeeper, log):
    one_row_commits(bookkeeper, log, 0, 4)
    one_row_commits(bookkeeper, log, 4, 1, password=b"other")
    one_row_commits(bookkeeper, log, 5, 1)
    ledgers = set(bookkeeper.list_ledgers())
    with pytest.raises(JobFailedError, match=f"the compaction of log '{log}' failed.*wrong password for ledger"):
        compact_log(spark, logs.uri, log, target_bytes=1000)  # three groups on two cores: one has done its work
    assert set(bookkeeper.list_ledgers()) == ledgers
    assert len(bookkeeper.logs.reader.snapshot(log).ledgers) == 6


def test_a_ledger_that_does_not_hold_what_the_log_lists_stops_it(spark, logs, bookkeeper, log):
    one_row_commits(bookkeeper, log, 0, 2)
    job = bookkeeper.logs.jobs.begin(log)
    [first, _] = bookkeeper.logs.reader.snapshot(log).ledgers
    with bookkeeper.create_ledger(job=job) as writer:
        [batch] = bookkeeper.open_ledger(first.ledger_id).read(0, 0)
        writer.append_batch(batch.column("payload"))
    wrong = CommittedLedger(writer.ledger_id, 0, writer.length, rows=7)
    bookkeeper.logs.commit(job, CommitRequest(CommitKind.APPEND, (wrong,), schema_json=SCHEMA.json()))
    with pytest.raises(JobFailedError, match="they hold 3 rows, the log lists 9"):
        compact_log(spark, logs.uri, log)
    assert len(bookkeeper.logs.reader.snapshot(log).ledgers) == 3


def test_an_attempt_that_loses_or_comes_late_leaves_nothing(spark, logs, bookkeeper, log, monkeypatch):
    """Log rule 1: a speculative attempt ends before the commit, another one begins after it."""
    one_row_commits(bookkeeper, log, 0, 3)
    snapshot = bookkeeper.logs.reader.snapshot(log)
    real = compaction._Compaction._commit
    attempts = []

    def another_attempt_first(self, stretches, jobs, ledgers):
        reading = Reading(self._reading(snapshot), SCHEMA)
        task = compaction._Task(stretches[0].groups[0], reading, Attempt(self._writing(snapshot), jobs[0], SCHEMA))
        attempts.extend([task, task.run()])
        return real(self, stretches, jobs, ledgers)

    monkeypatch.setattr(compaction._Compaction, "_commit", another_attempt_first)
    compact_log(spark, logs.uri, log)
    late, loser = attempts
    [listed] = bookkeeper.logs.reader.snapshot(log).ledgers
    assert loser.rows == listed.rows == 3
    assert loser.ledger_id != listed.ledger_id
    assert bookkeeper.existing_ledgers([loser.ledger_id]) == []
    with pytest.raises(JobEndedError):
        late.run()


def test_a_log_or_option_that_is_not_there_is_refused(spark, logs, log):
    with pytest.raises(NoSuchLogError):
        compact_log(spark, logs.uri, log)
    with pytest.raises(ConfigError, match="versionAsOf"):
        compact_log(spark, logs.uri, log, options={"versionAsOf": "1"})
    logs.write(spark.range(1), log)
    with pytest.raises(ConfigError, match="target_bytes"):
        compact_log(spark, logs.uri, log, target_bytes=0)


def test_it_is_what_users_import():
    assert bk_spark.compact_log is compact_log
