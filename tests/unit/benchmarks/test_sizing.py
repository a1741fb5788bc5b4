"""The table of docs/deployment/sizing.md is what its program says, and the program says what a hand computes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.sizing import PLANS, TB, Machines, Plan, lines, needs
from tests.checkout import ROOT


def test_the_page_has_the_table_that_the_program_prints() -> None:
    page = (ROOT / "docs" / "deployment" / "sizing.md").read_text()
    assert "\n".join(lines(PLANS, Machines())) in page


def test_a_plan_needs_what_a_hand_computes() -> None:
    found = needs(Plan(rows_a_day=10**9, row_bytes=100, days=90), Machines())
    assert found.held_bytes == 27 * TB  # 0.1 TB a day, 90 days, three copies
    assert found.bookies == 6  # 27 / (8 * 0.76) are five, and one that may be lost
    assert found.recovery_s == pytest.approx(27e12 / 6 / (5 * 140e6) * 1.36)
    assert found.ledgers == 9_000 + 5_760
    assert found.first_limit == ("disks", pytest.approx(10**9 * 5 * 6.08 / 27))


def test_many_writes_ask_for_bookies_where_little_is_kept() -> None:
    found = needs(Plan(rows_a_day=10**11, days=1), Machines())
    assert (found.asked_by, found.bookies) == ("writes", 12)
    assert found.written_bytes_per_s == pytest.approx(1e13 / 86_400 * 9)


def test_small_ledgers_fill_zookeeper_first() -> None:
    name, rows = needs(Plan(rows_a_day=10**9, days=90), Machines(ledger_bytes=10**6)).next_limit
    assert name == "ZooKeeper's heap"
    assert rows < 10**9


def test_more_rows_never_need_less() -> None:
    for days in (7, 90):
        found = [needs(plan, Machines()) for plan in PLANS if plan.days == days]
        for less, more in pairwise(found):
            assert more.bookies >= less.bookies
            assert more.ledgers > less.ledgers
            assert more.held_bytes > less.held_bytes
