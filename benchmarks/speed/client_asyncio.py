"""Appends from one event loop of the application, beside the synchronous client and beside what asyncio itself costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from benchmarks.speed.ledger_runs import Bench, Quorums
from benchmarks.speed.measure import Entrant, Result, Sample, Setting, alternate, claim, workload
from bk_spark import aio
from bk_spark.aio.writer import AsyncWriteHandle
from bk_spark.client.ledger.write_handle import WriteHandle

QUORUMS = Quorums(3, 3, 2)
PAYLOAD = bytes(100)
THREADS, LOOP = "append_async, synchronous client", "append_async, asyncio"
TASKS, BARE = "append in a task for each, asyncio", "tasks alone"

ABOUT = "10,000 concurrent appends of 100 B from one event loop, 3/3/2, beside the synchronous client"
NOTES = (
    "*append_async* begins all appends and then waits for each. *append in a task for each* is `asyncio.gather` over 10,000 "
    "coroutines; *tasks alone* is the same over coroutines that wait for a future of the loop and append nothing.",
)


@workload("client_asyncio", ABOUT)
def appends(setting: Setting) -> Result:
    count = setting.choose(10_000, 100)
    with Bench(setting.directory) as bench, bench.writer(QUORUMS) as writer, asyncio.Runner() as loop:
        client = loop.run(aio.connect(bench.local.metadata_uri))
        try:
            handle = loop.run(client.create_ledger(QUORUMS.ensemble_size, QUORUMS.write_quorum, QUORUMS.ack_quorum))
            entrants = [
                Entrant(THREADS, lambda _: _timed(count, lambda: _with_threads(writer, count))),
                Entrant(LOOP, lambda _: _timed(count, lambda: loop.run(_with_futures(handle, count)))),
                Entrant(TASKS, lambda _: _timed(count, lambda: loop.run(_with_tasks(handle, count)))),
                Entrant(BARE, lambda _: _timed(count, lambda: loop.run(_tasks_alone(count)))),
            ]
            samples = alternate(entrants, setting.runs, setting.choose(1, 0))
        finally:
            loop.run(client.close())
    rates = {name: [one.rows_per_s for one in found] for name, found in samples.items()}
    claims = [
        claim("append_async of asyncio against that of the synchronous client", rates[LOOP], rates[THREADS], 1.0),
        claim("append in a task for each against tasks that append nothing", rates[TASKS], rates[BARE], 0.75),
    ]
    return Result("client_asyncio", ABOUT, samples, claims, NOTES)


def _timed(count: int, run: Callable[[], None]) -> Sample:
    start, cpu = time.perf_counter(), time.process_time()
    run()
    seconds = time.perf_counter() - start
    return Sample(seconds, count, count * len(PAYLOAD), {"cpu_us_each": (time.process_time() - cpu) / count * 1e6})


def _with_threads(writer: WriteHandle, count: int) -> None:
    for future in [writer.append_async(PAYLOAD) for _ in range(count)]:
        future.result()


async def _with_futures(handle: AsyncWriteHandle, count: int) -> None:
    for future in [await handle.append_async(PAYLOAD) for _ in range(count)]:
        await future


async def _with_tasks(handle: AsyncWriteHandle, count: int) -> None:
    await asyncio.gather(*(handle.append(PAYLOAD) for _ in range(count)))


async def _tasks_alone(count: int) -> None:
    loop = asyncio.get_running_loop()

    async def wait() -> None:
        done = loop.create_future()
        loop.call_soon(done.set_result, None)
        await done

    await asyncio.gather(*(wait() for _ in range(count)))
