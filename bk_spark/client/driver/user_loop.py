"""An event loop of the application, as the thread of the client's own event loop sees it.

What happens on the client's loop is told to the other one, and one wake-up serves all that was told before it: a wake-up costs
a system call and takes turns with the thread that it wakes, as much as some tens of appends cost altogether.

    client's loop:  tell a, which wakes; tell b; tell c         application's loop:  wakes, does a, b, c in this order

A loop that was closed is told nothing any more: nobody waits there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from bk_spark.errors import BookKeeperError, ConfigError, State

LoopFuture: TypeAlias = asyncio.Future


class UserLoop:
    """The event loop that runs where this is made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._told: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_woken = False

    def check(self) -> None:
        """Raise ConfigError on another event loop than this one."""
        if asyncio.get_running_loop() is not self._loop:
            what = "the use of a client or handle of bk_spark.aio on another event loop than the one that connected it"
            raise ConfigError(what, State("not possible"), "call bk_spark.aio.connect in each event loop")

    def new_future(self) -> LoopFuture[Any]:
        return self._loop.create_future()

    def tell(self, call: Callable[..., None], *arguments: object) -> None:
        """Have this loop make a call soon, after all that it was told before. From any thread; calls must not raise."""
        self._told.append((call, arguments))
        if self._is_woken and not self._loop.is_closed():
            return
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._do_told)
        except RuntimeError:  # the loop is closed
            self._told.clear()

    def _do_told(self) -> None:
        """The mark goes first: whoever tells something from here on wakes the loop once more, at worst for nothing."""
        self._is_woken = False
        while self._told:
            call, arguments = self._told.popleft()
            call(*arguments)


def wake(future: LoopFuture[None]) -> None:
    """Have whoever waits go on, unless that one was cancelled."""
    if not future.done():
        future.set_result(None)


def give_ids(futures: Sequence[LoopFuture[int]], first_entry_id: int) -> None:
    """Give consecutive ids to futures, except to those whose waiters were cancelled."""
    for entry_id, future in enumerate(futures, first_entry_id):
        if not future.done():
            future.set_result(entry_id)


def give_error(futures: Sequence[LoopFuture[Any]], error: BookKeeperError) -> None:
    """Fail those futures that are not done."""
    for future in futures:
        if not future.done():
            future.set_exception(error)


def give_outcome(future: LoopFuture[Any], done: Future[Any] | LoopFuture[Any]) -> None:
    """Give a future the outcome of another one, such as one that threads wait for."""
    if future.done():
        return
    if done.cancelled():
        future.cancel()
        return
    problem = done.exception()
    if problem is None:
        future.set_result(done.result())
    else:
        future.set_exception(problem)
