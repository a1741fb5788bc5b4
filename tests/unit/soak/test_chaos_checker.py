"""The checker, on histories made by hand: it accepts a faultless one, and finds what each of the others violates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.soak.chaos import history
from tests.soak.chaos.checker import EXPECTED, Verdict, check
from tests.soak.chaos.history import Event, Recorder, digest, load

ENTRIES = 4
DIGESTS = [digest(b"entry %d" % number) for number in range(ENTRIES)]
SIZES = [7] * ENTRIES


def story(*told: tuple[str, str, dict[str, Any]]) -> list[Event]:
    """Events in the order in which they are told: who, kind, facts. The time of the n-th one is n + 1."""
    return [Event(number, who, kind, facts) for number, (who, kind, facts) in enumerate(told, start=1)]


def appended(first: int, count: int = 1) -> tuple[str, str, dict[str, Any]]:
    facts = {"first": first, "sizes": SIZES[first : first + count], "digests": DIGESTS[first : first + count]}
    return "writer", history.APPENDED, facts


def confirmed(first: int, last: int | None = None) -> tuple[str, str, dict[str, Any]]:
    return "writer", history.CONFIRMED, {"first": first, "last": first if last is None else last}


def failed(error: str, kind: str = history.WRITER_FAILED) -> tuple[str, str, dict[str, Any]]:
    return "writer", kind, {"error": error, "text": ""}


def opened(last: int = 3, length: int = 28, who: str = "recoverer-0") -> tuple[str, str, dict[str, Any]]:
    return who, history.OPENED, {"last": last, "length": length}


def read(who: str, first: int = 0, digests: list[str] = DIGESTS, *, final: bool = True) -> tuple[str, str, dict[str, Any]]:
    return who, history.READ, {"first": first, "digests": digests, "final": final}


def shown(last_add_confirmed: int, asked_ns: int = 0, *, quorum: bool = False) -> tuple[str, str, dict[str, Any]]:
    facts = {"last_add_confirmed": last_add_confirmed, "quorum": quorum, "asked_ns": asked_ns}
    return "follower", history.SHOWN, facts


def done(*late: str) -> tuple[str, str, dict[str, Any]]:
    return "round", history.DONE, {"late": list(late)}


OPENING = ("recoverer-0", history.OPENING, dict[str, Any]())
WRITTEN = (appended(0, 2), confirmed(0, 1), appended(2), appended(3), confirmed(2))
"""Times 1 to 5. Entry 3 is appended, and never confirmed."""
RECOVERED = (OPENING, opened(), opened(who="recoverer-1"))
READ_TWICE = (read("reader-a"), read("reader-b", 0, DIGESTS[:1]), read("reader-b", 1, DIGESTS[1:]), done())


def found(verdict: Verdict) -> list[str]:
    return sorted({violation.invariant for violation in verdict.violations})


def test_a_history_in_which_everything_held_is_accepted() -> None:
    events = story(*WRITTEN, shown(1, asked_ns=6, quorum=True), failed("AddQuorumTimeoutError"), *RECOVERED, *READ_TWICE)
    verdict = check(events)
    assert found(verdict) == []
    assert (verdict.confirmed, verdict.lost, verdict.divergent, verdict.unended) == (3, set(), set(), False)


def test_a_ledger_without_confirmed_entries_that_ends_empty_is_accepted() -> None:
    empty = [read("reader-a", 0, []), read("reader-b", 0, [])]
    assert found(check(story(appended(0), OPENING, opened(-1, 0), *empty, done()))) == []


def test_a_confirmed_entry_beyond_the_closed_end_is_found_also_when_it_was_confirmed_after_the_close() -> None:
    short = [read("reader-a", 0, DIGESTS[:2]), read("reader-b", 0, DIGESTS[:2]), done()]
    verdict = check(story(*WRITTEN[:4], OPENING, opened(1, 14), WRITTEN[4], *short))
    assert found(verdict) == ["I1"]
    assert verdict.lost == {2}


def test_confirmations_with_a_gap_or_out_of_order_are_found() -> None:
    for order in ([confirmed(1), confirmed(2)], [confirmed(1), confirmed(0)], [confirmed(0), confirmed(0)]):
        assert "I2" in found(check(story(appended(0, 4), *order, *RECOVERED, *READ_TWICE)))


def test_two_ends_of_one_ledger_are_found() -> None:
    assert "I4" in found(check(story(*WRITTEN, OPENING, opened(), opened(2, 21, "recoverer-1"), *READ_TWICE)))


def test_a_writer_that_closed_elsewhere_than_the_recoverers_is_found() -> None:
    closed = ("writer", history.WRITER_CLOSED, {"last": 2, "length": 21})
    assert "I4" in found(check(story(*WRITTEN, closed, *RECOVERED, *READ_TWICE)))


def test_a_wrong_length_and_an_end_beyond_what_was_appended_are_found() -> None:
    assert found(check(story(*WRITTEN, OPENING, opened(3, 27), *READ_TWICE))) == ["I7"]
    assert "I7" in found(check(story(*WRITTEN, OPENING, opened(4, 28), *READ_TWICE)))


def test_a_length_is_judged_unless_javas_client_may_have_recovered_the_ledger() -> None:
    for roles, violated in (((), ["I7"]), (("writer",), ["I7"]), (("first",), []), (("writer", "second"), [])):
        plan = ("round", history.PLAN, {"java_roles": list(roles)})
        assert found(check(story(plan, *WRITTEN, OPENING, opened(3, 27), *READ_TWICE))) == violated


def test_a_confirmed_entry_that_one_of_two_readers_does_not_find_is_lost() -> None:
    verdict = check(story(*WRITTEN, *RECOVERED, read("reader-a"), read("reader-b", 0, DIGESTS[:2]), done()))
    assert verdict.lost == {2}
    assert found(verdict) == ["I1", "I8"]


def test_confirmed_entries_that_only_one_reader_could_read_count_as_lost() -> None:
    assert check(story(*WRITTEN, *RECOVERED, read("reader-a"), done())).lost == {0, 1, 2}


def test_an_unconfirmed_entry_within_the_end_must_be_there_for_all_readers() -> None:
    verdict = check(story(*WRITTEN, *RECOVERED, read("reader-a"), read("reader-b", 0, DIGESTS[:3]), done()))
    assert (found(verdict), verdict.lost) == (["I8"], set())


def test_an_entry_that_two_readers_read_differently_is_divergent() -> None:
    other = [*DIGESTS[:2], digest(b"something else"), DIGESTS[3]]
    verdict = check(story(*WRITTEN, *RECOVERED, read("reader-a"), read("reader-b", 0, other), done()))
    assert (found(verdict), verdict.divergent) == (["I12"], {2})


def test_an_entry_that_all_readers_read_wrongly_is_found() -> None:
    swapped = [DIGESTS[1], DIGESTS[0], *DIGESTS[2:]]
    verdict = check(story(*WRITTEN, *RECOVERED, read("reader-a", 0, swapped), read("reader-b", 0, swapped), done()))
    assert (found(verdict), verdict.divergent) == (["I12"], set())


def test_a_last_add_confirmed_beyond_the_end_or_beyond_what_was_appended_is_found() -> None:
    shorter = (OPENING, opened(2, 21), *(read(who, 0, DIGESTS[:3]) for who in ("reader-a", "reader-b")), done())
    assert found(check(story(*WRITTEN, shown(3), *shorter))) == ["I13"]
    assert found(check(story(appended(0), shown(1), OPENING, opened(-1, 0), done("reader-a"))))[0] == "I13"


def test_a_quorum_that_shows_less_than_it_must_know_is_found_and_one_that_was_asked_before_is_not() -> None:
    """Entry 2 is appended at time 3, after entry 1 was confirmed, and is confirmed at time 5."""
    for asked_ns, expected in ((6, ["I13"]), (4, [])):
        assert found(check(story(*WRITTEN, shown(0, asked_ns, quorum=True), *RECOVERED, *READ_TWICE))) == expected
    assert found(check(story(*WRITTEN, shown(0, 6, quorum=False), *RECOVERED, *READ_TWICE))) == []


def test_a_confirmed_entry_that_is_denied_is_found_and_an_unconfirmed_one_may_be_absent() -> None:
    def denied(entry_id: int) -> tuple[str, str, dict[str, Any]]:
        return "follower", history.DENIED, {"entry_id": entry_id, "asked_ns": 6}

    assert found(check(story(*WRITTEN, denied(2), *RECOVERED, *READ_TWICE))) == ["I13"]
    assert found(check(story(*WRITTEN, denied(3), *RECOVERED, *READ_TWICE))) == []


def test_a_writer_that_is_fenced_before_anybody_recovers_is_found() -> None:
    assert found(check(story(*WRITTEN, failed("LedgerFencedError"), *RECOVERED, *READ_TWICE))) == ["I10"]
    assert found(check(story(*WRITTEN, OPENING, failed("LedgerFencedError"), opened(), *READ_TWICE))) == []


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_failure_that_no_fault_explains_is_found(kind: str) -> None:
    for error, expected in (("InternalError", ["I14"]), ("BookieUnavailableError", [])):
        assert found(check(story(*WRITTEN, failed(error, kind), *RECOVERED, *READ_TWICE))) == expected


def test_an_append_without_an_answer_of_a_writer_that_lived_is_found() -> None:
    ended = ("writer", history.WRITER_ENDED, dict[str, Any]())
    assert found(check(story(*WRITTEN, ended, *RECOVERED, *READ_TWICE))) == ["I14"]
    assert found(check(story(*WRITTEN, failed("AddQuorumTimeoutError"), ended, *RECOVERED, *READ_TWICE))) == []


def test_a_recovery_that_does_not_end_is_found_and_loses_nothing_by_itself() -> None:
    verdict = check(story(*WRITTEN, OPENING, done("recoverer-0")))
    assert (found(verdict), verdict.unended, verdict.lost) == (["I14"], True, set())


def test_one_late_recoverer_of_several_counts_and_a_late_follower_is_another_matter() -> None:
    assert check(story(*WRITTEN, *RECOVERED, *READ_TWICE[:-1], done("recoverer-1"))).unended
    verdict = check(story(*WRITTEN, *RECOVERED, *READ_TWICE[:-1], done("follower")))
    assert (found(verdict), verdict.unended) == (["I14"], False)


def test_histories_of_several_processes_are_read_in_the_order_of_their_times_without_a_torn_last_line(tmp_path: Path) -> None:
    writer, reader = Recorder(tmp_path / "writer.jsonl", "writer"), Recorder(tmp_path / "reader.jsonl", "reader")
    writer.record(history.CONFIRMED, first=0, last=0)
    reader.record(history.SHOWN, last_add_confirmed=0)
    writer.record(history.CONFIRMED, first=1, last=1)
    with (tmp_path / "writer.jsonl").open("ab") as torn:
        torn.write(b'{"at_ns": 1, "who": "wri')
    assert [event.who for event in load(tmp_path)] == ["writer", "reader", "writer"]
