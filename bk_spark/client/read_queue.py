"""What lies between the state machines that read and the application's threads that wait for them."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from bk_spark.client.operation import Command, Consumed, Deliver, Finish, Operation, Start
from bk_spark.client.read_entries import ReadEntries
from bk_spark.client.runner import Runner
from bk_spark.client.transport import Transport
from bk_spark.entry import EntryBatch
from bk_spark.ledger_metadata import LedgerMetadata


class ReadQueue:
    """The batches of one read, in order. Bounded by the state machine, which asks for more only as they are consumed.

    The wait for the next batch ends, because the state machine gives up on silent bookies.
    """

    def __init__(self, transport: Transport, metadata: LedgerMetadata, master_key: bytes, operation: ReadEntries) -> None:
        transport.check_open()
        transport.check_may_wait()
        self._loop = transport.loop
        self._arrived: queue.SimpleQueue[Deliver | Finish] = queue.SimpleQueue()
        self._runner = Runner(transport, metadata, master_key, operation, self._on_command)
        self._loop.call_soon_threadsafe(self._runner.post, Start())

    def __iter__(self) -> Iterator[EntryBatch]:
        while True:
            item = self._arrived.get()
            if isinstance(item, Deliver):
                yield item.batch
                self._loop.call_soon_threadsafe(self._runner.post, Consumed(item.batch.nbytes))
            elif item.error is not None:
                raise item.error
            else:
                return

    def close(self) -> None:
        """Stop the read, finished or not."""
        self._loop.call_soon_threadsafe(self._runner.stop)

    def _on_command(self, command: Command) -> None:
        if isinstance(command, (Deliver, Finish)):
            self._arrived.put(command)


def run_to_result(transport: Transport, metadata: LedgerMetadata, master_key: bytes, operation: Operation) -> Any:
    """Run an operation that delivers nothing but its result; its own deadline bounds the wait."""
    transport.check_open()
    transport.check_may_wait()
    finished: Future[Any] = Future()

    def on_command(command: Command) -> None:
        if isinstance(command, Finish):
            if command.error is not None:
                finished.set_exception(command.error)
            else:
                finished.set_result(command.result)

    runner = Runner(transport, metadata, master_key, operation, on_command)
    transport.loop.call_soon_threadsafe(runner.post, Start())
    return finished.result()
