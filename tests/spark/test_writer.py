"""Batch writes: task attempts that fail, jobs that fail, commits that come twice: each row once, and nothing left behind."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.write.writer import BatchWriter, LedgerMessage, begin_write
from bk_spark.errors import ConfigError, MetadataUnavailableError, NotEnoughBookiesError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.changes.jobs import WriteJobs
from tests.unit.datasource.batches import NUMBERS, numbers, numbers_of, wait_until


def test_a_job_that_fails_leaves_the_log_as_it_was_and_no_ledger(spark, cluster, bookkeeper: BookKeeper, log) -> None:
    """Log rule 1."""

    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise RuntimeError("every attempt fails after its rows were written")

    source = spark.range(5).write.format("bookkeeper").option("metadata", cluster.metadata_uri).mode("append")
    source.save(log)
    before = set(bookkeeper.list_ledgers())
    for mode in ("append", "overwrite"):
        failing = spark.range(0, 60000, 1, 3).mapInArrow(fails, "id bigint").write.format("bookkeeper")
        with pytest.raises(Exception, match="every attempt fails"):
            failing.option("metadata", cluster.metadata_uri).mode(mode).save(log)
    wait_until(lambda: set(bookkeeper.list_ledgers()) == before)
    assert numbers_of(bookkeeper, log) == list(range(5))
    assert len(bookkeeper.logs.reader.all_versions(log)) == 1


@pytest.fixture
def options(cluster: LocalCluster, log: str) -> SourceOptions:
    return SourceOptions(metadata=cluster.metadata_uri, path=log)


@pytest.fixture
def writer(options: SourceOptions) -> BatchWriter:
    return pickle.loads(pickle.dumps(begin_write(options, NUMBERS, overwrite=False)))


def test_ledgers_are_committed_in_the_order_of_partitions_and_losers_are_deleted(writer, bookkeeper: BookKeeper, log) -> None:
    second, loser, first = (writer.write(iter([numbers(n)])) for n in (2, 9, 1))
    writer.commit([first, LedgerMessage(first.job, ()), second])
    assert [one.ledger_id for one in bookkeeper.logs.reader.snapshot(log).ledgers] == [
        first.ledgers[0].ledger_id,
        second.ledgers[0].ledger_id,
    ]
    assert loser.ledgers[0].ledger_id not in set(bookkeeper.list_ledgers())


def test_messages_of_another_job_are_refused_and_nothing_is_committed(writer, options, bookkeeper: BookKeeper, log) -> None:
    """Log rule 5."""
    mine = writer.write(iter([numbers(1)]))
    another = begin_write(options, NUMBERS, overwrite=False).write(iter([numbers(2)]))
    of_a_stream = LedgerMessage(mine.job, mine.ledgers, "a query", 0)
    for stranger in (another, LedgerMessage(another.job, mine.ledgers), of_a_stream, None):
        with pytest.raises(ConfigError, match="nothing is committed"):
            writer.commit([mine, stranger])
    assert log not in bookkeeper.list_logs()


def test_an_abort_after_a_commit_deletes_nothing(writer, bookkeeper, log) -> None:
    """Log rule 1: Spark aborts a job whose commit raised, also if the commit took effect."""
    message = writer.write(iter([numbers(1, 2)]))
    writer.commit([message])
    writer.abort([message])
    assert numbers_of(bookkeeper, log) == [1, 2]


def test_a_commit_that_took_effect_is_no_failure_where_the_clearing_up_fails(writer, bookkeeper, log, monkeypatch, caplog):
    def unreachable(*_: object) -> None:
        raise MetadataUnavailableError("zk://x", "no answer")

    message = writer.write(iter([numbers(1)]))
    monkeypatch.setattr(WriteJobs, "finish", unreachable)
    writer.commit([message])
    assert numbers_of(bookkeeper, log) == [1]
    assert "are left to the sweep" in caplog.text


def test_an_abort_that_fails_hides_no_other_failure(writer, monkeypatch, caplog) -> None:
    def unreachable(*_: object) -> None:
        raise MetadataUnavailableError("zk://x", "no answer")

    writer.write(iter([numbers(1)]))
    monkeypatch.setattr(WriteJobs, "abort", unreachable)
    writer.abort([None])
    assert "is left to the sweep: the metadata store zk://x does not answer" in caplog.text


def test_a_write_of_an_application_s_version_that_is_there_is_dropped_with_its_ledgers(options, bookkeeper, log) -> None:
    """Log rule 5: an older version after a newer one, too."""
    before = set(bookkeeper.list_ledgers())
    for version, value in ((2, 1), (2, 1), (1, 0), (3, 2)):
        writer = begin_write(replace(options, application_id="nightly", application_version=version), NUMBERS, overwrite=False)
        writer.commit([writer.write(iter([numbers(value)]))])
    assert numbers_of(bookkeeper, log) == [1, 2]
    assert len(set(bookkeeper.list_ledgers()) - before) == 2


def test_a_write_for_which_there_are_too_few_bookies_is_refused_before_its_tasks_run(options) -> None:
    wide = replace(options, ensemble_size=7, write_quorum=3, ack_quorum=2)
    with pytest.raises(NotEnoughBookiesError, match="option 'ensembleSize'"):
        begin_write(wide, NUMBERS, overwrite=False)


def test_the_password_is_in_no_text_of_a_writer(options) -> None:
    writer = begin_write(replace(options, password=b"s3cret"), NUMBERS, overwrite=False)
    assert "s3cret" not in repr(writer) + str(vars(writer))
