"""Rates and latencies from counters, and counters from what a bookie answers."""

from __future__ import annotations

import math

import pytest

from bk_spark.dashboard.rates import CounterHistory, Counters, counters_of, quantile

TEXT = """\
# TYPE adds_total counter
adds_total{bookie="b",status="ok"} 10.0
adds_total{bookie="b",status="fenced"} 5.0
# TYPE add_seconds histogram
add_seconds_bucket{le="0.1"} 90.0
add_seconds_bucket{le="+Inf"} 100.0
"""


def test_a_rate_is_what_a_counter_grew_between_the_last_two_looks() -> None:
    history = CounterHistory()
    history.add(Counters(0.0, {"adds": 0}))
    assert history.rate("adds") is None
    history.add(Counters(10.0, {"adds": 1000}))
    history.add(Counters(12.0, {"adds": 1500}))
    assert history.rate("adds") == 250
    assert history.rate("other") is None


def test_a_bookie_that_was_started_anew_has_no_rate_for_that_time() -> None:
    history = CounterHistory()
    history.add(Counters(0.0, {"adds": 1000}))
    history.add(Counters(2.0, {"adds": 3}))
    assert history.rate("adds") is None
    history.add(Counters(4.0, {"adds": 9}))
    assert history.rate("adds") == 3


def test_a_latency_is_that_of_the_requests_of_the_last_half_minute() -> None:
    history = CounterHistory()
    for second in range(0, 100, 2):
        slow = min(second, 40)  # a hundred slow ones each, until the fortieth second
        history.add(Counters(float(second), {}, {"add": ((0.01, 0.0), (1.0, slow * 50.0), (math.inf, slow * 50.0))}))
        if second == 60:
            assert history.quantile_s("add", 0.99) == pytest.approx(0.01 + 0.99 * 0.99)
    assert history.quantile_s("add", 0.99) is None


def test_a_quantile_is_linear_inside_its_bucket_and_never_invented_above_the_last_bound() -> None:
    assert quantile([(0.1, 50), (0.2, 100), (math.inf, 100)], 0.75) == pytest.approx(0.15)
    assert quantile([(0.1, 0), (0.2, 0), (math.inf, 9)], 0.99) == 0.2
    assert quantile([(0.1, 0), (math.inf, 0)], 0.99) is None
    assert quantile([], 0.99) is None


def test_counters_are_sums_of_what_succeeded() -> None:
    counters = counters_of(TEXT, 7.0)
    assert counters is not None
    assert counters.counts["adds_total"] == 10
    assert counters.histograms["add_seconds"] == ((0.1, 90.0), (math.inf, 100.0))
    assert counters.time_s == 7.0


@pytest.mark.parametrize("text", ["<html>", 'a{le="', "adds_total ten", 'add_seconds_bucket{le="x"} 1', "adds_total NaN"])
def test_what_is_no_metric_of_ours_is_no_counter(text: str) -> None:
    counters = counters_of(text, 0.0)
    assert counters is None or counters.counts == {}
