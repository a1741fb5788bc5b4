"""The line before a writer's window: its order, and what leaves it. No event loop of the client runs here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from bk_spark.client.driver.user_loop import UserLoop
from bk_spark.client.ledger.payloads import checked_payloads
from bk_spark.client.ledger.write_items import CallPart, Force, Singles
from bk_spark.client.ledger.write_queue import WriteQueue
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.limits import AddLimits
from bk_spark.config import ClientConfig, LedgerOptions
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import AppendWindowFullError, ConfigError
from bk_spark.metadata.ledger_metadata import new_ledger

ENTRY_BYTES = 1_000
PAYLOAD = bytes(ENTRY_BYTES - ENTRY_OVERHEAD_BYTES)
ROOM_FOR_THREE = ClientConfig(add_window_bytes=3 * ENTRY_BYTES, add_batch_bytes=2 * ENTRY_BYTES)


def queue_of(config: ClientConfig = ROOM_FOR_THREE) -> WriteQueue:
    metadata = new_ledger(7, LedgerOptions(), ("b1", "b2", "b3"), created_ms=0, creator_token=1)
    context = mock.Mock(config=config, appends_stand_in_line=True)
    context.now_ms.return_value = 0
    context.loop.call_soon_threadsafe.side_effect = lambda call, *arguments: call(*arguments) if arguments else None
    return WriteQueue(context, AddEntries(metadata, 0, AddLimits.of(config)))


def on_a_loop(test: Callable[[UserLoop], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await test(UserLoop())

    asyncio.run(run())


def queued(queue: WriteQueue) -> int:
    """Entries that have left the line."""
    queue._take_arrivals()
    return sum(item.count for item in queue._items)


def release(queue: WriteQueue, entries: int) -> None:
    """As if so many entries that were sent were settled."""
    queue._take_arrivals()
    queue._release(entries * ENTRY_BYTES)


def test_appends_without_room_stand_in_line_and_enter_in_the_order_of_their_calls() -> None:
    async def test(loop: UserLoop) -> None:
        queue = queue_of()
        futures = [queue.append_one_of(loop, PAYLOAD) for _ in range(10)]
        assert (queued(queue), queue.has_line) == (3, True)
        release(queue, 2)
        assert queued(queue) == 5
        release(queue, 5)
        assert (queued(queue), queue.has_line) == (10, False)
        entered = [future for item in queue._items if isinstance(item, Singles) for future in item.futures]
        assert entered == futures
        assert len(queue._items) == 5, "single appends that stood in line travel and are answered together"

    on_a_loop(test)


def test_nobody_passes_the_line_though_there_is_room_for_a_small_append() -> None:
    async def test(loop: UserLoop) -> None:
        queue = queue_of()
        for _ in range(2):
            queue.append_one_of(loop, PAYLOAD)
        queue.append_one_of(loop, PAYLOAD + PAYLOAD)
        queue.append_one_of(loop, b"")
        assert queued(queue) == 2

    on_a_loop(test)


def test_an_append_that_is_withdrawn_was_never_made_and_those_behind_it_move_up() -> None:
    async def test(loop: UserLoop) -> None:
        queue = queue_of()
        futures = [queue.append_one_of(loop, PAYLOAD) for _ in range(2)]
        large, small = queue.append_one_of(loop, 2 * PAYLOAD), queue.append_one_of(loop, b"")
        assert queued(queue) == 2
        queue.withdraw(large)
        assert (queued(queue), queue.has_line, queue._held_bytes) == (3, False, 2 * ENTRY_BYTES + ENTRY_OVERHEAD_BYTES)
        for one in (futures[0], small, large):
            queue.withdraw(one)
        assert queued(queue) == 3, "what has left the line cannot be taken back"

    on_a_loop(test)


def test_a_call_of_several_batches_enters_piece_by_piece_and_goes_on_once_one_has_entered() -> None:
    async def test(loop: UserLoop) -> None:
        queue = queue_of(replace(ROOM_FOR_THREE, add_batch_bytes=ENTRY_BYTES))
        call = queue.append_many(checked_payloads([PAYLOAD] * 5))
        behind = queue.append_many(checked_payloads([b"behind"]))
        assert queued(queue) == 3
        queue.withdraw(call)
        queue.withdraw(behind)
        release(queue, 3)
        assert (queued(queue), queue.has_line) == (5, False)
        assert all(isinstance(item, CallPart) and item.call.future is call for item in queue._items)

    on_a_loop(test)


def test_a_force_stands_behind_the_appends_that_were_called_before_it() -> None:
    async def test(loop: UserLoop) -> None:
        queue = queue_of()
        for _ in range(4):
            queue.append_one_of(loop, PAYLOAD)
        queue.force_async()
        assert not any(isinstance(item, Force) for item in queue._items)
        release(queue, 3)
        assert isinstance(queue._items[-1], Force)

    on_a_loop(test)


def test_whoever_waits_for_the_entrance_is_told_once_the_call_has_left_the_line() -> None:
    async def test(loop: UserLoop) -> None:
        queue = queue_of()
        futures = [queue.append_one_of(loop, PAYLOAD) for _ in range(4)]
        assert queued(queue) == 3
        queue._pump = mock.Mock()  # type: ignore[method-assign]
        await asyncio.wait_for(queue.entrance(loop, futures[0]), 60)
        entrance = queue.entrance(loop, futures[3])
        assert not entrance.done()
        release(queue, 1)
        await asyncio.wait_for(entrance, 60)

    on_a_loop(test)


def test_entries_with_chosen_ids_beyond_a_gap_are_refused_when_only_the_missing_one_can_make_room() -> None:
    async def test(loop: UserLoop) -> None:
        queue = queue_of()
        for entry_id in (1, 2, 3):
            queue.append_one_of(loop, PAYLOAD, entry_id)
        waiting = queue.append_one_of(loop, PAYLOAD, 4)
        assert (queued(queue), queue.has_line) == (3, True), "what was handed over may still make room"
        stuck = queue._next_batch()
        assert stuck is not None
        queue._gapped_bytes = queue._held_bytes
        queue._items.clear()
        queue._release(0)
        assert not queue.has_line
        with pytest.raises(AppendWindowFullError):
            await asyncio.wait_for(waiting, 60)

    on_a_loop(test)


def test_a_closed_client_refuses_every_call() -> None:
    async def test(loop: UserLoop) -> None:
        queue = queue_of()
        queue._context.check_open.side_effect = ConfigError("this client", "closed", "open another")  # type: ignore[attr-defined]
        array = checked_payloads([b"x"])
        for call in (lambda: queue.append_one_of(loop, b"x"), lambda: queue.append_many(array), lambda: queue.append_one(b"x")):
            with pytest.raises(ConfigError):
                call()  # type: ignore[no-untyped-call]
        assert not queue.has_line

    on_a_loop(test)
