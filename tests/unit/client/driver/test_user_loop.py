"""How the application's event loop is told what happens on the client's."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from unittest import mock

import pytest

from bk_spark.client.driver.user_loop import UserLoop, give_error, give_ids, give_outcome, wake
from bk_spark.errors import ConfigError, LedgerFencedError

FAILURE = LedgerFencedError(7)


def test_one_wake_up_serves_all_that_was_told_before_it_in_order() -> None:
    async def main() -> None:
        loop, seen, done = asyncio.get_running_loop(), list[int](), asyncio.Event()
        user_loop = UserLoop()
        with mock.patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe) as woken:
            telling = threading.Thread(target=lambda: [user_loop.tell(seen.append, number) for number in range(100)])
            telling.start()
            telling.join()  # this loop stands still meanwhile
            user_loop.tell(done.set)
            await done.wait()
            assert (seen, woken.call_count) == (list(range(100)), 1)
            done.clear()
            user_loop.tell(done.set)
            await done.wait()
            assert woken.call_count == 2

    asyncio.run(main())


def test_nothing_told_by_several_threads_is_lost() -> None:
    async def main() -> None:
        user_loop, seen = UserLoop(), list[int]()
        threads = [
            threading.Thread(target=lambda: [user_loop.tell(seen.append, number) for number in range(2_000)]) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        while len(seen) < 6_000:
            await asyncio.sleep(0)
        for thread in threads:
            thread.join()

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("was_told", [False, True])
def test_a_loop_that_was_closed_is_told_nothing_and_keeps_nothing(was_told: bool) -> None:
    loop = asyncio.new_event_loop()

    async def made() -> UserLoop:
        return UserLoop()

    user_loop = loop.run_until_complete(made())
    if was_told:
        user_loop.tell(pytest.fail)
    loop.close()
    for _ in range(3):
        user_loop.tell(pytest.fail)
    assert not user_loop._told


def test_another_event_loop_is_refused_in_one_sentence() -> None:
    async def made() -> UserLoop:
        UserLoop().check()
        return UserLoop()

    async def used(user_loop: UserLoop) -> None:
        user_loop.check()

    with pytest.raises(ConfigError, match=r"another event loop.*connect in each event loop"):
        asyncio.run(used(asyncio.run(made())))


def test_futures_whose_waiters_were_cancelled_stay_so_and_the_others_get_what_is_theirs() -> None:
    async def main() -> None:
        loop = UserLoop()
        futures = [loop.new_future() for _ in range(4)]
        futures[1].cancel()
        give_ids(futures[:3], 5)
        give_error(futures, FAILURE)
        wake(futures[1])
        assert [futures[0].result(), futures[2].result(), futures[3].exception()] == [5, 7, FAILURE]
        assert futures[1].cancelled()

    asyncio.run(main())


def test_a_future_gets_the_outcome_of_a_thread_s_future() -> None:
    async def main() -> None:
        loop = UserLoop()
        done, failed, cancelled = Future[int](), Future[int](), Future[int]()
        done.set_result(3)
        failed.set_exception(FAILURE)
        cancelled.cancel()
        futures = [loop.new_future() for _ in range(3)]
        for future, outcome in zip(futures, (done, failed, cancelled), strict=True):
            give_outcome(future, outcome)
            give_outcome(future, done)
        assert (futures[0].result(), futures[1].exception(), futures[2].cancelled()) == (3, FAILURE, True)

    asyncio.run(main())
