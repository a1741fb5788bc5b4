"""Coroutines that follow the rows of a log, over real bookies: beside the synchronous tail, left early, cancelled, closed."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import bk_spark.aio as bk
from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import BookKeeperError, ConfigError, LogReplacedError, NoSuchLogError, SchemaMismatchError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.log_handle import Log
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from tests.cluster.aio import event_loops
from tests.cluster.aio.event_loops import pending_futures, run, tasks_of_clients, until
from tests.cluster.live_ledgers import suspended

BRISK = ClientConfig(explicit_lac_s=0.02)
LONG_S = 60.0


def table(first: int, count: int = 10) -> pa.Table:
    return pa.table({"id": list(range(first, first + count)), "item": [f"item {one}" for one in range(first, first + count)]})


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri, BRISK) as client:
        yield client


@pytest.fixture
def log(client: BookKeeper) -> Log:
    """A log as the synchronous client sees it."""
    return client.open_log(f"rows-{uuid.uuid4().hex}", create=True)


with_log = partial(event_loops.with_log, config=BRISK)


async def ids(tail: bk.AsyncRowTail) -> list[int]:
    return [number async for batch in tail for number in batch.column("id").to_pylist()]


async def first_ids(tail: bk.AsyncRowTail, count: int) -> list[int]:
    """Of a tail that goes on."""
    found: list[int] = []
    async for batch in tail:
        found += batch.column("id").to_pylist()
        if len(found) >= count:
            break
    return found


def watches(client: bk.AsyncBookKeeper) -> int:
    return len(client._client.metadata_store._watches)


async def started(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.get_running_loop().create_task(call)
    await asyncio.sleep(0)
    return task


def test_a_tail_sees_the_rows_of_appends_and_of_leaders_of_both_clients(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        following = [await started(first_ids(same.tail_rows("earliest", timeout_s=LONG_S), 50)) for _ in range(3)]
        await asyncio.to_thread(log.append_rows, table(0))
        await same.append_rows(table(10))
        async with await same.open_row_writer(max_delay_s=0.001, roll_bytes=1) as writer:
            for number in range(20, 30):
                await writer.append(table(number, 1))
        await asyncio.to_thread(lead, log, 30)
        await same.append_rows(table(40))
        assert await asyncio.gather(*following) == [list(range(50))] * 3
        assert await ids(same.tail_rows("earliest", timeout_s=0)) == list(range(50))

    with_log(cluster, log, test)


def lead(log: Log, first: int) -> None:
    with log.open_row_writer(max_delay_s=0.001) as writer:
        for number in range(first, first + 10):
            writer.append(table(number, 1))


def test_a_tail_sees_what_a_leader_confirms_while_it_leads(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        async with await same.open_row_writer(table(0).schema) as writer, same.tail_rows("earliest", timeout_s=LONG_S) as tail:
            for number in range(5):
                await writer.append(table(number, 1))
                assert (await anext(tail)).column("id").to_pylist() == [number]

    with_log(cluster, log, test)


def test_a_tail_starts_behind_what_is_there_and_a_later_one_goes_on_at_its_position(cluster: LocalCluster, log: Log) -> None:
    log.append_rows(table(0))

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        unused = same.tail_rows("earliest")
        assert unused.position == "earliest"
        async with same.tail_rows(columns=["id"], where="id > 12", timeout_s=LONG_S) as tail:
            await same.append_rows(table(10, 5))
            assert (await anext(tail)).to_pylist() == [{"id": 13}, {"id": 14}]
            position = tail.position
        await same.append_rows(table(15, 5))
        assert await ids(same.tail_rows(position, timeout_s=0)) == list(range(15, 20))
        assert [one.column("id").to_pylist() for one in log.tail_rows(position, timeout_s=0)] == [list(range(15, 20))]

    with_log(cluster, log, test)


def test_a_row_in_parts_is_followed_and_a_wider_type_ends_a_tail_as_it_ends_the_synchronous_one(
    cluster: LocalCluster, log: Log
) -> None:
    large = b"x" * 20_000_000
    log.append_rows(pa.table({"n": pa.array([1], pa.int32()), "raw": [large]}), compression="none")
    log.append_rows(pa.table({"n": pa.array([2], pa.int32())}))
    log.append_rows(pa.table({"n": pa.array([2**40], pa.int64())}), merge_schema=True)

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        tail = same.tail_rows("earliest", timeout_s=0)
        assert (await anext(tail)).column("raw").to_pylist() == [large]
        assert (await anext(tail)).column("n").to_pylist() == [2]
        with pytest.raises(SchemaMismatchError, match="begin another one at its position"):
            await anext(tail)
        assert [batch.to_pylist() async for batch in same.tail_rows(tail.position, ["n"], timeout_s=0)] == [[{"n": 2**40}]]

    with_log(cluster, log, test)


def test_a_tail_that_cannot_start_says_why_as_the_synchronous_one(cluster: LocalCluster, log: Log) -> None:
    log.append_rows(table(0))
    wrong: list[dict[str, Any]] = [{"start": "yesterday"}, {"timeout_s": -1}, {"overwrites": "maybe"}]

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        for wanted in wrong:
            with pytest.raises(ConfigError) as raised:
                await ids(same.tail_rows(**wanted))
            with pytest.raises(ConfigError) as expected:
                log.tail_rows(**wanted)
            assert str(raised.value) == str(expected.value)
        with pytest.raises(ConfigError, match="columns"):
            await ids(same.tail_rows("earliest", columns=["price"], timeout_s=0))
        await same.delete()
        with pytest.raises(NoSuchLogError):
            async with same.tail_rows():
                pass

    with_log(cluster, log, test)


def replace_all(log: Log, client: BookKeeper) -> None:
    """An overwrite with the log's own rows, as Spark makes it."""
    job = client.logs.jobs.begin(log.name)
    writer = client.create_ledger(job=job)
    for batch in log.read():
        writer.append_batch(batch.column("payload"))
    writer.close()
    ledger = CommittedLedger(writer.ledger_id, writer.last_add_confirmed, writer.length, 10)
    client.logs.commit_or_abort(job, CommitRequest(CommitKind.OVERWRITE, (ledger,), log.snapshot().schema_json))


def test_a_tail_says_that_content_was_replaced_or_goes_on(cluster: LocalCluster, log: Log, client: BookKeeper) -> None:
    log.append_rows(table(0))

    async def test(_: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        tails = {name: same.tail_rows("earliest", timeout_s=0, overwrites=name) for name in ("fail", "read", "skip")}
        for tail in tails.values():
            await anext(tail)
        await asyncio.to_thread(replace_all, log, client)
        await same.append_rows(table(20, 1))
        with pytest.raises(LogReplacedError):
            await anext(tails["fail"])
        assert await ids(tails["read"]) == [*range(10), 20]
        assert await ids(tails["skip"]) == [20]

    with_log(cluster, log, test)


def test_an_idle_tail_holds_no_thread(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        async with await same.open_row_writer(table(0).schema) as writer:
            following = [await started(first_ids(same.tail_rows(timeout_s=LONG_S), 10)) for _ in range(50)]
            await until(lambda: watches(client) >= 50)
            await writer.append(table(0))
            async with asyncio.timeout(LONG_S):
                assert await client.list_logs()
            assert len([one for one in threading.enumerate() if one.name.startswith("bk_spark-call")]) <= 8
            for one in following:
                one.cancel()
            await asyncio.wait(following)

    with_log(cluster, log, test)


async def under_way(client: bk.AsyncBookKeeper) -> list[int]:
    return [await tasks_of_clients(), len(asyncio.all_tasks()), watches(client), len(client._calls._waiting)]


async def until_as(client: bk.AsyncBookKeeper, before: list[int]) -> None:
    while any(one > then for one, then in zip(await under_way(client), before, strict=True)):
        await asyncio.sleep(0.01)


def test_a_tail_that_is_left_early_or_never_begun_leaves_nothing(cluster: LocalCluster, log: Log) -> None:
    async def fail_within(same: bk.AsyncLog) -> None:
        async with same.tail_rows("earliest") as tail:
            async for _ in tail:
                raise ZeroDivisionError

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        await same.append_rows(table(0))
        await ids(same.tail_rows("earliest", timeout_s=0))
        before = await under_way(client)
        async for _ in same.tail_rows("earliest"):
            break
        await until_as(client, before)
        with pytest.raises(ZeroDivisionError):
            await fail_within(same)
        await until_as(client, before)
        same.tail_rows()
        tail = same.tail_rows("earliest")
        await anext(tail)
        await tail.close()
        with pytest.raises(StopAsyncIteration):
            await anext(tail)
        await until_as(client, before)

    with_log(cluster, log, test)


def test_tails_that_are_cancelled_in_any_state_leave_nothing_and_keep_their_position(cluster: LocalCluster, log: Log) -> None:
    """At their start, in a look, while they read, while they poll an open ledger's bookies, while they wait for the head."""

    async def follow(same: bk.AsyncLog, tails: list[bk.AsyncRowTail], found: list[int]) -> None:
        tails.append(same.tail_rows(tails[-1].position if tails else "earliest"))
        async for batch in tails[-1]:
            found += batch.column("id").to_pylist()

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        await same.append_rows(table(0))
        await ids(same.tail_rows("earliest", timeout_s=0))
        before, futures = await under_way(client), pending_futures()
        tails: list[bk.AsyncRowTail] = []
        found: list[int] = []
        written = 10
        for turns in range(40):
            following = await started(follow(same, tails, found))
            if turns % 4 == 0:
                await same.append_rows(table(written))
                written += 10
            for _ in range(turns):
                await asyncio.sleep(0.001)
            following.cancel()
            await asyncio.wait([following])
        async with await same.open_row_writer() as writer:
            polling = await started(follow(same, tails, found))
            await writer.append(table(written))
            written += 10
            await until(lambda: len(found) == written)
            with suspended(*cluster.bookies):
                await asyncio.sleep(0.01)
                polling.cancel()
                await asyncio.wait([polling])
        assert found == list(range(written)), "each row once, over all the tails"
        await until_as(client, before)
        tails.clear()
        await until(lambda: pending_futures() <= futures + 10)  # a connection that is made anew has some

    with_log(cluster, log, test)


def test_a_client_that_is_closed_ends_its_tails(cluster: LocalCluster, log: Log) -> None:
    log.append_rows(table(0))

    async def test() -> None:
        client = await bk.connect(cluster.metadata_uri, BRISK)
        same = await client.open_log(log.name)
        waiting = [await started(ids(same.tail_rows(start))) for start in ("earliest", "latest")]
        await until(lambda: watches(client) >= 2)
        await client.close()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(one, BookKeeperError) for one in ended), ended
        with pytest.raises(ConfigError, match="closed"):
            await ids(same.tail_rows())

    run(test())
