"""Running a state machine that delivers nothing but its result, from a coroutine or from an application's thread."""

from __future__ import annotations

from typing import Any

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.runner import Runner
from bk_spark.client.protocol.state_machine import Command, Finish, Start, StateMachine
from bk_spark.metadata.ledger_metadata import LedgerMetadata


async def run_state_machine(context: ClientContext, metadata: LedgerMetadata, machine: StateMachine) -> Any:
    """The result of the state machine; raises its error. Its own deadlines bound the wait. Runs on the client's event loop.

    If the coroutine is cancelled the state machine stops where it is: what it sent may still take effect.
    """
    context.check_open()
    finished = context.loop.create_future()

    def on_command(command: Command) -> None:
        if isinstance(command, Finish) and not finished.done():
            if command.error is not None:
                finished.set_exception(command.error)
            else:
                finished.set_result(command.result)

    runner = Runner(context, metadata, machine, on_command)
    try:
        runner.post(Start())
        return await finished
    finally:
        runner.stop()


async def run_writing(context: ClientContext, metadata: LedgerMetadata, machine: StateMachine) -> Any:
    """As ``run_state_machine``, for one that fences the ledger or adds to it: of a keyed ledger it derives the key for that.

    Raises what ``LogSecrets.writable`` raises, too.
    """
    if metadata.is_keyed:
        metadata = await context.blocking(lambda: context.secrets.writable(metadata))
    return await run_state_machine(context, metadata, machine)


def run_state_machine_and_wait(context: ClientContext, metadata: LedgerMetadata, machine: StateMachine) -> Any:
    """As ``run_state_machine``, from another thread. Raises ConfigError on the event loop's own thread."""
    context.check_may_wait()
    return context.run(run_state_machine(context, metadata, machine))
