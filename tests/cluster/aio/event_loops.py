"""What the tests of bk_spark.aio share: event loops with a deadline, and a look at what is under way."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import bk_spark.aio as bk
from bk_spark.client.driver.event_loop import EventLoop
from bk_spark.config import ClientConfig
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.log_handle import Log

DEADLINE_S = 120.0
"""For a whole test: on a busy machine thousands of tasks take their time."""

_Result = TypeVar("_Result")


def run(test: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a test on an event loop of its own."""
    return asyncio.run(asyncio.wait_for(test, DEADLINE_S))


def with_client(
    cluster: LocalCluster, test: Callable[[bk.AsyncBookKeeper], Coroutine[Any, Any, None]], config: ClientConfig | None = None
) -> None:
    """Run a test with a client of an event loop of its own."""

    async def connected() -> None:
        async with await bk.connect(cluster.metadata_uri, config) as client:
            await test(client)

    run(connected())


def with_log(
    cluster: LocalCluster,
    log: Log,
    test: Callable[[bk.AsyncBookKeeper, bk.AsyncLog], Coroutine[Any, Any, None]],
    config: ClientConfig | None = None,
) -> None:
    """As ``with_client``, with the log opened by that client."""

    async def opened(client: bk.AsyncBookKeeper) -> None:
        await test(client, await client.open_log(log.name))

    with_client(cluster, opened, config)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition that nothing wakes this loop for."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.005)


async def tasks_of_clients() -> int:
    """Tasks under way on the clients' event loop, without this one and those of connections, which come and stay."""

    async def count() -> int:
        names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
        return sum(not name.startswith(("BookieConnection.", "_AioCall.")) for name in names) - 1

    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(count(), EventLoop.get()))


def pending_futures() -> int:
    """Futures of any event loop that nobody has given an outcome, after a collection of garbage."""
    gc.collect()
    return sum(1 for one in gc.get_objects() if type(one) is asyncio.Future and not one.done())


def threads() -> set[str]:
    """The names of threads that a call might have started; not those that state machines share for the metadata store."""
    ours = {one.name for one in threading.enumerate() if one.name.startswith("bk_spark")}
    return {name for name in ours if not name.startswith("bk_spark-metadata")}


def lasting_threads() -> int:
    """How many there are without those of calls, which are started as they are needed, and stay."""
    return sum(not name.startswith("bk_spark-call") for name in threads())


class Ticks:
    """Counts turns of the running event loop that are not later than they should be."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.count = 0

    async def run(self) -> None:
        seen_s = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now_s = time.monotonic()
            self.longest_s, seen_s = max(self.longest_s, now_s - seen_s), now_s
            self.count += 1
