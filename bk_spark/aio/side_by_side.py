"""Tasks of the application's event loop that read stretches side by side, as the threads of ``log/rows/side_by_side.py``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Generic, TypeVar

import pyarrow as pa

from bk_spark.log.rows.side_by_side import AHEAD_BYTES, READERS, ReadAhead

_Stretch = TypeVar("_Stretch")


class AsyncSideBySide(Generic[_Stretch]):
    """One pass over ``stretches``. What ``read`` raises is raised at its place in the order."""

    def __init__(
        self,
        stretches: Sequence[_Stretch],
        read: Callable[[_Stretch], AsyncGenerator[pa.RecordBatch, None]],
        ahead_bytes: int = AHEAD_BYTES,
    ) -> None:
        self._stretches = stretches
        self._read = read
        self._ahead = ReadAhead(len(stretches), ahead_bytes)
        self._changed = asyncio.Event()

    async def batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """All batches, in the order of the stretches. The tasks and their reads end before this generator does."""
        tasks = [asyncio.create_task(self._run()) for _ in range(min(READERS, len(self._stretches)))]
        try:
            while not self._ahead.is_at_end:
                await self._until(lambda: self._ahead.can_give)
                batch = self._ahead.give()
                self._changed.set()
                if batch is not None:
                    yield batch
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _run(self) -> None:
        """One of the tasks."""
        while True:
            await self._until(lambda: self._ahead.may_take)
            stretch = self._ahead.take()
            if stretch is None:
                return
            problem: Exception | None = None
            try:
                await self._put_all(stretch)
            except Exception as raised:
                problem = raised
            self._ahead.end(stretch, problem)
            self._changed.set()

    async def _put_all(self, stretch: int) -> None:
        async with aclosing(self._read(self._stretches[stretch])) as batches:
            async for batch in batches:
                await self._until(partial(self._ahead.may_put, stretch))
                self._ahead.put(stretch, batch)
                self._changed.set()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed.clear()
            await self._changed.wait()
