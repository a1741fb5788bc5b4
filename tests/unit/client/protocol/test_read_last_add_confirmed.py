"""How far an open ledger is confirmed: the question to a quorum."""

from __future__ import annotations

import dataclasses

import pytest

from bk_spark.client.protocol.last_add_confirmed import ReadLastAddConfirmed
from bk_spark.client.protocol.state_machine import Event, Finish, LastAddConfirmedAnswered, Start, Tick
from bk_spark.config import LedgerOptions
from bk_spark.errors import BookieUnavailableError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, new_ledger
from bk_spark.wire.messages import Status

Answer = tuple[Status, int]


def _metadata(e: int = 3, w: int = 3, a: int = 2) -> LedgerMetadata:
    options = LedgerOptions(ensemble_size=e, write_quorum=w, ack_quorum=a)
    return new_ledger(7, options, tuple(f"b{slot}" for slot in range(e)), created_ms=0, creator_token=0)


def _ask(
    metadata: LedgerMetadata, answers: dict[int, Answer], *, later: Event | None = None, quorum: bool = True
) -> Finish | None:
    machine = ReadLastAddConfirmed(metadata, timeout_ms=1000, quorum=quorum)
    machine.handle(Start(), 0)
    for slot, (status, entry_id) in answers.items():
        machine.handle(LastAddConfirmedAnswered(slot, status, entry_id), 10)
    if later is not None:
        machine.handle(later, 1000)
    return next((c for c in machine.take_commands() if isinstance(c, Finish)), None)


def test_the_highest_answer_of_a_quorum_counts() -> None:
    finish = _ask(_metadata(), {0: (Status.OK, 4), 2: (Status.OK, 9)})
    assert finish == Finish(result=9)


def test_one_answer_of_three_is_not_enough_with_an_ack_quorum_of_two() -> None:
    """The two others may be the ack quorum of later entries. Ref: protocol rule 3."""
    assert _ask(_metadata(), {1: (Status.OK, 9)}) is None


def test_a_bookie_that_never_saw_the_ledger_is_known_and_adds_nothing() -> None:
    assert _ask(_metadata(), {0: (Status.NO_SUCH_LEDGER, -1), 1: (Status.OK, 3)}) == Finish(result=3)


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.IO_ERROR, Status.DAMAGED, Status.WRONG_BOOKIE])
def test_an_unknown_answer_does_not_count_and_its_value_is_not_believed(status: Status) -> None:
    finish = _ask(_metadata(), {0: (status, 99), 1: (Status.OK, 3), 2: (status, 99)})
    assert finish is not None
    assert isinstance(finish.error, BookieUnavailableError)
    assert _ask(_metadata(), {0: (status, 99), 1: (Status.OK, 3), 2: (Status.OK, 2)}) == Finish(result=3)


def test_silence_ends_in_an_error_that_names_who_was_silent() -> None:
    finish = _ask(_metadata(), {1: (Status.OK, 3)}, later=Tick())
    assert finish is not None
    assert "b0: no answer for 1 s; b2: no answer for 1 s" in str(finish.error)


def test_a_bookie_with_a_foreign_key_is_unknown() -> None:
    """Protocol rule 24."""
    assert _ask(_metadata(), {0: (Status.OK, 3), 1: (Status.UNAUTHORIZED, -1), 2: (Status.OK, 2)}) == Finish(result=3)
    finish = _ask(_metadata(), {0: (Status.OK, 3), 1: (Status.UNAUTHORIZED, -1), 2: (Status.UNAUTHORIZED, -1)})
    assert finish is not None
    assert isinstance(finish.error, BookieUnavailableError)


def test_the_answer_is_never_below_the_start_of_the_last_fragment() -> None:
    """A fragment starts only after everything before it is confirmed. Ref: protocol rule 6."""
    assert _ask(_in_two_fragments(), {0: (Status.OK, -1), 1: (Status.NO_SUCH_LEDGER, -1)}) == Finish(result=11)


def _in_two_fragments() -> LedgerMetadata:
    return dataclasses.replace(_metadata(), fragments=(Fragment(0, ("b0", "b1", "b2")), Fragment(12, ("b3", "b4", "b5"))))


@pytest.mark.parametrize(
    ("shape", "unknown", "is_enough"),
    [
        ((3, 3, 2), {0}, True),
        ((3, 3, 2), {0, 1}, False),
        ((3, 3, 3), {0, 1}, True),
        ((3, 3, 1), {0}, False),
        ((5, 3, 2), {0, 1}, False),
        ((5, 3, 2), {0}, True),
        ((6, 3, 2), {0, 3}, True),
        ((6, 3, 2), {0, 2}, False),
    ],
)
def test_it_counts_once_every_write_set_has_fewer_unknown_bookies_than_its_ack_quorum(
    shape: tuple[int, int, int], unknown: set[int], is_enough: bool
) -> None:
    """With striping, two unknown bookies may share no write set. Ref: protocol rule 3."""
    answers: dict[int, Answer] = {s: (Status.OK, s) for s in range(shape[0]) if s not in unknown}
    finish = _ask(_metadata(*shape), answers)
    assert (finish is not None) == is_enough


def test_without_a_quorum_the_first_bookie_that_holds_the_ledger_decides() -> None:
    assert _ask(_metadata(), {1: (Status.OK, 9)}, quorum=False) == Finish(result=9)
    assert _ask(_metadata(), {0: (Status.UNKNOWN, 99), 2: (Status.OK, 4)}, quorum=False) == Finish(result=4)
    assert _ask(_in_two_fragments(), {2: (Status.OK, 4)}, quorum=False) == Finish(result=11)


def test_without_a_quorum_a_bookie_that_holds_nothing_waits_for_the_others() -> None:
    nothing = (Status.NO_SUCH_LEDGER, -1)
    assert _ask(_metadata(), {0: nothing, 1: nothing}, quorum=False) is None
    assert _ask(_metadata(), {0: nothing, 1: (Status.OK, 3)}, quorum=False) == Finish(result=3)
    assert _ask(_metadata(), {0: nothing, 1: nothing, 2: nothing}, quorum=False) == Finish(result=-1)
    assert _ask(_in_two_fragments(), {0: nothing, 1: nothing, 2: nothing}, quorum=False) == Finish(result=11)


def test_without_a_quorum_any_answer_is_enough_when_no_other_comes() -> None:
    answers: dict[int, Answer] = {0: (Status.NO_SUCH_LEDGER, -1), 1: (Status.IO_ERROR, 99)}
    assert _ask(_metadata(), answers, quorum=False, later=Tick()) == Finish(result=-1)
    assert _ask(_metadata(), {**answers, 2: (Status.UNKNOWN, -1)}, quorum=False) == Finish(result=-1)


def test_without_a_quorum_it_fails_only_if_nobody_answered() -> None:
    for answers in (dict.fromkeys(range(3), (Status.UNKNOWN, 99)), {0: (Status.UNKNOWN, 99)}):
        finish = _ask(_metadata(), answers, quorum=False, later=Tick())
        assert finish is not None
        assert isinstance(finish.error, BookieUnavailableError)
