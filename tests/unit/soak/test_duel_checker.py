"""The checker of duels, on histories made by hand: it accepts a faultless one, and finds what each of the others violates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.soak.chaos.duel_checker import LOG_READ, Entry, Prefixes, check_duel
from tests.soak.chaos.duellist import APPENDED, CONFIRMED, FAILED, LED
from tests.soak.chaos.history import Event

Told = tuple[str, dict[str, Any]]


def led(session: str, epoch: int) -> Told:
    return LED, {"session": session, "epoch": epoch}


def appended(session: str, first: int, count: int = 1) -> Told:
    return APPENDED, {"session": session, "first": first, "count": count}


def confirmed(session: str, first: int, place: tuple[int, int], count: int = 1) -> Told:
    facts = {"session": session, "first": first, "count": count}
    return CONFIRMED, {**facts, "ledger_id": place[0], "entry_id": place[1]}


def failed(session: str | None, error: str = "LedgerFencedError") -> Told:
    return FAILED, {"session": session, "error": error, "text": ""}


def entries(*names: tuple[int, int, str]) -> list[Entry]:
    return [(ledger_id, entry_id, name.encode()) for ledger_id, entry_id, name in names]


def read(seen: Sequence[Entry]) -> Told:
    prefixes = Prefixes()
    for entry in seen:
        prefixes.add(entry)
    return LOG_READ, {"count": prefixes.count, "digest": prefixes.digest}


FINAL = entries((5, 0, "a 0"), (5, 1, "a 1"), (6, 0, "a 2"), (7, 0, "b 0"), (7, 1, "b 1"))
"""Session a rolled from ledger 5 to 6; its entry 3 was never confirmed. Session b displaced it."""

STORY = (
    led("a", 1),
    appended("a", 0, 2),
    appended("a", 2),
    confirmed("a", 0, (5, 0), 2),
    read(FINAL[:2]),
    confirmed("a", 2, (6, 0)),
    appended("a", 3),
    led("b", 2),
    appended("b", 0, 2),
    read(FINAL[:3]),
    confirmed("b", 0, (7, 0), 2),
    failed("a"),
    read(FINAL),
)


def found(told: Sequence[Told], final: Sequence[Entry] = FINAL) -> list[str]:
    events = [Event(number, "left-1", kind, facts) for number, (kind, facts) in enumerate(told)]
    return sorted({violation.invariant for violation in check_duel(events, final).violations})


def test_a_duel_in_which_everything_held_is_accepted_and_counted() -> None:
    assert found(STORY) == []
    verdict = check_duel([Event(n, "left-1", kind, facts) for n, (kind, facts) in enumerate(STORY)], FINAL)
    assert (verdict.confirmed, verdict.leaderships, verdict.displaced, verdict.ledgers, verdict.reads) == (5, 2, 1, 3, 3)


def test_an_entry_whose_outcome_was_unknown_may_be_there_or_not() -> None:
    kept = [*FINAL[:3], (6, 1, b"a 3"), *FINAL[3:]]
    assert found([*STORY[:-1]], kept) == []


def test_a_confirmed_entry_that_is_missing_or_elsewhere_is_found() -> None:
    assert "D1" in found(STORY, FINAL[:-1])
    assert "D1" in found(STORY, [*FINAL[:4], (7, 2, b"b 1")])


def test_an_entry_that_is_there_twice_and_one_that_nobody_appended_are_found() -> None:
    assert "D2" in found(STORY, [*FINAL, (8, 0, b"b 1")])
    assert found(STORY, [*FINAL, (7, 2, b"b 2")]) == ["D2"]


def test_an_entry_without_its_predecessor_is_found() -> None:
    """Log rule 3: entry 1 was in the former ledger, which was recovered short."""
    lost = [FINAL[0], *FINAL[2:]]
    story = [led("a", 1), appended("a", 0, 3), confirmed("a", 2, (6, 0)), *STORY[7:9], confirmed("b", 0, (7, 0), 2)]
    assert found(story, lost) == ["D3"]


def test_an_entry_that_stands_behind_one_that_was_appended_after_it_was_confirmed_is_found() -> None:
    """Log rule 2: the displaced leader goes on to confirm entries before those that others appended."""
    story = [*STORY[:-1], appended("a", 4), confirmed("a", 3, (6, 1), 2)]
    assert found(story, [*FINAL[:3], (6, 1, b"a 3"), (6, 2, b"a 4"), *FINAL[3:]]) == ["D4"]


def test_a_reader_that_saw_another_order_or_what_is_not_there_is_found() -> None:
    assert found([*STORY, read([FINAL[1], FINAL[0]])]) == ["D5"]
    assert found([*STORY, read([*FINAL, (7, 2, b"b 2")])]) == ["D5"]
    assert found([*STORY, read([*FINAL[:2], FINAL[3]])]) == ["D5"]


def test_leaders_that_share_an_epoch_or_write_out_of_their_turn_are_found() -> None:
    same = [led("b", 1) if one == led("b", 2) else one for one in STORY]
    assert found(same) == ["D6"]
    later = [led("a", 3) if one == led("a", 1) else one for one in STORY]
    assert found(later) == ["D6"]


@pytest.mark.parametrize(("error", "expected"), [("InternalError", ["D7"]), ("MetadataUnavailableError", [])])
def test_a_failure_that_nothing_explains_is_found(error: str, expected: list[str]) -> None:
    assert found([*STORY, failed(None, error)]) == expected
