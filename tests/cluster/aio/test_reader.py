"""Coroutines that read and follow ledgers, over real bookies."""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

import bk_spark.aio as bk
from bk_spark.client.ledger.running_read import RunningRead
from bk_spark.config import ClientConfig
from bk_spark.errors import BookieUnavailableError, ConfigError, NoSuchEntryError, NoSuchLedgerError, UnauthorizedAccessError
from bk_spark.local.cluster import LocalCluster
from tests.cluster.aio.event_loops import run, tasks_of_clients, until, with_client
from tests.cluster.live_ledgers import suspended

PIECEMEAL = ClientConfig(read_batch_bytes=100_000, read_ahead_requests=2, add_batch_bytes=50_000)


async def long_ledger(client: bk.AsyncBookKeeper, count: int = 2_000) -> bk.AsyncReadHandle:
    """A closed ledger of ``count`` kilobytes."""
    async with await client.create_ledger() as writer:
        await writer.append_batch([b"%07d" % number + bytes(1_000) for number in range(count)])
    return await client.open_ledger(writer.ledger_id)


async def ids(batches: Any) -> list[int]:
    return [entry_id async for batch in batches for entry_id in batch.column("entry_id").to_pylist()]


def reads_under_way() -> int:
    """Reads whose state machines still run."""
    gc.collect()
    return sum(1 for one in gc.get_objects() if isinstance(one, RunningRead) and not one._runner._stopped)


def test_a_long_ledger_is_read_whole_and_in_order_by_several_tasks_at_once(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        async with await long_ledger(client) as reader:
            assert (reader.is_closed, reader.last_add_confirmed) == (True, 1_999)
            found = await asyncio.gather(*(ids(reader.read(0, 1_999)) for _ in range(3)))
            assert found == [list(range(2_000))] * 3
            assert await ids(reader.read_unconfirmed(5, 7)) == [5, 6, 7]
            for wrong in (reader.read, reader.read_unconfirmed):
                with pytest.raises(NoSuchEntryError):
                    wrong(0, 2_000)
                with pytest.raises(ConfigError):
                    wrong(3, 2)

    with_client(cluster, test, PIECEMEAL)


def test_a_read_that_is_left_early_ends_its_requests(cluster: LocalCluster) -> None:
    """By ``break``, by ``aclose``, and by an error."""

    async def test(client: bk.AsyncBookKeeper) -> None:
        reader = await long_ledger(client)
        await until_idle()
        before = await tasks_of_clients()
        async for batch in reader.read(0, 1_999):
            assert batch.num_rows < 2_000
            break
        async with aclosing(reader.read(0, 1_999)) as batches:
            await anext(batches)
            assert reads_under_way() >= 1
        with pytest.raises(ZeroDivisionError):
            await fail_within(reader)
        await until_idle()
        await until_tasks(before)
        assert await ids(reader.read(1_990, 1_999)) == list(range(1_990, 2_000))

    with_client(cluster, test, PIECEMEAL)


async def fail_within(reader: bk.AsyncReadHandle) -> None:
    async for _ in reader.read(0, 1_999):
        raise ZeroDivisionError


async def until_idle() -> None:
    await until(lambda: reads_under_way() == 0)


async def until_tasks(count: int) -> None:
    while await tasks_of_clients() > count:
        await asyncio.sleep(0.005)


def test_cancelled_reads_and_long_polls_end_their_requests_and_leave_nothing(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        reader = await long_ledger(client)
        writer = await client.create_ledger()
        await writer.append(b"x")
        tail = await client.open_ledger(writer.ledger_id, recover=False)
        await until_idle()
        before = await tasks_of_clients()
        with suspended(*cluster.bookies):
            waits = [asyncio.create_task(ids(reader.read(0, 1_999))) for _ in range(20)]
            waits += [asyncio.create_task(asyncio.wait_for(anext(reader.read(0, 9)), 3_600)) for _ in range(20)]
            waits += [asyncio.create_task(tail.wait_for_last_add_confirmed(5, 3_600)) for _ in range(200)]
            waits += [asyncio.create_task(client.open_ledger(reader.ledger_id)) for _ in range(20)]
            while await tasks_of_clients() <= before + 200:
                await asyncio.sleep(0.005)
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
            await until_idle()
            await until_tasks(before)
            assert not client._calls._waiting
        assert await ids(reader.read(0, 9)) == list(range(10))
        await writer.close()

    with_client(cluster, test, PIECEMEAL)


def test_a_timeout_ends_a_wait_for_new_entries_and_the_next_wait_finds_them(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        writer = await client.create_ledger()
        reader = await client.open_ledger(writer.ledger_id, recover=False)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.wait_for_last_add_confirmed(-1, 3_600)
        assert await reader.wait_for_last_add_confirmed(-1, 0.01) == -1
        waiting = asyncio.create_task(reader.wait_for_last_add_confirmed(-1, 3_600))
        await writer.append(b"x")
        assert await waiting == 0
        for wrong in ((-2, 1.0), (0, -1.0)):
            with pytest.raises(ConfigError):
                await reader.wait_for_last_add_confirmed(*wrong)
        await writer.close()

    with_client(cluster, test)


def test_a_tail_follows_a_writer_to_the_end_of_its_ledger(cluster: LocalCluster) -> None:
    async def follow(client: bk.AsyncBookKeeper, ledger_id: int) -> list[bytes]:
        found: list[bytes] = []
        reader = await client.open_ledger(ledger_id, recover=False)
        while len(found) <= reader.last_add_confirmed or not reader.is_closed:
            last = await reader.wait_for_last_add_confirmed(len(found) - 1, 30)
            if last >= len(found):
                async for batch in reader.read(len(found), last):
                    found += batch.column("payload").to_pylist()
        return found

    async def test(client: bk.AsyncBookKeeper) -> None:
        async with await client.create_ledger() as writer:
            following = [asyncio.create_task(follow(client, writer.ledger_id)) for _ in range(3)]
            for number in range(50):
                await writer.append(b"%d" % number)
        assert await asyncio.gather(*following) == [[b"%d" % number for number in range(50)]] * 3

    with_client(cluster, test)


def test_how_far_a_ledger_is_confirmed_can_be_asked_and_told_when_it_is_closed(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        writer = await client.create_ledger()
        reader = await client.open_ledger(writer.ledger_id, recover=False)
        await writer.append_batch([b"x"] * 3)
        await writer.append(b"y")
        assert await reader.read_last_add_confirmed() >= 2
        assert await reader.try_read_last_add_confirmed() >= 2
        await writer.close()
        assert (await reader.read_last_add_confirmed(), reader.is_closed, reader.length) == (3, True, 4)

    with_client(cluster, test)


def test_opening_a_ledger_recovers_it_as_the_synchronous_client_does(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        writer = await client.create_ledger(password=b"secret")
        await writer.append_batch([b"a", b"b"])
        with pytest.raises(UnauthorizedAccessError):
            await client.open_ledger(writer.ledger_id)
        openers = (client.open_ledger(writer.ledger_id, b"secret") for _ in range(5))
        for reader in await asyncio.gather(*openers):
            assert (reader.is_closed, await ids(reader.read(0, 1))) == (True, [0, 1])
        await client.delete_ledger(writer.ledger_id)
        with pytest.raises(NoSuchLedgerError):
            await client.open_ledger(writer.ledger_id, b"secret")

    with_client(cluster, test)


def test_a_read_that_fails_raises_in_the_task_that_reads(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        reader = await long_ledger(client, 10)
        with suspended(*cluster.bookies), pytest.raises(BookieUnavailableError):
            await ids(reader.read(0, 9))
        assert len(await ids(reader.read(0, 9))) == 10

    with_client(cluster, test, replace(PIECEMEAL, read_timeout_s=0.5, speculative_read_s=0.2))


def test_a_client_that_is_closed_ends_its_reads(cluster: LocalCluster) -> None:
    async def test() -> None:
        client = await bk.connect(cluster.metadata_uri, PIECEMEAL)
        reader = await long_ledger(client)
        with suspended(*cluster.bookies):
            reading = asyncio.create_task(ids(reader.read(0, 1_999)))
            await until(lambda: reads_under_way() == 1)
            await client.close()
            with pytest.raises(ConfigError, match="closed"):
                await reading
        await until_idle()
        with pytest.raises(ConfigError, match="closed"):
            await ids(reader.read(0, 1_999))

    run(test())
