"""Connecting, the calls on metadata, and logs, for coroutines over a real cluster."""

from __future__ import annotations

import asyncio
import threading
import uuid

import pytest

import bk_spark.aio as bk
from bk_spark.aio import bookkeeper as aio_bookkeeper
from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import (
    BookKeeperError,
    ConfigError,
    LedgerFencedError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NoSuchLogError,
)
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.stored.values import Retention
from tests.cluster.aio.event_loops import run, threads, until, with_client
from tests.cluster.live_ledgers import suspended


def a_name() -> str:
    return f"log-{uuid.uuid4().hex}"


async def a_ledger(client: bk.AsyncBookKeeper, *payloads: bytes) -> int:
    async with await client.create_ledger() as writer:
        await writer.append_batch(payloads)
    return writer.ledger_id


async def payloads_of(log: bk.AsyncLog, start: LogPosition | None = None, end: LogPosition | None = None) -> list[bytes]:
    return [payload async for batch in log.read(start, end) for payload in batch.column("payload").to_pylist()]


def test_ledgers_are_listed_described_and_deleted(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio_bookkeeper, "LISTED_AT_ONCE", 2)

    async def test(client: bk.AsyncBookKeeper) -> None:
        ids = [await a_ledger(client, b"x") for _ in range(5)]
        assert [ledger_id async for ledger_id in client.list_ledgers(ids[0])] == ids
        assert (await client.ledger_metadata(ids[0])).ledger_id == ids[0]
        assert [one.ledger_id for one in await client.ledger_metadata_many(ids)] == ids
        await client.delete_ledger(ids[1])
        assert [one.ledger_id for one in await client.existing_ledgers(ids)] == [ids[0], *ids[2:]]
        with pytest.raises(NoSuchLedgerError):
            await client.ledger_metadata(ids[1])
        assert {one.bookie_id for one in await client.list_bookies()} == {one.bookie_id for one in cluster.bookies}

    with_client(cluster, test)


def test_many_calls_on_metadata_share_a_few_threads(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        before = threads()
        writers = await asyncio.gather(*(client.create_ledger() for _ in range(100)))
        assert len({writer.ledger_id for writer in writers}) == 100
        assert len({name for name in threads() - before if name.startswith("bk_spark-call")}) <= 8
        await asyncio.gather(*(writer.close() for writer in writers))

    with_client(cluster, test)


def test_a_cluster_that_does_not_answer_or_a_malformed_address_is_told_at_connect() -> None:
    async def test() -> None:
        with pytest.raises(ConfigError):
            await bk.connect("nonsense")
        with pytest.raises(MetadataUnavailableError):
            await bk.connect("zk://127.0.0.1:1/ledgers", ClientConfig(connect_timeout_s=0.5))

    run(test())


def test_a_connect_that_is_cancelled_leaves_no_session(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, closed = threading.Event(), threading.Event()

    class Slow(aio_bookkeeper._Client):
        def __init__(self, uri: str, config: ClientConfig | None) -> None:
            goes_on.wait(60)
            super().__init__(uri, config)

        def close(self) -> None:
            super().close()
            closed.set()

    monkeypatch.setattr(aio_bookkeeper, "_Client", Slow)

    async def test() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await bk.connect(cluster.metadata_uri)
        goes_on.set()
        await until(closed.is_set)

    run(test())


def test_a_log_is_written_read_changed_and_deleted(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        name = a_name()
        with pytest.raises(NoSuchLogError):
            await client.open_log(name)
        log = await client.open_log(name, create=True)
        first, second = await a_ledger(client, b"a", b"b"), await a_ledger(client, b"c")
        await log.append_ledgers([first], application=("import", 1))
        assert (await log.append_ledgers([second], application=("import", 1))).duplicate_of is not None
        await log.append_ledgers([second])
        async with await log.open_writer() as leader:
            assert await leader.append(b"d") == LogPosition(leader.ledger_id, 0)
            assert await leader.append_batch([b"e", b"f"]) == (
                LogPosition(leader.ledger_id, 1),
                LogPosition(leader.ledger_id, 2),
            )
            futures = [await leader.append_async(b"g"), await leader.append_batch_async([b"h"])]
            await asyncio.gather(*futures)
            rolled = leader.ledger_id
            await leader.roll()
            assert leader.ledger_id != rolled
            assert (await leader.append(b"i")).ledger_id == leader.ledger_id
            assert leader.epoch >= 1
        assert await payloads_of(log) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i"]
        assert await payloads_of(log, LogPosition(first, 1), LogPosition(rolled, 1)) == [b"b", b"c", b"d"]
        replacement = await a_ledger(client, b"C")
        await log.replace_ledgers([second], [replacement])
        await log.truncate(LogPosition(replacement, 0))
        assert (await payloads_of(log))[:2] == [b"C", b"d"]
        assert len(await log.versions()) >= 5
        assert list((await log.snapshot()).ledgers) == await log.ledgers()
        await log.set_retention(Retention(version_retention_s=60))
        assert (await log.retention()).version_retention_s == 60
        assert name in await client.list_logs()
        await log.delete()
        with pytest.raises(NoSuchLogError):
            await log.ledgers()

    with_client(cluster, test)


def test_a_log_is_read_as_far_as_its_leader_s_ledger_is_confirmed_and_recovered(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        log = await client.open_log(a_name(), create=True)
        leader = await log.open_writer()
        await leader.append_batch([b"a", b"b"])
        await leader.append(b"c")
        assert (await payloads_of(log))[:2] == [b"a", b"b"]
        assert await log.recover() is not None
        assert await log.recover() is None
        assert await payloads_of(log) == [b"a", b"b", b"c"]
        for call in (leader.append(b"d"), leader.append_batch([b"d"]), leader.roll(), leader.close()):
            with pytest.raises(LedgerFencedError):
                await call
        async for _ in log.read():
            break

    with_client(cluster, test)


def test_appends_to_a_log_keep_their_order_through_rolls_and_a_full_window(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        log = await client.open_log(a_name(), create=True)
        async with await log.open_writer(roll_bytes=50_000) as leader:
            positions = await asyncio.gather(*(leader.append(b"%d" % number + bytes(900)) for number in range(500)))
        assert len({position.ledger_id for position in positions}) >= 2
        assert [int(payload.rstrip(b"\0")) for payload in await payloads_of(log)] == list(range(500))

    with_client(cluster, test, ClientConfig(add_batch_bytes=10_000, add_window_bytes=20_000))


def test_cancelled_appends_to_a_log_leave_nothing_and_hold_up_nobody(cluster: LocalCluster) -> None:
    async def test(client: bk.AsyncBookKeeper) -> None:
        log = await client.open_log(a_name(), create=True)
        async with await log.open_writer() as leader:
            await leader.append(b"first")
            with suspended(*cluster.bookies):
                doomed = [asyncio.create_task(leader.append(bytes(900))) for _ in range(1_000)]
                doomed += [asyncio.create_task(leader.append_async(bytes(900))) for _ in range(10)]
                kept = asyncio.create_task(leader.append(b"kept"))
                await asyncio.sleep(0)
                for task in doomed:
                    task.cancel()
                await asyncio.wait(doomed)
                assert leader._line._held_bytes <= 20_000
                assert len(leader._line._line) <= 1
            await kept
            assert await leader.append(b"last")
            await until(lambda: leader._line._held_bytes == 0)
        found = await payloads_of(log)
        assert (found[0], found[-2:]) == (b"first", [b"kept", b"last"])
        assert len(found) < 100

    with_client(cluster, test, ClientConfig(add_batch_bytes=10_000, add_window_bytes=20_000))


def test_the_synchronous_and_the_asynchronous_client_see_each_other_s_work(cluster: LocalCluster) -> None:
    name = a_name()
    with BookKeeper(cluster.metadata_uri) as client:
        with client.open_log(name, create=True).open_writer() as leader:
            leader.append(b"from a thread")

        async def test(other: bk.AsyncBookKeeper) -> None:
            assert await payloads_of(await other.open_log(name)) == [b"from a thread"]
            with pytest.raises(BookKeeperError):
                await other.delete_ledger(leader.ledger_id)
            async with await (await other.open_log(name)).open_writer() as second:
                await second.append(b"from a coroutine")

        with_client(cluster, test)
        found = [payload for batch in client.open_log(name).read() for payload in batch.column("payload").to_pylist()]
    assert found == [b"from a thread", b"from a coroutine"]
