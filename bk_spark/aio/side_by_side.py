"""Tasks of the application's event loop that read parts side by side, as the threads of ``log/rows/side_by_side.py``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Generic, TypeVar

import pyarrow as pa

from bk_spark.log.rows.side_by_side import AHEAD_BYTES, READERS, ReadAhead

_Part = TypeVar("_Part")


class AsyncSideBySide(Generic[_Part]):
    """One pass over ``parts``. What ``read`` raises is raised at its place in the order."""

    def __init__(
        self,
        parts: Sequence[_Part],
        read: Callable[[_Part], AsyncGenerator[pa.RecordBatch, None]],
        ahead_bytes: int = AHEAD_BYTES,
    ) -> None:
        self._parts = parts
        self._read = read
        self._ahead = ReadAhead(len(parts), ahead_bytes)
        self._changed = asyncio.Event()

    async def batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """All batches, in the order of the parts. The tasks and their reads end before this generator does."""
        tasks = [asyncio.create_task(self._run()) for _ in range(min(READERS, len(self._parts)))]
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
            await self._until(lambda: self._ahead.may_take_part)
            part = self._ahead.take_part()
            if part is None:
                return
            problem: Exception | None = None
            try:
                await self._put_all(part)
            except Exception as raised:
                problem = raised
            self._ahead.end(part, problem)
            self._changed.set()

    async def _put_all(self, part: int) -> None:
        async with aclosing(self._read(self._parts[part])) as batches:
            async for batch in batches:
                await self._until(partial(self._ahead.may_put, part))
                self._ahead.put(part, batch)
                self._changed.set()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed.clear()
            await self._changed.wait()
