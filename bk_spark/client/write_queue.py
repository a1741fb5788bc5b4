"""What lies between an application's threads and the state machine that adds their entries.

Appends are queued, cut and merged into batches, and handed over while fewer than ``MAX_REQUESTS`` are on their way: what
is appended meanwhile travels together in the next one, so batches grow with the load. Queued and unsettled bytes together
are bounded by the window; an append waits for room. The wait is bounded too, because a batch that is not confirmed in
time fails the writer and with it everything that waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bk_spark.client.add_entries import AddEntries
from bk_spark.client.operation import Append, CloseRequested, Command, Confirm, Finish, Reject, Release
from bk_spark.client.transport import Runner, Transport
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.digest import master_key, payload_sizes
from bk_spark.entry import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import BookKeeperError, InternalError

MAX_REQUESTS = 16
"""Batches on their way per writer: enough to cover the latency of group commit, few enough that single appends gather."""


@dataclass(slots=True)
class _Call:
    """One ``append_batch_async``: done when its last batch is confirmed."""

    future: Future[tuple[int, int]]
    first: int = -1


@dataclass(slots=True)
class _Item:
    """A piece of an application's call, to be sent as one batch or merged with its neighbours."""

    nbytes: int
    payload: bytes | pa.BinaryArray
    single: Future[int] | None = None
    call: _Call | None = None
    is_last: bool = False

    @property
    def count(self) -> int:
        return 1 if self.single is not None else len(self.payload)


@dataclass(slots=True, eq=False)
class _Token:
    """What travels through the state machine with a batch."""

    items: list[_Item]
    nbytes: int = field(default=0)


class WriteQueue:
    """The queue of one writer."""

    def __init__(self, transport: Transport, operation: AddEntries) -> None:
        self._transport = transport
        self._operation = operation
        key = master_key(operation.metadata.password)
        self._runner = Runner(transport, operation.metadata, key, operation, self._on_command)
        self._batch_bytes = transport.config.add_batch_bytes
        self._window_bytes = transport.config.add_window_bytes
        self._order = threading.Lock()
        self._room = threading.Condition()
        self._items: deque[_Item] = deque()
        self._held_bytes = 0
        self._pump_scheduled = False
        self._in_flight: list[_Token] = []
        self._broken: BookKeeperError | None = None
        self._closed: Future[None] | None = None

    def append_one(self, payload: bytes) -> Future[int]:
        future: Future[int] = _new_future()
        with self._in_order():
            self._put(_Item(len(payload) + ENTRY_OVERHEAD_BYTES, payload, single=future))
        return future

    def append_many(self, payloads: pa.BinaryArray) -> Future[tuple[int, int]]:
        """Nothing of other threads comes between the pieces of one call: its entries have consecutive ids."""
        call = _Call(_new_future())
        pieces = self._pieces(payloads)
        with self._in_order():
            for index, (piece, nbytes) in enumerate(pieces):
                self._put(_Item(nbytes, piece, call=call, is_last=index == len(pieces) - 1))
        return call.future

    def close(self) -> None:
        self._transport.check_may_wait()
        with self._room:
            if self._broken is not None:
                raise self._broken
            first = self._closed is None
            if self._closed is None:
                self._closed = _new_future()
            closed = self._closed
        if first:
            self._transport.loop.call_soon_threadsafe(self._runner.post, CloseRequested())
        closed.result()

    def _pieces(self, payloads: pa.BinaryArray) -> list[tuple[pa.BinaryArray, int]]:
        """Cut into batches of about ``add_batch_bytes``, none of more than MAX_BATCH_ENTRIES."""
        ends = np.cumsum(payload_sizes(payloads) + ENTRY_OVERHEAD_BYTES)
        pieces, start, before = [], 0, 0
        while start < len(payloads):
            end = int(np.searchsorted(ends, before + self._batch_bytes, side="right"))
            end = min(max(end, start + 1), start + MAX_BATCH_ENTRIES)
            pieces.append((payloads.slice(start, end - start), int(ends[end - 1]) - before))
            start, before = end, int(ends[end - 1])
        return pieces

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """One call at a time puts its pieces; the others wait, in no particular order."""
        if not self._order.acquire(blocking=False):
            self._transport.check_may_wait()
            self._order.acquire()
        try:
            yield
        finally:
            self._order.release()

    def _put(self, item: _Item) -> None:
        self._transport.check_open()
        with self._room:
            if not self._has_room(item.nbytes):
                self._transport.check_may_wait()
                self._room.wait_for(lambda: self._has_room(item.nbytes))
            self._held_bytes += item.nbytes
            self._items.append(item)
            scheduled, self._pump_scheduled = self._pump_scheduled, True
        if not scheduled:
            self._transport.loop.call_soon_threadsafe(self._pump)

    def _has_room(self, nbytes: int) -> bool:
        return self._held_bytes == 0 or self._held_bytes + nbytes <= self._window_bytes or self._broken is not None

    # --- on the event loop

    def _pump(self) -> None:
        """Hand over batches while there is something to send and few are on their way."""
        self._pump_scheduled = False
        while len(self._in_flight) < MAX_REQUESTS:
            token = self._next_batch()
            if token is None:
                return
            error = self._broken or self._operation.error
            if error is not None:
                self._reject(token, error)
                self._release(token.nbytes)
            else:
                event = Append(_merged(token.items), token)
                self._in_flight.append(token)
                self._runner.post(event)

    def _next_batch(self) -> _Token | None:
        token = _Token([])
        count = 0
        with self._room:
            while self._items:
                item = self._items[0]
                full = token.nbytes + item.nbytes > self._batch_bytes or count + item.count > MAX_BATCH_ENTRIES
                if token.items and full:
                    break
                token.items.append(self._items.popleft())
                token.nbytes += item.nbytes
                count += item.count
        return token if token.items else None

    def _on_command(self, command: Command) -> None:
        if isinstance(command, (Confirm, Reject)):
            token = _token(command.token)
            self._in_flight.remove(token)
            if isinstance(command, Confirm):
                self._confirm(token, command.first_entry_id)
            else:
                self._reject(token, command.error)
            self._schedule_pump()
        elif isinstance(command, Release):
            self._release(_token(command.token).nbytes)
        elif isinstance(command, Finish):
            self._finish(command.error)

    def _schedule_pump(self) -> None:
        with self._room:
            scheduled, self._pump_scheduled = self._pump_scheduled, True
        if not scheduled:
            self._transport.loop.call_soon(self._pump)

    def _confirm(self, token: _Token, first_entry_id: int) -> None:
        entry_id = first_entry_id
        for item in token.items:
            if item.single is not None:
                _resolve(item.single, entry_id)
            elif item.call is not None:
                item.call.first = entry_id if item.call.first < 0 else item.call.first
                if item.is_last:
                    _resolve(item.call.future, (item.call.first, entry_id + item.count - 1))
            entry_id += item.count

    def _reject(self, token: _Token, error: BookKeeperError) -> None:
        for item in token.items:
            future = item.single if item.single is not None else item.call.future if item.call else None
            if future is not None and not future.done():
                future.set_exception(error)

    def _release(self, nbytes: int) -> None:
        with self._room:
            self._held_bytes -= nbytes
            self._room.notify_all()

    def _finish(self, error: BookKeeperError | None) -> None:
        """The writer is closed; or it failed itself, and nothing that waits will ever be confirmed."""
        if isinstance(error, InternalError):
            with self._room:
                self._broken = error
                self._room.notify_all()
            for token in self._in_flight:
                self._reject(token, error)
            self._in_flight.clear()
            self._schedule_pump()
        with self._room:
            closed = self._closed
        if closed is not None and error is None:
            closed.set_result(None)
        elif closed is not None:
            closed.set_exception(error)


def _new_future() -> Future[Any]:
    """A future that cannot be cancelled: what was appended cannot be taken back."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _token(token: object) -> _Token:
    assert isinstance(token, _Token)
    return token


def _resolve(future: Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _merged(items: list[_Item]) -> pa.BinaryArray:
    """The payloads of all items, in order, as one array."""
    arrays: list[pa.BinaryArray] = []
    singles: list[bytes] = []
    for item in items:
        if isinstance(item.payload, bytes):
            singles.append(item.payload)
            continue
        if singles:
            arrays.append(pa.array(singles, pa.binary()))
            singles = []
        arrays.append(item.payload)
    if singles:
        arrays.append(pa.array(singles, pa.binary()))
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
