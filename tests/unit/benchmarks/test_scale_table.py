"""Exponents of growth, and what of them is above its limit."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.scale import operations
from benchmarks.scale.measured import Used
from benchmarks.scale.operation import OPERATIONS
from benchmarks.scale.size import Size
from benchmarks.scale.table import Grown, grown, lines

operations.load()
FIGURES = {"wall_s": 1.0, "cpu_s": 1.0, "peak_mib": 100.0, "requests": 1_000.0}


def _grown(times: float, limit: float, amounts: tuple[int, int] = (1_000, 10_000)) -> Grown:
    large = {name: value * times for name, value in FIGURES.items()}
    return Grown("an operation", "what it does", amounts, FIGURES, large, limit)


@pytest.mark.parametrize(("times", "exponent"), [(1.0, 0.0), (10.0, 1.0), (100.0, 2.0)])
def test_the_exponent_says_with_which_power_of_the_amount_a_figure_grows(times: float, exponent: float) -> None:
    assert list(_grown(times, 1.1).exponents.values()) == pytest.approx([exponent] * 4)


def test_the_exponent_goes_by_what_the_operation_works_on() -> None:
    """A cluster with ten times the ledgers may have only twice the tails."""
    assert _grown(2.0, 1.1, (10, 20)).exponents["wall_s"] == pytest.approx(1.0)


def test_figures_too_small_to_tell_of_growth_count_as_not_growing() -> None:
    small, large = dict.fromkeys(FIGURES, 0.0), {"wall_s": 0.01, "cpu_s": 0.01, "peak_mib": 4.0, "requests": 19.0}
    assert set(Grown("", "", (1, 10), small, large, 0.2).exponents.values()) == {0.0}


@pytest.mark.parametrize(("times", "limit", "excess"), [(10.0, 1.1, 0), (13.0, 1.1, 4), (1.5, 0.2, 0), (1.7, 0.2, 4)])
def test_what_grows_faster_than_its_limit_is_named(times: float, limit: float, excess: int) -> None:
    assert len(_grown(times, limit).excess) == excess


def test_each_part_of_an_operation_has_the_limit_of_its_kind() -> None:
    used = {"": Used(1.0, 1.0, 1.0, Counter(all=1))}
    results = {"ledger_list": {**used, "one page": used[""]}, "doctor": used}
    rows = list(grown((Size(1_000), Size(10_000)), results, results))
    assert [(row.name, row.limit) for row in rows] == [("ledger_list", 1.1), ("ledger_list: one page", 0.2), ("doctor", 0.2)]
    assert len(list(lines(rows))) == 2 + len(rows)


def test_the_full_size_is_what_a_cluster_may_have() -> None:
    size = Size(1_000_000)
    assert (size.versions, size.logs, size.followed_logs, size.held) == (100_000, 10_000, 2_000, 300_000)
    assert (size.tails, size.tailed_ledgers, size.writers, size.watches) == (2_000, 200, 5_000, 10_000)


def test_the_smallest_size_has_something_of_everything() -> None:
    size = Size(100)
    assert min(size.versions, size.logs, size.followed_logs, size.orphans, size.held, size.tails, size.writers) > 0
    assert size.followed_logs < size.logs
    assert all(one.amount(Size(1_000)) >= one.amount(size) > 0 for one in OPERATIONS.values())
