"""The judge of traces: a ledger's life that the specification allows, and what it refuses of lives that differ in one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.specification.actions import (
    RECOVERY,
    WRITER,
    Action,
    AnswersAdd,
    AnswersFence,
    AnswersRead,
    AsksToFence,
    AsksToRead,
    Begins,
    Confirms,
    DeletesLedger,
    EndsFencing,
    GivesUp,
    HearsAdd,
    HearsEnd,
    HearsEntries,
    HearsFenced,
    Ids,
    Learns,
    Ledger,
    SendsAdd,
    Starts,
    Stores,
    WorksWith,
    Writes,
    decode,
    encode,
)
from tests.specification.judge import NotAllowedError
from tests.specification.recorded import with_stores
from tests.specification.specification import judge

FIRST, SECOND = (0, ("b1", "b2", "b3")), (1, ("b1", "b2", "b4"))
NEW, CHANGED = Ledger("OPEN", (FIRST,)), Ledger("OPEN", (FIRST, SECOND))
MARKED, ENDED = Ledger("IN_RECOVERY", (FIRST, SECOND)), Ledger("CLOSED", (FIRST, SECOND), 2)


def add(request: int, bookie: str, entry: int, lac: int) -> list[Action]:
    return [SendsAdd("w", request, bookie, Ids(entry, entry), lac, False)]


def acked(request: int, bookie: str, entry: int) -> list[Action]:
    return [AnswersAdd(bookie, Ids(entry, entry), False, "OK"), HearsAdd("w", request, "OK")]


def written_back(request: int, bookie: str, entry: int) -> list[Action]:
    said: list[Action] = [AnswersAdd(bookie, Ids(entry, entry), True, "OK"), HearsAdd("r", request, "OK")]
    return [SendsAdd("r", request, bookie, Ids(entry, entry), 1, True), *said]


def fenced(request: int, bookie: str, lac: int) -> list[Action]:
    return [AsksToFence("r", request, bookie), AnswersFence(bookie, "OK"), HearsFenced("r", request, "OK", lac, True)]


def life() -> list[Action]:
    """3/3/2. Entry 0 is confirmed; b3 fails, b4 takes its place from entry 1 on; entry 2 reaches b1 alone and is recovered."""
    return [
        Stores("w", 0, NEW),
        Begins("w", WRITER, 3, 2, NEW, 0),
        *add(1, "b1", 0, -1), *add(2, "b2", 0, -1), *add(3, "b3", 0, -1),
        *acked(1, "b1", 0), *acked(2, "b2", 0),
        Confirms("w", 0),
        *add(4, "b1", 1, 0), *add(5, "b2", 1, 0), *add(6, "b3", 1, 0),
        *acked(4, "b1", 1),
        HearsAdd("w", 3, "UNKNOWN"), GivesUp("w", 6),
        Writes("w", CHANGED, 0), Stores("w", 1, CHANGED), Learns("w", 1, CHANGED), WorksWith("w", CHANGED.fragments),
        *add(7, "b4", 1, 0), *acked(7, "b4", 1),
        Confirms("w", 1),
        *add(8, "b1", 2, 1), *add(9, "b2", 2, 1), *add(10, "b4", 2, 1),
        AnswersAdd("b1", Ids(2, 2), False, "OK"),
        Begins("r", RECOVERY, 3, 2, CHANGED, 1),
        Writes("r", MARKED, 1), Stores("r", 2, MARKED), Learns("r", 2, MARKED),
        *fenced(1, "b1", 1), *fenced(2, "b2", 0),
        EndsFencing("r", 1), AsksToRead("r", 3, "b1", Ids(2, 5), True), AsksToRead("r", 4, "b2", Ids(2, 5), True),
        AnswersRead("b1", (Ids(2, 2),), "NO_SUCH_ENTRY", 3),
        HearsEntries("r", 3, Ids(2, 2)), HearsEnd("r", 3, "NO_SUCH_ENTRY", 3),
        *written_back(5, "b1", 2), *written_back(6, "b2", 2),
        AsksToRead("r", 7, "b2", Ids(3, 5), True),
        AnswersRead("b2", (), "NO_SUCH_ENTRY", 3), HearsEnd("r", 7, "NO_SUCH_ENTRY", 3),
        Writes("r", ENDED, 2), Stores("r", 3, ENDED),
        AnswersAdd("b2", Ids(2, 2), False, "FENCED"), HearsAdd("w", 9, "FENCED"),
    ]  # fmt: skip


def test_a_ledgers_life_is_allowed_and_its_steps_are_counted() -> None:
    counts = judge(life()).counts
    assert (
        counts["ClientChangesEnsemble"]
        == counts["RecoveryClientClosesLedger"]
        == counts["ClientReceivesAddFencedResponse"]
        == 1
    )
    assert counts["ClientSendsAddEntryRequests"] == 3
    assert counts["AllCommittedEntriesReachAckQuorum"] == 1


Change = Callable[[list[Action]], list[Action]]


def without(*gone: Action) -> Change:
    def change(trace: list[Action]) -> list[Action]:
        assert all(one in trace for one in gone)
        return [one for one in trace if one not in gone]

    return change


def instead(of: Action, *others: Action) -> Change:
    def change(trace: list[Action]) -> list[Action]:
        at = trace.index(of)
        return [*trace[:at], *others, *trace[at + 1 :]]

    return change


def before(what: Action, *others: Action) -> Change:
    return instead(what, *others, what)


CLOSE = Writes("r", ENDED, 2)
REFUSED: dict[str, tuple[Change, str]] = {
    "an entry is confirmed with one ack": (without(HearsAdd("w", 2, "OK")), "the last add confirmed moves"),
    "an ack is heard that nobody gave": (without(AnswersAdd("b2", Ids(0, 0), False, "OK")), "ClientReceivesAddConfirmed"),
    "an ack comes twice and counts twice": (instead(HearsAdd("w", 2, "OK"), HearsAdd("w", 1, "OK")), "the last add confirmed"),
    "an entry is confirmed that was never sent": (instead(Confirms("w", 0), Confirms("w", 1)), "the last add confirmed moves"),
    "the new fragment begins after entries that have no quorum": (
        instead(Writes("w", CHANGED, 0), Writes("w", Ledger("OPEN", (FIRST, (2, SECOND[1]))), 0)),
        "change of the ensemble"),
    "a bookie is replaced that has answered everything": (
        instead(Writes("w", CHANGED, 0), Writes("w", Ledger("OPEN", (FIRST, (1, ("b4", "b2", "b3")))), 0)),
        "change of the ensemble"),
    "an ensemble is used that is not stored": (
        without(Stores("w", 1, CHANGED), Learns("w", 1, CHANGED)), "ClientChangesEnsemble"),
    "an ack of a replaced bookie counts": (
        instead(HearsAdd("w", 7, "OK"), AnswersAdd("b3", Ids(1, 1), False, "OK"), HearsAdd("w", 6, "OK")),
        "the last add confirmed"),
    "an add goes to a bookie outside of the ensemble": (
        before(Confirms("w", 1), *add(20, "b3", 1, 0)), "ClientResendsPendingAddOp"),
    "an add says that more is confirmed than is": (
        instead(add(8, "b1", 2, 1)[0], *add(8, "b1", 2, 2)), "ClientSendsAddEntryRequests"),
    "recovery begins without the mark": (without(Stores("r", 2, MARKED), Learns("r", 2, MARKED)), "ClientStartsRecovery"),
    "one fenced bookie is enough": (without(*fenced(2, "b2", 0)), "fencing ends"),
    "a recovery believes more than it was told": (instead(EndsFencing("r", 1), EndsFencing("r", 2)), "fencing ends"),
    "a recovery reads before it has fenced": (without(EndsFencing("r", 1)), "ClientSendsRecoveryReadRequests"),
    "a recovery read does not fence": (
        instead(AsksToRead("r", 3, "b1", Ids(2, 5), True), AsksToRead("r", 3, "b1", Ids(2, 5), False)),
        "ClientSendsRecoveryRead"),
    "a recovery reads where the entry never was": (
        before(CLOSE, AsksToRead("r", 9, "b3", Ids(3, 5), True)), "ClientSendsRecoveryReadRequests"),
    "a fenced bookie takes a writer's add": (
        before(CLOSE, AnswersAdd("b2", Ids(2, 2), False, "OK")), "BookieSendsAddConfirmedResponse"),
    "a bookie denies what it acknowledged": (
        before(CLOSE, AnswersRead("b1", (), "NO_SUCH_ENTRY", 2)), "BookieSendsReadResponse"),
    "a bookie refuses as fenced that nobody fenced": (
        before(CLOSE, AnswersAdd("b4", Ids(2, 2), False, "FENCED")), "BookieSendsAddFencedResponse"),
    "a bookie in limbo denies": (
        before(CLOSE, Starts("b2", True), AnswersRead("b2", (), "NO_SUCH_ENTRY", 3)), "BookieSendsReadResponse"),
    "one denial is enough": (without(HearsEnd("r", 7, "NO_SUCH_ENTRY", 3)), "close of a recovery"),
    "an answer that is unknown counts as a denial": (
        instead(AnswersRead("b2", (), "NO_SUCH_ENTRY", 3), AnswersRead("b2", (), "UNKNOWN", 3)),
        "ClientReceivesRecoveryReadResponse"),
    "it is closed before the entry that was found": (
        instead(CLOSE, Writes("r", replace(ENDED, last_entry_id=1), 2)), "close of a recovery"),
    "it is closed behind the entry that is absent": (
        instead(CLOSE, Writes("r", replace(ENDED, last_entry_id=3), 2)), "close of a recovery"),
    "it is closed before what was written back has a quorum": (without(HearsAdd("r", 6, "OK")), "close of a recovery"),
    "a compare-and-set wins against another version": (
        before(Stores("r", 3, ENDED), Stores("x", 3, replace(MARKED, last_entry_id=None), True)), "metadata is stored"),
    "it is closed again": (
        lambda trace: [*trace, Stores("r", 4, replace(ENDED, last_entry_id=1))], "no step"),
    "a writer goes on after it was fenced": (lambda trace: [*trace, *add(30, "b1", 3, 1)], "ClientSendsAddEntryRequests"),
    "a client learns what was never stored": (lambda trace: [*trace, Learns("w", 3, CHANGED)], "metadata is read"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_a_life_in_which(name: str) -> None:
    change, step = REFUSED[name]
    with pytest.raises(NotAllowedError) as refused:
        judge(change(life()))
    assert step in refused.value.step


def test_a_bookie_that_deleted_its_copies_may_refuse_late_adds_and_deny_what_it_had() -> None:
    denial, refusal = AnswersRead("b4", (), "NO_SUCH_LEDGER", 0), AnswersAdd("b4", Ids(2, 2), False, "FENCED")
    counts = judge([*life(), DeletesLedger("b4"), denial, refusal]).counts
    assert counts["(copies are deleted)"] == 1


def test_a_trace_is_the_same_when_it_was_written_down() -> None:
    assert [decode(encode(one)) for one in life()] == life()


def test_what_the_store_took_is_found_from_what_was_asked_for_and_learnt() -> None:
    """Nobody records the moment at which the store takes something."""
    recorded = [one for one in life() if not isinstance(one, Stores)]
    found = [one for one in with_stores(recorded, (3, ENDED)) if isinstance(one, Stores)]
    assert [(one.version, one.ledger) for one in found] == [(0, NEW), (1, CHANGED), (2, MARKED), (3, ENDED)]
    assert judge(with_stores(recorded, (3, ENDED))).counts["RecoveryClientClosesLedger"] == 1


def test_what_nobody_asked_for_and_is_stored_is_refused() -> None:
    recorded = [one for one in life() if not isinstance(one, Stores)]
    with pytest.raises(NotAllowedError, match="nobody asked for what was stored as version 4"):
        judge(with_stores(recorded, (5, ENDED)))
