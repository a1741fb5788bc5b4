"""A bookie as one value: for the exhaustive engine, which has no time for logs and an index.

What it answers is what the shipped bookie answers; test_exhaustive.py holds one against the other. It syncs at once, and loses
nothing: what it is fast at is being in the same state again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    Event,
    LastAddConfirmedAnswered,
    ReadArrived,
    ReadEnded,
    SendAdd,
    SendRead,
    SendReadLastAddConfirmed,
)
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch
from bk_spark.wire.messages import Status

Request = SendAdd | SendRead | SendReadLastAddConfirmed


@dataclass(frozen=True, slots=True)
class ModelBookie:
    """``entries`` ascend by id; each batch holds one entry."""

    entries: tuple[EncodedBatch, ...] = ()
    last_add_confirmed: int = NO_ENTRY
    is_fenced: bool = False

    @property
    def entry_ids(self) -> set[int]:
        return {batch.header.first_entry_id for batch in self.entries}

    @property
    def is_known(self) -> bool:
        return self.is_fenced or bool(self.entries)

    def receive(self, request: Request) -> tuple[ModelBookie, tuple[Event, ...]]:
        """What it is afterwards, and its answer."""
        if isinstance(request, SendAdd):
            return self._add(request)
        after = replace(self, is_fenced=True) if request.fence else self
        if isinstance(request, SendRead):
            return after, after._read(request)
        status = Status.OK if after.is_known else Status.NO_SUCH_LEDGER
        answer = LastAddConfirmedAnswered(request.request_id, status, after.last_add_confirmed, "", after.is_fenced)
        return after, (answer,)

    def _add(self, request: SendAdd) -> tuple[ModelBookie, tuple[Event, ...]]:
        if self.is_fenced and not request.recovery:
            return self, (AddAnswered(request.request_id, Status.FENCED),)
        header = request.batch.header
        others = [one for one in self.entries if one.header.first_entry_id != header.first_entry_id]
        is_other = len(others) < len(self.entries) and request.batch not in self.entries
        if is_other and not request.recovery:  # here an id has one payload, so a recovery brings the same
            return self, (AddAnswered(request.request_id, Status.BAD_REQUEST),)
        entries = sorted([*others, request.batch], key=lambda one: one.header.first_entry_id)
        confirmed = max(self.last_add_confirmed, header.last_add_confirmed)
        after = ModelBookie(tuple(entries), confirmed, self.is_fenced)
        return after, (AddAnswered(request.request_id, Status.OK),)

    def _read(self, request: SendRead) -> tuple[Event, ...]:
        if not self.is_known:
            return (ReadEnded(request.request_id, Status.NO_SUCH_LEDGER, "", request.first),)
        stored = {batch.header.first_entry_id: batch for batch in self.entries}
        events: list[Event] = []
        for entry_id in (one for one in range(request.first, request.last + 1) if request.pattern.holds(one)):
            if entry_id not in stored:
                return (*events, ReadEnded(request.request_id, Status.NO_SUCH_ENTRY, "", entry_id))
            events.append(ReadArrived(request.request_id, stored[entry_id]))
        return (*events, ReadEnded(request.request_id, Status.OK, "", request.last + 1))
