"""Payloads of rows for coroutines: entries come over the client's event loop, and are decoded in its threads for calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import TypeVar

import pyarrow as pa

from bk_spark.aio.calls import Calls
from bk_spark.aio.reader import for_coroutines
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.rows.parts import JoinedPayloads

_Made = TypeVar("_Made")


async def made_of_payloads(
    calls: Calls,
    handle: ReadHandle,
    first: int,
    last: int,
    make: Callable[[Iterable[pa.RecordBatch]], Iterator[_Made]],
) -> AsyncGenerator[_Made, None]:
    """What ``make`` makes, none of it None, of the payloads that stand or begin in entries ``first`` to ``last``.

    Each item is made in a thread when it is asked for, so memory holds one, and the entries that were read ahead. The entries
    must be known to be confirmed, as with ``ReadHandle.read_unconfirmed``.
    """
    payloads = JoinedPayloads(handle.read_unconfirmed, handle.ledger_id, first)
    async with aclosing(for_coroutines(handle, calls).read_unconfirmed(first, last)) as entries:
        async for batch in entries:
            made = make(payloads.joined(batch))
            while (item := await _next(calls, made)) is not None:
                yield item
    made = make(payloads.rest(last + 1))
    while (item := await _next(calls, made)) is not None:
        yield item


async def made_in_threads(calls: Calls, make: Callable[[], Iterator[_Made]]) -> AsyncGenerator[_Made, None]:
    """What ``make`` makes, none of it None. Each item is made in a thread when it is asked for."""
    made = await calls.in_thread(make)
    while (item := await _next(calls, made)) is not None:
        yield item


async def _next(calls: Calls, made: Iterator[_Made]) -> _Made | None:
    return await calls.in_thread(lambda: next(made, None))
