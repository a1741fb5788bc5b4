"""Coroutines that append, over real bookies: order, back-pressure, cancellation, errors, and loops that end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Coroutine
from typing import Any

import pytest

import bk_spark.aio as bk
from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import (
    AddQuorumTimeoutError,
    AppendWindowFullError,
    BookKeeperError,
    ConfigError,
    DuplicateEntryError,
    LedgerClosedError,
    LedgerFencedError,
)
from bk_spark.local.cluster import LocalCluster
from tests.cluster.aio.event_loops import (
    Ticks,
    lasting_threads,
    pending_futures,
    run,
    tasks_of_clients,
    threads,
    until,
    with_client,
)
from tests.cluster.live_ledgers import payloads, suspended

NARROW = ClientConfig(add_batch_bytes=10_000, add_window_bytes=20_000)
LARGE = b"x" * 9_000
"""Two of these fill the narrow window."""


def read_back(cluster: LocalCluster, ledger_id: int) -> list[bytes]:
    with BookKeeper(cluster.metadata_uri) as client, client.open_ledger(ledger_id) as reader:
        return payloads(reader)


def started(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(call)


def test_ten_thousand_appends_at_once_are_confirmed_in_order_and_read_back(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        async with await client.create_ledger() as writer:
            sent = [b"%d" % number for number in range(10_000)]
            before = threads()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(writer.append(payload)) for payload in sent]
            assert [task.result() for task in tasks] == list(range(10_000))
            assert await asyncio.gather(*(writer.append(payload) for payload in sent)) == list(range(10_000, 20_000))
            assert threads() == before, "no call has a thread of its own"
        assert read_back(cluster, writer.ledger_id) == 2 * sent

    with_client(cluster, test)


def test_one_task_has_many_appends_on_their_way(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        async with await client.create_ledger() as writer:
            futures = [await writer.append_async(b"%d" % number) for number in range(2_000)]
            assert [await future for future in futures] == list(range(2_000))
            batches = [await writer.append_batch_async([b"x"] * 10) for _ in range(50)]
            assert [await batch for batch in batches] == [(first, first + 9) for first in range(2_000, 2_500, 10)]
            assert await writer.append_batch([b"y", b"z"]) == (2_500, 2_501)
            assert await writer.force() == writer.last_add_confirmed == writer.last_add_pushed == 2_501
        assert len(read_back(cluster, writer.ledger_id)) == 2_502

    with_client(cluster, test)


def test_while_the_window_is_full_coroutines_suspend_in_order_and_the_loop_goes_on(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        ticks = Ticks()
        async with await client.create_ledger() as writer:
            with suspended(*cluster.bookies):
                appends = [started(writer.append(LARGE + b"%d" % number)) for number in range(20)]
                appends.append(started(writer.append_batch([LARGE] * 5)))
                entering = started(writer.append_async(b"last"))
                ticking = started(ticks.run())
                await until(lambda: ticks.count >= 50)
                assert writer._queue._held_bytes <= NARROW.add_window_bytes, "the window bounds what the writer holds"
                assert not any(one.done() for one in (*appends, entering))
            assert await asyncio.gather(*appends) == [*range(20), (20, 24)]
            assert await (await entering) == 25
            ticking.cancel()
        found = read_back(cluster, writer.ledger_id)
        assert found == [LARGE + b"%d" % number for number in range(20)] + [LARGE] * 5 + [b"last"]

    with_client(cluster, test, NARROW)


def test_a_single_task_that_only_appends_gives_others_their_turn(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with await client.create_ledger() as writer:
            counting = started(others())
            futures = [await writer.append_async(b"x") for _ in range(5_000)]
            assert turns >= 10
            counting.cancel()
            await asyncio.gather(*futures)

    with_client(cluster, test)


async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)


async def append_and_cancel(writer: bk.AsyncWriteHandle, cluster: LocalCluster) -> None:
    """A thousand appends of all kinds are cancelled between two that are kept."""
    with suspended(*cluster.bookies):
        kept = [started(writer.append(LARGE + b"kept"))]
        doomed = [started(writer.append(bytes(500))) for _ in range(1_000)]
        doomed += [started(writer.append_batch([LARGE] * 4)) for _ in range(50)]
        doomed += [started(writer.append_async(b"entering")) for _ in range(50)]
        kept.append(started(writer.append(LARGE + b"kept")))
        await asyncio.sleep(0)
        await cancel(doomed)
        await until(lambda: len(writer._queue._line) <= 1)  # only the append that is kept stands in line
        assert writer._queue._held_bytes <= NARROW.add_window_bytes
    await asyncio.gather(*kept)
    await until(lambda: writer._queue._held_bytes == 0)


async def under_way() -> list[int]:
    return [await tasks_of_clients(), pending_futures(), lasting_threads(), len(asyncio.all_tasks())]


def test_thousands_of_cancelled_appends_leave_nothing_and_disturb_no_other(cluster: LocalCluster) -> None:
    """Some are withdrawn from the line, some are in the queue, some are under way."""

    async def test(client: bk.AsyncBookKeeper) -> None:
        async with await client.create_ledger() as writer:
            await append_and_cancel(writer, cluster)  # opens connections, which stay
            before = await under_way()
            for _ in range(3):
                await append_and_cancel(writer, cluster)
            queue = writer._queue
            assert (len(queue._items), len(queue._in_flight), len(queue._line), queue._queued_bytes) == (0, 0, 0, 0)
            assert not client._calls._waiting
            while any(now > then for now, then in zip(await under_way(), before, strict=True)):
                await asyncio.sleep(0.01)  # an idle writer tells its bookies how far the ledger is confirmed
            confirmed = await writer.append(b"last")
        found = read_back(cluster, writer.ledger_id)
        assert (found.count(LARGE + b"kept"), len(found)) == (8, confirmed + 1)
        assert len(found) < 1_000, "most were withdrawn before they had room"

    with_client(cluster, test, NARROW)


def test_an_append_that_is_cancelled_on_its_way_may_be_confirmed_all_the_same(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        async with await client.create_ledger() as writer:
            with suspended(*cluster.bookies):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await writer.append(b"cancelled")
                after = started(writer.append(b"after"))
                await asyncio.sleep(0)
            assert await after == 1
        assert read_back(cluster, writer.ledger_id) == [b"cancelled", b"after"]

    with_client(cluster, test)


def test_a_task_group_that_fails_cancels_its_appends_and_the_writer_goes_on(cluster: LocalCluster) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def fail_beside(writer: bk.AsyncWriteHandle) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(writer.append(LARGE))
            group.create_task(fail())

    async def test(client: bk.AsyncBookKeeper) -> None:
        async with await client.create_ledger() as writer:
            with suspended(*cluster.bookies), pytest.raises(ExceptionGroup):
                await fail_beside(writer)
            assert await writer.append(b"after") <= 10

    with_client(cluster, test, NARROW)


def test_a_fenced_writer_s_error_arrives_at_each_await(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        writer = await client.create_ledger()
        await writer.append(b"before")
        with BookKeeper(cluster.metadata_uri) as other:
            await asyncio.to_thread(other.open_ledger, writer.ledger_id)
        calls: list[Awaitable[Any]] = [writer.append(b"x") for _ in range(100)]
        calls += [writer.append_batch([b"x"]), await writer.append_async(b"x"), await writer.append_batch_async([b"x"])]
        failed = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(one) for one in failed} == {LedgerFencedError}
        for call in (writer.append(b"later"), writer.force()):
            with pytest.raises(LedgerFencedError):
                await call

    with_client(cluster, test)


def test_what_stands_in_line_fails_with_the_writer(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        writer = await client.create_ledger()
        with suspended(*cluster.bookies):
            failed = await asyncio.gather(*(writer.append(LARGE) for _ in range(10)), return_exceptions=True)
        assert {type(one) for one in failed} == {AddQuorumTimeoutError}
        assert not writer._queue.has_line

    with_client(cluster, test, ClientConfig(**{**vars_of(NARROW), "add_quorum_timeout_s": 2.0}))


def vars_of(config: ClientConfig) -> dict[str, Any]:
    return {"add_batch_bytes": config.add_batch_bytes, "add_window_bytes": config.add_window_bytes}


def test_closing_the_client_ends_all_that_waits(cluster: LocalCluster) -> None:
    async def test() -> None:
        client = await bk.connect(cluster.metadata_uri, NARROW)
        writer = await client.create_ledger()
        reader = await client.open_ledger(writer.ledger_id, recover=False)
        log = await client.open_log("closed-client", create=True)
        leader = await log.open_writer()
        with suspended(*cluster.bookies):
            waiting = [started(writer.append(LARGE)) for _ in range(5)]
            waiting += [started(writer.append_batch([LARGE])), started(writer.append_async(b"x")), started(writer.force())]
            waiting += [started(leader.append(LARGE)) for _ in range(5)]
            waiting += [started(reader.wait_for_last_add_confirmed(0, 3_600)), started(reader.read_last_add_confirmed())]
            await until(lambda: writer._queue.has_line)
            await client.close()
            ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(one, BookKeeperError) for one in ended), ended
        for call in (writer.append(b"x"), writer.close(), client.list_logs(), leader.append(b"x"), leader.close()):
            with pytest.raises(ConfigError, match="closed"):
                await call
        await client.close()

    run(test())


def test_a_client_belongs_to_the_event_loop_that_connected_it(cluster: LocalCluster) -> None:
    async def made() -> tuple[bk.AsyncBookKeeper, bk.AsyncWriteHandle]:
        client = await bk.connect(cluster.metadata_uri)
        return client, await client.create_ledger()

    with asyncio.Runner() as runner:
        client, writer = runner.run(made())

        def use_elsewhere() -> list[str]:
            problems = []
            calls = (writer.append(b"x"), writer.append_batch([b"x"]), writer.close(), client.list_logs(), client.close())
            for call in calls:
                try:
                    asyncio.run(call)  # type: ignore[arg-type]
                except ConfigError as problem:
                    problems.append(str(problem))
            return problems

        problems = runner.run(asyncio.to_thread(use_elsewhere))
        assert len(problems) == 5
        assert all("another event loop" in problem for problem in problems)
        assert runner.run(writer.append(b"x")) == 0
        runner.run(client.close())


def test_several_event_loops_in_one_process_each_have_a_client(cluster: LocalCluster) -> None:
    found: list[list[int]] = []

    async def test() -> None:
        async with await bk.connect(cluster.metadata_uri) as client, await client.create_ledger() as writer:
            found.append(await asyncio.gather(*(writer.append(b"x") for _ in range(500))))

    loops = [threading.Thread(target=run, args=(test(),)) for _ in range(3)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    assert found == [list(range(500))] * 3


def test_a_loop_that_is_closed_under_its_appends_harms_nobody(cluster: LocalCluster, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(bk.connect(cluster.metadata_uri, NARROW))
    writer = loop.run_until_complete(client.create_ledger())
    with suspended(*cluster.bookies):
        appends = [loop.create_task(writer.append(LARGE)) for _ in range(10)]
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        with BookKeeper(cluster.metadata_uri) as other, other.create_ledger() as bystander:
            future = bystander.append_async(b"x")
            for bookie in cluster.bookies:
                bookie.resume()
            assert future.result(60) == 0
    deadline_s = time.monotonic() + 60
    while writer._queue._held_bytes:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert not writer._queue.has_line
    assert not client._calls.loop._told
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert not any(append.done() for append in appends)
    for append in appends:
        append._log_destroy_pending = False  # type: ignore[attr-defined]
    client._client.close()


def test_the_ids_may_be_the_application_s_and_an_append_beyond_a_gap_waits_for_those_below(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        async with await client.create_ledger_adv() as writer:
            later = [started(writer.append(entry_id, b"%d" % entry_id)) for entry_id in (2, 1)]
            batch = started(writer.append_batch(3, [b"3", b"4"]))
            await asyncio.sleep(0)
            assert await writer.append(0, b"0") == 0
            assert await asyncio.gather(*later) == [2, 1]
            assert await batch == (3, 4)
            with pytest.raises(DuplicateEntryError):
                await writer.append(1, b"again")
            assert await (await writer.append_async(5, b"5")) == 5
            assert await (await writer.append_batch_async(6, [b"6"])) == (6, 6)
            stuck = [started(writer.append(entry_id, LARGE)) for entry_id in (8, 9, 10, 11)]
            refused, _ = await asyncio.wait(stuck, return_when=asyncio.FIRST_EXCEPTION)
            assert {type(one.exception()) for one in refused} == {AppendWindowFullError}
            assert await writer.append(7, b"7") == 7
        assert read_back(cluster, writer.ledger_id)[:8] == [b"%d" % entry_id for entry_id in range(8)]
        await asyncio.wait(stuck)

    with_client(cluster, test, NARROW)


async def fail_within(writer: bk.AsyncWriteHandle) -> None:
    async with writer:
        await writer.append(b"x")
        raise ZeroDivisionError


def test_an_error_in_the_block_closes_the_ledger_and_stays_the_error(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        writer = await client.create_ledger()
        with pytest.raises(ZeroDivisionError):
            await fail_within(writer)
        assert (await client.ledger_metadata(writer.ledger_id)).is_closed
        with pytest.raises(LedgerClosedError):
            await writer.append(b"y")

    with_client(cluster, test)
