"""Micro-batches of a stream: how much one takes, its parts, new schemas, data loss. Without Spark, on real bookies.

Ref: docs/rules.md, "Logs".
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.read.followed_log import FollowedLog
from bk_spark.datasource.read.stream_reader import StreamReader
from bk_spark.errors import (
    ConfigError,
    DataLossError,
    LogReplacedError,
    NoSuchLedgerError,
    SchemaMismatchError,
)
from bk_spark.log.cleanup.vacuum import LogVacuum
from bk_spark.log.stored.values import Retention
from bk_spark.log.stream.positions import Offset
from tests.cluster.datasource.direct import Direct, micro_batch, micro_batches
from tests.cluster.datasource.streams import ALL, OpenStream, bare, compact, payloads, wait_for
from tests.unit.datasource.batches import numbers, wait_until

# --- limits


def test_a_batch_takes_at_most_so_many_rows_cut_between_entries(direct: Direct, log: str) -> None:
    """Log rule 7."""
    direct.write(log, numbers(*range(10)), numbers(*range(10, 13)), maxRowsPerEntry=2)
    direct.write(log, numbers(13))

    def sizes(**options: int) -> list[int]:
        stream = direct.stream(log, startingOffsets="earliest", **options)
        return [len(rows) for _, _, rows in micro_batches(stream)]

    assert sizes() == [14]
    assert sizes(maxRowsPerTrigger=4) == [4, 4, 4, 2]
    assert sizes(maxRowsPerTrigger=5) == [4, 4, 5, 1]
    assert sizes(maxRowsPerTrigger=10) == [10, 4]
    assert sizes(maxRowsPerTrigger=14) == [14]


def test_a_limit_below_one_entry_takes_one_entry(direct: Direct, log: str) -> None:
    """Log rule 7: otherwise the stream would stand still for ever."""
    direct.write(log, numbers(*range(6)), maxRowsPerEntry=3)
    for limit in ({"maxRowsPerTrigger": 1}, {"maxBytesPerTrigger": 1}):
        batches = [rows for _, _, rows in micro_batches(direct.stream(log, startingOffsets="earliest", **limit))]
        assert batches == [[0, 1, 2], [3, 4, 5]]


def test_a_batch_takes_at_most_so_many_bytes_and_the_smaller_of_both_limits_holds(
    direct: Direct, leading: BookKeeper, log: str
) -> None:
    """Log rule 7."""
    with leading.open_log(log, create=True).open_writer() as writer:
        writer.append_batch([b"x" * 10] * 9)

    def sizes(**options: int) -> list[int]:
        stream = direct.stream(log, content="entries", startingOffsets="earliest", **options)
        return [len(rows) for _, _, rows in micro_batches(stream, "payload")]

    assert sizes(maxBytesPerTrigger=35) == [3, 3, 3]
    assert sizes(maxBytesPerTrigger=90) == [9]
    assert sizes(maxBytesPerTrigger=89) == [8, 1]
    assert sizes(maxBytesPerTrigger=49, maxRowsPerTrigger=2) == [2, 2, 2, 2, 1]
    assert sizes(maxBytesPerTrigger=29, maxRowsPerTrigger=4) == [2, 2, 2, 2, 1]


def test_spark_s_limit_goes_before_the_options(direct: Direct, stream: OpenStream, log: str) -> None:
    direct.write(log, numbers(*range(6)), maxRowsPerEntry=1)
    plain, limited = stream(log, startingOffsets="earliest"), stream(log, startingOffsets="earliest", maxRowsPerTrigger=2)
    assert plain.getDefaultReadLimit() == ALL
    assert limited.getDefaultReadLimit() == ReadMaxRows(2)
    assert stream(log, maxBytesPerTrigger="1k").getDefaultReadLimit() == ReadMaxBytes(1024)
    start = limited.initialOffset()

    def count(limit: Any) -> int:
        return len(micro_batch(limited, start, limited.latestOffset(start, limit)))

    wait_for(limited, start)
    assert [count(ALL), count(ReadMaxRows(2)), count(ReadMaxRows(5))] == [6, 2, 5]
    assert limited.reportLatestOffset() == bare(limited.latestOffset(start, ALL))
    with pytest.raises(ConfigError, match="knows limits of rows and of bytes"):
        count(ReadMinRows(1))


# --- micro-batches


def test_available_now_ends_where_the_log_ended_when_it_was_asked(direct: Direct, leading: BookKeeper, log: str) -> None:
    """Log rule 7."""
    with leading.open_log(log, create=True).open_writer() as writer:
        writer.append_batch([b"%d" % number for number in range(5)])
        reader = direct.stream(log, content="entries", startingOffsets="earliest", maxRowsPerTrigger=2)
        start = reader.initialOffset()
        quorum = direct.stream(log, content="entries")
        wait_until(lambda: quorum_offset(quorum)["entry"] == 5)
        reader.prepareForTriggerAvailableNow()
        writer.append_batch([b"later"] * 3)
        wait_until(lambda: quorum_offset(quorum)["entry"] == 8)
        read = []
        while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
            read.append(payloads(reader, start, end))
            start = end
        assert read == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


def quorum_offset(reader: StreamReader) -> Offset:
    reader._initial = None
    return reader.initialOffset()


def test_a_batch_is_planned_again_from_its_offsets_alone(direct: Direct, bookkeeper: BookKeeper, log: str) -> None:
    """Log rule 6: after a restart, with a compaction in between."""
    for number in range(3):
        direct.write(log, numbers(number * 2, number * 2 + 1), maxRowsPerEntry=1)
    batches = list(micro_batches(direct.stream(log, startingOffsets="earliest", maxRowsPerTrigger=4)))
    assert [rows for _, _, rows in batches] == [[0, 1, 2, 3], [4, 5]]
    direct.write(log, numbers(6))
    compact(bookkeeper, log)
    for start, end, rows in batches:
        assert micro_batch(direct.stream(log), start, end) == rows
    resumed = direct.stream(log, startingOffsets=json.dumps(batches[0][1]))
    assert [rows for _, _, rows in micro_batches(resumed)] == [[4, 5, 6]]


def test_a_micro_batch_is_split_and_packed_like_a_batch_read(direct: Direct, log: str) -> None:
    direct.write(log, *[numbers(*range(n * 10, n * 10 + 10)) for n in range(4)], maxRowsPerEntry=1)

    def parts(**options: Any) -> list[list[int]]:
        reader = direct.stream(log, startingOffsets="earliest", **options)
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(start, ALL)
        reads = [reader.read(part) for part in reader.partitions(start, end)]
        return [[row["id"] for batch in read for row in batch.to_pylist()] for read in reads]

    assert [len(one) for one in parts()] == [40]
    assert [len(one) for one in parts(minPartitions=8)] == [5] * 8
    assert [row for one in parts(maxBytesPerPartition=1) for row in one] == list(range(40))
    assert len(parts(maxBytesPerPartition=1)) == 40


def test_large_parts_of_an_open_ledger_are_split_too(direct: Direct, leading: BookKeeper, log: str) -> None:
    with leading.open_log(log, create=True).open_writer() as writer:
        writer.append_batch([b"x" * 1000] * 100)
        reader = direct.stream(log, content="entries", startingOffsets="earliest", maxBytesPerPartition="25k")
        wait_until(lambda: quorum_offset(direct.stream(log, content="entries"))["entry"] == 100)
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        assert len(reader.partitions(start, reader.latestOffset(start, ALL))) == 4


def test_columns_entries_metadata_and_conditions_are_as_in_a_batch_read(direct: Direct, log: str) -> None:
    direct.write(log, pa.record_batch({"id": [1, 2, 3], "word": ["a", "b", "c"]}))
    options = {"startingOffsets": "earliest"}
    source = direct.source(log, includeMetadata=True, where="id > 1", **options)
    asked = StructType([StructField("word", StringType()), StructField("_entry_id", LongType())])
    [(start, end, _)] = micro_batches(source.streamReader(asked), "word")
    reader = source.streamReader(asked)
    rows = [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows == [{"word": "b", "_entry_id": 0}, {"word": "c", "_entry_id": 0}]
    with pytest.raises(SchemaMismatchError, match="column 'other' is asked for"):
        source.streamReader(StructType([StructField("other", LongType())])).initialOffset()
    with pytest.raises(ConfigError, match=r"'versionAsOf'.*does not apply to a stream read"):
        direct.source(log, versionAsOf=1).streamReader(asked).initialOffset()


# --- schemas and replaced content


def test_a_stream_keeps_its_columns_while_the_log_s_schema_grows(direct: Direct, log: str) -> None:
    direct.write(log, numbers(1))
    old = direct.stream(log, startingOffsets="earliest")
    direct.write(log, pa.record_batch({"id": [2], "word": ["b"]}), mergeSchema=True)
    assert [rows for _, _, rows in micro_batches(old)] == [[1, 2]]
    assert [rows for _, _, rows in micro_batches(direct.stream(log, startingOffsets="earliest"), "word")] == [[None, "b"]]


def ints(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(values, pa.int32())})


def test_a_stream_reads_earlier_and_narrower_data_as_the_type_that_it_began_with(direct: Direct, log: str) -> None:
    direct.write(log, ints(1, 2))
    direct.write(log, numbers(2**40), mergeSchema=True)
    direct.write(log, ints(3), mergeSchema=True)
    found = [rows for _, _, rows in micro_batches(direct.stream(log, startingOffsets="earliest", where="id > 1"))]
    assert found == [[2, 2**40, 3]]


def test_a_stream_stops_before_a_wider_type_and_goes_on_where_it_stood_once_it_is_restarted(direct: Direct, log: str) -> None:
    direct.write(log, ints(1))
    old = direct.stream(log, startingOffsets="earliest")
    direct.write(log, numbers(2**40), mergeSchema=True)
    start = old.initialOffset()
    old.prepareForTriggerAvailableNow()
    end = old.latestOffset(start, ALL)
    with pytest.raises(SchemaMismatchError, match="'id' is int64 in version 2, the stream reads int32: restart the query"):
        old.partitions(start, end)
    assert micro_batch(direct.stream(log, startingOffsets="earliest"), start, end) == [1, 2**40]


def test_a_stream_that_began_with_void_stops_before_a_type_and_reads_nulls_as_that_once_it_is_restarted(
    direct: Direct, log: str
) -> None:
    nulls = pa.record_batch({"id": pa.nulls(1)})
    direct.write(log, nulls)
    old = direct.stream(log, startingOffsets="earliest")
    start = old.initialOffset()
    direct.write(log, numbers(2**40), mergeSchema=True)
    direct.write(log, nulls)
    old.prepareForTriggerAvailableNow()
    end = old.latestOffset(start, ALL)
    with pytest.raises(SchemaMismatchError, match="'id' is int64 in version 2, the stream reads null: restart the query"):
        old.partitions(start, end)
    assert micro_batch(direct.stream(log, startingOffsets="earliest"), start, end) == [None, 2**40, None]


def test_a_stream_keeps_the_fields_of_its_structs_while_the_log_s_gain_some(direct: Direct, log: str) -> None:
    direct.write(log, pa.record_batch({"id": [{"a": 1}]}))
    old = direct.stream(log, startingOffsets="earliest")
    direct.write(log, pa.record_batch({"id": [{"b": "x", "a": 2}]}), mergeSchema=True)
    assert [rows for _, _, rows in micro_batches(old)] == [[{"a": 1}, {"a": 2}]]
    new = direct.stream(log, startingOffsets="earliest")
    assert [rows for _, _, rows in micro_batches(new)] == [[{"a": 1, "b": None}, {"a": 2, "b": "x"}]]


@pytest.mark.parametrize(("overwrites", "expected"), [("read", [1, 2, 3]), ("skip", [1, 3])])
def test_an_overwrite_is_read_or_skipped_as_the_option_says(
    direct: Direct, log: str, overwrites: str, expected: list[int]
) -> None:
    """Log rule 6."""
    direct.write(log, numbers(1))
    reader = direct.stream(log, overwrites=overwrites, startingOffsets="earliest")
    start = reader.initialOffset()
    direct.write(log, numbers(2), overwrite=True)
    direct.write(log, numbers(3))
    reader.prepareForTriggerAvailableNow()
    assert micro_batch(reader, start, reader.latestOffset(start, ALL)) == expected


def test_an_overwrite_fails_a_stream_after_all_that_came_before_it(direct: Direct, stream: OpenStream, log: str) -> None:
    """Log rule 6."""
    direct.write(log, numbers(1))
    reader = stream(log, startingOffsets="earliest")
    start = reader.initialOffset()
    direct.write(log, numbers(2), overwrite=True)
    end = reader.latestOffset(start, ALL)
    assert micro_batch(reader, start, end) == [1]
    with pytest.raises(LogReplacedError, match=f"version 2 of log '{log}' replaced content.*'overwrites' to read"):
        wait_until(lambda: reader.latestOffset(end, ALL) != end)


def test_new_content_whose_columns_have_other_types_fails_before_its_tasks_run(direct: Direct, log: str) -> None:
    direct.write(log, numbers(1))
    reader = direct.stream(log, overwrites="read", startingOffsets="earliest")
    start = reader.initialOffset()
    direct.write(log, pa.record_batch({"id": ["one"]}), overwrite=True)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(
        SchemaMismatchError, match="column 'id' is string in version 2, the stream reads int64: start a new query"
    ):
        reader.partitions(start, reader.latestOffset(start, ALL))


def test_a_stream_of_entries_gives_the_payloads_of_rows_too(direct: Direct, log: str) -> None:
    direct.write(log, numbers(1, 2))
    [(_, _, rows)] = micro_batches(direct.stream(log, content="entries", startingOffsets="earliest"), "payload")
    assert [payload[:4] for payload in rows] == [b"BKRW"]


def test_new_content_that_is_no_rows_any_more_fails_before_its_tasks_run(direct: Direct, log: str) -> None:
    direct.write(log, numbers(1))
    reader = direct.stream(log, overwrites="read", startingOffsets="earliest")
    start = reader.initialOffset()
    direct.write(log, pa.record_batch({"payload": [b"x"]}), overwrite=True, content="entries")
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(SchemaMismatchError, match="reads rows: set option 'content' to entries in a new query"):
        reader.partitions(start, reader.latestOffset(start, ALL))


# --- data loss


def test_truncation_that_overtook_a_stream_is_an_error_or_skipped(
    direct: Direct, bookkeeper: BookKeeper, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Log rule 10."""
    for number in range(3):
        direct.write(log, numbers(number))
    failing = direct.stream(log, startingOffsets="earliest")
    skipping = direct.stream(log, startingOffsets="earliest", failOnDataLoss=False)
    start = failing.initialOffset()
    listed = bookkeeper.logs.reader.snapshot(log).ledgers
    bookkeeper.logs.truncate(log, bookkeeper.logs.names.uid(log), listed[2].ledger_id)
    for reader in (failing, skipping):
        reader.prepareForTriggerAvailableNow()
    end = failing.latestOffset(start, ALL)
    with pytest.raises(DataLossError, match=r"was truncated; to go on .* set failOnDataLoss to false"):
        failing.partitions(start, end)
    assert micro_batch(skipping, start, skipping.latestOffset(start, ALL)) == [2]
    assert "were gone before they were read, and are skipped: ledger" in caplog.text
    assert "set failOnDataLoss" not in caplog.text, "the option is false already"


def test_a_ledger_that_is_gone_when_a_task_reads_it_means_no_rows_only_if_it_was_truncated(
    direct: Direct, bookkeeper: BookKeeper, log: str
) -> None:
    """Log rule 10."""
    for number in range(2):
        direct.write(log, numbers(number))
    readers = {fail: direct.stream(log, startingOffsets="earliest", failOnDataLoss=fail) for fail in (True, False)}
    [(start, end, _)] = micro_batches(readers[True])
    parts = {fail: reader.partitions(start, end) for fail, reader in readers.items()}
    first, second = (one.ledger_id for one in bookkeeper.logs.reader.snapshot(log).ledgers)
    bookkeeper.delete_ledger(first, force=True)
    for fail, reader in readers.items():
        with pytest.raises(NoSuchLedgerError, match=str(first)):
            [list(reader.read(part)) for part in parts[fail]]
    bookkeeper.logs.truncate(log, bookkeeper.logs.names.uid(log), second)
    with pytest.raises(DataLossError, match=f"ledger {first} of version 1 was truncated and is deleted"):
        [list(readers[True].read(part)) for part in parts[True]]
    read = [row["id"] for part in parts[False] for batch in readers[False].read(part) for row in batch.to_pylist()]
    assert read == [1]


def test_a_vacuum_between_a_look_at_the_log_and_planning_is_planned_around(
    direct: Direct, bookkeeper: BookKeeper, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log rule 8: the oldest version moves on while a batch is planned from an older head."""
    for number in range(3):
        direct.write(log, numbers(number), maxRowsPerEntry=1)
    reader = direct.stream(log, startingOffsets="earliest")
    [(start, end, rows)] = micro_batches(reader)
    uid = bookkeeper.logs.names.uid(log)
    listed = {**bare(end), "index": -1, "ledger": bookkeeper.logs.reader.snapshot(log).ledgers[1].ledger_id, "entry": 0}
    direct.write(log, numbers(3))
    before = bookkeeper.logs.names.head(log, uid)
    bookkeeper.logs.set_retention(log, uid, Retention(version_retention_s=0))
    wait_until(lambda: LogVacuum(bookkeeper.logs).run(log).oldest_version == 4)
    monkeypatch.setattr(FollowedLog, "head_with", lambda *_: before)
    assert micro_batch(reader, listed, bare(end)) == rows[1:]
    assert start["version"] == 0
