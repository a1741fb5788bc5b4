"""Runs operations of simulated clients with the shipped driver: Runner, WriteQueue, connections, and what is behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from bk_spark.client.driver import connections
from bk_spark.client.driver.runner import Runner
from bk_spark.client.ledger.write_handle import AdvWriteHandle, WriteHandle
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.limits import AddLimits
from bk_spark.client.protocol.rereplicate_fragment import RereplicateFragment
from bk_spark.client.protocol.state_machine import (
    Append,
    CloseRequested,
    Command,
    Confirm,
    Event,
    Finish,
    ForceRequested,
    Reject,
    StateMachine,
)
from bk_spark.config import ClientConfig
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from tests.simulation.engines.schedule import CHOSEN_IDS, DEFERRED_SYNC, Schedule
from tests.simulation.engines.virtual_time import VirtualTimeWorld
from tests.simulation.whole.context import SimulatedContext
from tests.simulation.whole.network import open_connection
from tests.simulation.world.client_process import ClientProcess

OnCommand = Callable[[Command], None]

CLOSE_MS = 60_000
"""Far more than a client waits for anything when it is closed."""


class ShippedDriver:
    """In place of world.runner.SimulatedDriver. Each process has one client."""

    def __init__(self) -> None:
        self._contexts: dict[str, SimulatedContext] = {}

    def operation(
        self, process: ClientProcess, metadata: LedgerMetadata, key: bytes, machine: StateMachine, on_command: OnCommand
    ) -> _Operation:
        context = self._context(process, ClientConfig())
        if isinstance(machine, RereplicateFragment):
            context.store.leaving = machine._task.leaving
        watched = process.world.observed.operation(process.name, machine)
        runner = Runner(context, metadata, watched, _guarded(context, on_command))
        runner._master_key = key  # an intruder has another one
        return _Operation(context, runner)

    def writer(
        self, process: ClientProcess, schedule: Schedule, metadata: LedgerMetadata, on_command: OnCommand
    ) -> tuple[AddEntries, _Writer]:
        context = self._context(process, _config(schedule.limits))
        kind = AdvWriteHandle if schedule.writer.kind == CHOSEN_IDS else WriteHandle
        handle = kind(context, metadata, 0, deferred_sync=schedule.writer.kind == DEFERRED_SYNC)
        runner = handle._queue._runner
        runner._machine = process.world.observed.operation(process.name, handle._machine)
        return handle._machine, _Writer(context, handle, _guarded(context, on_command))

    def close(self, world: VirtualTimeWorld) -> None:
        """The processes that still live end as applications do: they close their clients, which must come to an end."""
        living = [one for one in self._contexts.values() if one.loop.process.is_alive and not one.loop.process.is_stopped]
        closing = [one.loop.create_task(one.bookies.close()) for one in living]
        world.run(world.now_ms + CLOSE_MS)
        world.invariants.require(all(task.done() for task in closing), "I14", "a client cannot be closed")

    def end(self) -> None:
        """To be called after the run."""
        for context in self._contexts.values():
            context.loop.end()

    def _context(self, process: ClientProcess, config: ClientConfig) -> SimulatedContext:
        if process.name not in self._contexts:
            self._contexts[process.name] = SimulatedContext(process, config)
        return self._contexts[process.name]


@contextmanager
def installed(*, all_adds_are_large: bool) -> Iterator[None]:
    """While it lasts, adds go over the run's connections: as frames, or, if all count as large, over gRPC's stream."""
    small_bytes = 0 if all_adds_are_large else connections.SMALL_BYTES
    with patch.multiple(connections, open_framed=open_connection, SMALL_BYTES=small_bytes):
        yield


class _Operation:
    """As world.runner.OperationRunner."""

    has_failed_marks = False

    def __init__(self, context: SimulatedContext, runner: Runner) -> None:
        self._context = context
        self._runner = runner

    def post(self, event: Event) -> None:
        self._context.loop.call_soon(self._runner.post, event)


class _Writer:
    """The application's end of a WriteHandle: its futures are the commands that they came from."""

    def __init__(self, context: SimulatedContext, handle: WriteHandle | AdvWriteHandle, on_command: OnCommand) -> None:
        self._context = context
        self._handle = handle
        self._on_command = on_command

    @property
    def has_failed_marks(self) -> bool:
        return self._context.may_have_failed_marks

    @property
    def sent(self) -> dict[str, set[int]]:
        return self._context.loop.sent

    def post(self, event: Event) -> None:
        match event:
            case Append(payloads, token, first):
                self._append(payloads, first).add_done_callback(partial(self._appended, token))
            case ForceRequested(token):
                self._handle._queue.force_async().add_done_callback(partial(self._forced, token))
            case CloseRequested():
                self._handle._queue.close_async().add_done_callback(self._closed)

    def _append(self, payloads: pa.BinaryArray, first: int | None) -> Future[Any]:
        """Single entries by the call that is for them."""
        handle, one = self._handle, payloads[0].as_py() if len(payloads) == 1 else None
        if isinstance(handle, AdvWriteHandle):
            assert first is not None
            return handle.append_batch_async(first, payloads) if one is None else handle.append_async(first, one)
        return handle.append_batch_async(payloads) if one is None else handle.append_async(one)

    def _appended(self, token: object, future: Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            self._on_command(Reject(token, _known(error)))
            return
        place = future.result()
        self._on_command(Confirm(token, place[0] if isinstance(place, tuple) else place))

    def _forced(self, token: object, future: Future[int]) -> None:
        error = future.exception()
        self._on_command(Confirm(token, future.result()) if error is None else Reject(token, _known(error)))

    def _closed(self, future: Future[None]) -> None:
        error = future.exception()
        self._on_command(Finish() if error is None else Finish(error=_known(error)))


def _known(error: BaseException) -> BookKeeperError:
    if not isinstance(error, BookKeeperError):
        raise error
    return error


def _guarded(context: SimulatedContext, on_command: OnCommand) -> OnCommand:
    """A future swallows what its callbacks raise: the run must not."""

    def guarded(command: Command) -> None:
        try:
            on_command(command)
        except Exception as problem:
            context.loop.fail(problem)

    return guarded


def _config(limits: AddLimits) -> ClientConfig:
    values: dict[str, Any] = {}
    for one in fields(limits):
        value, name = getattr(limits, one.name), one.name.removesuffix("_ms")
        values.update({one.name: value} if name == one.name else {f"{name}_s": value / 1000})
    return ClientConfig(**values)
