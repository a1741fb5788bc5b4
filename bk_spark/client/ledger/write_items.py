"""The items of a writer's queue, and the futures with which their callers are answered."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from bk_spark.entries.batch import binaries
from bk_spark.errors import BookKeeperError


@dataclass(slots=True)
class Call:
    """One call of ``append_batch_async``. Its future is done when its last batch is confirmed."""

    future: Future[tuple[int, int]]
    first: int = -1


@dataclass(slots=True)
class Item:
    """A piece of an application's call: a force, or entries that are sent as one batch or together with their neighbours."""

    nbytes: int
    payload: bytes | pa.BinaryArray = b""
    single: Future[int] | None = None
    call: Call | None = None
    is_last: bool = False
    first_entry_id: int | None = None
    """Chosen by the application; None: the next one."""
    force: Future[int] | None = None

    @property
    def count(self) -> int:
        return 1 if self.single is not None else len(self.payload)

    def confirm(self, first_entry_id: int) -> int:
        """Returns the next entry id."""
        if self.single is not None:
            _resolve(self.single, first_entry_id)
            return first_entry_id + 1
        end = first_entry_id + len(self.payload)
        if self.call is not None:
            self.call.first = first_entry_id if self.call.first < 0 else self.call.first
            if self.is_last:
                _resolve(self.call.future, (self.call.first, end - 1))
        return end

    def reject(self, error: BookKeeperError) -> None:
        for future in (self.single, self.call.future if self.call is not None else None, self.force):
            if future is not None and not future.done():
                future.set_exception(error)


@dataclass(slots=True, eq=False)
class Token:
    """The token that a batch or a force has in the state machine."""

    items: list[Item]
    nbytes: int = 0

    @property
    def force(self) -> Future[int] | None:
        return self.items[0].force

    @property
    def first_entry_id(self) -> int | None:
        return self.items[0].first_entry_id

    def confirm(self, entry_id: int) -> None:
        """``entry_id`` is the first one of the batch, or the last add confirmed after a force."""
        if self.force is not None:
            _resolve(self.force, entry_id)
            return
        for item in self.items:
            entry_id = item.confirm(entry_id)

    def reject(self, error: BookKeeperError) -> None:
        for item in self.items:
            item.reject(error)

    def payloads(self) -> pa.BinaryArray:
        """The payloads of all items, in order, as one array."""
        arrays: list[pa.BinaryArray] = []
        for is_single, items in groupby(self.items, lambda item: item.single is not None):
            payloads = [item.payload for item in items]
            arrays += [binaries(payloads)] if is_single else payloads
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


class _Uncancellable(Future[Any]):
    def cancel(self) -> bool:
        return False


def new_future() -> Future[Any]:
    """A future that cannot be cancelled, because an append cannot be taken back."""
    return _Uncancellable()


def _resolve(future: Future[Any], value: object) -> None:
    try:
        future.set_result(value)
    except InvalidStateError:
        return  # it has already failed
