"""A writer has fewer batches under way while bookies take long to confirm them. Ref: protocol rule 68."""

from __future__ import annotations

from bk_spark.client.ledger.allowance import FIRST_REQUESTS, MAX_REQUESTS, SLOW_MS, Allowance


def _full() -> Allowance:
    allowance = Allowance()
    for _ in range(MAX_REQUESTS):
        allowance.confirmed(0, 1)
    return allowance


def test_batches_that_are_confirmed_in_time_let_it_grow_one_by_one() -> None:
    allowance, seen = Allowance(), []
    assert allowance.requests == FIRST_REQUESTS
    for _ in range(MAX_REQUESTS):
        allowance.confirmed(10, 10 + SLOW_MS)
        seen.append(allowance.requests)
    assert seen[:2] == [FIRST_REQUESTS + 1, FIRST_REQUESTS + 2]
    assert seen[-1] == MAX_REQUESTS


def test_slow_batches_halve_what_may_be_under_way_down_to_one() -> None:
    allowance, now_ms, seen = _full(), 0, []
    for _ in range(6):
        allowance.confirmed(now_ms, now_ms + SLOW_MS + 1)
        now_ms += SLOW_MS + 1
        seen.append(allowance.requests)
    assert seen == [MAX_REQUESTS // 2, MAX_REQUESTS // 4, MAX_REQUESTS // 8, 1, 1, 1]


def test_batches_that_were_under_way_at_a_cut_do_not_cut_again() -> None:
    allowance = _full()
    for number in range(MAX_REQUESTS):
        allowance.confirmed(number, SLOW_MS + 100 + number)
    assert allowance.requests == MAX_REQUESTS // 2
