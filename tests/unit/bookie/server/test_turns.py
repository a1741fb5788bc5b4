"""How the connections of the second port share the event loop. Ref: docs/rules.md, protocol rule 34."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bk_spark.bookie.server.apache.turns import ROUND_S, Turns


class Clock:
    """The loop's time, which only work moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def time(self) -> float:
        return self.now_s

    def works(self, seconds: float) -> Callable[[], None]:
        def work() -> None:
            self.now_s += seconds

        return work


def run(scene, monkeypatch) -> None:
    """Run a scene with turns whose clock stands still beside work."""

    async def main() -> None:
        clock, made = Clock(), Turns()
        monkeypatch.setattr(made, "_loop", FakeLoop(asyncio.get_running_loop(), clock))
        await scene(made, clock)

    asyncio.run(main())


class FakeLoop:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self.time = clock.time

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)


def test_a_turn_of_the_loop_serves_as_many_connections_as_fit_in_a_round_and_the_others_go_on_in_the_next(monkeypatch) -> None:
    async def scene(made: Turns, clock: Clock) -> None:
        done: list[int] = []
        for number in range(7):
            made.ask(lambda number=number: (done.append(number), clock.works(ROUND_S / 3)()))
        assert made.is_crowded
        await asyncio.sleep(0)
        assert done == [0, 1, 2]
        await asyncio.sleep(0)
        assert done == [0, 1, 2, 3, 4, 5]
        await asyncio.sleep(0)
        assert done == list(range(7))
        assert not made.is_crowded

    run(scene, monkeypatch)


def test_a_connection_that_asks_again_waits_for_those_that_asked_before_and_for_the_next_turn_of_the_loop(monkeypatch) -> None:
    async def scene(made: Turns, clock: Clock) -> None:
        done: list[str] = []

        def greedy() -> None:
            done.append("greedy")
            if len(done) < 6:
                made.ask(greedy)

        made.ask(greedy)
        made.ask(lambda: done.append("modest"))
        await asyncio.sleep(0)
        assert done == ["greedy", "modest"]
        await asyncio.sleep(0)
        assert done == ["greedy", "modest", "greedy"]

    run(scene, monkeypatch)
