"""A writer's state machine with a small metadata store and a list of spare bookies, driven by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.limits import AddLimits
from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    Append,
    ChooseReplacements,
    Command,
    Confirm,
    Event,
    MarkAnswered,
    MarkUnderReplicated,
    MetadataRead,
    MetadataUnknown,
    MetadataWritten,
    ReadMetadata,
    Reject,
    Release,
    ReplacementsChosen,
    SendAdd,
    Tick,
    WriteMetadata,
)
from bk_spark.config import LedgerOptions
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.metadata.ledger_metadata import LedgerMetadata, new_ledger
from bk_spark.wire.messages import Status

TIMEOUT_MS = 1000
QUORUM_TIMEOUT_MS = 3000
RETRY_MS = 500
EXPLICIT_LAC_MS = 200_000
NOISE = 100
"""Calls that a first use or a collection of garbage may add; what grows with 1,000 batches adds 1,000."""


def limits(**changed: int | bool) -> AddLimits:
    """Explicit LACs stay out of the way unless a test asks for them."""
    usual: dict[str, int | bool] = {
        "add_timeout_ms": TIMEOUT_MS,
        "add_quorum_timeout_ms": QUORUM_TIMEOUT_MS,
        "delay_ensemble_change": False,
        "max_ensemble_changes": 100,
        "replacement_retry_ms": RETRY_MS,
        "explicit_lac_ms": EXPLICIT_LAC_MS,
    }
    return AddLimits(**{**usual, **changed})


@dataclass
class Writer:
    """Runs the state machine and keeps what it wanted. Spares are given out in their order, the store answers when told."""

    e: int = 3
    w: int = 3
    a: int = 2
    spares: list[str] = field(default_factory=list)
    limits: AddLimits = field(default_factory=limits)
    deferred_sync: bool = False
    now_ms: int = 0
    log: list[Command] = field(default_factory=list)
    choosing: list[ChooseReplacements] = field(default_factory=list)
    chooses_at_once: bool = True
    marks: list[tuple[str, ...]] = field(default_factory=list)
    """The marks of under-replication that the machine asked for."""
    marks_wait: bool = False
    """They are answered by the test."""
    marks_fail: int = 0
    """So many of the next ones are refused."""

    def __post_init__(self) -> None:
        options = LedgerOptions(ensemble_size=self.e, write_quorum=self.w, ack_quorum=self.a)
        ensemble = tuple(f"b{slot}" for slot in range(self.e))
        self.stored: LedgerMetadata = new_ledger(7, options, ensemble, created_ms=0, creator_token=1)
        self.stored_version = 0
        self.machine = AddEntries(self.stored, 0, self.limits, deferred_sync=self.deferred_sync)

    def do(self, event: Event) -> list[Command]:
        self.machine.handle(event, self.now_ms)
        commands = self.machine.take_commands()
        self.log += commands
        self.choosing += [c for c in commands if isinstance(c, ChooseReplacements)]
        marks = [c for c in commands if isinstance(c, MarkUnderReplicated) and not self.marks_wait]
        if self.choosing and self.chooses_at_once:
            commands += self.choose()
        for mark in marks:
            commands += self.answer_mark(mark)
        return commands

    def answer_mark(self, mark: MarkUnderReplicated) -> list[Command]:
        self.marks.append(mark.bookies)
        self.marks_fail -= 1
        return self.do(MarkAnswered(MetadataUnavailableError("zk://x/y", "no answer") if self.marks_fail >= 0 else None))

    def choose(self) -> list[Command]:
        """Answer the oldest question for replacements with the spares that are not excluded."""
        question = self.choosing.pop(0)
        free = [bookie for bookie in self.spares if bookie not in question.excluded and bookie not in question.ensemble]
        chosen = tuple(zip(question.slots, free, strict=False))
        self.spares = [bookie for bookie in self.spares if bookie not in dict(chosen).values()]
        return self.do(ReplacementsChosen(question.request_id, chosen))

    def tick(self, after_ms: int) -> list[Command]:
        self.now_ms += after_ms
        return self.do(Tick())

    def append(self, *payloads: bytes, token: object = None, at: int | None = None) -> dict[str, SendAdd]:
        """Append and give back what each bookie was sent."""
        return sends(self.do(Append(pa.array(payloads, pa.binary()), token, at)))

    def ack(self, *sent: SendAdd, status: Status = Status.OK, boot: int = 0) -> list[Command]:
        return [c for add in sent for c in self.do(AddAnswered(add.request_id, status, "", boot))]

    def fail(self, sent: SendAdd, status: Status = Status.IO_ERROR) -> list[Command]:
        return self.ack(sent, status=status)

    def written(self) -> WriteMetadata:
        """The last write that the machine asked for."""
        return [c for c in self.log if isinstance(c, WriteMetadata)][-1]

    def answer_write(self) -> list[Command]:
        """The store carries out the last write as a compare-and-set, and says what came of it."""
        write = self.written()
        if write.expected_version != self.stored_version:
            return self.do(MetadataRead(self.stored, self.stored_version))
        self.stored, self.stored_version = write.metadata, self.stored_version + 1
        return self.do(MetadataWritten(self.stored_version))

    def lose_reply(self, *, applied: bool) -> list[Command]:
        """The reply to the last write is lost; the machine reads again and is answered."""
        if applied:
            self.stored, self.stored_version = self.written().metadata, self.stored_version + 1
        commands = self.do(MetadataUnknown(MetadataUnavailableError("zk://x/y", "lost")))
        assert ReadMetadata() in commands
        return self.do(MetadataRead(self.stored, self.stored_version))

    def store(self, metadata: LedgerMetadata) -> None:
        """Somebody else changes the metadata."""
        self.stored, self.stored_version = metadata, self.stored_version + 1

    def fragments(self) -> list[tuple[int, tuple[str, ...]]]:
        return [(one.first_entry_id, one.ensemble) for one in self.stored.fragments]

    def confirmed(self) -> list[object]:
        return [c.token for c in self.log if isinstance(c, Confirm)]

    def rejected(self) -> dict[object, BookKeeperError]:
        return {c.token: c.error for c in self.log if isinstance(c, Reject)}

    def released(self) -> list[object]:
        return [c.token for c in self.log if isinstance(c, Release)]


def calls(work: Callable[[], object]) -> int:
    """How many functions are called: what work costs, the same in every run but for NOISE."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def sends(commands: list[Command]) -> dict[str, SendAdd]:
    """The last add to each bookie."""
    return {c.bookie_id: c for c in commands if isinstance(c, SendAdd)}
