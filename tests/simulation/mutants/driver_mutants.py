"""Bugs of what is between the state machines and the sockets: each takes a guard out of a shipped driver, or adds what a hasty
author would.

Only whole runs (tests/simulation/whole) and real processes go through this code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from bk_spark.client.driver.framed_adds import AddConnection, FramedAdds
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.client.driver.runner import Runner
from bk_spark.client.ledger.write_items import Token
from bk_spark.client.ledger.write_queue import WriteQueue
from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.state_machine import AddAnswered, Append, Confirm, Reject, Release
from bk_spark.errors import BookKeeperError
from bk_spark.wire import frames
from bk_spark.wire.messages import AddReply, Status
from tests.simulation.mutants.mutant import all_of


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


def adds_do_not_name_their_bookie() -> Any:
    """To be had by clients and bookies."""
    return patch.object(frames, "bookie_hash", lambda bookie_id, is_keyed: bytes(8))


def a_refused_append_is_confirmed_where_it_was_to_go() -> Any:
    original = Token.reject

    def reject(self: Any, error: BookKeeperError) -> None:
        if self.first_entry_id is None:
            original(self, error)
        else:
            self.confirm(self.first_entry_id)

    return patch.object(Token, "reject", reject)


def nobody_is_told_of_room() -> Any:
    return patch.object(WriteQueue, "_let_in", lambda self: None)


def what_is_stuck_keeps_out_what_would_free_it() -> Any:
    """The window is full of entries beyond a gap, and the entry that fills it waits for room."""

    def has_room(self: Any, nbytes: int, first: int | None) -> bool:
        return self._broken is not None or self._held_bytes == 0 or self._held_bytes + nbytes <= self._window_bytes

    return patch.object(WriteQueue, "_has_room", has_room)


def reconnects_resend_to_the_wrong_bookie() -> Any:
    """What was not answered when a connection broke goes over the next one, and that is opened to another bookie."""
    everywhere: list[Any] = []
    unanswered: dict[QueuedAdd, Any] = {}
    begin, send, opened = FramedAdds.__init__, FramedAdds._send, FramedAdds._opened

    def begin_known(self: Any, open_connection: Any, doubted: Any) -> None:
        begin(self, open_connection, lambda: None)
        everywhere.append(open_connection)

    def send_kept(self: Any, queued: QueuedAdd) -> None:
        if queued.request is not None:
            unanswered[queued] = queued.request
        send(self, queued)

    def ended(self: Any, connection: AddConnection, reason: str) -> None:
        if connection is not self._connection:
            return
        self._out.clear()
        waiting, self._waiting = list(self._waiting.values()), {}
        for queued in waiting:
            queued.request = unanswered.get(queued)
        self._queue.extendleft(reversed(waiting))
        if self._queue and (self._sender is None or self._sender.done()):
            self._sender = self._loop.create_task(self._run())

    async def opened_elsewhere(self: Any) -> AddConnection:
        others = [one for one in everywhere if one != self._open]
        if self._connection is None or not others:
            return await opened(self)
        with patch.object(self, "_open", others[-1]):
            return await opened(self)

    return all_of(
        adds_do_not_name_their_bookie(),
        patch.object(FramedAdds, "__init__", begin_known),
        patch.object(FramedAdds, "_send", send_kept),
        patch.object(FramedAdds, "_ended", ended),
        patch.object(FramedAdds, "_opened", opened_elsewhere),
    )


def duplicates_are_taken_as_new_adds() -> Any:
    """What a broken connection left without an answer is appended once more, behind what was appended since."""
    append, answered, take_commands = AddEntries._append, AddEntries._answered, AddEntries.take_commands

    def append_known(self: Any, event: Append, now_ms: int) -> None:
        vars(self).setdefault("appended", {})[id(event.token)] = event
        append(self, event, now_ms)

    def answered_anew(self: Any, event: AddAnswered, now_ms: int) -> None:
        request = self._pending._requests.get(event.request_id)
        if request is not None and event.status is Status.UNKNOWN and self.error is None and not self._is_recovery:
            for token, _ in request.batch.appends:
                first = vars(self)["appended"].pop(id(token), None)
                if first is not None:
                    append(self, Append(_copied(first.payloads), _Again()), now_ms)
        answered(self, event, now_ms)

    def commands(self: Any) -> Any:
        taken = take_commands(self)
        own = (Confirm, Reject, Release)
        return [one for one in taken if not (isinstance(one, own) and isinstance(one.token, _Again))]

    return all_of(
        patch.object(AddEntries, "_append", append_known),
        patch.object(AddEntries, "_answered", answered_anew),
        patch.object(AddEntries, "take_commands", commands),
    )


class _Again:
    """The token of what nobody asked for."""


def _copied(payloads: pa.BinaryArray) -> pa.BinaryArray:
    return pa.array(payloads.to_pylist(), payloads.type)


DRIVER_MUTANTS = {
    answers_go_to_the_newest_add: 14,
    a_broken_connection_counts_as_an_ack: 0,
    a_fenced_add_counts_as_an_ack: 5,
    a_lost_reply_of_the_store_counts_as_written: 22,
    a_read_that_breaks_off_denies_its_entry: 3,
    entries_of_a_read_are_dropped: 1,
    deadlines_are_not_kept: 2,
    commands_are_carried_out_backwards: 101,
    an_append_that_failed_is_confirmed: 3,
    reconnects_resend_to_the_wrong_bookie: 9,
    duplicates_are_taken_as_new_adds: 10,
    a_refused_append_is_confirmed_where_it_was_to_go: 13,
    nobody_is_told_of_room: 0,
    what_is_stuck_keeps_out_what_would_free_it: 65,
}
"""Each with the first seed from 0 on that caught it when it was measured. A test begins there."""
