"""What becomes of packets on a link."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.soak.partitions.link import QUEUE_S, WHOLE, Link, Passage, between, combined

NOW_S = 100.0


def arrivals(link: Link, packets: int = 1, nbytes: int = 1_000) -> tuple[list[list[float]], Counter[str]]:
    passage, chosen = Passage(link), random.Random(1)
    return [passage.arrivals(nbytes, NOW_S, chosen) for _ in range(packets)], Counter(passage.counts)


def test_a_whole_link_delivers_every_packet_once_and_at_once() -> None:
    assert arrivals(WHOLE, 3) == ([[NOW_S]] * 3, {"passed": 3})


@pytest.mark.parametrize(
    ("link", "fate"), [(Link(is_cut=True), "cut"), (Link(is_reset=True), "reset"), (Link(loss=1.0), "lost")]
)
def test_a_link_that_is_cut_reset_or_loses_all_delivers_nothing(link: Link, fate: str) -> None:
    assert arrivals(link, 3) == ([[]] * 3, {fate: 3})


def test_loss_and_duplication_hit_as_many_packets_as_their_probabilities_say() -> None:
    _, counts = arrivals(Link(loss=0.1, duplication=0.5), 10_000)
    assert counts["lost"] == pytest.approx(1_000, rel=0.1)
    assert counts["duplicated"] == pytest.approx(4_500, rel=0.1)


def test_jitter_lets_packets_overtake_each_other_by_no_more_than_itself() -> None:
    found, _ = arrivals(Link(delay_ms=50, jitter_ms=20), 100)
    late_s = [one - NOW_S for (one,) in found]
    assert 0.05 <= min(late_s) < max(late_s) <= 0.07
    assert late_s != sorted(late_s)


def test_a_narrow_link_spreads_packets_over_time_and_drops_what_its_queue_does_not_hold() -> None:
    found, counts = arrivals(Link(bytes_per_s=8_000), 20, nbytes=1_000)
    waits_s = [one[0] - NOW_S for one in found if one]
    assert waits_s == [number / 8 for number in range(1, 9)]
    assert (max(waits_s), counts["crowded out"]) == (QUEUE_S, 12)


def test_faults_of_one_link_add_up() -> None:
    both = combined([Link(loss=0.5, delay_ms=10, bytes_per_s=100), Link(is_cut=True, loss=0.5, jitter_ms=5, bytes_per_s=50)])
    assert both == Link(is_cut=True, loss=0.75, delay_ms=10, jitter_ms=5, bytes_per_s=50)
    assert combined([]) == WHOLE


def test_no_node_has_a_link_to_itself() -> None:
    assert between(["a", "b"], ["b", "c"]) == [("a", "b"), ("a", "c"), ("b", "c")]
