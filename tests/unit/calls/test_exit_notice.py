from __future__ import annotations

from bk_spark.calls.exit_notice import MOST_NAMES, Unconfirmed, sentence


def test_nothing_is_said_where_all_is_confirmed() -> None:
    assert sentence([]) == ""
    assert sentence([Unconfirmed(0, "entry", "ledger 5")]) == ""


def test_what_the_writers_of_one_log_hold_is_one_number() -> None:
    said = sentence([Unconfirmed(1_000, "entry", "log 'led'"), Unconfirmed(1, "entry", "log 'led'")])
    assert "appends to log 'led' (1,001 entries) are confirmed" in said


def test_the_sentence_stays_short_however_many_ledgers_it_is_about() -> None:
    said = sentence([Unconfirmed(1, "entry", f"ledger {number}") for number in range(1_000)])
    assert said.count("ledger") == MOST_NAMES
    assert f"and {1_000 - MOST_NAMES} more are" in said
