"""A leader of a duel: it opens the log, appends entries, rolls from ledger to ledger, closes, and is displaced by others.

It is the shipped ``LogWriteHandle`` with its threads; only its event loop, and what threads begin and wait with, are in the
baton's hands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

from bk_spark.calls import call_future
from bk_spark.errors import BookKeeperError
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.leader import log_write_handle
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from tests.simulation.logs.clients import EXPECTED, rest
from tests.simulation.logs.history import Append
from tests.simulation.logs.world import DuelWorld, Machine


class BatonLoops:
    """What stands in the place of the client's event loop: each handle has one of its own."""

    def __init__(self, world: DuelWorld) -> None:
        self._world = world

    def get(self) -> BatonLoop:
        return BatonLoop(self._world)


class BatonLoop:
    """It is another thread of the process that made it, for as long as it has something to do."""

    def __init__(self, world: DuelWorld) -> None:
        self._world = world
        self._process = world.baton.current
        self._calls: deque[Callable[[], None]] = deque()
        self._is_running = False

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        if not self._is_running and self._process.is_alive:
            self._is_running = True
            self._world.baton.spawn(self._process.name, self._run).join_group(self._process)

    def time(self) -> float:
        return 0.0

    def call_later(self, delay: float, call: Callable[[], object]) -> None:
        """Timers roll ledgers for a tier, as the leaders of a duel do at any time."""

    def _run(self) -> None:
        while self._calls:
            self._calls.popleft()()
        self._is_running = False


class BatonGate:
    """What stands in the place of a gate: whoever waits gives the baton away."""

    def __init__(self, world: DuelWorld) -> None:
        self._world = world
        self._is_open = False

    def open(self) -> None:
        self._is_open = True

    def wait(self, timeout_s: float | None = None) -> bool:
        self._world.baton.current.wait(lambda: self._is_open, "a gate of the handle")
        return True

    def add_result(self, future: Future[object]) -> None:
        self.open()

    add_exception = add_result


def baton_threads(world: DuelWorld) -> Callable[[Callable[[], object]], None]:
    """What stands in the place of ``in_thread``."""

    def in_thread(call: Callable[[], object]) -> None:
        current = world.baton.current
        if current.is_alive:
            world.baton.spawn(current.name, call).join_group(current)

    return in_thread


@contextmanager
def in_the_baton_s_hands(world: DuelWorld) -> Iterator[None]:
    """Within it, the handles of leaders."""
    gate = partial(BatonGate, world)
    with ExitStack() as patches:
        for module, name, new in (
            (log_write_handle, "EventLoop", BatonLoops(world)),
            (log_write_handle, "in_thread", baton_threads(world)),
            (log_write_handle, "Gate", gate),
            (call_future, "Gate", gate),
        ):
            patches.enter_context(patch.object(module, name, new))
        yield


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
