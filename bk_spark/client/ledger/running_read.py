"""A read under way: its state machine, and where what it delivers goes."""

from __future__ import annotations

from collections.abc import Callable

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.runner import Runner
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.state_machine import Command, Consumed, Deliver, Finish, Start
from bk_spark.entries.batch import EntryBatch
from bk_spark.metadata.ledger_metadata import LedgerMetadata


class RunningRead:
    """``deliver`` gets its batches in order, and its end, on the client's event loop.

    The state machine bounds what waits there: it asks for more only as batches are consumed. The wait for the next batch always
    ends, because the state machine gives up silent bookies.
    """

    def __init__(
        self,
        context: ClientContext,
        metadata: LedgerMetadata,
        machine: ReadEntries,
        deliver: Callable[[Deliver | Finish], None],
    ) -> None:
        context.check_open()
        self._loop = context.loop
        self._machine, self._started_with = machine, machine.metadata
        self._deliver = deliver
        self._runner = Runner(context, metadata, machine, self._on_command)
        self._loop.call_soon_threadsafe(self._runner.post, Start())

    def consumed(self, batch: EntryBatch) -> None:
        """The application is done with a batch."""
        self._loop.call_soon_threadsafe(self._runner.post, Consumed(batch.nbytes))

    @property
    def new_metadata(self) -> LedgerMetadata | None:
        """What the read found in place of the metadata that it began with, if anything."""
        found = self._machine.metadata
        return None if found is self._started_with else found

    def close(self) -> None:
        """Stop the read, finished or not."""
        self._loop.call_soon_threadsafe(self._runner.stop)

    def _on_command(self, command: Command) -> None:
        if isinstance(command, (Deliver, Finish)):
            self._deliver(command)
