"""How coroutines wait for work on other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any
from unittest import mock

import pytest

from bk_spark.aio.calls import CALL_THREADS, LONG_CALL_THREADS, MOST_WITHOUT_TURN, Calls, CheckWanted, in_own_thread
from bk_spark.errors import ConfigError, NoSuchLogError


def with_calls(test: Callable[[Calls], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        calls = Calls()
        try:
            await asyncio.wait_for(test(calls), 60)
        finally:
            calls.end()

    asyncio.run(run())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


def test_a_blocking_call_gives_its_result_or_its_error_and_holds_up_nobody() -> None:
    async def test(calls: Calls) -> None:
        goes_on = threading.Event()
        waiting = asyncio.create_task(calls.in_thread(lambda: goes_on.wait(60)))
        await until(lambda: bool(calls._waiting))
        goes_on.set()
        assert await waiting
        with pytest.raises(NoSuchLogError):
            await calls.in_thread(mock.Mock(side_effect=NoSuchLogError("orders")))
        assert not calls._waiting

    with_calls(test)


def test_calls_have_few_threads_however_many_there_are() -> None:
    async def test(calls: Calls) -> None:
        names = await asyncio.gather(*(calls.in_thread(lambda: threading.current_thread().name) for _ in range(200)))
        assert len(set(names)) <= CALL_THREADS

    with_calls(test)


def test_a_call_that_is_cancelled_before_it_has_a_thread_is_never_made() -> None:
    async def test(calls: Calls) -> None:
        goes_on, made = threading.Event(), mock.Mock()
        busy = [asyncio.create_task(calls.in_thread(lambda: goes_on.wait(60))) for _ in range(CALL_THREADS)]
        await until(lambda: len(calls._waiting) == CALL_THREADS)
        late = asyncio.create_task(calls.in_thread(made))
        await until(lambda: len(calls._waiting) == CALL_THREADS + 1)
        late.cancel()
        await asyncio.wait([late])
        goes_on.set()
        await asyncio.gather(*busy)
        assert await calls.in_thread(lambda: True)
        assert (made.call_count, late.cancelled()) == (0, True)

    with_calls(test)


def test_long_calls_have_threads_of_their_own_and_end_soon_once_nobody_waits_for_them() -> None:
    async def test(calls: Calls) -> None:
        begun, ended = list[int](), list[int]()

        def run(check_wanted: CheckWanted) -> None:
            begun.append(1)
            try:
                while True:
                    check_wanted()
            finally:
                ended.append(1)

        long_calls = [asyncio.create_task(calls.in_long_thread(run)) for _ in range(LONG_CALL_THREADS + 2)]
        await until(lambda: (len(calls._waiting), len(begun)) == (LONG_CALL_THREADS + 2, LONG_CALL_THREADS))
        assert await calls.in_thread(lambda: True)
        for one in reversed(long_calls):  # those that wait for a thread first, or they would get one
            one.cancel()
        await asyncio.wait(long_calls)
        await until(lambda: len(ended) == LONG_CALL_THREADS)
        assert len(begun) == LONG_CALL_THREADS, "the two without a thread are never made"
        assert await calls.in_long_thread(lambda check_wanted: check_wanted() or True)

    with_calls(test)


def test_the_end_fails_whoever_waits_and_refuses_further_calls() -> None:
    async def test(calls: Calls) -> None:
        goes_on, late = threading.Event(), mock.Mock()
        waiting = [asyncio.create_task(calls.in_thread(lambda: goes_on.wait(60))) for _ in range(CALL_THREADS)]
        waiting += [asyncio.create_task(calls.in_thread(late)) for _ in range(2)]
        await until(lambda: len(calls._waiting) == CALL_THREADS + 2)
        calls.end()
        failed = await asyncio.gather(*waiting, return_exceptions=True)
        goes_on.set()
        assert all(isinstance(one, ConfigError) and "closed" in str(one) for one in failed)
        with pytest.raises(ConfigError, match=r"bk_spark\.aio\.connect"):
            await calls.in_thread(lambda: None)
        unused = asyncio.sleep(0)
        with pytest.raises(ConfigError):
            await calls.on_client(mock.Mock(), unused)
        assert not calls._waiting
        await asyncio.to_thread(calls._threads.shutdown)
        assert late.call_count == 0, "what had no thread yet is dropped"

    with_calls(test)


def test_a_cancelled_wait_cancels_work_that_can_be_and_keeps_nothing_of_it() -> None:
    async def test(calls: Calls) -> None:
        work: Future[int] = Future()
        waiting = asyncio.create_task(calls.outcome(work))
        await until(lambda: bool(calls._waiting))
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (waiting.cancelled(), work.cancelled(), len(calls._waiting)) == (True, True, 0)

    with_calls(test)


def test_what_opens_or_closes_a_client_has_a_thread_of_its_own_and_is_not_cancelled() -> None:
    async def test(calls: Calls) -> None:
        goes_on = threading.Event()
        work = in_own_thread(lambda: goes_on.wait(60))
        waiting = asyncio.create_task(calls.outcome(work))
        await until(lambda: bool(calls._waiting))
        waiting.cancel()
        await asyncio.wait([waiting])
        goes_on.set()
        assert await calls.outcome(work)
        with pytest.raises(NoSuchLogError):
            await calls.outcome(in_own_thread(mock.Mock(side_effect=NoSuchLogError("orders"))))

    with_calls(test)


def test_calls_that_do_not_suspend_give_others_a_turn_at_times() -> None:
    async def test(calls: Calls) -> None:
        due = [calls.is_turn_due() for _ in range(2 * MOST_WITHOUT_TURN)]
        assert [number for number, is_due in enumerate(due, 1) if is_due] == [MOST_WITHOUT_TURN, 2 * MOST_WITHOUT_TURN]

    with_calls(test)
