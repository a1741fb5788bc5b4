"""The window and the line of a log's leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any
from unittest import mock

import pytest

from bk_spark.aio.append_line import AppendLine
from bk_spark.aio.calls import Calls
from bk_spark.errors import LedgerFencedError


class Leader:
    """Notes in which order appends are begun; the test confirms them."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.futures: dict[int, Future[int]] = {}

    def begin(self, number: int) -> Callable[[], Future[int]]:
        def begun() -> Future[int]:
            self.begun.append(number)
            self.futures[number] = Future()
            return self.futures[number]

        return begun


def with_line(test: Callable[[AppendLine, Leader], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        calls = Calls()
        try:
            await asyncio.wait_for(test(AppendLine(calls, window_bytes=30), Leader()), 60)
        finally:
            calls.end()

    asyncio.run(run())


def test_as_many_appends_are_under_way_as_the_window_holds_and_the_others_follow_in_order() -> None:
    async def test(line: AppendLine, leader: Leader) -> None:
        appends = [line.stand(10, leader.begin(number)) for number in range(6)]
        assert leader.begun == [0, 1, 2]
        for number in (0, 1, 2):
            leader.futures[number].set_result(number)
        assert [await line.outcome(append) for append in appends[:3]] == [0, 1, 2]
        assert leader.begun == [0, 1, 2, 3, 4, 5]

    with_line(test)


def test_an_append_above_the_whole_window_goes_alone() -> None:
    async def test(line: AppendLine, leader: Leader) -> None:
        for number in range(2):
            line.stand(100, leader.begin(number))
        assert leader.begun == [0]
        leader.futures[0].set_result(0)
        while leader.begun != [0, 1]:
            await asyncio.sleep(0)

    with_line(test)


def test_a_cancelled_append_in_the_line_is_never_begun_and_one_under_way_still_counts() -> None:
    async def test(line: AppendLine, leader: Leader) -> None:
        tasks = [asyncio.create_task(line.outcome(line.stand(10, leader.begin(number)))) for number in range(3)]
        tasks += [asyncio.create_task(line.outcome(line.stand(20, leader.begin(number)))) for number in (3, 4)]
        entering = asyncio.create_task(line.entered(line.stand(20, leader.begin(5))))
        await asyncio.sleep(0)
        for task in (tasks[0], tasks[3], entering):
            task.cancel()
        await asyncio.wait([tasks[0], tasks[3], entering])
        assert (leader.begun, line._held_bytes, len(line._line)) == ([0, 1, 2], 30, 1)
        for number in (0, 1, 2):
            leader.futures[number].set_result(number)
        assert await asyncio.gather(*tasks[1:3]) == [1, 2]
        assert (leader.begun, line._held_bytes) == ([0, 1, 2, 4], 20)
        tasks[4].cancel()

    with_line(test)


def test_an_append_that_is_cancelled_as_room_comes_is_not_begun() -> None:
    async def test(line: AppendLine, leader: Leader) -> None:
        line.stand(30, leader.begin(0))
        cancelled = line.stand(10, leader.begin(1))
        line.stand(10, leader.begin(2))
        cancelled.cancel()  # its coroutine has not taken it out of the line yet
        leader.futures[0].set_result(0)
        while 2 not in leader.begun:
            await asyncio.sleep(0)
        assert leader.begun == [0, 2]

    with_line(test)


def test_whoever_waits_for_the_entrance_goes_on_once_there_is_room() -> None:
    async def test(line: AppendLine, leader: Leader) -> None:
        line.stand(30, leader.begin(0))
        entering = asyncio.create_task(line.entered(line.stand(10, leader.begin(1))))
        await asyncio.sleep(0)
        assert not entering.done()
        leader.futures[0].set_result(0)
        append = await entering
        leader.futures[1].set_result(1)
        assert await append == 1

    with_line(test)


def test_an_append_that_is_refused_fails_alone_and_takes_no_room() -> None:
    async def test(line: AppendLine, leader: Leader) -> None:
        refused = line.stand(30, mock.Mock(side_effect=LedgerFencedError(7, "orders")))
        with pytest.raises(LedgerFencedError):
            await line.outcome(refused)
        line.stand(30, leader.begin(0))
        assert leader.begun == [0]

    with_line(test)
