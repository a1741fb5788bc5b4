"""The items of a writer's queue, and the futures with which their callers are answered."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, ClassVar

import pyarrow as pa

from bk_spark.calls.call_future import CallFuture
from bk_spark.client.driver.user_loop import LoopFuture, UserLoop, give_error, give_ids
from bk_spark.client.ledger.append_future import confirm_all
from bk_spark.client.ledger.payloads import CheckedPayloads
from bk_spark.client.protocol import state_machine as sm
from bk_spark.config import DigestType
from bk_spark.entries.batch import binaries, draft_of
from bk_spark.entries.body_draft import BodyDraft
from bk_spark.errors import BookKeeperError


@dataclass(slots=True)
class Singles:
    """Entries of single appends, one behind the other, each with its future. They stay together in one batch."""

    nbytes: int
    payloads: list[bytes]
    futures: list[Any]
    """AppendFutures; or futures of ``loop``."""
    first_entry_id: int | None = None
    """Chosen by the application; None: the next one."""
    loop: UserLoop | None = None
    """Where coroutines wait for the futures; None: threads do."""

    @property
    def count(self) -> int:
        return len(self.payloads)

    def add(self, nbytes: int, payload: bytes, future: LoopFuture[Any] | Future[Any]) -> None:
        self.nbytes += nbytes
        self.payloads.append(payload)
        self.futures.append(future)

    def join(self, others: Singles) -> None:
        """Put others behind these."""
        self.nbytes += others.nbytes
        self.payloads += others.payloads
        self.futures += others.futures

    def confirm(self, first_entry_id: int) -> None:
        if self.loop is None:
            confirm_all(self.futures, first_entry_id)
        else:
            self.loop.tell(give_ids, self.futures, first_entry_id)

    def reject(self, error: BookKeeperError) -> None:
        if self.loop is not None:
            self.loop.tell(give_error, self.futures, error)
            return
        for future in self.futures:
            _fail(future, error)


@dataclass(slots=True)
class Call:
    """One call of ``append_batch_async``. Its future is done when its last batch is confirmed."""

    future: Future[tuple[int, int]]
    first: int = -1


@dataclass(slots=True)
class CallPart:
    """Entries of one call, as many as one batch takes: those of ``source`` from ``start`` (included) to ``end`` (excluded)."""

    nbytes: int
    source: CheckedPayloads | None
    """None: they are in memory of our own, from the call on, or once there is room."""
    start: int
    end: int
    call: Call
    is_last: bool
    digest_type: DigestType | None
    """Of the body that they are drafted for; None: they are few, and may travel with others."""
    first_entry_id: int | None = None
    """As that of ``Singles``."""
    draft: BodyDraft | None = None
    """Where they were copied to."""
    _taken: pa.BinaryArray | None = None

    @property
    def count(self) -> int:
        return self.end - self.start

    @property
    def payloads(self) -> pa.BinaryArray:
        self.take()
        return self._taken

    def take(self) -> None:
        if self.source is None:
            return
        if self.digest_type is not None:
            self.draft = draft_of(self.source.array.slice(self.start, self.count), self.digest_type)
            self._taken = self.draft.payloads
        else:
            self._taken = self.source.part(self.start, self.end)
        self.source = None  # the memory of a joined list is free for the next one

    def confirm(self, first_entry_id: int) -> None:
        self.call.first = first_entry_id if self.call.first < 0 else self.call.first
        if self.is_last:
            _resolve(self.call.future, (self.call.first, first_entry_id + self.count - 1))

    def reject(self, error: BookKeeperError) -> None:
        _fail(self.call.future, error)


@dataclass(slots=True)
class Force:
    """A call of ``force``, which travels alone."""

    future: Future[int]
    nbytes: ClassVar[int] = 0
    count: ClassVar[int] = 0
    first_entry_id: ClassVar[None] = None

    def confirm(self, last_add_confirmed: int) -> None:
        _resolve(self.future, last_add_confirmed)

    def reject(self, error: BookKeeperError) -> None:
        _fail(self.future, error)


Item = Singles | CallPart | Force


@dataclass(slots=True, eq=False)
class Token:
    """The token that a batch or a force has in the state machine."""

    items: list[Item]
    nbytes: int = 0
    count: int = 0

    @property
    def is_force(self) -> bool:
        return isinstance(self.items[0], Force)

    @property
    def first_entry_id(self) -> int | None:
        return self.items[0].first_entry_id

    def add(self, item: Item) -> None:
        self.items.append(item)
        self.nbytes += item.nbytes
        self.count += item.count

    def confirm(self, entry_id: int) -> None:
        """``entry_id`` is the first one of the batch, or the last add confirmed after a force."""
        for item in self.items:
            item.confirm(entry_id)
            entry_id += item.count

    def reject(self, error: BookKeeperError) -> None:
        for item in self.items:
            item.reject(error)

    def append(self) -> sm.Append:
        """All items, in order, as one append. Of entries."""
        draft = self.items[0].draft if len(self.items) == 1 and isinstance(self.items[0], CallPart) else None
        return sm.Append(self._payloads(), self, self.first_entry_id, draft)

    def _payloads(self) -> pa.BinaryArray:
        arrays: list[pa.BinaryArray] = []
        for is_singles, items in groupby(self.items, lambda item: isinstance(item, Singles)):
            payloads = [item.payloads for item in items if not isinstance(item, Force)]
            arrays += [binaries(list(chain.from_iterable(payloads)))] if is_singles else payloads
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def new_future() -> Future[Any]:
    """A future that cannot be cancelled, because an append cannot be taken back."""
    return CallFuture()


def _resolve(future: Future[Any], value: object) -> None:
    try:
        future.set_result(value)
    except InvalidStateError:
        return  # it has already failed


def _fail(future: Future[Any], error: BookKeeperError) -> None:
    if not future.done():
        future.set_exception(error)
