"""Rows of logs without Spark, on real bookies: what is appended is read, once and in order, whoever comes between."""

from __future__ import annotations

import datetime
import random
import threading
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from functools import partial

import pandas as pd
import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import (
    ConfigError,
    EntryTooLargeError,
    LedgerFencedError,
    LogReplacedError,
    NoSuchLogError,
    SchemaMismatchError,
    WrongValueError,
)
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.log_handle import Log, LogPosition
from bk_spark.log.stored.values import CommitKind, CommittedLedger, OpenLedger
from bk_spark.rows import conversion
from tests.cluster.client.cluster_of_znodes import eventually

DEADLINE_S = 20.0


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri, ClientConfig(explicit_lac_s=0.02)) as client:
        yield client


@pytest.fixture
def other(cluster: LocalCluster) -> Iterator[BookKeeper]:
    """Another client, as of another process."""
    with BookKeeper(cluster.metadata_uri) as other:
        yield other


@pytest.fixture
def log(client: BookKeeper) -> Log:
    return client.open_log(f"rows-{uuid.uuid4().hex}", create=True)


def table(first: int, count: int = 1000) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "item": [f"item {one}" for one in ids]})


def ids(rows) -> list[int]:
    return pa.Table.from_batches(list(rows), rows.schema).column("id").to_pylist() if rows else []


def ids_of(log: Log, **wanted) -> list[int]:
    return log.read_rows(**wanted).read_all().column("id").to_pylist()


def await_rows(log: Log, count: int) -> None:
    """Until a reader sees so many rows: an idle writer tells bookies a moment later what is confirmed."""
    deadline = time.monotonic() + DEADLINE_S
    while len(ids_of(log)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- append_rows, read_rows


def test_many_commits_are_read_side_by_side_and_in_the_order_of_the_log(log):
    for first in range(0, 20_000, 1000):
        log.append_rows(table(first))
    assert ids_of(log) == list(range(20_000))
    assert log.schema == pa.schema([("id", pa.int64()), ("item", pa.string())])


@pytest.mark.parametrize("kind", ["table", "batch", "reader", "pandas", "a stream of Arrow's C interface"])
def test_rows_are_given_in_many_forms(log, kind):
    class Foreign:
        def __arrow_c_stream__(self, requested_schema=None):
            return table(0, 5).__arrow_c_stream__(requested_schema)

    forms = {
        "table": lambda: table(0, 5),
        "batch": lambda: table(0, 5).to_batches()[0],
        "reader": lambda: table(0, 5).to_reader(max_chunksize=2),
        "pandas": lambda: pd.DataFrame({"id": range(5), "item": [f"item {one}" for one in range(5)]}),
        "a stream of Arrow's C interface": Foreign,
    }
    assert log.append_rows(forms[kind]()).total.rows == 5
    assert log.read_rows().read_all().equals(table(0, 5))


def test_what_is_read_is_chosen_by_columns_conditions_places_versions_and_times(log):
    first = log.append_rows(table(0))
    between = datetime.datetime.now(datetime.UTC)
    time.sleep(0.002)  # commits have times in milliseconds
    log.append_rows(table(1000))
    assert log.read_rows(["item", "id"], where="id IN (3, 1500)").read_all().to_pylist() == [
        {"item": "item 3", "id": 3},
        {"item": "item 1500", "id": 1500},
    ]
    assert ids_of(log, version=first.version) == ids_of(log, timestamp=between) == list(range(1000))
    begin = LogPosition(log.ledgers()[1].ledger_id, 0)
    assert ids_of(log, start=begin) == list(range(1000, 2000))
    assert ids_of(log, end=begin) == list(range(1000))


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"columns": ["price"]}, "columns is 'price': log '.*' has the columns id, item"),
        ({"columns": []}, "it must name at least one column"),
        ({"where": "id LIKES 5"}, "^where is 'id LIKES 5'"),
        ({"version": 77}, "has the versions 0 to 1"),
        ({"timestamp": 5}, "it must be a datetime with a time zone"),
        ({"timestamp": datetime.datetime(2026, 1, 1)}, "it must be a datetime with a time zone"),
        ({"version": 1, "timestamp": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, "leave one of them out"),
        ({"start": LogPosition(10**9, 0)}, "does not list ledger 1000000000"),
        ({"time_zone": "Nowhere/Else", "where": "id = 1"}, "it must be a zone"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_said_before_anything_is_read(log, wanted, says):
    log.append_rows(table(0, 5))
    with pytest.raises(ConfigError, match=says):
        log.read_rows(**wanted)


def test_a_log_of_entries_and_an_empty_one_have_no_rows(log, client):
    with pytest.raises(ConfigError, match="it holds nothing and has no schema"):
        log.read_rows()
    with log.open_writer() as writer:
        writer.append(b"an entry")
    with pytest.raises(ConfigError, match=r"it holds entries, not rows: read them with Log.read\(\)"):
        _ = log.schema
    with pytest.raises(SchemaMismatchError, match="the log holds entries"):
        log.append_rows(table(0))
    with pytest.raises(SchemaMismatchError, match="the log holds entries"):
        log.open_row_writer(table(0).schema)


def test_rows_that_do_not_fit_are_refused_before_anything_is_written(log):
    log.append_rows(table(0, 5))
    for rows, says in (
        (pa.table({"id": ["a"]}), "column 'id' is bigint in the log and string in the data"),
        (pa.table({"id": [1], "price": [2]}), "no column 'price'"),
        (pa.table({}), "it has no column"),
        ([1, 2], "it must be a pyarrow Table"),
    ):
        with pytest.raises((SchemaMismatchError, ConfigError), match=says):
            log.append_rows(rows)
    assert len(log.versions()) == 1
    log.append_rows(pa.table({"id": [7], "price": [2]}), merge_schema=True)
    assert log.read_rows(["id", "item", "price"], where="id = 7").read_all().to_pylist() == [
        {"id": 7, "item": None, "price": 2}
    ]


def test_a_row_larger_than_an_entry_is_appended_read_and_followed_and_a_leader_refuses_it(log):
    large = random.Random(1).randbytes(20_000_000)
    log.append_rows(pa.table({"raw": [large]}))
    log.append_rows(pa.table({"raw": [b"small"]}))
    assert log.read_rows().read_all().column("raw").to_pylist() == [large, b"small"]
    tail = log.tail_rows("earliest", timeout_s=0)
    assert next(tail).column("raw")[0].as_py() == large
    position = tail.position
    assert [one.to_pylist() for one in log.tail_rows(position, timeout_s=0)] == [[{"raw": b"small"}]]
    with log.open_row_writer() as writer:
        with pytest.raises(EntryTooLargeError):
            writer.append({"raw": large})
        writer.append({"raw": b"goes on"})
    assert log.read_rows().read_all().num_rows == 3


@pytest.mark.parametrize("how", ["flush", "close", "the timer"])
def test_rows_that_could_not_be_written_are_told_though_nobody_looks_at_their_future(log, how):
    large = random.Random(2).randbytes(20_000_000)
    log.append_rows(pa.table({"raw": [b"first"]}))
    writer = log.open_row_writer(max_delay_s=0.01 if how == "the timer" else 60)
    refused = writer.append_async({"raw": large})
    if how == "the timer":
        assert isinstance(refused.exception(DEADLINE_S), EntryTooLargeError)
        assert writer.append_async({"raw": b"the timer goes on"}).result(DEADLINE_S) is not None
    with pytest.raises(EntryTooLargeError):
        writer.close() if how == "close" else writer.flush()
    writer.close()  # told once
    assert b"first" in log.read_rows().read_all().column("raw").to_pylist()


def test_rows_that_are_in_the_way_of_a_large_one_go_on_at_once(log):
    with log.open_row_writer(pa.schema([("raw", pa.binary())]), max_delay_s=3600) as writer:
        small = writer.append_async({"raw": b"small"})
        large = writer.append_async({"raw": random.Random(4).randbytes(15_000_000)})
        assert small.result(DEADLINE_S) < large.result(DEADLINE_S)


def test_a_row_that_is_too_large_fails_its_own_call_and_those_beside_it_are_written_in_order(log):
    large = random.Random(4).randbytes(20_000_000)
    schema = pa.schema([("number", pa.int64()), ("raw", pa.binary())])
    with log.open_row_writer(schema, max_delay_s=60) as writer:
        before = [writer.append_async({"number": number}) for number in range(50)]
        refused = writer.append_async([{"number": -1}, {"number": -2, "raw": large}, {"number": -3}])
        behind = [writer.append_async({"number": number}) for number in range(50, 100)]
        with pytest.raises(EntryTooLargeError):
            writer.flush()
        assert isinstance(refused.exception(), EntryTooLargeError)
        entries = [one.result().entry_id for one in before + behind]
        assert entries == sorted(entries)
        assert len(set(entries)) < 20, "rows beside the large one still share entries"
        writer.flush()
    assert log.read_rows(["number"]).read_all().column("number").to_pylist() == list(range(100))


def test_a_block_that_raises_keeps_its_error_and_a_failed_close_of_its_row_writer_is_a_note_on_it(log):
    log.append_rows(pa.table({"raw": [b"first"]}))
    writer = log.open_row_writer(max_delay_s=60)

    def leave_a_block_that_raises() -> None:
        with writer:
            writer.append_async({"raw": random.Random(3).randbytes(20_000_000)})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        leave_a_block_that_raises()
    assert f"closing the row writer of log '{log.name}' failed as well" in raised.value.__notes__[0]


def test_rows_of_a_wider_type_are_read_as_that_and_stop_a_tail_that_began_with_the_narrower_one(log):
    log.append_rows(pa.table({"n": pa.array([1], pa.int32())}))
    tail = log.tail_rows("earliest", timeout_s=0)
    assert next(tail).schema.field("n").type == pa.int32()
    log.append_rows(pa.table({"n": pa.array([2**40], pa.int64())}), merge_schema=True)
    log.append_rows(pa.table({"n": pa.array([3], pa.int16())}), merge_schema=True)
    assert log.read_rows(where="n > 1").read_all() == pa.table({"n": pa.array([2**40, 3], pa.int64())})
    position = tail.position
    with pytest.raises(SchemaMismatchError, match="this tail gives it as int32: begin another one at its position"):
        next(tail)
    assert [row["n"] for one in log.tail_rows(position, timeout_s=0) for row in one.to_pylist()] == [2**40, 3]


def test_a_column_of_nulls_goes_with_every_type_and_takes_one_with_merge_schema(log):
    nulls = pd.DataFrame({"id": [1], "note": [None], "tags": [[]]})
    typed = pa.table({"id": [2], "note": ["late"], "tags": pa.array([[7, None]], pa.list_(pa.int64()))})
    log.append_rows(nulls)
    tail = log.tail_rows("earliest", timeout_s=0)
    assert next(tail).schema.field("note").type == pa.null()
    with pytest.raises(SchemaMismatchError, match="column 'note' is void in the log and string in the data"):
        log.append_rows(typed)
    log.append_rows(typed, merge_schema=True)
    log.append_rows(nulls)
    with log.open_row_writer() as writer:
        writer.append(nulls)
        writer.append({"id": 3, "note": None})
    expected = {"id": [1, 2, 1, 1, 3], "note": [None, "late", None, None, None], "tags": [[], [7, None], [], [], None]}
    assert log.read_rows().read_all().to_pydict() == expected
    assert log.read_rows(["id"], "note IS NULL").read_all().to_pydict() == {"id": [1, 1, 1, 3]}
    assert log.read_rows(where="note = 'late'").read_all().num_rows == 1
    with pytest.raises(SchemaMismatchError, match="this tail gives it as null: begin another one at its position"):
        next(tail)
    rows = [row["note"] for one in log.tail_rows(tail.position, timeout_s=0) for row in one.to_pylist()]
    assert rows == ["late", None, None, None]


def test_wrong_arguments_are_refused_in_the_words_of_python(log):
    log.append_rows(table(0, 3))
    calls = [
        (lambda: log.append_rows(pa.table({"price": [1]})), "drop it, or add it with merge_schema=True"),
        (lambda: log.append_rows(pa.table({"id": pa.array([1], pa.int8())})), "take both with merge_schema=True"),
        (lambda: log.open_row_writer(pa.schema([("price", pa.int64())])), "drop it, or add it with merge_schema=True"),
        (lambda: log.open_row_writer("id int"), "the schema for log '.*' is 'str': it must be a pyarrow.Schema"),
        (lambda: log.open_row_writer(pa.schema([])), "it must be a pyarrow.Schema with at least one column"),
        (lambda: log.append_rows(table(0, 1), application="x"), "application is 'x': it must be an id and a version"),
        (lambda: log.append_rows(table(0, 1), partition_key=5), "partition_key is 5"),
        (lambda: log.append_rows(table(0, 1), digest_type=7), "digest type .* is 7"),
        (lambda: log.read_rows(5), "columns is 5: it must be a list of names"),
        (lambda: log.read_rows(where=5), "^where is 5: it must be a text"),
        (lambda: log.read_rows(where="price > 5"), "^where is 'price > 5': log '.*' has no column 'price'"),
        (lambda: log.read_rows(time_zone=5), "time_zone is 5"),
        (lambda: log.read_rows(start=5), "start is 5: it must be a LogPosition"),
        (lambda: log.tail_rows(5), "start is '5'"),
    ]
    for call, says in calls:
        with pytest.raises((ConfigError, SchemaMismatchError), match=says):
            call()
    assert len(log.versions()) == 1


@pytest.fixture
def unchecked(monkeypatch) -> None:
    """Values are written as by a program that does not look at them."""
    monkeypatch.setattr(conversion, "is_sound", lambda column: True)


WRONG = pa.table({"id": [2], "price": pa.array([Decimal("123.45")]).cast(pa.decimal128(4, 2), safe=False)})
RIGHT = pa.table({"id": [1], "price": pa.array([Decimal("1.50")], pa.decimal128(4, 2))})


def test_a_value_that_no_reader_takes_is_refused_at_every_call(log):
    log.append_rows(RIGHT)
    with log.open_row_writer() as writer:
        for write in (log.append_rows, writer.append_async):
            with pytest.raises(ConfigError, match=rf"column 'price' for log '{log.name}' is '123.45': no decimal128\(4, 2\)"):
                write(WRONG)
    assert log.read_rows().read_all() == RIGHT


def test_a_log_that_holds_a_wrong_value_is_readable_but_for_it(log, unchecked):
    for rows in (RIGHT, WRONG, RIGHT):
        log.append_rows(rows)
    named = r"the payload of entry 0 of ledger \d+ holds 123.45 in column 'price', which no decimal128\(4, 2\) can be"
    with pytest.raises(WrongValueError, match=named):
        log.read_rows().read_all()
    assert log.read_rows(["id"]).read_all().to_pydict() == {"id": [1, 2, 1]}
    assert log.read_rows(where="id = 1").read_all() == pa.concat_tables([RIGHT, RIGHT])
    tail = log.tail_rows("earliest", timeout_s=0)
    assert next(tail).to_pylist() == RIGHT.to_pylist()
    with pytest.raises(WrongValueError, match=named):
        next(tail)
    assert ids_of_tail(log.tail_rows(tail.position, ["id"], timeout_s=0)) == [2, 1]
    assert ids_of_tail(log.tail_rows(tail.position, where="price <= 99.99", timeout_s=0)) == [1]


def ids_of_tail(tail) -> list[int]:
    return [row["id"] for batch in tail for row in batch.to_pylist()]


def test_an_append_that_fails_on_the_way_leaves_nothing(log, client):
    def batches():
        yield from table(0, 200_000).to_batches()
        raise OSError("the source is gone")

    before = set(client.list_ledgers())
    with pytest.raises(OSError, match="the source is gone"):
        log.append_rows(pa.RecordBatchReader.from_batches(table(0).schema, batches()))
    assert log.versions() == []
    assert set(client.list_ledgers()) == before


def test_an_application_version_is_appended_once(log):
    assert log.append_rows(table(0, 5), application=("loader", 1)).duplicate_of is None
    assert log.append_rows(table(0, 5), application=("loader", 1)).duplicate_of == 1
    assert ids_of(log) == list(range(5))


def test_appending_no_rows_is_a_commit_that_fixes_the_schema(log):
    log.append_rows(table(0, 1).slice(1))
    assert log.schema == table(0).schema
    assert ids_of(log) == []


def test_a_reader_that_is_dropped_ends_its_threads(log):
    for first in range(0, 10):
        log.append_rows(table(first * 50_000, 50_000))
    reader = log.read_rows()
    reader.read_next_batch()
    del reader
    deadline = time.monotonic() + DEADLINE_S
    while any(one.name == "bk_spark-rows" for one in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_log_that_was_deleted_says_so(log):
    log.append_rows(table(0, 5))
    log.delete()
    for call in (log.read_rows, lambda: log.append_rows(table(0)), log.tail_rows):
        with pytest.raises(NoSuchLogError):
            call()


# --- open_row_writer


def test_a_leader_appends_rows_in_many_forms_and_readers_see_them_while_it_leads(log):
    with log.open_row_writer(table(0).schema) as writer:
        writer.append({"id": 0, "item": "a"})
        writer.append([{"id": 1}, {"item": "c", "id": 2}])
        writer.append(table(3, 4))
        writer.append(pd.DataFrame({"id": [7]}))
        await_rows(log, 8)
        assert [type(one) for one in log.ledgers()] == [OpenLedger]
    assert ids_of(log) == list(range(8))
    (ledger,) = log.ledgers()
    assert isinstance(ledger, CommittedLedger)
    assert ledger.rows == 8


def test_rows_are_written_together_and_none_waits_longer_than_asked(log):
    with log.open_row_writer(table(0).schema, max_delay_s=3600) as writer:
        waiting = [writer.append_async({"id": number}) for number in range(100)]
        assert not any(one.done() for one in waiting)
        writer.flush()
        assert {one.result() for one in waiting} == {LogPosition(writer.ledger_id, 0)}
    with log.open_row_writer(max_delay_s=0.01) as writer:
        assert writer.append_async({"id": 100}).result(DEADLINE_S) == LogPosition(writer.ledger_id, 0)
    with log.open_row_writer(max_rows=10, max_delay_s=3600) as writer:
        full = [writer.append_async({"id": number}) for number in range(10)]
        assert full[-1].result(DEADLINE_S) == LogPosition(writer.ledger_id, 0)


def test_a_leader_rolls_and_every_ledger_has_its_number_of_rows(log):
    with log.open_row_writer(table(0).schema, roll_bytes=5000) as writer:
        first_ledger = writer.ledger_id
        for first in range(0, 1000, 50):
            writer.append(table(first, 50))
        eventually(lambda: writer.ledger_id != first_ledger)
        for first in range(1000, 2000, 50):
            writer.append(table(first, 50))
    ledgers = log.ledgers()
    assert len(ledgers) > 1
    assert sum(one.rows for one in ledgers) == log.versions()[-1].total.rows == 2000
    for ledger in ledgers:
        assert len(ids_of(log, start=LogPosition(ledger.ledger_id, 0))) >= ledger.rows
    assert ids_of(log) == list(range(2000))


def test_rows_of_a_leader_that_vanished_are_counted_by_whoever_takes_over(log, other):
    abandoned = log.open_row_writer(table(0).schema)
    for first in range(0, 50, 10):
        abandoned.append(table(first, 10))
    same = other.open_log(log.name)
    same.append_rows(table(50, 5))
    assert [one.rows for one in same.ledgers()] == [50, 5]
    with pytest.raises(LedgerFencedError):
        abandoned.append({"id": 1})
    again = same.open_row_writer()
    again.append(table(55, 5))
    version = other.open_log(log.name).recover()
    assert version.end_row == 60
    assert ids_of(same) == list(range(60))


def test_rows_of_a_ledger_whose_entries_are_not_numbered_are_counted_one_by_one(log, client):
    """As an application may have put it there."""
    log.append_rows(table(0, 100))
    log.append_rows(table(100, 50))
    for ledger in log.ledgers():
        assert client.logs.reader._count_rows(client.ledger_metadata(ledger.ledger_id)) == ledger.rows


def test_a_writer_refuses_rows_that_do_not_fit_and_goes_on(log):
    with log.open_row_writer(table(0).schema) as writer:
        for rows, says in (
            ({"price": 5}, "the writer has no column 'price'"),
            ({"id": "five"}, "a value of column 'id' .* is 'five': it is no int64"),
            (pa.table({"id": ["five"]}), "column 'id' is int64 in the log and string in the data"),
            (table(0, 0), "at least one row is expected"),
            ([], "at least one row is expected"),
        ):
            with pytest.raises((SchemaMismatchError, ConfigError), match=says):
                writer.append(rows)
        writer.append({"id": 1})
    assert ids_of(log) == [1]


@pytest.mark.parametrize(
    "limits", [{"max_rows": 0}, {"max_bytes": 2**40}, {"max_delay_s": -1}, {"compression": "rar"}], ids=str
)
def test_a_limit_that_makes_no_sense_is_named(log, limits):
    with pytest.raises(ConfigError, match=next(iter(limits))):
        log.open_row_writer(table(0).schema, **limits)


def test_a_log_without_content_needs_a_schema_and_merges_the_columns_of_a_writer_that_asks_for_it(log):
    with pytest.raises(ConfigError, match="it holds nothing and has no schema"):
        log.open_row_writer()
    log.append_rows(table(0, 1))
    wider = table(0).schema.append(pa.field("price", pa.int64()))
    with pytest.raises(SchemaMismatchError, match="no column 'price'"):
        log.open_row_writer(wider)
    with log.open_row_writer(wider, merge_schema=True) as writer:
        writer.append({"id": 1, "price": 7})
    assert log.read_rows(["id", "price"]).read_all().to_pylist() == [{"id": 0, "price": None}, {"id": 1, "price": 7}]


def test_appends_of_several_threads_are_each_there_once_and_in_order_for_each_thread(log):
    schema = pa.schema([("thread", pa.int64()), ("number", pa.int64())])
    with log.open_row_writer(schema, roll_bytes=20_000, max_delay_s=0.005) as writer:

        def run(thread: int) -> None:
            for number in range(200):
                appended = writer.append_async({"thread": thread, "number": number})
                if number % 20 == 0:
                    appended.result(DEADLINE_S)

        threads = [threading.Thread(target=run, args=(thread,)) for thread in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    rows = log.read_rows().read_all().to_pylist()
    assert len(rows) == 800
    for thread in range(4):
        assert [row["number"] for row in rows if row["thread"] == thread] == list(range(200))


# --- tail_rows


def test_a_tail_gives_what_is_there_then_what_comes_and_goes_on_at_its_position(log):
    log.append_rows(table(0, 10))
    with log.tail_rows("earliest", timeout_s=DEADLINE_S) as tail:
        assert next(tail).column("id").to_pylist() == list(range(10))
        threading.Timer(0.05, lambda: log.append_rows(table(10, 10))).start()
        assert next(tail).column("id").to_pylist() == list(range(10, 20))
        position = tail.position
    log.append_rows(table(20, 5))
    assert [one.column("id").to_pylist() for one in log.tail_rows(position, timeout_s=0)] == [list(range(20, 25))]


def test_a_tail_starts_behind_what_is_there_unless_it_is_told_otherwise(log):
    log.append_rows(table(0, 10))
    tail = log.tail_rows(columns=["id"], where="id > 12", timeout_s=0)
    log.append_rows(table(10, 5))
    assert [one.to_pylist() for one in tail] == [[{"id": 13}, {"id": 14}]]


def test_a_tail_follows_a_leader_through_its_rolls_and_its_end(log):
    found: list[int] = []

    def follow() -> None:
        with log.tail_rows("earliest", timeout_s=DEADLINE_S) as tail:
            for batch in tail:
                found.extend(batch.column("id").to_pylist())
                if len(found) == 1000:
                    return

    follower = threading.Thread(target=follow)
    with log.open_row_writer(table(0).schema, roll_bytes=5000) as writer:
        follower.start()
        for first in range(0, 990, 10):
            writer.append(table(first, 10))
    log.append_rows(table(990, 10))
    follower.join(DEADLINE_S)
    assert found == list(range(1000))


def test_a_tail_of_an_empty_log_waits_for_the_first_commit(log):
    with log.tail_rows(timeout_s=DEADLINE_S) as tail:
        threading.Timer(0.05, lambda: log.append_rows(table(0, 3))).start()
        assert next(tail).column("id").to_pylist() == [0, 1, 2]


def replace_all(log: Log, client: BookKeeper, rows: pa.Table) -> None:
    """An overwrite, as Spark makes it: the rows of another log's ledger."""
    staged = client.open_log(f"staged-{uuid.uuid4().hex}", create=True)
    staged.append_rows(rows)
    job = client.logs.jobs.begin(log.name)
    writer = client.create_ledger(job=job)
    for batch in staged.read():
        writer.append_batch(batch.column("payload"))
    writer.close()
    ledger = CommittedLedger(writer.ledger_id, writer.last_add_confirmed, writer.length, rows.num_rows)
    schema_json = staged.snapshot().schema_json
    client.logs.commit_or_abort(job, CommitRequest(CommitKind.OVERWRITE, (ledger,), schema_json))


def test_a_tail_says_that_content_was_replaced_or_reads_the_new_or_only_what_follows(log, client):
    log.append_rows(table(0, 3))
    tails = {name: log.tail_rows("earliest", timeout_s=0, overwrites=name) for name in ("fail", "read", "skip")}
    assert all(next(tail).num_rows == 3 for tail in tails.values())
    replace_all(log, client, table(10, 2))
    log.append_rows(table(20, 1))
    with pytest.raises(LogReplacedError):
        next(tails["fail"])
    assert [row["id"] for one in tails["read"] for row in one.to_pylist()] == [10, 11, 20]
    assert [row["id"] for one in tails["skip"] for row in one.to_pylist()] == [20]


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"start": "yesterday"}, "it is not JSON"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"overwrites": "maybe"}, "overwrites"),
    ],
    ids=str,
)
def test_a_tail_that_cannot_start_says_why(log, wanted, says):
    log.append_rows(table(0, 1))
    with pytest.raises(ConfigError, match=says):
        log.tail_rows(**wanted)


def test_a_date_that_no_timestamp_of_the_log_can_be_is_refused_in_every_way_in_and_the_log_stays_readable(log: Log) -> None:
    midnight = datetime.datetime(2026, 1, 31)
    log.append_rows(pa.table({"day": pa.array([midnight], pa.timestamp("us"))}))
    far = pa.table({"day": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())})
    with pytest.raises(ConfigError, match=r"a value of column 'day' for log '.*' is '5881580-07-11': the log has timestamps"):
        log.append_rows(far, merge_schema=True)
    with log.open_row_writer(far.schema, merge_schema=True) as writer:
        with pytest.raises(ConfigError, match=r"a value of column 'day' for log '.*' is '5881580-07-11'"):
            writer.append(far)
        writer.append({"day": datetime.date(2026, 2, 1)})
    assert log.read_rows().read_all().column("day").to_pylist() == [midnight, datetime.datetime(2026, 2, 1)]


def test_a_row_that_no_reader_could_read_any_more_is_refused_by_each_way_to_write_it(client: BookKeeper, log: Log) -> None:
    log.append_rows(pa.table({"id": [1], "x": [[1]]}))
    many = 2**28
    voids = pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), pa.nulls(many))
    rows = pa.table({"id": pa.array([2]), "x": voids})
    refused = partial(pytest.raises, SchemaMismatchError, match=r"column 'x' is .*: write fewer values in a row")
    with refused():
        log.append_rows(rows)
    with refused(), client.transaction() as transaction:
        transaction.append_rows(log.name, rows)
    with log.open_row_writer() as writer, refused():
        writer.append(rows)
    with log.open_row_writer(rows.schema) as writer:
        with pytest.raises(SchemaMismatchError, match="write fewer values in a row"):
            writer.append(rows)
        writer.append(pa.table({"id": [3], "x": pa.array([[None]], pa.list_(pa.null()))}))
    assert sorted(log.read_rows().read_all()["id"].to_pylist()) == [1, 3]
