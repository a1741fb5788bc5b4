"""Many tails, open writers and watches of one process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from benchmarks.scale.filler import Filler
from benchmarks.scale.measured import Meter
from benchmarks.scale.operation import Site, operation
from benchmarks.scale.operations.waiting import until
from benchmarks.scale.size import Size
from bk_spark.aio.bookkeeper import connect
from bk_spark.aio.reader import AsyncReadHandle
from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.metadata.store import Create, SetValue

THREADS = 8
ROUNDS = 3
IDLE_S = 5.0
POLL_S = 10.0
PAYLOAD = bytes(100)
WATCHED = "/watched"


def _tails(size: Size) -> int:
    return size.tails


def _writers(size: Size) -> int:
    return size.writers


def _watches(size: Size) -> int:
    return size.watches


@operation("tails of ledgers, ten to a ledger, in one process", _tails, grows=["open", "hear", "idle"])
def tails(site: Site, meter: Meter) -> None:
    with BookKeeper(site.uri) as client:
        writers = [client.create_ledger() for _ in range(site.size.tailed_ledgers)]
        asyncio.run(_follow(site, meter, writers))


@operation("writers that one process has open", _writers, grows=["open", "append", "close"])
def open_writers(site: Site, meter: Meter) -> None:
    with BookKeeper(site.uri) as client, ThreadPoolExecutor(THREADS) as threads:
        client.create_ledger().close()
        with meter.running("open"):
            writers = list(threads.map(lambda _: client.create_ledger(), range(site.size.writers)))
        for _ in range(ROUNDS):
            with meter.running("append"):
                for appended in [writer.append_async(PAYLOAD) for writer in writers]:
                    appended.result()
        with meter.running("close"):
            list(threads.map(lambda writer: writer.close(), writers))


@operation("watches of one session", _watches, grows=["set", "told", "reconnected", "ended"])
def watches(site: Site, meter: Meter) -> None:
    paths = [f"{WATCHED}/{number}" for number in range(site.size.watches)]
    with BookKeeper(site.uri) as client, BookKeeper(site.uri) as other:
        store, heard = client.metadata_store, _Heard()
        with Filler(other.metadata_store) as filler:
            filler.parent(WATCHED)
            filler.add_all(map(Create, paths))
        with meter.running("set"):
            ends = [store.watch(path, heard.note) for path in paths]
        with meter.running("told"):
            with Filler(other.metadata_store) as filler:
                filler.add_all(SetValue(path, b"new", 0) for path in paths)
            until(lambda: heard.count >= len(paths))
        heard.count = 0
        with meter.running("reconnected"):
            store._handler.cut()
            until(lambda: heard.count >= len(paths))
        with meter.running("ended"):
            for end in ends:
                end()


class _Heard:
    """How many calls there were."""

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> None:
        self.count += 1


async def _follow(site: Site, meter: Meter, writers: list[WriteHandle]) -> None:
    async with await connect(site.uri) as client:
        ledger_ids = [writers[number % len(writers)].ledger_id for number in range(site.size.tails)]
        with meter.running("open"):
            handles = await asyncio.gather(*(client.open_ledger(one, recover=False) for one in ledger_ids))
        following = [asyncio.create_task(_tail(handle)) for handle in handles]
        for number in range(ROUNDS):
            with meter.running("hear"):
                for _ in range(2):  # what is confirmed is said with the next entry
                    await asyncio.gather(*(asyncio.wrap_future(one.append_async(PAYLOAD)) for one in writers))
                while min(one.last_add_confirmed for one in handles) < 2 * number:
                    await asyncio.sleep(0.005)
        with meter.running("idle"):
            await asyncio.sleep(IDLE_S)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


async def _tail(handle: AsyncReadHandle) -> None:
    while True:
        await handle.wait_for_last_add_confirmed(handle.last_add_confirmed, POLL_S)
