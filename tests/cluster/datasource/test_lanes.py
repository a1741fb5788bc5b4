"""Rows of one key go to one lane and stay in order, through commits, reads, streams and overwrites. Without Spark."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.read import read_task
from bk_spark.errors import ConfigError, MetadataConflictError
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.rows.lanes import lane_of
from tests.cluster.datasource.direct import micro_batches

BY_CUSTOMER = {"partitionKey": "customer"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ledgers that read tasks opened."""
    found: list[int] = []
    real = read_task.opened

    def watched(bookkeeper: Any, options: Any, ledger_id: int, **more: Any) -> Any:
        found.append(ledger_id)
        return real(bookkeeper, options, ledger_id, **more)

    monkeypatch.setattr(read_task, "opened", watched)
    return found


def orders(*pairs: tuple[str | None, int]) -> pa.RecordBatch:
    customers, numbers = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.record_batch({"customer": pa.array(customers, pa.string()), "n": pa.array(numbers, pa.int64())})


def drawn(chance: random.Random, first: int, count: int, customers: int = 20) -> pa.RecordBatch:
    return orders(*((f"c{chance.randrange(customers)}", first + place) for place in range(count)))


def by_customer(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["customer"], []).append(row["n"])
    return found


def lane(customer: str | None, count: int = 8) -> int:
    return lane_of([None if customer is None else customer.encode()], count)


def lanes_listed(bookkeeper: BookKeeper, log: str) -> list[int]:
    return [one.lane for one in bookkeeper.logs.reader.snapshot(log).ledgers]


# --- writes


def test_rows_of_one_key_are_in_the_ledgers_of_one_lane_in_their_order(direct, bookkeeper, log) -> None:
    chance = random.Random(1)
    for commit in range(3):  # each of three tasks
        batches = [drawn(chance, 1000 * commit + 100 * task, 100) for task in range(3)]
        direct.write(log, *batches, **(BY_CUSTOMER if commit == 0 else {}))
    rows = direct.read(log)
    assert sorted(row["n"] for row in rows) == sorted(
        1000 * c + 100 * t + r for c in range(3) for t in range(3) for r in range(100)
    )
    assert all(numbers == sorted(numbers) for numbers in by_customer(rows).values())
    snapshot = bookkeeper.logs.reader.snapshot(log)
    assert snapshot.lanes == Lanes(("customer",), ("string",), 8)
    for number in range(8):
        assert {lane(row["customer"]) for row in direct.read(log, lane=number)} <= {number}


def test_a_commit_lists_its_ledgers_by_lane_and_those_of_a_lane_by_task(direct, bookkeeper, log) -> None:
    chance = random.Random(2)
    direct.write(log, *(drawn(chance, 100 * task, 100) for task in range(3)), partitionKey="customer", lanes=4)
    assert lanes_listed(bookkeeper, log) == [number for number in range(4) for _ in range(3)]
    firsts = [row["n"] // 100 for row in direct.read(log, lane=2)]
    assert firsts == sorted(firsts)


def test_a_lane_without_rows_has_no_ledger(direct, bookkeeper, log) -> None:
    before = set(bookkeeper.list_ledgers())
    direct.write(log, orders(("a", 1), ("a", 2), (None, 3)), orders(), **BY_CUSTOMER)
    assert lanes_listed(bookkeeper, log) == sorted({lane("a"), lane(None)})
    assert len(set(bookkeeper.list_ledgers()) - before) == len({lane("a"), lane(None)})


def test_one_lane_is_a_plain_log(direct, bookkeeper, log) -> None:
    direct.write(log, orders(("a", 1)), partitionKey="customer", lanes=1)
    direct.write(log, orders(("b", 2)), partitionKey="customer", lanes=1)
    direct.write(log, orders(("c", 3)))
    snapshot = bookkeeper.logs.reader.snapshot(log)
    assert (snapshot.lanes, {one.lane for one in snapshot.ledgers}) == (PLAIN, {0})
    assert [row["n"] for row in direct.read(log, lane=0)] == [1, 2, 3]


def test_keys_have_many_types(direct, log) -> None:
    given = pa.record_batch(
        {
            "flag": pa.array([True, False, None]),
            "small": pa.array([1, -1, None], pa.int8()),
            "raw": pa.array([b"", b"\xff", None], pa.binary()),
            "n": pa.array([1, 2, 3]),
        }
    )
    direct.write(log, given, partitionKey="RAW, flag,small", lanes=256)
    assert sorted(row["n"] for row in direct.read(log)) == [1, 2, 3]
    assert [row["n"] for row in direct.read(log, where="flag = false AND small = -1 AND raw = X'ff'")] == [2]
    assert [row["n"] for row in direct.read(log, where="flag <=> NULL AND small IS NULL AND raw IS NULL")] == [3]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"partitionKey": "shop"}, "option 'partitionKey' is 'shop': the rows have no such column, they have customer, n"),
        ({"partitionKey": "n,N"}, "option 'partitionKey' is 'n,N': it names column 'n' twice"),
        ({"partitionKey": "n,"}, "option 'partitionKey' is 'n,': it must be 1 to 16 names of columns"),
        ({"lanes": 4}, "option 'lanes' is 4: rows go to several lanes by their keys: give option 'partitionKey', too"),
        ({"partitionKey": "n", "lanes": 257}, "option 'lanes' is '257': it must be a whole number from 1 to 256"),
        ({"partitionKey": "n", "content": "entries"}, "option 'partitionKey' is .*: it does not apply to entries"),
    ],
)
def test_what_cannot_be_a_key_is_refused(direct, log, options, says) -> None:
    with pytest.raises(ConfigError, match=says):
        direct.write(log, orders(("a", 1)), **options)


def test_a_key_of_another_type_is_refused_with_its_name(direct, log) -> None:
    given = pa.record_batch({"prices": pa.array([[1.5]])})
    says = r"key column 'prices' \(option 'partitionKey'\) is 'list<.*>': a key is a boolean, a number, .*: cast it"
    with pytest.raises(ConfigError, match=says):
        direct.write(log, given, partitionKey="prices")


def test_numbers_of_floating_point_and_decimals_are_keys_by_their_value(direct, log) -> None:
    """Also once their columns have become wider."""
    nan = float("nan")
    given = pa.record_batch(
        {
            "price": pa.array([0.0, -0.0, nan, None, 1.5], pa.float32()),
            "tax": pa.array([Decimal("1.00"), Decimal("1"), Decimal("-0.01"), None, Decimal("0")], pa.decimal128(5, 2)),
            "n": range(5),
        }
    )
    direct.write(log, given, partitionKey="price,tax", lanes=256)
    wider = given.set_column(0, "price", given.column(0).cast(pa.float64()))
    wider = wider.set_column(1, "tax", given.column(1).cast(pa.decimal128(20, 4)))
    direct.write(log, wider, mergeSchema=True)
    for place, where in enumerate(["price = 0 AND tax = 1", "price <=> NULL AND tax IS NULL", "price = 1.5 AND tax = 0.000"]):
        assert len(direct.read(log, where=where)) == (4, 2, 2)[place]
    rows = {lane: direct.read(log, lane=lane) for lane in range(256)}
    assert sorted(sorted(row["n"] for row in found) for found in rows.values() if found) == [
        [0, 0, 1, 1],
        [2, 2],
        [3, 3],
        [4, 4],
    ]
    newest = direct.read(log, view="latest")
    assert sorted(row["n"] for row in newest) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"partitionKey": "n"},
            "option 'partitionKey' is 'n': log '.*' keeps what its first rows had, and it has 8 lanes by customer",
        ),
        (
            {"lanes": 4},
            "option 'lanes' is 4: log '.*' keeps what its first rows had, 8 lanes by customer: leave it out, overwrite",
        ),
    ],
)
def test_an_append_takes_the_lanes_of_the_log_and_cannot_change_them(direct, bookkeeper, log, options, says) -> None:
    direct.write(log, orders(("a", 1)), **BY_CUSTOMER)
    with pytest.raises(ConfigError, match=says):
        direct.write(log, orders(("a", 2)), **options)
    direct.write(log, orders(("a", 2)), partitionKey="CUSTOMER", lanes=8)
    assert lanes_listed(bookkeeper, log) == [lane("a")] * 2


def test_a_log_that_was_begun_without_a_key_does_not_get_one_by_an_append(direct, log) -> None:
    direct.write(log, orders(("a", 1)))
    with pytest.raises(
        ConfigError, match=r"keeps what its first rows had, and it was begun without a key: .* overwrite the log"
    ):
        direct.write(log, orders(("a", 2)), **BY_CUSTOMER)


def test_rows_without_the_key_or_with_another_type_of_it_are_refused(direct, log) -> None:
    direct.write(log, pa.record_batch({"id": pa.array([1], pa.int32()), "n": pa.array([1])}), partitionKey="id")
    with pytest.raises(ConfigError, match=r"the key of the rows is missing: log '.*' puts rows in lanes by column 'id'"):
        direct.write(log, pa.record_batch({"n": pa.array([1])}))
    with pytest.raises(
        ConfigError, match=r"key column 'id' is 'double': .* as integer, and the same key would be in two lanes"
    ):
        direct.write(log, pa.record_batch({"id": pa.array([1.0])}), mergeSchema=True)


def test_a_key_of_whole_numbers_may_become_wider(direct, log) -> None:
    for of in (pa.int16(), pa.int64(), pa.int8()):
        rows = pa.record_batch({"id": pa.array(range(100), of)})
        direct.write(log, rows, mergeSchema=True, **({"partitionKey": "id"} if of == pa.int16() else {}))
    for number in range(8):
        keys = [key for key in range(100) if lane_of([key], 8) == number]
        assert direct.column(log, lane=number) == keys * 3
        assert direct.column(log, where=f"id = {keys[0]}") == keys[:1] * 3


def test_a_key_that_is_null_in_all_rows_needs_no_type(direct, log) -> None:
    direct.write(log, orders(("a", 1), (None, 2)), **BY_CUSTOMER)
    direct.write(log, pa.record_batch({"customer": pa.nulls(2), "n": pa.array([3, 4])}))
    assert direct.column(log, "n", lane=lane(None), where="customer IS NULL") == [2, 3, 4]


def test_a_date_does_not_become_a_timestamp_as_a_key(direct, log) -> None:
    day = pa.record_batch({"day": pa.array([20_000], pa.date32())})
    direct.write(log, day, partitionKey="day")
    with pytest.raises(ConfigError, match="key column 'day' is 'timestamp"):
        direct.write(log, day.cast(pa.schema([("day", pa.timestamp("us"))])), mergeSchema=True)


# --- overwrites


@pytest.mark.parametrize(
    ("options", "lanes"),
    [
        ({}, Lanes(("customer",), ("string",), 8)),
        ({"lanes": 3}, Lanes(("customer",), ("string",), 3)),
        ({"partitionKey": "n"}, Lanes(("n",), ("integer",), 8)),
        ({"partitionKey": "n,customer", "lanes": 2}, Lanes(("n", "customer"), ("integer", "string"), 2)),
        ({"lanes": 1}, PLAIN),
    ],
)
def test_an_overwrite_keeps_sets_or_changes_lanes(direct, bookkeeper, log, options, lanes) -> None:
    direct.write(log, orders(("a", 1), ("b", 2)), **BY_CUSTOMER)
    direct.write(log, drawn(random.Random(3), 0, 50), overwrite=True, **options)
    assert bookkeeper.logs.reader.snapshot(log).lanes == lanes
    assert sorted(row["n"] for row in direct.read(log)) == list(range(50))
    assert sorted(row["n"] for number in range(lanes.count) for row in direct.read(log, lane=number)) == list(range(50))
    assert sorted(row["n"] for row in direct.read(log, versionAsOf=1, where="customer = 'b'")) == [2]


def test_an_overwrite_gives_a_plain_log_a_key(direct, bookkeeper, log) -> None:
    direct.write(log, orders(("a", 1)))
    direct.write(log, orders(("b", 2)), overwrite=True, **BY_CUSTOMER)
    assert lanes_listed(bookkeeper, log) == [lane("b")]


def test_an_overwrite_without_the_key_says_so(direct, log) -> None:
    direct.write(log, orders(("a", 1)), **BY_CUSTOMER)
    with pytest.raises(ConfigError, match="option 'partitionKey' is 'customer': the rows have no such column, they have n"):
        direct.write(log, pa.record_batch({"n": pa.array([1])}), overwrite=True)


def test_rows_whose_lanes_changed_before_their_commit_are_not_committed(direct, bookkeeper, log) -> None:
    direct.write(log, orders(("a", 1)), **BY_CUSTOMER)
    late = direct.source(log).writer(from_arrow_schema(orders().schema), overwrite=False)
    written = late.write(iter([orders(("a", 2))]))
    direct.write(log, orders(("a", 3)), overwrite=True, lanes=4)
    with pytest.raises(
        MetadataConflictError, match="it has 4 lanes by customer, the rows were written for 8 lanes by customer: write"
    ):
        late.commit([written])
    late.abort([written])
    assert [row["n"] for row in direct.read(log)] == [3]


# --- reads


@pytest.mark.parametrize(
    "where", ["customer = 'c7'", "customer <=> 'c7' AND n > 0", "n < 9999 AND (customer IN ('c7'))", "customer LIKE 'c7'"]
)
def test_a_condition_on_the_key_reads_its_lane_alone(direct, bookkeeper, log, opened, where) -> None:
    for commit in range(2):
        direct.write(log, drawn(random.Random(commit), 100 * commit, 100), **(BY_CUSTOMER if commit == 0 else {}))
    everything = [row["n"] for row in direct.read(log) if row["customer"] == "c7"]
    opened.clear()
    assert [row["n"] for row in direct.read(log, where=where)] == everything
    listed = bookkeeper.logs.reader.snapshot(log).ledgers
    assert opened == [one.ledger_id for one in listed if one.lane == lane("c7")]


@pytest.mark.parametrize(
    ("where", "customers"),
    [
        ("customer IN ('c1', 'c2')", ["c1", "c2"]),
        ("customer IS NULL", [None]),
        ("customer = 'c1' OR n = 5", None),
        ("NOT (customer = 'c1')", None),
        ("customer > 'c1' AND customer < 'c2'", None),
        ("NOT (customer != 'c3' OR n < 0)", ["c3"]),
    ],
)
def test_other_conditions_read_as_many_lanes_as_they_need(direct, bookkeeper, log, opened, where, customers) -> None:
    direct.write(log, drawn(random.Random(5), 0, 300), orders((None, 1)), **BY_CUSTOMER)
    direct.read(log, where=where)
    wanted = set(range(8)) if customers is None else {lane(one) for one in customers}
    assert set(opened) == {one.ledger_id for one in bookkeeper.logs.reader.snapshot(log).ledgers if one.lane in wanted}


def test_a_lane_and_a_condition_together_read_what_both_allow(direct, log, opened) -> None:
    direct.write(log, drawn(random.Random(6), 0, 300), **BY_CUSTOMER)
    other = (lane("c1") + 1) % 8
    assert direct.read(log, lane=other, where="customer = 'c1'") == []
    assert opened == []
    assert direct.read(log, lane=f"{other}, {lane('c1')}", where="customer = 'c1'") == direct.read(log, where="customer = 'c1'")


@pytest.mark.parametrize("value", ["8", "0,8"])
def test_a_lane_that_the_log_does_not_have_is_refused(direct, log, value) -> None:
    direct.write(log, orders(("a", 1)), **BY_CUSTOMER)
    for read in (lambda: direct.reader(log, lane=value), lambda: direct.stream(log, lane=value).initialOffset()):
        with pytest.raises(ConfigError, match=r"option 'lane' is 8: version 1 of log '.*' has the lanes 0 to 7"):
            read()


def test_a_plain_log_has_lane_0_alone(direct, log) -> None:
    direct.write(log, orders(("a", 1)))
    assert direct.read(log, lane=0) == direct.read(log)
    with pytest.raises(ConfigError, match=r"option 'lane' is 1: version 1 of log '.*' has lane 0 alone"):
        direct.reader(log, lane=1)


@pytest.mark.parametrize("value", ["", "a", "1,", "-1", "256", "1-3"])
def test_what_is_no_list_of_lanes_is_refused(direct, log, value) -> None:
    direct.write(log, orders(("a", 1)))
    with pytest.raises(ConfigError, match=r"option 'lane' is .*: it must be a number from 0 to 255, or a list such as 0,3"):
        direct.reader(log, lane=value)


def test_logs_with_keys_of_other_types_are_read_together(direct, log) -> None:
    """Where a condition is bound to a wider type than the key's, its value is not the one that was hashed."""
    direct.write(log, pa.record_batch({"id": pa.array(range(50), pa.int32())}), partitionKey="id")
    direct.write(log + "-2", pa.record_batch({"id": pa.array([7.0, 9.0])}))
    assert direct.column(None, logs=f"{log},{log}-2", where="id = 7") == [7.0, 7.0]


# --- streams


def test_a_stream_of_one_lane_reads_its_rows_alone_and_all_lanes_together_read_each_row_once(direct, log) -> None:
    chance = random.Random(7)
    for commit in range(4):
        direct.write(
            log, drawn(chance, 100 * commit, 60), drawn(chance, 100 * commit + 60, 40), **(BY_CUSTOMER if not commit else {})
        )
    streams = [direct.stream(log, startingOffsets="earliest", lane=number, maxRowsPerTrigger=20) for number in range(8)]
    found = [[n for _, _, rows in micro_batches(stream, "n") for n in rows] for stream in streams]
    assert sorted(n for rows in found for n in rows) == list(range(400))
    assert [found[number] == [row["n"] for row in direct.read(log, lane=number)] for number in range(8)] == [True] * 8


def test_limits_of_a_stream_count_only_what_it_reads(direct, log) -> None:
    for n in range(10):
        direct.write(log, orders(("a", n), ("b", n + 100)), partitionKey="customer", maxRowsPerEntry=1)
    assert lane("a") != lane("b")
    stream = direct.stream(log, startingOffsets="earliest", where="customer = 'b'", maxRowsPerTrigger=4)
    assert [rows for _, _, rows in micro_batches(stream, "n") if rows] == [
        [100, 101, 102, 103],
        [104, 105, 106, 107],
        [108, 109],
    ]


def test_a_stream_passes_commits_that_have_nothing_in_its_lane(direct, log) -> None:
    direct.write(log, orders(("a", 1)), **BY_CUSTOMER)
    stream = direct.stream(log, startingOffsets="earliest", lane=lane("a"), maxRowsPerTrigger=1)
    assert [rows for _, _, rows in micro_batches(stream, "n")] == [[1]]
    direct.write(log, orders(("b", 2)))
    again = direct.stream(log, startingOffsets="earliest", lane=lane("b"), maxRowsPerTrigger=1)
    assert [rows for _, _, rows in micro_batches(again, "n") if rows] == [[2]]


def test_a_stream_that_reads_overwrites_goes_on_in_their_lanes(direct, log) -> None:
    direct.write(log, orders(("a", 1), ("b", 2)), **BY_CUSTOMER)
    stream = direct.stream(log, startingOffsets="earliest", where="customer = 'a'", overwrites="read")
    assert [rows for _, _, rows in micro_batches(stream, "n")] == [[1]]
    direct.write(log, orders(("a", 3), ("b", 4)), overwrite=True, partitionKey="n", lanes=64)
    direct.write(log, orders(("a", 5), ("b", 6)), overwrite=True, partitionKey="customer", lanes=3)
    later = direct.stream(log, startingOffsets="earliest", where="customer = 'a'", overwrites="read")
    assert [n for _, _, rows in micro_batches(later, "n") for n in rows] == [5]


def test_a_stream_of_a_lane_that_an_overwrite_took_away_stops(direct, log) -> None:
    direct.write(log, orders(("a", 1)), partitionKey="customer", lanes=200)
    stream = direct.stream(log, startingOffsets="earliest", lane=lane("a", 200), overwrites="read")
    start = stream.initialOffset()
    direct.write(log, orders(("a", 2)), overwrite=True, lanes=2)
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    with pytest.raises(ConfigError, match=r"version 2 of log '.*' has the lanes 0 to 1"):
        stream.partitions(start, end)


def test_a_batch_read_between_two_offsets_takes_its_lanes_too(direct, log) -> None:
    for n in range(4):
        direct.write(log, orders(("a", n), ("b", n + 100)), **BY_CUSTOMER)
    stream = direct.stream(log, startingOffsets="earliest", maxRowsPerTrigger=2)
    ends = [json.dumps(end) for _, end, _ in micro_batches(stream, "n")]
    rows = direct.read(log, startingOffsets=ends[0], endingOffsets=ends[2], where="customer = 'b'")
    assert [row["n"] for row in rows] == [101, 102]
