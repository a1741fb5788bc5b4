"""Bugs that only a network brings out: what is done with adds whose connection broke.

Each takes a guard out of the shipped code, or adds what a hasty author would, for as long as its context lasts.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pyarrow as pa

from bk_spark.client.driver.framed_adds import AddConnection, FramedAdds
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.state_machine import AddAnswered, Append, Confirm, Reject, Release
from bk_spark.wire.messages import Status
from tests.simulation.mutants.mutant import all_of


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
