"""Rows with keys without Spark, on real bookies: each key in one lane and in order, and lanes read alone."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.log_handle import Log
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.rows.lanes import lane_of


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client


@pytest.fixture
def log(client: BookKeeper) -> Log:
    return client.open_log(f"lanes-{uuid.uuid4().hex}", create=True)


@pytest.fixture
def opened(log: Log) -> list[int]:
    """The ledgers that readers of the log opened."""
    found: list[int] = []
    real = log._access.open_ledger

    def watched(ledger_id: int) -> Any:
        found.append(ledger_id)
        return real(ledger_id)

    object.__setattr__(log._access, "open_ledger", watched)
    return found


def readings(first: int, count: int = 300, meters: int = 10) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table({"meter": [f"m{number % meters}" for number in numbers], "n": numbers})


def numbers_of(rows: Any) -> list[int]:
    return pa.Table.from_batches(list(rows)).column("n").to_pylist()


def lane(meter: str, count: int = 8) -> int:
    return lane_of([meter.encode()], count)


def in_lane(log: Log, number: int) -> list[int]:
    return [one.ledger_id for one in log.snapshot().ledgers if one.lane == number]


def test_a_key_is_read_in_order_from_its_lane_alone(log, opened) -> None:
    log.append_rows(readings(0), partition_key="meter")
    log.append_rows(readings(300))
    assert log.snapshot().lanes == Lanes(("meter",), ("string",), 8)
    found = log.read_rows(where="meter = 'm3'").read_all()
    assert found.column("n").to_pylist() == list(range(3, 600, 10))
    assert sorted(opened) == sorted(in_lane(log, lane("m3")))


def test_lanes_together_are_the_log(log) -> None:
    log.append_rows(readings(0), partition_key=["meter", "n"], lanes=5)
    parts = [log.read_rows(lane=number).read_all().column("n").to_pylist() for number in range(5)]
    assert sorted(n for part in parts for n in part) == list(range(300))
    assert all(part == sorted(part) for part in parts)
    assert log.read_rows(lane=[0, 4]).read_all().num_rows == len(parts[0]) + len(parts[4])


def test_a_large_append_is_spread_over_lanes_with_its_rows_in_order(log) -> None:
    count = 400_000
    batches = (readings(first, 20_000, 1000).to_batches()[0] for first in range(0, count, 20_000))
    log.append_rows(pa.RecordBatchReader.from_batches(readings(0).schema, batches), partition_key="meter", lanes=16)
    assert log.snapshot().end_row == count
    for number in range(16):
        rows = log.read_rows(lane=number).read_all()
        assert rows.column("n").to_pylist() == sorted(rows.column("n").to_pylist())
        assert {lane(one, 16) for one in rows.column("meter").unique().to_pylist()} == {number}


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"lane": 8}, "lane is 8: version 1 of log '.*' has the lanes 0 to 7"),
        ({"lane": [0, -1]}, "lane is -1"),
        ({"lane": []}, "it must be the number of a lane, or a list of such"),
        ({"lane": "1"}, "lane is '1'"),
    ],
)
def test_a_lane_that_is_not_there_is_refused(log, wanted, says) -> None:
    log.append_rows(readings(0), partition_key="meter")
    with pytest.raises(ConfigError, match=says):
        log.read_rows(**wanted)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"partition_key": "shop"}, "partition_key is 'shop': the rows have no such column, they have meter, n"),
        ({"partition_key": []}, "it must be the name of a column, or a list of names"),
        ({"lanes": 4}, "lanes is 4: rows go to several lanes by their keys: give partition_key, too"),
    ],
)
def test_a_key_that_cannot_be_one_is_refused(log, arguments, says) -> None:
    with pytest.raises(ConfigError, match=says):
        log.append_rows(readings(0), **arguments)
    assert log.snapshot().version == 0


def test_a_tail_of_one_lane_reads_its_rows_alone(log, opened) -> None:
    log.append_rows(readings(0), partition_key="meter")
    with log.tail_rows("earliest", lane=lane("m1"), timeout_s=0.0) as tail:
        first = numbers_of(tail)
    assert first == log.read_rows(lane=lane("m1")).read_all().column("n").to_pylist()
    assert {*opened} == {*in_lane(log, lane("m1"))}
    log.append_rows(readings(300))
    log.append_rows(pa.table({"meter": ["m2" if lane("m2") != lane("m1") else "m3"], "n": [7]}))
    with log.tail_rows(tail.position, lane=lane("m1"), timeout_s=0.0) as later:
        second = numbers_of(later)
    assert first + second == log.read_rows(lane=lane("m1")).read_all().column("n").to_pylist()
    assert json.loads(later.position)["version"] == 3


def test_a_tail_with_a_condition_on_the_key_reads_its_lane_alone(log, opened) -> None:
    log.append_rows(readings(0), partition_key="meter")
    with log.tail_rows("earliest", columns=["n"], where="meter = 'm7'", timeout_s=0.0) as tail:
        assert numbers_of(tail) == list(range(7, 300, 10))
    assert {*opened} == {*in_lane(log, lane("m7"))}


def test_a_leader_and_foreign_ledgers_are_refused_on_a_log_with_lanes(log, client) -> None:
    log.append_rows(readings(0), partition_key="meter")
    before = set(client.list_ledgers())
    with pytest.raises(
        ConfigError, match=f"the log to lead is '{log.name}': it has 8 lanes by meter, and a leader writes one ledger"
    ):
        log.open_row_writer()
    with pytest.raises(SchemaMismatchError, match="the log holds rows and the data is entries"):
        log.open_writer()
    assert set(client.list_ledgers()) == before
    with client.create_ledger() as foreign:
        foreign.append(b"x")
    with pytest.raises(SchemaMismatchError):
        log.append_ledgers([foreign.ledger_id])
    ledger = log.snapshot().ledgers[-1]
    assert ledger.lane != 0
    with pytest.raises(ConfigError, match=f"it takes the place of ledgers of lane {ledger.lane} of log"):
        log.replace_ledgers([ledger.ledger_id], [CommittedLedger(foreign.ledger_id, 0, 1, 1)])
    assert log.read_rows().read_all().num_rows == 300


def test_a_log_with_rows_does_not_get_a_key(log) -> None:
    log.append_rows(readings(0))
    with pytest.raises(ConfigError, match=r"partition_key is 'meter': .* it was begun without a key"):
        log.append_rows(readings(300), partition_key="meter")


def test_a_log_without_keys_has_lane_0_alone(log) -> None:
    log.append_rows(readings(0))
    assert log.read_rows(lane=0).read_all().num_rows == 300
    with log.tail_rows("earliest", lane=0, timeout_s=0.0) as tail:
        assert numbers_of(tail) == list(range(300))
    with log.tail_rows("earliest", lane=1, timeout_s=0.0) as tail, pytest.raises(ConfigError, match=r"has lane 0 alone"):
        next(tail)
