"""Racks that placement uses beside those that it could use, and how evenly it loads bookies, over random clusters.

``python -m benchmarks.rack_placement [--clusters 2000] [--seed 1]``. A cluster has 3 to 40 bookies in 1 to 10 racks of very
different sizes; some of its bookies are read-only or in quarantine. Ensembles are chosen, of each one or two bookies are lost,
and replaced. What is possible is computed apart from placement: for new ensembles from the sizes of the racks, and where that
bound is not reached by trying all orders; for replacements by trying all bookies that are left.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bk_spark.client.protocol.placement.choose_bookies import Candidate, Terms, choose_ensemble, choose_replacements

ENSEMBLES = 100
"""Of each cluster. Of a quarter of them bookies are lost."""

MAX_ORDERS = 50_000
"""A bound that is not reached is checked against all orders, if these are not more."""


class Spans(NamedTuple):
    """The racks that write sets span: that of the write set with fewest counts before the sum."""

    fewest: int
    total: int


@dataclass(slots=True)
class Counts:
    """Of ensembles, or of replacements."""

    chosen: int = 0
    fewer: int = 0
    """Those that span less than what is possible."""
    unproved: int = 0
    """Those below a bound of which it is not known whether it can be reached."""
    racks: int = 0
    possible: int = 0

    def add(self, used: Spans, possible: Spans, *, is_proved: bool) -> None:
        self.chosen += 1
        self.racks += used.total
        self.possible += possible.total
        self.fewer += used < possible and is_proved
        self.unproved += used < possible and not is_proved


@dataclass(slots=True)
class Found:
    ensembles: Counts = field(default_factory=Counts)
    replacements: Counts = field(default_factory=Counts)
    loads: list[float] = field(default_factory=list)
    """Of each cluster the load of the bookie with most, divided by the mean."""
    free_loads: list[float] = field(default_factory=list)
    """The same, of clusters in which no rack has to take more than its share: racks are twice as many as copies."""


def spans_of(racks: Sequence[str], write_quorum: int) -> Spans:
    size = len(racks)
    starts = range(1 if size == write_quorum else size)
    each = [len({racks[(start + k) % size] for k in range(write_quorum)}) for start in starts]
    return Spans(min(each), sum(each))


def bound_of(racks: Sequence[str], size: int, write_quorum: int) -> int:
    """No ensemble's write sets span more in all: m slots of a rack are in m times Qw write sets at most, and in all E."""
    worth = [min(size, (m + 1) * write_quorum) - min(size, m * write_quorum) for n in Counter(racks).values() for m in range(n)]
    total = sum(sorted(worth, reverse=True)[:size])
    return total // size if size == write_quorum else total


def best_order(racks: Sequence[str], size: int, write_quorum: int) -> Spans | None:
    """By trying all; None if these are too many."""
    kinds = sorted(set(racks))
    if len(kinds) ** size > MAX_ORDERS:
        return None
    supply = Counter(racks)
    orders = (order for order in itertools.product(kinds, repeat=size) if not Counter(order) - supply)
    return max(spans_of(order, write_quorum) for order in orders)


def cluster_of(chance: random.Random) -> list[Candidate]:
    bookies, racks = chance.randint(3, 40), chance.randint(1, 10)
    weights = [chance.random() ** 2 + 0.02 for _ in range(racks)]
    names = chance.choices([f"/rack-{number}" for number in range(racks)], weights, k=bookies)
    troubles = [chance.random() for _ in names]
    return [Candidate(f"b{n}", names[n], troubles[n] < 0.05, 0.05 <= troubles[n] < 0.1) for n in range(bookies)]


def usable(candidates: Sequence[Candidate], needed: int) -> list[Candidate]:
    """Read-only bookies take nothing, quarantined ones only where the others are too few."""
    writable = [one for one in candidates if not one.is_read_only]
    healthy = [one for one in writable if not one.is_quarantined]
    return healthy if len(healthy) >= needed else writable


def look_at(candidates: Sequence[Candidate], chance: random.Random, found: Found) -> None:
    most = len([one for one in candidates if not one.is_read_only])
    if most < 2:
        return
    size = chance.randint(2, min(6, most))
    write_quorum = chance.choice([size, chance.randint(2, size)])
    rack = {one.bookie_id: one.rack for one in candidates}
    there = usable(candidates, size)
    racks = [one.rack for one in there]
    bound, load = bound_of(racks, size, write_quorum), Counter(dict.fromkeys((one.bookie_id for one in there), 0))
    exact: Spans | None = None
    for number in range(ENSEMBLES):
        ensemble = choose_ensemble(candidates, size, Terms(write_quorum), chance.randrange).bookies
        load.update(ensemble)
        used = spans_of([rack[one] for one in ensemble], write_quorum)
        if used.total < bound and exact is None:
            exact = best_order(racks, size, write_quorum)
        possible = Spans(used.fewest, bound) if exact is None else exact
        found.ensembles.add(used, possible, is_proved=used.total >= bound or exact is not None)
        if number % 4 == 0:
            replace_some(candidates, ensemble, write_quorum, chance, found.replacements)
    spread = max(load.values()) / (sum(load.values()) / len(load))
    found.loads.append(spread)
    if len(set(racks)) >= 2 * write_quorum:
        found.free_loads.append(spread)


def replace_some(
    candidates: Sequence[Candidate], ensemble: tuple[str, ...], write_quorum: int, chance: random.Random, counts: Counts
) -> None:
    """The lost bookies are excluded, and what remains possible is tried out."""
    slots = sorted(chance.sample(range(len(ensemble)), chance.randint(1, min(2, len(ensemble)))))
    lost = frozenset(ensemble[slot] for slot in slots)
    rack = {one.bookie_id: one.rack for one in candidates}
    free = usable([one for one in candidates if one.bookie_id not in ensemble], len(slots))
    if len(free) < len(slots):
        return
    terms = Terms(write_quorum)
    chosen = choose_replacements(candidates, ensemble, slots, lost, terms=terms, choose=chance.randrange)
    after = [rack[one] for one in ensemble]
    for slot, bookie_id in chosen.bookies:
        after[slot] = rack[bookie_id]
    possible = max(spans_of(one, write_quorum) for one in _all_after(ensemble, slots, free, rack))
    counts.add(spans_of(after, write_quorum), possible, is_proved=True)


def _all_after(
    ensemble: tuple[str, ...], slots: Sequence[int], free: Sequence[Candidate], rack: dict[str, str]
) -> Iterator[list[str]]:
    supply = Counter(one.rack for one in free)
    for racks in itertools.product(supply, repeat=len(slots)):
        if not Counter(racks) - supply:
            after = [rack[one] for one in ensemble]
            for slot, name in zip(slots, racks, strict=True):
                after[slot] = name
            yield after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    found = Found()
    for number in range(args.clusters):
        chance = random.Random(f"{args.seed} {number}")
        look_at(cluster_of(chance), chance, found)
    print("| what | choices | fewer racks than possible | not proved | racks used / possible |\n|---|---|---|---|---|")
    for name in ("ensembles", "replacements"):
        one: Counts = getattr(found, name)
        print(f"| {name} | {one.chosen:,} | {one.fewer:,} | {one.unproved:,} | {one.racks / max(1, one.possible):.4f} |")
    for name, loads in (("all clusters", found.loads), ("racks twice the copies or more", found.free_loads)):
        ordered = sorted(loads)
        mean, tail = sum(ordered) / len(ordered), ordered[len(ordered) * 95 // 100]
        print(f"load of the bookie with most / mean, {name} ({len(ordered):,}): mean {mean:.2f}, 95th percentile {tail:.2f}")


if __name__ == "__main__":
    main()
