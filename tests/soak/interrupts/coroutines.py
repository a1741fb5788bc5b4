"""Coroutines that are cancelled at random awaits, and what must work after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from bk_spark.aio.calls import CALL_THREADS, Calls
from bk_spark.aio.log_writer import AsyncLogWriteHandle
from bk_spark.aio.row_writer import AsyncRowWriteHandle
from bk_spark.aio.writer import AsyncWriteHandle
from bk_spark.log.rows.row_writer import leader_of
from tests.soak.interrupts.bookies import MemoryClient
from tests.soak.interrupts.case import CONFIG, LARGE
from tests.soak.interrupts.judge import DEADLINE_S, FoundError
from tests.soak.interrupts.writers import AFTER, log_writer, row_writer

MOST_TURNS = 12
"""A call takes about as many turns of the event loop."""


@dataclass(frozen=True, slots=True)
class AsyncCase:
    name: str
    make: Callable[[MemoryClient, Calls], Any]
    call: Callable[[Any], Coroutine[Any, Any, Any]]
    after: Callable[[Any], Coroutine[Any, Any, Any]]


def _ledger(client: MemoryClient, calls: Calls) -> AsyncWriteHandle:
    return AsyncWriteHandle(client.context, calls, client.ledger(), deferred_sync=False)


def _log(client: MemoryClient, calls: Calls) -> AsyncLogWriteHandle:
    return AsyncLogWriteHandle(log_writer(client), calls, "orders", CONFIG.add_window_bytes)


def _rows(client: MemoryClient, calls: Calls) -> AsyncRowWriteHandle:
    return AsyncRowWriteHandle(leader_of(row_writer(client)), calls, CONFIG.add_window_bytes)


async def _next_entry(writer: Any) -> Any:
    return await writer.append(AFTER)


async def _entry_and_close(writer: Any) -> Any:
    place = await writer.append(AFTER)
    await writer.close()
    return place


async def _rows_and_close(writer: Any) -> Any:
    place = await writer.append({"i": 2})
    await writer.close()
    return place


async def _many(writer: Any) -> Any:
    return await asyncio.gather(*(writer.append(LARGE) for _ in range(6)))


CASES = (
    AsyncCase("append of a coroutine", _ledger, lambda one: one.append(b"x"), _next_entry),
    AsyncCase("appends of coroutines without room", _ledger, _many, _next_entry),
    AsyncCase("append_batch of a coroutine", _ledger, lambda one: one.append_batch([LARGE] * 9), _next_entry),
    AsyncCase("append_async of a coroutine", _ledger, lambda one: one.append_async(LARGE), _next_entry),
    AsyncCase("append of a coroutine to a log", _log, lambda one: one.append(b"x"), _entry_and_close),
    AsyncCase("appends of coroutines to a log without room", _log, _many, _entry_and_close),
    AsyncCase("roll of a coroutine", _log, lambda one: one.roll(), _entry_and_close),
    AsyncCase("close of a coroutine's log", _log, lambda one: one.close(), lambda one: one.close()),
    AsyncCase("append of a coroutine's row", _rows, lambda one: one.append({"i": 1}), _rows_and_close),
    AsyncCase("flush of a coroutine's rows", _rows, lambda one: one.flush(), _rows_and_close),
    AsyncCase("close of a coroutine's rows", _rows, lambda one: one.close(), lambda one: one.close()),
)


class Coroutines:
    """On an event loop of its own, which one thread uses."""

    def __init__(self, client: MemoryClient, chance: Random) -> None:
        self._client = client
        self._chance = chance
        self._runner = asyncio.Runner()
        self._calls = self._runner.run(_calls())

    def play(self, case: AsyncCase | None = None) -> str:
        """Cancel a call at some await. Gives the name of the case; raises FoundError."""
        case = case or self._chance.choice(CASES)
        turns = self._chance.randint(0, MOST_TURNS)
        name = f"{case.name}, cancelled in turn {turns}"
        self._client.context.appends_stand_in_line = True
        try:
            self._runner.run(asyncio.wait_for(self._cancelled(case, turns, name), 2 * DEADLINE_S))
        except TimeoutError:
            raise FoundError(f"{name}: what comes after it never returns") from None
        finally:
            self._client.context.appends_stand_in_line = False
        return name

    def close(self) -> None:
        self._calls.end()
        self._runner.close()

    async def _cancelled(self, case: AsyncCase, turns: int, name: str) -> None:
        subject = case.make(self._client, self._calls)
        task = asyncio.create_task(case.call(subject))  # type: ignore[arg-type]
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            raise FoundError(f"{name}: it raises {task.exception()!r}")
        try:
            place = await case.after(subject)
        except Exception as problem:
            raise FoundError(f"{name}: what comes after it raises {problem!r}") from problem
        self._check(subject, place, name)

    def _check(self, subject: Any, place: Any, name: str) -> None:
        stored = self._client.bookie.payloads(subject.ledger_id)
        if isinstance(place, int) and stored.get(place) != AFTER:
            raise FoundError(f"{name}: the entry that was confirmed as {place} is not there")
        line = getattr(subject, "_line", None) or getattr(subject, "_window", None)
        if line is not None and (line._held_bytes or line._line):
            raise FoundError(f"{name}: {line._held_bytes} bytes are held, and {len(line._line)} appends stand in line")


async def _calls() -> Calls:
    """With all its threads: from here on none is new."""
    calls, together = Calls(), threading.Barrier(CALL_THREADS)
    await asyncio.gather(*(calls.in_thread(together.wait) for _ in range(CALL_THREADS)))
    return calls
