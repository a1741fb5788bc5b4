"""Turns go round the connections, none is lost, and nobody has two at a time too many."""

from __future__ import annotations

import asyncio

import pytest

from bk_spark.bookie.server.fair_turns import FairTurns


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_connection_that_asks_for_very_much_waits_for_itself_and_not_others_for_it() -> None:
    async def run() -> list[str]:
        turns, order = FairTurns(1), list[str]()

        async def work(connection: str) -> None:
            async with turns.turn(connection):
                order.append(connection)
                await asyncio.sleep(0)

        greedy = [asyncio.ensure_future(work("greedy")) for _ in range(50)]
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(work(name)) for name in ("a", "b", "a")]
        await asyncio.gather(*greedy, *others)
        return order

    order = asyncio.run(run())
    assert len(order) == 53
    assert set(order[:6]) == {"greedy", "a", "b"}
    assert order.index("b") <= 4


def test_who_gives_up_waiting_takes_no_turn_along() -> None:
    async def run() -> None:
        turns, held = FairTurns(2), asyncio.Event()
        at_once, most = 0, 0

        async def work() -> None:
            nonlocal at_once, most
            async with turns.turn("x"):
                at_once += 1
                most = max(most, at_once)
                await held.wait()
                at_once -= 1

        tasks = [asyncio.ensure_future(work()) for _ in range(20)]
        await _settle()
        assert at_once == 2
        for task in (tasks[0], *tasks[5:12]):  # one that has its turn, and some that wait
            task.cancel()
        at_once -= 1
        held.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert most == 2
        async with asyncio.timeout(1), turns.turn("x"), turns.turn("y"):
            pass

    asyncio.run(run())


def test_a_turn_that_is_given_to_one_that_gives_up_at_that_moment_goes_to_the_next() -> None:
    async def run() -> None:
        turns = FairTurns(1)
        waiting: list[asyncio.Task[None]] = []
        async with turns.turn("first"):
            waiting += [asyncio.ensure_future(turns._take(name)) for name in ("second", "third")]
            await _settle()
        waiting[0].cancel()  # its turn was given to it, and it does not know yet
        async with asyncio.timeout(1):
            await waiting[1]
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]

    asyncio.run(run())
