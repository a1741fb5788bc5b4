"""Continuous writers: each batch is appended as it comes, and acknowledged once it is confirmed.

Three threads serve one: gRPC's takes messages, another one appends their batches, and the call's own answers. Batches are
acknowledged in their order. A batch is no commit: where the caller dies, or another writer takes the log over, what was
acknowledged stays, and of the batches behind it some rows may be there.

Ref: DESIGN.md, "The gateway".
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final

from bk_spark.bookkeeper import BookKeeper
from bk_spark.calls.off_main_thread import in_thread
from bk_spark.gateway.calls.incoming import IncomingMessages
from bk_spark.gateway.calls.open_calls import LOOK_S, OpenCall
from bk_spark.gateway.calls.statuses import CallerGoneError
from bk_spark.gateway.flight.batch_stream import IncomingBatches
from bk_spark.gateway.flight.requests import AskedWriter
from bk_spark.log.rows.row_writer import RowWriteHandle

WINDOW: Final = 64
"""Batches that wait for their acknowledgement: with more, no message is taken from the caller."""


@dataclass(frozen=True, slots=True)
class _Appended:
    """A batch that was handed over. ``position`` is None for one without rows."""

    position: Future[Any] | None


@dataclass(frozen=True, slots=True)
class _Ended:
    """No more batches come; ``problem`` says why, where that is not their end."""

    problem: BaseException | None


def write(client: BookKeeper, call: OpenCall, messages: IncomingMessages, asked: AskedWriter) -> Iterator[bytes]:
    """An answer for each batch, in their order, and one when the writer is closed. Raises as ``Log.open_row_writer``."""
    batches = IncomingBatches(messages)
    log = client.open_log(asked.log)
    with log.open_row_writer(batches.schema, merge_schema=asked.merge_schema) as writer:
        feed = _Feed(call, messages, batches, writer)
        acknowledged = 0
        for position in feed.positions():
            acknowledged += 1
            place = {} if position is None else {"ledger": position.ledger_id, "entry": position.entry_id}
            yield json.dumps({"acked": acknowledged, **place}).encode()
    yield json.dumps({"acked": acknowledged, "closed": True}).encode()


class _Feed:
    """Appends batches in a thread of its own."""

    def __init__(self, call: OpenCall, messages: IncomingMessages, batches: IncomingBatches, writer: RowWriteHandle) -> None:
        self._call = call
        self._messages = messages
        self._batches = batches
        self._writer = writer
        self._room = threading.Semaphore(WINDOW)
        self._made: SimpleQueue[_Appended | _Ended] = SimpleQueue()

    def positions(self) -> Iterator[Any]:
        """Where each batch ends, once it is confirmed."""
        ended = in_thread(self._run)
        try:
            while isinstance(made := self._next(), _Appended):
                position = None if made.position is None else self._awaited(made.position)
                self._room.release()
                yield position
            if made.problem is not None:
                raise made.problem
        finally:
            self._messages.close()
            self._room.release()
            ended.exception()  # the writer is closed behind its last append

    def _next(self) -> _Appended | _Ended:
        while True:
            try:
                return self._made.get(timeout=LOOK_S)
            except Empty:
                self._look()

    def _awaited(self, position: Future[Any]) -> Any:
        while True:
            try:
                return position.result(LOOK_S)
            except TimeoutError:
                self._look()

    def _look(self) -> None:
        self._call.look()
        if self._call.is_over:
            raise CallerGoneError

    def _run(self) -> None:
        """The thread. A message that the window has no room for is not taken."""
        problem: BaseException | None = None
        try:
            while True:
                self._room.acquire()
                batch = next(self._batches, None)
                if batch is None:
                    break
                self._made.put(_Appended(self._writer.append_async(batch) if batch.num_rows else None))
        except BaseException as raised:
            problem = raised
        self._made.put(_Ended(problem))
