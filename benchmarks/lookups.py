"""How long does it take to look up the newest row of a key?

10 million rows of 1 million keys (60 bytes a row, in any order) are written in 20 commits to a log of 8 lanes, on a local
cluster of three bookies. The same rows are upserted into a primary key table of Apache Fluss: 8 buckets, 3 tablet servers, 3
replicas.

- *cold*: the first ``get`` of a client that has just opened the log; for Fluss, the first ``lookup`` of a new connection.
- *warm*: one after the other, of keys that exist, by one client. Its first 500 are not counted.
- *absent*: the same of keys that no row has.
- *get_many*: 1,000 keys in one call, a key's share. For Fluss, 1,000 ``lookup`` at a time (*gathered*).

pyfluss 1.0 gathers look-ups for up to 100 ms before it sends them, and has no setting for that: what it takes for one at a time
is that wait. *gathered* shows what its servers can do.

    python benchmarks/lookups.py [--small] [--no-fluss]

Fluss needs Maven and Java for its servers, and ``pip install pyfluss`` for its client; without them it is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peers.fluss_cluster import FlussCluster
from benchmarks.speed.measure import SkippedError, percentile
from bk_spark import BookKeeper, LocalCluster
from bk_spark.log.log_handle import Log

ROWS, KEYS = 10_000_000, 1_000_000
SMALL = 20
"""By so much is a small run smaller."""
COMMITS, LANES = 20, 8
COLD, WARM, ABSENT, MANY = 50, 2_000, 1_000, 1_000
WARM_UP = 500
AT_ONCE = 100_000
"""Rows that are upserted before they are flushed."""
READY_S = 120.0
"""Until the servers of Fluss know each other, and a new table has leaders."""


def table(number: int, rows: int, keys: int) -> pa.Table:
    drawn = np.random.default_rng(number)
    ids = drawn.integers(0, keys, rows)
    return pa.table(
        {
            "id": ids,
            "day": drawn.integers(0, 365, rows).astype(np.int32),
            "amount": drawn.integers(0, 100_000, rows),
            "price": drawn.random(rows),
            "name": pa.array([f"customer {one:07d}" for one in ids.tolist()]),
        }
    )


def tables(rows: int, keys: int) -> Iterator[pa.Table]:
    return (table(number, rows // COMMITS, keys) for number in range(COMMITS))


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def told(who: str, what: str, found: list[float]) -> None:
    print(
        f"{who:9} {what:9} p50 {percentile(found, 50):8.3f} ms   p99 {percentile(found, 99):8.3f} ms   ({len(found)})",
        flush=True,
    )


def ours(uri: str, rows: int, keys: int, share: int) -> dict[int, int]:
    """Returns what the newest rows of some keys are, for Fluss to agree with."""
    chance = random.Random(1)
    with BookKeeper(uri) as bookkeeper:
        log = bookkeeper.open_log("rows", create=True)
        began = time.perf_counter()
        for number, one in enumerate(tables(rows, keys)):
            log.append_rows(one, partition_key="id" if number == 0 else None, lanes=LANES if number == 0 else None)
        seconds = time.perf_counter() - began
        snapshot = log.snapshot()
        nbytes, entries = sum(one.length for one in snapshot.ledgers), sum(1 + one.last_entry_id for one in snapshot.ledgers)
        print(f"bk_spark  wrote {rows / seconds:,.0f} rows/s, {nbytes / rows:.1f} bytes a row, {entries} entries", flush=True)
    cold: list[float] = []
    cold_absent: list[float] = []
    for number in range(max(1, COLD // share)):
        for found, key in ((cold, chance.randrange(keys)), (cold_absent, keys + number)):
            with BookKeeper(uri) as bookkeeper:
                log = bookkeeper.open_log("rows")
                found.append(timed(lambda log=log, key=key: log.get(key)))  # type: ignore[misc]
    told("bk_spark", "cold", cold)
    told("bk_spark", "cold, abs.", cold_absent)
    with BookKeeper(uri) as bookkeeper:
        log = bookkeeper.open_log("rows")
        warm_up = timed(lambda: [log.get(chance.randrange(keys)) for _ in range(WARM_UP)])
        print(f"bk_spark  the first {WARM_UP} of a client took {warm_up / WARM_UP:.3f} ms each", flush=True)
        told("bk_spark", "warm", [timed(lambda: log.get(chance.randrange(keys))) for _ in range(WARM // share)])
        told("bk_spark", "absent", [timed(lambda: log.get(keys + chance.randrange(keys))) for _ in range(ABSENT // share)])
        told("bk_spark", "get_many", [_many(log, chance, keys) for _ in range(10)])
        asked = [chance.randrange(keys) for _ in range(100)]
        return {row["id"]: row["amount"] for row in log.get_many(asked).to_pylist()}


def _many(log: Log, chance: random.Random, keys: int) -> float:
    return timed(lambda: log.get_many([chance.randrange(keys) for _ in range(MANY)])) / MANY


async def of_fluss(servers: str, rows: int, keys: int, share: int, expected: dict[int, int]) -> None:
    fluss = importlib.import_module("fluss")

    async def connected() -> Any:
        return await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": servers}))

    path = fluss.TablePath("fluss", "rows")
    connection = await _ready(connected)
    schema = table(0, 1, 1).schema.set(0, pa.field("id", pa.int64(), nullable=False))
    descriptor = fluss.TableDescriptor(fluss.Schema(schema, primary_keys=["id"]), bucket_count=LANES, bucket_keys=["id"])
    admin = connection.get_admin()
    await _ready(lambda: admin.create_table(path, descriptor, True))
    found = await _ready(lambda: connection.get_table(path))
    writer = found.new_upsert().create_writer()
    began = time.perf_counter()
    for one in tables(rows, keys):
        for first in range(0, one.num_rows, AT_ONCE):
            for row in one.slice(first, AT_ONCE).to_pylist():
                writer.upsert(row)
            await writer.flush()
    print(f"Fluss     wrote {rows / (time.perf_counter() - began):,.0f} rows/s", flush=True)
    chance = random.Random(1)
    cold = []
    for _ in range(max(1, COLD // share)):
        async with await connected() as fresh:
            lookuper = (await fresh.get_table(path)).new_lookup().create_lookuper()
            cold.append(await _timed(lookuper.lookup({"id": chance.randrange(keys)})))
    told("Fluss", "cold", cold)
    lookuper = found.new_lookup().create_lookuper()
    differ = [key for key, amount in expected.items() if ((await lookuper.lookup({"id": key})) or {}).get("amount") != amount]
    assert not differ, f"both have the same rows, but not of the keys {differ[:5]}"
    for _ in range(WARM_UP):
        await lookuper.lookup({"id": chance.randrange(keys)})
    told("Fluss", "warm", [await _timed(lookuper.lookup({"id": chance.randrange(keys)})) for _ in range(WARM // share)])
    absent = [await _timed(lookuper.lookup({"id": keys + chance.randrange(keys)})) for _ in range(ABSENT // share)]
    told("Fluss", "absent", absent)
    each = [found.new_lookup().create_lookuper() for _ in range(MANY)]  # one of them makes one look-up at a time
    many = [
        await _timed(asyncio.gather(*(one.lookup({"id": chance.randrange(keys)}) for one in each))) / MANY for _ in range(10)
    ]
    told("Fluss", "gathered", many)
    await connection.close()


async def _timed(call: Awaitable[object]) -> float:
    began = time.perf_counter()
    await call
    return (time.perf_counter() - began) * 1000


async def _ready(call: Callable[[], Awaitable[Any]]) -> Any:
    """The result of a call that fails until the servers know each other."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            return await asyncio.wait_for(call(), READY_S)
        except Exception:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few rows and look-ups: shows that it runs")
    parser.add_argument("--no-fluss", action="store_true", help="leave Apache Fluss out")
    args = parser.parse_args()
    share = SMALL if args.small else 1
    rows, keys = ROWS // share, KEYS // share
    with tempfile.TemporaryDirectory() as directory, LocalCluster(bookies=3, data_dir=Path(directory) / "cluster") as cluster:
        uri = cluster.metadata_uri
        print(f"{rows} rows of {keys} keys", flush=True)
        expected = ours(uri, rows, keys, share)
        if args.no_fluss:
            return 0
        try:
            importlib.import_module("fluss")
            with BookKeeper(uri) as bookkeeper:
                bookkeeper.metadata_store.ensure_path("/fluss")
            zookeeper = uri.removeprefix("zk://").rsplit("/", 1)[0] + "/fluss"
            with FlussCluster(Path(directory) / "fluss", zookeeper) as other:
                asyncio.run(of_fluss(other.bootstrap_servers, rows, keys, share, expected))
        except (SkippedError, ImportError) as reason:
            print(f"Fluss was left out: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
