"""Over random clusters no choice of bookies uses fewer racks than it could. Situation 89.

``python -m benchmarks.rack_placement`` looks at 2,000 clusters and many choices of each.
"""

from __future__ import annotations

import random

import pytest

from benchmarks import rack_placement
from benchmarks.rack_placement import Found, best_order, bound_of, cluster_of, look_at


@pytest.mark.parametrize("seed", range(8))
def test_no_choice_uses_fewer_racks_than_it_could(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rack_placement, "ENSEMBLES", 4)
    found = Found()
    for number in range(25):
        chance = random.Random(f"{seed} {number}")
        look_at(cluster_of(chance), chance, found)
    assert found.ensembles.chosen > 80
    assert found.replacements.chosen > 15
    for counts in (found.ensembles, found.replacements):
        assert (counts.fewer, counts.racks) == (0, counts.possible)


def test_the_bound_is_what_the_best_order_has_in_small_clusters() -> None:
    for racks, size, write_quorum, racks_in_sum in (("aaab", 4, 2, 6), ("aabbc", 5, 2, 10), ("abc", 3, 3, 3), ("aab", 3, 3, 2)):
        best = best_order(racks, size, write_quorum)
        assert best is not None
        assert bound_of(racks, size, write_quorum) == best.total == racks_in_sum
