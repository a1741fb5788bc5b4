"""``compact_log`` by key, its tasks run in this process, and streams of Spark over what it made.

What stays, and what is refused: tests/cluster/log/test_compact_by_key.py. Ref: DESIGN.md, "Compaction by key".
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest
from pyspark.sql import Row

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.jobs import compact_by_key as job
from bk_spark.datasource.jobs.compact_log import CompactionReport, compact_log
from bk_spark.datasource.jobs.spark_job import SparkJob
from bk_spark.errors import BookKeeperError, ConfigError, JobFailedError, MetadataConflictError
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_handle import Log
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.log.stored.values import CommitKind, Retention
from tests.cluster.datasource.direct import Direct, micro_batch, micro_batches

Compact = Callable[..., CompactionReport]
NEWEST = list(range(270, 300))


@pytest.fixture
def compact(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> Compact:
    """``compact_log`` on the cluster. Each task is pickled on its way, as Spark does."""
    monkeypatch.setattr(SparkJob, "run", _run_here)
    return partial(compact_log, None, direct.uri)


def _run_here(given: SparkJob, spark: None, count: int) -> list[Row]:
    sent = pickle.dumps(given.task)
    try:
        return [Row(**row) for number in range(count) for row in pickle.loads(sent)(number)]
    except BookKeeperError as problem:
        raise JobFailedError(given.what, str(problem), given.consequence) from None


def rows(first: int, count: int = 100) -> pa.RecordBatch:
    """Of thirty keys."""
    numbers = range(first, first + count)
    return pa.record_batch({"key": [number % 30 for number in numbers], "n": list(numbers)})


@pytest.fixture
def filled(direct: Direct, bookkeeper: BookKeeper, log: str) -> Log:
    """Three commits of a hundred rows, in entries of five."""
    for first in (0, 100, 200):
        direct.write(log, rows(first), partitionKey="key", lanes=4, maxRowsPerEntry=5)
    return bookkeeper.open_log(log)


def vacuum(bookkeeper: BookKeeper, log: Log) -> None:
    log.set_retention(Retention(version_retention_s=0))
    bookkeeper.vacuum_log(log.name)


def test_the_job_keeps_the_newest_row_of_each_key_in_one_commit(compact, direct, bookkeeper, filled) -> None:
    report = compact(filled.name, by_key=True)
    assert (report.commits, report.removed.rows, report.added.rows) == (1, 300, 30)
    assert filled.versions()[-1].kind is CommitKind.COMPACT_KEYS
    assert sorted(direct.column(filled.name, "n")) == NEWEST
    vacuum(bookkeeper, filled)
    assert sorted(direct.column(filled.name, "n", view="latest")) == NEWEST
    assert compact(filled.name, by_key=True).commits == 0


def test_the_setting_of_a_log_makes_its_compactions_go_by_key(compact, direct, filled) -> None:
    filled.set_compaction(KeyCompaction(min_age_s=3600))
    assert compact(filled.name).commits == 0
    assert compact(filled.name, by_key=KeyCompaction()).commits == 1
    assert sorted(direct.column(filled.name, "n")) == NEWEST
    filled.set_compaction(None)
    assert compact(filled.name, target_bytes=1 << 20).commits == 0
    assert filled.versions()[-1].kind is CommitKind.COMPACT_KEYS


def test_options_of_the_write_are_taken(compact, bookkeeper, filled) -> None:
    compact(
        filled.name, by_key=True, options={"ensembleSize": "2", "writeQuorum": "2", "ackQuorum": "2", "maxRowsPerEntry": "3"}
    )
    listed = filled.snapshot().ledgers
    assert {bookkeeper.ledger_metadata(one.ledger_id).ensemble_size for one in listed} == {2}
    assert all(one.last_entry_id + 1 >= one.rows / 3 for one in listed)


def test_a_truncation_meanwhile_makes_the_job_begin_anew(compact, direct, filled, monkeypatch) -> None:
    real, times = job._written, iter(range(1))

    def truncate_first(*arguments):
        made = real(*arguments)
        if next(times, None) is not None:
            filled.truncate(LogPosition(filled.ledgers()[1].ledger_id, 0))
        return made

    monkeypatch.setattr(job, "_written", truncate_first)
    assert compact(filled.name, by_key=True).commits == 1
    assert sorted(direct.column(filled.name, "n")) == NEWEST
    monkeypatch.setattr(job, "_compacted", lambda *_: (_ for _ in ()).throw(MetadataConflictError("log", "it changes")))
    filled.append_rows(rows(300, 1))
    with pytest.raises(MetadataConflictError):
        compact(filled.name, by_key=True)


def test_a_job_that_fails_leaves_nothing(compact, bookkeeper, filled) -> None:
    before = [one.ledger_id for one in filled.ledgers()]
    bookkeeper.delete_ledger(before[0], force=True)
    with pytest.raises(JobFailedError, match=f"the compaction of log '{filled.name}' by key failed"):
        compact(filled.name, by_key=True)
    assert [one.ledger_id for one in filled.ledgers()] == before


@pytest.mark.parametrize("limit", [{}, {"maxRowsPerTrigger": 7}, {"maxBytesPerTrigger": 600}], ids=lambda one: "".join(one))
def test_a_stream_that_begins_reads_what_is_left_in_batches_of_its_limits(direct, bookkeeper, filled, limit) -> None:
    filled.compact_by_key()
    vacuum(bookkeeper, filled)
    filled.append_rows(rows(300, 3))
    stream = direct.stream(filled.name, startingOffsets="earliest", minPartitions=3, **limit)
    found = [numbers for _, _, numbers in micro_batches(stream, "n")]
    assert sorted(n for one in found for n in one) == [*NEWEST, 300, 301, 302]
    if limit == {"maxRowsPerTrigger": 7}:
        assert [len(one) for one in found] == [7, 7, 7, 7, 5]
    assert (len(found) > 1) == bool(limit)


@pytest.mark.parametrize("most", [3, 60, 150])
def test_a_stream_that_stopped_inside_a_ledger_goes_on_with_what_is_left(direct, bookkeeper, filled, most) -> None:
    stream = direct.stream(filled.name, startingOffsets="earliest", maxRowsPerTrigger=most)
    start, end, first = next(micro_batches(stream, "n"))
    filled.compact_by_key()
    vacuum(bookkeeper, filled)
    again = direct.stream(filled.name, maxRowsPerTrigger=4)
    assert sorted(micro_batch(again, start, end, "n")) == sorted(set(first) & set(NEWEST))
    again.prepareForTriggerAvailableNow()
    rest = []
    while (behind := again.latestOffset(end, again.getDefaultReadLimit())) != end:
        rest += micro_batch(again, end, behind, "n")
        end = behind
    assert sorted(rest) == sorted(set(NEWEST) - set(first))


def test_a_stream_of_some_lanes_with_metadata_columns_reads_a_span(direct, bookkeeper, filled) -> None:
    filled.compact_by_key()
    version = filled.snapshot().version
    vacuum(bookkeeper, filled)
    stream = direct.stream(filled.name, startingOffsets="earliest", lane="1,2", includeMetadata=True)
    [(start, end, numbers)] = micro_batches(stream, "n")
    assert sorted(numbers) == sorted(filled.read_rows(lane=[1, 2]).read_all().column("n").to_pylist())
    assert set(micro_batch(stream, start, end, "_version")) == {version}
    listed = {one.ledger_id for one in filled.snapshot().ledgers if one.lane in (1, 2)}
    assert set(micro_batch(stream, start, end, "_ledger_id")) == listed


def test_payloads_of_a_span_are_no_entries_of_the_log(direct, bookkeeper, filled) -> None:
    filled.compact_by_key()
    vacuum(bookkeeper, filled)
    stream = direct.stream(filled.name, startingOffsets="earliest", content="entries")
    with pytest.raises(ConfigError, match="what it reads next was compacted by key"):
        list(micro_batches(stream, "payload"))
    assert len(direct.read(filled.name, content="entries")) >= 4


def test_an_offset_in_a_span_is_a_row_number_and_may_be_given(direct, bookkeeper, filled) -> None:
    filled.compact_by_key()
    vacuum(bookkeeper, filled)
    stream = direct.stream(filled.name, startingOffsets="earliest", maxRowsPerTrigger=10)
    _, end, first = next(micro_batches(stream, "n"))
    given = json.dumps({key: value for key, value in end.items() if key != "start"})
    rest = direct.stream(filled.name, startingOffsets=given)
    assert sorted(n for _, _, numbers in micro_batches(rest, "n") for n in numbers) == sorted(set(NEWEST) - set(first))
    beyond = json.dumps(json.loads(given) | {"entry": 301})
    with pytest.raises(ConfigError, match="ends with entry 299"):
        list(micro_batches(direct.stream(filled.name, startingOffsets=beyond), "n"))
