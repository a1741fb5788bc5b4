"""Where a bookie stands in the list of bookies, and when it opens its storage anew. Ref: situations 58 and 68."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from bk_spark.bookie.process.disk_watch import DiskState
from bk_spark.bookie.process.registration import Availability
from bk_spark.errors import MetadataUnavailableError, StorageError

INTERVAL_S = 0.001
FULL = DiskState(problem="too little free space in /data")


@dataclass
class World:
    """A bookie, its disks and its registration, as a test says."""

    is_read_only: bool = False
    ids_above: str = ""
    lapse: str = ""
    may_forget: bool = False
    problem: BaseException | None = None
    looks: int = 0
    state: DiskState = field(default_factory=DiskState)
    takes_files: bool = True
    may_boot: bool = True
    unreachable: int = 0
    """So many moves, from the first on, fail."""
    tries: int = 0
    moves: list[bool] = field(default_factory=list)

    @property
    def failure(self) -> BaseException | None:
        self.looks += 1
        return self.problem

    def probe(self) -> bool:
        return self.takes_files

    def move(self, is_read_only: bool) -> None:
        self.tries += 1
        if self.tries <= self.unreachable:
            raise MetadataUnavailableError("zk://nowhere", "no answer")
        self.moves.append(is_read_only)


def failure(number: int) -> StorageError:
    try:
        raise StorageError("writing /data/journal/1", "it failed") from OSError(number, "it failed")
    except StorageError as problem:
        return problem


def keeping(world: World, story: Callable[[asyncio.Task[None]], Coroutine[Any, Any, None]]) -> None:
    """Play ``story`` while the registration is kept in step."""

    async def play() -> None:
        registration = SimpleNamespace(set_read_only=world.move, is_read_only=False)
        availability = Availability(world, world, registration, lambda: world.may_boot)  # type: ignore[arg-type]
        task = asyncio.create_task(availability.keep(INTERVAL_S))
        async with asyncio.timeout(10):
            await story(task)
        task.cancel()

    asyncio.run(play())


async def some_looks(world: World) -> None:
    before = world.looks
    await until(lambda: world.looks > before + 10)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(INTERVAL_S)


def test_the_registration_follows_the_bookie_to_read_only_and_back() -> None:
    world = World()

    async def story(_: asyncio.Task[None]) -> None:
        world.is_read_only = True
        await until(lambda: world.moves == [True])
        world.is_read_only = False
        await until(lambda: world.moves == [True, False])

    keeping(world, story)


def test_a_bookie_that_is_lapsed_is_read_only_until_its_epoch_has_moved() -> None:
    world = World()

    async def story(_: asyncio.Task[None]) -> None:
        world.lapse = "its epoch has not moved"
        await until(lambda: world.moves == [True])
        world.lapse = ""
        await until(lambda: world.moves == [True, False])

    keeping(world, story)


def test_a_bookie_whose_registration_could_not_be_moved_while_it_lapsed_is_moved_back_afterwards() -> None:
    """Its next session registers it as read-only: what it is registered as is unknown after a failure."""
    world = World(unreachable=1_000_000)

    async def story(_: asyncio.Task[None]) -> None:
        world.lapse = "its epoch has not moved"
        await some_looks(world)
        world.lapse, world.unreachable = "", 0
        await until(lambda: world.moves[-1:] == [False])  # a move to read-only that had begun may still succeed before it

    keeping(world, story)


def test_a_registration_that_could_not_be_moved_is_tried_again() -> None:
    world = World(unreachable=3)

    async def story(_: asyncio.Task[None]) -> None:
        world.is_read_only = True
        await until(lambda: world.moves == [True])

    keeping(world, story)
    assert world.tries == 4


def test_after_a_full_disk_the_storage_is_opened_anew_once_there_is_space_and_the_disks_take_a_file() -> None:
    world = World(problem=failure(errno.ENOSPC), state=FULL, takes_files=False)

    async def story(task: asyncio.Task[None]) -> None:
        await some_looks(world)
        world.state = DiskState()
        await some_looks(world)
        assert not task.done()
        world.state = FULL
        await some_looks(world)
        world.takes_files = True
        await some_looks(world)
        assert not task.done()
        world.state = DiskState()
        await task

    keeping(world, story)


def test_a_storage_that_cannot_be_booted_now_is_not_given_up() -> None:
    """Without the metadata store nothing could be served for as long as that is away."""
    world = World(problem=failure(errno.ENOSPC), may_boot=False)

    async def story(task: asyncio.Task[None]) -> None:
        await some_looks(world)
        assert not task.done()
        world.may_boot = True
        await task

    keeping(world, story)


def test_what_is_in_memory_alone_is_not_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """Without the journal: of bookies whose disks were full together, all would forget the same entries at once."""
    world = World(may_forget=True, problem=failure(errno.ENOSPC))

    async def story(task: asyncio.Task[None]) -> None:
        await some_looks(world)
        assert not task.done()

    with caplog.at_level(logging.ERROR):
        keeping(world, story)
    [line] = [record.getMessage() for record in caplog.records]
    assert "start such bookies one by one" in line


def test_after_another_failure_the_bookie_stays_read_only_and_says_once_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    async def story(task: asyncio.Task[None]) -> None:
        world.problem = failure(errno.EIO)
        await until(lambda: world.moves == [True])
        await some_looks(world)
        assert not task.done()

    with caplog.at_level(logging.ERROR):
        keeping(world, story)
    assert world.moves == [True]
    [line] = [record.getMessage() for record in caplog.records]
    assert "writing /data/journal/1 failed" in line
    assert "start this bookie again" in line
