"""One task attempt of a write, without Spark: its ledger, and what becomes of it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, DateType, NullType, StructField, StructType, TimeType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.write.task_attempt import Attempt, entry_payloads
from bk_spark.errors import ConfigError, JobEndedError, SchemaMismatchError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.changes.jobs import WriteJobs
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.write_ledger import JobRefresh
from tests.unit.datasource.batches import NUMBERS, numbers, wait_until


@pytest.fixture
def attempt(cluster: LocalCluster, bookkeeper: BookKeeper, log: str) -> Attempt:
    return Attempt(SourceOptions(metadata=cluster.metadata_uri, path=log), bookkeeper.logs.jobs.begin(log), NUMBERS)


def test_an_attempt_without_rows_makes_no_ledger(attempt: Attempt, bookkeeper: BookKeeper) -> None:
    """Log rule 1."""
    before = set(bookkeeper.list_ledgers())
    assert attempt.write(iter([numbers().slice(0, 0)])) == ()
    assert set(bookkeeper.list_ledgers()) == before


def test_what_was_written_is_in_one_closed_ledger(attempt: Attempt, bookkeeper: BookKeeper) -> None:
    (ledger,) = pickle.loads(pickle.dumps(attempt)).write(iter([numbers(1, 2), numbers(3)]))
    metadata = bookkeeper.ledger_metadata(ledger.ledger_id)
    assert ledger == CommittedLedger(metadata.ledger_id, 0, metadata.length, 3)
    assert metadata.is_closed
    assert metadata.last_entry_id == 0


def test_a_value_that_no_reader_takes_fails_the_attempt(attempt: Attempt) -> None:
    """Spark itself lets such times through."""
    rows = pa.record_batch({"at": pa.array([86_400 * 10**9], pa.int64()).view(pa.time64("ns"))})
    times = replace(attempt, schema=StructType([StructField("at", TimeType(6))]))
    with pytest.raises(ConfigError, match=r"a value of column 'at' for log '.*' is '24:00:00'"):
        times.write(iter([rows]))


def test_a_date_that_the_log_s_timestamps_cannot_be_fails_the_attempt(attempt: Attempt) -> None:
    rows = pa.record_batch({"day": pa.array([2**31 - 1], pa.int32()).view(pa.date32())})
    dates = replace(attempt, schema=StructType([StructField("day", DateType())]), timestamps=frozenset({"day"}))
    with pytest.raises(ConfigError, match=r"a value of column 'day' for log '.*' is '5881580-07-11'"):
        dates.write(iter([rows]))


def test_a_row_that_no_reader_could_read_as_the_log_s_type_fails_the_attempt(attempt: Attempt) -> None:
    many = 2**28
    rows = pa.record_batch({"x": pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), pa.nulls(many))})
    numbers_there = (("x", pa.list_(pa.field("element", pa.int64()))),)
    voids = replace(attempt, schema=StructType([StructField("x", ArrayType(NullType()))]), read_as=numbers_there)
    with pytest.raises(SchemaMismatchError, match=r"column 'x' is .*: write fewer values in a row"):
        pickle.loads(pickle.dumps(voids)).write(iter([rows]))


def test_an_attempt_that_fails_leaves_its_ledger_closed(attempt: Attempt, bookkeeper: BookKeeper) -> None:
    large = numbers(*np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 100_000).tolist())

    def rows() -> Iterator[pa.RecordBatch]:
        yield large
        raise RuntimeError("upstream")

    before = set(bookkeeper.list_ledgers())
    with pytest.raises(RuntimeError, match="upstream"):
        attempt.write(rows())
    (made,) = set(bookkeeper.list_ledgers()) - before
    assert bookkeeper.ledger_metadata(made).is_closed


def test_an_attempt_that_waits_for_its_rows_keeps_its_job_alive(attempt: Attempt, monkeypatch, bookkeeper) -> None:
    """Log rule 1: before its first row, too, where another task has begun the job."""
    refreshed: list[str] = []
    refresh = WriteJobs.refresh
    monkeypatch.setattr("bk_spark.datasource.write.task_attempt.JobRefresh", partial(JobRefresh, interval_s=0.01))
    monkeypatch.setattr(WriteJobs, "refresh", lambda jobs, job: refreshed.append(job.job_id) or refresh(jobs, job))

    def rows() -> Iterator[pa.RecordBatch]:
        for n in range(2):
            known = len(refreshed)
            wait_until(lambda: len(refreshed) >= known + 2)  # noqa: B023 (called at once)
            yield numbers(n)

    assert attempt.write(rows())
    assert set(refreshed) == {attempt.job.job_id}


def test_an_attempt_whose_job_was_swept_stops_before_it_writes_on(attempt: Attempt, monkeypatch, bookkeeper) -> None:
    monkeypatch.setattr("bk_spark.datasource.write.task_attempt.JobRefresh", partial(JobRefresh, interval_s=0.01))
    told: list[JobRefresh] = []
    enter = JobRefresh.__enter__
    monkeypatch.setattr(JobRefresh, "__enter__", lambda self: (told.append(self), enter(self))[1])
    before = set(bookkeeper.list_ledgers())

    def rows() -> Iterator[pa.RecordBatch]:
        yield numbers(1)
        assert bookkeeper.logs.jobs.abort(attempt.job)
        wait_until(lambda: told[0]._problem is not None)
        yield numbers(2)
        raise AssertionError("the second batch was taken")

    with pytest.raises(JobEndedError):
        attempt.write(rows())
    assert set(bookkeeper.list_ledgers()) == before


def test_after_the_end_of_its_job_a_late_attempt_cannot_write(attempt: Attempt, bookkeeper: BookKeeper) -> None:
    """Log rule 1."""
    before = set(bookkeeper.list_ledgers())
    attempt.write(iter([numbers(1)]))
    assert bookkeeper.logs.jobs.abort(attempt.job)
    with pytest.raises(JobEndedError):
        attempt.write(iter([numbers(2)]))
    assert set(bookkeeper.list_ledgers()) == before


def test_payloads_may_be_empty_and_not_null() -> None:
    given = pa.record_batch({"payload": pa.array([b"", b"a"], pa.large_binary())})
    holed = pa.record_batch({"payload": pa.array([b"b", None, None], pa.large_binary())})
    payloads = entry_payloads([given, holed])
    assert next(payloads).to_pylist() == [b"", b"a"]
    with pytest.raises(ConfigError, match="in row 4 of a Spark partition is null: an entry may be empty, not null"):
        next(payloads)


def test_the_password_is_in_no_text_of_an_attempt(cluster: LocalCluster, bookkeeper: BookKeeper, log: str) -> None:
    options = SourceOptions(metadata=cluster.metadata_uri, path=log, password=b"s3cret")
    attempt = Attempt(options, bookkeeper.logs.jobs.begin(log), StructType([StructField("payload", BinaryType())]))
    assert "s3cret" not in repr(attempt) + str(attempt)
