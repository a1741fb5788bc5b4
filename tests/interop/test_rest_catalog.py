"""A tier whose table is in a REST catalog: answers get lost, come late, and two tier at once. Ref: DESIGN.md, "Lake"."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from benchmarks.speed.measure import SkippedError
from bk_spark import LogPosition
from bk_spark.errors import BookKeeperError, StorageError
from bk_spark.lake import rest
from tests.interop.lake import WITH_SPARK, Lake, by_polars, by_pyiceberg, by_spark, through
from tests.interop.rest_catalog import Relay, rest_catalog
from tests.interop.stock_spark import StockSpark

pytestmark = pytest.mark.timeout(1200)

LONGEST_S = 60.0
"""Until an error is told, on a slow machine."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with rest_catalog(tmp_path_factory.mktemp("rest-catalog")) as address:
            yield address
    except SkippedError as reason:
        pytest.skip(f"a REST catalog is not to be had: {reason}")


@pytest.fixture
def relay(catalog: str) -> Iterator[Relay]:
    with Relay(catalog).running() as relay:
        yield relay


@pytest.fixture
def at_rest(lake: Lake, relay: Relay) -> Lake:
    """A log of three ledgers whose tier is set."""
    for number in range(3):
        lake.log.append_rows(rows(100 * number, 100))
    made = through(lake, {"type": "rest", "uri": relay.address})
    made.log.set_tier(made.tier)
    return made


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "text": ["x" * 50] * count})


def is_commit(method: str, path: str) -> bool:
    return method == "POST" and "/tables/" in path and not path.endswith("/metrics")


def snapshots(lake: Lake) -> int:
    return len(lake.table().metadata.snapshots)


def check_rows(lake: Lake, count: int) -> None:
    expected = lake.rows()
    assert len(expected) == count
    assert lake.as_read_by(by_pyiceberg) == lake.as_read_by(by_polars) == expected


def test_a_log_moves_into_a_table_of_the_catalog_and_is_read_there(at_rest: Lake) -> None:
    assert at_rest.run().released.rows == 300
    check_rows(at_rest, 300)
    at_rest.log.append_rows(rows(300, 5).append_column("more", pa.array([1.5] * 5)), merge_schema=True)
    at_rest.run()
    check_rows(at_rest, 305)
    at_rest.log.truncate(LogPosition(at_rest.log.ledgers()[1].ledger_id, 0))
    at_rest.run()
    check_rows(at_rest, 205)


@WITH_SPARK
def test_spark_reads_the_table_by_the_catalog(at_rest: Lake, stock: StockSpark) -> None:
    at_rest.run()
    assert at_rest.as_read_by(by_spark(stock)) == at_rest.rows()


def test_a_commit_whose_answer_is_lost_is_found_in_the_table_and_not_made_again(at_rest: Lake, relay: Relay) -> None:
    lost = itertools.count()
    with relay.failing(lambda method, path: is_commit(method, path) and next(lost) == 0):
        at_rest.run()
    assert next(lost) == 1, "there was one commit"
    assert snapshots(at_rest) == 1
    check_rows(at_rest, 300)


def test_a_catalog_whose_answers_are_all_lost_is_named_and_the_next_run_completes_the_step(at_rest: Lake, relay: Relay) -> None:
    with relay.failing(lambda method, path: True), pytest.raises(StorageError, match=at_rest.tier.table):
        at_rest.run()
    assert at_rest.run().released.rows == 300
    check_rows(at_rest, 300)


def test_a_catalog_that_never_answers_is_named_in_time(at_rest: Lake, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_ANSWER_TIMEOUT_S", 0.5)
    ended = threading.Event()
    begun_s = time.monotonic()
    with relay.failing(lambda method, path: ended.wait(LONGEST_S)), pytest.raises(StorageError, match=at_rest.tier.table):
        at_rest.run()
    ended.set()
    assert time.monotonic() - begun_s < LONGEST_S
    at_rest.run()
    check_rows(at_rest, 300)


def test_of_two_commits_of_one_step_at_once_the_catalog_takes_one(at_rest: Lake, relay: Relay) -> None:
    commits, both = itertools.count(), threading.Barrier(2)

    def hold(method: str, path: str) -> None:
        if is_commit(method, path) and next(commits) < 2:
            both.wait(LONGEST_S)

    failures: list[BookKeeperError] = []

    def run() -> None:
        try:
            at_rest.run()
        except BookKeeperError as problem:
            failures.append(problem)

    with relay.holding(hold):
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    at_rest.run()
    assert next(commits) >= 2
    assert not [one for one in failures if not isinstance(one, StorageError)], failures
    assert snapshots(at_rest) == 1
    check_rows(at_rest, 300)
