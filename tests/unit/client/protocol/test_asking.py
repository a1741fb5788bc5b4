"""Whom a recovery asks, and when again: the two phases that ask a whole ensemble until enough is known."""

from __future__ import annotations

import itertools

import pytest

from bk_spark.client.protocol.asking import FIRST_PAUSE_MS, Asking
from bk_spark.client.protocol.recovery_fencing import RecoveryFencing
from bk_spark.client.protocol.recovery_reads import ReadTask, RecoveryReads
from bk_spark.client.protocol.state_machine import (
    CancelRead,
    Command,
    LastAddConfirmedAnswered,
    ReadEnded,
    SendRead,
    SendReadLastAddConfirmed,
)
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.reader_model import LEDGER, ledger
from tests.unit.client.protocol.recovery_model import PATIENCE_MS, TIMEOUT_MS, UNKNOWN, limits


def _asking(size: int) -> Asking:
    return Asking(LEDGER, tuple(f"b{slot}" for slot in range(size)), limits(), itertools.count(1), 0)


def _reads(e: int, w: int) -> RecoveryReads:
    metadata = ledger(e, w, 1)
    return RecoveryReads(metadata, ReadTask(metadata.last_fragment, 0, None, 1), limits(), _asking(e))


def _asked(commands: list[Command]) -> dict[str, int]:
    """Each bookie that is asked, and the id of its request."""
    return {one.bookie_id: one.request_id for one in commands if isinstance(one, SendRead | SendReadLastAddConfirmed)}


def _fence_answer(request_id: int, status: Status) -> LastAddConfirmedAnswered:
    return LastAddConfirmedAnswered(request_id, status, NO_ENTRY, is_fenced=status is Status.OK)


@pytest.mark.parametrize("status", UNKNOWN)
def test_a_bookie_that_refuses_a_fence_is_asked_again_after_a_short_pause(status: Status) -> None:
    fencing = RecoveryFencing(ledger(), _asking(3))
    asked = _asked(fencing.go_on(0))
    fencing.answered(_fence_answer(asked["b0"], status), 0)
    assert fencing.go_on(FIRST_PAUSE_MS - 1) == []
    assert list(_asked(fencing.go_on(FIRST_PAUSE_MS))) == ["b0"]


def test_once_no_quorum_can_take_an_add_nobody_else_is_fenced() -> None:
    fencing = RecoveryFencing(ledger(), _asking(3))
    asked = _asked(fencing.go_on(0))
    for bookie_id, status in (("b0", Status.IO_ERROR), ("b1", Status.OK), ("b2", Status.OK)):
        fencing.answered(_fence_answer(asked[bookie_id], status), 0)
    assert fencing.is_done
    assert fencing.go_on(FIRST_PAUSE_MS) == []


def test_all_slots_are_asked_at_once_also_those_that_do_not_hold_the_first_entry() -> None:
    assert list(_asked(_reads(3, 1).go_on(0))) == ["b0", "b1", "b2"]


@pytest.mark.parametrize("status", UNKNOWN)
def test_a_bookie_whose_read_brought_nothing_is_asked_again_after_a_short_pause(status: Status) -> None:
    reads = _reads(3, 3)
    asked = _asked(reads.go_on(0))
    reads.ended(ReadEnded(asked["b0"], status, "", 0), 0)
    assert reads.go_on(FIRST_PAUSE_MS - 1) == []
    assert list(_asked(reads.go_on(FIRST_PAUSE_MS))) == ["b0"]


def test_a_bookie_that_denies_an_entry_which_is_not_its_own_has_said_nothing() -> None:
    """Its own entries stay unknown, and it is not believed to have been of use: it gets its pause."""
    reads = _reads(3, 1)
    asked = _asked(reads.go_on(0))
    reads.ended(ReadEnded(asked["b0"], Status.NO_SUCH_ENTRY, "", 1), 0)
    assert reads.go_on(0) == []
    assert list(_asked(reads.go_on(FIRST_PAUSE_MS))) == ["b0"]


def test_a_read_that_is_silent_for_too_long_is_cancelled() -> None:
    reads = _reads(3, 3)
    asked = _asked(reads.go_on(0))
    reads.ended(ReadEnded(asked["b1"], Status.IO_ERROR), 0)
    cancelled = [one.request_id for one in reads.go_on(TIMEOUT_MS) if isinstance(one, CancelRead)]
    assert cancelled == [asked["b0"], asked["b2"]]


def test_reads_that_have_found_the_end_do_not_run_out_of_patience() -> None:
    reads = _reads(3, 3)
    asked = _asked(reads.go_on(0))
    reads.ended(ReadEnded(asked["b0"], Status.NO_SUCH_ENTRY, "", 0), 0)
    assert reads.is_done
    reads.go_on(2 * PATIENCE_MS)
    assert reads.error is None
