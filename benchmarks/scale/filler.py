"""Writes many znodes quickly: large transactions, several of them on their way at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from bk_spark.metadata.store import Create, MetadataStore, SetValue, StoreChange

TRANSACTION_BYTES = 100_000
"""ZooKeeper keeps the last 500 transactions in memory."""
UNDER_WAY = 4
_OPERATION_BYTES = 50


class Filler:
    """Makes changes that do not depend on each other, in any order. Leave the ``with`` block, and all are made."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(UNDER_WAY)
        self._under_way: deque[Future[None]] = deque()
        self._waiting: list[StoreChange] = []
        self._nbytes = 0
        self._parents: set[str] = set()

    def __enter__(self) -> Filler:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._send()
            while self._under_way:
                self._under_way.popleft().result()
        finally:
            self._threads.shutdown()

    def parent(self, path: str) -> None:
        """Have ``path``, below which others follow, from now on."""
        if path not in self._parents:
            self._parents.add(path)
            self._store.ensure_path(path)

    def add(self, changes: Sequence[StoreChange]) -> None:
        """These are made in one transaction, in their order; their parents are there."""
        self._waiting += changes
        for one in changes:
            value = len(one.value) if isinstance(one, (Create, SetValue)) else 0
            self._nbytes += len(one.path) + value + _OPERATION_BYTES
        if self._nbytes >= TRANSACTION_BYTES:
            self._send()

    def add_all(self, changes: Iterable[StoreChange]) -> None:
        for one in changes:
            self.add([one])

    def _send(self) -> None:
        if self._waiting:
            self._under_way.append(self._threads.submit(self._store.transaction, self._waiting))
            self._waiting, self._nbytes = [], 0
        if len(self._under_way) > UNDER_WAY:
            self._under_way.popleft().result()
