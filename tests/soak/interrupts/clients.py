"""A client that is opened and closed, over a metadata store in memory whose sessions have a thread and descriptors."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from bk_spark import bookkeeper
from bk_spark.bookkeeper import BookKeeper
from tests.soak.interrupts.bookies import ZNODES, MemoryClient, Session
from tests.soak.interrupts.case import CONFIG, Case

URI = f"zk://in.memory:2181{ZNODES.root}"


@contextmanager
def store_in_memory(client: MemoryClient) -> Iterator[None]:
    """Within it BookKeeper opens sessions with the metadata store of ``client``."""
    with mock.patch.object(bookkeeper, "connect_with", side_effect=lambda *_, **__: Session(client.tree)):
        yield


def open_client() -> BookKeeper:
    return BookKeeper(URI, CONFIG)


def _open_and_close(_: object = None) -> None:
    gc.collect()  # what nobody can reach closes itself
    open_client().close()


CASES = (
    Case("opening a client", lambda client: None, lambda _: open_client().close(), _open_and_close),
    Case("a client in a with block", lambda client: None, lambda _: _with_block(), _open_and_close),
    Case("close of a client", lambda client: open_client(), lambda one: one.close(), lambda one: one.close()),
)


def _with_block() -> None:
    with open_client() as one:
        one.list_ledgers()
