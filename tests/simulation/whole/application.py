"""What an application does with a writer in a simulated run: with futures, or with threads that wait; and what it does wrong.

A call that is refused for what it was given must leave the writer as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pyarrow as pa

from bk_spark.client.driver.user_loop import UserLoop
from bk_spark.client.ledger.write_handle import AdvWriteHandle, WriteHandle
from bk_spark.client.protocol.state_machine import (
    Append,
    CloseRequested,
    Command,
    Confirm,
    Event,
    Finish,
    ForceRequested,
    Reject,
)
from bk_spark.config import MAX_ENTRY_BYTES
from bk_spark.errors import BookKeeperError, ConfigError, EntryTooLargeError
from tests.simulation.engines.choices import Choices
from tests.simulation.whole.context import SimulatedContext
from tests.simulation.whole.loop import SimulatedLoop
from tests.simulation.whole.threads import SimulatedThread
from tests.simulation.world.client_process import ClientProcess

OnCommand = Callable[[Command], None]
Handle = WriteHandle | AdvWriteHandle
Start = Callable[[ClientProcess, Callable[[], None]], SimulatedThread]

WRONG_PERCENT = 5
"""Of appends before which the application makes a call that must be refused."""

_HUGE = bytes(MAX_ENTRY_BYTES + 1)


class Application:
    """The application's end of a writer: its futures are the commands that they came from. It never waits."""

    is_told_late = True
    """Others may act on a confirmation before the application is told of it."""

    def __init__(self, context: SimulatedContext, handle: Handle, on_command: OnCommand) -> None:
        self._context = context
        self._handle = handle
        self._on_command = on_command

    @property
    def is_broken(self) -> bool:
        """Whether a bug has ended the writer."""
        return self._handle._queue._broken is not None

    @property
    def has_failed_marks(self) -> bool:
        return self._context.session.may_have_failed_marks

    @property
    def sent(self) -> dict[str, set[int]]:
        return self._context.simulated_loop.sent

    def post(self, event: Event) -> None:
        match event:
            case Append(payloads, token, first):
                self._append(payloads, token, first)
            case ForceRequested(token):
                self._force(token)
            case CloseRequested():
                self._close()

    def _append(self, payloads: pa.BinaryArray, token: object, first: int | None) -> None:
        try:
            future = append(self._handle, payloads, first, self._choices, waits=False)
        except BookKeeperError as refused:  # the window is full of entries beyond a gap
            self._on_command(Reject(token, refused))
        else:
            future.add_done_callback(partial(self._appended, token))

    def _force(self, token: object) -> None:
        try:
            self._handle._queue.force_async().add_done_callback(partial(self._appended, token))
        except BookKeeperError as refused:
            self._on_command(Reject(token, refused))

    def _close(self) -> None:
        try:
            self._handle._queue.close_async().add_done_callback(self._closed)
        except BookKeeperError as broken:  # a bug has ended the writer, or the client is closed
            self._on_command(Finish(error=broken))

    @property
    def _choices(self) -> Choices:
        return self._context.process.world.choices

    def _appended(self, token: object, future: Future[Any]) -> None:
        error = future.exception()
        self._on_command(_confirmed(token, future.result()) if error is None else Reject(token, _known(error)))

    def _closed(self, future: Future[None]) -> None:
        error = future.exception()
        self._on_command(Finish() if error is None else Finish(error=_known(error)))


class CoroutineApplication(Application):
    """It runs on an event loop of its own, ``loop``, and gives its single entries as bk_spark.aio does."""

    def __init__(self, context: SimulatedContext, handle: Handle, on_command: OnCommand, loop: SimulatedLoop) -> None:
        super().__init__(context, handle, on_command)
        self._loop = loop
        self._user_loop: UserLoop | None = None

    def post(self, event: Event) -> None:
        self._loop.call_soon(super().post, event)

    def _append(self, payloads: pa.BinaryArray, token: object, first: int | None) -> None:
        if len(payloads) > 1:
            super()._append(payloads, token, first)
        else:
            self._append_one(payloads[0].as_py(), token, first)

    def _append_one(self, payload: bytes, token: object, first: int | None) -> None:
        self._user_loop = self._user_loop or UserLoop()
        queue = self._handle._queue
        try:
            future = queue.append_one_of(self._user_loop, payload, first)
        except BookKeeperError as refused:
            self._on_command(Reject(token, refused))
        else:
            future.add_done_callback(partial(self._appended, token))


class ThreadedApplication(Application):
    """Its threads wait for what they ask for. Entries of a plain writer have one thread, or they would have no order."""

    def __init__(self, context: SimulatedContext, handle: Handle, on_command: OnCommand, start: Start) -> None:
        super().__init__(context, handle, on_command)
        appenders = 2 if isinstance(handle, AdvWriteHandle) else 1
        self._appenders = deque(_Worker(context.process, start) for _ in range(appenders))
        self._other = _Worker(context.process, start)

    def post(self, event: Event) -> None:
        match event:
            case Append(payloads, token, first):
                self._appenders.rotate()
                self._appenders[0].do(lambda: self._append_and_wait(payloads, token, first))
            case ForceRequested(token):
                self._other.do(lambda: self._force_and_wait(token))
            case CloseRequested():
                self._other.do(self._close_and_wait)

    def _append_and_wait(self, payloads: pa.BinaryArray, token: object, first: int | None) -> None:
        """It waits at once, or once it has made its other appends, or never."""
        how = self._choices.choose(3, "when it waits")
        if how == 2:
            self._append(payloads, token, first)
            return
        try:
            if how == 1:
                future = append(self._handle, payloads, first, self._choices, waits=False)
                self._appenders[0].do(lambda: self._wait(future, token))
                return
            place = append(self._handle, payloads, first, self._choices, waits=True)
        except BookKeeperError as failed:
            self._on_command(Reject(token, failed))
        else:
            self._on_command(_confirmed(token, place))

    def _wait(self, future: Future[Any], token: object) -> None:
        try:
            self._on_command(_confirmed(token, future.result()))
        except BookKeeperError as failed:
            self._on_command(Reject(token, failed))

    def _force_and_wait(self, token: object) -> None:
        try:
            self._on_command(Confirm(token, self._handle.force()))
        except BookKeeperError as failed:
            self._on_command(Reject(token, failed))

    def _close_and_wait(self) -> None:
        """A ``with`` block that fails hides no failure of its close: a second close tells of it again."""
        try:
            if self._choices.chance(30, "its block fails"):
                _fail_in_block(self._handle)
            with self._handle:
                pass
        except BookKeeperError as failed:
            self._on_command(Finish(error=failed))
        else:
            self._on_command(Finish())


class _Worker:
    """A thread for what there is to do, one thing after the other."""

    def __init__(self, process: ClientProcess, start: Start) -> None:
        self._process = process
        self._start = start
        self._tasks: deque[Callable[[], None]] = deque()
        self._is_at_work = False

    def do(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)
        if not self._is_at_work:
            self._is_at_work = True
            self._start(self._process, self._work)

    def _work(self) -> None:
        while self._tasks:
            self._tasks.popleft()()
        self._is_at_work = False


class _ApplicationError(Exception):
    """Of an application."""


def _fail_in_block(handle: Handle) -> None:
    try:
        with handle:
            raise _ApplicationError
    except _ApplicationError:
        return


def append(handle: Handle, payloads: pa.BinaryArray, first: int | None, choices: Choices, *, waits: bool) -> Any:
    """Single entries by the call that is for them, many in one of the forms that applications have them in. Gives a place back,
    or, if it does not wait, its future."""
    if choices.chance(WRONG_PERCENT, "a wrong call"):
        make_wrong_call(handle, choices)
    is_one = len(payloads) == 1
    given = payloads[0].as_py() if is_one else choices.pick(_FORMS, "form")(payloads)
    call = getattr(handle, f"append{'' if is_one else '_batch'}{'' if waits else '_async'}")
    return call(given) if first is None else call(first, given)


_FORMS: tuple[Callable[[pa.BinaryArray], Any], ...] = (
    lambda payloads: payloads,
    lambda payloads: payloads.to_pylist(),
    lambda payloads: [bytearray(one) for one in payloads.to_pylist()],
    lambda payloads: pa.chunked_array([payloads[:1], payloads[1:]]),
    lambda payloads: payloads.cast(pa.large_binary()),
)

_WRONG_MANY: tuple[Any, ...] = (
    [],
    b"one",
    [b"", "text"],
    pa.array([b"", None]),
    pa.array([1, 2]),
    pa.chunked_array([], pa.binary()),
    [_HUGE],
)
_WRONG_ONE: tuple[Any, ...] = ("text", None, _HUGE)


def make_wrong_call(handle: Handle, choices: Choices) -> None:
    """It must be refused with a sentence."""
    many, wrong = choices.pick(((False, _WRONG_ONE), (True, _WRONG_MANY)), "wrong call")
    call: Any = handle.append_batch_async if many else handle.append_async
    payload = choices.pick(wrong, "wrong payload")
    where: tuple[int, ...] = ()
    if isinstance(handle, AdvWriteHandle):
        where = (0,)
        if choices.chance(30, "wrong id"):
            where, payload = (-1,), [b""] if many else b""
    try:
        call(*where, payload)
    except (ConfigError, EntryTooLargeError):
        return
    raise AssertionError(f"{payload!r} was taken at {where}")


def _confirmed(token: object, place: Any) -> Confirm:
    return Confirm(token, place[0] if isinstance(place, tuple) else place)


def _known(error: BaseException) -> BookKeeperError:
    if not isinstance(error, BookKeeperError):
        raise error
    return error
