"""Coroutines that read rows, over real bookies: beside the synchronous call, left early, cancelled, held up, closed."""

from __future__ import annotations

import asyncio
import datetime
import random
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import bk_spark.aio as bk
from bk_spark.aio.side_by_side import AsyncSideBySide
from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.running_read import RunningRead
from bk_spark.config import ClientConfig
from bk_spark.errors import BookieUnavailableError, BookKeeperError, ConfigError, NoSuchLedgerError, NoSuchLogError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_handle import Log
from bk_spark.log.rows import read_rows
from bk_spark.log.rows.side_by_side import ReadAhead
from tests.cluster.aio import event_loops
from tests.cluster.aio.event_loops import lasting_threads, pending_futures, run, tasks_of_clients, threads, until
from tests.cluster.live_ledgers import suspended

PIECEMEAL = ClientConfig(read_batch_bytes=100_000, read_ahead_requests=2, add_batch_bytes=50_000)
NOISE = random.Random(1)


def table(first: int, count: int, nbytes: int = 0) -> pa.Table:
    return pa.table({"id": list(range(first, first + count)), "raw": [NOISE.randbytes(nbytes) for _ in range(count)]})


@pytest.fixture
def log(cluster: LocalCluster) -> Iterator[Log]:
    """A log as the synchronous client sees it."""
    with BookKeeper(cluster.metadata_uri, ClientConfig(explicit_lac_s=0.02)) as client:
        yield client.open_log(f"rows-{uuid.uuid4().hex}", create=True)


LEDGER_ROWS = 2_000


def _long_log(client: BookKeeper, ledgers: int) -> Log:
    """Many parts of many entries: ledgers of two megabytes, none of which compresses."""
    log = client.open_log(f"rows-{uuid.uuid4().hex}", create=True)
    for first in range(0, ledgers * LEDGER_ROWS, LEDGER_ROWS):
        with log.open_row_writer(table(0, 1).schema, max_rows=50, max_delay_s=3600) as writer:
            for start in range(first, first + LEDGER_ROWS, 50):
                writer.append_async(table(start, 50, 1_000))
    return log


@pytest.fixture(scope="module")
def written(cluster: LocalCluster) -> Iterator[Log]:
    """Eight ledgers, for tests that only read them."""
    with BookKeeper(cluster.metadata_uri, ClientConfig(explicit_lac_s=0.02)) as client:
        yield _long_log(client, 8)


@pytest.fixture
def _in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte is read ahead."""
    monkeypatch.setattr(read_rows, "STRETCH_BYTES", 500_000)
    monkeypatch.setattr(AsyncSideBySide.__init__, "__defaults__", (1_000_000,))


@pytest.fixture
def long_log(written: Log, _in_small_parts: None) -> Log:
    """The same, read in many parts."""
    return written


with_log = partial(event_loops.with_log, config=PIECEMEAL)


async def rows_of(batches: AsyncIterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row async for batch in batches for row in batch.to_pylist()]


async def ids(batches: AsyncIterator[pa.RecordBatch]) -> list[int]:
    return [number async for batch in batches for number in batch.column("id").to_pylist()]


async def collect(batches: AsyncIterator[pa.RecordBatch], found: list[int]) -> None:
    async for batch in batches:
        found += batch.column("id").to_pylist()


_READS: weakref.WeakSet[RunningRead] = weakref.WeakSet()


@pytest.fixture(autouse=True)
def reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes every read, which is many times faster than to look for them among all objects."""
    begin = RunningRead.__init__

    def noted(read: RunningRead, *arguments: Any) -> None:
        _READS.add(read)
        begin(read, *arguments)

    monkeypatch.setattr(RunningRead, "__init__", noted)


def reads_under_way() -> int:
    return sum(1 for one in list(_READS) if not one._runner._stopped)


async def under_way() -> list[int]:
    return [await tasks_of_clients(), lasting_threads(), len(asyncio.all_tasks()), reads_under_way()]


async def until_as(before: list[int]) -> None:
    deadline_s, now = time.monotonic() + 40, await under_way()
    while any(one > then for one, then in zip(now, before, strict=True)):
        assert time.monotonic() < deadline_s, f"{now} are under way, more than {before}"
        await asyncio.sleep(0.01)
        now = await under_way()


def test_rows_are_those_of_the_synchronous_call_whatever_is_asked_for(cluster: LocalCluster, log: Log) -> None:
    first = log.append_rows(table(0, 1000))
    between = datetime.datetime.now(datetime.UTC) + datetime.timedelta(milliseconds=1)
    while datetime.datetime.now(datetime.UTC) <= between:
        pass  # commits have times in milliseconds
    log.append_rows(table(1000, 500, 100))
    log.append_rows(pa.table({"raw": [NOISE.randbytes(20_000_000)], "id": [1500]}))  # in parts
    with log.open_row_writer() as writer:
        writer.append(table(1501, 100))
        second = log.ledgers()[1].ledger_id
        asked: list[dict[str, Any]] = [
            {},
            {"columns": ["id"], "where": "id IN (3, 1500, 1600)"},
            {"columns": ["raw", "id"], "where": "id > 1400"},
            {"version": first.version},
            {"timestamp": between},
            {"start": LogPosition(second, 0)},
            {"start": LogPosition(second, 0), "end": LogPosition(second, 1)},
            {"where": "id = -1"},
        ]

        async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
            for wanted in asked:
                assert await rows_of(same.read_rows(**wanted)) == log.read_rows(**wanted).read_all().to_pylist(), wanted
            found = await asyncio.gather(*(ids(same.read_rows(["id"], end=LogPosition(second, 10**6))) for _ in range(5)))
            assert found == [list(range(1500))] * 5

        while log.read_rows(["id"]).read_all().num_rows < 1601:
            pass  # an idle writer tells bookies a moment later what is confirmed
        with_log(cluster, log, test)


def test_what_cannot_be_read_is_said_as_by_the_synchronous_call(cluster: LocalCluster, log: Log) -> None:
    wrong: list[dict[str, Any]] = [
        {"columns": ["price"]},
        {"columns": []},
        {"where": "id LIKES 5"},
        {"version": 77},
        {"timestamp": 5},
        {"version": 1, "timestamp": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},
        {"start": LogPosition(10**9, 0)},
        {"time_zone": "Nowhere/Else", "where": "id = 1"},
    ]

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        with pytest.raises(ConfigError, match="it holds nothing and has no schema"):
            await rows_of(same.read_rows())
        await same.append_rows(table(0, 5))
        for wanted in wrong:
            with pytest.raises(ConfigError) as raised:
                await rows_of(same.read_rows(**wanted))
            with pytest.raises(ConfigError) as expected:
                log.read_rows(**wanted)
            assert str(raised.value) == str(expected.value)
        await same.delete()
        with pytest.raises(NoSuchLogError):
            await rows_of(same.read_rows())

    with_log(cluster, log, test)


@pytest.mark.usefixtures("_in_small_parts")
def test_a_ledger_that_is_deleted_meanwhile_is_told_where_it_stands(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        third = log.ledgers()[2].ledger_id
        found: list[int] = []
        async with aclosing(same.read_rows(["id"], end=LogPosition(third, 0))) as before:
            assert await ids(before) == list(range(4_000))
        await client.delete_ledger(third, force=True)
        with pytest.raises(NoSuchLedgerError):
            await collect(same.read_rows(["id"]), found)
        assert found == list(range(4_000))

    with BookKeeper(cluster.metadata_uri) as writing:
        log = _long_log(writing, 3)
        with_log(cluster, log, test)


def test_a_read_that_is_left_early_ends_its_requests_and_tasks(cluster: LocalCluster, long_log: Log) -> None:
    """By ``break``, by ``aclose``, by an error, and before its first step."""

    async def fail_within(same: bk.AsyncLog) -> None:
        async for _ in same.read_rows():
            raise ZeroDivisionError

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        assert await ids(same.read_rows(["id"])) == list(range(16_000))
        await until(lambda: reads_under_way() == 0)
        before = await under_way()
        async for _ in same.read_rows():
            break
        await until_as(before)
        async with aclosing(same.read_rows()) as batches:
            await anext(batches)
            assert reads_under_way() >= 1
        await until_as(before)
        with pytest.raises(ZeroDivisionError):
            await fail_within(same)
        await until_as(before)
        await same.read_rows().aclose()
        assert await ids(same.read_rows(["id"], where="id < 10")) == list(range(10))

    with_log(cluster, long_log, test)


def test_reads_that_are_cancelled_in_any_state_leave_nothing(cluster: LocalCluster, long_log: Log) -> None:
    """While the log is looked up, while ledgers are opened, while bookies are silent, while rows are decoded or taken."""

    async def slowly(same: bk.AsyncLog) -> None:
        async for _ in same.read_rows():
            await asyncio.sleep(3600)

    async def silently(same: bk.AsyncLog) -> None:
        with suspended(*cluster.bookies):
            reading = [asyncio.create_task(ids(same.read_rows(["id"]))) for _ in range(3)]
            await until(lambda: reads_under_way() >= 9)
            await cancel(reading)
            await until(lambda: reads_under_way() == 0)

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        await silently(same)  # opens connections, which stay
        await until(lambda: reads_under_way() == 0)
        before, futures = await under_way(), pending_futures()
        for turns in range(0, 60, 3):
            reading = [asyncio.create_task(ids(same.read_rows(["id"]))) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0.002)
            await cancel(reading)
        taking = [asyncio.create_task(slowly(same)) for _ in range(3)]
        await until(lambda: reads_under_way() >= 3)
        await cancel(taking)
        await silently(same)
        await until_as(before)
        await until(lambda: pending_futures() <= futures + 10)  # a connection that is made anew has some
        assert not client._calls._waiting
        assert await ids(same.read_rows(["id"])) == list(range(16_000))

    with_log(cluster, long_log, test)


async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def test_a_slow_consumer_bounds_what_is_read_ahead(
    cluster: LocalCluster, long_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is a megabyte, and a batch of each task."""
    put, made = ReadAhead.put, 0

    def counted(ahead: ReadAhead, part: int, batch: pa.RecordBatch) -> bool:
        nonlocal made
        made += batch.nbytes
        return put(ahead, part, batch)

    monkeypatch.setattr(ReadAhead, "put", counted)

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        most = taken = 0
        numbers: list[int] = []
        async for batch in same.read_rows():
            numbers += batch.column("id").to_pylist()
            taken += batch.nbytes
            for _ in range(20):  # the tasks read on as far as they may
                await asyncio.sleep(0.001)
            most = max(most, made - taken)
        assert numbers == list(range(16_000))
        assert most < 3_000_000, "of sixteen megabytes"

    with_log(cluster, long_log, test)


def test_reads_share_the_client_s_threads(cluster: LocalCluster, long_log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        before, start = threads(), LogPosition(long_log.ledgers()[6].ledger_id, 0)
        found = await asyncio.gather(*(ids(same.read_rows(["id"], start=start)) for _ in range(20)))
        assert found == [list(range(12_000, 16_000))] * 20
        assert len(threads() - before) <= 8

    with_log(cluster, long_log, test)


def test_a_read_that_fails_raises_behind_what_stands_before_it(cluster: LocalCluster, long_log: Log) -> None:
    async def test() -> None:
        config = ClientConfig(read_batch_bytes=100_000, read_ahead_requests=2, read_timeout_s=0.5, speculative_read_s=0.2)
        async with await bk.connect(cluster.metadata_uri, config) as client:
            same = await client.open_log(long_log.name)
            with suspended(*cluster.bookies), pytest.raises(BookieUnavailableError):
                await ids(same.read_rows(["id"]))
            await until(lambda: reads_under_way() == 0)

    run(test())


def test_a_client_that_is_closed_ends_its_reads_of_rows(cluster: LocalCluster, long_log: Log) -> None:
    async def test() -> None:
        client = await bk.connect(cluster.metadata_uri, PIECEMEAL)
        same = await client.open_log(long_log.name)
        with suspended(*cluster.bookies):
            reading = asyncio.create_task(ids(same.read_rows(["id"])))
            await until(lambda: reads_under_way() >= 3)
            await client.close()
            with pytest.raises(BookKeeperError, match="closed"):
                await reading
        await until(lambda: reads_under_way() == 0)
        with pytest.raises(ConfigError, match="closed"):
            await ids(same.read_rows())

    run(test())
