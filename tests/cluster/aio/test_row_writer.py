"""Coroutines that append rows, over real bookies: beside the synchronous calls, cancelled, held up, displaced, closed."""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import bk_spark.aio as bk
from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.errors import (
    AddQuorumTimeoutError,
    ConfigError,
    EntryTooLargeError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchLogError,
    SchemaMismatchError,
)
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_handle import Log
from bk_spark.log.rows.row_buffer import RowBuffer, RowCall
from tests.cluster.aio.event_loops import Ticks, lasting_threads, pending_futures, run, tasks_of_clients, until, with_log
from tests.cluster.live_ledgers import suspended

SCHEMA = pa.schema([("id", pa.int64()), ("raw", pa.binary())])
NARROW = ClientConfig(add_batch_bytes=10_000, add_window_bytes=20_000)
NOISE = random.Random(1)


def row(number: int, nbytes: int = 0) -> dict[str, Any]:
    return {"id": number, "raw": NOISE.randbytes(nbytes)}


def table(first: int, count: int) -> pa.Table:
    return pa.table({"id": list(range(first, first + count)), "raw": [b""] * count})


def started(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(call)


@pytest.fixture
def log(cluster: LocalCluster) -> Iterator[Log]:
    """A log as the synchronous client sees it."""
    with BookKeeper(cluster.metadata_uri) as client:
        yield client.open_log(f"rows-{uuid.uuid4().hex}", create=True)


def ids_of(log: Log) -> list[int]:
    return log.read_rows(["id"]).read_all().column("id").to_pylist()


# --- append_rows, schema


def test_rows_are_appended_in_one_commit_and_refused_as_by_the_synchronous_call(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        with pytest.raises(ConfigError, match="it holds nothing and has no schema"):
            await same.schema()
        first = await same.append_rows(table(0, 1000), application=("loader", 1))
        assert (first.total.rows, first.duplicate_of) == (1000, None)
        assert (await same.append_rows(table(0, 1000), ("loader", 1))).duplicate_of == first.version
        await same.append_rows(pd.DataFrame({"id": [1000]}))
        assert await same.schema() == log.schema == table(0, 1).schema
        for rows in (pa.table({"id": ["a"]}), pa.table({"price": [1]}), pa.table({}), [1, 2]):
            with pytest.raises((SchemaMismatchError, ConfigError)) as raised:
                await same.append_rows(rows)
            with pytest.raises(type(raised.value)) as expected:
                log.append_rows(rows)
            assert str(raised.value) == str(expected.value)
        with pytest.raises(ConfigError, match="compression"):
            await same.append_rows(table(0, 1), compression="rar")
        await same.append_rows(pa.table({"price": [7]}), merge_schema=True)
        assert ids_of(log) == [*range(1001), None]
        await same.delete()
        for call in (same.append_rows(table(0, 1)), same.schema(), same.open_row_writer(SCHEMA)):
            with pytest.raises(NoSuchLogError):
                await call

    with_log(cluster, log, test)


def endless(begun: threading.Event, ended: threading.Event) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield table(0, 1000).to_batches()[0]
                begun.set()
        finally:
            ended.set()

    return pa.RecordBatchReader.from_batches(table(0, 1).schema, batches())


def test_a_cancelled_append_of_rows_ends_soon_and_leaves_nothing(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        ledgers = [ledger_id async for ledger_id in client.list_ledgers()]
        begun, ended = threading.Event(), threading.Event()
        appending = started(same.append_rows(endless(begun, ended)))
        await until(begun.is_set)
        appending.cancel()
        await asyncio.wait([appending])
        await until(lambda: not busy_threads(client))
        assert appending.cancelled()
        assert log.versions() == []
        assert [ledger_id async for ledger_id in client.list_ledgers()] == ledgers
        assert not client._calls._waiting

    with_log(cluster, log, test)


def busy_threads(client: bk.AsyncBookKeeper) -> bool:
    """Whether any call of the client still has a thread."""
    executors = (client._calls._threads, client._calls._long_threads)
    return any(executor._idle_semaphore._value < len(executor._threads) for executor in executors)


def test_long_appends_of_rows_share_a_few_threads_and_short_calls_do_not_wait_for_them(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        begun = [threading.Event() for _ in range(20)]
        appending = [started(same.append_rows(endless(one, threading.Event()))) for one in begun]
        await until(lambda: sum(one.is_set() for one in begun) == 4)
        async with asyncio.timeout(30):
            assert await same.versions() == []
        assert sum(one.is_set() for one in begun) == 4
        for one in appending:
            one.cancel()
        await asyncio.wait(appending)
        await until(lambda: not busy_threads(client))

    with_log(cluster, log, test)


def test_a_source_that_fails_is_the_error_of_the_append(cluster: LocalCluster, log: Log) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table(0, 100_000).to_batches()
        raise OSError("the source is gone")

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        with pytest.raises(OSError, match="the source is gone"):
            await same.append_rows(pa.RecordBatchReader.from_batches(table(0, 1).schema, batches()))
        assert log.versions() == []

    with_log(cluster, log, test)


# --- open_row_writer


def test_a_leader_takes_rows_in_many_forms_and_keeps_the_order_of_the_calls(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        async with await same.open_row_writer(SCHEMA) as writer:
            assert writer.schema == SCHEMA
            assert await writer.append(row(0)) == LogPosition(writer.ledger_id, 0)
            tasks = [
                started(writer.append(rows))
                for rows in (
                    [row(1), row(2)],
                    table(3, 500),  # converted in a thread: nobody overtakes it
                    row(503),
                    pd.DataFrame({"id": [504]}),
                    [row(number) for number in range(505, 1000)],
                    row(1000),
                )
            ]
            await asyncio.sleep(0)  # all tasks have called
            futures = [await writer.append_async(row(number)) for number in range(1001, 2000)]
            positions = await asyncio.gather(*tasks, *futures)
            assert [one.entry_id for one in positions] == sorted(one.entry_id for one in positions)
            assert positions[-1].entry_id < 100, "rows of many calls share entries"
        assert ids_of(log) == list(range(2000))
        assert [one.rows for one in log.ledgers()] == [2000]

    with_log(cluster, log, test)


def test_a_leader_takes_dictionaries_of_an_extension_type_which_arrow_cannot_copy(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        values = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "{}"]))
        column = pa.DictionaryArray.from_arrays([0, 1, None], values)
        async with await same.open_row_writer(pa.schema([("c", pa.string())])) as writer:
            await writer.append(pa.table({"c": column}))
        assert log.read_rows().read_all().to_pylist() == [{"c": "1"}, {"c": "{}"}, {"c": None}]

    with_log(cluster, log, test)


def test_rows_wait_for_others_no_longer_than_asked_and_a_flush_ends_the_wait(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        async with await same.open_row_writer(SCHEMA, max_delay_s=3600) as writer:
            await writer.flush()  # there is nothing to wait for
            waiting = [await writer.append_async(row(number)) for number in range(100)]
            await asyncio.sleep(0)
            assert not any(one.done() for one in waiting)
            await writer.flush()
            assert {one.result() for one in waiting} == {LogPosition(writer.ledger_id, 0)}
            await writer.flush()
            left = await writer.append_async(row(100))
        assert (await left).entry_id == 1
        async with await same.open_row_writer(max_delay_s=0.01) as writer:
            assert await (await writer.append_async(row(101))) == LogPosition(writer.ledger_id, 0)
        async with await same.open_row_writer(max_rows=10, max_delay_s=3600) as writer:
            full = [await writer.append_async(row(number)) for number in range(102, 112)]
            assert {await one for one in full} == {LogPosition(writer.ledger_id, 0)}
        assert ids_of(log) == list(range(112))

    with_log(cluster, log, test)


def test_a_leader_rolls_and_every_ledger_has_its_number_of_rows(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        async with await same.open_row_writer(SCHEMA, roll_bytes=20_000, max_rows=10) as writer:
            passed = [writer.ledger_id]
            for first in range(0, 500, 100):
                await asyncio.gather(*(writer.append(row(number, 500)) for number in range(first, first + 100)))
                await until(lambda: writer.ledger_id != passed[-1])
                passed.append(writer.ledger_id)
        ledgers = log.ledgers()
        assert len(ledgers) > 2
        assert sum(one.rows for one in ledgers) == 500
        assert ids_of(log) == list(range(500))

    with_log(cluster, log, test, NARROW)


def test_rows_that_do_not_fit_fail_their_call_alone(cluster: LocalCluster, log: Log) -> None:
    large = NOISE.randbytes(20_000_000)

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        async with await same.open_row_writer(SCHEMA, max_delay_s=3600, max_bytes=16 * 1024**2) as writer:
            for rows in ({"price": 5}, {"id": "five"}, pa.table({"id": ["five"]}), table(0, 0), []):
                with pytest.raises((SchemaMismatchError, ConfigError)):
                    await writer.append_async(rows)
            before = [await writer.append_async(row(number)) for number in range(3)]
            refused = await writer.append_async([row(-1), {"id": -2, "raw": large}])
            behind = [await writer.append_async(row(number)) for number in range(3, 6)]
            with pytest.raises(EntryTooLargeError):
                await writer.flush()
            await asyncio.gather(*before, *behind)
            with pytest.raises(EntryTooLargeError):
                await refused
            with pytest.raises(EntryTooLargeError):
                await writer.append({"raw": large})
            await writer.flush()  # each was told once
            await writer.append_async({"raw": large})
            with pytest.raises(EntryTooLargeError):
                await writer.close()
        assert ids_of(log) == list(range(6))

    with_log(cluster, log, test)


def test_while_too_much_is_unconfirmed_calls_stand_in_line_and_the_loop_goes_on(
    cluster: LocalCluster, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, taken = RowBuffer.take, []

    def noted(buffer: RowBuffer[Any]) -> list[RowCall[Any]]:
        taken.append(buffer.rows)
        return take(buffer)

    monkeypatch.setattr(RowBuffer, "take", noted)

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        ticks = Ticks()
        async with await same.open_row_writer(SCHEMA, max_rows=10, max_delay_s=0.001) as writer:
            await writer.append(row(0))
            with suspended(*cluster.bookies):
                appends = [started(writer.append(row(number, 1000))) for number in range(1, 201)]
                flushing = started(writer.flush())
                ticking = started(ticks.run())
                await until(lambda: ticks.count >= 50)
                assert not any(one.done() for one in (*appends, flushing))
                assert writer._window._held_bytes <= NARROW.add_window_bytes
                assert writer._buffer.rows <= 10, "one buffer waits, and one that was taken"
            await asyncio.gather(*appends)
            await flushing
            ticking.cancel()
        assert ids_of(log) == list(range(201))
        assert max(taken) <= 10

    with_log(cluster, log, test, NARROW)


async def under_way() -> list[int]:
    return [await tasks_of_clients(), pending_futures(), lasting_threads(), len(asyncio.all_tasks())]


async def append_and_cancel(writer: bk.AsyncRowWriteHandle, cluster: LocalCluster) -> None:
    """Calls in every state are cancelled between two that are kept: under way, in the buffer, in line."""
    with suspended(*cluster.bookies):
        kept = [started(writer.append(row(1, 1000)))]
        doomed = [started(writer.append(row(-1, 1000))) for _ in range(100)]
        doomed += [started(writer.append(table(-500, 200))) for _ in range(5)]
        doomed += [started(writer.append_async(row(-2, 1000))) for _ in range(100)]
        doomed += [started(writer.flush()) for _ in range(5)]
        kept.append(started(writer.append(row(2, 1000))))
        await until(lambda: writer._room is not None and not writer._room.done())
        for task in doomed:
            task.cancel()
        await asyncio.wait(doomed)
    await asyncio.gather(*kept)
    await until(lambda: writer._window._held_bytes == 0 and writer._sender is None)


def test_cancelled_calls_lose_no_other_row_and_leave_nothing(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        async with await same.open_row_writer(SCHEMA, max_rows=10, max_delay_s=0.001) as writer:
            await append_and_cancel(writer, cluster)  # opens connections, which stay
            before = await under_way()
            for _ in range(3):
                await append_and_cancel(writer, cluster)
            assert (writer._buffer.is_empty, len(writer._window._line), writer._entrance.locked()) == (True, 0, False)
            assert not client._calls._waiting
            while any(now > then for now, then in zip(await under_way(), before, strict=True)):
                await asyncio.sleep(0.01)
        found = ids_of(log)
        assert [one for one in found if one > 0] == [1, 2] * 4
        assert found.count(-2) < 400, "those in line were withdrawn"
        assert -500 not in found

    with_log(cluster, log, test, NARROW)


def test_a_cancelled_close_or_opening_can_be_made_again(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        opening = started(same.open_row_writer(SCHEMA))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        await until(lambda: not busy_threads(client))  # it may take over until then
        writer = await same.open_row_writer(SCHEMA, max_delay_s=3600)
        waiting = await writer.append_async(row(0))
        with suspended(*cluster.bookies):
            closing = started(writer.close())
            await until(lambda: writer._window._held_bytes > 0)
            closing.cancel()
            await asyncio.wait([closing])
            with pytest.raises(LedgerClosedError):
                await writer.append(row(1))
        await writer.close()
        await writer.close()
        assert waiting.done()
        assert ids_of(log) == [0]

    with_log(cluster, log, test)


def test_calls_in_line_fail_when_the_writer_is_closed(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        writer = await same.open_row_writer(SCHEMA, max_rows=10, max_delay_s=0.001)
        with suspended(*cluster.bookies):
            appends = [started(writer.append(row(number, 1000))) for number in range(200)]
            await until(lambda: writer._room is not None and not writer._room.done())
            closing = started(writer.close())
            refused = await asyncio.gather(*appends[-50:], return_exceptions=True)
            assert {type(one) for one in refused} == {LedgerClosedError}
        await closing
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        kept = [number for number, one in enumerate(outcomes) if isinstance(one, LogPosition)]
        assert ids_of(log) == kept == list(range(len(kept)))

    with_log(cluster, log, test, NARROW)


def test_a_displaced_leader_s_error_arrives_at_each_call(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        writer = await same.open_row_writer(SCHEMA, max_delay_s=0.001)
        await writer.append(row(0))
        await asyncio.to_thread(log.append_rows, table(1, 1))
        calls = [writer.append(row(2)), writer.append(table(3, 200))]
        for call in (*calls, writer.append(row(4)), writer.flush(), writer.close()):
            with pytest.raises(LedgerFencedError):
                await call
        assert ids_of(log) == [0, 1]

    with_log(cluster, log, test)


def test_what_waits_fails_with_the_writer(cluster: LocalCluster, log: Log) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        writer = await same.open_row_writer(SCHEMA, max_rows=10, max_delay_s=0.001)
        with suspended(*cluster.bookies):
            failed = await asyncio.gather(*(writer.append(row(1, 1000)) for _ in range(100)), return_exceptions=True)
            assert {type(one) for one in failed} == {AddQuorumTimeoutError}
            with pytest.raises(AddQuorumTimeoutError):
                await writer.flush()
        assert writer._sender is None

    with_log(cluster, log, test, ClientConfig(add_batch_bytes=10_000, add_window_bytes=20_000, add_quorum_timeout_s=2.0))


def test_closing_the_client_ends_all_that_waits_of_a_row_writer(cluster: LocalCluster, log: Log) -> None:
    async def test() -> None:
        client = await bk.connect(cluster.metadata_uri, NARROW)
        same = await client.open_log(log.name)
        writer = await same.open_row_writer(SCHEMA, max_rows=10, max_delay_s=0.001)
        begun = threading.Event()
        appending = started(same.append_rows(endless(begun, threading.Event())))
        with suspended(*cluster.bookies):
            waiting = [started(writer.append(row(1, 1000))) for _ in range(100)]
            waiting += [started(writer.append(table(0, 500))), started(writer.flush()), appending]
            await until(lambda: writer._room is not None and not writer._room.done())
            await client.close()
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(one) for one in ended} == {ConfigError}
            await until(lambda: writer._sender is None)
        for call in (writer.append(row(1)), writer.flush(), writer.close(), same.append_rows(table(0, 1))):
            with pytest.raises(ConfigError, match="closed"):
                await call

    run(test())


def test_an_error_in_the_block_closes_the_log_and_stays_the_error(cluster: LocalCluster, log: Log) -> None:
    async def fail_within(same: bk.AsyncLog) -> None:
        async with await same.open_row_writer(SCHEMA, max_delay_s=3600) as writer:
            await writer.append_async({"raw": NOISE.randbytes(20_000_000)})
            raise ZeroDivisionError

    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        with pytest.raises(ZeroDivisionError) as raised:
            await fail_within(same)
        assert f"closing the row writer of log '{log.name}' failed as well" in raised.value.__notes__[0]
        assert (await same.snapshot()).open_ledgers == ()

    with_log(cluster, log, test)


def test_errors_that_nobody_looks_at_are_not_logged_by_asyncio(
    cluster: LocalCluster, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(client: bk.AsyncBookKeeper, same: bk.AsyncLog) -> None:
        writer = await same.open_row_writer(SCHEMA, max_delay_s=0.001)
        await asyncio.to_thread(log.append_rows, table(1, 1))
        for _ in range(5):
            await writer.append_async(row(1))
        with pytest.raises(LedgerFencedError):
            await writer.flush()
        with pytest.raises(LedgerFencedError):
            await writer.close()

    with_log(cluster, log, test)
    pending_futures()  # a collection of garbage
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
