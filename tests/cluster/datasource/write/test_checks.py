"""What a write is refused for before its tasks run, at the same cost however long the log is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql.types import BinaryType, LongType, NullType, StringType, StructField, StructType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.spark_schema import to_arrow
from bk_spark.datasource.write.checks import check_append, check_bookies, stored_schema
from bk_spark.datasource.write.writer import begin_write
from bk_spark.errors import ConfigError, NotEnoughBookiesError, SchemaMismatchError, UnauthorizedAccessError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.snapshot import LogReader
from bk_spark.log.stored.values import CommitKind
from tests.unit.datasource.batches import NUMBERS, numbers

PAYLOADS = StructType([StructField("payload", BinaryType())])


@pytest.fixture
def options(cluster: LocalCluster, log: str) -> SourceOptions:
    return SourceOptions(metadata=cluster.metadata_uri, path=log)


@pytest.fixture
def written(options: SourceOptions) -> SourceOptions:
    """Those of a log that holds a number, protected by a password."""
    protected = replace(options, password=b"right")
    write(protected)
    return protected


def write(options: SourceOptions) -> None:
    writer = begin_write(options, NUMBERS, overwrite=False)
    writer.commit([writer.write(iter([numbers(1)]))])


def test_a_log_that_does_not_exist_or_is_empty_takes_anything(options: SourceOptions, bookkeeper: BookKeeper) -> None:
    check_append(bookkeeper, options, NUMBERS)
    bookkeeper.open_log(options.log, create=True)
    check_append(bookkeeper, options, NUMBERS)


def test_columns_must_be_the_log_s_or_be_merged(written: SourceOptions, bookkeeper: BookKeeper) -> None:
    check_append(bookkeeper, written, NUMBERS)
    wider = StructType([*NUMBERS.fields, StructField("name", StringType())])
    with pytest.raises(SchemaMismatchError, match="the log has no column 'name'"):
        check_append(bookkeeper, written, wider)
    check_append(bookkeeper, replace(written, merge_schema=True), wider)


def test_columns_that_the_log_has_with_a_wider_type_are_told(written: SourceOptions, bookkeeper: BookKeeper) -> None:
    assert check_append(bookkeeper, written, NUMBERS).read_as == ()
    nulls = StructType([StructField(NUMBERS[0].name, NullType())])
    assert check_append(bookkeeper, written, nulls).read_as == ((NUMBERS[0].name, to_arrow(NUMBERS)[0].type),)


def test_entries_are_not_appended_to_rows(written: SourceOptions, bookkeeper: BookKeeper) -> None:
    with pytest.raises(SchemaMismatchError, match="the log holds rows, option 'content' is entries"):
        check_append(bookkeeper, replace(written, content="entries"), None)


def test_the_password_must_be_that_of_the_log_s_ledgers(written: SourceOptions, bookkeeper: BookKeeper) -> None:
    with pytest.raises(UnauthorizedAccessError):
        check_append(bookkeeper, replace(written, password=b"wrong"), NUMBERS)


def add_nothing(bookkeeper: BookKeeper, options: SourceOptions, times: int) -> None:
    for _ in range(times):
        request = CommitRequest(CommitKind.APPEND, (), NUMBERS.json())
        bookkeeper.logs.commit(bookkeeper.logs.jobs.begin(options.log), request)


def test_the_password_is_found_where_the_newest_versions_added_no_ledger(written, bookkeeper: BookKeeper) -> None:
    for times in (1, 10):
        add_nothing(bookkeeper, written, times)
        check_append(bookkeeper, written, NUMBERS)
        with pytest.raises(UnauthorizedAccessError):
            check_append(bookkeeper, replace(written, password=b"wrong"), NUMBERS)


def test_the_ledgers_of_a_log_are_not_listed_for_the_checks(written, bookkeeper: BookKeeper, monkeypatch) -> None:
    for _ in range(3):
        write(written)

    def listed(*_: object) -> None:
        raise AssertionError("the log's ledgers were listed")

    monkeypatch.setattr(LogReader, "snapshot", listed)
    check_append(bookkeeper, written, NUMBERS)


@pytest.mark.parametrize(
    ("columns", "content", "refusal"),
    [
        ([], "rows", "it has no columns"),
        ([StructField("id", LongType()), StructField("ID", LongType())], "rows", "rename one"),
        ([StructField("id", LongType())], "entries", "entries are written from one column 'payload'"),
        ([StructField("payload", LongType())], "entries", "entries are written from one column 'payload'"),
    ],
)
def test_a_dataframe_that_cannot_be_stored_is_refused(options, columns, content, refusal) -> None:
    with pytest.raises((ConfigError, SchemaMismatchError), match=refusal):
        stored_schema(replace(options, content=content), StructType(columns))


def test_rows_are_stored_with_nullable_columns_and_entries_without_a_schema(options) -> None:
    assert stored_schema(options, StructType([StructField("id", LongType(), nullable=False)])) == NUMBERS
    assert stored_schema(replace(options, content="entries"), PAYLOADS) is None


def test_an_ensemble_needs_as_many_bookies_as_it_says(options, bookkeeper: BookKeeper) -> None:
    check_bookies(bookkeeper, options)
    with pytest.raises(NotEnoughBookiesError, match=r"an ensemble of 4 \(option 'ensembleSize'\) needs 4 bookies"):
        check_bookies(bookkeeper, replace(options, ensemble_size=4))
