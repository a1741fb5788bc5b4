"""Follows the rows of a log, for coroutines: as ``log/rows/tail_rows.py``, whose plan and pace it shares.

Looks at the log run in the client's threads for calls. Entries, and waits for more of them, are on the client's event loop: a
tail that waits has no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from types import TracebackType

import pyarrow as pa

from bk_spark.aio.calls import Calls
from bk_spark.aio.payloads import made_in_threads, made_of_payloads
from bk_spark.aio.reader import for_coroutines
from bk_spark.client.driver.user_loop import LoopFuture, wake
from bk_spark.errors import BookKeeperError, NoSuchLedgerError
from bk_spark.log.rows.tail_pace import TailPace
from bk_spark.log.rows.tail_plan import Tailed, TailPlan
from bk_spark.log.spans.span_handle import ROWS_ALONE
from bk_spark.log.stream.follow import PlacedStretch
from bk_spark.log.stream.waits import RETRY_S


class _News:
    """Whether the log's head has changed since ``clear``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.clear()

    def clear(self) -> None:
        self._changed: LoopFuture[None] = self._calls.loop.new_future()

    @property
    def has_come(self) -> bool:
        return self._changed.done()

    def tell(self) -> None:
        """From any thread."""
        self._calls.loop.tell(self._come)

    async def wait(self, longest_s: float) -> None:
        if not self.has_come:
            await self._calls.wait_up_to(self._changed, longest_s)

    def _come(self) -> None:
        wake(self._changed)


class _Following:
    """What a tail's generator holds: not the tail, so that a tail which is dropped ends at once."""

    def __init__(self, begin: Callable[[], TailPlan], pace: TailPace, calls: Calls) -> None:
        self.plan: TailPlan | None = None
        """None before the first step."""
        self._begin = begin
        self._pace = pace
        self._calls = calls
        self._news = _News(calls)

    async def batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        plan = await self.begin()
        self._pace.begin(self._now_s())
        try:
            while True:
                try:
                    self._news.clear()
                    await self._calls.in_thread(partial(plan.watch, self._news.tell))
                    async with aclosing(self._given(plan)) as batches:
                        async for batch in batches:
                            yield batch
                            self._pace.gave(self._now_s())
                    wait_s = self._pace.wait_s(self._now_s(), leader=plan.open_ledger is not None)
                    if wait_s is None:
                        return
                    await self._wait(plan, wait_s)
                except BookKeeperError as problem:
                    if not self._pace.may_retry(problem, self._now_s()):
                        raise
                    await self._news.wait(RETRY_S)
        finally:
            plan.close()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def begin(self) -> TailPlan:
        if self.plan is None:
            self.plan = await self._calls.in_thread(self._begin)
        return self.plan

    async def _given(self, plan: TailPlan) -> AsyncGenerator[pa.RecordBatch, None]:
        look = await self._calls.in_thread(plan.look)
        for stretch in look.stretches:
            async with aclosing(self._rows_of(plan, stretch)) as made:
                async for tailed in made:
                    plan.position = tailed.position
                    if tailed.rows is not None:
                        yield tailed.rows
        plan.position = look.end

    async def _rows_of(self, plan: TailPlan, stretch: PlacedStretch) -> AsyncGenerator[Tailed, None]:
        ledger = await self._calls.in_thread(partial(plan.handle, stretch))
        try:
            if not isinstance(ledger, ROWS_ALONE):
                place, make = (stretch.first_entry_id, stretch.last_entry_id), partial(plan.rows_of, stretch)
                async with aclosing(made_of_payloads(self._calls, ledger, *place, make)) as made:
                    async for tailed in made:
                        yield tailed
                return
        except NoSuchLedgerError:  # it left bookies meanwhile
            pass
        async with aclosing(made_in_threads(self._calls, partial(plan.rows_without_payloads, stretch))) as made:
            async for tailed in made:
                yield tailed

    async def _wait(self, plan: TailPlan, wait_s: float) -> None:
        ledger = plan.open_ledger
        if ledger is None:
            await self._news.wait(wait_s)
        elif not self._news.has_come:
            await for_coroutines(ledger, self._calls).wait_for_last_add_confirmed(ledger.last_add_confirmed, wait_s)


class AsyncRowTail:
    """An asynchronous iterator over the rows of a log that waits for more at its end, as RowTail. One task uses it at a time.

    It looks where to begin at its first step, or at the begin of its ``async with`` block. A tail whose wait was cancelled, or
    that was left early, has ended: another one goes on at its ``position``.
    """

    def __init__(self, begin: Callable[[], TailPlan], start: str, pace: TailPace, calls: Calls) -> None:
        self._start = start
        self._following = _Following(begin, pace, calls)
        self._batches = self._following.batches()

    def __repr__(self) -> str:
        return f"<AsyncRowTail at {self.position}>"

    @property
    def position(self) -> str:
        """Behind the last row that was given: ``start`` of a later tail. ``start`` itself before the first step."""
        plan = self._following.plan
        return self._start if plan is None else plan.position_json

    def __aiter__(self) -> AsyncRowTail:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        return await anext(self._batches)

    async def close(self) -> None:
        """Wait for nothing more."""
        await self._batches.aclose()

    async def __aenter__(self) -> AsyncRowTail:
        await self._following.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
