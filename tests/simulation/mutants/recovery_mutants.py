"""Bugs of recovery: its fences, reads, write-backs and close.

Each takes one guard out of the shipped code for as long as its context lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from bk_spark.client.protocol import recover_ledger, recovery_fencing
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.recover_ledger import RecoverLedger
from bk_spark.client.protocol.recovery_fencing import RecoveryFencing
from bk_spark.client.protocol.recovery_reads import RecoveryReads
from bk_spark.client.protocol.recovery_writes import RecoveryWrites
from bk_spark.client.protocol.state_machine import ReadEnded
from bk_spark.client.protocol.writer import writer_ensemble
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.metadata.ledger_metadata import LedgerState
from bk_spark.wire.messages import Status
from tests.simulation.mutants.mutant import all_of

# --- recovery: fencing and reads


def reads_do_not_fence() -> Any:
    original = RecoveryReads._request
    return patch.object(RecoveryReads, "_request", lambda *args: replace(original(*args), fence=False))


def _negatives(count: Callable[[Any], int]) -> Any:
    """``count`` gives, from the metadata, how many denials make an entry absent."""
    original = RecoverLedger._begin_reads

    def begin(self: Any, task: Any, now_ms: int) -> None:
        is_measuring = task.last is not None
        original(self, task if is_measuring else replace(task, negatives=count(self._update.metadata)), now_ms)

    return patch.object(RecoverLedger, "_begin_reads", begin)


def negatives_at_ack_quorum() -> Any:
    return _negatives(lambda metadata: metadata.ack_quorum)


def one_negative_is_enough() -> Any:
    return _negatives(lambda metadata: 1)


def unknown_is_negative() -> Any:
    original = RecoveryReads._denied_by

    def denied(self: Any, slot: int, event: ReadEnded) -> range:
        if event.status in (Status.UNKNOWN, Status.IO_ERROR, Status.DAMAGED):
            about = self._slots[slot].asked.start if event.entry_id is None else event.entry_id
            event = replace(event, status=Status.NO_SUCH_ENTRY, entry_id=about)
        return original(self, slot, event)

    return patch.object(RecoveryReads, "_denied_by", denied)


def reads_follow_the_changed_ensemble() -> Any:
    original = RecoverLedger._read_on

    def read_on(self: Any, reads: Any, writes: Any, now_ms: int) -> None:
        reads._task = replace(reads._task, fragment=writes.metadata.last_fragment)
        original(self, reads, writes, now_ms)

    return patch.object(RecoverLedger, "_read_on", read_on)


def fence_coverage_at_ack_quorum() -> Any:
    def covered(known: frozenset[int], ensemble_size: int, write_quorum: int, ack_quorum: int) -> bool:
        return len(known) >= ack_quorum

    return patch.object(recovery_fencing, "is_covered", covered)


def fence_coverage_from_the_write_quorum() -> Any:
    def covered(known: frozenset[int], ensemble_size: int, write_quorum: int, ack_quorum: int) -> bool:
        return len(known) >= write_quorum - ack_quorum + 1

    return patch.object(recovery_fencing, "is_covered", covered)


def recovery_fences_nobody_first() -> Any:
    """No fencing phase; the reads still fence."""
    return patch.object(recovery_fencing, "is_covered", lambda *args: True)


def recovery_starts_at_the_beginning() -> Any:
    original = RecoveryFencing.__init__

    def init(self: Any, metadata: Any, asking: Any) -> None:
        original(self, metadata, asking)
        self.floor = NO_ENTRY

    return patch.object(RecoveryFencing, "__init__", init)


def recovery_is_not_marked() -> Any:
    """The closing write then finds the ledger open."""
    closing = recover_ledger._End.__call__

    def close(self: Any, current: Any) -> Any:
        is_open = current.state is LedgerState.OPEN
        return closing(self, replace(current, state=LedgerState.IN_RECOVERY) if is_open else current)

    return all_of(
        patch.object(recover_ledger, "_in_recovery", lambda current: current),
        patch.object(recover_ledger._End, "__call__", close),
    )


def recovery_closes_over_what_has_changed() -> Any:
    """The closing write is tried again on whatever it finds, as long as that is not closed."""
    return patch.object(recover_ledger._End, "_has_same_tail", lambda self, current: True)


# --- recovery: write-backs and the close


@contextmanager
def recovery_publishes_its_ensembles() -> Iterator[None]:
    tail, answered, close = writer_ensemble._Tail.__call__, RecoverLedger._metadata_answered, RecoverLedger._close
    for_recovery = AddEntries.for_recovery.__func__  # type: ignore[attr-defined]

    def metadata_answered(self: Any, event: Any, now_ms: int) -> None:
        if self._writes is not None and not self._is_closing:
            adder = self._writes._adder
            adder._ensemble.version = max(adder._ensemble.version, self._update.version)
            self._writes.handle(event, now_ms)
        else:
            answered(self, event, now_ms)

    def begin(cls: Any, /, metadata: Any, limits: Any, numbers: Any, **where: Any) -> AddEntries:
        writer: AddEntries = for_recovery(cls, metadata, limits, numbers, **where)
        writer._ensemble.is_local = False
        writer._ensemble.version = 1
        return writer

    def unmarked(self: Any, current: Any) -> Any:
        if current.state is not LedgerState.IN_RECOVERY:
            return tail(self, current)
        return replace(tail(self, replace(current, state=LedgerState.OPEN)), state=LedgerState.IN_RECOVERY)

    def close_as_published(self: Any, writes: Any, now_ms: int) -> None:
        self._update.metadata, self._update.version = writes.metadata, writes._adder._ensemble.version
        close(self, writes, now_ms)

    with (
        patch.object(writer_ensemble._Tail, "__call__", unmarked),
        patch.object(RecoverLedger, "_metadata_answered", metadata_answered),
        patch.object(AddEntries, "for_recovery", classmethod(begin)),
        patch.object(RecoverLedger, "_close", close_as_published),
    ):
        yield


def recovery_writes_carry_a_growing_lac() -> Any:
    original = AddEntries._push

    def push(self: Any, event: Any, now_ms: int) -> None:
        if self._frozen_lac is not None:
            self._frozen_lac = self.last_add_confirmed
        original(self, event, now_ms)

    return patch.object(AddEntries, "_push", push)


def recovery_does_not_wait_for_its_writes() -> Any:
    return all_of(
        patch.object(RecoveryWrites, "is_done", property(lambda self: True)),
        patch.object(RecoveryWrites, "is_durable", property(lambda self: True)),
        patch.object(RecoveryWrites, "confirmed", property(lambda self: self._adder.last_add_pushed)),
    )
