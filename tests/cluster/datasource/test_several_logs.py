"""Several logs in one read, and the columns that tell where a row comes from. Without Spark."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.spark_schema import METADATA_COLUMNS
from bk_spark.errors import ConfigError, LedgerFencedError, NoSuchLogError
from tests.cluster.datasource.direct import Direct, micro_batch, rows_of
from tests.unit.datasource.batches import numbers, wait_until


def written(direct: Direct, log: str, *batches: pa.RecordBatch) -> str:
    """Logs ``<log>-0``, ``<log>-1`` … with one batch each; their names as option ``logs`` takes them."""
    names = [f"{log}-{place}" for place in range(len(batches))]
    for name, batch in zip(names, batches, strict=True):
        direct.write(name, batch)
    return ",".join(names)


def committed(bookkeeper: BookKeeper, log: str) -> list[datetime]:
    """When each version was."""
    times = [one.time_ms for one in bookkeeper.logs.reader.all_versions(log)]
    return [datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=one) for one in times]


def test_logs_are_read_one_after_the_other_and_no_partition_has_rows_of_two(direct, log) -> None:
    names = written(direct, log, numbers(*range(100)), numbers(3, 4), numbers(5))
    direct.write(f"{log}-1", numbers(5, 6), maxRowsPerEntry=1)
    swapped = ",".join(reversed(names.split(",")))
    assert direct.column(None, logs=swapped) == [5, 3, 4, 5, 6, *range(100)]
    assert len(direct.reader(None, logs=names).partitions()) == 3
    assert len(direct.reader(None, logs=names, minPartitions=4).partitions()) >= 4
    assert direct.column(None, paths=f'["{log}-2", "{log}-1"]') == [5, 3, 4, 5, 6]


def test_columns_match_by_name_and_have_the_wider_type(direct, log) -> None:
    narrow = pa.record_batch({"n": pa.array([1, 2], pa.int32()), "only": ["a", "b"]})
    wide = pa.record_batch({"more": [True], "n": pa.array([1 << 40], pa.int64())})
    names = written(direct, log, narrow, wide)
    expected = [{"n": 1, "only": "a", "more": None}, {"n": 2, "only": "b", "more": None}]
    expected.append({"n": 1 << 40, "only": None, "more": True})
    assert direct.read(None, logs=names) == expected
    assert direct.read(None, logs=names, where="n >= 2") == expected[1:]
    assert direct.read(None, logs=names, where="more IS NULL AND only <> 'a'") == expected[1:2]
    assert direct.read(None, StructType([StructField("n", LongType())]), logs=names) == [{"n": n} for n in (1, 2, 1 << 40)]


def test_each_log_is_as_it_stood_at_the_load_and_at_a_time(direct, log, bookkeeper: BookKeeper) -> None:
    names = written(direct, log, numbers(1))
    at = bookkeeper.logs.reader.all_versions(names)[-1].time_ms
    wait_until(lambda: datetime.now(UTC).timestamp() * 1000 > at + 1)
    names = f"{names},{log}-later"
    direct.write(f"{log}-later", numbers(3))
    direct.write(f"{log}-0", numbers(2))
    reader = direct.reader(None, logs=names)
    direct.write(f"{log}-0", numbers(7))
    assert [row["id"] for row in rows_of(reader)] == [1, 2, 3]
    assert direct.column(None, logs=names, timestampAsOf=at) == [1]
    assert direct.column(None, logs=names, startingTimestamp=at + 1) == [2, 7, 3]


def test_entries_of_several_logs_are_read_and_open_ledgers_of_all_recovered(direct, log, bookkeeper: BookKeeper) -> None:
    direct.write(f"{log}-0", pa.record_batch({"payload": ["a"]}), content="entries")
    displaced = pytest.raises(LedgerFencedError)
    with displaced, bookkeeper.open_log(f"{log}-1", create=True).open_writer() as writer:
        writer.append(b"b")
        writer.append(b"c")
        read = {"logs": f"{log}-0,{log}-1", "content": "entries", "recover": True}
        assert direct.column(None, "payload", **read) == [b"a", b"b", b"c"]


def test_a_log_that_is_missing_or_deleted_meanwhile_is_named(direct, log, bookkeeper: BookKeeper) -> None:
    names = written(direct, log, numbers(1), numbers(2))
    with pytest.raises(NoSuchLogError, match=f"there is no log '{log}-none'"):
        direct.read(None, logs=f"{names},{log}-none")
    reader = direct.reader(None, logs=names)
    parts = reader.partitions()
    bookkeeper.open_log(f"{log}-1").delete()
    assert [row for batch in reader.read(parts[0]) for row in batch.to_pylist()] == [{"id": 1}]
    with pytest.raises(NoSuchLogError, match=f"there is no log '{log}-1'"):
        list(reader.read(parts[1]))
    with pytest.raises(NoSuchLogError, match=f"there is no log '{log}-1'"):
        reader.partitions()


def test_the_logs_that_match_a_pattern_are_read_by_name_or_none_is_an_error(direct, log) -> None:
    written(direct, log, numbers(1), numbers(2))
    direct.write(f"{log}-eu", numbers(3))
    assert direct.column(None, logsPattern=f"{log}-(eu|1)") == [2, 3]
    with pytest.raises(ConfigError, match=r"'logsPattern' is '.*-none': it matches the whole name of none of the"):
        direct.read(None, logsPattern=f"{log}-none")


def test_rows_tell_their_log_version_and_commit(direct, log, bookkeeper: BookKeeper) -> None:
    names = written(direct, log, numbers(1), numbers(2))
    direct.write(f"{log}-0", numbers(3))
    first, second = (committed(bookkeeper, name) for name in names.split(","))
    expected = [(1, f"{log}-0", 1, first[0]), (3, f"{log}-0", 2, first[1]), (2, f"{log}-1", 1, second[0])]
    assert where_from(direct.read(None, logs=names, includeMetadata=True)) == expected
    assert where_from(direct.read(None, logs=names, includeMetadata=True, startingTimestamp=0)) == expected
    stream = direct.stream(f"{log}-0", includeMetadata=True, startingOffsets="earliest")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert micro_batch(stream, start, end, "_version") == [1, 2]
    assert micro_batch(stream, start, end, "_commit_timestamp") == first
    assert micro_batch(stream, start, end, "_log") == [f"{log}-0"] * 2


def where_from(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["id"], row["_log"], row["_version"], row["_commit_timestamp"]) for row in rows]


def test_rows_of_a_ledger_that_a_writer_opened_have_a_version_and_no_commit_timestamp(direct, log, leading) -> None:
    direct.write(log, numbers(1))
    shown = StructType([StructField("id", LongType()), *METADATA_COLUMNS.fields[3:]])
    with leading.open_log(log).open_row_writer() as writer:
        writer.append(numbers(2))
        writer.flush()
        wait_until(lambda: direct.column(log) == [1, 2])
        rows = direct.read(log, shown, includeMetadata=True)
        assert [(row["_version"], row["_commit_timestamp"] is None) for row in rows] == [(1, False), (2, True)]
    assert direct.read(log, shown, includeMetadata=True) == rows


def test_commits_are_read_only_where_a_column_asks_for_them(direct, log, monkeypatch: pytest.MonkeyPatch) -> None:
    direct.write(log, numbers(1))
    free = StructType([StructField("id", LongType()), *METADATA_COLUMNS.fields[:3]])
    readers = [direct.reader(log, schema, includeMetadata=True) for schema in (free, None)]
    seen: list[str] = []
    monkeypatch.setattr("bk_spark.datasource.read.reader.origins", lambda *given: seen.append("asked") or {})
    found = [list(rows_of(pickle.loads(pickle.dumps(reader)))) for reader in readers[:1]]
    assert (list(found[0][0]), seen) == (["id", "_ledger_id", "_entry_id", "_log"], [])
    assert next(rows_of(readers[1]))["_version"] is None
    assert seen == ["asked"]
