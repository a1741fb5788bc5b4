"""Runs operations of simulated clients with the shipped driver: Runner, WriteQueue, connections, and what is behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bk_spark.client.driver import connections
from bk_spark.client.driver.runner import Runner
from bk_spark.client.ledger import write_handle
from bk_spark.client.ledger.write_handle import AdvWriteHandle, WriteHandle
from bk_spark.client.ledger.write_items import Token
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.limits import AddLimits
from bk_spark.client.protocol.rereplicate_fragment import RereplicateFragment
from bk_spark.client.protocol.state_machine import Command, Confirm, Event, StateMachine
from bk_spark.config import MIB, ClientConfig
from bk_spark.errors import ConfigError, MetadataUnavailableError, NotEnoughBookiesError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.simulation.engines.choices import Choices
from tests.simulation.engines.schedule import CHOSEN_IDS, DEFERRED_SYNC, Schedule
from tests.simulation.engines.virtual_time import VirtualTimeWorld
from tests.simulation.whole import threads
from tests.simulation.whole.application import Application, CoroutineApplication, OnCommand, ThreadedApplication
from tests.simulation.whole.context import SimulatedContext
from tests.simulation.whole.loop import SimulatedLoop
from tests.simulation.whole.network import Ports, open_connection
from tests.simulation.world.client_process import ClientProcess

WINDOWS_BYTES = 16 * MIB, 800, 250
"""Of writers: all that a run appends, or few entries."""

BUG_PERCENT, MOST_EVENTS = 4, 20
"""Of writers that a bug ends within so many events."""

CLOSE_MS = 60_000
"""Far more than a client waits for anything when it is closed."""


class ShippedDriver:
    """In place of world.runner.SimulatedDriver. Each process has one client."""

    def __init__(self, racks: int) -> None:
        self.ports = Ports()
        self.racks = racks
        self._contexts: dict[str, SimulatedContext] = {}
        self._threads: list[threads.SimulatedThread] = []
        self._user_loops: list[SimulatedLoop] = []

    def operation(
        self, process: ClientProcess, metadata: LedgerMetadata, key: bytes, machine: StateMachine, on_command: OnCommand
    ) -> _Operation:
        context = self._context(process, ClientConfig())
        if isinstance(machine, RereplicateFragment):
            context.session.leaving = machine._task.leaving
        watched = process.world.observed.operation(process.name, machine)
        runner = Runner(context, metadata, watched, _guarded(context, on_command))
        runner._master_key = key  # an intruder has another one
        return _Operation(context, runner)

    def writer(
        self, process: ClientProcess, schedule: Schedule, metadata: LedgerMetadata, on_command: OnCommand
    ) -> tuple[AddEntries, Application]:
        choices = process.world.choices
        has_threads, window_bytes = choices.chance(50, "threads"), choices.pick(WINDOWS_BYTES, "window")
        context = self._context(process, _config(schedule.limits, window_bytes))
        context.appends_stand_in_line = not has_threads
        kind = AdvWriteHandle if schedule.writer.kind == CHOSEN_IDS else WriteHandle
        handle = kind(context, metadata, 0, deferred_sync=schedule.writer.kind == DEFERRED_SYNC)
        runner = handle._queue._runner
        runner._machine = _perhaps_with_bug(process.world.observed.operation(process.name, handle._machine), choices)
        runner._on_command = _told_first(runner._on_command, _guarded(context, _confirming(process, schedule)))
        told = _guarded(context, on_command)
        if not has_threads:
            return handle._machine, self._without_threads(context, handle, told)
        self._start(process, lambda: _choose_ensemble(context, schedule))
        return handle._machine, ThreadedApplication(context, handle, told, self._start)

    def close(self, world: VirtualTimeWorld) -> None:
        """The processes that still live end as applications do: they close their clients, which must come to an end."""
        closed: list[SimulatedContext] = []
        living = [one for one in self._contexts.values() if one.process.is_alive and not one.process.is_stopped]
        for context in living:
            self._start(context.process, partial(_close, context, closed))
        world.run(world.now_ms + CLOSE_MS)
        world.invariants.require(len(closed) == len(living), "I14", "a client cannot be closed")
        for context in self._contexts.values():  # of a process that was killed before its next turn, too
            if context.simulated_loop.problem is not None:
                raise context.simulated_loop.problem

    def end(self) -> None:
        """To be called after the run."""
        threads.SimulatedThread.end(self._threads)
        for loop in (*self._user_loops, *(context.simulated_loop for context in self._contexts.values())):
            loop.end()

    def _without_threads(self, context: SimulatedContext, handle: WriteHandle | AdvWriteHandle, told: OnCommand) -> Application:
        if not context.process.world.choices.chance(40, "coroutines"):
            return Application(context, handle, told)
        self._user_loops.append(SimulatedLoop(context.process))
        return CoroutineApplication(context, handle, told, self._user_loops[-1])

    def _start(self, process: ClientProcess, work: Callable[[], None]) -> threads.SimulatedThread:
        self._threads.append(threads.SimulatedThread(process, work))
        return self._threads[-1]

    def _context(self, process: ClientProcess, config: ClientConfig) -> SimulatedContext:
        if process.name not in self._contexts:
            self._contexts[process.name] = SimulatedContext(process, config)
            if process.world.choices.chance(30, "it closes its client before it ends"):
                process.kill = partial(self._close_and_kill, process, process.kill)  # type: ignore[method-assign]
        return self._contexts[process.name]

    def _close_and_kill(self, process: ClientProcess, kill: Callable[[], None]) -> None:
        """A process that is to end closes its client first, whatever is under way."""
        if not process.is_alive or process.is_stopped:
            kill()
            return

        def end() -> None:
            left = process.unresolved
            process.world.invariants.require(not left, "I14", f"its client is closed, and {left} are under way")
            kill()

        def close() -> None:
            self._contexts[process.name].close()
            process.later(CLOSE_MS, end)

        self._start(process, close)


@contextmanager
def installed(choices: Choices) -> Iterator[None]:
    """While it lasts, adds go over the run's connections: as frames, or, if all count as large, over gRPC's stream."""
    changed: dict[str, Any] = {"open_framed": open_connection}
    if choices.chance(30, "large adds"):
        changed["SMALL_BYTES"] = 0
    if choices.chance(30, "reads wait for each other"):
        changed["MOST_READS"] = 1
    with ExitStack() as stack:
        stack.enter_context(patch.multiple(connections, **changed))
        stack.enter_context(patch.object(write_handle, "EventLoop", SimpleNamespace(get=lambda: None)))
        stack.enter_context(threads.installed())
        yield


class _Operation:
    """As world.runner.OperationRunner."""

    def __init__(self, context: SimulatedContext, runner: Runner) -> None:
        self._context = context
        self._runner = runner

    def post(self, event: Event) -> None:
        self._context.loop.call_soon(self._runner.post, event)


def _guarded(context: SimulatedContext, on_command: OnCommand) -> OnCommand:
    """What callbacks of a future or of a task raise is swallowed there: the run must not swallow it."""

    def guarded(command: Command) -> None:
        try:
            on_command(command)
        except Exception as problem:
            if threads.is_simulated():
                raise
            context.simulated_loop.fail(problem)

    return guarded


def _told_first(shipped: OnCommand, first: OnCommand) -> OnCommand:
    def told(command: Command) -> None:
        first(command)
        shipped(command)

    return told


def _confirming(process: ClientProcess, schedule: Schedule) -> OnCommand:
    """An entry is confirmed when its application may be told. Threads learn of it later, and of a call that was cut with its
    last piece."""
    invariants, is_deferred = process.world.invariants, schedule.writer.kind == DEFERRED_SYNC

    def confirming(command: Command) -> None:
        if not isinstance(command, Confirm) or not isinstance(command.token, Token):
            return
        if not command.token.is_force:
            tell = invariants.written if is_deferred else invariants.confirmed
            tell(command.first_entry_id, command.token.count)
        elif is_deferred:
            invariants.forced(command.first_entry_id)

    return confirming


def _perhaps_with_bug(machine: StateMachine, choices: Choices) -> StateMachine:
    """Rarely one fails in the middle, as a bug that nobody knows would make it: that ends its writer, and nothing else."""
    if choices.chance(BUG_PERCENT, "a bug"):
        rest = choices.choose(MOST_EVENTS, "after so many events")
        handle = machine.handle

        def handled(event: Event, now_ms: int) -> None:
            nonlocal rest
            rest -= 1
            if rest == 0:
                raise ZeroDivisionError("a bug")
            handle(event, now_ms)

        machine.handle = handled  # type: ignore[method-assign]
    return machine


def _choose_ensemble(context: SimulatedContext, schedule: Schedule) -> None:
    """As for a new ledger."""
    ensemble_size, write_quorum, _ = schedule.shape
    with suppress(NotEnoughBookiesError, MetadataUnavailableError):
        chosen = context.choose_ensemble(ensemble_size, write_quorum)
        assert len(set(chosen)) == ensemble_size, chosen


def _close(context: SimulatedContext, closed: list[SimulatedContext]) -> None:
    context.close()
    try:
        context.choose_ensemble(1, 1)
    except ConfigError:
        closed.append(context)


def _config(limits: AddLimits, window_bytes: int) -> ClientConfig:
    values: dict[str, Any] = {"add_window_bytes": window_bytes, "add_batch_bytes": min(window_bytes // 2, MIB)}
    for one in fields(limits):
        value, name = getattr(limits, one.name), one.name.removesuffix("_ms")
        values.update({one.name: value} if name == one.name else {f"{name}_s": value / 1000})
    return ClientConfig(**values)
