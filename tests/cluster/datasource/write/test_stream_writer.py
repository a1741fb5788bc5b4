"""The streaming sink without Spark: each batch of a query is in the log once, whatever Spark repeats (log rule 5)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import TaskContext

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.write.writer import (
    BATCH_ID,
    QUERY_ID,
    LedgerMessage,
    StreamWriter,
    application_of,
    begin_batch,
    begin_write,
)
from bk_spark.errors import ConfigError, JobEndedError, MetadataUnavailableError, SchemaMismatchError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.changes.jobs import WriteJobs
from bk_spark.log.log_store import LogStore
from tests.unit.datasource.batches import NUMBERS, numbers, numbers_of

QUERY = "5c8b0d7e-0c56-4f0f-9d0c-8e0fbb6a3f51"
OTHER_QUERY = "a2f3e0aa-7d5e-4f7e-8d36-0a1d6d0a9f00"


class Query:
    """A streaming query as its sink meets it: tasks get a copy of one writer, commit and abort are those of another."""

    def __init__(self, options: SourceOptions, query_id: str = QUERY, *, complete: bool = False) -> None:
        self.options = options
        self.query_id = query_id
        self._complete = complete

    def writer(self) -> StreamWriter:
        return pickle.loads(pickle.dumps(begin_batch(self.options, NUMBERS, self._complete)))

    def task(self, writer: StreamWriter, batch_id: int, *values: int) -> LedgerMessage:
        """One task attempt that writes ``values``."""
        with running(**{QUERY_ID: self.query_id, BATCH_ID: str(batch_id)}):
            return pickle.loads(pickle.dumps(writer.write(iter([numbers(*values)]))))

    def tasks(self, batch_id: int, *values: int) -> list[Any]:
        """The messages of a batch's tasks, one for each value, or of a single task without rows."""
        writer = self.writer()
        return [self.task(writer, batch_id, value) for value in values] or [self.task(writer, batch_id)]

    def batch(self, batch_id: int, *values: int) -> None:
        self.writer().commit(self.tasks(batch_id, *values), batch_id)


class running:
    """A task whose local properties are these."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def __enter__(self) -> None:
        context = TaskContext._getOrCreate()
        context._localProperties = self._properties

    def __exit__(self, *_: object) -> None:
        TaskContext._setTaskContext(None)


@pytest.fixture
def query(cluster: LocalCluster, log: str) -> Query:
    return Query(SourceOptions(metadata=cluster.metadata_uri, path=log))


@pytest.fixture
def before(bookkeeper: BookKeeper) -> set[int]:
    """The ledgers that were there before the test."""
    return set(bookkeeper.list_ledgers())


def leftovers(bookkeeper: BookKeeper, log: str, before: set[int]) -> set[int]:
    """Ledgers that are new, and of no use to the log."""
    listed = {one.ledger_id for one in bookkeeper.logs.reader.snapshot(log).ledgers} if log in bookkeeper.list_logs() else set()
    return set(bookkeeper.list_ledgers()) - before - listed


def test_a_batch_is_committed_as_its_query_s_by_a_writer_that_has_only_the_messages(query, bookkeeper, log) -> None:
    query.batch(0, 1, 2)
    query.batch(1, 3)
    assert numbers_of(bookkeeper, log) == [1, 2, 3]
    applications = [version.application for version in bookkeeper.logs.reader.all_versions(log)]
    assert applications == [(f"spark-stream:{QUERY}", 0), (f"spark-stream:{QUERY}", 1)]
    assert application_of(QUERY) == f"spark-stream:{QUERY}"


def test_an_empty_batch_records_its_id_too(query, bookkeeper, log) -> None:
    """Log rule 5. It makes no ledger (log rule 1)."""
    query.batch(0, 1)
    query.batch(1)
    last = bookkeeper.logs.reader.all_versions(log)[-1]
    assert (last.version, last.application, last.added.ledgers) == (2, (f"spark-stream:{QUERY}", 1), 0)


def test_the_same_commit_called_again_changes_nothing(query, bookkeeper, log, before) -> None:
    messages = query.tasks(0, 1, 2)
    for _ in range(3):
        query.writer().commit(messages, 0)
    assert numbers_of(bookkeeper, log) == [1, 2]
    assert len(bookkeeper.logs.reader.all_versions(log)) == 1
    assert leftovers(bookkeeper, log, before) == set()


def test_a_batch_that_was_written_anew_after_its_commit_is_dropped_with_its_ledgers(query, bookkeeper, log, before) -> None:
    """Log rule 5: the driver died between the sink's commit and Spark's, and starts again from the checkpoint."""
    query.batch(0, 1, 2)
    query.batch(0, 1, 2)
    assert numbers_of(bookkeeper, log) == [1, 2]
    assert leftovers(bookkeeper, log, before) == set()


def test_an_older_batch_after_a_newer_one_is_dropped(query, bookkeeper, log, before) -> None:
    for batch_id in (0, 1, 2, 1, 0):
        query.batch(batch_id, batch_id)
    assert numbers_of(bookkeeper, log) == [0, 1, 2]
    assert leftovers(bookkeeper, log, before) == set()


def test_an_empty_batch_that_is_replayed_with_rows_adds_nothing(query, bookkeeper, log) -> None:
    """It cannot be: a batch's rows are those of its offsets. What was committed first holds."""
    query.batch(0)
    query.batch(0, 1)
    assert numbers_of(bookkeeper, log) == []


def test_an_abort_after_a_commit_that_took_effect_deletes_nothing(query, bookkeeper, log) -> None:
    """Log rule 1."""
    messages = query.tasks(0, 1, 2)
    query.writer().commit(messages, 0)
    query.writer().abort(messages, 0)
    assert numbers_of(bookkeeper, log) == [1, 2]


def test_a_commit_that_raised_after_it_took_effect_is_not_repeated(query, bookkeeper, log, before, monkeypatch) -> None:
    """Log rule 1: Spark aborts, fails the query, and runs the batch again at the restart."""
    commit = LogStore.commit

    def reply_is_lost(self: LogStore, *given: Any) -> None:
        commit(self, *given)
        raise MetadataUnavailableError("zk://x", "whether the commit took effect is unknown")

    messages = query.tasks(0, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(LogStore, "commit", reply_is_lost)
        with pytest.raises(MetadataUnavailableError):
            query.writer().commit(messages, 0)
        query.writer().abort(messages, 0)
    query.batch(0, 1, 2)
    assert numbers_of(bookkeeper, log) == [1, 2]
    assert leftovers(bookkeeper, log, before) == set()


def test_an_abort_deletes_what_the_tasks_wrote_and_keeps_late_attempts_out(query, bookkeeper, log, before) -> None:
    writer = query.writer()
    messages = [query.task(writer, 0, 1), None]
    query.writer().abort(messages, 0)
    assert leftovers(bookkeeper, log, before) == set()
    with pytest.raises(JobEndedError):
        query.task(writer, 0, 2)
    assert log not in bookkeeper.list_logs()


def test_an_abort_that_knows_no_job_or_cannot_reach_the_store_hides_no_other_failure(query, monkeypatch, caplog) -> None:
    query.writer().abort([None, None], 0)
    messages = query.tasks(0, 1)

    def unreachable(*_: object) -> None:
        raise MetadataUnavailableError("zk://x", "no answer")

    monkeypatch.setattr(WriteJobs, "abort", unreachable)
    query.writer().abort(messages, 0)
    assert "is left to the sweep: the metadata store zk://x does not answer" in caplog.text


def test_a_losing_attempt_that_ends_after_the_commit_adds_nothing(query, bookkeeper, log, before) -> None:
    writer = query.writer()
    chosen = query.task(writer, 0, 1)
    loser = query.task(writer, 0, 1)
    query.writer().commit([chosen], 0)
    assert leftovers(bookkeeper, log, before) == set()
    with pytest.raises(JobEndedError):
        query.task(writer, 0, 1)
    assert loser.ledgers
    assert numbers_of(bookkeeper, log) == [1]
    assert leftovers(bookkeeper, log, before) == set()


def test_two_queries_write_one_log_and_their_batches_do_not_meet(query, bookkeeper, log) -> None:
    other = Query(query.options, OTHER_QUERY)
    mine, theirs = query.tasks(0, 1), other.tasks(0, 2)
    other.writer().commit(theirs, 0)
    query.writer().commit(mine, 0)
    query.batch(1, 3)
    other.batch(0, 2)
    assert numbers_of(bookkeeper, log) == [2, 1, 3]


def test_in_complete_mode_each_batch_is_the_whole_content_once(query, bookkeeper, log) -> None:
    complete = Query(query.options, complete=True)
    complete.batch(0, 1)
    complete.batch(1, 1, 2)
    complete.batch(0, 1)
    assert numbers_of(bookkeeper, log) == [1, 2]
    complete.batch(2)
    assert numbers_of(bookkeeper, log) == []


def test_messages_that_do_not_belong_together_are_refused_and_nothing_is_committed(query, bookkeeper, log) -> None:
    """Log rule 5."""
    writer = query.writer()
    mine = query.task(writer, 3, 1)
    strangers = [
        LedgerMessage(mine.job, mine.ledgers, OTHER_QUERY, 3),
        LedgerMessage(mine.job, mine.ledgers, QUERY, 4),
        query.task(query.writer(), 3, 1),
        LedgerMessage(mine.job, mine.ledgers),
        None,
    ]
    for stranger in strangers:
        with pytest.raises(ConfigError, match="nothing is committed"):
            query.writer().commit([mine, stranger], 3)
    for messages, batch_id in (([], 3), ([mine], 4), ([LedgerMessage(mine.job, mine.ledgers)], 3)):
        with pytest.raises(ConfigError, match="nothing is committed"):
            query.writer().commit(messages, batch_id)
    assert log not in bookkeeper.list_logs()


@pytest.mark.parametrize(
    "properties", [{}, {QUERY_ID: QUERY}, {BATCH_ID: "1"}, {QUERY_ID: QUERY, BATCH_ID: "one"}, {QUERY_ID: "", BATCH_ID: "1"}]
)
def test_a_spark_that_does_not_tell_query_and_batch_is_refused_before_a_row_is_written(query, bookkeeper, before, properties):
    def rows() -> Iterator[Any]:
        raise AssertionError("a row was taken")
        yield

    with running(**properties), pytest.raises(ConfigError, match=r"could not be known again: use PySpark 4\.2 or 4\.3"):
        query.writer().write(rows())
    with pytest.raises(ConfigError, match=r"sql\.streaming\.queryId"):
        query.writer().write(rows())
    assert set(bookkeeper.list_ledgers()) == before


def test_a_batch_write_within_a_streaming_query_is_not_taken_for_its_batch(query, bookkeeper, log) -> None:
    """Log rule 5: foreachBatch writes twice to one log in one batch, and both writes land."""
    for value in (1, 2):
        writer = begin_write(query.options, NUMBERS, overwrite=False)
        with running(**{QUERY_ID: QUERY, BATCH_ID: "0"}):
            message = writer.write(iter([numbers(value)]))
        writer.commit([message])
    assert numbers_of(bookkeeper, log) == [1, 2]
    assert [version.application for version in bookkeeper.logs.reader.all_versions(log)] == [None, None]


def test_a_batch_whose_rows_do_not_fit_is_refused_before_its_tasks_run(query, bookkeeper, log) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    query.batch(0, 1)
    with pytest.raises(SchemaMismatchError, match="column 'id' is bigint in the log and string in the data"):
        begin_batch(query.options, StructType([StructField("id", StringType())]), overwrite=False)
