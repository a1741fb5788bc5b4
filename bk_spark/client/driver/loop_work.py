"""A coroutine that runs on the client's event loop for somebody who waits elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any

from bk_spark.calls.call_future import CallFuture
from bk_spark.calls.forks import check_process, is_forked


class LoopWork(CallFuture):
    """Its outcome. Nothing happens before ``begin``; after ``cancel`` it ends soon, whether it had begun or not."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False

    def begin(self) -> None:
        """Raises ConfigError in a forked process."""
        if is_forked():
            self._work.close()
        check_process()
        self._loop.call_soon_threadsafe(self._start)

    def cancel(self) -> bool:
        if not self.done():
            self._loop.call_soon_threadsafe(self._stop)
        return False

    def _start(self) -> None:
        if not self._is_cancelled:
            self._task = self._loop.create_task(self._work)
            self._task.add_done_callback(self._ended)

    def _stop(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._work.close()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        problem = CancelledError() if task.cancelled() else task.exception()
        if problem is None:
            self.set_result(task.result())
        else:
            self.set_exception(problem)
