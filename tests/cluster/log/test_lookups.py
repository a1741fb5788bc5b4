"""The newest row of a key, on real bookies: as a read of all rows has it, for threads, beside commits, and interrupted."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.calls.call_future import CallFuture
from bk_spark.errors import ConfigError, NoSuchLogError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.log_handle import Log

KEYS = 5_000
"""Of which each commit has 20,000 rows: entries of all lanes hold most of them."""


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client


@pytest.fixture
def log(client: BookKeeper) -> Log:
    return client.open_log(f"lookups-{uuid.uuid4().hex}", create=True)


def drawn(seed: int, rows: int = 20_000) -> pa.Table:
    chance = random.Random(seed)
    return pa.table(
        {
            "customer": [f"customer {chance.randrange(KEYS)}" for _ in range(rows)],
            "amount": [chance.randrange(10**6) for _ in range(rows)],
            "gone": [chance.random() < 0.1 for _ in range(rows)],
        }
    )


def newest(log: Log, version: int | None = None) -> dict[str, dict[str, Any]]:
    return {row["customer"]: row for row in log.read_rows(version=version).read_all().to_pylist()}


def test_look_ups_agree_with_a_read_of_all_rows_cold_and_warm_and_of_old_versions(log, client) -> None:
    for seed in range(4):
        log.append_rows(drawn(seed), partition_key="customer")
    keys = [f"customer {number}" for number in random.Random(5).sample(range(KEYS + 500), 300)]
    for version in (None, 2):
        expected = newest(log, version)
        for one in (client.open_log(log.name), log, log):
            found = one.get_many(keys, version=version)
            assert found.to_pylist() == [expected[key] for key in keys if key in expected]
            alive = one.get_many(keys, version=version, deleted_by="gone", columns=["amount"])
            wanted = [expected[key] for key in keys if key in expected and not expected[key]["gone"]]
            assert alive.to_pylist() == [{"amount": row["amount"]} for row in wanted]
            for key in keys[:20]:
                assert one.get(key, version=version).to_pylist() == ([expected[key]] if key in expected else [])


def test_each_look_up_sees_the_commits_that_came_before_it_whoever_made_them(log, cluster) -> None:
    log.append_rows(pa.table({"customer": ["a"], "amount": [0]}), partition_key="customer")
    with BookKeeper(cluster.metadata_uri) as other:
        writer = other.open_log(log.name)
        for number in range(1, 20):
            writer.append_rows(pa.table({"customer": ["a"], "amount": [number]}))
            assert log.get("a").to_pylist() == [{"customer": "a", "amount": number}]


def test_threads_share_a_log_while_rows_are_appended(log) -> None:
    log.append_rows(drawn(0), partition_key="customer")
    before = newest(log)
    done = threading.Event()

    def look_up(seed: int) -> int:
        chance, looks = random.Random(seed), 0
        while not done.is_set() or looks < 20:
            key = f"customer {chance.randrange(KEYS)}"
            found = log.get(key).to_pylist()
            assert [row["customer"] for row in found] in ([key], [] if key not in before else [key])
            looks += 1
        return looks

    with ThreadPoolExecutor(4) as threads:
        looking = [threads.submit(look_up, seed) for seed in range(4)]
        try:
            for seed in range(1, 4):
                log.append_rows(drawn(seed))
        finally:
            done.set()
        assert all(one.result() >= 20 for one in looking)
    expected = newest(log)
    assert log.get_many(list(expected)).num_rows == len(expected)


def test_an_interrupt_ends_a_look_up_at_once_and_the_next_one_works(log, monkeypatch) -> None:
    log.append_rows(drawn(0), partition_key="customer")
    expected = newest(log)
    real = CallFuture.result

    def interrupted(self: CallFuture, *arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(CallFuture, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.get("customer 7")
    monkeypatch.setattr(CallFuture, "result", real)
    assert log.get("customer 7").to_pylist() == [expected["customer 7"]]


def test_a_log_without_a_key_and_one_that_was_deleted_are_refused(log) -> None:
    log.append_rows(pa.table({"customer": ["a"]}))
    with pytest.raises(ConfigError, match="it has no key"):
        log.get("a")
    log.delete()
    with pytest.raises(NoSuchLogError):
        log.get("a")
