"""Coroutines that look keys up: as the synchronous calls do, many at once, and cancelled."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

import bk_spark.aio as bk
from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.log_handle import Log
from tests.cluster.aio.event_loops import with_log


@pytest.fixture
def log(cluster: LocalCluster) -> Iterator[Log]:
    """A log as the synchronous client sees it."""
    with BookKeeper(cluster.metadata_uri) as client:
        log = client.open_log(f"lookups-{uuid.uuid4().hex}", create=True)
        numbers = list(range(20_000))
        rows = pa.table({"k": [number % 3_000 for number in numbers], "n": numbers, "gone": [False] * len(numbers)})
        log.append_rows(rows, partition_key="k", lanes=4)
        log.append_rows(pa.table({"k": [5], "n": [-1], "gone": [True]}))
        yield log


def test_coroutines_find_what_the_synchronous_calls_find(cluster: LocalCluster, log: Log) -> None:
    async def look_up(_: bk.AsyncBookKeeper, found: bk.AsyncLog) -> None:
        assert (await found.get(7)).equals(log.get(7))
        assert (await found.get(5, deleted_by="gone")).num_rows == 0
        assert (await found.get(5, version=1, columns=["n"])).equals(log.get(5, version=1, columns=["n"]))
        keys = pa.array([9, 5, 10**6, 8])
        assert (await found.get_many(keys, deleted_by="gone")).equals(log.get_many(keys, deleted_by="gone"))
        with pytest.raises(ConfigError, match="as int64"):
            await found.get("7")

    with_log(cluster, log, look_up)


def test_many_at_once_and_some_cancelled_leave_the_others_alone(cluster: LocalCluster, log: Log) -> None:
    async def look_up(_: bk.AsyncBookKeeper, found: bk.AsyncLog) -> None:
        tasks = [asyncio.create_task(found.get(number, columns=["k"])) for number in range(60)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended[::3])
        rest = [one.to_pylist() for number, one in enumerate(ended) if number % 3]
        assert rest == [[{"k": number}] for number in range(60) if number % 3]

    with_log(cluster, log, look_up)
