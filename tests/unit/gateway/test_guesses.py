"""Wrong tokens are counted by where they come from, within bounds, and only for a while."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from bk_spark.gateway import guesses
from bk_spark.gateway.guesses import WINDOW_S, Guesses, network_of


def test_wrong_tokens_of_an_address_are_counted_from_one_on_and_each_address_for_itself() -> None:
    counts = Guesses()
    assert [counts.wrong("10.0.0.9", float(now)) for now in range(3)] == [1, 2, 3]
    assert counts.wrong("10.0.0.7", 3.0) == 1


def test_an_address_begins_anew_when_its_window_is_over() -> None:
    counts = Guesses()
    assert [counts.wrong("a", now) for now in (0.0, WINDOW_S - 1, WINDOW_S, WINDOW_S + 1)] == [1, 2, 1, 2]


def test_the_address_that_failed_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "MOST_ADDRESSES", 2)
    counts = Guesses()
    for host in ("a", "b", "a", "c"):
        counts.wrong(host, 0.0)
    assert len(counts) == 2
    assert counts.wrong("a", 1.0) == 3
    assert counts.wrong("b", 1.0) == 1


def test_all_addresses_of_a_network_of_ipv6_count_as_one() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2") == "2001:db8::/64"
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8::1")
    assert network_of("::ffff:10.0.0.9") == network_of("10.0.0.9") == "10.0.0.9"
    assert (network_of(""), network_of("gateway")) == ("", "gateway")


@pytest.mark.parametrize("seed", range(5))
def test_drawn_guesses_are_counted_as_a_list_of_them_says(seed: int) -> None:
    draw = random.Random(seed)
    counts, began, expected, now_s = Guesses(), dict[str, float](), Counter[str](), 0.0
    for _ in range(300):
        now_s += draw.random() * 10
        host = draw.choice("abc")
        if now_s - began.get(host, -WINDOW_S) >= WINDOW_S:
            began[host], expected[host] = now_s, 0
        expected[host] += 1
        assert counts.wrong(host, now_s) == expected[host]
