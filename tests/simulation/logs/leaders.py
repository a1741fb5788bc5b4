"""A leader of a duel: it opens the log, appends entries, rolls from ledger to ledger, closes, and is displaced by others.

It is the shipped ``LogWriteHandle`` with its threads; only what it takes from ``threading`` is put in the baton's place.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Self

from bk_spark.client.log.entry_range import LogPosition
from bk_spark.client.log.leader.log_write_handle import LogWriteHandle
from bk_spark.errors import BookKeeperError
from tests.simulation.logs.clients import EXPECTED, rest
from tests.simulation.logs.history import Append
from tests.simulation.logs.world import DuelWorld, Machine


class BatonThreading:
    """What stands in the place of the module ``threading``: as much of it as the handle uses."""

    def __init__(self, world: DuelWorld) -> None:
        self._world = world

    def Condition(self) -> BatonCondition:
        return BatonCondition(self._world)

    def Thread(self, *, target: Callable[[], None], name: str, daemon: bool) -> BatonThread:
        return BatonThread(self._world, target)


class BatonCondition:
    """Its lock is never contended, as nothing under it gives the baton away but ``wait_for``; and it wakes by itself."""

    def __init__(self, world: DuelWorld) -> None:
        self._world = world

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        if not predicate():
            self._world.baton.current.wait(predicate, "a condition of the handle")

    def notify_all(self) -> None: ...


class BatonThread:
    def __init__(self, world: DuelWorld, target: Callable[[], None]) -> None:
        self._world = world
        self._target = target

    def start(self) -> None:
        baton = self._world.baton
        baton.spawn(baton.current.name, self._target).join_group(baton.current)


class Leadership:
    """From one opening to its end: appends are written down, and what becomes of them."""

    def __init__(self, machine: Machine, name: str, handle: LogWriteHandle) -> None:
        self.machine = machine
        self.name = name
        self.handle = handle
        self.is_lost = False

    def append(self, number: int) -> Append:
        world = self.machine.world
        append = Append(b"%s:%d" % (self.name.encode(), number), self.name, world.tell())
        world.history.appends.append(append)
        self.handle.append_async(append.payload).add_done_callback(lambda future: self._told(append, future))
        return append

    def roll(self) -> None:
        self._try(self.handle.roll)

    def close(self) -> None:
        if self._try(self.handle.close):
            self.machine.world.marks["closed by their leader"] += 1

    def _try(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except EXPECTED as problem:
            self.machine.note(f"fails: {problem}")
            return False
        return True

    def _told(self, append: Append, future: Future[LogPosition]) -> None:
        problem = future.exception()
        world = self.machine.world
        if isinstance(problem, BookKeeperError):
            self.machine.note(f"{append.payload!r} fails: {problem}")
            world.marks["lost leaderships"] += not self.is_lost
            self.is_lost = True
            return
        place = future.result()
        append.position, append.confirmed = (place.ledger_id, place.entry_id), world.tell()
        world.marks["confirmed appends"] += 1
        self.machine.note(f"{append.payload!r} is confirmed at {append.position}")


def leader(leaderships: int, appends: int) -> Callable[[Machine], None]:
    """Opens the log, again after it lost it, and appends; closes in the end, or just stops."""

    def body(machine: Machine) -> None:
        choices = machine.world.choices
        for number in range(leaderships):
            rest(machine, 100)
            roll_bytes = choices.pick((10_000, 150, 100, 70), "roll bytes")
            try:
                handle = machine.log.open_writer(roll_bytes=roll_bytes)
            except EXPECTED as problem:
                machine.note(f"cannot open: {problem}")
                continue
            machine.world.marks["leaderships"] += 1
            _lead(Leadership(machine, f"{machine.name}.{number}", handle), appends)

    return body


def _lead(leadership: Leadership, appends: int) -> None:
    machine = leadership.machine
    choices = machine.world.choices
    pause = choices.pick((3, 12, 30), "pause")
    is_pipelined = choices.choose(4, "pipelined")
    for number in range(appends):
        append = leadership.append(number)
        if not is_pipelined:
            machine.wait(lambda append=append: append.confirmed or leadership.is_lost, "a confirmation")  # type: ignore[misc]
        rest(machine, pause)
        if leadership.is_lost:
            break
        if choices.choose(12, "rolls") == 11:
            leadership.roll()
    if choices.choose(3, "closes"):
        leadership.close()
