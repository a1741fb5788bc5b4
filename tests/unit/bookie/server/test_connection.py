"""When a connection of the second port takes its frames. Ref: docs/guide/limits.md."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from bk_spark.bookie.server.apache.connection import Connection, Handler
from bk_spark.bookie.server.apache.steps import Steps
from bk_spark.bookie.server.apache.turns import Turns

FRAME = struct.pack(">I", 3) + b"abc"


class Socket(asyncio.Transport):
    """Nothing is written; it is asked to read, or not to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading_paused = False

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Taken:
    """A handler that counts the frames."""

    def __init__(self) -> None:
        self.frames = 0

    def begun(self, _: Connection) -> bool:
        return True

    def take(self, _: Connection, data: memoryview, at: int, end: int) -> int:
        assert bytes(data[at:end]) == FRAME
        self.frames += 1
        return end

    def rest(self, _: Connection) -> None:
        pass


def run(scene: Callable[[Connection, Socket, Taken, Turns], Any]) -> None:
    async def main() -> None:
        taken, turns, transport = Taken(), Turns(), Socket()
        connection = Connection(cast(Handler, taken), Steps(), turns)
        connection.connection_made(transport)
        await scene(connection, transport, taken, turns)

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 3])
def test_while_others_wait_for_their_turn_a_connection_keeps_what_came_stops_reading_and_waits_for_its_own(count: int) -> None:
    async def scene(connection: Connection, transport: Socket, taken: Taken, turns: Turns) -> None:
        turns.ask(lambda: None)
        for _ in range(count):
            connection.data_received(FRAME)
        assert (taken.frames, transport.is_reading_paused) == (0, True)
        await asyncio.sleep(0)
        assert (taken.frames, transport.is_reading_paused) == (count, False)

    run(scene)


def test_where_nobody_waits_a_connection_takes_its_frames_at_once() -> None:
    async def scene(connection: Connection, transport: Socket, taken: Taken, _: Turns) -> None:
        connection.data_received(FRAME + FRAME + FRAME[:5])
        assert (taken.frames, transport.is_reading_paused) == (2, False)
        connection.data_received(FRAME[5:])
        assert taken.frames == 3

    run(scene)
