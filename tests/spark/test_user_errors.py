"""The usual mistakes: what Spark's user sees is one sentence that names the thing and says what to do, without a traceback."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from bk_spark.bookkeeper import BookKeeper
from bk_spark.log.stream.positions import Offset
from tests.checkout import ROOT
from tests.cluster.datasource.direct import Direct
from tests.cluster.datasource.refusals import UNREACHABLE, batch_reads, only, stream_reads, without
from tests.spark.conftest import Logs
from tests.unit.datasource.batches import numbers

OF_OPTIONS = pytest.mark.nightly(
    held_by="tests/unit/datasource/test_options.py::test_an_unknown_option_is_refused_and_the_nearest_one_named,"
    "tests/unit/datasource/test_options.py::test_an_option_that_does_not_apply_to_the_use_is_refused,"
    "tests/unit/datasource/test_options.py::test_an_option_of_streams_or_batches_does_not_apply_to_the_other"
)
OF_COLUMNS = pytest.mark.nightly(
    held_by="tests/cluster/datasource/write/test_checks.py::test_columns_must_be_the_log_s_or_be_merged,"
    "tests/cluster/datasource/write/test_checks.py::test_a_dataframe_that_cannot_be_stored_is_refused"
)
"""The cases beside these hold the way of such a sentence through Spark."""


def last_line(problem: str) -> str:
    """Of the Python exception, which Spark follows by its SQLSTATE and a query's state."""
    text = re.split(r"\n?\s*SQLSTATE:|\n=== Streaming Query ===", problem)[0]
    return [line for line in text.splitlines() if line.strip()][-1]


def check(action: Callable[[], object], sentence: str) -> None:
    """It fails, and the user reads the sentence last: ours, by its class, and no line of the code that raised it."""
    with pytest.raises(Exception) as refused:  # noqa: PT011
        action()
    last = last_line(str(refused.value))
    assert sentence in last, str(refused.value)
    assert re.search(r"bk_spark\.errors\.\w+Error: ", last), last
    shown = "".join(traceback.format_exception(refused.value))
    assert str(ROOT / "bk_spark") not in shown
    assert 'File "' not in str(refused.value), shown


# --- batch writes


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ensembleSize": 2}, "write quorum (writeQuorum) is 3: it must be from 1 to the ensemble size, which is 2"),
        pytest.param(
            {"ensembleSiz": 2},
            "'ensemblesiz': the format 'bookkeeper' has no such option, the nearest is 'ensembleSize'",
            marks=OF_OPTIONS,
        ),
        ({"minPartitions": 2}, "option 'minPartitions' is 2: it does not apply to a batch write: it belongs to a batch read"),
        ({"ensembleSize": 7}, "an ensemble of 7 (option 'ensembleSize') needs 7 bookies and 3 can be used"),
        pytest.param({"content": "entries"}, "entries are written from one column 'payload'", marks=OF_COLUMNS),
        ({"client.nonsense": 1}, "has no such option, there are client."),
        pytest.param(
            {"checkpointLocation": "/tmp/x"},
            "it does not apply to a batch write: it belongs to a stream write",
            marks=OF_OPTIONS,
        ),
        (UNREACHABLE, "does not answer"),
    ],
)
def test_a_bad_write_ends_in_one_clear_sentence(logs: Logs, log, options, sentence) -> None:
    check(lambda: logs.write(logs.spark.range(3), log, **options), sentence)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("interval '1' year AS y", "the type of column 'y' is 'interval year'"),
        ("map() AS a", "the type of column 'a'"),
        ("named_struct('x', 1, 'x', 2) AS a", "it has two fields 'x'"),
        ("array(named_struct('x', 1, 'x', 2)) AS a", "it has two fields 'x'"),
        ("cast(id AS string) AS id", "column 'id' is bigint in the log and string in the data"),
        pytest.param("id, id AS extra", "the log has no column 'extra'", marks=OF_COLUMNS),
        ("id, id AS ID", "rename one"),
        pytest.param("id, id", "rename one", marks=OF_COLUMNS),
    ],
)
def test_data_that_does_not_fit_is_refused_before_any_task(logs: Logs, direct: Direct, log, columns, sentence) -> None:
    direct.write(log, numbers(1))
    with pytest.raises(AnalysisException, match="Failed to initialize Python data source writer") as refused:
        logs.write(logs.spark.sql(f"SELECT {columns} FROM range(3)"), log)
    assert sentence in last_line(str(refused.value))


def test_a_dataframe_without_columns_and_null_payloads_are_refused(logs: Logs, log) -> None:
    check(lambda: logs.write(logs.spark.range(3).select(), log), "it has no columns")
    nulls = logs.spark.sql("SELECT if(id = 4, null, cast(id AS string)) AS payload FROM range(0, 9, 1, 1)")
    sentence = "column 'payload' in row 5 of a Spark partition is null: an entry may be empty, not null"
    check(lambda: logs.write(nulls, log, content="entries"), sentence)


def test_a_struct_that_gained_a_field_names_the_option_that_takes_it(logs: Logs, log) -> None:
    logs.write(logs.spark.sql("SELECT named_struct('x', 1) AS place"), log)
    wider = logs.spark.sql("SELECT named_struct('x', 1, 'y', 2) AS place")
    sentence = "column 'place' is struct<x:int> in the log and struct<x:int,y:int> in the data"
    check(lambda: logs.write(wider, log), f"{sentence}: cast it, or let the log take both with option 'mergeSchema'")
    logs.write(wider, log, mergeSchema=True)


def test_rows_are_not_written_to_a_log_of_entries_nor_read_from_it(logs: Logs, direct: Direct, log) -> None:
    direct.write(log, pa.record_batch({"payload": ["x"]}), content="entries")
    check(lambda: logs.read(log), "holds entries: read it with content=entries")
    check(lambda: logs.write(logs.spark.range(3), log), "the log holds entries, option 'content' is rows")


def test_an_append_with_another_password_is_refused_before_it_makes_the_log_unreadable(logs: Logs, direct: Direct, log) -> None:
    direct.write(log, numbers(1), password="right")
    for other in ({"password": "wrong"}, {}):
        check(lambda given=other: logs.write(logs.spark.range(3), log, **given), "wrong password for ledger")
    direct.write(log, numbers(2), password="right")
    assert direct.column(log, password="right") == [1, 2]


# --- batch reads


def test_without_a_cluster_the_way_to_name_one_is_said(logs: Logs, log) -> None:
    load = logs.spark.read.format("bookkeeper").load
    check(
        lambda: load(log),
        "it must be the cluster's URI, zk://host:port/ledgers or embedded:DIR (bookies of this machine, started at first use); "
        "or set $BK_SPARK_METADATA",
    )


READS = ("no such log", "wrong password", "another type", "condition", "no server")
"""Found by the options, the log, its schema, its ledgers, and the cluster."""


def test_a_bad_read_ends_in_one_clear_sentence(logs: Logs, direct: Direct, log) -> None:
    direct.write(log, numbers(1, 2), password="right")
    for options, sentence in only(batch_reads(log), *READS).values():
        check(lambda given=options: logs.read(**given).collect(), sentence)


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/test_refusals.py::test_each_bad_read_is_refused_in_one_sentence,"
    "tests/spark/test_user_errors.py::test_a_bad_read_ends_in_one_clear_sentence"
)
def test_every_bad_read_ends_in_one_clear_sentence(logs: Logs, direct: Direct, log) -> None:
    direct.write(log, numbers(1, 2), password="right")
    for options, sentence in without(batch_reads(log), *READS).values():
        check(lambda given=options: logs.read(**given).collect(), sentence)


def test_what_goes_wrong_in_a_task_is_said_too(logs: Logs, direct: Direct, log, bookkeeper: BookKeeper) -> None:
    direct.write(log, numbers(1))
    loaded = logs.read(log)
    loaded.rdd.getNumPartitions()
    (ledger,) = bookkeeper.logs.reader.snapshot(log).ledgers
    bookkeeper.delete_ledger(ledger.ledger_id, force=True)
    check(loaded.collect, f"there is no ledger {ledger.ledger_id}")


def test_offsets_that_no_longer_fit_the_log_are_errors(logs: Logs, direct: Direct, log, bookkeeper: BookKeeper) -> None:
    direct.write(log, numbers(1))
    direct.write(log, numbers(2))
    start = json.dumps(direct.stream(log, startingOffsets="earliest").initialOffset())
    store = bookkeeper.logs
    store.truncate(log, store.names.uid(log), store.reader.snapshot(log).ledgers[1].ledger_id)
    check(lambda: logs.read(log, startingOffsets=start).collect(), "set failOnDataLoss to false")
    bookkeeper.open_log(log).delete()
    direct.write(log, numbers(3))
    check(lambda: logs.read(log, startingOffsets=start).collect(), "it was deleted and made anew")


# --- streams


def run(logs: Logs, log: str | None, **options: Any) -> None:
    """A streaming query from a log, until it has read what there is."""
    reader = logs.spark.readStream.format("bookkeeper").option("metadata", logs.uri).options(**options)
    query = reader.load(log).writeStream.format("noop").trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def truncated(direct: Direct, log: str, bookkeeper: BookKeeper) -> Offset:
    """The start of a stream, whose first row is gone by now."""
    direct.write(log, numbers(1))
    direct.write(log, numbers(2))
    start = direct.stream(log, startingOffsets="earliest").initialOffset()
    store = bookkeeper.logs
    store.truncate(log, store.names.uid(log), store.reader.snapshot(log).ledgers[1].ledger_id)
    return start


STREAMS = ("no such log", "truncated")
"""Before the query starts, and while it runs."""


def test_a_stream_that_cannot_be_read_ends_in_one_clear_sentence(
    logs: Logs, direct: Direct, log, bookkeeper: BookKeeper
) -> None:
    start = truncated(direct, log, bookkeeper)
    for options, sentence in only(stream_reads(log, start), *STREAMS).values():
        check(lambda given=options: run(logs, **given), sentence)


@pytest.mark.nightly(
    held_by="tests/cluster/datasource/test_refusals.py::test_each_stream_that_cannot_be_read_is_refused_in_one_sentence,"
    "tests/spark/test_user_errors.py::test_a_stream_that_cannot_be_read_ends_in_one_clear_sentence"
)
def test_every_stream_that_cannot_be_read_ends_in_one_clear_sentence(
    logs: Logs, direct: Direct, log, bookkeeper: BookKeeper
) -> None:
    start = truncated(direct, log, bookkeeper)
    for options, sentence in without(stream_reads(log, start), *STREAMS).values():
        check(lambda given=options: run(logs, **given), sentence)
