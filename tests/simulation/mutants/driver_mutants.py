"""Bugs of what is between the state machines and the sockets: each takes a guard out of a shipped driver.

Only whole runs (tests/simulation/whole) go through this code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from bk_spark.client.driver.framed_adds import FramedAdds
from bk_spark.client.driver.runner import Runner
from bk_spark.client.ledger.write_queue import WriteQueue
from bk_spark.client.protocol import state_machine as sm
from bk_spark.wire.messages import AddReply, Status


def answers_go_to_the_newest_add() -> Any:
    def take(self: Any, reply: AddReply) -> None:
        if self._waiting:
            _, queued = self._waiting.popitem()
            queued.on_reply(replace(reply, request_id=queued.request_id))

    return patch.object(FramedAdds, "_take_reply", take)


def a_broken_connection_counts_as_an_ack() -> Any:
    def answer(self: Any, problem: str) -> None:
        waiting, self._waiting = list(self._waiting.values()), {}
        for queued in waiting:
            queued.on_reply(AddReply(queued.request_id, Status.OK))

    return patch.object(FramedAdds, "_answer_sent", answer)


def a_fenced_add_counts_as_an_ack() -> Any:
    original = Runner._add_answered

    def answered(self: Any, reply: AddReply) -> None:
        original(self, replace(reply, status=Status.OK) if reply.status is Status.FENCED else reply)

    return patch.object(Runner, "_add_answered", answered)


def a_lost_reply_of_the_store_counts_as_written() -> Any:
    return _posts(lambda event: sm.MetadataWritten(1) if isinstance(event, sm.MetadataUnknown) else event)


def a_read_that_breaks_off_denies_its_entry() -> Any:
    def changed(event: sm.Event) -> sm.Event:
        if isinstance(event, sm.ReadEnded) and event.status is Status.UNKNOWN:
            return replace(event, status=Status.NO_SUCH_LEDGER)
        return event

    return _posts(changed)


def entries_of_a_read_are_dropped() -> Any:
    return _posts(lambda event: sm.Tick() if isinstance(event, sm.ReadArrived) else event)


def deadlines_are_not_kept() -> Any:
    return patch.object(Runner, "_keep_deadline", lambda self: None)


def commands_are_carried_out_backwards() -> Any:
    original = Runner.post

    def post(self: Any, event: sm.Event) -> None:
        take = self._machine.take_commands
        with patch.object(self._machine, "take_commands", lambda: take()[::-1]):
            original(self, event)

    return patch.object(Runner, "post", post)


def an_append_that_failed_is_confirmed() -> Any:
    original = WriteQueue._on_command

    def on_command(self: Any, command: sm.Command) -> None:
        if isinstance(command, sm.Reject) and self._in_flight:
            command = sm.Confirm(command.token, 0)
        original(self, command)

    return patch.object(WriteQueue, "_on_command", on_command)


def _posts(changed: Any) -> Any:
    original = Runner.post
    return patch.object(Runner, "post", lambda self, event: original(self, changed(event)))


DRIVER_MUTANTS = {
    answers_go_to_the_newest_add: 3,
    a_broken_connection_counts_as_an_ack: 8,
    a_fenced_add_counts_as_an_ack: 2,
    a_lost_reply_of_the_store_counts_as_written: 0,
    a_read_that_breaks_off_denies_its_entry: 2,
    entries_of_a_read_are_dropped: 0,
    deadlines_are_not_kept: 0,
    commands_are_carried_out_backwards: 30,
    an_append_that_failed_is_confirmed: 2,
}
"""Each with the first seed from 0 on that caught it when it was measured. A test begins there."""
