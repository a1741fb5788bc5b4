"""Running a state machine from a coroutine on the client's event loop."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.runner import Runner
from bk_spark.client.protocol.state_machine import Command, Finish, Start, StateMachine
from bk_spark.entries.digest import master_key
from bk_spark.metadata.ledger_metadata import LedgerMetadata


def run_to_result(context: ClientContext, metadata: LedgerMetadata, master_key: bytes, machine: StateMachine) -> Any:
    """Run an operation that delivers nothing but its result; its own deadline bounds the wait."""
    context.check_open()
    context.check_may_wait()
    finished: Future[Any] = Future()

    def on_command(command: Command) -> None:
        if isinstance(command, Finish):
            if command.error is not None:
                finished.set_exception(command.error)
            else:
                finished.set_result(command.result)

    runner = Runner(context, metadata, master_key, machine, on_command)
    context.loop.call_soon_threadsafe(runner.post, Start())
    return finished.result()


async def run_operation(context: ClientContext, metadata: LedgerMetadata, machine: StateMachine) -> Any:
    """The result of an operation that delivers nothing else; raises its error. Its own deadlines bound the wait.

    If the coroutine is cancelled the operation stops where it is: what it sent may still take effect.
    """
    context.check_open()
    finished = context.loop.create_future()

    def on_command(command: Command) -> None:
        if isinstance(command, Finish) and not finished.done():
            if command.error is not None:
                finished.set_exception(command.error)
            else:
                finished.set_result(command.result)

    runner = Runner(context, metadata, master_key(metadata.password), machine, on_command)
    try:
        runner.post(Start())
        return await finished
    finally:
        runner.stop()
