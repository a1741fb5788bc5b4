"""Runs a process of ours that writes down what it does: ``python -m tests.specification.traced FILE MODULE ARGUMENTS…``.

Each line of FILE is the time of the monotonic clock, which all processes of the machine share, a ledger's id, and an action
of the protocol (actions.py). What a bookie answers is written before it leaves, what a client hears once it has come: in the
order of the times nothing is heard that was not said. A line is one write, so a killed process leaves all that it did.
"""

from __future__ import annotations

import itertools
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

from bk_spark.bookie.bookie import Bookie
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.runner import Runner
from bk_spark.client.protocol.state_machine import Command, StateMachine
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.wire import messages
from bk_spark.wire.messages import AddRequest, DeleteLedgerRequest, FenceRequest, ReadBatch, StagedReply, StagedRequest, Status
from tests.specification.actions import Action, AnswersAdd, AnswersFence, AnswersRead, DeletesLedger, Ids, Starts, encode
from tests.specification.observers import ids_of, watched

DENIALS = Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER

ALL_LEDGERS = -1
"""In place of a ledger's id: of a bookie as a whole."""


def traced(file: Path, words: list[str]) -> list[str]:
    """The command ``python … -m MODULE ARGUMENTS…``, with what it does written to ``file``."""
    at = words.index("-m")
    return [*words[: at + 1], "tests.specification.traced", str(file), *words[at + 1 :]]


def patches(file: Path) -> list[Any]:
    output = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    numbers = itertools.count(1)

    def tell(ledger_id: int, action: Action, at_ns: int | None = None) -> None:
        os.write(output, f"{at_ns or time.monotonic_ns()} {ledger_id} {encode(action)}\n".encode())

    begin = Runner.__init__

    def begin_traced(
        self: Runner,
        context: ClientContext,
        metadata: LedgerMetadata,
        machine: StateMachine,
        on_command: Callable[[Command], None],
    ) -> None:
        who = f"{file.stem}/{os.getpid()}/{next(numbers)}"
        begin(self, context, metadata, watched(who, machine, partial(tell, metadata.ledger_id)), on_command)

    return [mock.patch.object(Runner, "__init__", begin_traced), *_of_bookies(tell)]


class Tell(Protocol):
    """``at_ns``: when it was done, if not now."""

    def __call__(self, ledger_id: int, action: Action, at_ns: int | None = None) -> None: ...


def _of_bookies(tell: Tell) -> list[Any]:
    opened, stage, take_early, sync = Bookie.open, Bookie.stage, Bookie.take_early, Bookie.sync
    read, read_last_add_confirmed = Bookie.read, Bookie.read_last_add_confirmed

    def open_traced(*arguments: Any, **named: Any) -> Bookie:
        bookie = opened(*arguments, **named)
        tell(ALL_LEDGERS, Starts(bookie.bookie_id, bookie.limbo is not None))
        return bookie

    def stage_traced(self: Bookie, request: StagedRequest, reply_to: object) -> None:
        stage(self, request, (request, reply_to))

    def told(self: Bookie, replies: list[tuple[object, StagedReply]]) -> list[tuple[object, StagedReply]]:
        plain = []
        for owed, reply in replies:
            assert isinstance(owed, tuple)
            request, reply_to = owed
            plain.append((reply_to, reply))
            if isinstance(request, AddRequest):
                of_add = ids_of(request.batch), request.recovery, reply.status.name, not request.deferred_sync
                tell(request.ledger_id, AnswersAdd(self.bookie_id, *of_add))
            elif isinstance(request, FenceRequest):
                tell(request.ledger_id, AnswersFence(self.bookie_id, reply.status.name))
            elif isinstance(request, DeleteLedgerRequest) and reply.status is Status.OK:
                tell(request.ledger_id, DeletesLedger(self.bookie_id))
        return plain

    def read_traced(self: Bookie, request: messages.ReadRequest) -> Iterator[ReadBatch | messages.ReadEnd]:
        """What it denies it had not when the read began, and perhaps has before the denial leaves."""
        given: list[Ids] = []
        begun_ns = time.monotonic_ns()
        for reply in read(self, request):
            if isinstance(reply, ReadBatch):
                given.append(ids_of(reply.batch))
            else:
                denies = reply.status in DENIALS
                if denies:
                    tell(request.ledger_id, AnswersRead(self.bookie_id, (), reply.status.name, reply.next_entry_id), begun_ns)
                status = Status.OK if denies else reply.status
                tell(request.ledger_id, AnswersRead(self.bookie_id, tuple(given), status.name, reply.next_entry_id))
            yield reply

    def read_lac_traced(self: Bookie, request: messages.LastAddConfirmedRequest) -> messages.LastAddConfirmedReply:
        begun_ns = time.monotonic_ns()
        reply = read_last_add_confirmed(self, request)
        if reply.status is Status.NO_SUCH_LEDGER:
            tell(request.ledger_id, AnswersRead(self.bookie_id, (), reply.status.name, 0), begun_ns)
        return reply

    return [
        mock.patch.object(Bookie, "open", open_traced),
        mock.patch.object(Bookie, "stage", stage_traced),
        mock.patch.object(Bookie, "take_early", lambda self: told(self, take_early(self))),
        mock.patch.object(Bookie, "sync", lambda self: told(self, sync(self))),
        mock.patch.object(Bookie, "read", read_traced),
        mock.patch.object(Bookie, "read_last_add_confirmed", read_lac_traced),
    ]


def main(file: str, module: str, *arguments: str) -> None:
    for patch in patches(Path(file)):
        patch.start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
